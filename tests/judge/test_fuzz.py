"""A short run of the fuzzer; ``python benchmarks/fuzz_parser.py --minutes 10`` is the long one."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from fuzz_parser import RULES, broken, is_slow, main, seen


def test_half_a_second_of_random_replies_bring_no_finding(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fuzz_parser.py", "--minutes", "0.0083", "--random"])
    assert main() == 0, capsys.readouterr().out


@given(name=st.sampled_from(sorted(RULES)), text=st.text())
def test_no_text_breaks_a_rule_of_the_fuzzer(name, text):
    assert broken(RULES[name], text) == ""


def test_the_oracle_notices_a_parser_that_takes_any_number(monkeypatch):
    """Else the fuzzer would be content with everything."""
    import fuzz_parser

    def lax(text, rule):
        digits = [c for c in seen(text) if c in "123456789"]
        return fuzz_parser.Score(float(digits[0]), "", {"verdict": int(digits[0])})

    monkeypatch.setattr(fuzz_parser, "parse", lax)
    assert broken(RULES["1-10"], "Step 2 of 3 is right.\nIt is good.") == "invents 2"
    assert broken(RULES["1-10"], "Score: 7-8") == "invents 7"
    assert broken(RULES["1-10"], "Score: 4/5") == "invents 4"


def test_the_clock_notices_a_reader_that_is_not_linear(monkeypatch):
    import fuzz_parser

    ticks = iter(range(10**9))
    monkeypatch.setattr(fuzz_parser.time, "thread_time", lambda: float(next(ticks)))
    assert not is_slow(RULES["1-10"], "x")  # every reading took one tick


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("<think>Score: 3</think>7", "7"),
        ("Score: 3\n</think>\n7", "\n7"),
        ("The tag </think> ends it.", "The tag </think> ends it."),
        ("\uff17\u200b", "7"),
    ],
)
def test_the_oracle_sees_what_a_reader_sees(text, visible):
    assert seen(text) == visible
