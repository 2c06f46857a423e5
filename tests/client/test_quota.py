import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.client import Quota
from zerowait.client.limits.quota import TokenBucket, TokenEstimate
from zerowait.testing import virtually


def request(max_tokens=100, size=400):
    return msgspec.json.encode({"max_tokens": max_tokens, "text": ""}).ljust(size)


async def send_all(quota, count, body=b"{}", log=None):
    """When each of `count` callers got its share."""
    clock, times_s = asyncio.get_running_loop().time, []

    async def one(name):
        await quota.reserve(body)
        times_s.append(clock())
        if log is not None:
            log.append(name)

    async with asyncio.TaskGroup() as group:
        for name in range(count):
            group.create_task(one(name))
    return times_s


def test_requests_leave_at_the_rate_after_one_second_worth_of_them():
    times_s, _ = virtually(send_all(Quota(requests=600), 110))
    assert times_s[:10] == [0.0] * 10
    assert times_s[-1] == pytest.approx(10.0)
    assert times_s == sorted(times_s)


def test_shares_are_given_in_the_order_in_which_they_were_asked_for():
    log = []
    virtually(send_all(Quota(requests=60), 20, log=log))
    assert log == list(range(20))


def test_tokens_are_guessed_from_bytes_and_max_tokens_and_paid_for_at_the_rate():
    times_s, _ = virtually(send_all(Quota(tokens=6000), 11, request(max_tokens=100, size=400)))
    assert times_s[0] == 0.0  # it is more than one second's worth: the next one waits for the debt
    assert times_s[-1] == pytest.approx(10 * 200 / 100, rel=0.01)


def test_what_was_not_used_is_given_back_when_the_reply_says_so():
    async def main():
        quota, body = Quota(tokens=6000), request(max_tokens=900, size=400)
        claim = await quota.reserve(body)
        quota.settle(claim, body, (30, 70))
        await quota.reserve(body)
        return asyncio.get_running_loop().time()

    at_s, _ = virtually(main())
    assert at_s == pytest.approx(1.0)


def test_a_waiter_goes_on_as_soon_as_an_answer_was_cheaper_than_estimated():
    """The estimate is 1,000 tokens, 10 s of the rate; the answer, after 1 s, cost 100."""

    async def main():
        quota, body = Quota(tokens=6000), request(max_tokens=900, size=400)
        first = await quota.reserve(body)
        second = asyncio.create_task(quota.reserve(body))
        await asyncio.sleep(1)
        quota.settle(first, body, (30, 70))
        await second
        return asyncio.get_running_loop().time()

    at_s, _ = virtually(main())
    assert at_s == pytest.approx(1.0)


def test_one_that_is_cancelled_as_it_is_let_in_gives_its_share_back():
    async def main():
        quota = Quota(requests=60)
        await quota.reserve(b"{}")
        waiting = asyncio.create_task(quota.reserve(b"{}"))
        await asyncio.sleep(0)
        # due at the same moment as the share, and after it
        asyncio.get_running_loop().call_later(1.0, waiting.cancel)
        await asyncio.wait([waiting])
        await quota.reserve(b"{}")
        return waiting.cancelled(), asyncio.get_running_loop().time()

    (was_cancelled, at_s), _ = virtually(main())
    assert was_cancelled
    assert at_s == pytest.approx(1.0)


def test_those_that_wait_with_a_slot_are_counted_too():
    async def main():
        quota = Quota(requests=60)
        await quota.reserve(b"{}")
        async with asyncio.TaskGroup() as group:
            group.create_task(quota.reserve(b"{}", has_slot=True))
            group.create_task(quota.reserve(b"{}"))
            await asyncio.sleep(0)
            return quota.waiting

    assert virtually(main())[0] == 2


def test_what_answers_did_cost_replaces_max_tokens_in_the_guess():
    guess, body = TokenEstimate(), request(max_tokens=4000, size=400)
    assert guess.of(body) == 4100
    for _ in range(20):
        guess.observe(body, 200, 50)
    assert guess.of(body) == pytest.approx(250)


@pytest.mark.parametrize("body", [b"not json", b'{"max_tokens": "many"}', b"[]"])
def test_a_request_that_cannot_be_read_is_guessed_by_its_bytes(body):
    assert TokenEstimate().of(body) == len(body) / 4


def test_a_reply_that_says_nothing_about_its_cost_leaves_the_guess_as_it_was():
    async def main():
        quota = Quota(tokens=6000)
        claim = await quota.reserve(request())
        quota.settle(claim, request(), (0, 0))
        return claim.tokens

    assert virtually(main())[0] == 200


def test_a_quota_is_learned_from_the_headers_and_told():
    told = []

    async def main():
        quota = Quota(learned=lambda *what: told.append(what))
        claim = await quota.reserve(b"{}")
        headers = {"x-ratelimit-limit-requests": "60", "x-ratelimit-limit-tokens": "90000"}
        for _ in range(3):
            quota.learn_from_headers(headers, claim, dry_s=0.0)
        return await send_all(quota, 4)

    times_s, _ = virtually(main())
    assert told == [("requests", 60.0), ("tokens", 90000.0)]
    assert times_s == pytest.approx([0.0, 1.0, 2.0, 3.0])


