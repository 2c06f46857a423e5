"""The final number of a worked solution."""

from decimal import Decimal

import numpy as np
import pytest

from zerowait.scorers.gsm8k import final_number, gsm8k
from zerowait.types import Abstain, FailureKind, Sample


@pytest.mark.parametrize(
    ("response", "number"),
    [
        ("#### 72", "72"),
        ("####72", "72"),
        ("#### 72.", "72"),
        ("#### 72.0", "72"),
        ("#### 1,080", "1080"),
        ("#### $5", "5"),
        ("#### -$5.50", "-5.5"),
        ("#### \N{MINUS SIGN}3", "-3"),
        ("#### .5", "0.5"),
        ("#### 72 eggs", "72"),
        ("#### 1\n#### 2", "2"),
        ("#### 72\n#### done", "72"),
        ("#### 72" + " so be it" * 100, "72"),
        ("72", None),
        ("#### seventy-two", None),
        ("", None),
    ],
)
def test_the_strict_rule_reads_the_last_marked_number(response, number):
    assert final_number(response, "strict") == (None if number is None else Decimal(number))


@pytest.mark.parametrize(
    ("response", "number"),
    [
        ("The answer is 72.", "72"),
        ("It costs $1,234.50.", "1234.5"),
        ("first 5, then 6", "6"),
        ("10-5", "5"),
        ("f(2)-7", "7"),
        ("it is -5", "-5"),
        ("it is \N{MINUS SIGN}5 degrees", "-5"),
        ("1, 2, 3", "3"),
        ("between 3,000 and 12,000 people", "12000"),
        ("72, ok", "72"),
        ("a share of .5", "0.5"),
        ("a share of -.5", "-0.5"),
        (".5", "0.5"),
        ("That is the end.5", "5"),
        ("1,2,3", "3"),
        ("12,34", "34"),
        ("version 3.14.15", "0.15"),
        ("owes $-5", "-5"),
        ("owes -$5", "-5"),
        ("a-$5", "5"),
        ("no number. at all,", None),
    ],
)
def test_the_flexible_rule_reads_the_last_number(response, number):
    assert final_number(response, "flexible") == (None if number is None else Decimal(number))


@pytest.mark.parametrize(
    "gold", ["72", "72.0", " $72 ", 72, 72.0, np.int64(72).item(), "so it is\n#### 72"]
)
def test_the_gold_is_a_number_in_any_of_its_forms(gold):
    assert gsm8k(Sample("", "#### 72", gold)).value == 1.0


@pytest.mark.parametrize("gold", [None, "", "many", [], True, {"target": "72"}, float("inf")])
def test_a_gold_that_is_no_number_is_an_abstention(gold):
    outcome = gsm8k(Sample("", "#### 72", gold))
    assert isinstance(outcome, Abstain)
    assert outcome.kind is FailureKind.BAD_INPUT


def test_a_wrong_number_earns_the_format_score_and_no_number_earns_nothing():
    assert gsm8k(Sample("", "#### 71", "72"), format_score=0.1).value == 0.1
    assert gsm8k(Sample("", "71", "72"), format_score=0.1).value == 0.0
    assert gsm8k(Sample("", "71", "71"), method="flexible", score=3.0).value == 3.0


def test_a_number_of_a_hundred_thousand_digits_is_only_a_wrong_answer():
    outcome = gsm8k(Sample("", "#### " + "9" * 100_000, "72"))
    assert outcome.value == 0
    assert len(outcome.why) < 120
