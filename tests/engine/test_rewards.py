"""The synchronous API: from every thread, process and loop, and closed from anywhere."""

import asyncio
import os
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import zerowait
from zerowait import ConfigError, Sample
from zerowait.errors import ClosedError
from zerowait.events import RewardSettled
from zerowait.testing import FakeJudge, Hang, Script

RULE = {"components": {"answer": {"scorer": "qa_em"}}}
RIGHT = Sample("Capital?", "<answer>Paris</answer>", "Paris")


def judged(judge):
    return {
        "components": {"quality": {"judge": "q"}},
        "judges": {
            "q": {
                "endpoints": [{"base_url": judge.url, "model": "m"}],
                "verdict": {"integer": [1, 10]},
            }
        },
        "cache": "off",
    }


def no_thread_is_left():
    """Also where the threads of an earlier test are about to end."""
    give_up_s = time.monotonic() + 60
    while any("zerowait" in thread.name for thread in threading.enumerate()):
        if time.monotonic() > give_up_s:
            return False
        time.sleep(0.01)
    return True


def test_it_works_inside_a_running_loop_cell_after_cell():
    """As in a notebook, whose cells run inside its loop."""

    async def cell():
        return rewards.score([RIGHT])[0].value

    with zerowait.open(RULE) as rewards:
        assert [asyncio.run(cell()) for _ in range(3)] == [1.0] * 3


def test_it_can_be_opened_inside_a_running_loop():
    async def cell():
        with zerowait.open(RULE) as rewards:
            return rewards.submit(RIGHT).result().value

    assert asyncio.run(cell()) == 1.0


def test_closing_from_many_threads_at_once_closes_once_and_all_come_back():
    rewards = zerowait.open(RULE)
    with ThreadPoolExecutor(8) as pool:
        for closed in [pool.submit(rewards.close) for _ in range(8)]:
            closed.result(60)
    assert no_thread_is_left()
    with pytest.raises(ClosedError):
        rewards.submit(RIGHT)


def test_closing_in_a_listener_on_the_loops_own_thread_is_no_deadlock():
    def told(event):
        if isinstance(event, RewardSettled):
            rewards.close()

    rewards = zerowait.open(RULE, listener=told)
    rewards.submit(RIGHT).exception(60)
    rewards.close()
    assert no_thread_is_left()


def test_closing_with_a_drain_is_ended_by_nothing_but_itself():
    with FakeJudge(Script(faults=(Hang(always=True),))) as judge:
        rewards = zerowait.open(judged(judge))
        waiting = rewards.submit(RIGHT)
        while not judge.seen.in_flight:
            threading.Event().wait(0.005)
        with ThreadPoolExecutor(2) as pool:
            slow = pool.submit(rewards.close, drain_s=0.05)
            quick = pool.submit(rewards.close)
            slow.result(60)
            quick.result(60)
        assert waiting.exception(60) is not None
    assert no_thread_is_left()


def test_open_rewards_do_not_travel():
    with zerowait.open(RULE) as rewards, pytest.raises(TypeError, match="open them there"):
        pickle.dumps(rewards)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_is_told_to_open_again_and_may():
    with zerowait.open(RULE) as rewards:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                rewards.close()  # the parent's: nothing happens
                try:
                    rewards.submit(RIGHT)
                except ClosedError:
                    with zerowait.open(RULE) as own:
                        code = 7 if own.score([RIGHT])[0].value == 1.0 else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert rewards.score([RIGHT])[0].value == 1.0


SPAWNING = """
import multiprocessing
import zerowait

RULE = {"components": {"answer": {"scorer": "qa_em"}}}
RIGHT = zerowait.Sample("Capital?", "<answer>Paris</answer>", "Paris")

def child(sample):
    with zerowait.open(RULE) as rewards:
        return rewards.score([sample])[0]

if __name__ == "__main__":
    with zerowait.open(RULE) as rewards, multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(child, [RIGHT]) == rewards.score([RIGHT])[0]
    print("same")
"""


def test_a_spawned_child_opens_its_own_and_samples_and_rewards_travel(tmp_path):
    script = tmp_path / "spawning.py"
    script.write_text(SPAWNING)
    ended = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.stdout, ended.stderr) == ("same\n", "")


def test_a_process_that_never_closes_still_ends():
    code = (
        f"import zerowait; r = zerowait.open({RULE!r});"
        "print(r.score([zerowait.Sample('q', '<answer>b</answer>', 'b')])[0].value)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1.0\n", "")


@pytest.mark.parametrize("deadline_s", [float("nan"), float("inf"), -1, 0, "300", True])
def test_a_wrong_deadline_is_an_error_at_the_call_and_not_in_the_future(deadline_s):
    with zerowait.open(RULE) as rewards:
        with pytest.raises(ConfigError, match="deadline_s must be a number of seconds"):
            rewards.submit_all([RIGHT], deadline_s=deadline_s)
        with pytest.raises(ConfigError, match="deadline_s must be a number of seconds"):
            rewards.score([RIGHT], deadline_s=deadline_s)
        assert rewards.score([RIGHT], deadline_s=60)[0].value == 1


UNCLOSED = """
import socket
import zerowait

with socket.create_server(("127.0.0.1", 0)) as silent:
    url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
    judge = {"endpoints": [{"base_url": url, "model": "m"}], "verdict": {"integer": [1, 10]}}
    rewards = zerowait.open({"components": {"quality": {"judge": "q"}}, "judges": {"q": judge}})
    future = rewards.submit(zerowait.Sample("q", "a"))
    future.add_done_callback(lambda _: print("told", flush=True))
    connection, _ = silent.accept()  # and never an answer
"""


def test_who_waits_when_a_process_ends_that_never_closes_is_told_and_nothing_is_complained_about(
    tmp_path,
):
    ended = subprocess.run(
        [sys.executable, "-c", UNCLOSED],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"HOME": str(tmp_path)},
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "told\n", "")
