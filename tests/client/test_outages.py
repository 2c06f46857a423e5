"""An outage of a judge: every request that can still wait is answered, without a request storm."""

import asyncio
from random import Random

import pytest

from zerowait.client import EndpointStates, JudgeClient, JudgeReply, Reply, TransportError
from zerowait.client.endpoint_state import CircuitSignal
from zerowait.completion import Completion
from zerowait.config import Endpoint, Traffic
from zerowait.testing import virtually
from zerowait.types import FailureKind

GOOD = Reply(200, {}, b"{}")
REFUSED = "connection refused"
RESET = "the connection breaks"
HANGS = "it accepts and never answers"


class Hosts:
    """A transport to several hosts; `does(host, now_s)` is a reply or one of the words above."""

    def __init__(self, does, *, latency_s=1.0):
        self.does = does
        self.latency_s = latency_s
        self.sent = []  # (when, host, body)
        self.on_wire = 0
        self.peak = 0

    async def send(self, request, *, timeout_s):
        now_s = asyncio.get_running_loop().time()
        host = request.url.split("/")[2]
        self.sent.append((now_s, host, request.body))
        self.on_wire += 1
        self.peak = max(self.peak, self.on_wire)
        try:
            return await self._answer(self.does(host, now_s), timeout_s)
        finally:
            self.on_wire -= 1

    async def _answer(self, what, timeout_s):
        if what is HANGS:
            await asyncio.sleep(timeout_s)
            raise TransportError(FailureKind.TIMEOUT, "too late")
        if what in (REFUSED, RESET):
            await asyncio.sleep(0.001)
            raise TransportError(FailureKind.UNREACHABLE, what, sent=what is RESET)
        if what.status >= 400:
            await asyncio.sleep(0.01)
            return what
        await asyncio.sleep(self.latency_s)
        return what

    async def aclose(self):
        pass

    def between(self, after_s, until_s, host="a"):
        return [when for when, where, _ in self.sent if where == host and after_s < when < until_s]


def asker(transport, *names, **traffic):
    settings = Traffic(**{"hedge": "off", **traffic})
    return JudgeClient(
        endpoints=[Endpoint(base_url=f"http://{name}/v1", model="m") for name in names or "a"],
        transport=transport,
        endpoint_states=EndpointStates(settings, jitter=Random(0)),
        decode=lambda body: Completion() if body == b"{}" else None,
        traffic=settings,
        jitter=Random(0),
        wall=lambda: 0.0,
    )


def all_of(client, count, *, at_s=0.0):
    """The outcomes of `count` judgements that are begun together, and the seconds until the last."""

    async def main():
        await asyncio.sleep(at_s)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(client.ask(b"%d" % n)) for n in range(count)]
        return [task.result() for task in tasks]

    outcomes, elapsed_s = virtually(main())
    assert (client.endpoint_states.in_flight, client.endpoint_states.waiting) == (0, 0)
    return outcomes, elapsed_s


def lost(outcomes):
    return [outcome for outcome in outcomes if not isinstance(outcome, JudgeReply)]


def down(what, begins_s, ends_s, hosts="a"):
    return lambda host, now_s: what if host in hosts and begins_s <= now_s < ends_s else GOOD


OUTAGES = [
    REFUSED,
    RESET,
    HANGS,
    *(Reply(status, {}, b"") for status in (500, 502, 503, 504, 529)),
    Reply(503, {"retry-after": "1"}, b""),
    Reply(503, {"retry-after": "20"}, b""),
    Reply(429, {}, b""),
    Reply(429, {"retry-after": "2"}, b""),
]


@pytest.mark.parametrize("what", OUTAGES, ids=str)
@pytest.mark.parametrize(("lasts_s", "concurrency"), [(15, 32), (150, "auto"), (280, 8)])
def test_an_outage_that_is_shorter_than_the_deadline_costs_no_judgement(what, lasts_s, concurrency):
    transport = Hosts(down(what, 2.5, 2.5 + lasts_s))
    outcomes, elapsed_s = all_of(asker(transport, concurrency=concurrency), 200)
    assert lost(outcomes) == []
    assert elapsed_s <= lasts_s + 200 / 8 + 60


@pytest.mark.parametrize("what", OUTAGES, ids=str)
def test_the_few_who_look_whether_it_is_back_do_not_storm_it(what):
    transport = Hosts(down(what, 2.5, 62.5))
    all_of(asker(transport, concurrency=64), 400)
    assert len(transport.between(5.0, 62.5)) <= 64
    assert transport.peak <= 64


def test_a_lone_judgement_waits_for_its_restarted_judge():
    """No other request tells whether the endpoint or the request is at fault."""
    transport = Hosts(down(REFUSED, 5, 65))
    client = asker(transport)

    async def main():
        first = await client.ask(b"1")
        await asyncio.sleep(10)
        return first, await client.ask(b"2")

    outcomes, elapsed_s = virtually(main())
    assert lost(outcomes) == []
    assert 65 <= elapsed_s <= 82


