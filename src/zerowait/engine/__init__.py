"""The engine: a plan made from the configuration, run for each sample, on one loop."""

from zerowait.engine.combine import combine, policy_for, settle_groups
from zerowait.engine.engine import Engine, Tokenizer
from zerowait.engine.portal import Portal
from zerowait.engine.progress import Progress
from zerowait.engine.rewards import Rewards, open  # noqa: A004 - users write zerowait.open
from zerowait.engine.tally import AnchorStats, JudgeStats, Stats, quantile

__all__ = [
    "AnchorStats",
    "Engine",
    "JudgeStats",
    "Portal",
    "Progress",
    "Rewards",
    "Stats",
    "Tokenizer",
    "combine",
    "open",
    "policy_for",
    "quantile",
    "settle_groups",
]
