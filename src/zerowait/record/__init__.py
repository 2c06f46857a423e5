"""The record of a run: files of JSON lines that are only appended to, and an index to query them.

A run's folder has ``rewards.jsonl``, ``judgements.jsonl``, ``events.jsonl``, ``stats.jsonl``,
``waits.jsonl`` and ``pictures/``; see ``docs/reference/record.md``.
"""

from zerowait.record.index import RecordIndex, open_index, refresh
from zerowait.record.judgements import (
    EVENTS,
    JUDGEMENTS,
    OPINIONS,
    EventLine,
    FailedLine,
    JudgementLine,
    OpinionLine,
)
from zerowait.record.lines import AppendOnlyFile
from zerowait.record.resume import archive_record, rewind_record
from zerowait.record.rewards import (
    PICTURES,
    REWARDS,
    STATS,
    WAITS,
    Phase,
    Records,
    RewardRecord,
    StatsRecord,
    WaitRecord,
    append_wait,
    read_phases,
    read_rewards,
    read_stats,
    read_waits,
)

__all__ = [
    "EVENTS",
    "JUDGEMENTS",
    "OPINIONS",
    "PICTURES",
    "REWARDS",
    "STATS",
    "WAITS",
    "AppendOnlyFile",
    "EventLine",
    "FailedLine",
    "JudgementLine",
    "OpinionLine",
    "Phase",
    "RecordIndex",
    "Records",
    "RewardRecord",
    "StatsRecord",
    "WaitRecord",
    "append_wait",
    "archive_record",
    "open_index",
    "read_phases",
    "read_rewards",
    "read_stats",
    "read_waits",
    "refresh",
    "rewind_record",
]
