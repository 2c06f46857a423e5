"""The engine: a plan made from the configuration, run for each sample, on one loop."""

from zerowait.engine.combine import combine, metrics_of, policy_for, settle_groups
from zerowait.engine.engine import Engine
from zerowait.engine.groups.shapes import Tokenizer
from zerowait.engine.judging.recorded_replies import AnsweredBy, RecordedReplies, RecordedReply
from zerowait.engine.judging.result import JudgementResult
from zerowait.engine.monitor.failure_reasons import failure_reason, failure_words
from zerowait.engine.monitor.give_up import JudgementCounts
from zerowait.engine.monitor.health import ALARMS, StepRow
from zerowait.engine.monitor.stats import AnchorStats, JudgeStats, Stats, quantile
from zerowait.engine.partition import ForwardedRequest, Partition
from zerowait.engine.portal import Portal
from zerowait.engine.progress import Progress
from zerowait.engine.rewards import Rewards, open  # noqa: A004 - users write zerowait.open

__all__ = [
    "ALARMS",
    "AnchorStats",
    "AnsweredBy",
    "Engine",
    "ForwardedRequest",
    "JudgeStats",
    "JudgementCounts",
    "JudgementResult",
    "Partition",
    "Portal",
    "Progress",
    "RecordedReplies",
    "RecordedReply",
    "Rewards",
    "Stats",
    "StepRow",
    "Tokenizer",
    "combine",
    "failure_reason",
    "failure_words",
    "metrics_of",
    "open",
    "policy_for",
    "quantile",
    "settle_groups",
]
