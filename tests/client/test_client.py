import asyncio
import ssl
from email.utils import formatdate
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.client import (
    AttemptOutcome,
    EndpointStates,
    FixedLimit,
    JudgeClient,
    JudgeReply,
    Limiter,
    Reply,
    Secret,
    TransportError,
)
from zerowait.completion import Completion
from zerowait.config import Endpoint, Traffic
from zerowait.errors import ClosedError
from zerowait.events import RequestEnded, RequestRetried
from zerowait.testing import virtually
from zerowait.types import Abstain, FailureKind

KEY = "sk-planted-0123456789"
GOOD = Reply(200, {}, b'{"choices":[]}')
BAD = Reply(200, {}, b"<html>")
TIMEOUT = "runs into its timeout"
HANGS = "is cancelled"


def lost(*, reused=False):
    return TransportError(FailureKind.UNREACHABLE, "no connection", reused_connection=reused)


class Scripted:
    """A transport whose replies are written down; each takes `latency_s` and is noted."""

    def __init__(self, *steps, latency_s=1.0):
        self.steps = list(steps)
        self.latency_s = latency_s
        self.sent = []  # (when, url, body, timeout_s)
        self.requests = []

    async def send(self, request, *, timeout_s):
        now = asyncio.get_running_loop().time()
        self.sent.append((now, request.url, request.body, timeout_s))
        self.requests.append(request)
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if step is TIMEOUT:
            await asyncio.sleep(timeout_s)
            raise TransportError(FailureKind.TIMEOUT, f"no complete reply in {timeout_s:g} s")
        if step is HANGS:
            await asyncio.sleep(1e6)
        await asyncio.sleep(self.latency_s)
        if isinstance(step, BaseException):
            raise step
        return step

    async def aclose(self):
        pass


class Noting(FixedLimit):
    def __init__(self, limit=8):
        super().__init__(limit)
        self.endings = []

    def observe(self, sample):
        self.endings.append(sample.ending)


def endpoints(*urls, model="m"):
    return [Endpoint(base_url=url, model=model) for url in urls or ("http://judge/v1",)]


def client(transport, *, limiter=None, **changes):
    return JudgeClient(
        **{
            "endpoints": endpoints(),
            "transport": transport,
            "endpoint_states": EndpointStates(Traffic(), limiter=limiter or Limiter(FixedLimit(8))),
            "decode": lambda body: Completion() if body.startswith(b"{") else None,
            "jitter": Random(7),
            "wall": lambda: 1000.0,
            **changes,
        }
    )


def error_reply(status, **headers):
    return Reply(status, {name.replace("_", "-"): text for name, text in headers.items()}, b"")


def test_a_good_reply_is_the_answer():
    transport = Scripted(GOOD)
    answer, elapsed_s = virtually(client(transport).ask(b'{"q":1}'))
    assert answer == JudgeReply(
        reply=GOOD,
        completion=Completion(),
        attempts=1,
        latency_s=1.0,
        queue_s=0.0,
        endpoint="http://judge/v1/chat/completions",
    )
    assert elapsed_s == 1.0
    assert transport.sent == [(0.0, "http://judge/v1/chat/completions", b'{"q":1}', 60.0)]


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("https://other/v1/chat/completions?ticket=abc", "https://other/v1/chat/completions"),
        ("/login?next=/v1", "/login"),
    ],
)
def test_a_redirect_says_where_it_leads_without_its_query(location, shown):
    (outcome, _) = virtually(
        client(Scripted(Reply(308, {"location": location}, b""))).ask(b'{"q":1}')
    )
    assert f"it leads to {shown} (after" in outcome.detail


def test_of_an_error_page_of_megabytes_only_the_beginning_is_searched_for_keys():
    keys = [Secret("sk-planted-0123456789")]
    page = b"sk-planted-0123456789 was refused " + b"x" * 2**21
    target = client(Scripted(Reply(401, {}, page)), keys=keys)
    (outcome, _) = virtually(target.ask(b'{"q":1}'))
    assert "*** was refused" in outcome.detail
    assert "planted" not in outcome.detail


