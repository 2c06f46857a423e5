"""`math` against answers that are right or wrong by construction, and against ones that are made to fool it."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.scorers.math.answer import math_answer
from zerowait.types import POLICY_CAUSED, Abstain, FailureKind, Sample, Score

sys.path.insert(0, str(Path(__file__).parent))
from math_pairs import pairs

RIGHT, WRONG = 1.0, 0.0


def value(response, gold, **options):
    outcome = math_answer(Sample("", response, gold), **options)
    assert isinstance(outcome, Score), outcome
    return outcome.value


def boxed(gold, answer):
    return value(rf"so it is $\boxed{{{answer}}}$.", gold)


def test_of_the_labelled_pairs_hardly_any_is_judged_wrongly():
    found = Counter()
    faults = []
    for pair in pairs():
        outcome = math_answer(Sample("", rf"$\boxed{{{pair.said}}}$", pair.gold))
        said = getattr(outcome, "value", None)
        found[pair.is_equal, said] += 1
        if said != pair.is_equal:
            faults.append((pair, said))
    equal, misses = (
        sum(n for (is_equal, _), n in found.items() if is_equal is label) for label in (True, False)
    )
    assert equal + misses >= 1000
    assert found[False, 1.0] <= 0.01 * misses, faults
    assert found[True, 0.0] <= 0.08 * equal, faults
    assert found[True, None] + found[False, None] <= 0.01 * (equal + misses), faults


HOLLOW = [
    # Answers with nothing in them, of which every part would be the same as every other.
    *(rf"\begin{{{kind}}}\end{{{kind}}}" for kind in ("cases", "aligned", "gathered", "pmatrix")),
    *(
        r"\{\begin{array}{l}\end{array}",
        r"\begin{cases}\\\end{cases}",
        r"\{,\}",
        "(,)",
        r"x\in\{\}",
    ),
]


def test_no_answer_is_right_for_golds_of_many_kinds():
    """What equals more than a few of the lines' golds, one of each line, would be worth guessing."""
    golds = list(dict.fromkeys(pair.gold for pair in pairs()))[::7]
    answers = list(dict.fromkeys(pair.said for pair in pairs()))[::23] + HOLLOW
    for answer in answers:
        right = [
            gold
            for gold in golds
            if getattr(math_answer(Sample("", rf"\boxed{{{answer}}}", gold)), "value", 0)
        ]
        assert len(right) <= 6, (answer, right)


