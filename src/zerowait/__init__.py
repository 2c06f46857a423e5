"""Rewards for LLM reinforcement learning: GPUs never wait, and no failure becomes a reward.

>>> import zerowait
>>> with zerowait.open({"components": {"answer": {"scorer": "qa_em"}}}) as rewards:
...     sample = zerowait.Sample("Capital of France?", "<answer>Paris</answer>", "Paris")
...     rewards.score([sample])[0].value
1.0
"""

from zerowait.config import RewardConfig
from zerowait.engine import Engine, Rewards, Stats, open  # noqa: A004 - users write zerowait.open
from zerowait.errors import ConfigError, DataError, JudgementError, ZerowaitError
from zerowait.types import Abstain, FailureKind, Reward, Sample, Score, Skipped

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
