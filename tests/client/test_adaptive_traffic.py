"""The adaptive limit inside the whole client, against servers that are simulated in virtual time."""

import asyncio
from itertools import pairwise
from random import Random
from statistics import mean, median

import pytest

from zerowait.client import EndpointStates, JudgeClient, JudgeReply, Reply
from zerowait.completion import Completion
from zerowait.config import Endpoint, Traffic
from zerowait.events import LimitChanged, QuotaLearned
from zerowait.testing import Capacity, Change, virtually
from zerowait.testing.capacity import CapacityGate

WIRE = pytest.mark.wire
MEAN_S = 1.08  # of a log-normal distribution with median 1 and sigma 0.4


class Server:
    """A transport to a server with `capacity` and log-normal latency, in the loop's time."""

    def __init__(
        self,
        capacity,
        seed=0,
        *,
        names_quota=True,
        slower=lambda now_s: 1.0,
        rejects=0.0,
        median_s=1.0,
    ):
        self.rejects = rejects
        self.median_s = median_s
        self.slower = slower
        self.gate = CapacityGate(capacity)
        self.headers = self.gate.headers if names_quota else dict
        self.random = Random(seed)
        self.served = []  # when each good answer was given
        self.rejected = []

    async def send(self, request, *, timeout_s):
        clock = asyncio.get_running_loop().time
        if self.rejects and self.random.random() < self.rejects:
            await asyncio.sleep(0.02)
            self.rejected.append(clock())
            return Reply(429, {"retry-after": "1"}, b"")
        busy = self.gate.enter(tokens=1, now_s=clock())
        if busy is not None:
            await asyncio.sleep(0.02)
            self.rejected.append(clock())
            return Reply(429, {k.lower(): v for k, v in busy.headers.items()}, b"")
        try:
            takes_s = self.median_s * self.random.lognormvariate(0, 0.4) * self.slower(clock())
            await asyncio.sleep(takes_s * self.gate.slowdown())
        finally:
            self.gate.leave()
        self.served.append(clock())
        return Reply(200, self.headers(), b"{}")

    async def aclose(self):
        pass


def asker(server, settings, listener=lambda event: None):
    return JudgeClient(
        endpoints=[Endpoint(base_url="http://judge/v1", model="m")],
        transport=server,
        endpoint_states=EndpointStates(settings, listener=listener, jitter=Random(0)),
        decode=lambda body: Completion(),
        traffic=settings,
        jitter=Random(0),
    )


def pressed(capacity, *, seconds, seed=0, server=None, **traffic):
    """The server and the limit's changes after `seconds` of more work than it can do."""
    server, changes = server or Server(capacity, seed), []
    settings = Traffic(**{"attempts": 1000, "deadline_s": 1e6, **traffic})
    client = asker(server, settings, changes.append)

    async def worker():
        while True:
            await client.ask(b"{}")

    async def main():
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(worker()) for _ in range(1100)]
            await asyncio.sleep(seconds)
            for task in tasks:
                task.cancel()

    virtually(main())
    return server, changes


def goodput(server, *, after_s, until_s):
    return sum(after_s <= when < until_s for when in server.served) / (until_s - after_s)


def rejected_share(server, *, after_s=0.0):
    rejected = sum(when >= after_s for when in server.rejected)
    served = sum(when >= after_s for when in server.served)
    return rejected / (rejected + served)


def test_a_cap_of_60_is_used_almost_fully_and_hardly_ever_run_into():
    server, _ = pressed(Capacity(concurrency=60, retry_after_s=1.0), seconds=75)
    assert goodput(server, after_s=15, until_s=75) >= 0.96 * 60 / MEAN_S
    assert rejected_share(server) <= 0.02


def test_a_cap_that_halves_and_recovers_is_followed_both_ways():
    changes = (Change(at_s=20, concurrency=30), Change(at_s=60, concurrency=60))
    server, _ = pressed(Capacity(concurrency=60, changes=changes), seconds=100)
    assert goodput(server, after_s=24, until_s=60) >= 0.92 * 30 / MEAN_S
    assert goodput(server, after_s=75, until_s=100) >= 0.92 * 60 / MEAN_S
    assert rejected_share(server) <= 0.0125


def test_room_that_comes_back_after_a_known_ceiling_is_used_within_seconds():
    changes = (Change(at_s=40, concurrency=30), Change(at_s=80, concurrency=60))
    runs = [
        pressed(Capacity(concurrency=60, changes=changes, retry_after_s=1.0), seconds=92, seed=seed)
        for seed in range(2)
    ]
    again = mean(goodput(server, after_s=80, until_s=92) for server, _ in runs)
    assert again >= 0.75 * 60 / MEAN_S
    assert mean(rejected_share(server) for server, _ in runs) <= 0.0125


