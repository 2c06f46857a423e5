"""Several endpoints of one judge: sharing the work, leaving one alone, and coming back to it."""

import asyncio
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.client import EndpointStates, JudgeClient, JudgeReply, Reply, TransportError
from zerowait.client.limits.breaker import Breaker
from zerowait.completion import Completion
from zerowait.config import Endpoint, Traffic
from zerowait.events import EndpointEjected, EndpointReturned
from zerowait.testing import virtually
from zerowait.types import FailureKind

GOOD = Reply(200, {}, b"{}")
LOST = "lost"
HANGS = "hangs"
GONE = (FailureKind.UNREACHABLE, "no connection")


class Hosts:
    """A transport to several hosts; `does(host, now_s)` is a reply, LOST or HANGS."""

    def __init__(self, does=lambda host, now_s: GOOD, *, latency_s=1.0):
        self.does = does
        self.latency_s = latency_s
        self.sent = []  # (when, host)

    async def send(self, request, *, timeout_s):
        now_s = asyncio.get_running_loop().time()
        host = request.url.split("/")[2]
        self.sent.append((now_s, host))
        what = self.does(host, now_s)
        if what is HANGS:
            await asyncio.sleep(timeout_s)
            raise TransportError(FailureKind.TIMEOUT, "too late")
        if what is LOST:
            await asyncio.sleep(0.01)
            raise TransportError(FailureKind.UNREACHABLE, "no connection")
        await asyncio.sleep(self.latency_s)
        return what

    async def aclose(self):
        pass

    def share(self, *, after_s=0.0, until_s=1e9):
        return Counter(host for when, host in self.sent if after_s <= when < until_s)


def asker(transport, *endpoints, events=None, **traffic):
    settings_ = Traffic(**traffic)
    listener = (lambda event: None) if events is None else events.append
    return JudgeClient(
        endpoints=[
            Endpoint(**{"base_url": f"http://{name}/v1", "model": "m", **fields})
            for name, fields in endpoints
        ],
        transport=transport,
        endpoint_states=EndpointStates(settings_, listener=listener, jitter=Random(0)),
        decode=lambda body: Completion() if body == b"{}" else None,
        traffic=settings_,
        listener=listener,
        jitter=Random(0),
    )


def stream(client, *, seconds, per_s):
    """The outcomes of judgements begun every ``1 / per_s`` seconds."""

    async def main():
        async with asyncio.TaskGroup() as group:
            tasks = []
            for _ in range(int(seconds * per_s)):
                tasks.append(group.create_task(client.ask(b"{}")))
                await asyncio.sleep(1 / per_s)
        return [task.result() for task in tasks]

    return virtually(main())[0]


def test_endpoints_share_the_work_by_weight():
    transport = Hosts()
    stream(asker(transport, ("a", {"weight": 3}), ("b", {}), concurrency=64), seconds=20, per_s=40)
    share = transport.share()
    assert share["a"] / share["b"] == pytest.approx(3, rel=0.1)


def test_an_endpoint_of_a_higher_priority_number_is_asked_only_when_the_others_are_ejected():
    def does(host, now_s):
        return LOST if host != "c" and 20 <= now_s < 40 else GOOD

    transport = Hosts(does)
    backup = ("c", {"priority": 1})
    stream(asker(transport, backup, ("a", {}), ("b", {})), seconds=80, per_s=5)
    assert transport.share(until_s=20).keys() == {"a", "b"}
    assert transport.share(after_s=25, until_s=40)["c"] >= 60
    assert transport.share(after_s=60).keys() == {"a", "b"}


def test_work_that_one_endpoint_has_no_room_for_goes_to_the_other():
    transport = Hosts()
    client = asker(transport, ("a", {"weight": 1000}), ("b", {}), max_concurrency=4)

    async def main():
        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(client.ask(b"{}"))
                await asyncio.sleep(0.001)

    virtually(main())
    assert transport.share() == {"a": 4, "b": 4}