def test_a_rate_limited_judge_is_retried_no_sooner_than_it_said():
    transport = Scripted(error_reply(429, retry_after="7"), GOOD)
    answer, elapsed_s = virtually(client(transport).ask(b"{}"))
    assert answer.attempts == 2
    assert answer.latency_s == 1.0
    assert 1 + 7.0 + 1 <= elapsed_s <= 1 + 8.75 + 1


def test_a_retry_after_that_is_a_date_is_waited_for():
    transport = Scripted(error_reply(429, retry_after=formatdate(1020, usegmt=True)), GOOD)
    answer, elapsed_s = virtually(client(transport).ask(b"{}"))
    assert isinstance(answer, JudgeReply)
    assert 22.0 <= elapsed_s <= 27.0


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (error_reply(429), FailureKind.RATE_LIMITED),
        (error_reply(500), FailureKind.HTTP_ERROR),
        (error_reply(503), FailureKind.HTTP_ERROR),
        (BAD, FailureKind.HTTP_ERROR),
        (lost(), FailureKind.UNREACHABLE),
        (TIMEOUT, FailureKind.TIMEOUT),
    ],
)
def test_when_the_attempts_are_used_up_the_kind_is_that_of_the_last_failure(step, kind):
    transport = Scripted(error_reply(500), step)
    abstain, _ = virtually(client(transport, traffic=Traffic(attempts=3)).ask(b"{}"))
    assert isinstance(abstain, Abstain)
    assert abstain.kind is kind
    assert len(transport.sent) == 3
    assert "http://judge/v1/chat/completions" in abstain.detail
    assert "3 attempts" in abstain.detail


def test_the_detail_names_the_last_status():
    abstain, _ = virtually(
        client(Scripted(error_reply(502)), traffic=Traffic(attempts=2)).ask(b"{}")
    )
    assert "status 502" in abstain.detail


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_permanent_refusal_is_asked_once_and_not_repeated(status):
    transport = Scripted(error_reply(status))
    abstain, _ = virtually(client(transport).ask(b"{}"))
    assert abstain.kind is FailureKind.HTTP_ERROR
    assert len(transport.sent) == 1
    assert "1 attempt)" in abstain.detail


def test_a_request_that_is_too_long_says_so():
    body = b'{"error":{"code":"context_length_exceeded"}}'
    abstain, _ = virtually(client(Scripted(Reply(400, {}, body))).ask(b"{}"))
    assert abstain.kind is FailureKind.TOO_LONG


def test_the_deadline_runs_from_the_first_send_and_time_in_our_queue_never_counts():
    transport = Scripted(GOOD, latency_s=40.0)
    asker = client(transport, limiter=Limiter(FixedLimit(1)), traffic=Traffic(deadline_s=50.0))

    async def main():
        async with asyncio.TaskGroup() as group:
            return [group.create_task(asker.ask(b"{}")) for _ in range(5)]

    tasks, elapsed_s = virtually(main())
    answers = [task.result() for task in tasks]
    assert all(isinstance(answer, JudgeReply) for answer in answers)
    assert [answer.queue_s for answer in answers] == [0.0, 40.0, 80.0, 120.0, 160.0]
    assert {timeout_s for *_, timeout_s in transport.sent} == {50.0}
    assert elapsed_s == 200.0


def test_waiting_for_quota_is_queue_time_and_holds_no_slot():
    limiter = Limiter(FixedLimit(8))
    traffic = Traffic(rpm=6.0, deadline_s=5.0)
    asker = client(
        Scripted(GOOD), endpoint_states=EndpointStates(traffic, limiter=limiter), traffic=traffic
    )

    async def main():
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(asker.ask(b"{}")) for _ in range(3)]
            await asyncio.sleep(5.0)
            assert (limiter.in_flight, asker.endpoint_states.waiting) == (0, 2)
        return [task.result() for task in tasks]

    answers, elapsed_s = virtually(main())
    assert [answer.queue_s for answer in answers] == pytest.approx([0.0, 10.0, 20.0])
    assert [answer.latency_s for answer in answers] == pytest.approx([1.0] * 3)
    assert elapsed_s == pytest.approx(21.0)


