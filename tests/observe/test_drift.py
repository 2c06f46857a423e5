"""Where a judge's drift is seen: the report's lines and the service's metrics."""

from pathlib import Path

import msgspec

from zerowait.engine import AnchorStats, Stats
from zerowait.engine.monitor.prometheus import exposition
from zerowait.events import Drift
from zerowait.observe import Report, traffic


def drift(mean_abs):
    return Drift(anchors=20, mean_abs=mean_abs, rank_correlation=0.9, flips=2)


def shown(**anchors):
    stats = msgspec.to_builtins(Stats(anchors=anchors))
    report = Report(folder=Path(), training=[], validation=[], stats=stats)
    return {row[0]: row[1] for row in traffic(report)}


def test_the_report_shows_the_drift_and_raises_an_alarm_only_where_there_was_one():
    steady = AnchorStats(measurements=3, since_first=drift(0.02), from_reference=drift(0.05))
    gone = AnchorStats(measurements=4, alarms=2, since_first=drift(0.3))
    rows = shown(steady=steady, gone=gone, mute=AnchorStats(measurements=1))
    assert rows["drift of steady"] == (
        "0.020 since the first, 0.050 from the reference (3 measured)"
    )
    assert rows["drift of gone"] == "0.300 since the first (4 measured); ALARM: drifted 2 times"
    assert rows["drift of mute"] == "nothing reached (1 measured)"


def test_a_judge_without_anchors_has_no_line():
    assert not any(name.startswith("drift") for name in shown())


def test_prometheus_can_watch_the_drift():
    stats = Stats(anchors={"q": AnchorStats(measurements=2, alarms=1, since_first=drift(0.25))})
    lines = exposition(stats).splitlines()
    assert 'zerowait_judge_drift{against="first",judge="q"} 0.25' in lines
    assert 'zerowait_judge_drift_alarms_total{judge="q"} 1.0' in lines
