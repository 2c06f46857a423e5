"""Users' functions: how they are called, and what their answers mean."""

import asyncio
import enum
import gc
import math
import re
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from zerowait.errors import ConfigError
from zerowait.scorers import check_options, is_async, outcome_of, resolve
from zerowait.scorers.calling_convention import convention_of
from zerowait.scorers.results import outcomes_of
from zerowait.types import Abstain, FailureKind, Sample, Score, Skipped

SAMPLE = Sample("2+2?", "4", "four", data_source="sums", extra={"level": 1})
ROW = {
    "data_source": "sums",
    "solution_str": "4",
    "ground_truth": "four",
    "extra_info": {"level": 1},
}

MODULE = """
import asyncio, functools, sys

def good(sample, *, bonus=0.0): return len(sample.response) + bonus
def strict(sample, threshold): return 1.0
def verl(data_source, solution_str, ground_truth, extra_info=None, **kwargs): return kwargs
def bare(solution_str, ground_truth, k): return {"score": k, "gold": ground_truth}
def lists(data_sources, solution_strs, ground_truths, extra_infos): return []
def nothing(): return 1.0
def anything(*args, **kwargs): return 1.0
def raises(sample): raise ValueError("bad luck")
def leaves(sample): sys.exit("done")
class Mute(Exception):
    def __str__(self): raise KeyError("no message")
def mute(sample): raise Mute
async def later(sample): await asyncio.sleep(0); return 0.5
def wrapped(sample): return later(sample)
class Judge:
    async def __call__(self, sample): return 0.25
    def method(self, sample): return 0.75
judge = Judge()
half = functools.partial(good, bonus=0.5)
constant = 5
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "user_functions.py").write_text(MODULE)
    (tmp_path / "user_broken.py").write_text("raise RuntimeError('boom')")
    (tmp_path / "user_needy.py").write_text("import user_no_such_package")
    monkeypatch.syspath_prepend(tmp_path)


def call_arguments(function, sample, options=None):
    return convention_of(function).arguments([sample], options or {})


def test_a_sample_and_columns_are_told_apart_by_the_signature():
    def by_sample(sample, *, k=1): ...
    def by_columns(data_source, solution_str, ground_truth, extra_info): ...
    def few_columns(solution_str, ground_truth): ...
    def all_keywords(**row): ...
    def lenient(solution_str, ground_truth, **rest): ...

    assert call_arguments(by_sample, SAMPLE, {"k": 2}) == ((SAMPLE,), {"k": 2})
    assert call_arguments(by_columns, SAMPLE) == ((), ROW)
    assert call_arguments(all_keywords, SAMPLE, {"k": 2}) == ((), ROW | {"k": 2})
    assert call_arguments(lenient, SAMPLE) == ((), ROW)
    assert call_arguments(few_columns, SAMPLE)[1] == {"solution_str": "4", "ground_truth": "four"}


def test_a_function_of_lists_gets_the_columns_as_lists():
    def every(data_sources, solution_strs, ground_truths, extra_infos): ...
    def some(solution_strs, *, k=1): ...
    def lenient(solution_strs, **rest): ...

    samples = [SAMPLE, Sample("", "5", extra={"level": 2})]
    columns = {
        "data_sources": ["sums", ""],
        "solution_strs": ["4", "5"],
        "ground_truths": ["four", None],
        "extra_infos": [{"level": 1}, {"level": 2}],
    }
    assert convention_of(every).arguments(samples, {}) == ((), columns)
    assert convention_of(lenient).arguments(samples, {}) == ((), columns)
    given = convention_of(some).arguments(samples, {"k": 2})
    assert given == ((), {"solution_strs": ["4", "5"], "k": 2})


def test_what_a_function_of_lists_returns_is_read_item_by_item():
    assert outcomes_of([1, {"score": 0.5}], 2, "my:f") == [Score(1.0), Score(0.5)]
    assert outcomes_of(np.array([1.0, 0.5]), 2, "my:f") == [Score(1.0), Score(0.5)]
    assert outcomes_of((), 0, "my:f") == []
    for wrong in (1.0, None, "ab", {"score": [1, 2]}, [1.0], np.array(1.0)):
        assert outcomes_of(wrong, 2, "my:f").kind is FailureKind.CRASHED
    first, second = outcomes_of([None, math.nan], 2, "my:f")
    assert (first.kind, second.kind) == ("bad_input", "crashed")


def test_a_function_cannot_change_the_row_it_is_given():
    def spoils(data_source, solution_str, ground_truth, extra_info): ...

    call_arguments(spoils, SAMPLE)[1]["extra_info"]["level"] = 9
    assert SAMPLE.extra == {"level": 1}


class Level(enum.IntEnum):
    HALF = 2


class Unreadable(dict):
    """A mapping that raises whatever it is asked, as proxies of closed stores do."""

    def __contains__(self, key):
        raise KeyError(key)


def torch_like(value):
    """A scalar whose value comes from another device, if it comes."""

    class Tensor:
        shape = ()

        def item(self):
            if isinstance(value, Exception):
                raise value
            return value

    return Tensor()


@pytest.mark.parametrize(
    ("returned", "value"),
    [
        (1, 1.0),
        (True, 1.0),
        (False, 0.0),
        (-0.5, -0.5),
        (Fraction(1, 4), 0.25),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3.0),
        (np.bool_(True), 1.0),
        (np.array(0.5), 0.5),
        (np.float16(0.5), 0.5),
        (Decimal("0.5"), 0.5),
        ({"score": Decimal(1)}, 1.0),
        (Level.HALF, 2.0),
        (torch_like(0.5), 0.5),
        (Score(0.5), 0.5),
        ({"score": 0.5}, 0.5),
        ({"score": np.float32(0.5), "acc": 1}, 0.5),
    ],
)
def test_what_means_a_number_becomes_a_score(returned, value):
    outcome = outcome_of(returned, "my:f")
    assert isinstance(outcome, Score)
    assert outcome.value == value
    assert type(outcome.value) is float


@pytest.mark.parametrize(
    ("returned", "kind", "message"),
    [
        (None, "bad_input", "my:f returned None"),
        ({"score": None}, "bad_input", "my:f returned None"),
        (math.nan, "crashed", "my:f returned nan; expected a finite number"),
        (-math.inf, "crashed", "returned -inf"),
        (10**400, "crashed", "returned inf"),
        ("1.0", "crashed", "my:f returned a str '1.0'; expected a number"),
        ([1.0], "crashed", "returned a list"),
        (np.array([1.0]), "crashed", "returned a ndarray"),
        (1j, "crashed", "returned a complex"),
        ("0", "crashed", "my:f returned a str '0'; expected a number"),
        (b"0", "crashed", "my:f returned a bytes b'0'; expected a number"),
        (np.str_("0"), "crashed", "my:f returned a str_ '0'"),
        (np.array("0"), "crashed", "my:f returned a ndarray; expected a number"),
        (np.array([]), "crashed", "returned a ndarray"),
        (np.ma.masked, "crashed", "my:f returned a MaskedConstant; expected a number"),
        (np.ma.array(0.0, mask=True), "crashed", "my:f returned a MaskedArray; expected a number"),
        (np.timedelta64(3, "s"), "crashed", "my:f returned a timedelta64"),
        (np.datetime64("2020-01-01"), "crashed", "my:f returned a datetime64"),
        (np.complex64(1), "crashed", "my:f returned a complex64"),
        (Decimal("NaN"), "crashed", "my:f returned nan; expected a finite number"),
        (Decimal("sNaN"), "crashed", "my:f returned a Decimal, which cannot be read: ValueError"),
        (Decimal("-Infinity"), "crashed", "my:f returned -inf"),
        (Decimal("1e400"), "crashed", "my:f returned inf"),
        (Fraction(10**400), "crashed", "my:f returned inf"),
        (torch_like(math.nan), "crashed", "my:f returned nan"),
        (
            torch_like(RuntimeError("device-side assert")),
            "crashed",
            "my:f returned a Tensor, which cannot be read: RuntimeError: device-side assert",
        ),
        (
            Unreadable(),
            "crashed",
            "my:f returned a Unreadable, which cannot be read: KeyError: 'score'",
        ),
        ((0,), "crashed", "returned a tuple"),
        ({0}, "crashed", "returned a set"),
        ((number for number in [0]), "crashed", "my:f returned a generator; expected a number"),
        (float, "crashed", "my:f returned a type; expected a number"),
        (ValueError("0"), "crashed", "my:f returned a ValueError; expected a number"),
        (NotImplemented, "crashed", "my:f returned a NotImplementedType"),
        ({"reward": 1.0}, "crashed", "without 'score'; its keys: reward"),
        ({}, "crashed", "its keys: none"),
        ({"score": {"score": 1.0}}, "crashed", "a dict as 'score'"),
        ({"score": "1"}, "crashed", "returned a str"),
        (Abstain("refused", "no"), "refused", "no"),
    ],
)
def test_what_means_no_number_becomes_an_abstention(returned, kind, message):
    outcome = outcome_of(returned, "my:f")
    assert isinstance(outcome, Abstain)
    assert outcome.kind == kind
    assert message in outcome.detail


def test_the_other_keys_of_a_mapping_are_the_detail():
    outcome = outcome_of({"score": Score(1.0, "why", {"a": 1}), "b": 2, 3: 4}, "my:f")
    assert outcome == Score(1.0, "why", {"a": 1, "b": 2, "3": 4})


def test_a_skip_is_taken_as_it_is():
    assert outcome_of(Skipped("not mine"), "my:f") == Skipped("not mine")


def test_a_coroutine_never_passes_for_a_score_and_leaves_no_warning():
    async def later(): ...

    outcome = outcome_of(later(), "my:f")
    gc.collect()
    assert outcome == Abstain(FailureKind.CRASHED, "my:f returned a coroutine that was not awaited")


@pytest.mark.usefixtures("mine")
def test_asynchronous_functions_are_recognised_in_every_disguise():
    names = ("later", "judge", "good", "half", "wrapped", "judge.method")
    known = {name: is_async(resolve(f"user_functions:{name}").function) for name in names}
    assert known == {
        "later": True,
        "judge": True,
        "good": False,
        "half": False,
        "wrapped": False,  # seen only when it is called
        "judge.method": False,
    }
    assert is_async(partial(resolve("user_functions:later").function))


@pytest.mark.usefixtures("mine")
def test_awaitables_are_awaited_and_never_scored():
    for name, value in (("later", 0.5), ("wrapped", 0.5), ("judge", 0.25), ("good", 1.0)):
        scorer = resolve(f"user_functions:{name}")
        assert asyncio.run(scorer.acall(SAMPLE)) == Score(value)
        outcome = scorer(SAMPLE)
        assert outcome == Score(value) if name == "good" else outcome.kind == "crashed"


@pytest.mark.usefixtures("mine")
def test_options_reach_the_function():
    assert resolve("user_functions:good")(SAMPLE, bonus=0.5).value == 1.5
    assert resolve("user_functions:half")(SAMPLE).value == 1.5
    assert resolve("user_functions:bare")(SAMPLE, k=0.5) == Score(0.5, "", {"gold": "four"})
    assert resolve("user_functions:judge.method")(SAMPLE).value == 0.75


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize("name", ["raises", "leaves", "mute"])
def test_a_function_that_raises_is_an_abstention_with_the_error_s_name(name):
    expected = {
        "raises": "raised ValueError: bad luck",
        "leaves": "raised SystemExit: done",
        "mute": "raised Mute: (its message cannot be read: KeyError)",
    }[name]
    scorer = resolve(f"user_functions:{name}")
    for outcome in (scorer(SAMPLE), asyncio.run(scorer.acall(SAMPLE))):
        assert outcome.kind is FailureKind.CRASHED
        said, _, where = outcome.detail.rpartition(" (")
        assert said == f"user_functions:{name} {expected}"
        assert re.fullmatch(rf"/.*/user_functions\.py:\d+, in {name}\)", where)


def test_a_message_of_any_length_is_shortened():
    outcome = outcome_of({"x" * 10_000: 1}, "my:f")
    assert len(outcome.detail) <= 300


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("user_functionz:good", {}, "there is no module 'user_functionz'"),
        ("user_needy:f", {}, "importing user_needy needs 'user_no_such_package'"),
        ("user_broken:f", {}, "importing user_broken raised RuntimeError: boom"),
        ("user_functions:goood", {}, "there is no 'goood'; did you mean 'good'?"),
        ("user_functions:judge.metod", {}, "did you mean 'method'?"),
        ("user_functions:constant", {}, "is a int, which cannot be called"),
        ("user_functions:Judge", {}, "is a class"),
        ("user_functions:", {}, "write module:function"),
        (":good", {}, "write module:function"),
        ("__main__:good", {}, "move the function into a module of its own"),
        ("user_functions:nothing", {}, "cannot tell how to call"),
        ("user_functions:anything", {}, "cannot tell how to call"),
        ("user_functions:strict", {"threshold": 1}, "also needs threshold"),
        ("user_functions:good", {"bonuss": 1}, "did you mean 'bonus'?"),
        ("user_functions:bare", {}, "needs the option 'k'"),
        ("user_functions:later", {"k": 1}, "has no option 'k'; it has none"),
    ],
)
def test_a_function_that_cannot_be_used_is_a_configuration_error(target, options, message):
    with pytest.raises(ConfigError) as caught:
        check_options(target, options)
    assert message in str(caught.value)


@pytest.mark.usefixtures("mine")
def test_a_function_with_open_keywords_takes_any_option():
    check_options("user_functions:verl", {"anything": 1})
    assert resolve("user_functions:verl").start(SAMPLE, k=1) == {"k": 1}


def test_a_builtin_without_a_signature_is_a_configuration_error():
    with pytest.raises(ConfigError, match="no signature"):
        convention_of(max, "my:f")