def test_a_resend_needs_quota_too_and_its_wait_is_not_the_judges():
    traffic = Traffic(rpm=6.0, deadline_s=5.0)
    transport = Scripted(error_reply(500), GOOD)
    asker = client(transport, endpoint_states=EndpointStates(traffic), traffic=traffic)
    answer, _ = virtually(asker.ask(b"{}"))
    assert isinstance(answer, JudgeReply)
    assert [when for when, *_ in transport.sent] == pytest.approx([0.0, 10.0])
    assert transport.sent[-1][3] > 0  # and the judge still has time for it


def test_a_call_that_is_cancelled_before_its_send_gives_its_quota_back():
    traffic = Traffic(rpm=6.0)
    limiter = Limiter(FixedLimit(1))
    asker = client(
        Scripted(GOOD), endpoint_states=EndpointStates(traffic, limiter=limiter), traffic=traffic
    )

    async def main():
        async with limiter.slot():
            waits = asyncio.create_task(asker.ask(b"{}"))
            await asyncio.sleep(1.0)
            waits.cancel()
            await asyncio.wait([waits])
        return await asker.ask(b"{}")

    answer, _ = virtually(main())
    assert answer.queue_s == 0.0


def test_a_call_whose_caller_fails_at_the_first_send_gives_its_quota_back():
    """A share that is reserved and never sent would keep the others out for good."""
    traffic = Traffic(rpm=600.0)
    asker = client(Scripted(GOOD), endpoint_states=EndpointStates(traffic), traffic=traffic)

    def fails():
        raise OSError("the disk is full")

    async def main():
        for _ in range(20):
            with pytest.raises(OSError, match="disk"):
                await asker.ask(b"{}", sent=fails)
        return await asker.ask(b"{}")

    answer, _ = virtually(main())
    assert answer.queue_s == 0.0


def test_the_timeout_of_an_attempt_runs_from_its_own_send():
    transport = Scripted(TIMEOUT, TIMEOUT, GOOD)
    traffic = Traffic(timeout_s=10.0, deadline_s=300.0)
    answer, _ = virtually(client(transport, traffic=traffic).ask(b"{}"))
    assert isinstance(answer, JudgeReply)
    assert [timeout_s for *_, timeout_s in transport.sent] == [10.0, 10.0, 10.0]


def test_no_attempt_outlives_the_deadline():
    transport = Scripted(TIMEOUT)
    traffic = Traffic(timeout_s=60.0, deadline_s=100.0, attempts=9)
    abstain, elapsed_s = virtually(client(transport, traffic=traffic).ask(b"{}"))
    assert abstain.kind is FailureKind.TIMEOUT
    assert elapsed_s <= 100.0
    assert all(when + timeout_s <= 100.0 for when, _, _, timeout_s in transport.sent)


def test_a_deadline_of_its_own_goes_before_the_configured_one():
    abstain, elapsed_s = virtually(client(Scripted(TIMEOUT)).ask(b"{}", deadline_s=5.0))
    assert abstain.kind is FailureKind.TIMEOUT
    assert elapsed_s == 5.0


def test_a_wait_past_the_deadline_is_not_begun():
    transport = Scripted(error_reply(429, retry_after="600"), GOOD)
    abstain, elapsed_s = virtually(client(transport).ask(b"{}"))
    assert abstain.kind is FailureKind.RATE_LIMITED
    assert elapsed_s == 1.0


def test_a_stale_connection_costs_neither_a_wait_nor_an_attempt():
    transport = Scripted(lost(reused=True), GOOD)
    answer, elapsed_s = virtually(client(transport, traffic=Traffic(attempts=1)).ask(b"{}"))
    assert isinstance(answer, JudgeReply)
    assert elapsed_s == 2.0


def test_only_the_first_stale_connection_is_free():
    transport = Scripted(lost(reused=True))
    abstain, _ = virtually(client(transport, traffic=Traffic(attempts=2)).ask(b"{}"))
    assert abstain.kind is FailureKind.UNREACHABLE
    assert len(transport.sent) == 3


