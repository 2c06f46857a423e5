"""No component waits for another one's function, and no sound row for one that hangs."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import zerowait
from zerowait import Abstain, ConfigError, Engine, FailureKind, Sample, Score
from zerowait.config import load_config
from zerowait.engine.concurrent_tasks import side_by_side
from zerowait.engine.plan import compile_plan
from zerowait.engine.pool import worker_pool
from zerowait.engine.pool.scorer_pool import CallLimits, ScorerPool
from zerowait.engine.pool.worker_pool import Growth
from zerowait.scorers import import_scorer

MODULE = """
import asyncio, os, sys, time

running = most = 0

def slow(sample): time.sleep(1000)
def fast(sample): return float(len(sample.response))
def lists(solution_strs): return [1.0 for _ in solution_strs]
def counted(sample):
    with open(sample.extra["file"], "a") as file: file.write("x")
    time.sleep(0.2)
    return 1.0
def pid(sample):
    time.sleep(0.1)
    return {"score": 1.0, "pid": os.getpid()}

async def later(sample):
    global running, most
    running += 1
    most = max(most, running)
    await asyncio.sleep(0.2)
    running -= 1
    return {"score": 1.0, "most": most, "pid": os.getpid()}

async def odd(sample):
    what = sample.ground_truth
    await asyncio.sleep(0.05)
    if what == "waits": await asyncio.sleep(1000)
    if what == "blocks": time.sleep(1000)
    if what == "exits": os._exit(3)
    if what == "leaves": sys.exit(3)
    if what == "raises": raise ValueError("bad luck")
    if what == "cancels": raise asyncio.CancelledError
    if what == "deaf":
        while True:
            try: await asyncio.sleep(1000)
            except asyncio.CancelledError: pass
    await asyncio.sleep(0.3)
    return 1.0
