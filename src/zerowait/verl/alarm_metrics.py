"""The health of the rewards as numbers that verl's loggers take."""

from __future__ import annotations

from zerowait.engine import ALARMS, Stats


def alarm_metrics(stats: Stats) -> dict[str, int]:
    """``reward/alarm/...``: how many components had each alarm in the last finished step.

    The same keys at every step, so that a logger draws a line at 0 while all is well.

    >>> alarm_metrics(Stats(alarms_on={"saturated": 2}))["reward/alarm/saturated"]
    2
    """
    return {f"reward/alarm/{kind}": stats.alarms_on.get(kind, 0) for kind in ALARMS}