def test_the_slot_is_held_while_a_retry_waits():
    transport = Scripted(error_reply(429, retry_after="8"), GOOD)
    limiter = Limiter(FixedLimit(1))
    asker = client(transport, limiter=limiter)

    async def main():
        async with asyncio.TaskGroup() as group:
            group.create_task(asker.ask(b"first"))
            group.create_task(asker.ask(b"second"))
            await asyncio.sleep(5.0)
            return limiter.in_flight, limiter.waiting, limiter.on_wire

    assert virtually(main())[0] == (1, 1, 0)
    assert [body for _, _, body, _ in transport.sent] == [b"first", b"first", b"second"]


@pytest.mark.parametrize("where", ["sending", "waiting for a retry", "waiting for a slot"])
def test_a_cancelled_call_frees_its_slot_wherever_it_is(where):
    step = error_reply(429, retry_after="8") if where == "waiting for a retry" else HANGS
    limiter = Limiter(FixedLimit(1))
    asker = client(Scripted(step), limiter=limiter)

    async def main():
        first = asyncio.create_task(asker.ask(b"{}"))
        second = asyncio.create_task(asker.ask(b"{}"))
        await asyncio.sleep(5.0)
        gone, other = (second, first) if where == "waiting for a slot" else (first, second)
        gone.cancel()
        await asyncio.wait([gone])
        assert gone.cancelled()
        assert (limiter.in_flight, limiter.waiting) == (1, 0)
        other.cancel()
        await asyncio.wait([other])
        assert limiter.in_flight == limiter.on_wire == 0

    virtually(main())


@pytest.mark.parametrize("step", [lost(), error_reply(500), TIMEOUT], ids=str)
def test_a_judgement_whose_endpoint_fails_goes_on_at_another(step):
    transport = Scripted(step, GOOD)
    asker = client(transport, endpoints=endpoints("http://a/v1", "http://b/v1"))
    answer, _ = virtually(asker.ask(b"1"))
    assert answer.endpoint == "http://b/v1/chat/completions"
    assert [url.split("/")[2] for _, url, _, _ in transport.sent] == ["a", "b"]


@pytest.mark.parametrize("step", [error_reply(429), BAD])
def test_what_is_not_the_endpoints_fault_stays_with_the_endpoint(step):
    transport = Scripted(step, GOOD)
    asker = client(transport, endpoints=endpoints("http://a/v1", "http://b/v1"))
    answer, _ = virtually(asker.ask(b"{}"))
    assert answer.endpoint.startswith("http://a/")


def test_a_stale_connection_does_not_drive_a_judgement_to_another_endpoint():
    transport = Scripted(lost(reused=True), GOOD)
    asker = client(transport, endpoints=endpoints("http://a/v1", "http://b/v1"))
    answer, _ = virtually(asker.ask(b"{}"))
    assert answer.endpoint.startswith("http://a/")


def test_the_wait_that_one_endpoint_asked_for_does_not_keep_us_from_another():
    transport = Scripted(error_reply(503, retry_after="100"), GOOD)
    asker = client(transport, endpoints=endpoints("http://a/v1", "http://b/v1"))
    answer, elapsed_s = virtually(asker.ask(b"{}"))
    assert answer.endpoint.startswith("http://b/")
    assert elapsed_s <= 2.5


def test_nobody_goes_back_to_an_endpoint_before_the_time_it_named():
    transport = Scripted(error_reply(503, retry_after="100"), error_reply(503), GOOD)
    asker = client(transport, endpoints=endpoints("http://a/v1", "http://b/v1"))
    answer, _ = virtually(asker.ask(b"{}"))
    hosts = [url.split("/")[2] for _, url, _, _ in transport.sent]
    assert hosts == ["a", "b", "b"]
    assert isinstance(answer, JudgeReply)


def test_when_all_endpoints_asked_for_a_wait_the_last_one_asked_is_waited_for():
    transport = Scripted(
        error_reply(503, retry_after="100"), error_reply(503, retry_after="20"), GOOD
    )
    asker = client(transport, endpoints=endpoints("http://a/v1", "http://b/v1"))
    answer, _ = virtually(asker.ask(b"{}"))
    (_, second, third) = [when for when, *_ in transport.sent]
    assert answer.endpoint.startswith("http://b/")
    assert third - second >= 21.0