WHOLE = [
    # Nothing of an answer is left out of the comparison.
    (r"0.\overline{3}", r"0.\overline{6}", WRONG),
    (r"0.\overline{3}", "0", WRONG),
    (r"0.\overline{3}", "1/3", RIGHT),
    (r"1-\frac{1}{\mathrm{e}}", "1", WRONG),
    (r"1-\frac{1}{\mathrm{e}}", r"1-\frac1e", RIGHT),
    (r"\mathrm{e}^{\mathrm{i}\pi}", "-1", RIGHT),
    (r"x \equiv 3 \pmod 7", "7", WRONG),
    (r"x \equiv 3 \pmod 7", r"x \equiv 4 \pmod 7", WRONG),
    (r"x \equiv 3 \pmod 7", r"x \equiv 10 \pmod 7", RIGHT),
    (r"\langle 1,2,3\rangle", "3", WRONG),
    (r"\langle 1,2,3\rangle", r"\langle 4,5,3\rangle", WRONG),
    (r"\langle 1,2,3\rangle", "(1,2,3)", RIGHT),
    (r"\sum_{k=1}^n k^2", r"\sum_{k=1}^n k", WRONG),
    ("5", r"5 \clubsuit", WRONG),
    ("5", r"5 \mid 10", WRONG),
    ("5", "5?6", WRONG),
    ("5", r"5 \to 6", WRONG),
    (r"\frac12", r"\frac12 \ldots", WRONG),
    ("x=2,y=3", "x=2,y=3,z=4", WRONG),
]
EXACT = [
    # Exact values are not rounded, decimals are compared by their digits.
    ("1.7e-19", "1.6e-19", WRONG),
    (r"1.6\times10^{-19}", "1.6e-19", RIGHT),
    ("(1/3)^{100}", "(1/2)^{100}", WRONG),
    ("10^{-30}", "0", WRONG),
    ("0", "10^{-300}", WRONG),
    ("1", "1+10^{-50}", WRONG),
    (r"\sqrt{2}", r"\sqrt{2}+10^{-80}", WRONG),
    ("e^{-100}", "e^{-101}", WRONG),
    ("e^{-100}", "0", WRONG),
    (r"\pi", r"\frac{355}{113}", WRONG),
    (r"\pi", "3.14159265", RIGHT),
    (r"\pi", "3.14159264", WRONG),
    (r"\sqrt{5+2\sqrt6}", r"\sqrt2+\sqrt3", RIGHT),
    ("2^{100}", "2^{100}+1", WRONG),
    (r"\frac{10^{20}+1}{10^{20}}", "1", WRONG),
    ("0.1", "0.10000001", WRONG),
    (r"\cos(10^{-20})", "1", WRONG),
]
BRANCHES = [
    (r"\sqrt{x^2}", "x", WRONG),
    ("x", r"\sqrt{x^2}", WRONG),
    (r"|x|", r"\sqrt{x^2}", RIGHT),
    (r"\ln x^2", r"2\ln x", WRONG),
    (r"\arcsin(\sin x)", "x", WRONG),
    (r"\arctan 1", r"\frac{5\pi}{4}", WRONG),
    (r"\sqrt[3]{-8}", "-2", RIGHT),
    ("1", "1^\\infty", WRONG),
]
WORDS = [
    ("ABC", "BAC", WRONG),
    ("ABC", r"\text{ABC}", RIGHT),
    ("TTHH", "HHTT", WRONG),
    ("2ab", "2ba", RIGHT),
    ("no", "on", WRONG),
    ("MISSISSIPPI", "MISSISSIPPI", RIGHT),
    ("listen", "silent", WRONG),
]
DIGITS = [
    ("3.5", "\uff13\uff0e\uff15", RIGHT),
    ("3.5", "\u0663\u066b\u0665", RIGHT),
    ("3.5", "\u0969.\u096b", RIGHT),
    ("3.5", "\uff15\uff0e\uff13", WRONG),
    ("42", "\U0001d7d2\U0001d7d0", RIGHT),
    ("1234", "1\u00a0234", RIGHT),
    ("x^2", "x\u00b2", RIGHT),
]
SAME_TEXT = [
    "\u221a2", "\u00bd", "12:00", r"A\cup B", "\u221e", r"\infty", r"\int_0^1 x\,dx", r"\sum_{k=1}^n k", "H_2O",
    "1, 2, 3, \\ldots", "\u662f", "x \\mid y", r"\nabla f", "3 R 2", "A \\to B",
]  # fmt: skip
READ = [
    ("42", "\u7b54\u6848\u662f42", RIGHT),
    ("42", "\u7b54\u6848\uff1a42", RIGHT),
    ("42", r"\textbf{(A)}\ 42", RIGHT),
    ("A", r"\textbf{(A)}\ 42", RIGHT),
    ("B", r"\textbf{(A)}\ 42", WRONG),
    (r"(-\infty,-1)\cup(1,\infty)", "x<-1 or x>1", RIGHT),
    (r"(-\infty,-1)\cup(1,\infty)", "x<-1 and x>1", WRONG),
    (r"(-\infty,-1)\cup(1,\infty)", "x<-1", WRONG),
]


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [*WHOLE, *EXACT, *BRANCHES, *WORDS, *DIGITS, *READ],
)
def test_all_of_an_answer_is_compared_exactly(gold, answer, expected):
    if expected == WRONG and gold.startswith(r"\sum"):
        assert isinstance(math_answer(Sample("", rf"\boxed{{{answer}}}", gold)), Score)
    assert boxed(gold, answer) == expected


@pytest.mark.parametrize("text", SAME_TEXT)
def test_the_same_text_is_equal_even_where_it_cannot_be_read(text):
    assert boxed(text, text) == RIGHT
    assert value(rf"$\boxed{{ {text} }}$", text) == RIGHT


@pytest.mark.parametrize("gold", [r"\int_0^1 x\,dx", r"\frac{", "6=5"])
def test_a_gold_that_cannot_be_read_abstains_only_on_other_texts(gold):
    outcome = math_answer(Sample("", r"\boxed{7}", gold))
    assert isinstance(outcome, Abstain)
    assert outcome.kind is FailureKind.BAD_INPUT


