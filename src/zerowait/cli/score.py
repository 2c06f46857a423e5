"""``zerowait score``: a file of responses in, the same rows with their rewards out."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, redirect_stdout, suppress
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from zerowait.cli.app import SOME_ABSTAINED, InterruptedRunError, app
from zerowait.cli.json_output import JsonOption, print_json, refuse_json_beside
from zerowait.cli.output_file import check_output, open_output
from zerowait.cli.row_files import (
    JSON_SUFFIXES,
    PARQUET_SUFFIX,
    STANDARD_STREAM,
    RowFile,
    as_json_value,
    columns_of,
    encode_json,
    file_name,
    read_rows,
    write_json_lines,
    write_parquet,
)
from zerowait.cli.samples import problems_of_rows, usable_samples
from zerowait.cli.tables import counted
from zerowait.config import RewardConfig, load_config
from zerowait.engine import Engine, Progress, Rewards, Stats, settle_groups
from zerowait.engine.collector import collect_rarely
from zerowait.errors import ConfigError, DataError
from zerowait.types import Reward, Sample

_SUFFIXES: Final = (".jsonl", ".ndjson", PARQUET_SUFFIX)
_TEXT_COLUMNS: Final = ("reward_components", "reward_policy", "reward_why")
_SHOWN_REASONS: Final = 5


@app.command()
def score(  # noqa: PLR0913, PLR0917 - typer reads options from parameters
    file: Annotated[
        Path, typer.Argument(help="Rows as .jsonl, .ndjson, .json or .parquet; - reads JSON Lines.")
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
    columns = _columns(column or [])
    target = out or _default_target(file)
    refuse_json_beside(target, as_json=as_json)
    loaded = load_config(config)
    rows, samples, unusable = _usable_rows(file, loaded, columns, skip_unusable=skip_unusable)
    inputs = [file, *_files_of(loaded, Path(config.partition("#")[0]).expanduser())]
    check_output(f"--out {target}", target, inputs=inputs, suffixes=_SUFFIXES)
    # Before anything is judged, since a missing pyarrow must not cost the verdicts
    arrow = columns_of(rows.rows, rows.table) if _is_parquet(target) else None
    collect_rarely()
    with closing(Rewards(loaded, record=record)) as rewards:
        results = _rewards_of(rewards, samples, loaded, quiet=quiet)
        stats = rewards.stats()
    results = settle_groups(results, [sample.group for sample in samples], loaded.on_failure.quorum)
    write_rewards(rows, results, target, arrow=arrow)
    if as_json:
        print_json(summary(target, results, stats) | {"left_out": list(map(str, unusable))})
    else:
        with redirect_stdout(sys.stderr if target == STANDARD_STREAM else sys.stdout):
            show_summary(target, results, stats, judged=bool(loaded.judges))
            if unusable:
                print(f"left out: {problems_of_rows(rows, unusable)}")
    return SOME_ABSTAINED if any(reward.value is None for reward in results) else 0


def _default_target(file: Path) -> Path:
    if file == STANDARD_STREAM:
        return file
    suffix = ".jsonl" if file.suffix.lower() in JSON_SUFFIXES else PARQUET_SUFFIX
    return file.with_name(f"{file.stem}.rewards{suffix}")


def _usable_rows(
    file: Path, config: RewardConfig, columns: dict[str, str], *, skip_unusable: bool
) -> tuple[RowFile, list[Sample], list[DataError]]:
    """The rows that can be scored, the sample of each, and the errors of the rows left out.

    Raises:
        DataError: some rows cannot be scored and `skip_unusable` is not set (the message names
            all of them), or none can.
    """
    unusable: list[DataError] = []
    whole = read_rows(file, unusable)
    rows, samples = usable_samples(whole, columns, Engine(config).check, unusable)
    if unusable and not skip_unusable:
        leave = "" if len(unusable) == 1 else "\n--skip-unusable leaves them out"
        raise DataError(problems_of_rows(rows, unusable) + leave)
    if not samples:
        raise DataError(f"{file_name(file)} has no {'usable ' if unusable else ''}rows")
    return rows, samples, unusable


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
    with Progress(len(samples), shown=not quiet) as bar:
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


def write_rewards(
    file: RowFile, rewards: list[Reward], out: Path, *, arrow: Mapping[str, Any] | None = None
) -> None:
    """Write each row with its reward, in order; `out` is replaced when all is written.

    Args:
        file: the rows; the output gets the permissions of their file, or of an earlier output.
        rewards: one for each row.
        out: JSON Lines, or Parquet by its ending.
        arrow: the rows as Arrow columns, for Parquet.

    Raises:
        DataError: the output cannot be written, for example because the disk is full.
    """
    added = [reward_columns(reward) for reward in rewards]
    model = next((path for path in (out, file.path) if path.exists()), None)
    mode = 0o666 if model is None else model.stat().st_mode & 0o666 | stat.S_IWUSR
    try:
        with open_output(out, mode=mode) as target:
            if arrow is None:
                rows = zip(file.rows, added, strict=True)
                write_json_lines(target, ({**row, **reward} for row, reward in rows))
            else:
                write_parquet(target, {**arrow, **dict(_parquet_columns(added))})
    except BrokenPipeError:
        raise
    except OSError as error:
        raise DataError(
            f"{out} cannot be written: {error.strerror}; make room and run the same command again"
        ) from None


def reward_columns(reward: Reward) -> dict[str, Any]:
    """The columns that a reward adds to its row; ``reward`` is None where the row abstained."""
    components = msgspec.to_builtins(reward.components, enc_hook=as_json_value, str_keys=True)
    return {
        "reward": reward.value,
        "reward_components": components,
        "reward_policy": reward.policy,
        "reward_why": reward.why,
    }


def _parquet_columns(added: list[dict[str, Any]]) -> Iterator[tuple[str, list[Any]]]:
    yield "reward", [row["reward"] for row in added]
    for name in _TEXT_COLUMNS:
        yield name, [_text(row[name]) for row in added]


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else encode_json(value).decode()
    return text.encode("utf-8", "replace").decode()


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == PARQUET_SUFFIX


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


def summary(target: Path, rewards: list[Reward], stats: Stats) -> dict[str, Any]:
    """The result of a scoring for ``--json``: rows, mean reward, and the engine's statistics."""
    values = [reward.value for reward in rewards if reward.value is not None]
    return {
        "out": str(target),
        "rows": len(rewards),
        "abstained": len(rewards) - len(values),
        "mean_reward": sum(values) / len(values) if values else None,
        "stats": stats,
    }


