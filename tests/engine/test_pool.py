"""Worker processes: hangs, deaths, queues, closing. The faults are real ones."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import zerowait
from zerowait.engine.pool.scorer_pool import ScorerPool
from zerowait.errors import ClosedError
from zerowait.types import Abstain, FailureKind, Sample, Score

MODULE = """
import asyncio, ctypes, os, subprocess, sys, time

def length(sample, *, bonus=0.0): return len(sample.response) + bonus
def pid(sample): return {"score": 1.0, "pid": os.getpid()}
def verl(data_source, solution_str, ground_truth, extra_info, k=1):
    return {"score": float(solution_str == ground_truth), "k": k, "level": extra_info["level"]}
async def later(sample): await asyncio.sleep(0); return 0.5
def disguised(sample): return later(sample)
async def same_loop(sample): return {"score": 1.0, "loop": id(asyncio.get_running_loop())}
def hangs(sample):
    print("at it", os.getpid(), flush=True)
    if "file" in sample.extra: open(sample.extra["file"], "w").close()
    time.sleep(1000)
def computes(sample):
    print("at it", os.getpid(), flush=True)
    return sum(range(10**13))
def spins(sample):
    import re
    re.match(r"(a+)+b", "a" * 40)
def deaf(sample):
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True: time.sleep(1)
def exits(sample): os._exit(sample.extra["code"])
def segfaults(sample): ctypes.string_at(0)
def leaves(sample): sys.exit("done")
def raises(sample): raise ValueError("x" * 10_000)
def nothing(sample): return None
def nan(sample): return float("nan")
def secret_object(sample): return {"score": 1.0, "what": object()}
def surrogate(sample): return {"score": 1.0, "what": "\\ud800"}
def huge(sample): return {"score": 1.0, "what": "x" * 2_000_000}
def leaks(sample):
    KEPT.append(b"x" * (4 << 20))
    return {"score": 1.0, "pid": os.getpid()}
KEPT = []
def parent_and_child(sample):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    with open(sample.extra["file"], "w") as file: file.write(str(child.pid))
    child.wait()
