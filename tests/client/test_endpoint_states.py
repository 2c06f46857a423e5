"""The endpoint states of a process that shares a job's limits with other processes."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from zerowait.client import AttemptOutcome, EndpointStates
from zerowait.config import Endpoint, Traffic
from zerowait.testing import virtually
from zerowait.types import FailureKind

HERE = Endpoint(base_url="http://judge/v1", model="m")
THERE = Endpoint(base_url="http://other/v1", model="m")


async def entered(stack, limiter, count):
    """Start `count` who want a slot and keep it; the number of those who got one."""
    got = []

    async def hold():
        await stack.enter_async_context(limiter.slot())
        got.append(1)

    tasks = [asyncio.create_task(hold()) for _ in range(count)]
    stack.callback(lambda: [task.cancel() for task in tasks])
    await asyncio.sleep(0)
    return got


def test_each_model_at_each_endpoint_has_a_limit_a_quota_and_a_breaker_of_its_own():
    """What one of them refuses slows down no other, and two judges that ask the same share it."""

    async def scenario():
        endpoint_states = EndpointStates(Traffic(rpm=600.0))
        here, same = (
            endpoint_states.of(HERE),
            endpoint_states.of(Endpoint(base_url="http://judge/v1", model="m")),
        )
        others = [
            endpoint_states.of(THERE),
            endpoint_states.of(Endpoint(base_url="http://judge/v1", model="another")),
            endpoint_states.of(Endpoint(base_url="http://judge/v1", model="m", api_key_env="KEY")),
        ]
        before = here.limiter.limit
        async with AsyncExitStack() as stack:
            slots = [await stack.enter_async_context(here.limiter.slot()) for _ in range(20)]
            for slot in slots:
                slot.sent()
            for slot in slots[3:]:
                slot.ended(AttemptOutcome.OVERLOADED)
            await here.quota.reserve(b"{}")
        here.breaker.failed(0.0, (FailureKind.UNREACHABLE, "gone"), retry_after_s=60.0)
        return here, same, others, before

    (here, same, others, before), _ = virtually(scenario())
    assert same is here
    assert here.limiter.limit < before
    assert [state.limiter.limit for state in others] == [before] * 3
    assert [state.breaker.is_open for state in (here, *others)] == [True, False, False, False]
    assert len({id(state.quota) for state in (here, *others)}) == 4


@pytest.mark.parametrize("concurrency", [32, "auto"])
def test_a_part_begins_with_one_slot_and_gets_what_it_is_given(concurrency):
    async def scenario():
        endpoint_states = EndpointStates(
            Traffic(concurrency=concurrency, max_concurrency=32), parts=4
        )
        limiter = endpoint_states.of(HERE).limiter
        async with AsyncExitStack() as stack:
            got = await entered(stack, limiter, 20)
            seen = [(len(got), endpoint_states.slots, endpoint_states.held)]
            endpoint_states.divide(6)
            await asyncio.sleep(0)
            seen.append((len(got), endpoint_states.slots, endpoint_states.held))
            endpoint_states.divide(2)
            await asyncio.sleep(0)
            seen.append((len(got), endpoint_states.slots, endpoint_states.held))
            return seen

    assert virtually(scenario())[0] == [(1, 1, 1), (6, 6, 6), (6, 2, 6)]


def test_with_auto_a_cap_that_binds_is_no_proof_of_more():
    """The rule begins with its part of the first 32, and keeps what it knows under a smaller cap."""

    async def scenario():
        endpoint_states = EndpointStates(Traffic(max_concurrency=64), parts=4)
        limiter = endpoint_states.of(HERE).limiter
        endpoint_states.divide(64)
        before = limiter.limit
        endpoint_states.divide(2)
        for _ in range(500):
            async with limiter.slot() as slot:
                slot.sent()
                slot.ended(AttemptOutcome.SUCCEEDED)
        endpoint_states.divide(64)
        return before, limiter.limit

    assert virtually(scenario())[0] == (8, 8)


def test_quotas_are_divided_as_the_slots_are_whether_set_or_learned():
    async def scenario():
        endpoint_states = EndpointStates(Traffic(concurrency=40, rpm=6000), parts=4)
        here, there = endpoint_states.of(HERE).quota, endpoint_states.of(THERE).quota
        rates = [here.per_minute("requests")]
        endpoint_states.divide(10)
        rates += [here.per_minute("requests"), there.per_minute("requests")]
        claim = await here.reserve(b"{}")
        here.learn_from_headers({"x-ratelimit-limit-tokens": "80000"}, claim, dry_s=0.0)
        rates.append(here.per_minute("tokens"))
        endpoint_states.divide(20)
        rates += [here.per_minute("requests"), here.per_minute("tokens")]
        here.learn_from_headers({"x-ratelimit-limit-tokens": "80000"}, claim, dry_s=0.0)
        return [*rates, here.per_minute("tokens")]

    assert virtually(scenario())[0] == [150, 1500, 1500, 20_000, 3000, 40_000, 40_000]
