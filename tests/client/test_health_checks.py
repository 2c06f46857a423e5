"""Who is at fault when the last requests of a batch fail: an answered one is sent once more."""

import asyncio
import itertools
from collections import Counter
from dataclasses import replace
from random import Random

import msgspec
import pytest

from zerowait.client import EndpointStates, JudgeClient, JudgeReply, Reply, TransportError
from zerowait.client.cost import BudgetSpentError
from zerowait.completion import Completion
from zerowait.config import Endpoint, Traffic
from zerowait.events import AccountExhausted, EndpointEjected, EndpointReturned, RequestEnded
from zerowait.testing import virtually
from zerowait.types import FailureKind

GOOD = Reply(200, {}, b"{}")
REFUSED = "connection refused"
RESET = "the connection breaks"
TOO_LARGE = b'{"error": {"message": "too large for this model"}}'
CHECK = "(health check "


def status(code, **headers):
    return Reply(code, {name.replace("_", "-"): value for name, value in headers.items()}, b"")


class Server:
    """A transport; `does(number, nth, now_s)` is what the nth send of a request meets.

    A health check has the number of the request that it copies, and its nth is 0.
    """

    def __init__(self, does, *, latency_s=1.0):
        self.does = does
        self.latency_s = latency_s
        self.sent = []  # (when, host, number, whether it is a health check)
        self.bodies = []
        self.times = Counter()
        self.checks_under_way = self.most_checks = 0

    async def send(self, request, *, timeout_s):
        now_s = asyncio.get_running_loop().time()
        text = msgspec.json.decode(request.body)["messages"][0]["content"]
        number, is_check = int(text.split()[0]), CHECK in text
        self.times[number] += not is_check
        self.sent.append((now_s, request.url.split("/")[2], number, is_check))
        self.bodies.append(request.body)
        self.checks_under_way += is_check
        self.most_checks = max(self.most_checks, self.checks_under_way)
        try:
            what = self.does(number, 0 if is_check else self.times[number], now_s)
            return await self._reply(what, timeout_s)
        finally:
            self.checks_under_way -= is_check

    async def _reply(self, what, timeout_s):
        if what is None:
            await asyncio.sleep(timeout_s)
            raise TransportError(FailureKind.TIMEOUT, "too late")
        if isinstance(what, str):
            await asyncio.sleep(0.001)
            raise TransportError(FailureKind.UNREACHABLE, what, sent=what is RESET)
        await asyncio.sleep(self.latency_s if what.status == 200 else 0.01)
        return what

    async def aclose(self):
        pass

    @property
    def checks(self):
        return [when for when, _, _, is_check in self.sent if is_check]


def asker(transport, hosts="a", *, events=None, **traffic):
    settings = Traffic(**traffic)
    listener = (lambda event: None) if events is None else events.append
    return JudgeClient(
        endpoints=[Endpoint(base_url=f"http://{host}/v1", model="m") for host in hosts],
        transport=transport,
        endpoint_states=EndpointStates(settings, listener=listener, jitter=Random(0)),
        decode=lambda body: Completion() if body == b"{}" else None,
        traffic=settings,
        listener=listener,
        jitter=Random(0),
        wall=lambda: 0.0,
    )


def body(number):
    return msgspec.json.encode({"messages": [{"role": "user", "content": f"{number} is asked"}]})


def all_of(client, count, *, after_s=0.0):
    """The outcomes of `count` requests that are begun together, and the seconds until the last.

    Where they begin after some time, one more is answered before.
    """

    async def main():
        if after_s > 0:
            await client.ask(body(10_000))
            await asyncio.sleep(after_s - asyncio.get_running_loop().time())
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(client.ask(body(n))) for n in range(count)]
        return [task.result() for task in tasks]

    outcomes, elapsed_s = virtually(main())
    assert (client.endpoint_states.in_flight, client.endpoint_states.waiting) == (0, 0)
    return outcomes, elapsed_s - after_s


def lost(outcomes):
    return [outcome for outcome in outcomes if not isinstance(outcome, JudgeReply)]


OWN = [
    RESET,
    status(429),
    status(429, retry_after="1"),
    *(Reply(code, {}, TOO_LARGE) for code in (500, 502, 503, 504, 529)),
]