def show_summary(target: Path, rewards: list[Reward], stats: Stats, *, judged: bool) -> None:
    """Print rows, mean reward, traffic of the judges, cost, warnings and why rows abstained.

    Args:
        target: the file with the rewards.
        rewards: of every row.
        stats: of the engine.
        judged: whether the configuration has judges.
    """
    values = [reward.value for reward in rewards if reward.value is not None]
    mean = f"{sum(values) / len(values):.4f}" if values else "none"
    rows, abstained = counted(len(rewards), "row"), len(rewards) - len(values)
    print(f"{target}: {rows}, mean reward {mean}, {abstained} abstained")
    if judged:
        print(
            f"judge: {stats.asked} asked, {stats.cached} from the cache, {stats.joined} joined, "
            f"{stats.retries} retries, {stats.hedges} late and asked twice, "
            f"p50 {stats.latency_p50_s:.2f} s"
        )
    if stats.budget_usd is not None:
        print(f"budget: ${stats.budget_spent_usd:.4f} of ${stats.budget_usd:.2f} spent")
    if stats.validation_budget_usd is not None:
        spent, limit = stats.validation_budget_spent_usd, stats.validation_budget_usd
        print(f"validation budget: ${spent:.4f} of ${limit:.2f} spent")
    if stats.budget_usd is stats.validation_budget_usd is None and stats.spent_usd:
        print(f"cost: ${stats.spent_usd:.4f}")
    if stats.store_failures:
        print(
            f"warning: {stats.store_failures} reads or writes of the cache failed, so that the "
            "same requests may be sent, and paid for, again; is there room on its disk?"
        )
    if stats.model_changes:
        print(
            f"alarm: the judges' served model changed {stats.model_changes} times in this run; "
            "verdicts before and after it may not be comparable"
        )
    if stats.abstentions:
        kinds = ", ".join(f"{kind} {count}" for kind, count in stats.abstentions.items())
        print(f"abstentions: {kinds}")
    for reason, count in list(stats.reasons.items())[:_SHOWN_REASONS]:
        print(f"  {count} x {reason}")
    if len(stats.reasons) > _SHOWN_REASONS:
        print(f"  and {len(stats.reasons) - _SHOWN_REASONS} reasons more, each in its row")
