"""A thousand steps of one open judge: what the process holds does not grow with them."""

import asyncio
import gc
import threading
import warnings
from itertools import chain
from pathlib import Path

import pytest

import zerowait
from zerowait import Sample
from zerowait.testing import FakeJudge, Reset, Script

STEPS, FIRST = 1000, 100
ROOM = 20  # a leak of one in a step, or in a broken connection, is hundreds
DESCRIPTORS = Path("/proc/self/fd")


def config(url):
    judge = {"endpoints": [{"base_url": url, "model": "m"}], "verdict": {"integer": [1, 10]}}
    return {
        "components": {"quality": {"judge": "q"}},
        "judges": {"q": judge},
        "traffic": {"concurrency": 2, "hedge": "off"},
        "cache": "off",
    }


def step_of(rewards, number):
    """Descriptors, threads and the loop's tasks, as seen while a step's rewards come."""
    seen = []

    def look(_index, _reward):
        tasks = len(asyncio.all_tasks())
        seen.append((len(list(DESCRIPTORS.iterdir())), threading.active_count(), tasks))

    rows = [Sample("q", f"answer {number} {row}") for row in range(2)]
    rewards.score(rows, on_reward=look)
    return seen


def most(steps):
    """The most of each that was held in any of `steps`."""
    return [max(column) for column in zip(*chain.from_iterable(steps), strict=True)]


@pytest.mark.skipif(not DESCRIPTORS.exists(), reason="counts descriptors in /proc")
def test_a_thousand_steps_hold_no_more_than_the_first_hundred(caplog):
    """Each in a loop of its own, as a trainer calls it; now and then a connection breaks."""

    async def cell(number):
        return step_of(rewards, number)

    gc.collect()  # so that no other test's leavings are complained about here
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        script = Script(faults=(Reset(share=0.03, first=1),))
        with FakeJudge(script) as judge, zerowait.open(config(judge.url)) as rewards:
            steps = [asyncio.run(cell(number)) for number in range(STEPS)]
            stats = rewards.stats()
            broken = judge.seen.by_fault["reset"]
        gc.collect()
    early, late = most(steps[:FIRST]), most(steps[FIRST:])
    assert all(after <= before + ROOM for before, after in zip(early, late, strict=True))
    assert broken > ROOM
    assert stats.abstained == 0
    assert [str(complaint.message) for complaint in complaints] == []
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []
