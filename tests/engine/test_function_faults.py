"""Every kind of user function with every fault: the right outcome, and the function named in it."""

import asyncio

import pytest

from zerowait.engine import Engine
from zerowait.engine.pool.microbatch import MAX_BATCH
from zerowait.engine.pool.scorer_pool import ScorerPool
from zerowait.scorers import import_scorer, user_functions
from zerowait.types import Abstain, FailureKind, Sample, Score

MODULE = """
import asyncio, ctypes, functools, os, time
import numpy as np

RESULTS = {
    "number": 0.5, "whole": 1, "truth": True, "scalar": np.float32(0.5), "row": {"score": 0.5, "k": 1},
    "none": None, "text": "1.0", "nan": float("nan"), "inf": float("inf"), "list": [0.5],
    "array": np.array(0.5), "odd": np.float64("nan"), "no score": {"reward": 1.0}, "score is none": {"score": None}, "huge": {"score": 1.0, "x": "x" * 2_000_000},
}

async def later_number(): return 0.5

def outcome(what):
    if what == "raise": raise ValueError("bad luck")
    if what == "leave": raise SystemExit("done")
    if what == "coroutine": return later_number()
    if what == "generator": return (number for number in [0.5])
    if what == "hang":
        with open(__file__ + ".hangs", "a") as hangs: hangs.write("x")
        time.sleep(1000)
    if what == "segfault": ctypes.string_at(0)
    if what == "exit": os._exit(0)
    return RESULTS[what]

def plain(sample): return outcome(sample.ground_truth)
def yields(sample): yield 0.5
async def yields_later(sample): yield 0.5
def verl(data_source, solution_str, ground_truth, extra_info): return outcome(ground_truth)
async def later(sample): await asyncio.sleep(0); return outcome(sample.ground_truth)
def with_option(sample, bonus): return outcome(sample.ground_truth)
bound = functools.partial(with_option, bonus=1.0)
class Judge:
    def __call__(self, sample): return outcome(sample.ground_truth)
    async def later(self, sample): return outcome(sample.ground_truth)
class LaterJudge:
    async def __call__(self, sample): return outcome(sample.ground_truth)
judge, later_judge = Judge(), LaterJudge()
def lists(data_sources, solution_strs, ground_truths, extra_infos): return [outcome(t) for t in ground_truths]
async def later_lists(solution_strs, ground_truths, **rest): return [outcome(t) for t in ground_truths]

def sizes(solution_strs, *, bonus=0.0): return [{"score": bonus, "size": len(solution_strs)} for _ in solution_strs]
def array(solution_strs): return np.array([float(s) for s in solution_strs])
def too_few(solution_strs): return [1.0]
def no_list(solution_strs): return {"score": [1.0] * len(solution_strs)}
"""

KINDS = (
    "plain",
    "verl",
    "later",
    "bound",
    "judge",
    "judge.later",
    "later_judge",
    "lists",
    "later_lists",
)
OTHERS = ("sizes", "array", "too_few", "no_list")
HARMLESS = [
    # what the function does, the outcome's value or kind, and its message
    ("number", 0.5, ""),
    ("whole", 1.0, ""),
    ("truth", 1.0, ""),
    ("scalar", 0.5, ""),
    ("array", 0.5, ""),
    ("odd", "crashed", "returned nan; expected a finite number"),
    ("generator", "crashed", "returned a generator; expected a number"),
    ("row", 0.5, ""),
    ("coroutine", 0.5, ""),
    ("none", "bad_input", "returned None"),
    ("score is none", "bad_input", "returned None"),
    ("text", "crashed", "returned a str '1.0'; expected a number"),
    ("list", "crashed", "returned a list; expected a number"),
    ("nan", "crashed", "returned nan; expected a finite number"),
    ("inf", "crashed", "returned inf; expected a finite number"),
    ("no score", "crashed", "returned a dict without 'score'; its keys: reward"),
    ("huge", "crashed", "bytes; at most 1,048,576 are taken"),
    ("raise", "crashed", "raised ValueError: bad luck"),
    ("leave", "crashed", "raised SystemExit: done"),
]
DEADLY = [
    ("hang", "timeout", "gave no answer in 0.3 s"),
    ("segfault", "crashed", "its process was ended by SIGSEGV before it answered"),
    ("exit", "crashed", "its process ended with exit code 0 before it answered"),
]


