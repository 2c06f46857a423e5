import asyncio
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.client import (
    EndpointStates,
    FixedLimit,
    JudgeClient,
    JudgeReply,
    Limiter,
    Quota,
    Reply,
    TransportError,
)
from zerowait.client.hedging import HedgeRule, HedgeScheduler, Latencies
from zerowait.completion import Completion
from zerowait.config import Endpoint, Hedge, Traffic
from zerowait.events import RequestEnded, RequestHedged
from zerowait.testing import virtually
from zerowait.types import Abstain, FailureKind

GOOD = Reply(200, {}, b"{}")


class Stalling:
    """A transport that takes as long as is written down by the number of the send.

    Else the first hundred take 1 s, and those that follow 0.9 s.
    """

    def __init__(self, slow=None, replies=None):
        self.slow = slow or {}
        self.replies = replies or {}
        self.sent = []
        self.cancelled = []

    async def send(self, request, *, timeout_s):
        clock = asyncio.get_running_loop().time
        number = len(self.sent)
        self.sent.append((clock(), request.body))
        takes_s = self.slow.get(number, 1.0 if number < 100 else 0.9)
        try:
            await asyncio.sleep(min(takes_s, timeout_s))
        except asyncio.CancelledError:
            self.cancelled.append((number, clock()))
            raise
        if takes_s > timeout_s:
            raise TransportError(FailureKind.TIMEOUT, "too late")
        return self.replies.get(number, GOOD)

    async def aclose(self):
        pass


def asker(transport, *, limit=10, events=None, **traffic):
    settings_ = Traffic(**traffic)
    return JudgeClient(
        endpoints=[Endpoint(base_url="http://judge/v1", model="m")],
        transport=transport,
        endpoint_states=EndpointStates(settings_, limiter=Limiter(FixedLimit(limit))),
        decode=lambda body: Completion() if body == b"{}" else None,
        traffic=settings_,
        listener=(lambda event: None) if events is None else events.append,
        jitter=Random(0),
    )


async def learn(client, count=100):
    """Enough ordinary latencies, all of one second."""
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(client.ask(b"ordinary"))


def after_learning(client, *bodies):
    """The outcomes of `bodies`, asked at once when 100 latencies of 1 s are known, at 10 s."""

    async def main():
        await learn(client)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(client.ask(body)) for body in bodies]
        return [task.result() for task in tasks]

    return virtually(main())


def test_a_late_request_is_sent_again_and_the_first_answer_counts():
    events = []
    transport = Stalling({100: 30.0})
    (answer,), elapsed_s = after_learning(asker(transport, events=events), b"late")
    assert isinstance(answer, JudgeReply)
    assert elapsed_s == pytest.approx(10 + 1 + 0.9)
    assert answer.attempts == 2
    assert answer.latency_s == pytest.approx(0.9)
    hedged = [event for event in events if isinstance(event, RequestHedged)]
    assert [(event.after_s, event.won) for event in hedged] == [(1.0, True)]


def test_the_loser_is_cancelled_at_once_whichever_it_is():
    transport = Stalling({100: 30.0})
    after_learning(asker(transport), b"late")
    assert transport.cancelled == [(100, pytest.approx(11.9))]
    transport, events = Stalling({100: 1.5}), []
    _, elapsed_s = after_learning(asker(transport, events=events), b"late")
    assert elapsed_s == pytest.approx(11.5)
    assert transport.cancelled == [(101, 11.5)]
    assert [event.won for event in events if isinstance(event, RequestHedged)] == [False]


def test_when_the_copy_stalls_too_a_third_is_sent():
    transport = Stalling({100: 30.0, 101: 30.0})
    _, elapsed_s = after_learning(asker(transport), b"late")
    assert elapsed_s == pytest.approx(10 + 1 + 1 + 0.9)
    assert len(transport.sent) == 103


def test_no_more_than_two_copies_are_sent():
    transport = Stalling(dict.fromkeys(range(100, 110), 30.0))
    _, elapsed_s = after_learning(asker(transport), b"late")
    assert len(transport.sent) == 103
    assert elapsed_s == pytest.approx(10 + 30)


