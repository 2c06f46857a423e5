"""An index on disk: built once, opened at once, searched by words, by meaning, or by both."""

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
from zerowait.search.corpus import Corpus, Progress, silent
from zerowait.search.dense import Encoder, EncoderSettings, build_dense, open_dense
from zerowait.search.passages import Passage
from zerowait.search.versions import next_version, publish

Kind: TypeAlias = Literal["bm25", "dense", "hybrid"]

_MANIFEST = "index.json"
_OFFSETS = "offsets.npy"
_VERSION = 2
_RANK_CONSTANT = 60
_DEPTH = 10
_LARGEST_FIND_BYTES = 256 * 2**20


class TooMuchFoundError(DataError):
    """Queries together find more text than is good for the memory; says how much."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an index folder holds; written last, so that a broken build is no index.

    Args:
        files: the folder in the index folder where everything else is.
    """

    kind: Kind
    files: str
    corpus: str
    corpus_bytes: int
    documents: int
    encoder: EncoderSettings | None = None
    version: int = _VERSION


class _Versioned(msgspec.Struct):
    version: int


class Ranking(Protocol):
    """Something that ranks the documents of a corpus."""

    def best(self, queries: Sequence[str], count: int) -> list[list[tuple[int, float]]]:
        """For each query the `count` best documents as (row, score), best first."""


class Index:
    """Finds passages. One thread may search at a time.

    Args:
        corpus: the documents.
        rankings: one, or several that are fused by rank.
        kind: which.
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
        """Let the files go. Idempotent."""
        self._corpus.close()

    def __len__(self) -> int:
        """How many documents there are."""
        return len(self._corpus)

    def find(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        """For each query the best passages with their scores, at most `topk`, best first.

        A blank query finds nothing: an agent writes such, and must not fail its whole batch.

        Raises:
            TooMuchFoundError: the passages are larger than 256 MiB together.
        """
        asked = [query for query in queries if query.strip()]
        found = self._ranked(asked, topk) if asked else []
        self._check_size(found)
        ranked = iter(found)
        return [
            [self._passage(row, score) for row, score in (next(ranked) if query.strip() else [])]
            for query in queries
        ]

    def _check_size(self, found: Sequence[Sequence[tuple[int, float]]]) -> None:
        """Before a document is read: any number of large ones may have been found."""
        size = sum(self._corpus.size(row) for ranking in found for row, _ in ranking)
        if size > _LARGEST_FIND_BYTES:
            raise TooMuchFoundError(
                f"{len(found)} queries find {size / 2**20:.0f} MiB of documents, more than "
                f"{_LARGEST_FIND_BYTES // 2**20}: ask for fewer passages, or fewer queries at once"
            )

    def _ranked(self, queries: Sequence[str], topk: int) -> list[list[tuple[int, float]]]:
        if len(self._rankings) == 1:
            return self._rankings[0].best(queries, topk)
        depth = max(topk, _DEPTH) * _DEPTH
        found = [ranking.best(queries, depth) for ranking in self._rankings]
        return [fused(lists)[:topk] for lists in zip(*found, strict=True)]

    def _passage(self, row: int, score: float) -> Passage:
        passage = self._corpus[row]
        return Passage(passage.contents, passage.id, score)


def fused(rankings: Sequence[Sequence[tuple[int, float]]]) -> list[tuple[int, float]]:
    """Several rankings as one: each adds ``1 / (60 + rank)`` to a document's score.

    Reference:
        Cormack et al. 2009, "Reciprocal rank fusion outperforms Condorcet".

    >>> [row for row, _ in fused([[(7, 9.0), (8, 5.0)], [(8, 0.7), (9, 0.6)]])]
    [8, 7, 9]
    """
    scores: dict[int, float] = defaultdict(float)
    for ranking in rankings:
        for rank, (row, _) in enumerate(ranking, start=1):
            scores[row] += 1 / (_RANK_CONSTANT + rank)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


def need(kind: Kind) -> None:
    """Raise a MissingExtraError unless what an index of this kind is made with is installed."""
    words, meaning = ("numpy", "bm25s"), ("numpy", "torch", "transformers")
    packages = {"bm25": words, "dense": meaning, "hybrid": (*words, *meaning)}[kind]
    if any(find_spec(package) is None for package in packages):
        extras = {"bm25": "search", "dense": "search-dense", "hybrid": "search,search-dense"}
        raise MissingExtraError(f"a {kind} index", extra=extras[kind])


def build_index(
    corpus: Path,
    folder: Path,
    *,
    kind: Kind = "bm25",
    encoder: EncoderSettings | None = None,
    progress: Callable[[str], Progress] = lambda _: silent,
) -> Manifest:
    """Index the documents of `corpus` into `folder`, in the place of what was there.

    What was there counts until the new index is complete, and a server that has it open keeps it.

    Args:
        corpus: a JSONL file; it stays where it is, and has to.
        folder: for the index.
        kind: ``bm25``, ``dense`` or ``hybrid``.
        encoder: embeds, for the latter two.
        progress: called with each stage's name; returns what is told of it.

    Raises:
        DataError: the corpus is not readable.
        ConfigError: a kind that embeds has no encoder, or another build is under way.
        MissingExtraError: what the kind is made with is not installed.
    """
    if kind != "bm25" and encoder is None:
        raise ConfigError(f"a {kind} index needs an encoder: give --encoder FOLDER")
    need(kind)
    import numpy as np

    # both are there before anything is written
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
    """The index in `folder`, with everything large mapped from disk.

    Raises:
        DataError: there is none, or its corpus was moved or changed.
    """
    while True:
        manifest = manifest_of(folder)
        try:
            return _opened(folder, manifest)
        except FileNotFoundError as error:
            if manifest_of(folder) == manifest:  # else a build took its place meanwhile
                raise DataError(f"{folder}: lacks {error.filename}; build it again") from None


def _opened(folder: Path, manifest: Manifest) -> Index:
    need(manifest.kind)
    import numpy as np

    path = Path(manifest.corpus)
    if not path.is_file() or path.stat().st_size != manifest.corpus_bytes:
        raise DataError(f"{path}: the indexed corpus was moved or changed; build {folder} again")
    files = folder / manifest.files
    # a plain view of what is mapped: one cell of a numpy.memmap takes several microseconds
    offsets: Any = np.asarray(np.load(files / _OFFSETS, mmap_mode="r"))
    rankings: list[Ranking] = []
    if manifest.kind != "dense":
        rankings.append(open_bm25(files))
    if manifest.encoder is not None:
        rankings.append(open_dense(files, Encoder(manifest.encoder)))
    return Index(Corpus(path, offsets=offsets), rankings, kind=manifest.kind)


def manifest_of(folder: Path) -> Manifest:
    """What the index in `folder` says of itself.

    Raises:
        DataError: there is none, or another version of zerowait wrote it.
    """
    try:
        said = (folder / _MANIFEST).read_bytes()
        version = msgspec.json.decode(said, type=_Versioned).version
        if version != _VERSION:
            raise DataError(f"{folder}: was built by another version of zerowait; build it again")
        return msgspec.json.decode(said, type=Manifest)
    except FileNotFoundError:
        raise DataError(
            f"{folder}: holds no index; build one with zerowait retriever build"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{folder / _MANIFEST}: is not an index of zerowait ({error})") from None