@pytest.mark.parametrize("what", [REFUSED, Reply(503, {}, b""), Reply(429, {}, b"")], ids=str)
@pytest.mark.parametrize("count", [1, 500])
def test_a_judge_that_never_answered_fails_soon(what, count):
    """However many there are, and however few slots a rejection leaves."""
    outcomes, elapsed_s = all_of(asker(Hosts(down(what, 0, 1e9))), count)
    assert len(lost(outcomes)) == count
    assert elapsed_s <= 40


@pytest.mark.parametrize("what", [REFUSED, Reply(500, {}, b""), Reply(429, {}, b"")], ids=str)
def test_a_judge_that_does_not_come_back_is_waited_for_once_and_for_no_longer_than_a_deadline(what):
    client = asker(Hosts(down(what, 2.5, 1e9)), concurrency=8, deadline_s=100)

    async def main():
        clock = asyncio.get_running_loop().time
        steps = []
        for _ in range(3):
            began_s = clock()
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(client.ask(b"{}")) for _ in range(40)]
            steps.append(([task.result() for task in tasks], clock() - began_s))
        return steps

    (first, first_s), (second, second_s), (third, third_s) = virtually(main())[0]
    assert 0 < len(lost(first)) < 40
    assert "http://a/v1/chat/completions: " in lost(first)[-1].detail
    assert "; it was not back before the deadline (after " in lost(first)[-1].detail
    assert first_s <= 105
    assert len(lost(second)) == len(lost(third)) == 40
    assert max(second_s, third_s) <= 40


@pytest.mark.parametrize("status", [500, 503])
def test_a_request_that_always_fails_does_not_keep_the_others_waiting(status):
    """The server is well, and fails on one in twenty requests of every client."""

    class Poisoned(Hosts):
        async def send(self, request, *, timeout_s):
            if int(request.body) % 20 == 19:
                await asyncio.sleep(0.01)
                self.sent.append((0.0, "a", request.body))
                return Reply(status, {}, b"")
            return await super().send(request, timeout_s=timeout_s)

    transport = Poisoned(lambda host, now_s: GOOD)
    outcomes, elapsed_s = all_of(asker(transport, concurrency=16), 400)
    assert len(lost(outcomes)) == 20
    assert elapsed_s <= 330


@pytest.mark.parametrize("concurrency", [100, "auto"])
def test_requests_that_are_refused_for_their_own_sake_at_the_end_of_a_batch_do_not_hold_it_up(
    concurrency,
):
    """Nobody else is left to be answered then, and they fail as if the judge were away."""

    class Picky(Hosts):
        async def send(self, request, *, timeout_s):
            number = int(request.body)
            refused = Reply(429, {"retry-after": "1"}, b"")
            self.does = lambda *_: refused if number % 95 == 5 else GOOD
            self.latency_s = 0.1 + number * 7919 % 100 / 250
            return await super().send(request, timeout_s=timeout_s)

    outcomes, elapsed_s = all_of(asker(Picky(None), concurrency=concurrency), 2000)
    assert {outcome.kind.value for outcome in lost(outcomes)} == {"rate_limited"}
    assert len(lost(outcomes)) == 21
    assert elapsed_s < 2000 * 0.3 / 32 + 10


def test_those_who_wait_for_a_dead_judge_hold_no_slot_that_another_judge_needs():
    settings = Traffic(concurrency=8, hedge="off")
    endpoint_states = EndpointStates(settings, jitter=Random(0))
    transport = Hosts(down(REFUSED, 5, 1e9))
    dead, well = (
        JudgeClient(
            endpoints=[Endpoint(base_url=f"http://{name}/v1", model="m")],
            transport=transport,
            endpoint_states=endpoint_states,
            decode=lambda body: Completion() if body == b"{}" else None,
            traffic=settings,
        )
        for name in "ab"
    )

    async def main():
        await dead.ask(b"1")
        await asyncio.sleep(10)
        began_s = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(dead.ask(b"2")) for _ in range(100)]
            await asyncio.sleep(3)
            answers = [await group.create_task(well.ask(b"3")) for _ in range(5)]
            took_s = asyncio.get_running_loop().time() - began_s
            for task in waiting:
                task.cancel()
        return answers, took_s

    (answers, took_s), _ = virtually(main())
    assert lost(answers) == []
    assert took_s <= 10
    assert (endpoint_states.in_flight, endpoint_states.waiting) == (0, 0)


@pytest.mark.parametrize("what", [HANGS, REFUSED, Reply(500, {}, b"")], ids=str)
@pytest.mark.parametrize("traffic", [{}, {"concurrency": 8}, {"rpm": 600}], ids=str)
def test_no_request_queues_at_an_endpoint_that_is_ejected(what, traffic):
    """What hangs gives its slot back after a minute; those in line must not wait for it."""
    transport = Hosts(down(what, 1.5, 1e9))
    client = asker(transport, *"ab", max_concurrency=8, timeout_s=10.0, **traffic)
    outcomes, elapsed_s = all_of(client, 400)
    assert lost(outcomes) == []
    assert elapsed_s <= 400 / 8 + 25