def test_nothing_is_copied_before_a_hundred_latencies_are_known():
    transport = Stalling({99: 30.0})
    client = asker(transport)
    virtually(learn(client, 100))
    assert len(transport.sent) == 100


def test_a_request_that_stalled_before_is_copied_once_they_are_known():
    transport = Stalling({0: 60.0})
    _, elapsed_s = virtually(learn(asker(transport), 101))
    assert len(transport.sent) == 102
    assert elapsed_s < 15


def test_copies_wait_behind_fresh_work():
    """The late request holds one of two slots, and five that are fresh need the other."""
    transport = Stalling({100: 30.0})
    client = asker(transport, limit=2)

    async def main():
        await learn(client)
        clock = asyncio.get_running_loop().time
        began_s = clock()
        async with asyncio.TaskGroup() as group:
            group.create_task(client.ask(b"late"))
            for _ in range(5):
                group.create_task(client.ask(b"fresh"))
        return began_s

    began_s, _ = virtually(main())
    copies = [when - began_s for when, body in transport.sent if body == b"late"]
    assert copies == pytest.approx([0.0, 5 * 0.9])


def test_a_server_that_slows_down_as_a_whole_is_not_sent_more():
    transport = Stalling(dict.fromkeys(range(100, 140), 8.0))
    after_learning(asker(transport, limit=80), *[b"slow"] * 40)
    assert len(transport.sent) == 140


def test_a_copys_answer_counts_when_the_first_fails_meanwhile():
    transport = Stalling({100: 1.5}, {100: Reply(500, {}, b"")})
    (answer,), elapsed_s = after_learning(asker(transport), b"late")
    assert isinstance(answer, JudgeReply)
    assert elapsed_s == pytest.approx(11.9)
    assert len(transport.sent) == 102


@pytest.mark.parametrize("bad", [Reply(500, {}, b""), Reply(200, {}, b"<html>")])
def test_a_copys_failure_ends_nothing(bad):
    transport = Stalling({100: 3.5}, {101: bad, 102: bad})
    (answer,), elapsed_s = after_learning(asker(transport), b"late")
    assert isinstance(answer, JudgeReply)
    assert elapsed_s == pytest.approx(13.5)


def test_when_all_fail_it_counts_as_one_attempt():
    """Its health check, which is the send 102, shows that the judge is well."""
    transport = Stalling({100: 1.5}, dict.fromkeys((100, 101, 103), Reply(500, {}, b"")))
    (outcome,), _ = after_learning(asker(transport, attempts=2), b"late")
    assert isinstance(outcome, Abstain)
    assert len(transport.sent) == 104
    assert "3 attempts" in outcome.detail


def test_hedging_may_be_off():
    transport = Stalling({100: 30.0})
    _, elapsed_s = after_learning(asker(transport, hedge="off"), b"late")
    assert (len(transport.sent), elapsed_s) == (101, 40.0)


def test_late_may_be_said_in_seconds():
    transport = Stalling({100: 30.0})
    after_learning(asker(transport, hedge=Hedge(after=4.0)), b"late")
    assert transport.sent[101][0] == pytest.approx(14.0)


def test_a_cancelled_judgement_takes_its_copies_along():
    transport = Stalling({100: 30.0, 101: 30.0})
    client = asker(transport)

    async def main():
        await learn(client)
        task = asyncio.create_task(client.ask(b"late"))
        await asyncio.sleep(1.5)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled(), client.endpoint_states.in_flight

    assert virtually(main())[0] == (True, 0)
    assert [number for number, _ in transport.cancelled] == [100, 101]


def batch(*, count, limit, seed, stalls=0.01, **traffic):
    """Virtual seconds of a batch with log-normal latency and stalls of 30 s, and its requests."""
    random = Random(seed)

    class Tailed(Stalling):
        async def send(self, request, *, timeout_s):
            takes_s = 30.0 if random.random() < stalls else random.lognormvariate(0, 0.8)
            self.slow[len(self.sent)] = takes_s
            return await super().send(request, timeout_s=timeout_s)

    transport = Tailed()
    _, elapsed_s = virtually(learn(asker(transport, limit=limit, **traffic), count))
    return elapsed_s, len(transport.sent)