LASTS = [(last, {"concurrency": 8, "hedge": "off"}) for last in (1, 3, 8)]
LASTS += [(3, {"concurrency": 64}), (3, {})]
# `make test` has every number with each of these.
MORE = [(last, traffic) for last in (1, 8) for traffic in ({"concurrency": 64}, {})]


@pytest.mark.parametrize("what", OWN, ids=str)
@pytest.mark.parametrize("hosts", ["a", "ab", "abc"])
@pytest.mark.parametrize(
    ("last", "traffic"),
    [*LASTS, *(pytest.param(*more, marks=pytest.mark.wire) for more in MORE)],
    ids=str,
)
def test_the_last_of_a_batch_that_fail_for_their_own_sake_end_it_within_seconds(
    what, hosts, last, traffic
):
    """Nobody else is left to be answered, and they look like an endpoint that is down."""
    server = Server(lambda number, nth, now_s: what if number >= 64 - last and nth else GOOD)
    outcomes, elapsed_s = all_of(asker(server, hosts, **traffic), 64)
    assert len(lost(outcomes)) == last
    assert isinstance(outcomes[63 - last], JudgeReply)
    assert all("attempts)" in outcome.detail for outcome in lost(outcomes))
    assert not any("deadline" in outcome.detail for outcome in lost(outcomes))
    assert elapsed_s <= 64 / 8 + 60
    assert max(server.times.values()) <= 30


@pytest.mark.parametrize("what", [REFUSED, *OWN], ids=str)
@pytest.mark.parametrize("hosts", ["a", "ab"])
def test_the_last_of_a_batch_that_fail_three_times_are_answered_a_few_seconds_later(what, hosts):
    server = Server(lambda number, nth, now_s: what if number >= 56 and 1 <= nth <= 3 else GOOD)
    outcomes, elapsed_s = all_of(asker(server, hosts, concurrency=8, hedge="off"), 64)
    assert lost(outcomes) == []
    assert elapsed_s <= 64 / 8 + 10


@pytest.mark.parametrize("what", [REFUSED, *OWN], ids=str)
@pytest.mark.parametrize("count", [1, 2, 3, 20])
@pytest.mark.parametrize("lasts_s", [20, 200])
def test_a_few_that_meet_an_outage_are_all_answered_when_it_is_over(what, count, lasts_s):
    """Their probes are not their attempts: what fails then is the endpoint, as its check says."""
    server = Server(lambda number, nth, now_s: what if 2 <= now_s < 2 + lasts_s else GOOD)
    client = asker(server, concurrency=8, hedge="off")
    outcomes, elapsed_s = all_of(client, count, after_s=2.5)
    assert lost(outcomes) == []
    assert elapsed_s <= 1.1 * lasts_s + 20
    assert len(server.sent) <= 100 + count


@pytest.mark.parametrize("what", [REFUSED, *OWN], ids=str)
@pytest.mark.parametrize("spans", [[(2.5, 10), (12, 40)], [(n, n + 8) for n in range(2, 50, 10)]])
@pytest.mark.parametrize("concurrency", [8, 64])
def test_an_outage_does_not_count_against_those_that_meet_the_next_one(what, spans, concurrency):
    """A server that dies, comes back and dies again: nothing was wrong with its requests."""

    def does(number, nth, now_s):
        return what if any(begin <= now_s < end for begin, end in spans) else GOOD

    outcomes, _ = all_of(asker(Server(does), concurrency=concurrency, hedge="off"), 200)
    assert lost(outcomes) == []


@pytest.mark.parametrize("what", [RESET, *(status(code) for code in (429, 500, 504))], ids=str)
@pytest.mark.parametrize("hosts", ["a", "ab", "abc"])
@pytest.mark.parametrize("attempts", [2, 4, 6])
def test_a_lone_request_waits_for_its_endpoints_when_all_fail(what, hosts, attempts):
    """It alone opens no circuit breaker: before its attempts are over, a health check does."""
    server = Server(lambda number, nth, now_s: what if 5 <= now_s < 65 else GOOD)
    events = []
    client = asker(server, hosts, events=events, hedge="off", attempts=attempts)

    async def main():
        async with asyncio.TaskGroup() as group:
            for number, _ in enumerate(hosts):
                group.create_task(client.ask(body(number)))
        await asyncio.sleep(5)
        return await client.ask(body(10))

    outcome, elapsed_s = virtually(main())
    assert isinstance(outcome, JudgeReply)
    assert 65 <= elapsed_s <= 80
    told = [type(each) for each in events if isinstance(each, EndpointEjected | EndpointReturned)]
    assert told.count(EndpointEjected) == len(hosts)
    assert told[-1] is EndpointReturned