"""
NAMES = ("slow", "fast", "lists", "counted", "pid", "later", "odd")


@pytest.fixture(autouse=True)
def _users_module(tmp_path, monkeypatch):
    (tmp_path / "limited_functions.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


def functions():
    return {
        f"limited_functions:{name}": import_scorer(f"limited_functions:{name}") for name in NAMES
    }


async def all_of(pool, target, samples, **given):
    calls = [pool.run(f"limited_functions:{target}", sample, **given) for sample in samples]
    return await side_by_side(calls)


def alive(pid):
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_no_component_waits_for_another_one_s_function():
    """Rows of twenty components that sleep for ever, before those of rules and a fast function."""
    slow = {
        f"slow{n}": {"scorer": "limited_functions:slow", "sources": ["slow"]} for n in range(10)
    }
    others = {
        "math": {"scorer": "math"},
        "regex": {"scorer": "regex", "pattern": r"\d"},
        "fast": {"scorer": "limited_functions:fast"},
    }
    for each in others.values():
        each["sources"] = ["other"]
    for each in slow.values():
        each["timeout_s"] = 1000

    async def main():
        async with Engine({"components": slow | others}) as engine:
            stuck = [
                asyncio.create_task(engine.score(Sample("", "5", "5", data_source="slow")))
                for _ in range(20)
            ]
            await asyncio.sleep(0.1)
            rows = [Sample("", f"{n}", f"{n}", data_source="other") for n in range(40)]
            async with asyncio.timeout(60):
                rewards = await engine.score_all(rows)
            were_stuck = not any(task.done() for task in stuck)
            for task in stuck:
                task.cancel()
            await asyncio.wait(stuck)
            return rewards, were_stuck

    rewards, were_stuck = asyncio.run(main())
    assert were_stuck
    assert all(isinstance(reward.components[name], Score) for reward in rewards for name in others)


@pytest.mark.parametrize(("concurrency", "most"), [(64, 40), (5, 5), (1, 1)])
def test_asynchronous_functions_overlap_up_to_their_concurrency_in_one_process(concurrency, most):
    async def main():
        pool = ScorerPool(functions=functions())
        count = 40 if concurrency > 1 else 4
        limits = CallLimits("answer", concurrency=concurrency)
        outcomes = await all_of(pool, "later", [Sample("", "")] * count, limits=limits)
        await pool.aclose()
        return outcomes

    outcomes = asyncio.run(main())
    assert max(outcome.detail["most"] for outcome in outcomes) == most
    assert len({outcome.detail["pid"] for outcome in outcomes}) == 1


@pytest.mark.parametrize("workers", [1, 3])
def test_synchronous_functions_have_as_many_processes_as_workers(workers):
    async def main():
        pool = ScorerPool(functions=functions())
        limits = CallLimits("answer", workers=workers)
        outcomes = await all_of(pool, "pid", [Sample("", "")] * 12, limits=limits)
        await pool.aclose()
        return outcomes

    assert len({outcome.detail["pid"] for outcome in asyncio.run(main())}) == workers


ODD = [
    # what one of twelve overlapping calls does, its kind, and its message
    ("waits", FailureKind.TIMEOUT, "gave no answer in 1.5 s"),
    ("deaf", FailureKind.TIMEOUT, "gave no answer in 1.5 s"),
    ("blocks", FailureKind.TIMEOUT, "gave no answer in 1.5 s"),
    ("exits", FailureKind.CRASHED, "ended with exit code 3 before it answered"),
    ("leaves", FailureKind.CRASHED, "raised SystemExit: 3"),
    ("raises", FailureKind.CRASHED, "raised ValueError: bad luck"),
    ("cancels", FailureKind.CRASHED, "raised CancelledError"),
]


@pytest.mark.parametrize(("what", "kind", "message"), ODD)
def test_one_bad_call_among_overlapping_ones_costs_no_other_its_judgement(what, kind, message):
    timeout_s = 1.5 if kind is FailureKind.TIMEOUT else 60.0  # what hangs has less than what ends

    async def main():
        pool = ScorerPool(functions=functions())
        bad = pool.run("limited_functions:odd", Sample("", "", what), timeout_s=timeout_s)
        others = [pool.run("limited_functions:odd", Sample("", "")) for _ in range(11)]
        outcomes = await side_by_side([*others[:5], bad, *others[5:]])
        again = await all_of(pool, "odd", [Sample("", "")])
        await pool.aclose()
        return outcomes, again

    outcomes, again = asyncio.run(main())
    bad = outcomes.pop(5)
    assert bad.kind is kind
    assert message in bad.detail
    assert outcomes + again == [Score(1.0)] * 12


def test_a_cancelled_caller_of_an_overlapping_call_costs_the_others_nothing():
    async def main():
        pool = ScorerPool(functions=functions())
        calls = [
            asyncio.create_task(pool.run("limited_functions:odd", Sample("", "", what)))
            for what in ("", "waits", "")
        ]
        await asyncio.sleep(0.02)
        calls[1].cancel()
        outcomes = [await calls[0], await calls[2]]
        await asyncio.wait(calls)
        await pool.aclose()
        return outcomes, calls[1].cancelled()

    assert asyncio.run(main()) == ([Score(1.0)] * 2, True)


def test_closing_ends_overlapping_calls_and_those_that_wait():
    async def main():
        pool = ScorerPool(functions=functions())
        limits = CallLimits("answer", concurrency=2)
        waits = [Sample("", "", "waits")] * 4
        async with asyncio.TaskGroup() as group:
            calls = group.create_task(all_of(pool, "odd", waits, limits=limits))
            await asyncio.sleep(0.3)
            await pool.aclose()
        return calls.result()

    assert {outcome.kind for outcome in asyncio.run(main())} == {FailureKind.CANCELLED}


def test_a_function_runs_once_for_each_row_that_is_handed_in_equal_ones_too(tmp_path):
    """It may draw at random: what it costs to run twice is the user's to save, in a cache."""
    file = tmp_path / "calls"

    async def main():
        pool = ScorerPool(functions=functions())
        twice = [Sample("", "", extra={"file": str(file)})] * 2
        outcomes = await all_of(pool, "counted", twice)
        await pool.aclose()
        return outcomes

    assert asyncio.run(main()) == [Score(1.0)] * 2
    assert file.read_text() == "xx"


