"""Reads a run's record for people: reports, replays, comparisons and samples."""

from zerowait.observe.config_differences import (
    UsedConfiguration,
    config_differences,
    notes_on_earlier_rows,
    used_configurations,
)
from zerowait.observe.found_samples import (
    FoundJudgement,
    FoundSample,
    SampleFilter,
    find_samples,
)
from zerowait.observe.page.page import write_page
from zerowait.observe.recorded_samples import (
    RecordedRow,
    rows_in,
    steps_in,
    text_name,
)
from zerowait.observe.replay import Replayed, replay, rows_to_replay
from zerowait.observe.report import (
    Report,
    alarms,
    by_step,
    comparison,
    falls,
    read_report,
    reasons,
    traffic,
)
from zerowait.observe.reward_comparison import (
    ADVANTAGE,
    SHOWN_CHARS,
    Disagreement,
    RewardComparison,
    RewardedSample,
    ValueComparison,
    compare,
    joined,
    outcome_words,
)
from zerowait.observe.steps import StepSummary, summarise

__all__ = [
    "ADVANTAGE",
    "SHOWN_CHARS",
    "Disagreement",
    "FoundJudgement",
    "FoundSample",
    "RecordedRow",
    "Replayed",
    "Report",
    "RewardComparison",
    "RewardedSample",
    "SampleFilter",
    "StepSummary",
    "UsedConfiguration",
    "ValueComparison",
    "alarms",
    "by_step",
    "compare",
    "comparison",
    "config_differences",
    "falls",
    "find_samples",
    "joined",
    "notes_on_earlier_rows",
    "outcome_words",
    "read_report",
    "reasons",
    "replay",
    "rows_in",
    "rows_to_replay",
    "steps_in",
    "summarise",
    "text_name",
    "traffic",
    "used_configurations",
    "write_page",
]
