"""``zerowait data``: questions and documents for a search agent, in the form that it takes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any, cast

import typer

from zerowait.cli.app import app
from zerowait.cli.rows import PARQUET, columns_of, encoded, read_json, read_rows, write_table
from zerowait.cli.targets import refuse_special
from zerowait.errors import ConfigError, DataError, did_you_mean
from zerowait.search.documents import Document, distinct, documents_in
from zerowait.search.questions import (
    OWN_EXTRA,
    Columns,
    Instructions,
    Question,
    question_in,
    training_row,
    unnested,
)
from zerowait.search.wiki import (
    DATA_SOURCE,
    articles_as_documents,
    held_out,
    questions_about,
    read_articles,
)

_ROWS = (".jsonl", PARQUET)
_INSTRUCTIONS = ("search", "none", "keep")

data = typer.Typer(no_args_is_help=True, help="Questions and documents for a search agent.")
app.add_typer(data, name="data")


@data.command()
def wiki(
    folder: Annotated[Path, typer.Argument(help="Where the three files go.")],
    held_out_rows: Annotated[
        int, typer.Option("--held-out", min=0, help="Questions that are not trained on.")
    ] = 500,
    seed: Annotated[int, typer.Option(help="Of the order, and of which are held out.")] = 0,
    summaries: Annotated[
        Path | None, typer.Option(help="A file in the package's form, instead of the package.")
    ] = None,
) -> int:
    """Ten thousand articles and seven thousand questions about them, from an installed package."""
    articles = read_articles(summaries)
    questions = questions_about(articles)
    train, rest = held_out(questions, held_out_rows, seed=seed)
    folder.mkdir(parents=True, exist_ok=True)
    documents = _write_documents(articles_as_documents(articles), folder / "corpus.jsonl")
    print(f"{folder / 'corpus.jsonl'}: {documents} documents")
    for name, chosen in (("train", train), ("heldout", rest)):
        file = folder / f"{name}.jsonl"
        rows = [
            training_row(question, index=index, source=DATA_SOURCE, instructions="search")
            for index, question in enumerate(chosen)
        ]
        _write_rows(rows, file)
        print(f"{file}: {len(rows)} questions")
    return 0


@data.command()
def questions(  # noqa: PLR0913, PLR0917 - typer reads options from parameters
    file: Annotated[Path, typer.Argument(help="Rows as .jsonl, .json or .parquet.")],
    out: Annotated[Path, typer.Argument(help="Rows to train on, as .jsonl or .parquet.")],
    question: Annotated[str | None, typer.Option(help="Column of the question.")] = None,
    answers: Annotated[str | None, typer.Option(help="Column of the accepted answers.")] = None,
    id_column: Annotated[str | None, typer.Option("--id", help="Column of the row's name.")] = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="A further column, for extra_info; may be repeated.")
    ] = None,
    data_source: Annotated[
        str | None, typer.Option(help="Where a row does not say; the file's name without ending.")
    ] = None,
    instructions: Annotated[
        str, typer.Option(help="search: how to search; none: the question; keep: its own prompt.")
    ] = "search",
    limit: Annotated[int | None, typer.Option(min=1, help="Most rows, the first ones.")] = None,
    skip_unusable: Annotated[
        bool, typer.Option(help="Leave out and count rows without question or answer.")
    ] = False,
) -> int:
    """Rows of Search-R1, FlashRAG, HotpotQA, NQ, TriviaQA, SQuAD and the like, to train on."""
    if instructions not in _INSTRUCTIONS:
        hint = did_you_mean(instructions, _INSTRUCTIONS)
        raise ConfigError(f"--instructions {instructions}: is not possible{hint}")
    _check_out(file, out, _ROWS)
    taken = next((name for name in keep or () if name in OWN_EXTRA), None)
    if taken is not None:
        raise ConfigError(f"--keep {taken}: is a name under which extra_info has something else")
    columns = Columns(question=question, answers=answers, id=id_column, keep=tuple(keep or ()))
    skipped: list[DataError] = []
    repeated: list[str] = []
    asked: set[int] = set()
    rows: list[dict[str, Any]] = []
    for where, found in _asked(file, columns, skipped if skip_unusable else None):
        if limit is not None and len(rows) >= limit:
            break
        row = training_row(
            found,
            index=len(rows),
            source=data_source or file.stem,
            instructions=cast("Instructions", instructions),
            where=where,
        )
        rows.append(row)
        if found.text and hash(found.text) in asked:
            repeated.append(where)
        asked.add(hash(found.text))
    if not rows:
        reason = f": {skipped[0]}" if skipped else ""
        raise DataError(f"{file}: has no usable rows{reason}")
    _write_rows(rows, out)
    print(f"{out}: {len(rows)} questions")
    if repeated:
        print(f"{len(repeated)} rows ask what a row before asks, the first of them {repeated[0]}")
    if skipped:
        print(f"{len(skipped)} rows were left out, the first because {skipped[0]}")
    return 0


@data.command()
def corpus(
    file: Annotated[Path, typer.Argument(help="Passages or questions with their paragraphs.")],
    out: Annotated[Path, typer.Argument(help="Documents as .jsonl, for `zerowait retriever`.")],
) -> int:
    """Documents for the retriever: paragraphs of HotpotQA's questions, or a file of passages."""
    _check_out(file, out, (".jsonl",))
    found = (document for where, row in _rows(file) for document in documents_in(row, where=where))
    print(f"{out}: {_write_documents(distinct(found), out)} documents")
    return 0


