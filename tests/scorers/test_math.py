"""Golden vectors for `math`: what a mathematician would say, and where math-verify says otherwise."""

import logging
import signal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.scorers.boxed import last_boxed
from zerowait.scorers.math.answer import math_answer
from zerowait.types import Abstain, FailureKind, Sample

RIGHT, WRONG = 1.0, 0.0

FRACTIONS = [
    ("1/2", r"\frac{1}{2}", RIGHT),
    ("0.5", r"\frac12", RIGHT),
    (r"\frac{1}{2}", "1/2", RIGHT),
    (r"\frac34", r"\tfrac{6}{8}", RIGHT),
    (r"\frac{3}{4}", r"\dfrac{3}{4}", RIGHT),
    ("-1/2", r"-\frac{1}{2}", RIGHT),
    (r"\frac{-1}{2}", "-0.5", RIGHT),
    (r"1\frac{1}{2}", "1.5", RIGHT),
    ("1/3", "0.333333", RIGHT),
    ("1/3", "0.333", WRONG),
    ("1/2", "1/3", WRONG),
]
NUMBERS = [
    ("72", "72", RIGHT),
    ("72", "72.0", RIGHT),
    ("72", "72.", RIGHT),
    (72, "72", RIGHT),
    ("72", "73", WRONG),
    ("72", "-72", WRONG),
    ("-5", "\u22125", RIGHT),
    ("0", "-0", RIGHT),
    ("0.1", ".1", RIGHT),
    ("1234", "1,234", RIGHT),
    ("1,234", "1234", RIGHT),
    ("1234567", "1,234,567", RIGHT),
    ("12345", r"12\,345", RIGHT),
    ("12345", "12{,}345", RIGHT),
    ("1234.5", "1,234.5", RIGHT),
    ("1000000", "10^6", RIGHT),
    ("3e5", r"3\times 10^5", RIGHT),
    ("300000", r"3 \cdot 10^{5}", RIGHT),
    ("2:3", "2:3", RIGHT),
    ("2:3", "3:2", WRONG),
    ("101_2", "101_{2}", RIGHT),
    ("101_2", "5", WRONG),
    (r"\pm 2", "2,-2", RIGHT),
]
PERCENTAGES = [
    (r"50\%", r"50\%", RIGHT),
    ("50%", "50", RIGHT),
    ("50%", "0.5", RIGHT),
    ("0.5", r"50\%", RIGHT),
    ("50", r"50\%", RIGHT),
    ("12.5", r"12.5\%", RIGHT),
    ("12.5%", "0.125", RIGHT),
    ("50%", r"0.5\%", WRONG),
    ("0.5", "50", WRONG),
    ("50%", "5", WRONG),
]
UNITS = [
    ("12", r"12\text{ cm}", RIGHT),
    ("12 cm", "12", RIGHT),
    ("12", r"12 \mathrm{~cm}", RIGHT),
    ("12", r"12\ \text{square units}", RIGHT),
    ("5", "5 km/h", RIGHT),
    ("10", r"\$10", RIGHT),
    ("$10", "10", RIGHT),
    (r"30^\circ", "30", RIGHT),
    ("90", r"90 \text{ degrees}", RIGHT),
    ("5", r"6 \text{ dollars}", WRONG),
    ("5 km", "5 m", WRONG),
    ("5 cm", "5 centimeters", RIGHT),
    (r"5\text{ cm}^2", "5 square cm", RIGHT),
    (r"5\text{ cm}^2", r"5\text{ cm}^3", WRONG),
    (r"5\text{ cm}^2", r"5\text{ cm}", WRONG),
    ("5 miles per hour", "5 mi/h", RIGHT),
    ("5 apples", "5", RIGHT),
    ("5 apples", "5 cm", WRONG),
]
SETS = [
    (r"\{1,2,3\}", r"\{3,2,1\}", RIGHT),
    ("1,2,3", "1, 2, 3", RIGHT),
    ("1,2", "2,1", RIGHT),
    (r"\{1,2\}", "1,2", RIGHT),
    (r"\{1\}", r"\left\{1\right\}", RIGHT),
    (r"\emptyset", r"\varnothing", RIGHT),
    (r"\{1,2\}", r"\{1,3\}", WRONG),
    (r"\{1,2,3\}", r"\{1,2\}", WRONG),
    (r"\{1,2\}", "(1,2)", WRONG),
    (r"\{1,2\}", "[1,2]", WRONG),
    ("(1,2)", r"\{1,2\}", WRONG),
    (r"\{(1,2)\}", r"\{(1,2)\}", RIGHT),
    ("1,2", "1", WRONG),
    ("1,2", "1,2,3", WRONG),
]
INTERVALS = [
    ("(1,2)", "(1,2)", RIGHT),
    ("(1,2)", "(2,1)", WRONG),
    ("(1,2]", "(1,2]", RIGHT),
    ("[1,2]", "(1,2)", WRONG),
    (r"(-\infty, 3]", r"(-\infty,3]", RIGHT),
    (r"(-\infty,1)\cup(2,\infty)", r"(-\infty, 1) \cup (2, \infty)", RIGHT),
    ("(1,2)", "1<x<2", RIGHT),
    ("1<x<2", "(1,2)", RIGHT),
    ("(1,2)", r"x\in(1,2)", RIGHT),
    (r"x\geq 3", r"[3,\infty)", RIGHT),
    ("x>3", "3<x", RIGHT),
    ("x > 3", r"x \ge 3", WRONG),
]
MATRICES = [
    (
        r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",
        r"\begin{bmatrix}1 & 2\\ 3 & 4\end{bmatrix}",
        RIGHT,
    ),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1\\ \frac{4}{2}\end{pmatrix}", RIGHT),
    (
        r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",
        r"\begin{pmatrix}1&2\\3&5\end{pmatrix}",
        WRONG,
    ),
]
EXPRESSIONS = [
    (r"\sqrt{2}", r"\sqrt2", RIGHT),
    (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}", RIGHT),
    (r"\sqrt{8}", r"2\sqrt{2}", RIGHT),
    (r"\sqrt{2}", "1.414214", RIGHT),
    (r"\sqrt{2}", "1.41", WRONG),
    (r"\pi", "3.14", WRONG),
    (r"\sqrt[3]{27}", "3", RIGHT),
    ("2^{10}", "1024", RIGHT),
    (r"\binom{5}{2}", "10", RIGHT),
    ("5!", "120", RIGHT),
    (r"\log_2 8", "3", RIGHT),
    (r"\sin(\pi/6)", r"\frac12", RIGHT),
    ("x^2+2x+1", "(x+1)^2", RIGHT),
    ("2x+3", "3+2x", RIGHT),
    ("2x", "2y", WRONG),
    ("x=5", "5", RIGHT),
    ("5", "x=5", RIGHT),
    ("x=5", "y=5", WRONG),
    ("5", "5=x", RIGHT),
    ("5", "6=5", WRONG),
    ("6", "6=5", WRONG),
    ("5", "x=6=5", WRONG),
    ("5", "5=5=x", WRONG),
    ("5", "1/0", WRONG),
    ("5", "5/0", WRONG),
    ("5", "5=5/0", WRONG),
    ("5", "3+2=5", RIGHT),
    ("5", "3+3=5", WRONG),
    ("5", r"\frac{12}{2}=5", WRONG),
    ("6", "5<6", WRONG),
    ("y=2x+3", "2x - y + 3 = 0", RIGHT),
    ("3+4i", "4i+3", RIGHT),
    (r"\text{Monday}", "Monday", RIGHT),
    ("Monday", r"\text{Tuesday}", WRONG),
    ("B", "(B)", RIGHT),
]
UNREADABLE = [
    ("5", r"5\text{ (or 6)}", WRONG),
    ("5", r"5\text{ (or }6)", WRONG),
    ("6", r"5\text{ (or }6)", WRONG),
    ("5", "", WRONG),
    ("5", r"\frac{1}{}", WRONG),
    ("5", r"\frac{1}{0}", WRONG),
    ("5", "???", WRONG),
    ("5", "I do not know", WRONG),
    ("5", r"\infty", WRONG),
    ("5", "1" * 2000, WRONG),
    ("5", "(" * 500 + "5" + ")" * 500, WRONG),
]
BOXED = [
    *FRACTIONS,
    *NUMBERS,
    *PERCENTAGES,
    *UNITS,
    *SETS,
    *INTERVALS,
    *MATRICES,
    *EXPRESSIONS,
    *UNREADABLE,
]

