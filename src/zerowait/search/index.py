"""A search index on disk: BM25, dense, or a fusion of both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeAlias

import msgspec

from zerowait.errors import ConfigError, DataError, MissingExtraError
from zerowait.search.bm25 import build_bm25, open_bm25
from zerowait.search.corpus import Corpus, ReportProgress, no_progress
from zerowait.search.dense import Encoder, EncoderSettings, build_dense, open_dense
from zerowait.search.passages import Passage
from zerowait.search.versions import next_version, publish

Kind: TypeAlias = Literal["bm25", "dense", "hybrid"]

_MANIFEST = "index.json"
_OFFSETS = "offsets.npy"
_VERSION = 2
_RANK_CONSTANT = 60
_FUSION_DEPTH = 10
_LARGEST_FIND_BYTES = 256 * 2**20


class TooMuchFoundError(DataError):
    """The passages of one request are larger together than 256 MiB."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of an index folder; written last, so that an interrupted build is no index.

    Args:
        kind: how the index ranks.
        files: name of the folder inside the index folder that holds all other files.
        corpus: path of the indexed file.
        corpus_bytes: its size, by which a changed file is noticed.
        documents: their number.
        encoder: of a dense or hybrid index.
        version: of this format.
    """

    kind: Kind
    files: str
    corpus: str
    corpus_bytes: int
    documents: int
    encoder: EncoderSettings | None = None
    version: int = _VERSION


class _ManifestVersion(msgspec.Struct):
    version: int


class Ranking(Protocol):
    """A ranking of the documents of a corpus."""

    def best(self, queries: Sequence[str], count: int) -> list[list[tuple[int, float]]]:
        """For each query the `count` best documents as (row, score), best first."""


class Index:
    """An open index; one thread may search at a time.

    Args:
        corpus: the documents.
        rankings: one, or several to be fused.
        kind: ``bm25``, ``dense`` or ``hybrid``.
    """

    def __init__(self, corpus: Corpus, rankings: Sequence[Ranking], *, kind: Kind) -> None:
        self.kind = kind
        self._corpus = corpus
        self._rankings = rankings

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files. Idempotent."""
        self._corpus.close()

    def __len__(self) -> int:
        """The number of documents."""
        return len(self._corpus)

    def find(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        """For each query the best passages with their scores, at most `topk`, best first.

        A blank query finds nothing instead of failing, since agents write such queries.

        Args:
            queries: to search for.
            topk: passages for each query.

        Raises:
            TooMuchFoundError: the passages are larger than 256 MiB together.
        """
        asked = [query for query in queries if query.strip()]
        found = self._rank(asked, topk) if asked else []
        self._check_size(found)
        ranked = iter(found)
        return [
            [self._passage(row, score) for row, score in (next(ranked) if query.strip() else [])]
            for query in queries
        ]

    def _check_size(self, found: Sequence[Sequence[tuple[int, float]]]) -> None:
        """Raise before the documents are read, where they would not fit into memory."""
        size = sum(self._corpus.size(row) for ranking in found for row, _ in ranking)
        if size > _LARGEST_FIND_BYTES:
            raise TooMuchFoundError(
                f"{len(found)} queries find {size / 2**20:.0f} MiB of documents, more than "
                f"{_LARGEST_FIND_BYTES // 2**20}: ask for fewer passages, or fewer queries at once"
            )

    def _rank(self, queries: Sequence[str], topk: int) -> list[list[tuple[int, float]]]:
        if len(self._rankings) == 1:
            return self._rankings[0].best(queries, topk)
        depth = max(topk, _FUSION_DEPTH) * _FUSION_DEPTH
        found = [ranking.best(queries, depth) for ranking in self._rankings]
        return [reciprocal_rank_fusion(lists)[:topk] for lists in zip(*found, strict=True)]

    def _passage(self, row: int, score: float) -> Passage:
        passage = self._corpus[row]
        return Passage(passage.contents, passage.id, score)


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[tuple[int, float]]],
) -> list[tuple[int, float]]:
    """Reciprocal rank fusion: each ranking adds ``1 / (60 + rank)`` to a document's score.

    Reference:
        Cormack et al. 2009, "Reciprocal rank fusion outperforms Condorcet".

    >>> [row for row, _ in reciprocal_rank_fusion([[(7, 9.0), (8, 5.0)], [(8, 0.7), (9, 0.6)]])]
    [8, 7, 9]
    """
    scores: dict[int, float] = defaultdict(float)
    for ranking in rankings:
        for rank, (row, _) in enumerate(ranking, start=1):
            scores[row] += 1 / (_RANK_CONSTANT + rank)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