@pytest.mark.parametrize("gold", [r"\text{the sum diverges}", "Monday", "\u5927\u4e8e\u4e94\u4e2a"])
def test_a_gold_in_words_decides(gold):
    assert boxed(gold, "7") == WRONG


FINITE = [
    "42", "7", "1/2", "-3", r"\sqrt2", r"\{1,2\}", "x=5", r"50\%", "0", "1", "-1", r"\pi", "e", "i", "3.14", "2x+1",
    "x^2", "(1,2)", "[0,1)", "A", "B", "Monday", "x>3", "y=2x", "1,2", r"\frac34", r"\ln 2", "12:00", "2:3", "101_2",
    "5 cm", r"\$10", r"\emptyset", "3+4i", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"x\equiv 3\pmod 7", "1e6",
    r"0.\overline{3}", r"90^\circ", r"\pm2", "x^2+C", r"\binom52", "100", "2^{100}", "ABC", "yes", "|x|", "n!",
    r"\sin x", "1.6e-19",
]  # fmt: skip
WITHOUT_VALUE = [
    r"\infty", r"\frac10", "1/0", r"\tan(\pi/2)", r"\tan\frac{\pi}{2}", r"\zeta(1)", "zeta(1)", "0^0", r"\log 0", r"\ln(0)",
    r"\frac00", "0/0", r"(\infty-\infty)", "nan", "zoo", "oo", "inf", "undefined", r"\Gamma(0)", "(-1)!", r"\cot 0",
    r"\sec(\pi/2)", r"\frac{1}{\sin\pi}", r"\log_1 5", r"\infty^0", r"1^\infty", "\u221e", r"\text{nan}", "0^{-1}",
    r"\frac{1}{x-x}", r"\sqrt[0]{5}", r"\arctan\infty", r"e^{-\infty}", r"\max(1,\infty)",
]  # fmt: skip
AROUND = [
    "{}", "0\\cdot {}", "{}\\cdot 0", "42+{}", "{0}-{0}", r"\pi {}^2", r"\frac{{{0}}}{{{0}}}", "({})^0", r"\{{{}\}}",
    "x={}", r"{}\%", "{0},{0}", r"5+0\cdot {}", "|{}|", r"\max(5,{})", r"\frac{{42}}{{1+0\cdot {}}}", "e^{{-{}}}",
    r"\sqrt{{{}}}", "(1,{})", "[0,{})", r"{}\text{{ cm}}", "42={}", r"\frac{{1}}{{{}}}", "-{}", "({})!", r"\sin({})",
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(WITHOUT_VALUE),
    st.lists(st.sampled_from(AROUND), min_size=1, max_size=3),
    st.sampled_from([r"\boxed{{{}}}", "The answer is ${}$.", "<answer>{}</answer>"]),
)
def test_no_expression_without_a_value_equals_a_finite_gold(inside, around, response):
    for form in around:
        inside = form.format(inside)
    for gold in FINITE:
        assert value(response.format(inside), gold) == WRONG, (inside, gold)


HANGING = [
    "9^{9^{9^9}}", "9^{9^9}", "10^{10^{10}}", "2^{2^{2^{2^{2^2}}}}", "100000!", "((9!)!)!", "9!!!!!!", "1e999999999",
    "10^{-10^9}", r"\sin(10^{10^5})", r"\binom{10^9}{10^8}", "(x+1)^{100000}", "x^{10^9}", r"\sqrt[10^9]{2}",
    r"\pi^{10^9}", "e^{e^{e^{e^e}}}", r"\Gamma(10^{10})", r"\zeta(10^5)", "(1+10^{-20})^{10^{20}}", "x^{x^{x^{x^x}}}",
    "((x!)!)!", r"\log_{1.0000001}10^{1000}", r"\lfloor 10^{1000}\pi\rfloor", r"\cosh(10^6)", "{" * 150_000 + "}" * 150_000,
    "(" * 300 + "1" + ")" * 300, r"\sqrt{" * 140 + "2" + "}" * 140, "^".join("2" * 400), "+".join("1" * 450), r"\pm" * 300 + "1",
    ",".join(map(str, range(250))), r"\cup".join(["(1,2)"] * 120), "=".join("1" * 400), "|" * 400, r"\text{" * 190,
    "1" * 990, "-" * 900 + "1", "+".join(rf"\sqrt{{{n}}}" for n in range(2, 90)), "*".join(f"(x+{n})" for n in range(80)),
]  # fmt: skip