@pytest.mark.parametrize("fails", [LOST, Reply(500, {}, b""), HANGS])
def test_an_endpoint_that_fails_is_ejected_and_returned_to_within_thirty_seconds(fails):
    events = []

    def does(host, now_s):
        return fails if host == "a" and 20 <= now_s < 100 else GOOD

    transport = Hosts(does)
    client = asker(transport, ("a", {}), ("b", {}), events=events, timeout_s=5.0)
    outcomes = stream(client, seconds=160, per_s=10)
    assert all(isinstance(outcome, JudgeReply) for outcome in outcomes)
    assert transport.share(after_s=30, until_s=100)["a"] <= 40  # probes
    assert transport.share(after_s=130)["a"] >= 100
    told = [event for event in events if isinstance(event, EndpointEjected | EndpointReturned)]
    assert [type(event) for event in told] == [EndpointEjected, EndpointReturned]
    assert {event.endpoint for event in told} == {"http://a/v1/chat/completions"}


def test_a_quota_of_the_day_that_is_used_up_sends_the_judgements_elsewhere():
    used_up = Reply(429, {"retry-after": "3600"}, b"")
    transport = Hosts(lambda host, now_s: used_up if host == "a" else GOOD)
    outcomes = stream(asker(transport, ("a", {}), ("b", {})), seconds=60, per_s=5)
    assert all(isinstance(outcome, JudgeReply) for outcome in outcomes)
    assert transport.share()["a"] <= 6


def test_those_who_wait_at_an_endpoint_that_dies_go_elsewhere():
    def does(host, now_s):
        return LOST if host == "a" and now_s >= 1 else GOOD

    transport = Hosts(does)
    client = asker(transport, ("a", {"weight": 1000}), ("b", {}), max_concurrency=8)

    async def main():
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(client.ask(b"{}")) for _ in range(200)]
        return [task.result() for task in tasks]

    outcomes, elapsed_s = virtually(main())
    assert all(isinstance(outcome, JudgeReply) for outcome in outcomes)
    assert elapsed_s <= 200 / 8 + 5
    assert (client.endpoint_states.in_flight, client.endpoint_states.waiting) == (0, 0)


def test_when_all_are_down_one_of_them_is_still_tried_and_all_return():
    transport = Hosts(lambda host, now_s: LOST if now_s < 12 else GOOD)
    client = asker(transport, ("a", {}), ("b", {}), attempts=50)
    outcomes = stream(client, seconds=60, per_s=5)
    assert all(isinstance(outcome, JudgeReply) for outcome in outcomes)


@pytest.mark.parametrize("header", [{"X-Team": "a\r\nHost: b"}, {"X: Y": "a"}, {"X\n": "a"}])
def test_a_header_that_would_end_before_its_value_is_refused(header):
    with pytest.raises(ValueError, match="headers must"):
        Endpoint(base_url="http://judge/v1", model="m", headers=header)


def test_a_wrong_weight_is_refused():
    with pytest.raises(ValueError, match="weight must be greater than 0"):
        Endpoint(base_url="http://a", model="m", weight=0)


def test_a_rest_is_at_most_a_tenth_of_the_outage_or_a_quarter_of_a_second():
    breaker, now_s, probes = Breaker(jitter=Random(0)), 0.0, 0
    assert [breaker.failed(0.0, GONE) for _ in range(3)] == [False, False, True]
    while now_s < 600:
        rest_s = next(n / 100 for n in range(4000) if breaker.may_ask(now_s + n / 100))
        assert rest_s <= min(15.0, max(0.25, 0.1 * now_s)) + 0.01
        now_s += rest_s
        breaker.request_sent(now_s)
        assert not breaker.may_ask(now_s + 0.5)  # one probe at a time
        breaker.failed(now_s, GONE)
        probes += 1
    assert probes <= 120
    assert breaker.succeeded()
    assert breaker.may_ask(now_s)


def test_processes_that_lost_an_endpoint_together_do_not_probe_it_together():
    rests_s = set()
    for seed in range(20):
        breaker = Breaker(jitter=Random(seed))
        for _ in range(3):
            breaker.failed(0.0, GONE)
        rests_s.add(round(breaker.until_s, 4))
    assert len(rests_s) == 20


def test_those_who_were_on_their_way_when_it_opened_do_not_make_the_rest_longer():
    breaker = Breaker()
    opened = [breaker.failed(0.0, GONE) for _ in range(500)]
    assert sum(opened) == 1
    assert breaker.may_ask(1.0)