@pytest.mark.parametrize("attempts", [2, 3, 6, 20])
def test_a_lone_request_that_fails_for_its_own_sake_ejects_nobody(attempts):
    """One health check shows that its endpoint is well, and its failures are counted."""
    server = Server(lambda number, nth, now_s: status(500) if number == 0 and nth else GOOD)
    events = []
    client = asker(server, events=events, hedge="off", attempts=attempts)
    (outcome,), elapsed_s = all_of(client, 1, after_s=2)
    assert f"(after {attempts} attempts)" in outcome.detail
    assert len(server.checks) == 1
    assert not any(isinstance(event, EndpointEjected) for event in events)
    assert elapsed_s <= 30


def test_a_lone_request_that_fails_at_an_endpoint_which_never_answered_ends_by_its_attempts():
    """Nothing was answered that could be sent once more, and the address may be wrong."""
    server = Server(lambda *_: status(500))
    (outcome,), elapsed_s = all_of(asker(server, hedge="off"), 1)
    assert "(after 6 attempts)" in outcome.detail
    assert server.checks == []
    assert elapsed_s <= 20


def test_a_lone_request_that_finds_the_account_empty_by_its_health_check_says_so():
    empty = Reply(402, {}, b'{"error": {"message": "Insufficient Balance"}}')
    server = Server(
        lambda number, nth, now_s: status(500) if number == 0 else (GOOD if nth else empty)
    )
    (outcome,), elapsed_s = all_of(asker(server, hedge="off"), 1, after_s=2)
    assert "Insufficient Balance" in outcome.detail
    assert len(server.checks) == 1
    assert elapsed_s <= 10


def test_a_health_check_in_its_place_that_cannot_be_sent_is_reported_to_the_request():
    """It needs the same: no budget is left for either."""

    class Broke(Server):
        async def send(self, request, *, timeout_s):
            if CHECK.encode() in request.body:
                raise BudgetSpentError("nothing is left")
            return await super().send(request, timeout_s=timeout_s)

    client = asker(Broke(lambda number, nth, now_s: GOOD if number else status(500)), hedge="off")

    async def main():
        await client.ask(body(1))
        with pytest.raises(BudgetSpentError):
            await client.ask(body(0))
        return client.endpoint_states.in_flight, client.endpoint_states.waiting

    assert virtually(main())[0] == (0, 0)


def test_a_request_that_is_refused_beside_others_needs_no_health_check():
    """Too much is in flight, perhaps, and those are about to be answered."""
    server = Server(
        lambda number, nth, now_s: status(429) if number < 2 and now_s < 20 else GOOD,
        latency_s=25.0,
    )
    outcomes, _ = all_of(asker(server, concurrency=8, hedge="off", attempts=20), 8, after_s=26)
    assert lost(outcomes) == []
    assert server.checks == []


def test_a_health_check_has_its_time_where_the_request_that_it_goes_before_has_none_left():
    """That request abstains at its deadline; how the check ends is known later, and true."""
    server = Server(lambda number, nth, now_s: RESET if number < 3 and nth else GOOD, latency_s=9.0)
    events = []
    client = asker(server, events=events, concurrency=8, hedge="off")

    async def main():
        clock = asyncio.get_running_loop().time
        await client.ask(body(100))
        began_s = clock()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(client.ask(body(n), deadline_s=5.0)) for n in range(3)]
        ended_s = clock()
        answer = await client.ask(body(5))
        return [task.result() for task in tasks], ended_s - began_s, answer, clock() - ended_s

    (outcomes, lasted_s, answer, waited_s), _ = virtually(main())
    assert len(lost(outcomes)) == 3
    assert all("not back before the deadline" in outcome.detail for outcome in lost(outcomes))
    assert lasted_s == pytest.approx(5.0)
    assert isinstance(answer, JudgeReply)
    assert waited_s <= 9 + 9
    assert len(server.checks) == 1
    told = [type(each) for each in events if isinstance(each, EndpointEjected | EndpointReturned)]
    assert told == [EndpointEjected, EndpointReturned]
    assert (client.endpoint_states.in_flight, client.endpoint_states.waiting) == (0, 0)


