"""Rows with their rewards: the columns that are added, the file, and the summary of both."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from zerowait.cli.output_file import open_output
from zerowait.cli.row_files import (
    RowFile,
    as_json_value,
    columns_of,
    encode_json,
    write_json_lines,
    write_parquet,
)
from zerowait.cli.tables import counted
from zerowait.engine import Stats, failure_reason
from zerowait.errors import DataError
from zerowait.types import Abstain, Reward

_TEXT_COLUMNS: Final = ("reward_components", "reward_policy", "reward_why")
_SHOWN_REASONS: Final = 5
_MOST_REASONS: Final = 200


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


def _parquet_columns(added: list[dict[str, Any]]) -> Iterator[tuple[str, list[Any]]]:
    yield from columns_of([{"reward": row["reward"]} for row in added]).items()
    for name in _TEXT_COLUMNS:
        yield name, [_text(row[name]) for row in added]


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else encode_json(value).decode()
    return text.encode("utf-8", "replace").decode()


class RewardCounts:
    """What a scoring came to, without its rewards.

    Attributes:
        rows: their number.
        responses: their number; a row may have several.
        abstained: responses without a reward.
        total: the sum of all rewards.
        failures: how often each component abstained, by its name and the reason.
        details: the whole message behind each reason, of the first time.
    """

    def __init__(self) -> None:
        self.rows = self.responses = self.abstained = 0
        self.total = 0.0
        self.failures: Counter[tuple[str, str]] = Counter()
        self.details: dict[str, str] = {}

    def add(self, rewards: Sequence[Reward], *, rows: int) -> None:
        """Count the rewards of `rows` more rows."""
        values = [reward.value for reward in rewards if reward.value is not None]
        self.rows += rows
        self.responses += len(rewards)
        self.abstained += len(rewards) - len(values)
        self.total += sum(values)
        for reward in rewards:
            for name, outcome in reward.components.items():
                if isinstance(outcome, Abstain):
                    self._add_failure(name, outcome)

    def _add_failure(self, component: str, failed: Abstain) -> None:
        reason = failure_reason(failed)
        if (component, reason) not in self.failures and len(self.failures) >= _MOST_REASONS:
            reason = f"{failed.kind.value}: other reasons"
        self.failures[component, reason] += 1
        self.details.setdefault(reason, f"{failed.kind.value}: {failed.detail}")

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


def show_summary(
    target: Path, counts: RewardCounts, stats: Stats, *, judged: Collection[str]
) -> None:
    """Print rows, mean reward, traffic of the judges, cost, warnings and why rows abstained.

    Args:
        target: the file with the rewards.
        counts: of its rows.
        stats: of the engine.
        judged: the components whose outcomes are judges' verdicts.
    """
    print(f"{target}: {counts.line()}")
    if judged:
        print(
            f"judge: {stats.asked} asked, {stats.cached} from the cache, {stats.joined} joined, "
            f"{stats.retries} retries, {stats.hedges} late and asked twice, "
            f"p50 {stats.latency_p50_s:.2f} s"
        )
    if stats.budget_usd is not None:
        print(f"budget: ${stats.budget_spent_usd:.4f} of {_limit(stats.budget_usd)} spent")
    if stats.validation_budget_usd is not None:
        spent, limit = stats.validation_budget_spent_usd, stats.validation_budget_usd
        print(f"validation budget: ${spent:.4f} of {_limit(limit)} spent")
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
    _show_reasons(
        [
            (count, counts.details.get(reason, reason) if count == 1 else reason)
            for reason, count in stats.reasons.items()
        ]
    )
    of_rules = Counter({key: n for key, n in counts.failures.items() if key[0] not in judged})
    if of_rules:
        print(f"abstentions of rules: {of_rules.total()}")
    _show_reasons([(count, f"{name}: {why}") for (name, why), count in of_rules.most_common()])


def _show_reasons(reasons: Sequence[tuple[int, str]]) -> None:
    for count, reason in reasons[:_SHOWN_REASONS]:
        print(f"  {count} x {reason}")
    if len(reasons) > _SHOWN_REASONS:
        print(f"  and {counted(len(reasons) - _SHOWN_REASONS, 'more reason')}, each in its row")


def _limit(usd: float) -> str:
    """A budget in dollars.

    >>> _limit(25), _limit(0.0005)
    ('$25.00', '$0.0005')
    """
    return f"${usd:.2f}" if usd >= 0.01 else f"${usd:.6f}".rstrip("0")
