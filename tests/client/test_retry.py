from email.utils import formatdate
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zerowait.client.headers import retry_after_s, used_up_s, wait_in_words_s
from zerowait.client.retry import (
    GiveUp,
    Retry,
    RetryContext,
    decide,
    is_endpoint_fault,
    is_overload,
)
from zerowait.client.transport import Reply, TransportError
from zerowait.types import FailureKind

RETRIED = (408, 409, 429, 500, 502, 503, 504, 529)
PERMANENT = (400, 401, 403, 404, 405, 410, 413, 415, 422, 301, 302, 307)


def context(**changes):
    return RetryContext(**{"attempt": 1, "attempts": 6, "remaining_s": 300.0, **changes})


def reply(status, body=b"", **headers):
    return Reply(status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


def lost(kind=FailureKind.UNREACHABLE, *, reused=False):
    return TransportError(kind, "lost", reused_connection=reused)


retriable = st.one_of(
    st.sampled_from(RETRIED).map(reply),
    st.just(reply(200, b"not a completion")),
    st.sampled_from([lost(), lost(FailureKind.TIMEOUT)]),
)
anything = st.one_of(
    retriable,
    st.sampled_from(PERMANENT).map(reply),
    st.just(lost(reused=True)),
    st.builds(reply, st.integers(200, 599), retry_after=st.one_of(st.text(), st.floats().map(str))),
)
contexts = st.builds(
    RetryContext,
    attempt=st.integers(1, 40),
    attempts=st.integers(1, 40),
    remaining_s=st.floats(-10, 1e6),
    resent=st.booleans(),
    changes_endpoint=st.booleans(),
    now_s=st.floats(0, 2e9),
)
seeds = st.integers(0, 2**32).map(Random)


@pytest.mark.parametrize("status", RETRIED)
def test_a_passing_failure_is_retried(status):
    assert isinstance(decide(reply(status), context(), jitter=Random(1)), Retry)


@pytest.mark.parametrize("status", PERMANENT)
def test_a_permanent_failure_is_never_retried(status):
    assert isinstance(decide(reply(status), context(), jitter=Random(1)), GiveUp)


@pytest.mark.parametrize("kind", [FailureKind.TIMEOUT, FailureKind.UNREACHABLE])
def test_every_transport_error_is_retried(kind):
    assert isinstance(decide(lost(kind), context(), jitter=Random(1)), Retry)


def test_a_200_that_is_no_completion_is_retried_and_is_an_http_error_in_the_end():
    assert isinstance(decide(reply(200, b"{"), context(), jitter=Random(1)), Retry)
    last = decide(reply(200, b"{"), context(attempt=6), jitter=Random(1))
    assert isinstance(last, GiveUp)
    assert last.kind is FailureKind.HTTP_ERROR


@given(failed=anything, context=contexts, jitter=seeds)
def test_no_decision_waits_past_the_deadline_or_sends_more_often_than_allowed(
    failed, context, jitter
):
    decision = decide(failed, context, jitter=jitter)
    if isinstance(decision, Retry):
        assert 0 <= decision.after_s < context.remaining_s
        assert context.attempt < context.attempts or not decision.counted


@given(failed=retriable, attempt=st.integers(1, 2000), jitter=seeds)
@example(failed=reply(500), attempt=2000, jitter=Random(1))
def test_without_a_named_wait_the_wait_is_below_a_cap_that_doubles_to_eight_seconds(
    failed, attempt, jitter
):
    decision = decide(failed, context(attempt=attempt, attempts=3000), jitter=jitter)
    assert isinstance(decision, Retry)
    assert 0 <= decision.after_s <= min(8.0, 0.5 * 2.0 ** (min(attempt, 10) - 1))


def test_the_jitter_is_full_and_not_a_narrow_band():
    jitter = Random(5)
    waits = [decide(reply(500), context(attempt=5), jitter=jitter).after_s for _ in range(400)]
    assert min(waits) < 0.4
    assert max(waits) > 7.6
    assert 3.5 < sum(waits) / len(waits) < 4.5


@given(seconds=st.floats(1e-3, 200), status=st.sampled_from([*RETRIED, 200]), jitter=seeds)
def test_a_named_wait_is_honoured_on_every_status_and_never_cut_short(seconds, status, jitter):
    decision = decide(reply(status, retry_after=repr(seconds)), context(), jitter=jitter)
    assert isinstance(decision, Retry)
    assert seconds <= decision.after_s <= max(seconds * 1.25, 0.5)


def test_a_short_wait_that_many_are_told_is_spread_over_the_usual_one():
    """A provider that counts per second tells all of them when it has room for one."""
    jitter = Random(3)
    failed = reply(429, retry_after="0.02")
    waits = [decide(failed, context(), jitter=jitter).after_s for _ in range(400)]
    assert min(waits) >= 0.02
    assert max(waits) > 0.45


def test_named_waits_are_spread_so_that_no_herd_comes_back_at_once():
    jitter = Random(2)
    waits = {
        decide(reply(429, retry_after="4"), context(), jitter=jitter).after_s for _ in range(9)
    }
    assert len(waits) == 9


def test_a_named_wait_past_the_deadline_gives_up_at_once_with_the_kind_of_the_failure():
    decision = decide(reply(429, retry_after="60"), context(remaining_s=50.0), jitter=Random(1))
    assert isinstance(decision, GiveUp)
    assert decision.kind is FailureKind.RATE_LIMITED
    assert "deadline" in decision.why


def test_the_wait_that_one_endpoint_names_does_not_bind_another():
    failed = reply(503, retry_after="60")
    assert decide(failed, context(changes_endpoint=True), jitter=Random(1)).after_s <= 0.5
    assert decide(failed, context(changes_endpoint=False), jitter=Random(1)).after_s >= 60


def test_the_first_failure_of_a_reused_connection_is_resent_at_once_and_not_counted():
    decision = decide(lost(reused=True), context(attempt=6), jitter=Random(1))
    assert decision == Retry(0.0, "lost", counted=False)
    second = decide(lost(reused=True), context(resent=True), jitter=Random(1))
    assert isinstance(second, Retry)
    assert second.counted
    assert isinstance(
        decide(lost(reused=True), context(attempt=6, resent=True), jitter=Random(1)), GiveUp
    )


def test_a_timeout_on_a_reused_connection_is_no_stale_connection():
    decision = decide(lost(FailureKind.TIMEOUT, reused=True), context(), jitter=Random(1))
    assert isinstance(decision, Retry)
    assert decision.counted


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_x_should_retry_true_overrules_a_permanent_status(status):
    assert isinstance(
        decide(reply(status, x_should_retry="true"), context(), jitter=Random(1)), Retry
    )


@pytest.mark.parametrize("status", RETRIED)
def test_x_should_retry_false_overrules_a_passing_status(status):
    decision = decide(reply(status, x_should_retry="false"), context(), jitter=Random(1))
    assert isinstance(decision, GiveUp)


@pytest.mark.parametrize(
    ("failed", "kind"),
    [
        (reply(429), FailureKind.RATE_LIMITED),
        (reply(500), FailureKind.HTTP_ERROR),
        (reply(529), FailureKind.HTTP_ERROR),
        (reply(401), FailureKind.HTTP_ERROR),
        (reply(413), FailureKind.TOO_LONG),
        (lost(FailureKind.TIMEOUT), FailureKind.TIMEOUT),
        (lost(), FailureKind.UNREACHABLE),
    ],
)
def test_the_last_failure_names_the_kind(failed, kind):
    decision = decide(failed, context(attempt=6), jitter=Random(1))
    assert isinstance(decision, GiveUp)
    assert decision.kind is kind


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"This model\'s maximum context length is 4096 tokens"}}',
        b'{"error":{"message":"too many","code":"context_length_exceeded"}}',
        b'{"message":"The decoder prompt (length 9) is longer than the maximum model length"}',
        b'{"error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 4"}}',
        b'{"error":{"message":"Range of input length should be [1, 30720]"}}',
        b'{"error":{"message":"the request exceeds the available context size"}}',
        b'{"error":{"message":"The input token count (9000) exceeds the maximum number"}}',
        b'{"error":{"message":"prompt tokens too long"}}',
    ],
)
def test_a_400_that_speaks_of_the_context_length_is_too_long(body):
    decision = decide(reply(400, body), context(), jitter=Random(1))
    assert isinstance(decision, GiveUp)
    assert decision.kind is FailureKind.TOO_LONG


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"Unknown parameter: top_q"}}',
        b'{"error":{"message":"max_tokens is too large: 99999"}}',
        b"",
        b"\xff\xfe",
    ],
)
def test_any_other_400_is_an_http_error_that_quotes_the_reply(body):
    decision = decide(reply(400, body), context(), jitter=Random(1))
    assert isinstance(decision, GiveUp)
    assert decision.kind is FailureKind.HTTP_ERROR
    assert decision.why.startswith("status 400: ")


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_named_as_such_and_no_part_of_it_is_quoted(status):
    body = b'{"error":{"message":"Incorrect API key provided: sk-plan********ted"}}'
    decision = decide(reply(status, body), context(), jitter=Random(1))
    assert isinstance(decision, GiveUp)
    assert "key was refused" in decision.why
    assert "sk-" not in decision.why