def test_a_lone_request_waits_for_its_endpoints_when_all_refuse_connections():
    """It meets each of them too seldom to open its circuit breaker before its attempts are over."""
    server = Server(lambda number, nth, now_s: REFUSED if 2 <= now_s < 62 else GOOD)
    client = asker(server, "ab", hedge="off", attempts=4)

    async def main():
        async with asyncio.TaskGroup() as group:
            for number in (1, 2):  # one for each endpoint
                group.create_task(client.ask(body(number)))
        await asyncio.sleep(2)
        return await client.ask(body(3))

    outcome, elapsed_s = virtually(main())
    assert isinstance(outcome, JudgeReply)
    assert 62 <= elapsed_s <= 75


def test_a_health_check_is_a_copy_of_an_answered_request_that_no_cache_knows():
    """One more sentence at its end: a gateway that kept the answer would vouch for a dead server."""
    known = {}

    def gateway(number, nth, now_s):
        text = server.bodies[-1]
        if now_s < 2 or now_s >= 60:
            known[text] = GOOD
        return known.get(text, Reply(500, {}, b""))

    server = Server(gateway)
    outcomes, elapsed_s = all_of(asker(server, concurrency=8, hedge="off"), 20, after_s=2.5)
    assert lost(outcomes) == []
    assert elapsed_s >= 57
    copies = [text for text in server.bodies if CHECK.encode() in text]
    assert len(copies) == len(set(copies)) >= 10
    asked = msgspec.json.decode(copies[0])["messages"][0]["content"]
    assert asked.startswith("10000 is asked\n(health check ")


@pytest.mark.parametrize(
    "request_body",
    [
        {"messages": [{"content": [{"image_url": {}, "type": "image_url"}, {"text": "Judge."}]}]},
        {"input": [{"content": [{"text": "Judge.", "type": "input_text"}]}]},
        {"prompt": "Judge.\n\nAnswer:"},
        {"text_1": "A question.", "text_2": "Judge."},
        {"input": "Judge."},
        {"messages": [{"content": [{"text": "Judge."}, {"image_url": {}, "type": "image_url"}]}]},
    ],
    ids=["pictures", "responses", "completions", "score", "one text", "a picture last"],
)
def test_no_cache_answers_a_health_check_of_any_api(request_body):
    """Its words are part of the prompt wherever that is; a base model still reads Answer: last."""
    sent = []

    class Gateway:
        async def send(self, request, *, timeout_s):
            sent.append(request.body)
            await asyncio.sleep(0.1)
            if b"Judge." in request.body:
                return GOOD
            raise TransportError(FailureKind.UNREACHABLE, RESET)

        async def aclose(self):
            pass

    async def main():
        client = asker(Gateway(), hedge="off")
        await client.ask(msgspec.json.encode(request_body))
        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(client.ask(b"%d" % number))

    virtually(main())
    checks = [body for body in sent[1:] if b"Judge." in body]
    assert checks
    assert all(b"Judge.\\n(health check " in check for check in checks)
    assert all((b'Answer:"' in check) == ("prompt" in request_body) for check in checks)


def test_the_quickest_answer_is_the_one_that_is_asked_for_again():
    server = Server(lambda number, nth, now_s: RESET if number >= 8 and nth else GOOD)
    waits = {3: 0.2, 5: 0.7}

    async def main():
        client = asker(server, concurrency=1, hedge="off")
        for number in range(8):
            server.latency_s = waits.get(number, 1.0)
            await client.ask(body(number))
        async with asyncio.TaskGroup() as group:
            for number in (8, 9, 10):
                group.create_task(client.ask(body(number)))

    virtually(main())
    assert {number for _, _, number, is_check in server.sent if is_check} == {3}


def test_one_health_check_is_under_way_at_a_time_however_slow_the_judge_is():
    server = Server(
        lambda number, nth, now_s: RESET if number >= 56 and nth else GOOD, latency_s=30.0
    )
    outcomes, elapsed_s = all_of(asker(server, concurrency=8, hedge="off"), 64)
    assert len(lost(outcomes)) == 8
    assert 1 <= server.most_checks <= 2  # one that takes more than 15 s may hang
    assert len(server.checks) <= 3
    assert elapsed_s <= 64 / 8 * 30 + 45