RESPONSES = [
    # gold, response, by boxed, last, any
    ("42", r"\boxed{\boxed{42}}", 1, 1, 1),
    ("42", r"first \boxed{41}, no: \boxed{42}", 1, 1, 1),
    ("42", r"\boxed{42} and then \boxed{41", 1, 1, 1),
    ("42", r"\boxed {42}", 1, 1, 1),
    ("42", r"\fbox{42}", 1, 1, 1),
    ("1/2", r"$\boxed{\frac{1}{2}}$.", 1, 1, 1),
    (r"\boxed{42}", r"\boxed{42}", 1, 1, 1),
    (r"so $x = 1$ and \boxed{7}", r"\boxed{7}", 1, 1, 1),
    ("5", r"\boxed{5}}", 1, 1, 1),
    ("5", r"\boxed{{{{}", 0, 0, 0),
    ("42", "The answer is 42.", 0, 1, 1),
    ("5", "The answer is 6=5.", 0, 0, 0),
    ("6", "The answer is $6=5$. I hope it is correct.", 0, 0, 0),
    ("5", "The answer is 2+3=5. I hope it is correct.", 0, 1, 1),
    ("2", "The answer is 2+3=5.", 0, 0, 0),
    ("5", "The answer is x = 5.", 0, 1, 1),
    ("5", "The answer is = 5", 0, 1, 1),
    ("42", "The final answer is $42$. I hope it is correct.", 0, 1, 1),
    ("42", "Answer: 42, because 6 * 7 = 42 and not 43", 0, 1, 1),
    ("0.25", r"the answer is $\frac{1}{4}$", 0, 1, 1),
    ("12.5", "The answer is 12.5%.", 0, 1, 1),
    ("1/2", "so it is 1/2", 0, 1, 1),
    ("5", "I have 3 apples and then 5", 0, 1, 1),
    ("5", "<answer>5</answer> or 6", 0, 1, 1),
    ("5", r"<answer>it is \boxed{5}</answer>", 1, 1, 1),
    ("5", r"5 it is, \boxed{?!}", 0, 0, 1),
    ("5", "no number", 0, 0, 0),
    ("5", "", 0, 0, 0),
]

