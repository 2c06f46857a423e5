"""``zerowait score``: a file of responses in, the same rows with their rewards out."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from zerowait.cli.app import InterruptedRunError, app
from zerowait.cli.output import Output
from zerowait.cli.partial import Partial
from zerowait.cli.rows import RowFile, problems_of_rows, read_rows, usable_samples
from zerowait.cli.summary import summary
from zerowait.cli.task import task_of
from zerowait.config import RewardConfig, load_config
from zerowait.engine import Engine, Progress, Rewards, settle_groups
from zerowait.engine.collector import collect_rarely
from zerowait.errors import ConfigError, DataError
from zerowait.types import Reward, Sample


@app.command()
def score(  # noqa: PLR0917 - typer reads options from parameters
    file: Annotated[Path, typer.Argument(help="Rows as .jsonl, .ndjson, .json or .parquet.")],
    config: Annotated[
        str, typer.Option("--config", "-c", help="reward.yaml, or recipe.yaml#reward.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the rewards go; FILE.rewards.EXT.")
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="FIELD=COLUMN, where the file has other names.")
    ] = None,
    skip_unusable: Annotated[
        bool,
        typer.Option("--skip-unusable", help="Leave out and count rows that cannot be scored."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> int:
    """Score every row of FILE. Interrupt it and run it again: it goes on where it was.

    Exit code 0 when every row has a reward, 3 when some abstained, 2 when the input is wrong.
    """
    try:
        task = _Task(file, config, out, _columns(column or []), skip_unusable=skip_unusable)
        return _run(task, quiet=quiet)
    except KeyboardInterrupt:
        raise InterruptedRunError("run the same command again to go on where it was") from None


class _Task(msgspec.Struct, frozen=True):
    """What the command was asked for."""

    file: Path
    config: str
    out: Path | None
    columns: dict[str, str]
    skip_unusable: bool


def _run(asked: _Task, *, quiet: bool) -> int:
    loaded = load_config(asked.config)
    rows, samples, unusable = _rows(asked, loaded)
    collect_rarely()
    name, _, key = asked.config.partition("#")
    output = Output(rows, asked.out, read=_read_by(loaded, Path(name).expanduser()))
    key = repr((key, sorted(asked.columns.items()), *(["skips"] if unusable else [])))
    task = task_of(loaded, config_file=Path(name).expanduser(), key=key, data=asked.file)
    with Partial(output.path, task=task) as partial, closing(Rewards(loaded)) as rewards:
        _tell(partial)
        try:
            results = _score(rewards, samples, partial, quiet=quiet)
        except KeyboardInterrupt:
            if not loaded.cache.is_off:  # else nobody could use what they bring
                _drain(rewards, loaded.traffic.timeout_s)
            raise
        groups = [sample.group for sample in samples]
        results = settle_groups(results, groups, loaded.on_failure.quorum)
        try:
            output.write(results)
        except OSError as error:
            raise partial.unwritable(error) from None
        partial.finish()
        stats = rewards.stats()
    code = summary(output.path, results, stats)
    if unusable:
        print(f"left out: {problems_of_rows(rows, unusable)}")
    return code


def _rows(asked: _Task, config: RewardConfig) -> tuple[RowFile, list[Sample], list[DataError]]:
    """The rows that can be scored, as samples too, and what is wrong with those left out.

    Raises:
        DataError: some cannot be scored and were not to be left out, which names all of them; or
            none can.
    """
    unusable: list[DataError] = []
    whole = read_rows(asked.file, unusable)
    rows, samples = usable_samples(whole, asked.columns, Engine(config).check, unusable)
    if unusable and not asked.skip_unusable:
        leave = "" if len(unusable) == 1 else "\n--skip-unusable leaves them out"
        raise DataError(problems_of_rows(rows, unusable) + leave)
    if not samples:
        raise DataError(f"{asked.file} has no {'usable ' if unusable else ''}rows")
    return rows, samples, unusable


def _read_by(config: RewardConfig, file: Path) -> list[Path]:
    """The files that the configuration is made of and that could be taken for an output."""
    anchors = [judge.anchors for judge in config.judges.values() if judge.anchors is not None]
    return [file, *(config.base / name for name in anchors)]


def _tell(partial: Partial) -> None:
    if partial.set_aside is not None:
        print(
            "zerowait: the data, the configuration, a rubric or a rule changed since "
            f"{partial.path} was written, so all rows are scored anew; the earlier rewards are in "
            f"{partial.set_aside}",
            file=sys.stderr,
        )


def _score(
    rewards: Rewards, samples: list[Sample], partial: Partial, *, quiet: bool
) -> list[Reward]:
    missing = partial.missing(samples)
    results = dict(partial.known)
    with Progress(len(samples), shown=not quiet) as bar:
        bar.advance(len(samples) - len(missing))

        def keep(position: int, reward: Reward) -> None:
            partial.keep(missing[position], reward)
            bar.advance()

        reached = rewards.score([samples[index] for index in missing], on_reward=keep)
    results.update(zip(missing, reached, strict=True))
    return [results[index] for index in range(len(samples))]


def _drain(rewards: Rewards, timeout_s: float) -> None:
    """Lets requests that were already paid for reach the cache, so that none is asked twice."""
    in_flight = rewards.stats().in_flight
    if in_flight:
        print(
            f"zerowait: waiting for {in_flight} answers that were already asked for; "
            "interrupt again to give them up",
            file=sys.stderr,
        )
    rewards.close(drain_s=timeout_s)


def _columns(pairs: list[str]) -> dict[str, str]:
    columns: dict[str, str] = {}
    for pair in pairs:
        field, equals, name = pair.partition("=")
        if not equals:
            raise ConfigError(f"--column {pair}: write FIELD=COLUMN")
        if field in columns:
            raise ConfigError(f"--column {pair}: {field} is {columns[field]!r} already")
        columns[field] = name
    return columns
