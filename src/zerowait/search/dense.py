"""Dense retrieval: exact search by cosine similarity of sentence embeddings.

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
from zerowait.search.corpus import Corpus, ReportProgress, no_progress

FILE: Final = "embeddings.npy"
_ENCODER_BATCH: Final = 64
_BUILD_BATCH: Final = 512
_ROWS_PER_BLOCK: Final = 65_536
_MOST_COPIED_BYTES: Final = 2**28


class EncoderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The embedding model and its inputs.

    Args:
        path: a folder in Hugging Face format.
        query_prefix, passage_prefix: prepended to each text; E5 needs ``query: ``.
        max_tokens: of one text; longer texts are truncated.
        device: of torch; None takes a GPU if there is one.
    """

    path: str
    query_prefix: str = ""
    passage_prefix: str = ""
    max_tokens: int = 256
    device: str | None = None


class Encoder:
    """Sentence encoder: unit vectors by mean pooling of a transformer's last hidden states.

    Raises:
        MissingExtraError: torch or transformers is not installed.
        ConfigError: the folder does not exist.
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
        logging.disable_progress_bar()  # of loading the weights
        self._tokenizer = AutoTokenizer.from_pretrained(settings.path)
        self._model = AutoModel.from_pretrained(settings.path).to(self._device).eval()

    def queries(self, texts: Sequence[str]) -> Any:
        """Unit vectors of shape (texts, dimension), float32."""
        return self._encode([self._settings.query_prefix + text for text in texts])

    def passages(self, texts: Sequence[str]) -> Any:
        """Unit vectors of documents, of shape (texts, dimension), float32."""
        return self._encode([self._settings.passage_prefix + text for text in texts])

    def _encode(self, texts: list[str]) -> Any:
        """Encode in batches of similar length, so that little is computed for padding."""
        import numpy as np

        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        vectors: Any = None
        for start in range(0, len(order), _ENCODER_BATCH):
            rows = order[start : start + _ENCODER_BATCH]
            part = self._encode_batch([texts[row] for row in rows])
            if vectors is None:
                vectors = np.empty((len(texts), part.shape[1]), dtype=np.float32)
            vectors[rows] = part
        return vectors

    def _encode_batch(self, texts: list[str]) -> Any:
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


class DenseIndex:
    """An open dense index: exact search over memory-mapped embeddings.

    Args:
        encoder: of the queries.
        embeddings: unit vectors of shape (documents, dimension), float16; copied into memory as
            float32 up to 256 MiB.
    """

    def __init__(self, encoder: Encoder, embeddings: Any) -> None:
        import numpy as np

        self._encoder = encoder
        small = embeddings.size * 4 <= _MOST_COPIED_BYTES
        self._embeddings = embeddings.astype(np.float32) if small else embeddings

    def best(self, queries: Sequence[str], count: int) -> list[list[tuple[int, float]]]:
        """For each query the `count` nearest documents and their cosine, nearest first."""
        if not queries:
            return []
        vectors = self._encoder.queries(queries)
        found: list[list[tuple[int, float]]] = []
        for start in range(0, len(vectors), _ENCODER_BATCH):
            found += self._nearest(vectors[start : start + _ENCODER_BATCH], count)
        return found

    def _nearest(self, vectors: Any, count: int) -> list[list[tuple[int, float]]]:
        import numpy as np

        best: list[list[tuple[int, float]]] = [[] for _ in vectors]
        for start in range(0, len(self._embeddings), _ROWS_PER_BLOCK):
            part = self._embeddings[start : start + _ROWS_PER_BLOCK].astype(np.float32, copy=False)
            for at, near in enumerate(vectors @ part.T):
                here = [(start + row, score) for row, score in _top(near, count)]
                best[at] = sorted(best[at] + here, key=lambda one: (-one[1], one[0]))[:count]
        return best


def build_dense(
    corpus: Corpus, folder: Path, encoder: Encoder, *, progress: ReportProgress = no_progress
) -> None:
    """Write the embeddings of `corpus` into `folder`, float16 of shape (documents, dimension).

    Args:
        corpus: the documents.
        folder: of the index.
        encoder: of the documents.
        progress: called with the share that is done.
    """
    import numpy as np

    written: Any = None
    for start in range(0, len(corpus), _BUILD_BATCH):
        rows = range(start, min(start + _BUILD_BATCH, len(corpus)))
        vectors = encoder.passages([corpus[row].contents for row in rows])
        if written is None:
            shape = (len(corpus), vectors.shape[1])
            written = np.lib.format.open_memmap(
                folder / FILE, mode="w+", dtype=np.float16, shape=shape
            )
        written[rows.start : rows.stop] = vectors
        progress(rows.stop / len(corpus))
    written.flush()


def open_dense(folder: Path, encoder: Encoder) -> DenseIndex:
    """The dense index in `folder`, with its embeddings memory-mapped."""
    import numpy as np

    return DenseIndex(encoder, np.asarray(np.load(folder / FILE, mmap_mode="r")))


def _top(scores: Any, count: int) -> list[tuple[int, float]]:
    """The `count` highest of `scores` as (row, score), highest first; ties by row.

    Args:
        scores: shape (documents,).
        count: at most so many.
    """
    import numpy as np

    rows = np.arange(len(scores))
    if len(scores) > count:
        rows = np.flatnonzero(scores >= np.partition(scores, -count)[-count])
    order = np.lexsort((rows, -scores[rows]))[:count]
    return list(zip(rows[order].tolist(), scores[rows[order]].tolist(), strict=True))
