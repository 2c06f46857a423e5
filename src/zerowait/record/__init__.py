"""The record of a run: files of JSON lines that are only appended to, and an index to query them.

A run's folder has ``rewards.jsonl``, ``judgements.jsonl``, ``events.jsonl``, ``stats.jsonl``,
``waits.jsonl``, ``opinions.jsonl``, ``reward.json``, ``configurations.jsonl`` and ``pictures/``;
see ``docs/reference/record.md``.
"""

from zerowait.record.configuration import (
    CONFIGURATION,
    EarlierConfiguration,
    described,
    earlier_configurations,
    read_configuration,
)
from zerowait.record.event_writer import EVENT_KINDS, RECORDED
from zerowait.record.export import export_table
from zerowait.record.index import INDEX, TABLES, RecordIndex, damage_in, open_index, refresh
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
    REWARDS,
    STATS,
    WAITS,
    Phase,
    RewardRecord,
    StatsRecord,
    WaitRecord,
    append_wait,
    read_phases,
    read_rewards,
    read_stats,
    read_waits,
)
from zerowait.record.run import Records, RunRecord
from zerowait.record.texts import PICTURES

__all__ = [
    "CONFIGURATION",
    "EVENTS",
    "EVENT_KINDS",
    "INDEX",
    "JUDGEMENTS",
    "OPINIONS",
    "PICTURES",
    "RECORDED",
    "REWARDS",
    "STATS",
    "TABLES",
    "WAITS",
    "AppendOnlyFile",
    "EarlierConfiguration",
    "EventLine",
    "FailedLine",
    "JudgementLine",
    "OpinionLine",
    "Phase",
    "RecordIndex",
    "Records",
    "RewardRecord",
    "RunRecord",
    "StatsRecord",
    "WaitRecord",
    "append_wait",
    "archive_record",
    "damage_in",
    "described",
    "earlier_configurations",
    "export_table",
    "open_index",
    "read_configuration",
    "read_phases",
    "read_rewards",
    "read_stats",
    "read_waits",
    "refresh",
    "rewind_record",
]
