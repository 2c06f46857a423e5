"""``zerowait score``: a file of responses in, the same rows with their rewards out."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from zerowait.cli.app import SOME_ABSTAINED, app
from zerowait.cli.partial import Partial
from zerowait.cli.rows import digest, read_rows, samples_of, write_rows
from zerowait.config import load_config
from zerowait.engine import Progress, Rewards, Stats, settle_groups
from zerowait.errors import ConfigError, DataError
from zerowait.types import Reward, Sample


@app.command()
def score(
    file: Annotated[Path, typer.Argument(help="Rows as .jsonl or .parquet.")],
    config: Annotated[
        str, typer.Option("--config", "-c", help="reward.yaml, or recipe.yaml#reward.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where the rewards go; FILE.rewards.EXT.")
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="FIELD=COLUMN, where the file has other names.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> int:
    """Score every row of FILE. Interrupt it and run it again: it goes on where it was.

    Exit code 0 when every row has a reward, 3 when some abstained, 2 when the input is wrong.
    """
    columns = _columns(column or [])
    loaded = load_config(config)
    rows = read_rows(file)
    samples = samples_of(file, rows, columns)
    if not samples:
        raise DataError(f"{file} has no rows")
    target = out or file.with_name(f"{file.stem}.rewards{file.suffix}")
    if target.suffix not in (".jsonl", ".parquet"):
        raise ConfigError(f"--out {target}: must end in .jsonl or .parquet")
    rewards = Rewards(loaded)
    partial = Partial(
        target.with_name(f".{target.name}.partial"), task=_task(config, file, columns)
    )
    done = False
    try:
        results = _score(rewards, samples, partial, quiet=quiet)
        results = settle_groups(
            results, [sample.group for sample in samples], loaded.on_failure.quorum
        )
        write_rows(target, rows, results)
        done = True
    except KeyboardInterrupt:
        _drain(rewards, loaded.traffic.timeout_s)
        raise
    finally:
        partial.close(done=done)
        rewards.close()
    return _summary(target, results, rewards.stats())


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
    columns = {}
    for pair in pairs:
        field, equals, name = pair.partition("=")
        if not equals:
            raise ConfigError(f"--column {pair}: write FIELD=COLUMN")
        columns[field] = name
    return columns


def _task(config: str, file: Path, columns: dict[str, str]) -> str:
    config_file = Path(config.partition("#")[0])
    parts = (digest(file), digest(config_file), config, sorted(columns.items()))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _summary(target: Path, rewards: list[Reward], stats: Stats) -> int:
    values = [reward.value for reward in rewards if reward.value is not None]
    mean = f"{sum(values) / len(values):.4f}" if values else "none"
    abstained = len(rewards) - len(values)
    print(f"{target}: {len(rewards)} rows, mean reward {mean}, {abstained} abstained")
    print(
        f"judge: {stats.asked} asked, {stats.cached} from the cache, {stats.joined} joined, "
        f"{stats.retries} retries, p50 {stats.latency_p50_s:.2f} s"
    )
    if stats.budget_usd is not None:
        print(f"budget: ${stats.budget_spent_usd:.4f} of ${stats.budget_usd:.2f} spent")
    elif stats.spent_usd:
        print(f"cost: ${stats.spent_usd:.4f}")
    if stats.model_changes:
        print(
            f"alarm: the judges' served model changed {stats.model_changes} times in this run; "
            "verdicts before and after it may not be comparable"
        )
    if stats.abstentions:
        kinds = ", ".join(f"{kind} {count}" for kind, count in stats.abstentions.items())
        print(f"abstentions: {kinds}")
    return SOME_ABSTAINED if abstained else 0