@pytest.mark.parametrize("answer", HANGING, ids=lambda answer: answer[:20])
@pytest.mark.parametrize("gold", ["5", "x", r"\{1,2\}", "(1,2)", "x^2+y"])
def test_an_answer_that_is_made_to_hang_is_a_wrong_one_at_once(answer, gold):
    began_s = time.process_time()
    assert boxed(gold, answer) == WRONG
    assert time.process_time() - began_s < 10  # 0.05 s; what hangs never ends


PIECES = st.sampled_from(
    [
        *"0123456789", *"+-*/^_=<>()[]{}|!,;:.'&%$ ", *"xyzeiABC", "\\", "\\\\", r"\frac", r"\sqrt", r"\pi", r"\infty",
        r"\{", r"\}", r"\left", r"\right", r"\text{", r"\cup", r"\in", r"\le", r"\pm", r"\log", r"\sin", r"\circ",
        r"\begin{pmatrix}", r"\end{pmatrix}", r"\pmod", r"\overline", "\u221a", "\u00bd", "\u221e", "\uff15", "\u0663",
        "\u4e94", "\U0001f600", "\u200b", "\x00", "\u0301", "\ue000", "\ue001", "\ue002",
    ]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    st.lists(PIECES, max_size=14),
    st.sampled_from(["5", "x", "(1,2)", r"\{1,2\}", "x>3", r"\sqrt2", "Monday"]),
)
def test_nothing_that_a_response_writes_makes_the_rule_abstain(pieces, gold):
    answer = "".join(pieces)
    for response in (
        rf"\boxed{{{answer}}}",
        f"The answer is {answer}",
        f"<answer>{answer}</answer>",
        answer,
    ):
        assert isinstance(math_answer(Sample("", response, gold)), Score)


@settings(max_examples=100, deadline=None)
@given(st.lists(PIECES, max_size=10))
def test_no_gold_makes_the_rule_crash(pieces):
    outcome = math_answer(Sample("", r"\boxed{5}", "".join(pieces)))
    assert isinstance(outcome, Score) or outcome.kind is FailureKind.BAD_INPUT


def test_what_would_be_a_crash_counts_as_caused_by_the_policy(monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr("zerowait.scorers.math.answer.is_undefined", lambda _: False)
    monkeypatch.setattr("zerowait.scorers.math.answer.answer_formula", broken)
    outcome = math_answer(Sample("", r"\boxed{5}", "5"))
    assert outcome.kind in POLICY_CAUSED
    assert "a fault of ours" in outcome.detail


_PROGRAM = """
import json, sys
from zerowait.scorers.math.answer import math_answer
from zerowait.types import Sample
pairs = json.load(sys.stdin)
print(json.dumps([getattr(math_answer(Sample("", said, gold)), "value", None) for gold, said in pairs]))
"""


@pytest.mark.wire
def test_every_process_comes_to_the_same_result():
    """20 seeds of Python's hashes, which order the sets and dictionaries of a process."""
    asked = [(pair.gold, rf"\boxed{{{pair.said}}}") for pair in list(pairs())[::20]]
    asked += [(gold, r"\boxed{\pi\infty^2}") for gold in FINITE]
    results = set()
    for seed in range(20):
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            input=json.dumps(asked),
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        )
        results.add(done.stdout)
    assert len(results) == 1


@pytest.mark.parametrize("kind", ["vmatrix", "Vmatrix"])
def test_a_determinant_is_no_matrix_and_a_set_of_the_empty_set_is_not_empty(kind):
    matrix = r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"
    assert boxed(matrix, matrix.replace("bmatrix", "pmatrix")) == RIGHT
    assert boxed(matrix, matrix.replace("pmatrix", kind)) == WRONG
    assert boxed(r"\emptyset", r"\varnothing") == RIGHT
    assert boxed(r"\emptyset", r"\{\varnothing\}") == WRONG
