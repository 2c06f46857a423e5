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
_ROWS_AT_ONCE: Final = 65_536


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
        except ImportError:
            raise MissingExtraError("dense retrieval", extra="search-dense") from None
        if not Path(settings.path).is_dir():
            raise ConfigError(f"the encoder {settings.path} is not a folder with a model")
        self._settings = settings
        self._torch = torch
        chosen = "cuda" if torch.cuda.is_available() else "cpu"
        self._device = settings.device or chosen
        self._tokenizer = AutoTokenizer.from_pretrained(settings.path)
        self._model = AutoModel.from_pretrained(settings.path).to(self._device).eval()

    def queries(self, texts: Sequence[str]) -> Any:
        """Unit vectors of shape (texts, dimension), float32."""
        return self._encoded([self._settings.query_prefix + text for text in texts])

    def passages(self, texts: Sequence[str]) -> Any:
        """As `queries`, for texts that are searched."""
        return self._encoded([self._settings.passage_prefix + text for text in texts])

    def _encoded(self, texts: list[str]) -> Any:
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
    """An open index: exact search over embeddings that are mapped from disk."""

    def __init__(self, encoder: Encoder, embeddings: Any) -> None:
        self._encoder = encoder
        self._embeddings = embeddings

    def best(self, queries: Sequence[str], count: int) -> list[list[tuple[int, float]]]:
        """For each query the `count` nearest documents and their cosine, nearest first."""
        import numpy as np

        if not queries:
            return []
        vectors = self._encoder.queries(queries)
        rows: Any = np.zeros((len(queries), 0), dtype=np.int64)
        scores: Any = np.zeros((len(queries), 0), dtype=np.float32)
        for start in range(0, len(self._embeddings), _ROWS_AT_ONCE):
            part = self._embeddings[start : start + _ROWS_AT_ONCE].astype(np.float32)
            near = vectors @ part.T
            found = np.broadcast_to(np.arange(start, start + len(part)), near.shape)
            scores, rows = _top(
                np.concatenate([scores, near], 1), np.concatenate([rows, found], 1), count
            )
        return [
            [(int(row), float(score)) for row, score in zip(*pair, strict=True)]
            for pair in zip(rows, scores, strict=True)
        ]


def build_dense(
    corpus: Corpus, folder: Path, encoder: Encoder, *, progress: Progress = silent
) -> None:
    """Write the embeddings of `corpus` into `folder`, as float16."""
    import numpy as np

    written: Any = None
    for start in range(0, len(corpus), _AT_ONCE):
        rows = range(start, min(start + _AT_ONCE, len(corpus)))
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


def _top(scores: Any, rows: Any, count: int) -> tuple[Any, Any]:
    """The `count` best columns of each line, best first; of equals the first row."""
    import numpy as np

    order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(scores, order, 1), np.take_along_axis(rows, order, 1)
