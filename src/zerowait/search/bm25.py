"""BM25 ranking over an index that is memory-mapped from disk.

Reference:
    Robertson & Zaragoza 2009, "The probabilistic relevance framework: BM25 and beyond";
    Lu 2024, BM25S (arXiv:2407.03618), whose eager scores and files these are.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zerowait.errors import DataError, MissingExtraError
from zerowait.search.corpus import Corpus, ReportProgress, no_progress
from zerowait.search.terms import document_terms, query_terms

FOLDER = "bm25"


class Bm25Index:
    """An open BM25 index, searched by one thread at a time.

    For each query the bm25s library allocates an array as long as the corpus and scans all of it.
    Here one such array is reused, and only the cells of documents that share a term with the query
    are written and cleared again, so that the cost grows with the matches, not with the corpus.
    """

    def __init__(self, index: Any) -> None:
        import numpy as np

        self._words: Mapping[str, int] = index.vocab_dict
        # Plain array views, since slicing a numpy.memmap takes several times as long
        self._starts = index.scores["indptr"].tolist()
        self._rows = np.asarray(index.scores["indices"])
        self._gains = np.asarray(index.scores["data"])
        self._scores = np.zeros(index.scores["num_docs"], dtype=np.float32)

    def best(self, queries: Sequence[str], count: int) -> list[list[tuple[int, float]]]:
        """For each query the `count` best documents and their scores above 0, best first.

        Documents with equal scores come in the order of the corpus.
        """
        return [self._best(query_terms(query), count) for query in queries]

    def _best(self, tokens: list[str], count: int) -> list[tuple[int, float]]:
        import numpy as np

        known = [self._words[token] for token in tokens if token in self._words]
        spans = [slice(self._starts[word], self._starts[word + 1]) for word in known]
        if not spans:
            return []
        for span in spans:
            np.add.at(self._scores, self._rows[span], self._gains[span])
        touched = np.concatenate([self._rows[span] for span in spans])
        scores = self._scores[touched]
        self._scores[touched] = 0.0
        most = count * len(spans)  # `touched` has a document once for each of its terms
        if len(touched) > most:
            good = scores >= np.partition(scores, -most)[-most]
            touched, scores = touched[good], scores[good]
        rows, first = np.unique(touched, return_index=True)
        scores = scores[first]
        order = np.lexsort((rows, -scores))[:count]
        return list(zip(rows[order].tolist(), scores[order].tolist(), strict=True))


def build_bm25(corpus: Corpus, folder: Path, *, progress: ReportProgress = no_progress) -> None:
    """Write the BM25 index of `corpus` into `folder`.

    The documents are read one by one; 4 bytes for each of their terms are held in memory.

    Args:
        corpus: the documents.
        folder: of the index; gets a folder ``bm25``.
        progress: called with the share that is done.

    Raises:
        MissingExtraError: bm25s is not installed.
        DataError: no document has a word of two letters or more that is no stop word.
    """
    library = _library()
    index = library.BM25()
    vocabulary: dict[str, int] = {}
    documents = []
    for number, passage in enumerate(corpus, start=1):
        words = document_terms(passage.contents)
        documents.append(array("i", [vocabulary.setdefault(w, len(vocabulary)) for w in words]))
        if number % 1024 == 0:
            progress(0.6 * number / len(corpus))
    if not vocabulary:
        raise DataError(f"{corpus.path}: no document has a word that could be searched for")
    progress(0.6)
    index.index((documents, vocabulary), show_progress=False)
    index.save(str(folder / FOLDER), show_progress=False)
    progress(1.0)


def open_bm25(folder: Path) -> Bm25Index:
    """The BM25 index in `folder`, memory-mapped.

    Raises:
        MissingExtraError: bm25s is not installed.
    """
    return Bm25Index(_library().BM25.load(str(folder / FOLDER), mmap=True, show_progress=False))


def _library() -> Any:
    try:
        import bm25s
    except ImportError:
        raise MissingExtraError("BM25 retrieval", extra="search") from None
    return bm25s
