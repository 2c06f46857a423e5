"""``zerowait score``: a file of responses in, the same rows with their rewards out."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

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
from zerowait.cli.samples import UsableRows, problems_of_rows, usable_samples
from zerowait.cli.saved_datasets import rewards_name
from zerowait.cli.tables import counted
from zerowait.config import RewardConfig, load_config
from zerowait.engine import Engine, Progress, Rewards, Stats, settle_groups
from zerowait.engine.collector import collect_rarely
from zerowait.errors import ConfigError, DataError
from zerowait.types import Reward, Sample

if TYPE_CHECKING:
    from zerowait.cli.watch import FolderWatch

_SUFFIXES: Final = (".jsonl", ".ndjson", PARQUET_SUFFIX)
_TEXT_COLUMNS: Final = ("reward_components", "reward_policy", "reward_why")
_SHOWN_REASONS: Final = 5


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
            show_summary(target, counts, stats, judged=bool(loaded.judges))
            if unusable:
                print(f"left out: {problems_of_rows(rows, unusable)}")
    return SOME_ABSTAINED if counts.abstained else 0


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
        show_summary(folder.out, folder.counts, stats, judged=bool(folder.config.judges))
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


def write_rewards(
    file: RowFile,
    rewards: Sequence[Reward | list[Reward]],
    out: Path,
    *,
    arrow: Mapping[str, Any] | None = None,
) -> None:
    """Write each row with its reward, in order; `out` is replaced when all is written.

    Args:
        file: the rows; the output gets the permissions of their file, or of an earlier output.
        rewards: one for each row, or a list of them.
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


def reward_columns(reward: Reward | list[Reward]) -> dict[str, Any]:
    """The columns that a reward adds to its row; ``reward`` is None where the row abstained.

    For a row with a list of responses each column is a list, in their order.
    """
    if isinstance(reward, list):
        each = [reward_columns(one) for one in reward]
        return {name: [columns[name] for columns in each] for name in ("reward", *_TEXT_COLUMNS)}
    components = msgspec.to_builtins(reward.components, enc_hook=as_json_value, str_keys=True)
    return {
        "reward": reward.value,
        "reward_components": components,
        "reward_policy": reward.policy,
        "reward_why": reward.why,
    }


def _parquet_columns(added: list[dict[str, Any]]) -> Iterator[tuple[str, list[Any]]]:
    yield from columns_of([{"reward": row["reward"]} for row in added]).items()
    for name in _TEXT_COLUMNS:
        yield name, [_text(row[name]) for row in added]


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else encode_json(value).decode()
    return text.encode("utf-8", "replace").decode()


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


class RewardCounts:
    """What a scoring came to, without its rewards.

    Attributes:
        rows: their number.
        responses: their number; a row may have several.
        abstained: responses without a reward.
        total: the sum of all rewards.
    """

    def __init__(self) -> None:
        self.rows = self.responses = self.abstained = 0
        self.total = 0.0

    def add(self, rewards: Sequence[Reward], *, rows: int) -> None:
        """Count the rewards of `rows` more rows."""
        values = [reward.value for reward in rewards if reward.value is not None]
        self.rows += rows
        self.responses += len(rewards)
        self.abstained += len(rewards) - len(values)
        self.total += sum(values)

    @property
    def mean(self) -> float | None:
        """The mean of the rewards; None where there is none."""
        count = self.responses - self.abstained
        return self.total / count if count else None

    def line(self) -> str:
        """The counts in words."""
        mean = "none" if self.mean is None else f"{self.mean:.4f}"
        several = "" if self.rows == self.responses else f", {counted(self.responses, 'response')}"
        rows = counted(self.rows, "row") + several
        return f"{rows}, mean reward {mean}, {self.abstained} abstained"


def summary(target: Path, counts: RewardCounts, stats: Stats) -> dict[str, Any]:
    """The result of a scoring for ``--json``: rows, mean reward, and the engine's statistics."""
    return {
        "out": str(target),
        "rows": counts.rows,
        "responses": counts.responses,
        "abstained": counts.abstained,
        "mean_reward": counts.mean,
        "stats": stats,
    }


def show_summary(target: Path, counts: RewardCounts, stats: Stats, *, judged: bool) -> None:
    """Print rows, mean reward, traffic of the judges, cost, warnings and why rows abstained.

    Args:
        target: the file with the rewards.
        counts: of its rows.
        stats: of the engine.
        judged: whether the configuration has judges.
    """
    print(f"{target}: {counts.line()}")
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
