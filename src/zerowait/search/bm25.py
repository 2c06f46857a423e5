"""Which documents share the query's rarer words: BM25 over an index that is mapped from disk.

Reference:
    Robertson & Zaragoza 2009, "The probabilistic relevance framework: BM25 and beyond";
    Lu 2024, BM25S (arXiv:2407.03618), whose eager scores and files these are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zerowait.errors import DataError, MissingExtraError
from zerowait.search.corpus import Corpus, Progress, silent

FOLDER = "bm25"


class Bm25:
    """An open index."""

    def __init__(self, index: Any) -> None:
        self._index = index

    def best(self, queries: Sequence[str], count: int) -> list[list[tuple[int, float]]]:
        """For each query the `count` best documents and their scores above 0, best first.

        Documents with equal scores come in the order of the corpus.
        """
        return [self._best(tokens, count) for tokens in _tokens(queries)]

    def _best(self, tokens: list[str], count: int) -> list[tuple[int, float]]:
        import numpy as np

        if not tokens:
            return []
        scores = self._index.get_scores(tokens)
        # most documents share no word with the query: choosing among the others is much cheaper
        rows = np.flatnonzero(scores > 0)
        if len(rows) > count:
            least = np.partition(scores[rows], -count)[-count]
            rows = rows[scores[rows] >= least]
        order = np.lexsort((rows, -scores[rows]))[:count]
        return [(int(rows[at]), float(scores[rows[at]])) for at in order]


def build_bm25(corpus: Corpus, folder: Path, *, progress: Progress = silent) -> None:
    """Write the index of `corpus` into `folder`.

    Raises:
        MissingExtraError: bm25s is not installed.
        DataError: no document has a word of two letters or more that is no stop word.
    """
    library = _library()
    index = library.BM25()
    texts = [passage.contents for passage in corpus]
    progress(0.2)
    tokens = library.tokenize(texts, show_progress=False, leave=False)
    if not any(len(ids) for ids in tokens.ids):
        raise DataError(f"{corpus.path}: no document has a word that could be searched for")
    progress(0.7)
    index.index(tokens, show_progress=False)
    index.save(str(folder / FOLDER), show_progress=False)
    progress(1.0)


def open_bm25(folder: Path) -> Bm25:
    """The index in `folder`, mapped from disk.

    Raises:
        MissingExtraError: bm25s is not installed.
    """
    return Bm25(_library().BM25.load(str(folder / FOLDER), mmap=True, show_progress=False))


def _tokens(queries: Sequence[str]) -> list[list[str]]:
    found: list[list[str]] = _library().tokenize(
        list(queries), return_ids=False, show_progress=False
    )
    return found


def _library() -> Any:
    try:
        import bm25s
    except ImportError:
        raise MissingExtraError("BM25 retrieval", extra="search") from None
    return bm25s