class Failing:
    """A request that failed, as the circuit breaker sees it."""

    own_failures = 0
    was_passed = False


@pytest.mark.parametrize(("sent_s", "own_failures"), [(9.99, 1), (9.0, 1), (10.2, 0)])
def test_a_failure_is_the_requests_own_where_one_sent_no_earlier_was_answered_already(
    sent_s, own_failures
):
    breaker, request = Breaker(), Failing()
    breaker.succeeded(10.0)
    breaker.suspect(request, sent_s)
    assert request.own_failures == own_failures


@pytest.mark.parametrize(("answered_s", "own_failures"), [(9.99, 1), (12.0, 1), (9.0, 0)])
def test_a_failure_is_the_requests_own_where_one_sent_no_earlier_is_answered_afterwards(
    answered_s, own_failures
):
    breaker, request = Breaker(), Failing()
    breaker.suspect(request, 10.0)
    for _ in range(3):
        breaker.succeeded(answered_s)
    assert request.own_failures == own_failures


@pytest.mark.parametrize(("others", "own_failures"), [(5, 0), (6, 0), (7, 1)])
def test_a_rejection_is_the_requests_own_only_where_one_beside_more_others_is_answered(
    others, own_failures
):
    """It was rejected beside 5: beside as many, and the 2 that may be pending, that proves nothing."""
    breaker, request = Breaker(), Failing()
    breaker.suspect(request, 10.0, others=5)
    breaker.succeeded(10.0, others=others)
    assert (request.own_failures, request.was_passed) == (own_failures, True)


def test_a_request_that_is_sent_again_is_not_blamed_for_its_failure_before():
    breaker, request = Breaker(), Failing()
    breaker.suspect(request, 10.0)
    breaker.forget(request)
    breaker.succeeded(11.0)
    assert request.own_failures == 0


@pytest.mark.parametrize(
    ("failures", "is_down", "own_failures"), [(3, True, 0), (3, False, 1), (1, True, 1)]
)
def test_an_outage_that_is_over_explains_the_failures_in_it(failures, is_down, own_failures):
    breaker, request = Breaker(), Failing()
    breaker.suspect(request, 10.0)
    for _ in range(failures):
        breaker.failed(10.0, GONE, is_down=is_down)
    assert breaker.succeeded(20.0) == (failures == 3)
    assert request.own_failures == own_failures


@pytest.mark.parametrize(
    ("firmly", "in_flight", "opened"),
    [
        (False, 0, [False, False, True]),
        (True, 0, [True]),
        (False, 2, [False, False, False, False]),
        (True, 2, [False, False, True]),
    ],
)
def test_rejections_beside_others_open_it_only_where_three_in_a_row_name_a_long_wait(
    firmly, in_flight, opened
):
    breaker = Breaker()
    for _ in range(in_flight):
        breaker.request_sent(0.0)
    wait_s = 30.0 if firmly else 0.0
    found = [breaker.rejected(0.0, GONE, retry_after_s=wait_s, firmly=firmly) for _ in opened]
    assert found == opened


def test_a_retry_after_is_kept_also_from_one_that_was_under_way_when_the_breaker_opened():
    breaker = Breaker()
    opened = [breaker.failed(0.0, GONE) for _ in range(3)]
    assert opened == [False, False, True]
    assert not breaker.failed(0.1, GONE, retry_after_s=30.0)
    assert not breaker.may_ask(30.0)
    assert breaker.may_ask(30.1)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["asked", "failed", "succeeded"]),
            st.floats(0, 20),
            st.sampled_from([0.0, 0.0, 5.0]),
        ),
        max_size=60,
    )
)
def test_an_endpoint_is_never_ejected_for_longer_than_it_asked_or_fifteen_seconds(steps):
    breaker, now_s = Breaker(), 0.0
    for what, gap_s, retry_after_s in steps:
        now_s += gap_s
        if what == "asked":
            breaker.request_sent(now_s)
        elif what == "failed":
            breaker.failed(now_s, GONE, retry_after_s=retry_after_s)
        else:
            breaker.succeeded()
            assert breaker.may_ask(now_s)
        assert breaker.may_ask(now_s + 20)