@pytest.fixture(autouse=True)
def _users_module(tmp_path, monkeypatch):
    (tmp_path / "faulty_functions.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


def functions():
    """As a configuration names them."""
    names = [f"faulty_functions:{name}" for name in (*KINDS, *OTHERS)]
    return {name: import_scorer(name) for name in names}


def scored(calls, *, workers=1, timeout_s=60.0, hang_timeout_s=60.0, **options):
    """The outcome of each ``(function, what it does)``, all asked for at once.

    What hangs may have less time than what answers, which may take long on a busy machine.
    """

    def time_for(what):
        return hang_timeout_s if what == "hang" else timeout_s

    return asyncio.run(outcomes_of(calls, workers=workers, time_for=time_for, **options))


async def outcomes_of(calls, *, workers=1, time_for, **options):
    pool = ScorerPool(max_workers=workers, functions=functions())
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(
                pool.run(
                    f"faulty_functions:{name}",
                    Sample("2+2?", "4", what),
                    timeout_s=time_for(what),
                    options=options,
                )
            )
            for name, what in calls
        ]
    await pool.aclose()
    return [task.result() for task in tasks]


async def leap_whenever_it_hangs(file, leap):
    """Brings the deadline of a minute as soon as the function hangs, and never before."""
    seen = 0
    while True:
        await asyncio.sleep(0.01)
        hangs = file.stat().st_size if file.exists() else 0
        if hangs > seen:
            leap(60)
        seen = hangs


def assert_named(outcome, name, expected, message):
    if isinstance(expected, float):
        assert isinstance(outcome, Score), (name, outcome)
        assert outcome.value == expected
    else:
        assert isinstance(outcome, Abstain), (name, outcome)
        assert outcome.kind == expected
        assert outcome.detail.startswith(f"faulty_functions:{name}"), outcome.detail
        assert message in outcome.detail


def test_whatever_a_function_returns_or_raises_has_the_right_outcome():
    calls = [(kind, row) for kind in KINDS for row in HARMLESS]
    outcomes = scored([(kind, what) for kind, (what, *_) in calls])
    for (kind, (what, expected, message)), outcome in zip(calls, outcomes, strict=True):
        if what == "coroutine" and kind in ("lists", "later_lists"):  # one of a list's items
            assert_named(outcome, kind, "crashed", "returned a coroutine that was not awaited")
        else:
            assert_named(outcome, kind, expected, message)


@pytest.mark.wire
@pytest.mark.parametrize(("what", "expected", "message"), DEADLY)
def test_a_function_of_any_kind_that_hangs_or_dies_harms_no_other_call(what, expected, message):
    calls = [call for kind in KINDS for call in ((kind, what), (kind, "number"))]
    outcomes = scored(calls, workers=2, hang_timeout_s=0.3)
    for (kind, does), outcome in zip(calls, outcomes, strict=True):
        expectation = (expected, message) if does == what else (0.5, "")
        assert_named(outcome, kind, *expectation)


@pytest.mark.parametrize(
    ("name", "kind"), [("yields", "generator"), ("yields_later", "async_generator")]
)
def test_a_function_that_yields_gets_an_error_that_says_return(name, kind):
    (outcome,) = scored([(name, "")])
    assert_named(outcome, name, "crashed", f"returned a {kind}; expected a number")


def test_a_function_that_takes_lists_gets_what_waits_and_its_options():
    outcomes = scored([("sizes", "")] * (MAX_BATCH + 8), bonus=0.25)
    assert {outcome.value for outcome in outcomes} == {0.25}
    sizes = [outcome.detail["size"] for outcome in outcomes]
    assert sizes == [MAX_BATCH] * MAX_BATCH + [8] * 8


@pytest.mark.wire
def test_one_bad_sample_of_a_list_costs_its_siblings_nothing(tmp_path, leaping):
    rows = {3: ("raise", "crashed"), 7: ("hang", "timeout"), 8: ("exit", "crashed")}
    calls = [("lists", rows.get(index, ("number",))[0]) for index in range(12)]

    async def main(leap):
        hangs = tmp_path / "faulty_functions.py.hangs"
        leaps = asyncio.create_task(leap_whenever_it_hangs(hangs, leap))
        outcomes = await outcomes_of(calls, time_for=lambda _: 60.0)
        leaps.cancel()
        return outcomes

    outcomes = leaping(main)
    for index, outcome in enumerate(outcomes):
        assert_named(outcome, "lists", rows.get(index, ("", 0.5))[1], "")


