"""Which documents mean the same as the query: cosine similarity of sentence embeddings.

Reference:
    Reimers & Gurevych 2019, Sentence-BERT (arXiv:1908.10084), mean pooling;
    Wang et al. 2022, E5 (arXiv:2212.03533), the prefixes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from zerowait.errors import ConfigError, MissingExtraError
from zerowait.search.corpus import Corpus, Progress, silent

FILE: Final = "embeddings.npy"
_AT_ONCE: Final = 64
_BUILT_AT_ONCE: Final = 512
_ROWS_AT_ONCE: Final = 65_536
_COPIED_BYTES: Final = 2**28


class EncoderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which model embeds, and how it is asked.

    Args:
        path: a folder in Hugging Face format.
        query_prefix, passage_prefix: written before each text; E5 wants ``query: ``.
        max_tokens: of one text; the rest is not read.
        device: where it runs; None for a GPU if there is one.
    """

    path: str
    query_prefix: str = ""
    passage_prefix: str = ""
    max_tokens: int = 256
    device: str | None = None


class Encoder:
    """Texts to unit vectors, by the mean of a transformer's last states.

    Raises:
        MissingExtraError: torch or transformers is not installed.
        ConfigError: there is no model in that folder.
    """

    def __init__(self, settings: EncoderSettings) -> None:
        try:
            import torch
            from transformers import AutoModel, AutoTokenizer
            from transformers.utils import logging
        except ImportError:
            raise MissingExtraError("dense retrieval", extra="search-dense") from None
        if not Path(settings.path).is_dir():
            raise ConfigError(f"the encoder {settings.path} is not a folder with a model")
        self._settings = settings
        self._torch = torch
        chosen = "cuda" if torch.cuda.is_available() else "cpu"
        self._device = settings.device or chosen
        logging.disable_progress_bar()  # of the loading, which takes a moment
        self._tokenizer = AutoTokenizer.from_pretrained(settings.path)
        self._model = AutoModel.from_pretrained(settings.path).to(self._device).eval()

    def queries(self, texts: Sequence[str]) -> Any:
        """Unit vectors of shape (texts, dimension), float32."""
        return self._encoded([self._settings.query_prefix + text for text in texts])

    def passages(self, texts: Sequence[str]) -> Any:
        """As `queries`, for texts that are searched."""
        return self._encoded([self._settings.passage_prefix + text for text in texts])

    def _encoded(self, texts: list[str]) -> Any:
        """Texts of one length together, so that little is computed for padding."""
        import numpy as np

        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        vectors: Any = None
        for start in range(0, len(order), _AT_ONCE):
            rows = order[start : start + _AT_ONCE]
            part = self._together([texts[row] for row in rows])
            if vectors is None:
                vectors = np.empty((len(texts), part.shape[1]), dtype=np.float32)
            vectors[rows] = part
        return vectors

    def _together(self, texts: list[str]) -> Any:
        torch = self._torch
        batch = self._tokenizer(
            texts,
            padding=True,
            truncation=True,
            max_length=self._settings.max_tokens,
            return_tensors="pt",
        ).to(self._device)
        with torch.inference_mode():
            states = self._model(**batch).last_hidden_state.float()
        mask = batch["attention_mask"].unsqueeze(-1).float()
        mean = (states * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean, dim=-1).cpu().numpy()


class Dense:
    """An open index: exact search over embeddings that are mapped from disk.

    Args:
        encoder: of the queries.
        embeddings: unit vectors of shape (documents, dimension), float16; copied as float32 where
            that takes little memory.
    """

    def __init__(self, encoder: Encoder, embeddings: Any) -> None:
        import numpy as np

        self._encoder = encoder
        small = embeddings.size * 4 <= _COPIED_BYTES
        self._embeddings = embeddings.astype(np.float32) if small else embeddings

    def best(self, queries: Sequence[str], count: int) -> list[list[tuple[int, float]]]:
        """For each query the `count` nearest documents and their cosine, nearest first."""
        if not queries:
            return []
        vectors = self._encoder.queries(queries)
        found: list[list[tuple[int, float]]] = []
        for start in range(0, len(vectors), _AT_ONCE):
            found += self._nearest(vectors[start : start + _AT_ONCE], count)
        return found

    def _nearest(self, vectors: Any, count: int) -> list[list[tuple[int, float]]]:
        import numpy as np

        best: list[list[tuple[int, float]]] = [[] for _ in vectors]
        for start in range(0, len(self._embeddings), _ROWS_AT_ONCE):
            part = self._embeddings[start : start + _ROWS_AT_ONCE].astype(np.float32, copy=False)
            for at, near in enumerate(vectors @ part.T):
                here = [(start + row, score) for row, score in _top(near, count)]
                best[at] = sorted(best[at] + here, key=lambda one: (-one[1], one[0]))[:count]
        return best


def build_dense(
    corpus: Corpus, folder: Path, encoder: Encoder, *, progress: Progress = silent
) -> None:
    """Write the embeddings of `corpus` into `folder`, as float16."""
    import numpy as np

    written: Any = None
    for start in range(0, len(corpus), _BUILT_AT_ONCE):
        rows = range(start, min(start + _BUILT_AT_ONCE, len(corpus)))
        vectors = encoder.passages([corpus[row].contents for row in rows])
        if written is None:
            shape = (len(corpus), vectors.shape[1])
            written = np.lib.format.open_memmap(
                folder / FILE, mode="w+", dtype=np.float16, shape=shape
            )
        written[rows.start : rows.stop] = vectors
        progress(rows.stop / len(corpus))
    written.flush()


def open_dense(folder: Path, encoder: Encoder) -> Dense:
    """The embeddings in `folder`, mapped from disk."""
    import numpy as np

    return Dense(encoder, np.asarray(np.load(folder / FILE, mmap_mode="r")))


def _top(scores: Any, count: int) -> list[tuple[int, float]]:
    """The `count` highest of `scores` as (row, score), highest first; of equals the first row."""
    import numpy as np

    rows = np.arange(len(scores))
    if len(scores) > count:
        rows = np.flatnonzero(scores >= np.partition(scores, -count)[-count])
    order = np.lexsort((rows, -scores[rows]))[:count]
    return list(zip(rows[order].tolist(), scores[rows[order]].tolist(), strict=True))
