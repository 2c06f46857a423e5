"""The servers of the benchmarks: whoever waits for one that dies at its start is told why."""

import operator
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import asking
import counting
import serving


def test_a_server_that_fails_at_its_start_says_why():
    with (
        pytest.raises(RuntimeError, match=r"ended: \w+Error: "),
        serving.judge_process("no script"),
    ):
        pass


def test_a_server_that_ends_without_a_word_is_not_waited_for():
    server = serving.in_process(operator.eq, None)
    with pytest.raises(RuntimeError, match="ended with 0"), server:
        pass


def test_a_server_that_says_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr(serving, "START_S", 0.0)
    silent = serving.in_process(operator.call, Connection.recv)
    with pytest.raises(RuntimeError, match="said nothing for 0 s"), silent:
        pass


def test_a_server_is_there_as_long_as_the_block():
    with serving.quick_judge() as url:
        assert url.startswith("http://127.0.0.1:")


def test_several_processes_behind_one_address_know_what_they_were_asked():
    with counting.judges(2, 0.01) as judges:
        asking.by_hand(judges.url, 12, concurrency=3)
        asked = judges.asked()
        assert sorted(asked.rows) == list(range(12))
        assert 1 <= asked.peak <= 3
        assert judges.asked().rows == []


@pytest.mark.parametrize(
    ("came", "answered", "peak"),
    [
        ([10, 30], [20, 40], 1),
        ([10, 20], [20, 30], 1),
        ([10, 19], [20, 30], 2),
        ([10, 11, 50, 12], [60, 61, 62, 40], 3),
    ],
)
def test_the_peak_counts_what_is_with_all_judges_at_once(came, answered, peak):
    assert counting.Asked([0] * len(came), came, answered).peak == peak
