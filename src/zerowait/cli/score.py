"""``zerowait score``: a file of responses in, the same rows with their rewards out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from zerowait.cli.app import SOME_ABSTAINED, InterruptedRunError, app
from zerowait.cli.json_output import JsonOption, print_json, refuse_json_beside
from zerowait.cli.output_file import check_output
from zerowait.cli.rewarded_rows import RewardCounts, show_summary, summary, write_rewards
from zerowait.cli.row_files import (
    JSON_SUFFIXES,
    PARQUET_SUFFIX,
    STANDARD_STREAM,
    columns_of,
    file_name,
    read_rows,
)
from zerowait.cli.samples import UsableRows, problems_of_rows, usable_samples
from zerowait.cli.saved_datasets import rewards_name
from zerowait.cli.tables import counted
from zerowait.config import JudgeComponent, RewardConfig, load_config
from zerowait.engine import Engine, Progress, Rewards, settle_groups
from zerowait.engine.garbage_collection import collect_rarely
from zerowait.errors import ConfigError, DataError
from zerowait.record import REWARDS
from zerowait.types import Reward, Sample

if TYPE_CHECKING:
    from zerowait.cli.watch import FolderWatch

_SUFFIXES: Final = (".jsonl", ".ndjson", PARQUET_SUFFIX)


_ColumnOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column of this field.")
]


@app.command()
def score(  # noqa: PLR0913, PLR0917 - typer reads options from parameters
    file: Annotated[
        Path,
        typer.Argument(
            help="Rows as .jsonl, .ndjson, .json or .parquet, or a saved data set; - reads JSONL."
        ),
    ],
    config: Annotated[
        str, typer.Option("--config", "-c", help="reward.yaml, or recipe.yaml#reward.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Output, - for standard output; FILE.rewards.EXT."),
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="Folder that gets every reward and judgement.")
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="FIELD=COLUMN, where the file has other names.")
    ] = None,
    prompt: _ColumnOption = None,
    response: _ColumnOption = None,
    ground_truth: _ColumnOption = None,
    group: _ColumnOption = None,
    data_source: _ColumnOption = None,
    response_tokens: _ColumnOption = None,
    split: Annotated[
        str | None, typer.Option(help="Of a data set that was saved with several.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many rows.")] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="FILE is a folder; score its files as they grow.")
    ] = False,
    settle_s: Annotated[
        float, typer.Option(min=0, help="With --watch: seconds without growth that end a group.")
    ] = 5,
    skip_unusable: Annotated[
        bool,
        typer.Option("--skip-unusable", help="Leave out and count rows that cannot be scored."),
    ] = False,
    as_json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> int:
    """Score every row of FILE. Run it again after an interrupt: the cache has the judges' replies.

    Exit code 0 when every row has a reward, 3 when some abstained, 2 when the input is wrong.
    """
    named = {
        "prompt": prompt,
        "response": response,
        "ground_truth": ground_truth,
        "group": group,
        "data_source": data_source,
        "response_tokens": response_tokens,
    }
    columns = _columns(column or [], named)
    if watch:
        from zerowait.cli.watch import FolderWatch

        if STANDARD_STREAM in (file, out) or split is not None:
            raise ConfigError("--watch: takes a folder of rollouts, no stream and no split")
        folder = FolderWatch(
            file,
            out or rewards_name(file, None),
            load_config(config),
            columns=columns,
            skip_unusable=skip_unusable,
            limit=limit,
            settle_s=settle_s,
            on_batch=(lambda _name, _counts: None) if quiet else _tell,
        )
        return _score_growing(folder, record=record, as_json=as_json)
    target = out or _default_target(file, split)
    refuse_json_beside(target, as_json=as_json)
    loaded = load_config(config)
    check = Engine(loaded).check
    unusable: list[DataError] = []
    whole = read_rows(file, unusable, split=split, limit=limit)
    usable = usable_samples(whole, columns, check, unusable)
    _check_usable(usable, unusable, skip=skip_unusable)
    rows, samples = usable.file, usable.samples
    inputs = [file, *_files_of(loaded, Path(config.partition("#")[0]).expanduser())]
    check_output(f"--out {target}", target, inputs=inputs, suffixes=_SUFFIXES)
    # Before anything is judged, since a missing pyarrow must not cost the verdicts
    arrow = columns_of(rows.rows, rows.table) if _is_parquet(target) else None
    if record is not None:
        _tell_of_earlier_rows(record)
    collect_rarely()
    with closing(Rewards(loaded, record=record)) as rewards:
        results = _rewards_of(rewards, samples, loaded, quiet=quiet)
        stats = rewards.stats()
    results = settle_groups(results, [sample.group for sample in samples], loaded.on_failure.quorum)
    write_rewards(rows, usable.by_row(results), target, arrow=arrow)
    counts = RewardCounts()
    counts.add(results, rows=len(rows.rows))
    if as_json:
        left_out = {"left_out": list(map(str, unusable))}
        print_json(summary(target, counts, stats) | left_out)
    else:
        with redirect_stdout(sys.stderr if target == STANDARD_STREAM else sys.stdout):
            show_summary(target, counts, stats, judged=_judged(loaded))
            if unusable:
                print(f"left out: {problems_of_rows(rows, unusable)}")
    return SOME_ABSTAINED if counts.abstained else 0


def _tell_of_earlier_rows(record: Path) -> None:
    """Say that a record has rows already, which its reader counts beside those of this command."""
    with suppress(OSError):
        if (record / REWARDS).stat().st_size:
            print(
                f"zerowait: --record {record}: the rewards of earlier commands stay in it, and "
                "reports count them too; name another folder for a record of this command alone",
                file=sys.stderr,
            )


def _judged(config: RewardConfig) -> list[str]:
    """The components whose outcomes are judges' verdicts."""
    parts = config.components.items()
    return [name for name, part in parts if isinstance(part, JudgeComponent)]


