"""When a step's metrics are written: once it is whole, and once more where it was not."""

import asyncio

import pytest

from zerowait import DataError, Engine, Sample
from zerowait.engine.monitor.metrics_log import LoggedReward, StepRewards
from zerowait.engine.monitor.stats import JudgeCounts
from zerowait.types import Reward, Score


def row(step, value=1.0, *, split="train", asked=0):
    reward = Reward(value, {"answer": Score(value)})
    return LoggedReward(split, step, "", reward, JudgeCounts(asked=asked))


def idle():
    return True


def busy():
    return False


def written(points):
    return [(p.step, [r.reward.value for r in p.rows]) for p in points]


def test_a_step_is_written_when_the_next_one_begins():
    steps = StepRewards(0.0)
    assert written(steps.add(row(1, 0.25), 0.0)) == []
    assert written(steps.add(row(1, 0.75), 0.1)) == []
    assert written(steps.due(0.2, is_idle=idle)) == []
    assert written(steps.add(row(2), 0.3)) == [(1, [0.25, 0.75])]
    assert written(steps.due(0.3, is_idle=busy, ended=True)) == [(2, [1.0])]


def test_a_step_is_written_in_a_pause_unless_samples_are_pending():
    steps = StepRewards(0.0)
    list(steps.add(row(1), 0.0))
    assert written(steps.due(5.0, is_idle=busy)) == []
    assert written(steps.due(5.0, is_idle=idle)) == [(1, [1.0])]
    assert written(steps.due(9.0, is_idle=idle)) == []


def test_rewards_that_come_later_are_written_with_those_of_before():
    steps = StepRewards(0.0)
    list(steps.add(row(1, 0.0, asked=1), 0.0))
    list(steps.add(row(2, 0.5, asked=3), 0.0))
    list(steps.add(row(1, 1.0, asked=4), 0.0))
    points = list(steps.due(0.0, is_idle=idle, ended=True))
    assert written(points) == [(1, [0.0, 1.0]), (2, [0.5])]
    assert points[0].before == JudgeCounts()


def test_the_counts_of_a_step_begin_where_the_step_before_ended():
    steps = StepRewards(0.0)
    list(steps.add(row(1, asked=4), 0.0))
    list(steps.add(row(1, split="validation", asked=6), 0.0))
    list(steps.add(row(2, asked=9), 0.0))
    (second,) = steps.due(0.0, is_idle=idle, ended=True)
    assert second.before.asked == 6


def test_samples_without_a_step_make_a_point_every_ten_seconds_and_at_the_end():
    steps = StepRewards(0.0)
    for at in range(3):
        list(steps.add(row(None, at), float(at)))
    assert written(steps.due(9.9, is_idle=idle)) == []
    assert written(steps.due(10.0, is_idle=busy)) == [(3, [0, 1, 2])]
    list(steps.add(row(None, 7), 11.0))
    assert written(steps.due(12.0, is_idle=idle)) == []
    assert written(steps.due(12.0, is_idle=idle, ended=True)) == [(4, [7])]


def test_old_steps_are_forgotten():
    steps = StepRewards(0.0)
    for step in range(50):
        list(steps.add(row(step), 0.0))
    assert len(steps._steps) == 4


def test_a_sample_that_was_refused_or_given_up_is_not_pending():
    config = {
        "components": {"answer": {"scorer": "contains"}, "length": {"shape": "median_band"}},
        "log_to": [{"prometheus": {"port": 0}}],
    }
    alone = {"ground_truth": "r", "group": "a", "response_tokens": 3}

    async def run():
        async with Engine(config) as engine:
            with pytest.raises(DataError, match="group_size"):
                await engine.score(Sample("q", "r", **alone))
            assert engine.stats().submitted == 0
            waiting = asyncio.create_task(engine.score(Sample("q", "r", group_size=2, **alone)))
            await asyncio.sleep(0)  # now it waits for its sibling
            assert engine.stats().submitted == 1
            assert not engine._metrics_log._is_idle()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert engine._metrics_log._is_idle()

    asyncio.run(run())
