"""The budgets of a configuration and their ledgers."""

from __future__ import annotations

from pathlib import Path

import msgspec

from zerowait.cache import SqliteLedger
from zerowait.cache.ledger import SPEND_FILE
from zerowait.client import NANO_USD, Ledger, MemoryLedger, nano_usd
from zerowait.config import Cache, FailurePolicy, RewardConfig
from zerowait.engine.combine import unraised
from zerowait.engine.monitor.stats import Stats
from zerowait.types import FailureKind, Sample


class Budgets(msgspec.Struct, frozen=True):
    """The ledgers that judge requests are paid from.

    Args:
        training: for all samples, or for those of the split ``train``.
        validation: for the others, where ``traffic.validation_budget_usd`` is given.
    """

    training: Ledger = msgspec.field(default_factory=lambda: MemoryLedger(None))
    validation: Ledger | None = None

    def policy(self, on_failure: FailurePolicy, sample: Sample) -> FailurePolicy:
        """The failure policy for `sample`: a spent validation budget never raises.

        Where the policy is ``raise``, such samples abstain as ``neutral``.
        """
        if self.validation is None or in_training(sample):
            return on_failure
        return unraised(on_failure, FailureKind.BUDGET)

    async def aclose(self) -> None:
        """Write down what is settled, then close. Idempotent."""
        try:
            await self.training.aclose()
        finally:
            if self.validation is not None:
                await self.validation.aclose()

    def add_accounts(self, stats: Stats) -> Stats:
        """`stats` with the accounts of the budgets."""
        accounts = _account(self.training, "budget")
        if self.validation is not None:
            accounts |= _account(self.validation, "validation_budget")
        return msgspec.structs.replace(stats, **accounts) if accounts else stats


def in_training(sample: Sample) -> bool:
    """Whether a sample is paid from ``traffic.budget_usd`` where validation has a budget."""
    return sample.split == "train"


def open_budgets(config: RewardConfig) -> Budgets:
    """The accounts of the configuration's budgets.

    They are kept in ``spend.db`` beside the cache's file (in the default cache's folder where there
    is none), under the budget's name, that of the validation with `` (validation)`` after it. A
    configuration that is no file and names no budget has accounts that end with its engine.

    Raises:
        ConfigError: the file cannot be opened or is no ledger of ours.
    """
    training = _open(config, "budget_usd", "")
    if config.traffic.validation_budget_usd is None:
        return Budgets(training)
    return Budgets(training, _open(config, "validation_budget_usd", " (validation)"))


def _open(config: RewardConfig, key: str, suffix: str) -> Ledger:
    usd, name = getattr(config.traffic, key), budget_name(config)
    limit, key = None if usd is None else nano_usd(usd), f"traffic.{key}"
    if limit is None or name is None:
        return MemoryLedger(limit, key=key)
    cache = Path(config.cache.path or str(Cache().path)).expanduser()
    return SqliteLedger(cache.with_name(SPEND_FILE), name=name + suffix, limit=limit, key=key)


def budget_name(config: RewardConfig) -> str | None:
    """The name under which the spend of `config` is kept; None where it is not kept."""
    if config.traffic.budget_name is not None:
        return config.traffic.budget_name
    file = Path(config.source.name)
    if not file.is_file():
        return None
    return "#".join([str(file.resolve()), *map(str, config.at)])


def _account(ledger: Ledger, name: str) -> dict[str, float]:
    limit, spent, reserved = ledger.account
    if limit is None:
        return {}
    return {
        f"{name}_usd": limit / NANO_USD,
        f"{name}_spent_usd": spent / NANO_USD,
        f"{name}_reserved_usd": reserved / NANO_USD,
    }
