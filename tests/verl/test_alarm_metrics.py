from zerowait.engine import ALARMS, Stats
from zerowait.engine.monitor.metrics import alarm_metrics


def test_every_alarm_is_a_small_whole_number_at_every_step():
    quiet, loud = alarm_metrics(Stats()), alarm_metrics(Stats(alarms_on={"all_equal": 1}))
    assert quiet == {f"reward/alarm/{kind}": 0 for kind in ALARMS}
    assert loud == quiet | {"reward/alarm/all_equal": 1}