HANGS = {
    "by_data_source": (
        {"table": {"slow": {"scorer": "regex", "pattern": "(a+)+b"}}},
        Sample("", "a" * 60, data_source="slow"),
        Sample("", r"\boxed{\frac{1}{7}}", "1/7", data_source="aime24"),
    ),
    "regex": ({"pattern": "(a+)+b"}, Sample("", "a" * 60), Sample("", "ab")),
}


@pytest.mark.parametrize("rule", HANGS)
@pytest.mark.parametrize(("hang", "most"), [(12, 16), (12, 4)])
def test_sound_rows_go_on_beside_many_that_hang(rule, hang, most):
    """Also where more hang than there may be processes: those are restarted afterwards."""
    options, hanging, sound = HANGS[rule]

    async def main():
        pool = ScorerPool(growth=Growth(max_workers=most, hanging_s=0.2))
        stuck = [
            asyncio.create_task(pool.run(rule, hanging, options=options, timeout_s=1000))
            for _ in range(hang)
        ]
        await asyncio.sleep(0)
        rows = [
            asyncio.create_task(pool.run(rule, sound, options=options, timeout_s=60))
            for _ in range(40)
        ]
        _, late = await asyncio.wait(rows, timeout=60)
        were_stuck = not any(task.done() for task in stuck)
        await pool.aclose()
        return late, were_stuck, [await row for row in rows], [await each for each in stuck]

    late, were_stuck, rows, stuck = asyncio.run(main())
    assert not late
    assert were_stuck
    assert {row.value for row in rows} == {1.0}
    assert {each.kind for each in stuck} == {FailureKind.CANCELLED}


def test_rows_that_hang_cost_their_own_deadline_however_many():
    async def main():
        pool = ScorerPool(growth=Growth(max_workers=4, hanging_s=0.1))
        options, hanging, sound = HANGS["regex"]
        calls = [pool.run("regex", hanging, options=options, timeout_s=0.5) for _ in range(8)]
        calls += [pool.run("regex", sound, options=options) for _ in range(8)]
        outcomes = await side_by_side(calls)
        await pool.aclose()
        return outcomes

    outcomes = asyncio.run(main())
    why = "regex gave no answer in 0.5 s"
    assert outcomes[:8] == [Abstain(FailureKind.TIMEOUT, why)] * 8
    assert {outcome.value for outcome in outcomes[8:]} == {1.0}


@pytest.mark.timeout(300)
def test_sixteen_rows_that_hang_all_run_at_once_and_let_sound_rows_go_on(leaping):
    options, hanging, sound = HANGS["regex"]

    async def main(leap):
        pool = ScorerPool()
        await pool.run("regex", sound, options=options)
        calls = [pool.run("regex", hanging, options=options, timeout_s=60) for _ in range(16)]
        async with asyncio.TaskGroup() as group:
            stuck = [group.create_task(call) for call in calls]
            await asyncio.sleep(0)
            rows = [group.create_task(pool.run("regex", sound, options=options)) for _ in range(40)]
            await asyncio.wait(rows)
            were_stuck = not any(task.done() for task in stuck)
            leases = pool._rules._leases
            while sum(lease.began_s is not None for lease in leases) < 16:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            leap(60)
        await pool.aclose()
        return were_stuck, [each.result() for each in stuck], [r.result() for r in rows]

    were_stuck, stuck, rows = leaping(main)
    assert were_stuck
    assert {each.kind for each in stuck} == {FailureKind.TIMEOUT}
    assert {row.value for row in rows} == {1.0}


def test_a_pool_has_few_processes_while_memory_is_low(monkeypatch):
    growth = Growth(max_workers=128, max_workers_low_memory=16)
    monkeypatch.setattr(worker_pool, "_is_memory_low", lambda: True)
    assert [growth.most(running) for running in (2, 15, 16, 60)] == [128, 128, 16, 16]
    monkeypatch.setattr(worker_pool, "_is_memory_low", lambda: False)
    assert growth.most(60) == 128