def test_those_who_wait_for_one_endpoint_go_to_the_other_when_it_is_back():
    """Both were away; the one they were at would have been asked in four minutes."""
    soon, late = Reply(503, {}, b""), Reply(503, {"retry-after": "240"}, b"")

    def does(host, now_s):
        if now_s < 3:
            return GOOD
        return late if host == "a" else (soon if now_s < 30 else GOOD)

    outcomes, elapsed_s = all_of(asker(Hosts(does), *"ab", max_concurrency=4), 100)
    assert lost(outcomes) == []
    assert elapsed_s <= 30 + 16 + 100 / 4 + 5


DAY = [
    Reply(429, {"retry-after": "86400"}, b""),
    Reply(429, {"retry-after": "7200", "x-ratelimit-remaining-requests": "0"}, b""),
    Reply(503, {"retry-after": "7200"}, b""),
    Reply(
        429,
        {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "7h12m0s"},
        b"",
    ),
]


@pytest.mark.parametrize("what", DAY, ids=str)
@pytest.mark.parametrize("begins_s", [0, 2.5])
@pytest.mark.parametrize("traffic", [{}, {"concurrency": 8}, {"rpm": 6000}], ids=str)
def test_a_quota_of_the_day_that_is_used_up_ends_judgements_at_once_and_says_why(
    what, begins_s, traffic
):
    transport = Hosts(down(what, begins_s, 1e9))
    client = asker(transport, **traffic)
    outcomes, elapsed_s = all_of(client, 400)
    assert elapsed_s <= begins_s + 5
    assert len(transport.between(begins_s + 1.5, 1e9)) == 0
    assert {outcome.kind for outcome in lost(outcomes)} <= {
        FailureKind.RATE_LIMITED,
        FailureKind.HTTP_ERROR,
    }
    assert all("deadline" in outcome.detail for outcome in lost(outcomes))
    assert len(lost(outcomes)) >= 100


@pytest.mark.parametrize("what", DAY, ids=str)
@pytest.mark.parametrize("traffic", [{}, {"concurrency": 8}, {"rpm": 6000}], ids=str)
def test_a_quota_of_the_day_that_is_used_up_costs_nothing_where_another_endpoint_has_some(
    what, traffic
):
    transport = Hosts(down(what, 2.5, 1e9))
    outcomes, elapsed_s = all_of(asker(transport, *"ab", max_concurrency=8, **traffic), 200)
    assert lost(outcomes) == []
    assert elapsed_s <= 200 / 8 + 10


def test_an_endpoint_is_not_asked_before_the_time_it_named_and_then_by_one():
    transport = Hosts(down(Reply(503, {"retry-after": "90"}, b""), 2.5, 30))
    outcomes, _ = all_of(asker(transport, concurrency=8), 100)
    assert lost(outcomes) == []
    assert transport.between(3.6, 92.4) == []
    assert len(transport.between(92.4, 93.4)) == 1


def test_a_server_that_names_an_hour_to_those_it_has_no_room_for_loses_no_others():
    """429 for a number in flight, with a wait that cannot be meant: those in flight prove it."""

    class Small(Hosts):
        async def _answer(self, what, timeout_s):
            if self.on_wire > 20:
                what = Reply(429, {"retry-after": "3600"}, b"")
            return await super()._answer(what, timeout_s)

    outcomes, elapsed_s = all_of(asker(Small(lambda host, now_s: GOOD)), 400)
    refused = [outcome for outcome in lost(outcomes) if "after 1 attempt" in outcome.detail]
    assert lost(outcomes) == refused
    assert len(refused) <= 40
    assert elapsed_s <= 400 / 20 * 1.5


def test_a_circuit_may_open_again_before_all_have_left_its_queues():
    async def main():
        circuit = CircuitSignal()
        waiting = [
            asyncio.create_task(circuit.unless_woken(asyncio.sleep(9.0, "in"))) for _ in range(3)
        ]
        await asyncio.sleep(0)
        circuit.wake()
        await asyncio.sleep(0)
        circuit.wake()
        late = asyncio.create_task(circuit.unless_woken(asyncio.sleep(9.0, "in")))
        await asyncio.wait([*waiting, late])
        return [task.result() for task in (*waiting, late)]

    assert virtually(main())[0] == [None, None, None, "in"]


@pytest.mark.parametrize("cancel_at_s", [1.0, 10.0, 61.0, 63.0])
def test_who_is_cancelled_in_an_outage_leaves_nothing_behind_and_stops_nobody(cancel_at_s):
    client = asker(Hosts(down(REFUSED, 2.5, 62.5)), concurrency=8)

    async def main():
        tasks = [asyncio.create_task(client.ask(b"{}")) for _ in range(100)]
        await asyncio.sleep(cancel_at_s)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.wait(tasks)
        return [task.result() for task in tasks if not task.cancelled()]

    outcomes, _ = virtually(main())
    assert lost(outcomes) == []
    assert (client.endpoint_states.in_flight, client.endpoint_states.waiting) == (0, 0)