PROSE = [
    # gold, response, value
    ("70", "The answer is less than 70.", 0),
    ("70", "There are at least 70 ways.", 0),
    ("70", "The answer is somewhere near 70.", 0),
    ("70", "The answer is anything but 70.", 0),
    ("70", "The answer is 70 plus 5.", 0),
    ("70", "The answer is half of 70", 0),
    ("70", "a number from 1 to 70", 0),
    ("70", "70 or fewer", 0),
    ("70", "The answer is 70 squared.", 0),
    ("70", "The answer is 70 or so, maybe 71.", 0),
    ("70", "So x \u2265 70.", 0),
    ("7/16", "The probability is not 7/16.", 0),
    ("70", "So the answer is 70, not 71.", 1),
    ("71", "So the answer is 70, not 71.", 0),
    ("70", r"Hence $n = 70$. $\blacksquare$", 1),
    ("70", "Hence there are 70 ways. QED", 1),
    ("72", "Total = 48 + 24 = <<48+24=72>>72", 1),
    (r"\$18.90", "He pays $18.90 in total.", 1),
    ("B", "The correct option is (B).", 1),
    (r"(-\infty,-3)\cup[2,\infty)", "The solution is x < -3 or x \u2265 2.", 1),
    ("3", "The answer is (2, 3)", 0),
    ("2", "The answer is (2, 3)", 0),
    ("(2,3)", "The answer is (2, 3).", 1),
    ("(2,3)", "The answer is $(2, 3)$.", 1),
    ("(2,3)", r"The answer is \[ (2,3) \]", 1),
    ("(2,3]", "The answer is (2,3]", 1),
    ("3", "The answer is [2, 3)", 0),
    ("3", r"The answer is \left(2, 3\right)", 0),
    ("2", "The answer is {1, 2}", 0),
    (r"\{1,2\}", r"The answer is \{1, 2\}.", 1),
    ("1,2", "The answer is 1, 2", 1),
    ("2", "The answer is 1, 2", 0),
    ("1", "The answer is 1, 2", 0),
    ("1,2,3", "The answer is 1, 2 and 3", 1),
    ("3", "The answer is 1, 2 and 3", 0),
    ("1,2", "The answers are 1 and 2.", 1),
    ("1", "The answers are 1 and 2.", 0),
    ("2", "The answers are 1 and 2.", 0),
    ("3", "So the point is (2, 3)", 0),
    ("(2,3)", "So the point is (2, 3)", 1),
    ("(2,3)", "(2,3)", 1),
    ("3", "We get x = 2, y = 3", 0),
    ("x=2,y=3", "We get x = 2, y = 3", 1),
    ("3", "x is 2 and y is 3", 1),
    ("2", "so $x = 1$ and $y = 2$", 0),
    ("5", "The answer is 5 cm.", 1),
    ("5 km", "The answer is 5 m", 0),
    ("0.5", "The answer is 50%", 1),
    ("50", "The answer is 50%", 1),
    ("1234", "The answer is 1,234.", 1),
    ("1234", "The answer is (1,234)", 1),
    ("1234567", "The answer is 1,234,567 dollars", 1),
    ("1234", "The answer is 1 234", 1),
    ("3/2", "The answer is 1 1/2", 1),
    ("1/2", "The answer is 1 1/2", 0),
    ("-5/2", "The answer is -2 1/2", 1),
    ("3/2", r"The answer is $1\frac{1}{2}$", 1),
    ("5/2", r"The answer is 2 \frac{1}{2}", 1),
    ("3/4", "The answer is 3/4", 1),
    ("1/2", "The answer is 1/2 = 0.5", 1),
    ("3", "The answer is 1/2/3", 0),
    ("-5", "The answer is -5.", 1),
    ("5", "The answer is -5", 0),
    ("-5", "The answer is \u22125", 1),
    ("-5", "The answer is minus 5", 1),
    ("5", "The answer is minus 5", 0),
    ("5", "The answer is 10-5", 1),
    ("300000", "The answer is 3 x 10^5", 1),
    ("300000", r"The answer is $3 \times 10^{5}$", 1),
    ("300000", "The answer is 3e5", 1),
    ("0.035", "The answer is 3.5e-2", 1),
    ("3.5", "The answer is 3.5e-2", 0),
    ("30", "The answer is 30 degrees", 1),
    ("30", "The answer is 30\u00b0", 1),
    ("30", r"The answer is $30^\circ$", 1),
    ("Monday", r"The answer is $\text{Monday}$", 1),
    ("B", "The answer is (B)", 1),
    ("B", "The answer is B", 1),
    ("B", r"The answer is \text{(B)}", 1),
    ("A", "The answer is (B)", 0),
    ("3", "the answer is 3. the answer is 4", 0),
    ("4", "the answer is 3. the answer is 4", 0),
    ("4", "The answer is 3, or maybe the answer is 4", 0),
    ("3", "The answer is 3. The answer is 3.0.", 1),
    ("4", "The answer is 3. Wait, no. The answer is 4.", 1),
    ("4", "Part one: the answer is 3. For part two we add one, so the answer is 4.", 1),
    ("4", "The answer is $3$. I hope it is correct. The final answer is $4$.", 1),
    ("4", "either 3 or 4", 0),
    ("3", "either 3 or 4", 0),
    ("4", "The answer is either 3 or 4", 0),
    ("3", "The answer is either 3 or 4", 0),
    ("3", "The answer is 3 or 4", 0),
    ("3,4", "The answer is 3 or 4.", 1),
    ("3", "The answer is 3 (or maybe 4)", 0),
    ("4", "The answer is 3 (or maybe 4)", 0),
    ("4", "The answer is between 3 and 4", 0),
    ("3", "The answer is 3 to 4", 0),
    ("4", "The answer is $3$ or $4$.", 0),
    ("4", "The answer is $x=3$ and $y=4$.", 0),
    ("5", "The answer is $3$, $4$, $5$.", 0),
    ("5", "The answer is 5 apples and 3 pears", 0),
    ("3", "The answer is 5 apples and 3 pears", 0),
    ("10", "1 2 3 4 5 6 7 8 9 10", 0),
    ("4", "3 4", 0),
    ("42", "The answer is not 42", 0),
    ("42", "The answer isn't 42", 0),
    ("42", "The answer cannot be 42", 0),
    ("42", "Surely it is not 42", 0),
    ("42", "The answer is 42, because 6 * 7 = 42 and not 43", 1),
    ("42", "The answer is the number 42 that was asked for", 1),
    ("5", "The answer is 5 or so", 1),
    ("5", "The answer is about 5", 1),
    ("5", "The answer is ~5", 1),
    ("5", "The answer is 5/0", 0),
    ("30", "The answer is 12:30", 0),
    ("3", "The answer is 2024-05-03", 0),
    ("3:4", "The answer is 3:4", 1),
    ("4", "The answer is 3:4", 0),
    ("5", "Answer: $x = 5$", 1),
    ("5", "Answer:\n5", 1),
    ("5", "**Answer:** 5", 1),
    ("5", "**Answer**: 5", 1),
    ("5", "The answer is: **5**", 1),
    ("5", "The answer is `5`", 1),
    ("5", r"The answer is \(5\)", 1),
    ("4", "<answer>3 or 4</answer>", 0),
    ("4", "<answer>3, 4</answer>", 0),
    ("3,4", "<answer>3 and 4</answer>", 1),
    ("4", r"\boxed{3} or \boxed{4}", 0),
    ("3", r"\boxed{3} or \boxed{4}", 0),
    ("3,4", r"$\boxed{3}$ and $\boxed{4}$", 1),
    ("4", r"\boxed{3}, \boxed{4}", 0),
    ("5", r"\boxed{3} \boxed{4} \boxed{5}", 0),
    ("4", r"\boxed{4} $\boxed{4}$" + "\n", 1),
    ("4", r"\boxed{3}. No, it is \boxed{4}", 1),
    ("3", r"\boxed{3 \text{ or } 4}", 0),
    ("3,4", r"\boxed{3 \text{ or } 4}", 1),
    ("5/2", r"\boxed{2 1/2}", 1),
    ("-3/2", r"\boxed{-2 1/2}", 0),
    ("1234", r"\boxed{1 234}", 1),
    ("4", r"\boxed{1 2 3 4}", 0),
    ("5", r"\boxed{5\\6}", 0),
    ("5,6", r"\boxed{5\\6}", 1),
    ("5", "\\boxed{5~6}", 0),
    ("6", r"\boxed{5\%, 6\%}", 0),
    ("5", r"\boxed{5\%, 6\%}", 0),
]