def test_a_new_judgement_goes_to_an_endpoint_that_is_not_resting():
    transport = Scripted(error_reply(503, retry_after="100"), GOOD)
    asker = client(
        transport,
        endpoints=endpoints("http://a/v1", "http://b/v1"),
        traffic=Traffic(attempts=1),
    )

    async def main():
        return await asker.ask(b"{}"), await asker.ask(b"{}")

    (first, second), _ = virtually(main())
    assert isinstance(first, Abstain)
    assert second.endpoint.startswith("http://b/")


def test_an_endpoint_with_another_name_for_the_model_is_asked_by_that_name():
    transport = Scripted(lost(), GOOD)
    both = [*endpoints("http://a/v1", model="m"), *endpoints("http://b/v1", model="org/m")]
    asker = client(transport, endpoints=both)
    virtually(asker.ask(b'{"model":"m","messages":[]}'))
    bodies = [msgspec.json.decode(body) for _, _, body, _ in transport.sent]
    assert bodies == [{"model": "m", "messages": []}, {"model": "org/m", "messages": []}]


def test_each_endpoint_gets_its_own_key():
    transport = Scripted(lost(), GOOD)
    asker = client(
        transport,
        endpoints=endpoints("http://a/v1", "http://b/v1"),
        keys=[Secret(KEY), None],
    )
    virtually(asker.ask(b"{}"))
    first, second = (request.headers for request in transport.requests)
    assert first["Authorization"] == f"Bearer {KEY}"
    assert "Authorization" not in second


def test_an_azure_endpoint_gets_its_version_and_its_key_where_azure_looks_for_them():
    transport = Scripted(GOOD)
    azure = Endpoint(
        base_url="https://my.openai.azure.com/openai/deployments/gpt",
        model="gpt",
        api_version="2024-10-21",
    )
    answer, _ = virtually(client(transport, endpoints=[azure], keys=[Secret(KEY)]).ask(b"{}"))
    (request,) = transport.requests
    assert request.url == f"{azure.base_url}/chat/completions?api-version=2024-10-21"
    assert request.headers["api-key"] == KEY
    assert "Authorization" not in request.headers
    assert answer.endpoint == f"{azure.base_url}/chat/completions"


def test_a_key_that_the_server_quotes_reaches_neither_outcome_nor_events_nor_reprs():
    quoting = Reply(500, {}, f'{{"error":"bad header Bearer {KEY}"}}'.encode())
    events = []
    asker = client(
        Scripted(quoting), keys=[Secret(KEY)], listener=events.append, traffic=Traffic(attempts=2)
    )
    abstain, _ = virtually(asker.ask(b"{}"))
    assert "***" in abstain.detail
    assert "planted" not in f"{abstain} {events} {asker} {asker!r}"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError(f"no header Bearer {KEY}"), FailureKind.UNREACHABLE),
        (ssl.SSLError("EOF occurred in violation of protocol"), FailureKind.UNREACHABLE),
        (ConnectionResetError(), FailureKind.UNREACHABLE),
        (ValueError("x" * 10_000), FailureKind.UNREACHABLE),
        (TimeoutError(), FailureKind.TIMEOUT),
        (asyncio.CancelledError(), FailureKind.UNREACHABLE),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_transport_that_breaks_its_promise_costs_its_judgement_and_never_the_run(error, kind):
    transport = Scripted(error, error, GOOD)
    asker = client(transport, keys=[Secret(KEY)], traffic=Traffic(attempts=2))
    abstain, _ = virtually(asker.ask(b"{}"))
    answer, _ = virtually(asker.ask(b"{}"))
    assert (abstain.kind, answer.reply) == (kind, GOOD)
    assert type(error).__name__ in abstain.detail
    assert "planted" not in abstain.detail
    assert len(abstain.detail) < 400


def test_a_transport_that_is_closed_says_so():
    with pytest.raises(ClosedError):
        virtually(client(Scripted(ClosedError("closed"))).ask(b"{}"))