def test_an_array_is_a_list_too():
    assert scored([("array", "")] * 3) == [Score(4.0)] * 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("too_few", "faulty_functions:too_few returned 1 results for 2 samples"),
        ("no_list", "faulty_functions:no_list takes lists but returned a dict; expected a list"),
    ],
)
def test_a_list_that_cannot_be_told_apart_gives_no_sample_a_score(name, message):
    """Asked for one at a time it may be clear whose the result is; guessing never happens."""
    outcomes = scored([(name, "")] * 2)
    if name == "too_few":
        assert outcomes == [Score(1.0)] * 2
    else:
        assert outcomes == [Abstain(FailureKind.CRASHED, message)] * 2


def test_giving_up_one_sample_of_a_list_costs_the_others_nothing():
    async def main():
        pool = ScorerPool(max_workers=1, functions=functions())
        tasks = [
            asyncio.create_task(pool.run("faulty_functions:lists", Sample("", "", "number")))
            for _ in range(3)
        ]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.wait(tasks)
        await pool.aclose()
        return tasks[0].cancelled(), tasks[1].result(), tasks[2].result()

    assert asyncio.run(main()) == (True, Score(0.5), Score(0.5))


def test_closing_ends_a_list_and_those_that_wait_for_the_next():
    async def main():
        pool = ScorerPool(max_workers=1, functions=functions())
        hang = Sample("", "", "hang")
        await pool.run("faulty_functions:lists", Sample("", "", "number"))
        tasks = [
            asyncio.create_task(pool.run("faulty_functions:lists", hang, timeout_s=1000))
            for _ in range(MAX_BATCH + 5)
        ]
        await asyncio.sleep(0.05)
        await pool.aclose()
        return [await task for task in tasks]

    assert {outcome.kind for outcome in asyncio.run(main())} == {FailureKind.CANCELLED}


def test_it_is_known_before_the_run_which_functions_take_lists():
    table = {"x": {"scorer": "faulty_functions:lists"}, "y": "gsm8k", "z": "faulty_functions:plain"}
    found = user_functions("by_data_source", {"table": table})
    assert {target: function.takes_lists for target, function in found.items()} == {
        "faulty_functions:lists": True,
        "faulty_functions:plain": False,
    }
    later = user_functions("faulty_functions:later_lists", {})
    assert [function.takes_lists for function in later.values()] == [True]


NUMBERS = """
from decimal import Decimal
import numpy as np

def f(sample):
    if sample.ground_truth == "bare": return 1.0
    if sample.ground_truth == "raise": raise ValueError("no")
    if sample.ground_truth == "nan": return {"score": 1, "acc": float("nan")}
    return {"score": 1, "acc": np.float32(0.5), "price": Decimal("0.25"), "why": "x", "right": True}
"""


def test_numbers_beside_a_function_s_score_are_metrics_of_every_sample(tmp_path):
    """The same names for each, NaN and missing ones None, whichever sample came first."""
    (tmp_path / "numbers_beside.py").write_text(NUMBERS)
    config = {"components": {"mine": {"scorer": "numbers_beside:f"}}}

    async def main():
        async with Engine(config) as engine:
            samples = [Sample("", "", what) for what in ("raise", "bare", "nan", "all")]
            first = [await engine.score(sample) for sample in samples]
            return first, await engine.score_all(samples)

    alone, together = asyncio.run(main())
    names = {"mine/scored", "mine/abstained", "mine/acc", "mine/price", "mine/right"}
    assert [set(reward.metrics) for reward in together] == [names] * 4
    assert [reward.metrics["mine/acc"] for reward in together] == [None, None, None, 0.5]
    assert together[3].metrics["mine/price"] == 0.25
    assert together[3].metrics["mine/right"] == 1.0
    assert set(alone[3].metrics) == names
    assert alone[1].metrics.keys() == {"mine/scored", "mine/abstained"}  # none was known yet