@pytest.mark.parametrize("given", [600.0, "off"])
def test_what_the_user_set_is_not_overruled_by_headers(given):
    async def main():
        quota = Quota(requests=given, tokens="off")
        quota.learn_from_headers(
            {"x-ratelimit-limit-requests": "1"}, await quota.reserve(b"{}"), dry_s=0.0
        )
        return quota.per_minute("requests")

    assert virtually(main())[0] == (None if given == "off" else given)


@pytest.mark.parametrize("text", ["", "many", "0", "-5", "nan", "inf", "1e-9", "0.5"])
def test_a_header_that_is_no_quota_is_ignored(text):
    async def main():
        quota = Quota()
        quota.learn_from_headers(
            {"x-ratelimit-limit-requests": text}, await quota.reserve(b"{}"), dry_s=0.0
        )
        return quota.per_minute("requests")

    assert virtually(main())[0] is None


def test_when_a_quota_is_used_up_all_wait_as_long_as_the_429_says():
    async def main():
        quota = Quota(requests=600)
        claim = await quota.reserve(b"{}")
        quota.learn_from_headers({"x-ratelimit-remaining-requests": "0"}, claim, dry_s=7.0)
        return await send_all(quota, 2)

    times_s, _ = virtually(main())
    assert times_s == pytest.approx([7.0, 7.1])


def test_a_wait_of_hours_is_no_matter_of_a_quota_per_minute():
    """Waiting for quota is no judgement's time, so nobody's deadline would end it."""

    async def main():
        quota = Quota(requests=600)
        headers = {"x-ratelimit-remaining-requests": "0"}
        quota.learn_from_headers(headers, await quota.reserve(b"{}"), dry_s=7200.0)
        await quota.reserve(b"{}")

    assert virtually(main())[1] <= 60


def test_a_429_for_another_reason_makes_nobody_wait():
    async def main():
        quota = Quota(requests=600)
        claim = await quota.reserve(b"{}")
        quota.learn_from_headers({"x-ratelimit-remaining-requests": "30"}, claim, dry_s=7.0)
        return await send_all(quota, 1)

    assert virtually(main())[0] == [0.0]


def test_who_holds_a_slot_that_others_wait_for_goes_before_them():
    """Else the one would wait for the other's share, and the other for the one's slot."""
    quota = Quota(requests=60, ahead=1)

    async def main():
        ahead = await quota.reserve(b"{}")
        async with asyncio.TaskGroup() as group:
            fresh = group.create_task(quota.reserve(b"{}"))
            await asyncio.sleep(0.1)
            resent = group.create_task(quota.reserve(b"{}", has_slot=True))
            await asyncio.sleep(2.0)
            assert (resent.done(), fresh.done()) == (True, False)
            quota.sent(ahead)

    virtually(main())
    assert quota.waiting == 0


def test_those_who_wait_for_a_slot_do_not_save_up_shares_to_send_all_at_once():
    quota = Quota(requests=600, ahead=2)

    async def main():
        claims = []

        async def one():
            claims.append(await quota.reserve(b"{}"))

        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(one())
            await asyncio.sleep(10.0)
            assert len(claims) == 2
            quota.sent(claims[0])
            quota.give_back(claims[1])
            await asyncio.sleep(0.01)
            assert len(claims) == 4
            quota.sent(claims[2])

    virtually(main())
    assert quota.waiting == 0


@settings(max_examples=60, deadline=None)
@given(
    cancel_at=st.lists(st.floats(0, 12), max_size=12),
    count=st.integers(1, 20),
    rpm=st.sampled_from([30.0, 60.0, 600.0]),
)
def test_who_is_cancelled_costs_nothing_and_never_stops_the_others(cancel_at, count, rpm):
    quota = Quota(requests=rpm)

    async def main():
        loop = asyncio.get_running_loop()
        tasks = [asyncio.create_task(quota.reserve(b"{}")) for _ in range(count)]
        for task, when in zip(tasks, cancel_at, strict=False):
            loop.call_at(when, task.cancel)
        await asyncio.wait(tasks)
        return sum(not task.cancelled() for task in tasks)

    served, elapsed_s = virtually(main())
    assert quota.waiting == 0
    assert elapsed_s <= served * 60 / rpm + 1e-6


@settings(max_examples=60, deadline=None)
@given(
    per_minute=st.floats(1, 1e6),
    steps=st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1e4)), max_size=40),
)
def test_a_bucket_never_gives_more_than_its_rate_and_one_second_worth(per_minute, steps):
    bucket, now_s, taken, last = TokenBucket(per_minute, now_s=0.0), 0.0, 0.0, 0.0
    for gap_s, cost in steps:
        now_s += gap_s
        now_s += bucket.missing_s(cost, now_s=now_s)
        if bucket.missing_s(cost, now_s=now_s) == 0:
            bucket.take(cost)
            taken += cost
            last = cost
            rate = per_minute / 60
            assert taken - last <= rate * now_s + max(rate, 1.0) + 1e-3 * (1 + taken)