@given(seconds=st.integers(1, 10**6), now=st.integers(10**9, 2 * 10**9))
def test_a_retry_after_that_is_a_date_counts_from_now(seconds, now):
    headers = {"retry-after": formatdate(now + seconds, usegmt=True)}
    assert retry_after_s(headers, now_s=float(now)) == seconds


def test_a_date_counts_from_the_servers_own_clock_when_it_tells_it():
    headers = {
        "retry-after": formatdate(1_000_030, usegmt=True),
        "date": formatdate(1_000_000, usegmt=True),
    }
    assert retry_after_s(headers, now_s=5e8) == 30.0


def test_a_date_without_a_zone_is_in_universal_time():
    headers = {"retry-after": "Thu, 01 Jan 1970 00:00:30 -0000"}
    assert retry_after_s(headers, now_s=10.0) == 20.0


@pytest.mark.parametrize("named", ["1764440030", "1764440030.0", "1764440030000"])
def test_a_retry_after_that_is_unix_time_is_not_taken_for_decades(named):
    assert retry_after_s({"retry-after": named}, now_s=1_764_440_000.0) == 30.0
    own = formatdate(1_764_440_010, usegmt=True)
    assert retry_after_s({"retry-after": named, "date": own}, now_s=0.0) == 20.0
    assert retry_after_s({"retry-after": named}, now_s=1_764_440_031.0) is None


