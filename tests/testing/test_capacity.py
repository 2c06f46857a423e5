"""What the fake judge bears."""

from hypothesis import given
from hypothesis import strategies as st

from zerowait.testing import Capacity, Change
from zerowait.testing.capacity import CapacityGate


def waits(gate, *, now_s, tokens=1):
    """Seconds after which the gate says to come back; None when it let us in."""
    busy = gate.enter(tokens=tokens, now_s=now_s)
    return None if busy is None else int(busy.headers["retry-after-ms"]) / 1000


def test_one_request_more_than_the_concurrency_is_turned_away_until_one_leaves():
    gate = CapacityGate(Capacity(concurrency=2))
    assert [gate.enter(tokens=1, now_s=0.0) is None for _ in range(3)] == [True, True, False]
    gate.leave()
    assert gate.enter(tokens=1, now_s=0.0) is None


def test_a_wait_is_named_only_when_the_script_names_one():
    silent, polite = (
        CapacityGate(Capacity(concurrency=1)),
        CapacityGate(Capacity(concurrency=1, retry_after_s=2.5)),
    )
    for gate in (silent, polite):
        gate.enter(tokens=1, now_s=0.0)
    assert silent.enter(tokens=1, now_s=0.0).headers == {}
    assert polite.enter(tokens=1, now_s=0.0).headers == {"Retry-After": "2.5"}


def test_requests_per_minute_refill_evenly_and_the_named_wait_is_enough():
    gate = CapacityGate(Capacity(rpm=60, burst_s=2.0))
    assert [waits(gate, now_s=0.0) for _ in range(3)] == [None, None, 1.0]
    assert waits(gate, now_s=0.5) == 0.5
    assert waits(gate, now_s=1.0) is None


def test_a_request_larger_than_the_token_bucket_is_let_in_when_it_is_full_and_paid_back():
    gate = CapacityGate(Capacity(tpm=600, burst_s=1.0))
    assert waits(gate, tokens=50, now_s=0.0) is None
    assert waits(gate, tokens=1, now_s=0.0) == 4.1
    assert waits(gate, tokens=1, now_s=4.1) is None


def test_the_headers_count_down():
    gate = CapacityGate(Capacity(rpm=600, burst_s=1.0))
    gate.enter(tokens=1, now_s=0.0)
    assert gate.headers() == {
        "x-ratelimit-limit-requests": "600",
        "x-ratelimit-remaining-requests": "9",
        "x-ratelimit-reset-requests": "100ms",
    }


def test_beyond_the_knee_everybody_gets_slower_in_proportion():
    gate = CapacityGate(Capacity(knee=2))
    slowdowns = []
    for _ in range(4):
        gate.enter(tokens=1, now_s=0.0)
        slowdowns.append(gate.slowdown())
    assert slowdowns == [1.0, 1.0, 1.5, 2.0]


def test_the_capacity_changes_at_the_times_that_the_script_names():
    changes = (Change(at_s=20.0, concurrency=1), Change(at_s=40.0, concurrency=3))
    gate = CapacityGate(Capacity(concurrency=2, changes=changes))
    gate.enter(tokens=1, now_s=100.0)
    assert gate.enter(tokens=1, now_s=120.0) is not None
    assert gate.enter(tokens=1, now_s=140.0) is None


@given(st.lists(st.floats(0, 3), max_size=60), st.integers(1, 20))
def test_no_client_gets_more_than_the_rate_and_the_burst(gaps_s, rate):
    gate = CapacityGate(Capacity(rpm=60 * rate, burst_s=1.0))
    now_s, admitted = 0.0, 0
    for gap_s in gaps_s:
        now_s += gap_s
        admitted += waits(gate, now_s=now_s) is None
    assert admitted <= rate * now_s + max(rate, 1) + 1e-3