def value(response, gold, **options):
    outcome = math_answer(Sample("", response, gold), **options)
    assert not isinstance(outcome, Abstain), outcome
    return outcome.value


@pytest.mark.parametrize(("gold", "answer", "expected"), BOXED)
def test_a_boxed_answer_is_compared_by_what_it_means(gold, answer, expected):
    assert value(f"so it is $\\boxed{{{answer}}}$.", gold) == expected


@pytest.mark.parametrize(("gold", "response", "boxed", "last", "anywhere"), RESPONSES)
def test_each_extraction_finds_its_answer(gold, response, boxed, last, anywhere):
    found = [value(response, gold, extraction=name) for name in ("boxed", "last", "any")]
    assert found == [boxed, last, anywhere]


@pytest.mark.parametrize(("gold", "response", "expected"), PROSE)
@pytest.mark.parametrize("extraction", ["last", "any"])
def test_prose_gives_one_answer_or_none(gold, response, expected, extraction):
    assert value(response, gold, extraction=extraction) == expected


NUMBERS_APART = st.lists(st.integers(11, 99), min_size=2, max_size=4, unique=True)
STATEMENTS = ["The answer is {}.", "**Final answer:** {}", "so it is {}", "<answer>{}</answer>"]
JOINTS = [", ", " or ", " and ", "; ", " ", ", or "]


