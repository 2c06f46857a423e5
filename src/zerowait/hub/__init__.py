"""One hub per job: limits, single flight, cache and statistics are true for all its workers."""

from zerowait.hub.job import JobHub
from zerowait.hub.streaming import Stream, Streamed
from zerowait.record import (
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
