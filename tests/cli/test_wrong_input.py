"""Wrong input at every command: one line that names it, exit code 2, and every file as it was."""

import asyncio
import io
import os
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from zerowait.cli import app
from zerowait.cli.preflight import check_tokenizer
from zerowait.config.source import parse_yaml
from zerowait.errors import ConfigError, DataError
from zerowait.hub import read_rewards
from zerowait.search.index import build_index, open_index
from zerowait.search.server import serving_index
from zerowait.search.wiki import read_articles
from zerowait.verl.launch.data_columns import check_data_file

RULE = "components: {answer: {scorer: contains}}\n"
JUDGE = """\
components: {quality: {judge: q}}
judges:
  q:
    endpoints: [{base_url: "http://127.0.0.1:9/v1", model: m}]
    verdict: {integer: [1, 10]}
    anchors: anchors.jsonl
cache: c.db
"""
ROW = '{"prompt": "q", "response": "Paris", "ground_truth": "Paris"}\n'
ANCHOR = '{"prompt": "q", "response": "a", "verdict": 5}\n'
QUESTION = '{"question": "q", "golden_answers": ["a"], "id": "1"}\n'
DOCUMENT = '{"id": "a", "contents": "Lima\\nLima is in Peru."}\n'
NO_TEXT = b'{"prompt": "\xff"}\n'


