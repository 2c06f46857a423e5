"""What ``zerowait score`` says at its end."""

from __future__ import annotations

from pathlib import Path

from zerowait.cli.app import SOME_ABSTAINED
from zerowait.engine import Stats
from zerowait.types import Reward

_REASONS = 5


def summary(target: Path, rewards: list[Reward], stats: Stats) -> int:
    """Print what came out and what was asked; the exit code: 3 when some rows abstained."""
    values = [reward.value for reward in rewards if reward.value is not None]
    mean = f"{sum(values) / len(values):.4f}" if values else "none"
    abstained = len(rewards) - len(values)
    print(f"{target}: {len(rewards)} rows, mean reward {mean}, {abstained} abstained")
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
            "same answers may be asked, and paid, for again; is there room on its disk?"
        )
    if stats.model_changes:
        print(
            f"alarm: the judges' served model changed {stats.model_changes} times in this run; "
            "verdicts before and after it may not be comparable"
        )
    if stats.abstentions:
        kinds = ", ".join(f"{kind} {count}" for kind, count in stats.abstentions.items())
        print(f"abstentions: {kinds}")
    for reason, count in list(stats.reasons.items())[:_REASONS]:
        print(f"  {count} x {reason}")
    if len(stats.reasons) > _REASONS:
        print(f"  and {len(stats.reasons) - _REASONS} reasons more, each in its row")
    return SOME_ABSTAINED if abstained else 0