"""
HEAVY = """
import pathlib, time
here = pathlib.Path(__file__).parent
(here / "importing").touch()
while not (here / "imported").exists(): time.sleep(0.01)
def good(sample): return 1.0
"""
HANGING_ONES = frozenset({"hangs", "spins", "deaf"})


@pytest.fixture(autouse=True)
def _users_modules(tmp_path, monkeypatch):
    (tmp_path / "pool_functions.py").write_text(MODULE)
    (tmp_path / "pool_heavy.py").write_text(HEAVY)
    monkeypatch.syspath_prepend(tmp_path)


def sample(response="four", **extra):
    return Sample("2+2?", response, "four", extra=extra)


def scored(*names, hang_timeout_s=0.3, **extra):
    """The outcomes of the functions called `names`, one after another in one pool.

    Those that hang have a short deadline; on a busy machine those that answer may need a long one.
    """

    async def main():
        pool = ScorerPool(max_workers=1)
        try:
            return [
                await pool.run(
                    f"pool_functions:{name}",
                    sample(**extra),
                    timeout_s=hang_timeout_s if name in HANGING_ONES else 60.0,
                )
                for name in names
            ]
        finally:
            await pool.aclose()

    return asyncio.run(main())


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    stat = Path(f"/proc/{pid}/stat")  # a zombie has ended, too
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"


async def until(condition):
    while not condition():  # noqa: ASYNC110 - what another process does has no event here
        await asyncio.sleep(0.01)


def comes_true(condition, within_s=60.0):
    end = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def test_functions_of_samples_and_of_columns_sync_and_async_are_scored():
    outcomes = scored("length", "verl", "later", "disguised", level=3)
    assert outcomes == [
        Score(4.0),
        Score(1.0, "", {"k": 1, "level": 3}),
        Score(0.5),
        Score(0.5),
    ]


def test_options_reach_the_function_and_built_in_names_work():
    async def main():
        pool = ScorerPool(max_workers=1)
        table = {"table": {"mine": {"scorer": "pool_functions:length", "bonus": 0.5}}}
        mine = Sample("", "four", data_source="mine")
        outcomes = [
            await pool.run("pool_functions:length", sample(), options={"bonus": 0.25}),
            await pool.run("regex", sample(), options={"pattern": "o"}),
            await pool.run("by_data_source", mine, options=table),
            await pool.run("by_data_source", sample(), options=table),
        ]
        await pool.aclose()
        return outcomes

    first, second, third, fourth = asyncio.run(main())
    assert (first.value, second.value, third.value) == (4.25, 1.0, 4.5)
    assert fourth.kind is FailureKind.BAD_INPUT


def test_asynchronous_functions_keep_their_loop_from_call_to_call():
    """An HTTP client that a user keeps in a module belongs to the loop it was made on."""
    first, second = scored("same_loop", "same_loop")
    assert first.detail["loop"] == second.detail["loop"]


def test_a_hanging_scorer_is_ended_at_its_deadline_and_the_next_one_has_a_new_worker():
    """Asleep, inside of C code, or deaf to SIGTERM."""
    names = ("pid", "hangs", "pid", "spins", "deaf", "pid")
    first, hung, second, span, deaf, third = scored(*names)
    assert hung.detail == "pool_functions:hangs gave no answer in 0.3 s"
    assert {hung.kind, span.kind, deaf.kind} == {FailureKind.TIMEOUT}
    pids = [outcome.detail["pid"] for outcome in (first, second, third)]
    assert len(set(pids)) == 3
    assert all(is_gone(pid) for pid in pids)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("segfaults", "its process was ended by SIGSEGV before it answered"),
        ("exits", "its process ended with exit code 0 before it answered"),
    ],
)
def test_a_scorer_that_ends_its_process_abstains_and_the_next_one_has_a_new_worker(name, message):
    dead, after = scored(name, "length", code=0)
    assert dead == Abstain(FailureKind.CRASHED, f"pool_functions:{name}: {message}")
    assert after == Score(4.0)


def test_a_scorer_that_fails_abstains_says_how_and_keeps_its_worker():
    messages = {
        "leaves": "raised SystemExit: done",
        "raises": "raised ValueError: xxx",
        "nan": "returned nan",
        "secret_object": "returned something that cannot be sent: TypeError",
        "surrogate": "returned something that cannot be sent",
        "huge": "bytes; at most 1,048,576 are taken",
        "missing": "there is no 'missing'",
    }
    first, *failed, last = scored("pid", *messages, "pid")
    assert first == last
    for outcome, (name, message) in zip(failed, messages.items(), strict=True):
        assert outcome.kind is FailureKind.CRASHED
        assert outcome.detail.startswith(f"pool_functions:{name}")
        assert message in outcome.detail
        assert len(outcome.detail) <= 300


def test_none_and_a_sample_that_cannot_be_sent_are_bad_input():
    async def main():
        pool = ScorerPool(max_workers=1)
        unsendable = Sample("", "", extra={"lock": threading.Lock()})
        outcomes = [
            await pool.run("pool_functions:nothing", sample()),
            await pool.run("pool_functions:length", unsendable),
        ]
        await pool.aclose()
        return outcomes

    nothing, unsendable = asyncio.run(main())
    assert nothing == Abstain(FailureKind.BAD_INPUT, "pool_functions:nothing returned None")
    assert unsendable.kind is FailureKind.BAD_INPUT
    assert "cannot be sent to a worker process" in unsendable.detail


def test_waiting_for_a_worker_does_not_count_into_the_deadline(tmp_path, leaping):
    """The second sample waits longer than its own deadline before a worker has time for it."""
    hangs = tmp_path / "hangs"

    async def main(leap):
        pool = ScorerPool(max_workers=1)
        asked = sample(file=str(hangs))
        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(pool.run(f"pool_functions:{name}", asked, timeout_s=timeout_s))
                for name, timeout_s in (("hangs", 90), ("length", 60), ("length", 60))
            ]
            await until(hangs.exists)
            leap(90)
        await pool.aclose()
        return [call.result() for call in calls]

    hung, *waited = leaping(main)
    assert hung.kind is FailureKind.TIMEOUT
    assert waited == [Score(4.0)] * 2


def test_importing_a_heavy_module_does_not_count_into_the_deadline(tmp_path, leaping):
    """Otherwise every call would be ended during the import, and every next one start over."""

    async def main(leap):
        pool = ScorerPool(max_workers=1, load_timeout_s=600)
        call = asyncio.create_task(pool.run("pool_heavy:good", sample(), timeout_s=60))
        await until((tmp_path / "importing").exists)
        leap(90)
        await asyncio.sleep(0.01)
        (tmp_path / "imported").touch()
        outcome = await call
        await pool.aclose()
        return outcome

    assert leaping(main) == Score(1.0)


def test_a_module_that_takes_too_long_to_import_times_out():
    async def main():
        pool = ScorerPool(max_workers=1, load_timeout_s=0.05)
        outcome = await pool.run("pool_heavy:good", sample())
        await pool.aclose()
        return outcome

    assert asyncio.run(main()).kind is FailureKind.TIMEOUT


def test_one_hanging_sample_stops_none_of_a_thousand_others():
    async def main():
        pool = ScorerPool(max_workers=2)
        async with asyncio.TaskGroup() as group:
            hung = group.create_task(pool.run("pool_functions:hangs", sample(), timeout_s=1000))
            others = [
                group.create_task(pool.run("pool_functions:length", sample())) for _ in range(1000)
            ]
            await asyncio.wait(others)
            assert not hung.done()
            await pool.aclose()
        return hung.result(), [other.result() for other in others]

    hung, others = asyncio.run(main())
    assert others == [Score(4.0)] * 1000
    assert hung.kind is FailureKind.CANCELLED


def test_a_leaking_function_gets_a_new_process_and_loses_no_sample():
    async def main():
        pool = ScorerPool(max_workers=1, leak_bytes=16 << 20)
        outcomes = [await pool.run("pool_functions:leaks", sample()) for _ in range(30)]
        await pool.aclose()
        return outcomes

    outcomes = asyncio.run(main())
    assert all(isinstance(outcome, Score) for outcome in outcomes)
    assert len({outcome.detail["pid"] for outcome in outcomes}) == 2


HANGING = Sample("", "a" * 60, data_source="slow")
SLOW = {"pattern": "(a+)+b"}
BY_SOURCE = {"table": {"slow": {"scorer": "regex", **SLOW}}}


@pytest.mark.parametrize(("rule", "options"), [("regex", SLOW), ("by_data_source", BY_SOURCE)])
def test_a_rule_that_never_ends_abstains_and_a_thousand_others_are_compared_meanwhile(
    rule, options
):
    """The first one on a worker of its own; the other worker takes no notice."""

    async def main():
        pool = ScorerPool(max_workers=2)
        async with asyncio.TaskGroup() as group:
            hung = group.create_task(pool.run(rule, HANGING, options=options, timeout_s=1000))
            others = [
                group.create_task(pool.run("math", Sample("", rf"\boxed{{{n}/3}}", f"{n}/3")))
                for n in range(1000)
            ]
            await asyncio.wait(others)
            assert not hung.done()
            await pool.aclose()
        return hung.result(), [other.result() for other in others]

    hung, others = asyncio.run(main())
    assert {outcome.value for outcome in others} == {1.0}
    assert hung.kind is FailureKind.CANCELLED


HUNG_RULES = [
    ("by_data_source", HANGING, BY_SOURCE, Sample("", "5", "5", data_source="aime24")),
    ("regex", HANGING, SLOW, Sample("", "ab")),
]


@pytest.mark.parametrize(("rule", "hanging", "options", "other"), HUNG_RULES)
def test_another_process_takes_over_while_a_hanging_rule_keeps_one(rule, hanging, options, other):
    async def main():
        pool = ScorerPool(max_workers=1)
        hung = asyncio.create_task(pool.run(rule, hanging, options=options, timeout_s=1000))
        others = [asyncio.create_task(pool.run(rule, other, options=options)) for _ in range(50)]
        _, waiting = await asyncio.wait(others, timeout=60)
        was_hung = not hung.done()
        await pool.aclose()
        return waiting, was_hung, [await each for each in others], await hung

    waiting, was_hung, outcomes, hung = asyncio.run(main())
    assert not waiting
    assert was_hung
    assert {outcome.value for outcome in outcomes} == {1.0}
    assert hung.kind is FailureKind.CANCELLED


def test_a_user_s_function_which_may_hold_a_gpu_is_not_loaded_again_beside_a_rule_that_hangs():
    async def main():
        pool = ScorerPool(max_workers=1)
        before = await pool.run("pool_functions:pid", sample())
        hanging, options = Sample("", "a" * 40), {"pattern": "(a+)+b"}
        hung = asyncio.create_task(pool.run("regex", hanging, options=options, timeout_s=1000))
        beside = [await pool.run("pool_functions:pid", sample()) for _ in range(3)]
        was_hung = not hung.done()
        await pool.aclose()
        return was_hung, {outcome.detail["pid"] for outcome in (before, *beside)}

    was_hung, pids = asyncio.run(main())
    assert was_hung
    assert len(pids) == 1
    assert all(map(is_gone, pids))


def test_no_further_process_starts_for_a_user_s_function_which_may_hold_a_gpu():
    async def main():
        pool = ScorerPool(max_workers=1)
        [first] = [await pool.run("pool_functions:pid", sample())]
        hung = asyncio.create_task(pool.run("pool_functions:hangs", sample(), timeout_s=1.5))
        await asyncio.sleep(0)
        later = await pool.run("pool_functions:pid", sample())
        was_hung = not hung.done()
        await pool.aclose()
        return first, later, was_hung, await hung

    first, later, was_hung, hung = asyncio.run(main())
    assert not was_hung
    assert hung.kind is FailureKind.TIMEOUT
    assert first.detail["pid"] != later.detail["pid"]


def test_a_rule_that_never_ends_is_ended_at_its_deadline():
    async def main():
        pool = ScorerPool(max_workers=1)
        outcome = await pool.run("regex", HANGING, options=SLOW, timeout_s=0.5)
        again = await pool.run("math", Sample("", "1", "1"))
        await pool.aclose()
        return outcome, again

    outcome, again = asyncio.run(main())
    assert outcome == Abstain(FailureKind.TIMEOUT, "regex gave no answer in 0.5 s")
    assert again.value == 1


def test_a_cancelled_caller_frees_its_worker():
    async def main():
        pool = ScorerPool(max_workers=1)
        await pool.run("pool_functions:length", sample())
        hung = asyncio.create_task(pool.run("pool_functions:hangs", sample(), timeout_s=1000))
        waiting = asyncio.create_task(pool.run("pool_functions:length", sample()))
        given_up = asyncio.create_task(pool.run("pool_functions:length", sample()))
        await asyncio.sleep(0.05)
        given_up.cancel()
        hung.cancel()
        outcome = await waiting
        await pool.aclose()
        return hung.cancelled(), given_up.cancelled(), outcome

    assert asyncio.run(main()) == (True, True, Score(4.0))


def test_a_caller_cancelled_while_the_worker_starts_leaves_the_start_to_the_next():
    async def main():
        pool = ScorerPool(max_workers=1)
        first = asyncio.create_task(pool.run("pool_functions:pid", sample()))
        await asyncio.sleep(0.01)
        first.cancel()
        outcome = await pool.run("pool_functions:pid", sample())
        await pool.aclose()
        return first.cancelled(), outcome

    cancelled, outcome = asyncio.run(main())
    assert cancelled
    assert is_gone(outcome.detail["pid"])


def test_closing_ends_every_worker_and_every_wait_and_leaves_no_thread():
    threads = set(threading.enumerate())

    async def main():
        pool = ScorerPool(max_workers=2)
        seen = await pool.run("pool_functions:pid", sample())
        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(pool.run("pool_functions:hangs", sample(), timeout_s=1000))
                for _ in range(5)
            ]
            await asyncio.sleep(0.05)
            await pool.aclose()
            await pool.aclose()
        with pytest.raises(ClosedError):
            await pool.run("pool_functions:length", sample())
        return seen.detail["pid"], [call.result() for call in calls]

    pid, outcomes = asyncio.run(main())
    assert is_gone(pid)
    assert {outcome.kind for outcome in outcomes} == {FailureKind.CANCELLED}
    assert comes_true(lambda: not set(threading.enumerate()) - threads)


def test_closing_a_pool_that_was_never_used_starts_nothing():
    async def main():
        pool = ScorerPool()
        await pool.aclose()
        return children()

    before = children()
    assert asyncio.run(main()) == before


def children():
    """The processes that this one has started and that are still there."""
    own = Path(f"/proc/{os.getpid()}/task")
    pids = [pid for task in own.iterdir() for pid in (task / "children").read_text().split()]
    return [pid for pid in pids if not is_gone(int(pid))]


def test_what_a_scorer_started_ends_with_it(tmp_path, leaping):
    file = tmp_path / "child"

    async def main(leap):
        pool = ScorerPool(max_workers=1)
        asked = pool.run("pool_functions:parent_and_child", sample(file=str(file)), timeout_s=60)
        call = asyncio.create_task(asked)
        await until(lambda: file.exists() and file.read_text())
        leap(60)
        outcome = await call
        await pool.aclose()
        return outcome

    assert leaping(main).kind is FailureKind.TIMEOUT
    assert comes_true(lambda: is_gone(int(file.read_text())))


def test_it_works_on_a_loop_in_another_thread():
    """Trainers live in the main thread; the engine's loop does not."""
    results = []
    thread = threading.Thread(target=lambda: results.extend(scored("length", "hangs")))
    thread.start()
    thread.join()
    assert results[0] == Score(4.0)
    assert results[1].kind is FailureKind.TIMEOUT


