"""The ledger that a configuration asks for, and what it says."""

from __future__ import annotations

from pathlib import Path

import msgspec

from zerowait.cache import SqliteLedger
from zerowait.cache.ledger import SPEND_FILE
from zerowait.client import NANO_USD, Ledger, MemoryLedger, nano_usd
from zerowait.config import Cache, RewardConfig
from zerowait.engine.tally import Stats
from zerowait.judge import reply_usage


def open_ledger(config: RewardConfig) -> Ledger:
    """The account of the configuration's budget.

    It is kept in ``spend.db`` beside the cache's file (in the default cache's folder where there is
    none), under the budget's name. A configuration that is no file and names no budget has an
    account that ends with its engine.

    Raises:
        ConfigError: the file cannot be opened or is no ledger of ours.
    """
    limit = config.traffic.budget_usd
    name = budget_name(config)
    if limit is None or name is None:
        return MemoryLedger(None if limit is None else nano_usd(limit))
    cache = Path(config.cache.path or str(Cache().path)).expanduser()
    return SqliteLedger(cache.with_name(SPEND_FILE), name=name, limit=nano_usd(limit))


def budget_name(config: RewardConfig) -> str | None:
    """Under which name the spend of `config` is remembered; None when it is not."""
    if config.traffic.budget_name is not None:
        return config.traffic.budget_name
    file = Path(config.source.name)
    if not file.is_file():
        return None
    return "#".join([str(file.resolve()), *map(str, config.at)])


def with_budget(stats: Stats, ledger: Ledger) -> Stats:
    """`stats` with the budget's account."""
    limit, spent, reserved = ledger.account
    if limit is None:
        return stats
    return msgspec.structs.replace(
        stats,
        budget_usd=limit / NANO_USD,
        budget_spent_usd=spent / NANO_USD,
        budget_reserved_usd=reserved / NANO_USD,
    )


def tokens(body: bytes) -> tuple[int, int]:
    """The prompt and completion tokens that a reply's body names, or zeros."""
    usage = reply_usage(body)
    return usage.prompt_tokens, usage.completion_tokens