@pytest.mark.parametrize(("limit", "ratio", "extra"), [(60, 0.65, 0.03), (256, 0.40, 0.05)])
def test_a_batch_with_stalls_ends_much_sooner_for_few_more_requests(limit, ratio, extra):
    plain_s = hedged_s = requests = 0
    for seed in range(2):
        plain_s += batch(count=1024, limit=limit, seed=seed, hedge="off")[0]
        one_s, sent = batch(count=1024, limit=limit, seed=seed)
        hedged_s += one_s
        requests += sent
    assert hedged_s / plain_s <= ratio
    assert requests / 2 / 1024 - 1 <= extra


def test_copies_never_exceed_their_share_of_the_requests():
    _, sent = batch(count=1024, limit=1024, seed=3, stalls=0.2, hedge=Hedge(extra=0.02))
    assert sent <= 1024 * 1.02


@settings(max_examples=40, deadline=None)
@given(values=st.lists(st.floats(0, 100), min_size=1, max_size=1500), share=st.floats(0.01, 0.999))
def test_the_quantile_is_that_of_the_latest_latencies(values, share):
    latencies = Latencies()
    for value in values:
        latencies.add(value)
    latest = sorted(values[-1024:])
    assert len(latencies) == len(latest)
    found = latencies.quantile(share)
    assert sum(value <= found for value in latest) >= share * len(latest) - 1e-6
    assert sum(value < found for value in latest) <= share * len(latest) + 1e-6


def test_a_small_share_of_copies_is_spent_on_the_longest_waits():
    rule = HedgeRule(share=0.95, extra=0.01)
    for value in range(1, 101):
        rule.observe(float(value))
    assert rule.after_s(late=0) == 99.0


def test_where_many_are_late_none_of_them_is():
    rule = HedgeRule(share=0.95)
    for value in range(1, 101):
        rule.observe(float(value))
    assert [rule.after_s(late) for late in (0, 1, 5, 6)] == [95.0, 96.0, 100.0, None]


def test_the_fewer_copies_are_left_the_longer_a_request_waits_for_one():
    rule = HedgeRule(extra=0.05)
    for _ in range(2048):
        rule.sent()
    patience = []
    while rule.copies:
        patience.append(rule.patience(in_flight=100))
        rule.copied()
    assert patience[0] == 1.0
    assert patience == sorted(patience)
    assert 1.9 < patience[-1] <= rule.patience(in_flight=100) <= 2.0


def test_nothing_waits_longer_while_there_is_a_copy_for_each_request_in_flight():
    rule = HedgeRule(extra=0.05)
    for _ in range(100):
        rule.sent()
    assert [rule.patience(in_flight) for in_flight in (1, 5)] == [1.0, 1.0]
    assert rule.patience(6) > 1.8


def test_a_straggler_finds_a_copy_after_many_that_were_only_a_little_late():
    """More than 5 % are late for a little, one stalls, and requests go on coming."""
    first_s = {b"a little late": 1.3, b"straggler": 30.0}

    class ByBody(Stalling):
        async def send(self, request, *, timeout_s):
            is_copy = any(body == request.body for _, body in self.sent)
            kind = request.body.partition(b" #")[0]
            self.slow[len(self.sent)] = 0.9 if is_copy else first_s.get(kind, 0.9)
            return await super().send(request, timeout_s=timeout_s)

    transport = ByBody()
    client = asker(transport, limit=1000)
    took_s = {}

    async def ask(kind, number):
        began_s = asyncio.get_running_loop().time()
        await client.ask(b"%s #%d" % (kind, number))
        took_s.setdefault(kind, []).append(asyncio.get_running_loop().time() - began_s)

    async def main():
        async with asyncio.TaskGroup() as group:
            for number in range(1500):
                kind = b"a little late" if number % 12 == 0 else b"ordinary"
                kind = b"straggler" if number % 300 == 299 else kind
                group.create_task(ask(kind, number))
                await asyncio.sleep(0.02)

    virtually(main())
    assert len(took_s[b"straggler"]) == 5
    assert max(took_s[b"straggler"]) < 2 * 1.3 + 0.9 + 0.1
    assert len(transport.sent) <= 1500 * 1.05