def check_extras(kind: Kind) -> None:
    """Raise a MissingExtraError unless the packages for an index of this kind are installed."""
    sparse, dense = ("numpy", "bm25s"), ("numpy", "torch", "transformers")
    packages = {"bm25": sparse, "dense": dense, "hybrid": (*sparse, *dense)}[kind]
    if any(find_spec(package) is None for package in packages):
        extras = {"bm25": "search", "dense": "search-dense", "hybrid": "search,search-dense"}
        raise MissingExtraError(f"a {kind} index", extra=extras[kind])


def build_index(
    corpus: Path,
    folder: Path,
    *,
    kind: Kind = "bm25",
    encoder: EncoderSettings | None = None,
    progress: Callable[[str], ReportProgress] = lambda _: no_progress,
) -> Manifest:
    """Build the index of `corpus` in `folder`, replacing an earlier one; its manifest.

    The earlier index is valid until the new one is complete; a server keeps its open one.

    Args:
        corpus: a JSONL file; the index refers to it, so it must not be moved or changed.
        folder: for the index.
        kind: ``bm25``, ``dense`` or ``hybrid``.
        encoder: the embedding model for ``dense`` and ``hybrid``.
        progress: called with each stage's name; returns the callback for that stage's share.

    Raises:
        DataError: the corpus is not readable.
        ConfigError: a dense or hybrid index has no encoder, or another build is running.
        MissingExtraError: a package that this kind needs is not installed.
    """
    if kind != "bm25" and encoder is None:
        raise ConfigError(f"a {kind} index needs an encoder: give --encoder FOLDER")
    check_extras(kind)
    import numpy as np

    # Loaded before anything is written, since a wrong encoder must not cost the earlier index
    embedder = Encoder(encoder) if kind != "bm25" and encoder is not None else None
    with (
        Corpus(corpus.resolve(), progress=progress("reading")) as documents,
        next_version(folder) as files,
    ):
        np.save(files / _OFFSETS, documents.offsets)
        if kind != "dense":
            build_bm25(documents, files, progress=progress("words"))
        if embedder is not None:
            build_dense(documents, files, embedder, progress=progress("embeddings"))
        manifest = Manifest(
            kind=kind,
            files=files.name,
            corpus=str(documents.path),
            corpus_bytes=documents.path.stat().st_size,
            documents=len(documents),
            encoder=encoder if kind != "bm25" else None,
        )
        publish(files, folder / _MANIFEST, msgspec.json.encode(manifest))
    return manifest


def open_index(folder: Path) -> Index:
    """The index in `folder`, with its large files memory-mapped.

    Raises:
        DataError: there is none, or its corpus was moved or changed.
    """
    while True:
        manifest = read_manifest(folder)
        try:
            return _open(folder, manifest)
        except FileNotFoundError as error:
            if read_manifest(folder) == manifest:  # else a new build has replaced it: open that
                raise DataError(f"{folder}: lacks {error.filename}; build it again") from None


def _open(folder: Path, manifest: Manifest) -> Index:
    check_extras(manifest.kind)
    import numpy as np

    path = Path(manifest.corpus)
    if not path.is_file() or path.stat().st_size != manifest.corpus_bytes:
        raise DataError(f"{path}: the indexed corpus was moved or changed; build {folder} again")
    files = folder / manifest.files
    # A plain view, since reading one cell of a numpy.memmap takes several microseconds
    offsets: Any = np.asarray(np.load(files / _OFFSETS, mmap_mode="r"))
    rankings: list[Ranking] = []
    if manifest.kind != "dense":
        rankings.append(open_bm25(files))
    if manifest.encoder is not None:
        rankings.append(open_dense(files, Encoder(manifest.encoder)))
    return Index(Corpus(path, offsets=offsets), rankings, kind=manifest.kind)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of the index in `folder`.

    Raises:
        DataError: there is none, or another version of zerowait wrote it.
    """
    try:
        content = (folder / _MANIFEST).read_bytes()
        version = msgspec.json.decode(content, type=_ManifestVersion).version
        if version != _VERSION:
            raise DataError(f"{folder}: was built by another version of zerowait; build it again")
        return msgspec.json.decode(content, type=Manifest)
    except FileNotFoundError:
        raise DataError(
            f"{folder}: holds no index; build one with zerowait retriever build"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{folder / _MANIFEST}: is not an index of zerowait ({error})") from None
