"""Which processes run the garbage collector rarely."""

import gc
import subprocess
import sys

import pytest

import zerowait
from zerowait.engine.garbage_collection import collect_rarely


@pytest.mark.usefixtures("usual_collector")
def test_a_process_that_only_judges_collects_garbage_rarely() -> None:
    gc.set_threshold(700, 10, 10)  # Python's own, whatever ran here before
    mine = [[] for _ in range(1000)]
    before = gc.get_freeze_count()
    collect_rarely()
    assert gc.get_threshold()[0] > 7000
    assert gc.get_freeze_count() >= before + len(mine)


def test_cycles_are_still_found() -> None:
    code = """
import gc, weakref
from zerowait.engine.garbage_collection import collect_rarely
collect_rarely()
class Node: pass
first = Node(); first.itself = first; seen = weakref.ref(first); del first
kept = [[] for _ in range(50_000)]
print(seen() is None)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_an_engine_in_a_users_process_does_not_change_its_collector() -> None:
    before = gc.get_threshold(), gc.get_freeze_count()
    with zerowait.open({"components": {"exact": {"scorer": "qa_em"}}}) as rewards:
        rewards.score([zerowait.Sample("2 + 2?", "4", ground_truth="4")])
    assert gc.get_threshold() == before[0]
    assert gc.get_freeze_count() <= before[1]  # what was frozen may be gone
