"""Rewards for LLM reinforcement learning: GPUs never wait, and no failure becomes a reward.

>>> import zerowait
>>> with zerowait.open({"components": {"answer": {"scorer": "qa_em"}}}) as rewards:
...     sample = zerowait.Sample("Capital of France?", "<answer>Paris</answer>", "Paris")
...     rewards.score([sample])[0].value
1.0
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # that of `typing` costs more than all of this module
if TYPE_CHECKING:
    from typing import Any

    from zerowait.config import RewardConfig
    from zerowait.engine import Engine, Rewards, Stats, open  # noqa: A004 - users write it so
    from zerowait.errors import ConfigError, DataError, JudgementError, ZerowaitError
    from zerowait.hub.http import connect
    from zerowait.types import Abstain, FailureKind, Reward, Sample, Score, Skipped, TurnReward

__version__ = "0.1.0"

__all__ = [
    "Abstain",
    "ConfigError",
    "DataError",
    "Engine",
    "FailureKind",
    "JudgementError",
    "Reward",
    "RewardConfig",
    "Rewards",
    "Sample",
    "Score",
    "Skipped",
    "Stats",
    "TurnReward",
    "ZerowaitError",
    "connect",
    "open",
]

# Modules are loaded on first access, since the command line and each worker process that runs a
# scorer start with this import.
_ON_DEMAND = {
    "Abstain": "zerowait.types",
    "ConfigError": "zerowait.errors",
    "DataError": "zerowait.errors",
    "Engine": "zerowait.engine",
    "FailureKind": "zerowait.types",
    "JudgementError": "zerowait.errors",
    "Reward": "zerowait.types",
    "RewardConfig": "zerowait.config",
    "Rewards": "zerowait.engine",
    "Sample": "zerowait.types",
    "Score": "zerowait.types",
    "Skipped": "zerowait.types",
    "Stats": "zerowait.engine",
    "TurnReward": "zerowait.types",
    "ZerowaitError": "zerowait.errors",
    "connect": "zerowait.hub.http.remote",
    "open": "zerowait.engine",
}
_MODULES = ("errors", "types")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"zerowait.{name}")
    if name not in _ON_DEMAND:
        raise AttributeError(f"module 'zerowait' has no attribute {name!r}")
    value = getattr(import_module(_ON_DEMAND[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
