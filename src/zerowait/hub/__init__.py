"""One hub per job: limits, single flight, cache and statistics are true for all its workers."""

from zerowait.hub.job import Hub, JobHub
from zerowait.hub.records import (
    RewardRecord,
    StatsRecord,
    WaitRecord,
    append_wait,
    read_rewards,
    read_stats,
    read_waits,
)
from zerowait.hub.streaming import Stream, Streamed

__all__ = [
    "Hub",
    "JobHub",
    "RewardRecord",
    "StatsRecord",
    "Stream",
    "Streamed",
    "WaitRecord",
    "append_wait",
    "read_rewards",
    "read_stats",
    "read_waits",
]