def test_milliseconds_go_before_seconds():
    assert retry_after_s({"retry-after-ms": "250", "retry-after": "3"}, now_s=0.0) == 0.25


@pytest.mark.parametrize(
    ("named", "wait_s"),
    [("1m", 60.0), ("1m30s", 90.0), (" 3s", 3.0), ("500ms", 0.5), ("2, 4", 4.0)],
)
def test_a_span_or_several_numbers_are_waits_too(named, wait_s):
    assert retry_after_s({"retry-after": named}, now_s=0.0) == wait_s


def test_azures_milliseconds_are_read():
    assert retry_after_s({"x-ms-retry-after-ms": "1500"}, now_s=0.0) == 1.5


@pytest.mark.parametrize(
    "named",
    [
        "0",
        "-3",
        "0s",
        "2, soon",
        "nan",
        "inf",
        "soon",
        "",
        "Thu, 01 Jan 1970 00:00:01 GMT",
        "Mon, 99",
    ],
)
def test_a_wait_that_cannot_be_read_or_is_over_counts_as_none(named):
    assert retry_after_s({"retry-after": named}, now_s=100.0) is None


@given(named=st.text(), date=st.text())
def test_no_header_of_a_server_makes_the_reading_fail(named, date):
    headers = {"retry-after": named, "retry-after-ms": named, "date": date}
    found = retry_after_s(headers, now_s=0.0)
    assert found is None or found > 0


def test_only_unreachable_and_5xx_send_the_next_attempt_elsewhere():
    assert is_endpoint_fault(lost())
    assert is_endpoint_fault(reply(503))
    assert not is_endpoint_fault(lost(FailureKind.TIMEOUT))
    assert not is_endpoint_fault(reply(429))
    assert not is_endpoint_fault(reply(200))


def test_only_429_and_a_503_with_retry_after_count_as_overload():
    assert is_overload(reply(429))
    assert is_overload(reply(503, retry_after="1"))
    assert not is_overload(reply(503))
    assert not is_overload(reply(500))
    assert not is_overload(lost())