def test_a_health_check_that_hangs_keeps_nobody_waiting():
    """The other rows are probes meanwhile, and one of them is answered."""

    def does(number, nth, now_s):
        if nth == 0:
            return None
        return RESET if 2 <= now_s < 5 else GOOD

    outcomes, elapsed_s = all_of(asker(Server(does), concurrency=8, hedge="off"), 8, after_s=2.5)
    assert lost(outcomes) == []
    assert elapsed_s <= 60 + 10


@pytest.mark.parametrize("cancel_at_s", [2.6, 2.9, 3.2, 3.5, 5.0, 9.0])
def test_who_is_cancelled_with_a_health_check_leaves_nothing_behind(cancel_at_s):
    """Another one carries the next health check."""
    server = Server(lambda number, nth, now_s: RESET if number < 8 and nth else GOOD)
    client = asker(server, concurrency=8, hedge="off")

    async def main():
        await client.ask(body(100))
        await asyncio.sleep(1.5)
        tasks = [asyncio.create_task(client.ask(body(n))) for n in range(8)]
        await asyncio.sleep(cancel_at_s - 2.5)
        for task in tasks[:4]:
            task.cancel()
        await asyncio.wait(tasks)
        return [task.result() for task in tasks if not task.cancelled()]

    outcomes, elapsed_s = virtually(main())
    assert len(lost(outcomes)) == len(outcomes) >= 4
    assert (client.endpoint_states.in_flight, client.endpoint_states.waiting) == (0, 0)
    assert elapsed_s <= 60


def test_a_health_check_is_no_attempt():
    events = []
    server = Server(lambda number, nth, now_s: RESET if number >= 8 and nth else GOOD)
    client = asker(server, events=events, concurrency=8, rpm=600, hedge="off", attempts=4)
    outcomes, _ = all_of(client, 11)
    assert [outcome.detail.rpartition("(")[2] for outcome in lost(outcomes)] == [
        f"after {server.times[number]} attempts)" for number in (8, 9, 10)
    ]
    assert len(server.checks) == 1
    told = [
        type(event) for event in events if isinstance(event, EndpointEjected | EndpointReturned)
    ]
    assert told == [EndpointEjected, EndpointReturned]


@pytest.mark.parametrize("hosts", ["a", "ab"])
@pytest.mark.parametrize("rpm", [1, 6])
def test_a_judge_with_few_requests_a_minute_gets_no_health_check_beyond_them(hosts, rpm):
    """The provider counts it like any other, and would refuse it: a sound endpoint would be down."""
    allowed_s = dict.fromkeys(hosts, 0.0)

    def does(number, nth, now_s):
        host = server.sent[-1][1]
        if now_s < allowed_s[host] - 0.001:
            return status(429, retry_after=f"{60 / rpm:g}")
        allowed_s[host] = max(allowed_s[host], now_s) + 60 / rpm
        return RESET if number >= 4 and nth else GOOD

    server, events = Server(does), []
    outcomes, _ = all_of(asker(server, hosts, rpm=rpm, hedge="off", events=events), 8)
    assert len(lost(outcomes)) == 4
    assert server.checks
    statuses = [event.status for event in events if isinstance(event, RequestEnded)]
    assert len(statuses) == len(server.sent)
    assert 429 not in statuses


def test_an_endpoint_that_refuses_a_health_check_is_up():
    """It has read it: only one that answers nothing, or a 5xx, is down."""
    refused = Reply(400, {}, TOO_LARGE)
    server = Server(
        lambda number, nth, now_s: GOOD if number < 8 and nth else (RESET if nth else refused)
    )
    outcomes, elapsed_s = all_of(asker(server, concurrency=8, hedge="off"), 16)
    assert len(lost(outcomes)) == 8
    assert elapsed_s <= 60


