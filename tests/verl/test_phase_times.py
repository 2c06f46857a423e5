"""When the phases of a step began and ended, by verl's own timers."""

import time

import pytest
from verl.utils.debug import marked_timer

from zerowait.verl.trainer.phase_times import PhaseTimes


def test_verls_own_timers_tell_when_a_phase_began_and_ended():
    times = PhaseTimes({})
    before = time.time()
    with marked_timer("step", times):
        for _ in range(2):  # a step may have several updates
            with marked_timer("gen", times):
                time.sleep(0.02)
    first, second, step = times.phases
    assert [p.name for p in times.phases] == ["gen", "gen", "step"]
    assert before - 0.01 <= first.began_at <= first.ended_at <= second.began_at + 0.01
    assert step.ended_at - step.began_at == pytest.approx(times["step"], abs=1e-3)
    assert times["gen"] >= 0.04
