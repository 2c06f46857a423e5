"""An account that is used up: no request waits for a payment, and one event reports it."""

import asyncio
import json
from itertools import pairwise
from random import Random

import pytest

from zerowait.client import EndpointStates, JudgeClient, JudgeReply, Reply
from zerowait.client.limits.breaker import Breaker
from zerowait.completion import Completion
from zerowait.config import Endpoint, Traffic
from zerowait.events import AccountExhausted, EndingUnknown, EndpointEjected, EndpointReturned
from zerowait.testing import virtually
from zerowait.types import FailureKind

GOOD = Reply(200, {}, b"{}")


class Hosts:
    """A transport to several hosts; `does(host, now_s)` is the reply."""

    def __init__(self, does, *, latency_s=1.0):
        self.does = does
        self.latency_s = latency_s
        self.sent = []  # (when, host)

    async def send(self, request, *, timeout_s):
        now_s = asyncio.get_running_loop().time()
        host = request.url.split("/")[2]
        self.sent.append((now_s, host))
        reply = self.does(host, now_s)
        await asyncio.sleep(self.latency_s)
        return reply

    async def aclose(self):
        pass

    def between(self, after_s, until_s, host="a"):
        return [when for when, where in self.sent if where == host and after_s < when < until_s]


def told(status, **error):
    return Reply(status, {}, json.dumps({"error": error}).encode())


SPENT = [
    told(429, code="insufficient_quota", message="You exceeded your current quota"),
    told(402, message="Insufficient Balance"),
    told(400, message="Your credit balance is too low to access the API"),
    told(403, message="Your account was deactivated"),
    Reply(200, {}, b'{"choices": null, "error": {"code": 402, "message": "more credits"}}'),
]


def asker(transport, *names, events=None, **traffic):
    settings = Traffic(**{"hedge": "off", **traffic})
    listener = (lambda event: None) if events is None else events.append
    return JudgeClient(
        endpoints=[Endpoint(base_url=f"http://{name}/v1", model="m") for name in names or "a"],
        transport=transport,
        endpoint_states=EndpointStates(settings, listener=listener, jitter=Random(0)),
        decode=lambda body: Completion() if body == b"{}" else None,
        traffic=settings,
        listener=listener,
        jitter=Random(0),
        wall=lambda: 0.0,
    )


def batches(client, *times_s, count=100):
    """The outcomes of so many judgements begun at each of the times, and each batch's duration."""

    async def batch(at_s):
        await asyncio.sleep(at_s)
        began_s = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(client.ask(b"%d" % n)) for n in range(count)]
        took_s = asyncio.get_running_loop().time() - began_s
        return [task.result() for task in tasks], took_s

    async def main():
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(batch(at_s)) for at_s in times_s]
        return [task.result() for task in tasks]

    found, _ = virtually(main())
    assert (client.endpoint_states.in_flight, client.endpoint_states.waiting) == (0, 0)
    return found


@pytest.mark.parametrize("spent", SPENT, ids=lambda reply: f"{reply.status} {reply.body[:60]}")
@pytest.mark.parametrize("concurrency", [1, 16, "auto"])
def test_judgements_abstain_at_once_with_the_providers_words(spent, concurrency):
    events, transport = [], Hosts(lambda host, now_s: spent, latency_s=0.01)
    client = asker(transport, concurrency=concurrency, events=events)
    (outcomes, took_s), (later, later_s) = batches(client, 0, 30)
    words = json.loads(spent.body)["error"]["message"]
    for outcome in (*outcomes, *later):
        assert outcome.kind is FailureKind.HTTP_ERROR
        assert words in outcome.detail
    assert took_s + later_s < 1.0
    assert len(transport.sent) <= 36  # those that were under way, and none of the later ones
    assert [type(e) for e in events].count(AccountExhausted) == 1


def test_it_is_looked_at_again_seldom_and_used_as_soon_as_it_is_paid():
    transport = Hosts(lambda host, now_s: SPENT[0] if now_s < 500 else GOOD, latency_s=0.01)
    events = []
    client = asker(transport, concurrency=4, events=events)
    found = batches(client, *range(0, 2400, 20), count=10)
    looks = transport.between(1, 500)
    assert 2 <= len(looks) <= 5
    gaps_s = [b - a for a, b in pairwise(looks)]
    assert all(later >= earlier for earlier, later in pairwise(gaps_s))
    assert all(
        isinstance(outcome, JudgeReply) for outcomes, _ in found[-60:] for outcome in outcomes
    )
    assert [type(e) for e in events].count(EndpointReturned) == 1


def test_an_account_that_is_used_up_is_probed_after_a_minute_and_then_ever_later():
    breaker, now_s, gaps_s = Breaker(), 0.0, []
    for _ in range(3):
        breaker.spent(now_s, (FailureKind.HTTP_ERROR, "no quota left"))
    while now_s < 2400:
        gaps_s.append(breaker.until_s - now_s)
        now_s = breaker.until_s
        breaker.request_sent(now_s)
        breaker.spent(now_s, (FailureKind.HTTP_ERROR, "no quota left"))
        breaker.request_ended()
    assert gaps_s == [60.0, 120.0, 240.0, 480.0, 600.0, 600.0, 600.0]


def test_another_endpoint_is_asked_instead():
    transport = Hosts(lambda host, now_s: SPENT[0] if host == "a" else GOOD, latency_s=0.01)
    [(outcomes, took_s)] = batches(asker(transport, "a", "b", concurrency=8), 0)
    assert all(isinstance(outcome, JudgeReply) for outcome in outcomes)
    assert len(transport.between(-1, 1e9, "a")) <= 12
    assert took_s < 5


def test_one_that_is_refused_among_others_that_are_not_harms_nobody():
    """One request in ten is told that there is no quota; the others are answered all the same."""
    client = asker(transport := Hosts(None, latency_s=0.01), concurrency=8, events=(events := []))
    transport.does = lambda host, now_s: SPENT[0] if len(transport.sent) % 10 == 5 else GOOD
    [(outcomes, _)] = batches(client, 0, count=200)
    answered = [outcome for outcome in outcomes if isinstance(outcome, JudgeReply)]
    assert len(answered) == 180
    assert EndpointEjected not in [type(event) for event in events]


def test_an_unknown_ending_is_told_once_and_names_the_key_that_accepts_it():
    odd = b'{"choices": [{"message": {"content": "7"}, "finish_reason": "natural"}]}'
    events = []
    client = asker(
        Hosts(lambda host, now_s: Reply(200, {}, odd), latency_s=0.01), attempts=2, events=events
    )
    [(outcomes, _)] = batches(client, 0, count=20)
    unknown = [event for event in events if isinstance(event, EndingUnknown)]
    assert [event.ending for event in unknown] == ["natural"]
    assert "endings: [natural]" in unknown[0].why
    assert {outcome.kind for outcome in outcomes} == {FailureKind.HTTP_ERROR}


def test_a_breakdown_told_in_a_200_waits_and_ejects_as_one_told_by_its_status():
    body = b'{"choices": null, "error": {"code": 502, "message": "upstream gone"}}'
    for bad in (Reply(200, {}, body), Reply(502, {}, body)):
        transport = Hosts(lambda host, now_s, bad=bad: bad if 2.5 <= now_s < 32.5 else GOOD)
        [(outcomes, took_s)] = batches(asker(transport, concurrency=16), 0)
        assert all(isinstance(outcome, JudgeReply) for outcome in outcomes)
        assert len(transport.sent) < 200
        assert took_s < 80