def test_a_health_check_that_finds_the_account_empty_ends_the_batch_with_these_words():
    empty = Reply(402, {}, b'{"error": {"message": "Insufficient Balance"}}')
    server = Server(
        lambda number, nth, now_s: GOOD if number < 8 and nth else (RESET if nth else empty)
    )
    events = []
    outcomes, elapsed_s = all_of(asker(server, events=events, concurrency=8, hedge="off"), 16)
    assert len(lost(outcomes)) == 8
    assert "Insufficient Balance" in lost(outcomes)[0].detail
    assert sum(isinstance(event, AccountExhausted) for event in events) == 1
    assert elapsed_s <= 60


def test_a_body_of_another_kind_is_repeated_as_it_is():
    """A program for a sandbox has no prompt to which words could be added."""
    sent = []

    class Sandbox:
        async def send(self, request, *, timeout_s):
            sent.append(request.body)
            await asyncio.sleep(0.1)
            if request.body == b"sound":
                return GOOD
            raise TransportError(FailureKind.UNREACHABLE, "reset")

        async def aclose(self):
            pass

    async def main():
        client = asker(Sandbox(), hedge="off")
        await client.ask(b"sound")
        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(client.ask(b"%d" % number))

    _, elapsed_s = virtually(main())
    assert elapsed_s <= 60
    assert sent.count(b"sound") == 2


def test_a_short_wait_that_was_named_is_not_taken_for_the_longer_one_of_our_own():
    """The breaker rests up to 15 s between probes; the provider has asked for 1 s."""
    limited = status(429, retry_after="1")
    server = Server(lambda number, nth, now_s: limited if now_s >= 2 else GOOD)
    client = asker(server, concurrency=8, hedge="off", deadline_s=120)
    outcomes, elapsed_s = all_of(client, 20, after_s=2.5)
    assert len(lost(outcomes)) == 20
    assert all("deadline" in outcome.detail for outcome in lost(outcomes))
    assert elapsed_s >= 100
    times_s = [when for when, *_ in server.sent]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times_s)]
    assert max(gaps) <= 16


@pytest.mark.parametrize("hosts", ["a", "ab"])
def test_those_that_wait_in_an_outage_are_told_when_the_account_turns_out_to_be_empty(hosts):
    """Only a payment helps then; without a word they would wait for the next look at it."""
    empty = Reply(402, {}, b'{"error": {"message": "Insufficient Balance"}}')

    def does(number, nth, now_s):
        return GOOD if now_s < 2 else (status(503) if now_s < 12 else empty)

    client = asker(Server(does), hosts, concurrency=8, hedge="off")
    outcomes, elapsed_s = all_of(client, 20, after_s=2.5)
    assert len(lost(outcomes)) == 20
    assert all("Insufficient Balance" in outcome.detail for outcome in lost(outcomes))
    assert elapsed_s <= 30


HANGS = None


class OneOfTwo(Server):
    """Endpoint a meets `fails` from `begins_s` to `ends_s`; endpoint b is always well."""

    def __init__(self, fails, begins_s, ends_s=1e9):
        super().__init__(lambda *_: GOOD)
        self.fails, self.begins_s, self.ends_s = fails, begins_s, ends_s

    async def send(self, request, *, timeout_s):
        now_s = asyncio.get_running_loop().time()
        if request.url.startswith("http://a/") and self.begins_s <= now_s < self.ends_s:
            text = msgspec.json.decode(request.body)["messages"][0]["content"]
            self.sent.append((now_s, "a", int(text.split()[0]), CHECK in text))
            return await self._reply(self.fails, timeout_s)
        return await super().send(request, timeout_s=timeout_s)

    def requests_at_a(self, after_s, until_s=1e9):
        return [
            number
            for when, host, number, is_check in self.sent
            if host == "a" and not is_check and after_s <= when < until_s
        ]


def batches(client, count, size):
    """The outcomes, the longest of `count` batches behind the first two, and when all ended."""

    async def main():
        clock = asyncio.get_running_loop().time
        outcomes, took_s = [], []
        for _ in range(count + 2):
            began_s = clock()
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(client.ask(body(n))) for n in range(size)]
            outcomes += [task.result() for task in tasks]
            took_s.append(clock() - began_s)
        ended_s = clock()
        await client.endpoint_states.aclose()
        return outcomes, max(took_s[2:]), ended_s

    result, _ = virtually(main())
    assert (client.endpoint_states.in_flight, client.endpoint_states.waiting) == (0, 0)
    return result


