"""Everything goes wrong at once, in virtual time: what comes out must still be true."""

import asyncio
import re
from collections import Counter
from random import Random

import pytest

from zerowait import Sample
from zerowait.client import Reply, TransportError
from zerowait.engine import Engine
from zerowait.events import EndpointEjected, LimitChanged, RequestHedged
from zerowait.testing import Capacity, Change, virtually
from zerowait.testing.capacity import CapacityGate
from zerowait.types import FailureKind

COUNT = 3000
NUMBER = re.compile(rb"answer (\d+)\.")


def verdict_on(number):
    return 1 + number % 10


class Storm:
    """Two hosts of changing capacity that refuse, break, stall, lie and die; one is dead a while."""

    def __init__(self, seed):
        self.random = Random(seed)
        small = Capacity(
            concurrency=20, retry_after_s=1.0, changes=(Change(at_s=30, concurrency=8),)
        )
        self.gates = {
            "a": CapacityGate(small),
            "b": CapacityGate(Capacity(concurrency=50, rpm=6000)),
        }
        self.in_flight = Counter()
        self.peak = Counter()
        self.answered = Counter()
        self.answered_at_s = {}
        self.asked_after_answer = self.health_checks = 0

    async def send(self, request, *, timeout_s):
        host = request.url.split("/")[2]
        if b"(health check " in request.body:
            self.health_checks += 1
            return await self.serve(host, None)
        number = int(NUMBER.search(request.body)[1])
        # a copy that leaves at the very instant of the answer could not know of it
        now_s = asyncio.get_running_loop().time()
        self.asked_after_answer += self.answered_at_s.get(number, now_s) < now_s
        self.in_flight[host] += 1
        self.peak[host] = max(self.peak[host], self.in_flight[host])
        try:
            async with asyncio.timeout(timeout_s):
                return await self.serve(host, number)
        except TimeoutError:
            raise TransportError(FailureKind.TIMEOUT, "too late") from None
        finally:
            self.in_flight[host] -= 1

    async def serve(self, host, number):
        now_s = asyncio.get_running_loop().time()
        if host == "b" and 20 <= now_s < 50:
            raise TransportError(FailureKind.UNREACHABLE, "no connection")
        gate = self.gates[host]
        busy = gate.enter(tokens=1, now_s=now_s)
        if busy is not None:
            await asyncio.sleep(0.02)
            return Reply(429, {name.lower(): text for name, text in busy.headers.items()}, b"")
        try:
            await asyncio.sleep(self.random.lognormvariate(-1, 0.8))
            return await self.misbehave(number, gate.headers())
        finally:
            gate.leave()

    async def misbehave(self, number, headers):
        draw = self.random.random()
        if draw < 0.02:
            await asyncio.sleep(30)
        elif draw < 0.04:
            raise TransportError(FailureKind.UNREACHABLE, "cut", reused_connection=True)
        elif draw < 0.06:
            return Reply(500, {}, b"oops")
        elif draw < 0.07:
            return Reply(503, {"retry-after": "1"}, b"")
        elif draw < 0.09:
            return Reply(200, {}, b'{"choices": [{"message": {"content": "Score: 5')
        if number is None:
            return Reply(200, headers, b'{"choices": [{"message": {"content": "Score: 5"}}]}')
        self.answered[number] += 1
        self.answered_at_s[number] = asyncio.get_running_loop().time()
        content = b'{"choices": [{"message": {"content": "Score: %d"}}], "usage": null}'
        return Reply(200, headers, content % verdict_on(number))

    async def aclose(self):
        pass


def configuration(**traffic):
    hosts = [{"base_url": f"http://{host}/v1", "model": "m"} for host in ("a", "b")]
    return {
        "components": {"quality": {"judge": "q"}},
        "judges": {"q": {"endpoints": hosts, "verdict": {"integer": [1, 10]}}},
        "traffic": {"timeout_s": 20, "attempts": 30, **traffic},
        "cache": "off",
    }


@pytest.mark.parametrize(("concurrency", "seed"), [("auto", 1), ("auto", 2), (8, 1)])
def test_no_judgement_is_lost_or_wrong_and_no_judge_is_asked_again_after_an_answer(
    concurrency, seed
):
    storm, events = Storm(seed), []
    samples = [Sample("q", f"answer {number}.") for number in range(COUNT)]

    async def main():
        settings = configuration(concurrency=concurrency)
        async with Engine(settings, transport=storm, listener=events.append) as engine:
            return await engine.score_all(samples), engine.stats()

    (rewards, stats), elapsed_s = virtually(main())
    assert [reward.value for reward in rewards] == [verdict_on(n) for n in range(COUNT)]
    assert storm.asked_after_answer == 0
    assert set(storm.answered.values()) == {1}
    assert storm.health_checks <= 100
    assert (stats.in_flight, stats.waiting) == (0, 0)
    assert elapsed_s < 600
    assert any(isinstance(event, EndpointEjected) for event in events)
    assert any(isinstance(event, RequestHedged) and event.won for event in events)
    if concurrency == "auto":
        for host in ("a", "b"):
            highest = max(
                [32]
                + [
                    event.after
                    for event in events
                    if isinstance(event, LimitChanged) and f"//{host}/" in event.endpoint
                ]
            )
            assert storm.peak[host] <= highest
    else:
        assert stats.peak_in_flight <= concurrency
        assert max(storm.peak.values()) <= concurrency