def test_a_pool_needs_at_least_one_worker():
    with pytest.raises(ValueError, match="at least 1"):
        ScorerPool(max_workers=0)


SCRIPT = """
import asyncio, os, sys
from zerowait.engine.pool.scorer_pool import ScorerPool
from zerowait.types import Sample

print("the script runs")
async def main():
    pool = ScorerPool(max_workers=1)
    outcome = await pool.run("pool_functions:pid", Sample("", ""))
    print(outcome.detail["pid"], flush=True)
    ENDING
asyncio.run(main())
"""


def script(tmp_path, ending):
    file = tmp_path / "script.py"
    file.write_text(SCRIPT.replace("ENDING", ending))
    paths = [str(Path(zerowait.__file__).parent.parent), str(tmp_path)]
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(file)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_script_without_a_main_guard_is_not_run_again_by_its_workers(tmp_path):
    """Plain multiprocessing imports the script in every worker, which starts workers, which …"""
    with script(tmp_path, "await pool.aclose()") as process:
        out, err = process.communicate(timeout=60)
    assert out.count("the script runs") == 1
    assert err == ""
    assert process.returncode == 0


def test_a_pool_that_was_not_closed_ends_with_its_process(tmp_path):
    with script(tmp_path, "pass") as process:
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert comes_true(lambda: is_gone(int(out.split()[-1])))


@pytest.mark.parametrize(("how", "timeout_s"), [("hangs", 1000), ("computes", 2)])
def test_workers_do_not_outlive_a_parent_that_was_killed(tmp_path, how, timeout_s):
    """Also where one call of a C library keeps the worker's Python from running."""
    asked = f'await pool.run("pool_functions:{how}", Sample("", ""), timeout_s={timeout_s})'
    # again: on a busy machine the first worker may be ended before it is at it
    with script(tmp_path, f"while True: {asked}") as process:
        assert process.stdout.readline() == "the script runs\n"
        process.stdout.readline()
        pid = int(process.stdout.readline().removeprefix("at it "))
        process.kill()
    assert comes_true(lambda: is_gone(pid))