@pytest.mark.parametrize("fails", [HANGS, REFUSED, RESET, status(429), status(503)], ids=str)
@pytest.mark.parametrize("begins_s", [0, 0.5])
@pytest.mark.parametrize("traffic", [{"concurrency": 16}, {}], ids=str)
def test_an_endpoint_that_stays_away_costs_no_batch_a_probe(fails, begins_s, traffic):
    """Health checks look whether it is back, beside the requests that the other endpoint gets."""
    server = OneOfTwo(fails, begins_s)
    client = asker(server, "ab", hedge="off", **traffic)
    outcomes, longest_s, _ = batches(client, 12, 64)
    assert lost(outcomes) == []
    assert longest_s <= 64 / 16 + 3
    assert server.requests_at_a(after_s=80) == []


@pytest.mark.parametrize("fails", [HANGS, REFUSED, RESET, status(503)], ids=str)
@pytest.mark.parametrize("begins_s", [0, 0.5])
def test_an_endpoint_that_a_health_check_finds_well_gets_requests_again(fails, begins_s):
    server = OneOfTwo(fails, begins_s, 120)
    client = asker(server, "ab", hedge="off", concurrency=8)
    _, _, ended_s = batches(client, 70, 24)
    assert ended_s > 200
    assert len(server.requests_at_a(after_s=140)) >= 50


def test_closing_ends_a_health_check_that_hangs():
    server = OneOfTwo(HANGS, 0)
    client = asker(server, "ab", hedge="off", concurrency=32, timeout_s=5.0)

    async def main():
        states, clock = client.endpoint_states, asyncio.get_running_loop().time
        while not server.checks:
            await client.ask(body(1))
        began_s = clock()
        await states.aclose()
        await states.aclose()
        endpoint = client.endpoints[0]
        return states.of(endpoint).limiter.on_wire, clock() - began_s

    assert virtually(main())[0] == (0, 0.0)


def test_a_health_check_that_cannot_be_sent_is_no_failure_of_anybody():
    """The budget is spent, say: the next request that needs it will report that."""

    class Broke(OneOfTwo):
        async def send(self, request, *, timeout_s):
            if CHECK.encode() in request.body:
                raise BudgetSpentError("nothing is left")
            return await super().send(request, timeout_s=timeout_s)

    outcomes, longest_s, _ = batches(
        asker(Broke(REFUSED, 0.5), "ab", hedge="off", concurrency=32), 3, 64
    )
    assert lost(outcomes) == []
    assert longest_s <= 10


@pytest.mark.parametrize(
    "traffic", [{"concurrency": 8}, {"max_concurrency": 8}, {"rpm": 60}, {"rpm": 6}], ids=str
)
@pytest.mark.parametrize("what", [REFUSED, None, status(503)], ids=str)
def test_an_endpoint_that_is_back_gets_its_share_of_a_batch_that_was_begun_before(what, traffic):
    """All requests came at once, and those that are left wait in the queue of the other one."""

    def does(number, nth, now_s):
        return what if server.sent[-1][1] == "b" and 30 < now_s < 120 else GOOD

    server = Server(does, latency_s=5.0)
    count = 150 if "rpm" in traffic and traffic["rpm"] < 60 else 900
    outcomes, _ = all_of(asker(server, "ab", hedge="off", timeout_s=20, **traffic), count)
    assert lost(outcomes) == []
    since = [when for when, host, _, is_check in server.sent if host == "b" and when >= 120]
    assert since[0] <= 160
    after = Counter(
        host for when, host, _, is_check in server.sent if when >= since[0] and not is_check
    )
    assert after["b"] >= 0.8 * after["a"]


def test_an_endpoint_that_is_down_and_of_a_later_priority_is_not_asked_while_the_first_is_well():
    endpoints = [
        Endpoint(base_url="http://a/v1", model="m"),
        Endpoint(base_url="http://b/v1", model="m", priority=1),
    ]
    server = Server(lambda number, nth, now_s: REFUSED if now_s < 10 else GOOD)
    client = replace(asker(server, concurrency=2, hedge="off"), endpoints=endpoints)
    outcomes, _ = all_of(client, 200)
    assert lost(outcomes) == []
    assert all(host == "a" for when, host, *_ in server.sent if when >= 30)