def test_every_attempt_is_told_and_so_is_every_wait():
    events = []
    limiter = Limiter(FixedLimit(1))
    asker = client(
        Scripted(error_reply(503), lost(), GOOD), limiter=limiter, listener=events.append
    )

    async def main():
        async with asyncio.TaskGroup() as group, limiter.slot():
            group.create_task(asker.ask(b"{}"))
            await asyncio.sleep(4.0)

    virtually(main())
    ended = [event for event in events if isinstance(event, RequestEnded)]
    retried = [event for event in events if isinstance(event, RequestRetried)]
    assert [(event.status, event.latency_s) for event in ended] == [
        (503, 1.0),
        (0, 1.0),
        (200, 1.0),
    ]
    assert [event.queue_s for event in ended] == [4.0, 0.0, 0.0]
    assert [event.attempt for event in retried] == [1, 2]
    assert ["503" in retried[0].why, "no connection" in retried[1].why] == [True, True]
    assert len(events) == 5


def test_it_says_when_the_first_attempt_leaves_and_only_then():
    marks = []
    limiter = Limiter(FixedLimit(1))
    asker = client(Scripted(lost(), GOOD), limiter=limiter)

    async def main():
        clock = asyncio.get_running_loop().time
        async with asyncio.TaskGroup() as group, limiter.slot():
            group.create_task(asker.ask(b"{}", sent=lambda: marks.append(clock())))
            await asyncio.sleep(4.0)

    virtually(main())
    assert marks == [4.0]


def test_the_limit_rule_learns_from_429_but_not_from_other_failures():
    rule = Noting()
    steps = [
        error_reply(429),
        lost(),
        error_reply(500),
        error_reply(503, retry_after="1"),
        BAD,
        GOOD,
    ]
    virtually(client(Scripted(*steps), limiter=Limiter(rule)).ask(b"{}"))
    over, nothing, fine = (
        AttemptOutcome.OVERLOADED,
        AttemptOutcome.SAYS_NOTHING,
        AttemptOutcome.SUCCEEDED,
    )
    assert rule.endings == [over, nothing, nothing, over, nothing, fine]


def test_a_judge_without_endpoints_or_with_too_few_keys_is_refused():
    with pytest.raises(ValueError, match="zip"):
        client(Scripted(GOOD), keys=[None, None])


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.sampled_from(
            [
                GOOD,
                BAD,
                TIMEOUT,
                HANGS,
                lost(),
                lost(reused=True),
                error_reply(401),
                error_reply(429),
                error_reply(503, retry_after="3"),
                error_reply(500),
            ]
        ),
        min_size=1,
        max_size=8,
    ),
    callers=st.integers(1, 12),
    limit=st.integers(1, 4),
    cancel_at=st.lists(st.floats(0, 200), max_size=6),
    seed=st.integers(0, 999),
)
def test_whatever_happens_slots_are_given_back_and_answers_are_good_replies(
    steps, callers, limit, cancel_at, seed
):
    limiter = Limiter(FixedLimit(limit))
    transport = Scripted(*steps)
    asker = client(
        transport,
        limiter=limiter,
        jitter=Random(seed),
        endpoints=endpoints("http://a/v1", "http://b/v1"),
        traffic=Traffic(timeout_s=20.0, deadline_s=60.0, attempts=4),
    )

    async def main():
        tasks = [asyncio.create_task(asker.ask(b"{}")) for _ in range(callers)]
        for task, when in zip(tasks, cancel_at, strict=False):
            asyncio.get_running_loop().call_at(when, task.cancel)
        asyncio.get_running_loop().call_later(5000, lambda: [task.cancel() for task in tasks])
        await asyncio.wait(tasks)
        return tasks

    tasks, _ = virtually(main())
    assert limiter.peak <= limit
    assert (limiter.in_flight, limiter.waiting, limiter.on_wire) == (0, 0, 0)
    for task in tasks:
        if not task.cancelled():
            outcome = task.result()
            assert isinstance(outcome, Abstain) or outcome.reply is GOOD
