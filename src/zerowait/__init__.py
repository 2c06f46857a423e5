"""Rewards for LLM reinforcement learning: GPUs never wait, and no failure becomes a reward.

>>> import zerowait
>>> with zerowait.open({"components": {"answer": {"scorer": "qa_em"}}}) as rewards:
...     sample = zerowait.Sample("Capital of France?", "<answer>Paris</answer>", "Paris")
...     rewards.score([sample])[0].value
1.0
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from zerowait.errors import ConfigError, DataError, JudgementError, ZerowaitError
from zerowait.types import Abstain, FailureKind, Reward, Sample, Score, Skipped

if TYPE_CHECKING:
    from zerowait.config import RewardConfig
    from zerowait.engine import Engine, Rewards, Stats, open  # noqa: A004 - users write it so

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
    "ZerowaitError",
    "open",
]

# The words are enough for whoever writes a scorer, and each worker process that runs one imports
# them; the engine comes when somebody asks for it.
_ON_DEMAND = {
    "Engine": "zerowait.engine",
    "RewardConfig": "zerowait.config",
    "Rewards": "zerowait.engine",
    "Stats": "zerowait.engine",
    "open": "zerowait.engine",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module 'zerowait' has no attribute {name!r}")
    value = getattr(import_module(_ON_DEMAND[name]), name)
    globals()[name] = value
    return value
