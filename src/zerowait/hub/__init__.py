"""One hub per job: limits, single flight, cache and statistics are true for all its workers."""

from zerowait.hub.job import JobHub
from zerowait.hub.records import (
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
from zerowait.hub.streaming import Stream, Streamed

__all__ = [
    "JobHub",
    "Phase",
    "RewardRecord",
    "StatsRecord",
    "Stream",
    "Streamed",
    "WaitRecord",
    "append_wait",
    "read_phases",
    "read_rewards",
    "read_stats",
    "read_waits",
]