@settings(max_examples=25)
@given(NUMBERS_APART, st.sampled_from(STATEMENTS), st.sampled_from(JOINTS), st.booleans())
def test_several_answers_are_not_each_of_them(numbers, statement, joint, boxed):
    several = joint.join(f"$\\boxed{{{each}}}$" if boxed else str(each) for each in numbers)
    for each in numbers:
        for extraction in ("last", "any"):
            assert value(statement.format(several), str(each), extraction=extraction) == 0


@settings(max_examples=25)
@given(
    st.integers(-9999, 9999),
    st.sampled_from(
        ["{}", "${}$", r"\({}\)", "**{}**", "x = {}", "{} apples", "about {}", r"\[{}\]"]
    ),
    st.sampled_from(STATEMENTS),
)
def test_one_answer_is_found_however_it_is_framed(number, style, statement):
    assert value(statement.format(style.format(number)), str(number)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "answer is " * 500, "the answer is $" * 400, r"\[" * 2000, "(1," * 1500, "$1" * 2000, "1 " * 2000,
        r"\boxed{" * 5000, r"\boxed{1} " * 5000, "answer to " * 500, "\\left(" * 800,
    ],
)  # fmt: skip
def test_a_text_is_read_in_a_time_that_its_length_bounds(text):
    value(text, "5")