def _score_growing(folder: FolderWatch, *, record: Path | None, as_json: bool) -> int:
    """Score the files of a folder until a signal or the limit; the exit code."""
    collect_rarely()
    with closing(Rewards(folder.config, record=record)) as rewards:
        folder.run(rewards, folder.config.traffic.timeout_s)
        stats = rewards.stats()
    if as_json:
        left_out = {"left_out": list(map(str, folder.unusable))}
        print_json(summary(folder.out, folder.counts, stats) | left_out)
    else:
        show_summary(folder.out, folder.counts, stats, judged=_judged(folder.config))
        for problem in folder.unusable:
            print(f"left out: {problem}")
    if folder.rows_in_flight:
        rows = counted(folder.rows_in_flight, "row")
        raise InterruptedRunError(f"{rows} in flight given up; the same command goes on there")
    return SOME_ABSTAINED if folder.counts.abstained else 0


def _tell(name: str, counts: RewardCounts) -> None:
    print(f"{name}: {counts.line()}", file=sys.stderr, flush=True)


def _default_target(file: Path, split: str | None) -> Path:
    if file == STANDARD_STREAM:
        return file
    if file.is_dir():
        rewards = rewards_name(file, split)
        return rewards.with_name(rewards.name + PARQUET_SUFFIX)
    suffix = ".jsonl" if file.suffix.lower() in JSON_SUFFIXES else PARQUET_SUFFIX
    return file.with_name(f"{file.stem}.rewards{suffix}")


def _check_usable(usable: UsableRows, unusable: list[DataError], *, skip: bool) -> None:
    """Raise a DataError where rows cannot be scored and are not skipped, or where none can.

    The message names all of them.
    """
    if unusable and not skip:
        leave = "" if len(unusable) == 1 else "\n--skip-unusable leaves them out"
        raise DataError(problems_of_rows(usable.file, unusable) + leave)
    if not usable.samples:
        name = file_name(usable.file.path)
        raise DataError(f"{name} has no {'usable ' if unusable else ''}rows")


def _files_of(config: RewardConfig, file: Path) -> list[Path]:
    """The files of a configuration that a wrong --out could overwrite."""
    anchors = [judge.anchors for judge in config.judges.values() if judge.anchors is not None]
    return [file, *(config.base / name for name in anchors)]


def _rewards_of(
    rewards: Rewards, samples: list[Sample], config: RewardConfig, *, quiet: bool
) -> list[Reward]:
    """The reward of each sample.

    Raises:
        InterruptedRunError: after an interrupt, once the replies in flight are in the cache.
    """
    with Progress(len(samples), shown=not quiet, stats=rewards.stats) as bar:
        try:
            return rewards.score(samples, on_reward=lambda _index, _reward: bar.advance())
        except KeyboardInterrupt:
            pass
    if config.cache.is_off:
        raise InterruptedRunError("nothing was kept, since the configuration has no cache")
    in_flight = rewards.stats().in_flight
    if in_flight:
        print(
            f"zerowait: waiting for {in_flight} replies in flight, which are paid for; "
            "interrupt again to give them up",
            file=sys.stderr,
        )
    with suppress(KeyboardInterrupt):  # a second one ends the waiting
        rewards.close(drain_s=config.traffic.timeout_s)
    raise InterruptedRunError(
        "run the same command again: the judges' replies until now are in the cache"
    )


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == PARQUET_SUFFIX


def _columns(pairs: list[str], named: Mapping[str, str | None]) -> dict[str, str]:
    """The column of each field, from ``--column`` and from the fields' own options."""
    columns = {field: name for field, name in named.items() if name is not None}
    for pair in pairs:
        field, equals, name = pair.partition("=")
        if not equals:
            raise ConfigError(f"--column {pair}: write FIELD=COLUMN")
        if field in columns:
            raise ConfigError(f"--column {pair}: {field} is {columns[field]!r} already")
        columns[field] = name
    return columns
