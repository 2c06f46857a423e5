"""The servers of the benchmarks: whoever waits for one that dies at its start is told why."""

import operator
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import serving


def test_a_server_that_fails_at_its_start_says_why():
    with (
        pytest.raises(RuntimeError, match=r"ended: \w+Error: "),
        serving.judge_process("no script"),
    ):
        pass


def test_a_server_that_ends_without_a_word_is_not_waited_for():
    server = serving._in_process(operator.eq, None)
    with pytest.raises(RuntimeError, match="ended with 0"), server:
        pass


def test_a_server_that_says_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr(serving, "START_S", 0.0)
    with pytest.raises(RuntimeError, match="said nothing for 0 s"), serving.quick_judge():
        pass


def test_a_server_is_there_as_long_as_the_block():
    with serving.quick_judge() as url:
        assert url.startswith("http://127.0.0.1:")