@pytest.fixture
def error_line(tmp_path, monkeypatch, capsys):
    """What a command says to its input, which must be one line with exit code 2."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("signal.signal", lambda *_: None)  # this process keeps its own handlers

    def error_line(*arguments, **files):
        for name, content in files.items():
            path = tmp_path / name.replace("__", ".")
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        before = snapshot(tmp_path)
        with pytest.raises(SystemExit) as ended:
            app.run(list(arguments))
        out, err = capsys.readouterr()
        assert (ended.value.code, out) == (2, ""), err
        assert err.startswith("zerowait: ")
        assert err.count("\n") == 1
        assert snapshot(tmp_path) == before
        return err

    return error_line


def snapshot(folder):
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}


SCORE = ("score", "d.jsonl", "-c", "r.yaml")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("-o", "d.jsonl"), "--out d.jsonl: is the input itself, which would be lost"),
        (("-o", "r.jsonl", "-c", "r.jsonl"), "--out r.jsonl: is read by this command, and would be lost"),
        (("-o", "anchors.jsonl", "-c", "j.yaml"), "--out anchors.jsonl: is read by this command"),
        (("--column", "response=a", "--column", "response=b"), "--column response=b: response is 'a' already"),
    ],
)  # fmt: skip
def test_no_output_takes_the_place_of_what_is_read(error_line, options, says):
    files = {"d__jsonl": ROW, "r__yaml": RULE, "r__jsonl": RULE}
    assert says in error_line(*SCORE, *options, **files, j__yaml=JUDGE, anchors__jsonl=ANCHOR)


@pytest.mark.parametrize("target", ["c.db", "j.yaml", "c-0-of-2.db"])
def test_an_export_never_takes_the_place_of_the_cache_or_its_configuration(error_line, target):
    shards = {"c-0-of-2__db": "", "c-1-of-2__db": ""} if "of" in target else {"c__db": ""}
    error = error_line("cache", "export", "j.yaml", target, j__yaml=JUDGE, **shards)
    assert f"{target}: is what is exported, which would be lost" in error


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ('{"prompt": "q", "response": "a", "response_tokens": -4}', "d.jsonl:1: response_tokens must be at least 0"),
        ('{"prompt": "q", "response": "a", "group_size": 0}', "d.jsonl:1: a sample's group_size must be"),
        ('{"prompt": "q", "response": "a", "score": NaN}', "d.jsonl:1: is no JSON object: NaN and Infinity are none; write null"),
        ('{"prompt": "q", "response": "a", "score": -Infinity}', "NaN and Infinity are none; write null"),
        ('{"prompt": "NaN", "response": a}', "d.jsonl:1: is no JSON object: invalid character"),
    ],
)  # fmt: skip
def test_a_wrong_row_is_named_with_its_file_and_line(error_line, row, says):
    assert says in error_line(*SCORE, d__jsonl=row + "\n", r__yaml=RULE)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("cache", "prune", "c.db", "--max-bytes", "9" * 400 + "G"), "is more than any disk holds"),
        (("cache", "prune", "c.db", "--max-bytes", "9" * 30), "is more than any disk holds"),
        (("retriever", "build", "c.jsonl", "i", "--encoder", "e"), "--encoder e: is for --kind dense and hybrid"),
        (("retriever", "build", "c.jsonl", "i", "--max-tokens", "0"), "'--max-tokens'"),
        (("data", "questions", "q.jsonl", "o.jsonl", "--limit", "0"), "'--limit'"),
        (("data", "wiki", "o", "--held-out", "-1"), "'--held-out'"),
    ],
)  # fmt: skip
def test_an_option_out_of_its_range_is_named(error_line, arguments, says):
    assert says in error_line(*arguments, c__db="", c__jsonl=DOCUMENT, q__jsonl=QUESTION)


@pytest.mark.parametrize("kind", ["pipe", "link", "link to nothing"])
@pytest.mark.parametrize(
    "command",
    [
        (*SCORE, "-o", "o.jsonl"),
        ("data", "questions", "q.jsonl", "o.jsonl"),
        ("data", "corpus", "c.jsonl", "o.jsonl"),
        ("cache", "export", "c.db", "o.jsonl"),
    ],
)
def test_no_output_takes_the_place_of_a_device_a_pipe_or_a_link(
    error_line, tmp_path, kind, command
):
    out = tmp_path / "o.jsonl"
    if kind == "pipe":
        os.mkfifo(out)
    else:
        (tmp_path / "elsewhere").write_text("kept")
        out.symlink_to("elsewhere" if kind == "link" else "nowhere")
    files = {"d__jsonl": ROW, "r__yaml": RULE, "q__jsonl": QUESTION, "c__jsonl": DOCUMENT}
    error = error_line(*command, **files, c__db="")
    assert "o.jsonl: is no regular file" in error if kind == "pipe" else "is a link" in error
    assert out.is_fifo() or out.is_symlink()


def test_an_output_that_is_a_folder_is_called_by_its_own_name(error_line, tmp_path):
    (tmp_path / "o.jsonl").mkdir()
    error = error_line("data", "questions", "q.jsonl", "o.jsonl", q__jsonl=QUESTION)
    assert "o.jsonl: is a folder" in error


@pytest.mark.parametrize("port", [-1, 65536, 80000])
def test_a_retrievers_port_is_not_cut_to_sixteen_bits(tmp_path, port):
    (tmp_path / "c.jsonl").write_text(DOCUMENT)
    build_index(tmp_path / "c.jsonl", tmp_path / "i")

    async def main(index):
        async with serving_index(index, port=port):
            pass

    with open_index(tmp_path / "i") as index, pytest.raises(ConfigError, match=f"not {port}"):
        asyncio.run(main(index))


@pytest.mark.parametrize("corpus", ["nowhere.jsonl", "broken.jsonl"])
def test_an_index_survives_a_build_that_cannot_begin(error_line, tmp_path, corpus):
    (tmp_path / "c.jsonl").write_text(DOCUMENT)
    build_index(tmp_path / "c.jsonl", tmp_path / "i")
    error_line("retriever", "build", corpus, "i", "--kind", "dense", "--encoder", "nowhere")
    error_line("retriever", "build", corpus, "new")
    with open_index(tmp_path / "i") as index:
        assert len(index) == 1


@pytest.mark.parametrize(
    "fault", ["{stat: 429, share: 0.2}", "{status: 429, share: 2}", "[status]"]
)
def test_a_fault_that_is_none_is_answered_with_those_there_are(error_line, fault):
    error = error_line("judge", "--fake", "--script", "s.yaml", s__yaml=f"faults: [{fault}]")
    assert "s.yaml:1: faults[0] must be one fault's name with its options" in error
    assert "known: " in error
    assert "garbage" in error


def test_a_model_without_a_tokenizer_is_named_before_anything_is_loaded(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    recipe = parse_yaml("model: {path: m}", name="r.yaml", base=tmp_path)
    fail = partial(recipe.fail, ("model", "path"))
    with pytest.raises(ConfigError, match=r"r\.yaml:1: model\.path m: there is no tokenizer"):
        check_tokenizer(tmp_path, "m", fail)
    for name in ("tokenizer.json", "vocab.json", "spiece.model", "qwen.tiktoken"):
        (tmp_path / name).write_text("")
        check_tokenizer(tmp_path, "m", fail)
        (tmp_path / name).unlink()
    check_tokenizer(tmp_path / "nowhere", "some/hub-name", fail)


@pytest.mark.parametrize("content", [NO_TEXT, b"[" * 200_000 + b"\n"])
def test_a_training_file_that_no_json_reader_takes_is_named(tmp_path, content):
    (tmp_path / "t.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=r"t\.jsonl, line 1: is n"):
        check_data_file(tmp_path / "t.jsonl")


def test_a_training_file_that_was_damaged_in_its_middle_is_named(tmp_path):
    messages = [[{"role": "user", "content": f"question {number}"}] for number in range(1000)]
    buffer = io.BytesIO()
    truths = [{"ground_truth": "a"}] * 1000
    pq.write_table(pa.table({"prompt": messages, "reward_model": truths}), buffer)
    whole = buffer.getvalue()
    (tmp_path / "t.parquet").write_bytes(whole[:50] + bytes(len(whole) - 1250) + whole[-1200:])
    with pytest.raises(DataError, match=r"t\.parquet: is damaged"):
        check_data_file(tmp_path / "t.parquet")


def test_text_that_is_not_utf_8_is_named_wherever_json_is_read(tmp_path):
    (tmp_path / "rewards.jsonl").write_bytes(b'{"sample": {"prompt": "\xff", "response": "a"}}\n')
    with pytest.raises(DataError, match=r"rewards\.jsonl:1: is damaged"):
        list(read_rewards(tmp_path))
    (tmp_path / "w.json").write_bytes(b'{"\xff": {"title": "a", "extract": "b"}}')
    with pytest.raises(DataError, match=r"w\.json: is no mapping"):
        read_articles(tmp_path / "w.json")
    (tmp_path / "index.json").write_bytes(b'{"kind": "bm25", "corpus": "\xff"}')
    with pytest.raises(DataError, match="is not an index of zerowait"):
        open_index(tmp_path)
