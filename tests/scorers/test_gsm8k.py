"""The final number of a worked solution."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
        ("#### 5/2", "5/2"),
        ("#### -5 / 2 hours", "-5/2"),
        ("#### 2 1/2", "5/2"),
        ("#### 2\u00bd", None),
        (r"#### \frac{5}{2}", "5/2"),
        ("#### 5/0", None),
        ("#### 5%", "5"),
        (r"#### 5\%", "5"),
        ("#### **5**", "5"),
        ("#### **$5.**", "5"),
        ("#### `5`", "5"),
        (r"#### \boxed{5}", "5"),
        (r"#### $\boxed{1,080}$", "1080"),
        (r"#### \(5\)", "5"),
        (r"#### \$5", "5"),
        ("#### \u20ac5", "5"),
        ("#### 5\u20ac", "5"),
        ("#### -\u20ac5", "-5"),
        ("#### \u00a35.50", "5.5"),
        ("#### US$ 5", "5"),
        ("#### Rs. 5", "5"),
        ("#### 1 080", "1080"),
        ("#### 1\u202f080\u202f000", "1080000"),
        (r"#### 1\,080", "1080"),
        ("#### 1{,}080", "1080"),
        ("#### 1'080", "1080"),
        ("#### 1_080", "1080"),
        ("#### 1,00,000", "100000"),
        ("#### 1,08", None),
        ("#### 1, 2", None),
        ("#### 1 2", None),
        ("#### 5^2", None),
        ("#### 3:30", None),
        ("#### 10-5", None),
        ("#### 5 * 3", None),
        ("#### 3 * 5 = 15", "15"),
        ("#### x = 5", "5"),
        ("#### 1e3", "1000"),
        ("#### 1e9999", None),
        ("#### 5 - that is it", "5"),
        ("#### 5, as 3 leave", "5"),
        ("#### 72km", "72"),
        ("#### 5\n#### 5^2", None),
        ("72", None),
        ("#### seventy-two", None),
        ("", None),
    ],
)
def test_the_strict_rule_reads_the_last_marked_number(response, number):
    assert final_number(response, "strict") == (None if number is None else Fraction(number))


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
        ("It is 5/2.", "5/2"),
        ("It is -5/2 of it", "-5/2"),
        (r"It is \frac{5}{2}", "5/2"),
        ("on 3/4/2020", "2020"),
        ("It is 5/0", None),
        ("It is 5%.", "5"),
        ("It is **5**.", "5"),
        (r"It is \boxed{5} by step 3", "5"),
        (r"It is \boxed{\text{five}} by step 3", "3"),
        ("It is \u20ac1,080.", "1080"),
        ("It is 1e3", "1000"),
        ("It is 25 m^2", "25"),
        ("It is 2^3", None),
        ("It is 2^{10}", None),
        ("no number. at all,", None),
    ],
)
def test_the_flexible_rule_reads_the_last_number(response, number):
    assert final_number(response, "flexible") == (None if number is None else Fraction(number))


@pytest.mark.parametrize(
    "gold",
    [
        *("72", "72.0", " $72 ", 72, 72.0, np.int64(72), "so it is\n#### 72", "72 %", "144/2"),
        *(["71", "72"], ["many", "72"], np.array([72]), {"target": "72"}, "\u20ac72", "72 eggs"),
    ],
)
def test_the_gold_is_a_number_in_any_of_its_forms(gold):
    assert gsm8k(Sample("", "#### 72", gold)).value == 1.0


@pytest.mark.parametrize(
    "gold", [None, "", "many", [], ["many"], True, float("inf"), "5 or 6", "1,2", "5/0"]
)
def test_a_gold_that_is_no_number_is_an_abstention(gold):
    outcome = gsm8k(Sample("", "#### 72", gold))
    assert isinstance(outcome, Abstain)
    assert outcome.kind is FailureKind.BAD_INPUT


@pytest.mark.parametrize("gold", [["72"], {"target": "72"}])
def test_the_published_rules_know_no_list_of_golds(gold):
    assert gsm8k(Sample("", "#### 72", gold), compat="verl").kind is FailureKind.BAD_INPUT


@given(
    st.integers(-(10**7), 10**7),
    st.integers(1, 999),
    st.sampled_from(["{}", "**{}**", r"\boxed{{{}}}", "{}.", "$ {}", "{} eggs", r"$\boxed{{{}}}$"]),
)
def test_a_fraction_is_read_back_however_it_was_written(top, bottom, style):
    sign, size = ("-" if top < 0 else ""), abs(top)
    whole, rest = divmod(size, bottom)
    spelt = [f"{sign}{size}/{bottom}", rf"{sign}\frac{{{size}}}{{{bottom}}}"]
    spelt += [f"{sign}{whole} {rest}/{bottom}"] if rest < 100 else []
    for text in spelt:
        assert final_number(f"#### {style.format(text)}") == Fraction(top, bottom)


@pytest.mark.parametrize(
    "filling", ["#### ", "5/", "5^", "#### (", "1,", r"\boxed{", "9", "=", "5e"]
)
def test_no_filling_of_a_policy_costs_more_than_its_length(filling):
    """This rule runs beside the others: time that grows with the square would stop them all."""
    sample = Sample("", filling * 50_000, "72")
    assert gsm8k(sample).value == gsm8k(sample, method="flexible").value == 0


def test_a_wrong_number_earns_the_format_score_and_no_number_earns_nothing():
    assert gsm8k(Sample("", "#### 71", "72"), format_score=0.1).value == 0.1
    assert gsm8k(Sample("", "71", "72"), format_score=0.1).value == 0.0
    assert gsm8k(Sample("", "71", "71"), method="flexible", score=3.0).value == 3.0


def test_a_number_of_a_hundred_thousand_digits_is_only_a_wrong_answer():
    outcome = gsm8k(Sample("", "#### " + "9" * 100_000, "72"))
    assert outcome.value == 0
    assert len(outcome.why) < 120


@pytest.mark.parametrize(
    "said",
    ["72 or 73", "72 and 73", "72 (or 73)", "72, or 73", "72; 73", "72 | 73", "72 to 80", "72 or maybe 73", "**72** or **73**", "$72$ or $73$"],
)  # fmt: skip
@pytest.mark.parametrize("gold", ["72", "73", "80"])
def test_several_numbers_after_the_mark_are_none_of_them(said, gold):
    assert gsm8k(Sample("", f"#### {said}", gold)).value == 0