@pytest.mark.parametrize(
    ("left", "reset", "wait_s"),
    [
        ("0", "23h59m0s", 86_340.0),
        ("0", "1d", 86_400.0),
        ("0.0", "2m59.5s", 179.5),
        ("0", "33011.25", 33_011.25),
        ("0", "1700003600", 3600.0),
        ("0", "1700003600000", 3600.0),
        ("0", "2023-11-14T23:13:20Z", 3600.0),
        ("0", "60s", None),
        ("0", "500ms", None),
        ("0", "-5", None),
        ("0", "nan", None),
        ("0", "soon", None),
        ("0", "", None),
        ("1", "23h59m0s", None),
        ("none", "23h59m0s", None),
    ],
)
@pytest.mark.parametrize(
    "names",
    [
        ("x-ratelimit-remaining", "x-ratelimit-reset"),
        ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
        ("x-ratelimit-remaining-tokens-day", "x-ratelimit-reset-tokens-day"),
        ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ],
)
def test_a_quota_of_more_than_a_minute_is_used_up_for_as_long_as_its_headers_say(
    left, reset, wait_s, names
):
    headers = dict(zip(names, (left, reset), strict=True))
    assert used_up_s(headers, now_s=1.7e9) == (wait_s and pytest.approx(wait_s))
    decision = decide(Reply(429, headers, b""), context(now_s=1.7e9), jitter=Random(1))
    assert isinstance(decision, GiveUp) == ((wait_s or 0) > 300)


@given(st.text(), st.text(), st.floats(0, 2e9))
def test_no_quota_header_of_a_server_makes_the_reading_fail(left, reset, now_s):
    headers = {"x-ratelimit-remaining-requests": left, "x-ratelimit-reset-requests": reset}
    wait_s = used_up_s(
        headers | {"x-ratelimit-remaining": "0", "x-ratelimit-reset": reset}, now_s=now_s
    )
    assert wait_s is None or wait_s > 60


IN_WORDS = [
    ("Rate limit reached for m (TPM): Limit 100. Please try again in 1.2s. Visit", 1.2),
    ("Please try again in 120ms.", 0.12),
    ("Please try again in 7m12.5s. Need more tokens?", 432.5),
    ("Please try again in 1h 2m", 3720.0),
    ("No deployments available for selected model, Try again in 60 seconds.", 60.0),
    ("Please retry after 34 seconds.", 34.0),
    ("Please retry your request after 2 minutes.", 120.0),
    ("Quota exceeded. Please retry in 34.074824224s.", 34.074824224),
    ("Too many requests. Please wait 5 seconds before retrying.", 5.0),
    ("The limit resets in 1 minute and 5 seconds", 65.0),
    ('{"details": [{"@type": "RetryInfo", "retryDelay": "15.5s"}]}', 15.5),
    ('{"error": "Model m is currently loading", "estimated_time": 20.0}', 20.0),
    ('{"message": "slow down", "retry_after": 3}', 3.0),
    ("try again later", None),
    ("Limit 100000 per 1 minute. Used 99 in 20 s", None),
    ("please try again in 0s", None),
    ("try again in 5 tries", None),
    ("retry-after: soon; id 12s", None),
    ("", None),
]


@pytest.mark.parametrize(("words", "wait_s"), IN_WORDS)
def test_a_wait_is_read_from_the_words_of_a_refusal(words, wait_s):
    assert wait_in_words_s(words.encode()) == (wait_s and pytest.approx(wait_s))


@given(st.text().map(str.encode) | st.binary())
def test_no_words_break_the_search_for_a_wait(words):
    found = wait_in_words_s(b"try again in " + words)
    assert found is None or found > 0


def test_a_wait_in_words_is_waited_for_where_no_header_names_one():
    words = b'{"error": {"message": "Try again in 60 seconds."}}'
    for status in (429, 503):
        assert 60 <= decide(reply(status, words), context(), jitter=Random(1)).after_s <= 75
    named = reply(429, words, retry_after="2")
    assert decide(named, context(), jitter=Random(1)).after_s <= 2.5
    assert decide(reply(500, words), context(), jitter=Random(1)).after_s <= 0.5
    assert isinstance(decide(reply(429, words), context(remaining_s=50), jitter=Random(1)), GiveUp)


def test_a_number_of_seconds_is_waited_for_whatever_the_time_is():
    assert retry_after_s({"retry-after": "7"}, now_s=1_764_440_000.0) == 7.0