def test_a_pool_leaves_no_process_and_no_descriptor_behind():
    async def main():
        pool = ScorerPool(functions=functions())
        outcomes = await all_of(pool, "pid", [Sample("", "")] * 4)
        await all_of(pool, "later", [Sample("", "")] * 4)
        await pool.run("regex", Sample("", "a"), options={"pattern": "a"})
        await pool.aclose()
        return {outcome.detail["pid"] for outcome in outcomes}

    asyncio.run(main())
    before = len(list(Path("/proc/self/fd").iterdir()))
    pids = asyncio.run(main())
    assert not any(map(alive, pids))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_when_the_fork_server_dies_the_next_call_gets_another_one():
    async def main():
        pool = ScorerPool(functions=functions())
        first = await pool.run("limited_functions:pid", Sample("", ""))
        hung = asyncio.create_task(pool.run("limited_functions:slow", Sample("", ""), timeout_s=60))
        await asyncio.sleep(0.2)
        os.kill(parent_of(first.detail["pid"]), 9)
        outcome = await hung
        after = await pool.run("limited_functions:fast", Sample("", "four"))
        await pool.aclose()
        return outcome, after, first.detail["pid"]

    outcome, after, pid = asyncio.run(main())
    end = time.monotonic() + 60
    while (is_left := alive(pid)) and time.monotonic() < end:
        time.sleep(0.01)
    assert outcome.kind is FailureKind.CRASHED
    assert after == Score(4.0)
    assert not is_left


WRONG = [
    # a component, and what its error says
    ({"scorer": "math", "workers": 4}, "components.it.workers is for synchronous functions"),
    ({"scorer": "gsm8k", "concurrency": 4}, "components.it.concurrency is for asynchronous"),
    ({"scorer": "limited_functions:fast", "concurrency": 4}, "is synchronous: give workers"),
    ({"scorer": "limited_functions:lists", "concurrency": 4}, "takes lists: give workers"),
    ({"scorer": "limited_functions:later", "workers": 4}, "asynchronous: give concurrency"),
    ({"scorer": "limited_functions:fast", "workers": 0}, "workers must be"),
    ({"scorer": "limited_functions:fast", "workers": -1}, "workers must be"),
    ({"scorer": "limited_functions:fast", "workers": True}, "workers"),
    ({"scorer": "limited_functions:fast", "workers": 1.5}, "workers"),
    ({"scorer": "limited_functions:fast", "worker": 2}, "did you mean 'workers'?"),
    ({"scorer": "limited_functions:later", "concurency": 2}, "did you mean 'concurrency'?"),
    ({"shape": "hard_cap", "limit": 5, "workers": 2}, "workers"),
]


@pytest.mark.parametrize(("component", "message"), WRONG)
def test_limits_that_mean_nothing_are_one_clear_line(component, message):
    with pytest.raises(ConfigError) as error:
        compile_plan(load_config({"components": {"it": component}}))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_table_s_functions_have_the_component_s_limits():
    table = {"a": "limited_functions:fast", "b": {"scorer": "limited_functions:later"}}
    given = {"scorer": "by_data_source", "table": table, "workers": 3, "concurrency": 7}
    (step,) = compile_plan(load_config({"components": {"it": given}})).steps
    assert step.limits == CallLimits("it", workers=3, concurrency=7)


INTERRUPTED = """
import sys, zerowait
config = {"components": {
    "slow": {"scorer": "limited_functions:pid_and_sleep"}, "later": {"scorer": "limited_functions:odd"}
}}
with zerowait.open(config) as rewards:
    rewards.score([zerowait.Sample("", "", "waits")] * 4)
"""


def test_an_interrupt_ends_every_process(tmp_path):
    (tmp_path / "limited_functions.py").write_text(
        MODULE
        + """
def pid_and_sleep(sample):
    line = f"{os.getpid()} {os.getppid()}\\n"
    os.write(1, line.encode())  # at once: another worker writes to the same pipe
    time.sleep(1000)
"""
    )
    (tmp_path / "script.py").write_text(INTERRUPTED)
    source = str(Path(zerowait.__file__).parent.parent)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([source, str(tmp_path)])}
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        pids = [int(pid) for _ in range(2) for pid in process.stdout.readline().split()]
        process.send_signal(signal.SIGINT)
        process.wait(60)
    assert len(set(pids)) == 3  # two workers and the fork server
    end = time.monotonic() + 60
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.01)
    assert not any(map(alive, pids))
