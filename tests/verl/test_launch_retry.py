"""A training that bad luck kept from beginning is started again, and no other is."""

import pytest

from zerowait.verl.launch.launch_retry import run_with_retries
from zerowait.verl.launch.log import LOG

MISFORTUNES = [
    "RuntimeError: The server socket has failed to listen: EADDRINUSE, port: 44071",
    "OSError: [Errno 98] Address already in use",
    "zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:4')",
    "Exception: The current node timed out during startup. This could happen because some of",
]


def started(folder, *runs, begun=False):
    """The exit code, how often it ran, and what was told; a run is its log and its exit code."""
    left, told = list(runs), []

    def run():
        log, code = left.pop(0)
        (folder / LOG).write_text(log)
        return code

    code = run_with_retries(run, folder=folder, has_begun=lambda: begun, tell=told.append)
    return code, len(runs) - len(left), len(told)


@pytest.mark.parametrize("log", MISFORTUNES)
def test_it_costs_a_start_and_not_the_training(tmp_path, log):
    lines = log + "\nsomething behind it" * 100
    assert started(tmp_path, (lines, 1), ("step:1 - ", 0)) == (0, 2, 1)


def test_after_three_starts_it_is_given_up(tmp_path):
    assert started(tmp_path, *[(MISFORTUNES[0], 1)] * 9) == (1, 3, 2)


def test_what_failed_for_another_reason_is_not_started_again(tmp_path):
    assert started(tmp_path, ("CUDA out of memory", 1), ("", 0)) == (1, 1, 0)


def test_what_had_begun_is_not_started_again(tmp_path):
    assert started(tmp_path, (MISFORTUNES[0], 1), ("", 0), begun=True) == (1, 1, 0)


def test_what_ended_well_is_not_started_again(tmp_path):
    assert started(tmp_path, (MISFORTUNES[0], 0), ("", 1)) == (0, 1, 0)