def _asked(
    file: Path, columns: Columns, skipped: list[DataError] | None
) -> Iterator[tuple[str, Question]]:
    for where, row in _rows(file):
        try:
            yield where, question_in(row, columns, where=where)
        except DataError as error:
            if skipped is None:
                raise
            skipped.append(error)


def _rows(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for where, row in _file_rows(file):
        yield from unnested(row, where=where)


def _file_rows(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Rows of JSON one by one, since a corpus may be larger than the memory."""
    if file.suffix.lower() in (".jsonl", ".ndjson") and file.is_file():
        for number, row in read_json(file):
            yield f"{file}:{number}", row
        return
    whole = read_rows(file)
    yield from zip(whole.places, whole.rows, strict=True)


def _write_rows(rows: list[dict[str, Any]], out: Path) -> None:
    with _unfinished(out) as unfinished:
        if out.suffix.lower() == PARQUET:
            write_table(unfinished, columns_of(rows))
        else:
            with unfinished.open("wb") as lines:
                lines.writelines(encoded(row) + b"\n" for row in rows)


def _write_documents(documents: Iterable[Document], out: Path) -> int:
    count = 0
    with _unfinished(out) as unfinished, unfinished.open("wb") as lines:
        for count, document in enumerate(documents, start=1):
            _write_document(lines, count - 1, document)
        if not count:
            raise DataError(f"{out}: there would be no documents in it")
    return count


def _write_document(lines: IO[bytes], number: int, document: Document) -> None:
    lines.write(encoded({"id": str(number), "contents": document.contents}) + b"\n")


@contextmanager
def _unfinished(out: Path) -> Iterator[Path]:
    """A file beside `out` that takes its place when all is written, and is gone otherwise."""
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        yield draft
        draft.replace(out)
    finally:
        draft.unlink(missing_ok=True)


def _check_out(file: Path, out: Path, endings: tuple[str, ...]) -> None:
    if out.suffix.lower() not in endings:
        raise ConfigError(f"{out}: has to end in {' or '.join(endings)}")
    if not out.parent.is_dir():
        raise ConfigError(f"{out}: there is no folder {out.parent}")
    if out.exists() and file.exists() and out.samefile(file):
        raise ConfigError(f"{out}: is the input itself, which would be lost")
    refuse_special(str(out), out)
