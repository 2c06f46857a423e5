"""The engine: a plan made from the configuration, run for each sample, on one loop."""

from zerowait.engine.combine import combine, metrics_of, policy_for, settle_groups
from zerowait.engine.engine import Engine
from zerowait.engine.give_up import reason_of
from zerowait.engine.health import ALARMS, StepRow
from zerowait.engine.partition import Ask, Partition
from zerowait.engine.portal import Portal
from zerowait.engine.progress import Progress
from zerowait.engine.rewards import Rewards, open  # noqa: A004 - users write zerowait.open
from zerowait.engine.settled import Settled
from zerowait.engine.shapes import Tokenizer
from zerowait.engine.tally import AnchorStats, JudgeStats, Stats, quantile

__all__ = [
    "ALARMS",
    "AnchorStats",
    "Ask",
    "Engine",
    "JudgeStats",
    "Partition",
    "Portal",
    "Progress",
    "Rewards",
    "Settled",
    "Stats",
    "StepRow",
    "Tokenizer",
    "combine",
    "metrics_of",
    "open",
    "policy_for",
    "quantile",
    "reason_of",
    "settle_groups",
]