@pytest.mark.parametrize("seed", range(10))
def test_a_late_request_is_found_at_its_time_when_nothing_else_happens(seed):
    """A sum of times loses its last digit where it exceeds a power of two, here 1,024."""
    transport = Stalling({**dict.fromkeys(range(100), 1.1), 100: 30.0})
    client = asker(transport)

    async def main():
        await learn(client)
        await asyncio.sleep(1023.0 + Random(seed).random() - asyncio.get_running_loop().time())
        return await client.ask(b"late")

    assert virtually(main())[0].attempts == 2


def test_what_was_not_spent_is_not_saved_for_ever():
    rule = HedgeRule(extra=0.05)
    for _ in range(100_000):
        rule.sent()
    for value in range(1024):
        rule.observe(float(value))
    assert rule.copies == 51


def test_the_losers_are_counted_and_the_winners_told_as_ended():
    events = []
    after_learning(asker(Stalling({100: 30.0}), events=events), b"late")
    assert sum(isinstance(event, RequestEnded) for event in events) == 101
    assert sum(isinstance(event, RequestHedged) for event in events) == 1


BUSY = Reply(429, {"retry-after": "1"}, b"")


def test_a_refused_copy_is_none_and_is_sent_again_after_its_retry_after():
    """The first hangs, and the next two copies are turned away."""
    transport = Stalling(slow={100: 30.0}, replies={101: BUSY, 102: BUSY})
    events = []
    (outcome,), _ = after_learning(asker(transport, events=events), b"late")
    assert isinstance(outcome, JudgeReply)
    sent_s = [when for when, body in transport.sent if body == b"late"]
    assert len(sent_s) == 4
    # the copy's 429 comes after 0.9 s, like every reply here
    assert [later - sooner for sooner, later in pairwise(sent_s[1:])] == pytest.approx([1.9, 1.9])
    assert sent_s[-1] - sent_s[0] <= 6.0
    assert sum(isinstance(event, RequestHedged) for event in events) == 3  # what the server saw
    assert outcome.attempts == 4


def test_a_refused_copy_without_a_retry_after_is_sent_again_ever_later():
    busy = {number: Reply(429, {}, b"") for number in range(101, 105)}
    transport = Stalling(slow={100: 60.0}, replies=busy)
    (outcome,), _ = after_learning(asker(transport, timeout_s=90.0), b"late")
    assert isinstance(outcome, JudgeReply)
    sent_s = [when for when, body in transport.sent if body == b"late"]
    gaps_s = [later - sooner for sooner, later in pairwise(sent_s[1:])]
    assert gaps_s == pytest.approx([1.4, 1.9, 2.9, 4.9])


def test_a_copy_that_met_nobody_is_not_counted():
    class NobodyThere(Stalling):
        async def send(self, request, *, timeout_s):
            if len(self.sent) == 101:
                self.sent.append((asyncio.get_running_loop().time(), request.body))
                raise TransportError(FailureKind.UNREACHABLE, "no connection", sent=False)
            return await super().send(request, timeout_s=timeout_s)

    transport, events = NobodyThere(slow={100: 30.0}), []
    (outcome,), _ = after_learning(asker(transport, events=events), b"late")
    assert isinstance(outcome, JudgeReply)
    assert sum(isinstance(event, RequestHedged) for event in events) == 1


class Hedgeable:
    """A request in flight, as the scheduler sees it."""

    body = b"{}"
    queue = None
    since_s = 0.0
    copies = rejections = 0

    def copy(self, slot, reservation):
        raise AssertionError("there is no slot for a copy")


def test_a_copy_for_which_there_is_no_slot_takes_no_share_of_the_quota():
    async def main():
        rule, limiter, quota = HedgeRule(), Limiter(FixedLimit(1)), Quota(requests=1)
        for _ in range(100):
            rule.sent()
            rule.observe(1.0)
        scheduler, request = HedgeScheduler(rule, limiter, quota), Hedgeable()
        assert limiter.spare_slot() is not None  # the first send holds the only one
        scheduler.enter(request, asyncio.get_running_loop().time())
        await asyncio.sleep(5)
        scheduler.leave(request, None)
        return quota.try_reserve(b"{}")

    reservation, _ = virtually(main())
    assert reservation is not None