@pytest.mark.parametrize(
    "gold",
    [None, "", "???", r"\frac{", [], True, {"a": 1}, float("nan"), ["???", ""], "x" * 2000, "6=5"],
)
def test_a_gold_that_cannot_be_read_abstains(gold):
    outcome = math_answer(Sample("", r"\boxed{5}", gold))
    assert isinstance(outcome, Abstain)
    assert outcome.kind is FailureKind.BAD_INPUT


@pytest.mark.parametrize(
    "gold", ["1/0", r"\frac{1}{0}", r"\frac{1}{2-2}", "0/0", "nan", "None", "n/a"]
)
@pytest.mark.parametrize("response", ["5", r"\boxed{5}", r"\boxed{\frac{1}{0}}", r"\boxed{\infty}"])
def test_a_gold_without_a_value_is_a_bad_gold_and_not_a_wrong_answer(gold, response):
    outcome = math_answer(Sample("", response, gold))
    assert outcome.kind is FailureKind.BAD_INPUT
    assert gold in outcome.detail.replace("\\\\", "\\")


def test_any_gold_of_a_list_counts_and_one_that_cannot_be_read_does_not():
    golds = {"target": ["???", "1/3", r"\sqrt{4}"]}
    assert value(r"\boxed{2}", golds) == 1
    assert value(r"\boxed{3}", golds) == 0


def test_format_score_is_for_a_formula_that_is_wrong():
    assert value(r"\boxed{6}", "5", format_score=0.1) == 0.1
    assert value(r"\boxed{?!}", "5", format_score=0.1) == 0
    assert value(r"\boxed{5}", "5", score=2.0) == 2


def test_decimals_say_how_exact_a_decimal_fraction_has_to_be():
    assert value(r"\boxed{0.33}", "1/3", decimals=2) == 1
    assert value(r"\boxed{0.33}", "1/3") == 0


def test_neither_signals_nor_loggers_are_touched(caplog):
    """math-verify's own functions set SIGALRM, or warn that they do not."""
    handler, armed = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[0] > 0
    names = ("math_verify", "math_verify.parser", "math_verify.grader", "sympy")
    levels = [logging.getLogger(name).level for name in names]
    value(r"\boxed{1+x^2}", "x^2+1")
    assert signal.getsignal(signal.SIGALRM) is handler
    assert (signal.getitimer(signal.ITIMER_REAL)[0] > 0) == armed
    assert [logging.getLogger(name).level for name in names] == levels
    assert caplog.records == []


@given(st.fractions(-1000, 1000, max_denominator=60))
def test_a_number_equals_itself_however_it_is_written(number):
    top, bottom = abs(number.numerator), number.denominator
    sign = "-" if number < 0 else ""
    written = [f"{sign}{top}/{bottom}", rf"{sign}\frac{{{top}}}{{{bottom}}}"]
    if number.denominator in (1, 2, 4, 5, 8, 10, 16, 20, 25, 32, 40, 50):
        written.append(f"{float(number):.6f}")
    for gold in written:
        for answer in written:
            assert value(rf"\boxed{{{answer}}}", gold) == 1


@given(st.integers(-9999, 9999), st.integers(-9999, 9999), st.integers(1, 99))
def test_two_numbers_are_equal_only_when_they_are(one, other, bottom):
    right = Fraction(one, bottom) == other
    assert value(rf"\boxed{{{other}}}", f"{one}/{bottom}") == right


@settings(max_examples=15)  # 50 ms each
@given(st.lists(st.integers(-99, 99), min_size=2, max_size=5, unique=True), st.randoms())
def test_the_order_of_a_set_does_not_matter(members, random):
    shuffled = random.sample(members, len(members))
    gold, said = (",".join(map(str, each)) for each in (members, shuffled))
    assert value(rf"\boxed{{\{{{said}\}}}}", rf"\{{{gold}\}}") == 1


@given(st.text(r"\boxed{}1 ", max_size=40))
def test_a_box_is_found_as_a_slow_reader_finds_it(text):
    def slow():
        for start in range(len(text), -1, -1):
            rest = text[start:]
            if not rest.startswith("\\boxed"):
                continue
            inside = rest.removeprefix("\\boxed").lstrip()
            depth, escaped = 0, False
            for index, char in enumerate(inside):
                if not index and char != "{":
                    break
                if char in "{}" and not escaped:
                    depth += 1 if char == "{" else -1
                if not depth:
                    return inside[1:index].strip()
                escaped = char == "\\" and not escaped
        return None

    assert last_boxed(text) == slow()
