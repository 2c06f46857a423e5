"""``zerowait replay``: the samples of a record scored by another configuration."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import nullcontext, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import msgspec
import typer

from zerowait.cli.app import SOME_ABSTAINED, app
from zerowait.cli.json_output import JsonOption, print_json, refuse_json_beside
from zerowait.cli.output_file import check_output, open_output
from zerowait.cli.reward_tables import show_changes, show_comparison
from zerowait.cli.rewarded_rows import reward_columns
from zerowait.cli.row_files import STANDARD_STREAM, as_json_value, encode_json
from zerowait.cli.run_folder import opened_record, run_folder
from zerowait.cli.tables import counted
from zerowait.config import load_config
from zerowait.engine import AnsweredBy, Progress
from zerowait.engine.garbage_collection import collect_rarely
from zerowait.errors import DataError
from zerowait.observe import RecordedRow, Replayed, compare, replay, rows_to_replay
from zerowait.types import Reward

_SUFFIXES: Final = (".jsonl", ".ndjson")
_MOST_REASONS: Final = 5
_WORDS: Final[Mapping[AnsweredBy, str]] = {
    "same": "by the recorded reply to the same request",
    "reread": "by a recorded reply in another form, read by the new verdict",
    "cache": "by the cache",
    "failed": "failed in the run, and do again",
    "asked": "asked",
    "missing": "not in the record: abstained",
}


@app.command("replay")
def replay_run(  # noqa: PLR0913, PLR0917 - typer reads options from parameters
    run: Annotated[Path, typer.Argument(help="The run's folder, with its rewards.jsonl.")],
    config: Annotated[
        str, typer.Option("--config", "-c", help="The new reward.yaml, or recipe.yaml#reward.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the new rewards as JSON Lines; - for the output."),
    ] = None,
    ask: Annotated[
        bool, typer.Option("--ask", help="Ask the judges for what the record cannot answer.")
    ] = False,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Take this component's recorded outcomes as they are."),
    ] = None,
    worst: Annotated[int, typer.Option(min=0, help="Disagreements to show.")] = 5,
    as_json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> int:
    """Score the samples of a run by another reward.yaml, with the judges' replies of then.

    No judge is asked. A reply is read by the new verdict if the judge was asked the same, but for
    the form of its answer. What the record cannot answer abstains and is counted.

    Exit code 0 when every row has a reward, 3 when some abstained, 2 when the input is wrong.
    """
    folder = run_folder(run)
    loaded = load_config(config)
    if out is not None:
        refuse_json_beside(out, as_json=as_json)
        inputs = [folder / "rewards.jsonl", Path(config.partition("#")[0]).expanduser()]
        check_output(f"--out {out}", out, inputs=inputs, suffixes=_SUFFIXES)
    collect_rarely()
    run_it = partial(replay, folder, loaded, ask=ask, keep=keep or ())
    with opened_record(folder) as index:
        rows = rows_to_replay(index)
    found = _replayed(run_it, rows, out, quiet=quiet)
    comparison = compare(found.pairs, worst=worst)
    if as_json:
        print_json(
            {
                "run": str(folder),
                "config": config,
                "out": None if out is None else str(out),
                "requests": found.requests,
                "answered": found.answered,
                "missing": found.missing,
                "not_replayed": found.not_replayed,
                "notes": found.notes,
                "changes": found.changes,
                **msgspec.structs.asdict(comparison),
            }
        )
    else:
        with redirect_stdout(sys.stderr if out == STANDARD_STREAM else sys.stdout):
            _show_replay(found, folder, config, out)
            show_comparison(comparison, "recorded", "replayed")
    return SOME_ABSTAINED if any(now.value is None for _, now in found.pairs) else 0


def _replayed(
    run_it: Callable[..., Coroutine[Any, Any, Replayed]],
    rows: int,
    out: Path | None,
    *,
    quiet: bool,
) -> Replayed:
    with (
        Progress(rows, shown=not quiet, what="replaying") as bar,
        nullcontext() if out is None else open_output(out, mode=0o600) as file,
    ):
        try:
            return asyncio.run(run_it(on_reward=bar.advance, write=_writer(file)))
        except BrokenPipeError:
            raise
        except OSError as error:
            if out is None or error.filename not in {None, str(out)}:
                raise
            raise DataError(f"{out} cannot be written: {error.strerror}") from None


def _writer(file: BinaryIO | None) -> Callable[[RecordedRow, Reward], None]:
    def write(row: RecordedRow, reward: Reward) -> None:
        if file is not None:
            file.write(encode_json(_line(row, reward)) + b"\n")

    return write


def _line(row: RecordedRow, reward: Reward) -> dict[str, Any]:
    """A line of the output: the sample as a record has it, its names, and the new reward."""
    sample: dict[str, Any] = msgspec.to_builtins(row.sample, enc_hook=as_json_value, str_keys=True)
    names = {"row": row.row, "uid": row.then.uid, "ticket": row.then.ticket}
    return {"sample": sample, **names, **reward_columns(reward)}


def _show_replay(found: Replayed, folder: Path, config: str, out: Path | None) -> None:
    print(f"{folder}: {counted(len(found.pairs), 'sample')} scored by {config}")
    print(f"requests sent to judges: {found.requests}")
    show_changes(found.changes)
    for note in found.notes:
        print(f"note: {note}")
    for judge, counts in found.answered.items():
        print(f"judge {judge}:")
        for how, words in _WORDS.items():
            if counts.get(how):
                print(f"  {counts[how]} {words}")
        for why, count in found.missing.get(judge, {}).items():
            print(f"    {count}: {why}")
    whys = list(found.not_replayed.items())
    for why, count in whys[:_MOST_REASONS]:
        print(f"not replayed: {counted(count, 'row')}: {why}")
    if len(whys) > _MOST_REASONS:
        rest = sum(count for _, count in whys[_MOST_REASONS:])
        print(f"not replayed: {counted(rest, 'row')} for other reasons (--json lists them)")
    if out is not None:
        print(f"rewards: {out}")
    print()