@pytest.mark.parametrize("cap", [1, 2, 4, 8])
@pytest.mark.parametrize("retry_after_s", [None, 1.0])
def test_a_server_that_bears_little_costs_no_judgement_and_hardly_any_time(cap, retry_after_s):
    """The first 32 are far too many: those that were rejected wait for room, not for luck."""
    server = Server(Capacity(concurrency=cap, retry_after_s=retry_after_s))
    client = asker(server, Traffic())

    async def main():
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(client.ask(b"{}")) for _ in range(100)]
        return [task.result() for task in tasks]

    outcomes, elapsed_s = virtually(main())
    assert all(isinstance(outcome, JudgeReply) for outcome in outcomes)
    assert elapsed_s <= 1.15 * 100 * MEAN_S / cap + 3


def test_past_a_knee_the_limit_stops_although_nothing_is_refused():
    server, changes = pressed(Capacity(knee=40), seconds=90)
    assert goodput(server, after_s=15, until_s=90) >= 0.95 * 40 / MEAN_S
    limits = [change.after for change in changes]
    assert max(limits) <= 400  # without the latency gradient it is max_concurrency
    assert limits[-1] <= 40 * 4


@pytest.mark.parametrize("factor", [2.5, 3.5])
def test_answers_that_take_longer_from_now_on_are_not_taken_for_a_queue(factor):
    """A policy that learns to write longer responses makes its judge slower, for good."""
    server = Server(Capacity(), slower=lambda now_s: factor if now_s >= 40 else 1.0)
    pressed(Capacity(), seconds=160, server=server, max_concurrency=100)
    possible = 100 / MEAN_S / factor
    assert goodput(server, after_s=100, until_s=160) >= 0.85 * possible


def test_a_provider_that_counts_requests_per_minute_is_kept_busy_without_a_storm():
    runs = [pressed(Capacity(rpm=3000), seconds=60, rpm="off", seed=seed) for seed in range(2)]
    assert min(goodput(server, after_s=15, until_s=60) for server, _ in runs) >= 0.95 * 50
    assert mean(rejected_share(server, after_s=5) for server, _ in runs) <= 0.05


@pytest.mark.parametrize("rpm", [3000.0, None])
def test_a_quota_that_is_set_or_named_in_headers_is_kept_to_and_used_up(rpm):
    capacity = Capacity(rpm=3000)
    server = Server(capacity, names_quota=rpm is None)
    _, events = pressed(capacity, seconds=60, server=server, rpm=rpm)
    assert goodput(server, after_s=15, until_s=60) >= 0.98 * 50
    assert rejected_share(server, after_s=5) <= 0.002
    learned = [event for event in events if isinstance(event, QuotaLearned)]
    assert [event.per_minute for event in learned] == ([] if rpm else [3000.0])


def test_every_change_of_the_limit_is_told_with_a_reason():
    _, changes = pressed(Capacity(concurrency=20), seconds=20)
    assert all(isinstance(change, LimitChanged) and change.why for change in changes)
    assert changes[0].before == 32
    assert all(a.after == b.before for a, b in pairwise(changes))
    assert {change.endpoint for change in changes} == {"http://judge/v1/chat/completions"}


@pytest.mark.parametrize("bound", [1, 8])
def test_max_concurrency_is_never_passed(bound):
    traffic = {"max_concurrency": bound}
    server, _ = pressed(Capacity(concurrency=None), seconds=10, **traffic)
    assert goodput(server, after_s=0, until_s=10) <= bound / MEAN_S * 1.6


# One of each in `make unit`: a simulation is thousands of requests.
RANDOM = [pytest.param(0.01, marks=WIRE), 0.03, pytest.param(0.1, marks=WIRE)]


@pytest.mark.parametrize("rejects", [pytest.param(0.0, marks=WIRE), *RANDOM])
@pytest.mark.parametrize("cap", [None, 100])
def test_random_429s_cost_the_default_limit_little_more_than_the_best_fixed_number(cap, rejects):
    """They do not come from how many are in flight, so fewer in flight would not help."""

    def took_s(concurrency, seed):
        server = Server(
            Capacity(concurrency=cap, retry_after_s=1.0), seed, rejects=rejects, median_s=0.3
        )
        client = asker(server, Traffic(concurrency=concurrency, attempts=1000, hedge="off"))

        async def main():
            async with asyncio.TaskGroup() as group:
                for _ in range(1000):
                    group.create_task(client.ask(b"{}"))

        return virtually(main())[1]

    # the median: one request that is rejected six times by chance doubles the time of its batch
    auto = median(took_s("auto", seed) for seed in range(3))
    fixed = median(took_s(100, seed) for seed in range(3))
    assert auto <= 1.2 * fixed


@pytest.mark.parametrize("rejects", RANDOM)
def test_a_ceiling_is_found_among_random_429s(rejects):
    server = Server(Capacity(concurrency=60, retry_after_s=1.0), rejects=rejects)
    pressed(Capacity(), seconds=100, server=server)
    assert goodput(server, after_s=15, until_s=100) >= 0.9 * 60 / MEAN_S
    assert rejected_share(server) <= rejects + 0.01


@pytest.mark.parametrize("rejects", RANDOM)
def test_a_knee_is_found_among_random_429s(rejects):
    server = Server(Capacity(knee=40), rejects=rejects)
    pressed(Capacity(), seconds=100, server=server)
    assert goodput(server, after_s=15, until_s=100) >= 0.93 * 40 / MEAN_S
