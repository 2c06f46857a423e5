"""A judge in virtual time, which is exact and takes no waiting; and clients that press it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import Any

from zerowait.client import EndpointStates, JudgeClient, Reply, Request
from zerowait.completion import Completion
from zerowait.config import Endpoint, Traffic
from zerowait.events import Listener, ignore_event
from zerowait.testing import Capacity, virtually
from zerowait.testing.capacity import CapacityGate

_REFUSED_AFTER_S = 0.02


class Server:
    """A transport to a server of `capacity` with log-normal latency of median 1 s.

    Args:
        capacity: how much it bears.
        seed: of latencies and fates.
        median_s: of the latencies.
        sigma: of their logarithms.
        stalls: the share of requests that take `stall_s`.
        stall_s: how long a stalled one takes.
        refuses: the share that is refused by chance.
        fates: for each time that a body comes, a status, ``stall``, or 200; 200 after these.
    """

    def __init__(  # noqa: PLR0913 - each is one thing that a server may do
        self,
        capacity: Capacity,
        *,
        seed: int = 0,
        median_s: float = 1.0,
        sigma: float = 0.4,
        stalls: float = 0.0,
        stall_s: float = 30.0,
        refuses: float = 0.0,
        fates: Mapping[bytes, Sequence[int | str]] = MappingProxyType({}),
    ) -> None:
        self.answered_s: list[float] = []
        self.latencies_s: list[float] = []
        self.refused = 0
        self.sent = 0
        self._gate = CapacityGate(capacity)
        self._random = Random(seed)
        self._sigma = sigma
        self._stalls = stalls
        self._stall_s = stall_s
        self._refuses = refuses
        self._fates = fates
        self._came: Counter[bytes] = Counter()
        self.names_quota = True
        self._median_s = median_s

    async def send(self, request: Request, *, timeout_s: float) -> Reply:  # noqa: ARG002
        """A reply, after its time."""
        clock = asyncio.get_running_loop().time
        began_s = clock()
        self.sent += 1
        fate = self._fate(request.body) if self._fates else 200
        if isinstance(fate, int) and fate != 200:
            await asyncio.sleep(_REFUSED_AFTER_S)
            self.refused += fate == 429
            return Reply(fate, {"retry-after": "1"} if fate == 429 else {}, b"")
        if self._refuses and self._random.random() < self._refuses:
            await asyncio.sleep(_REFUSED_AFTER_S)
            self.refused += 1
            return Reply(429, {"retry-after": "1"}, b"")
        busy = self._gate.enter(tokens=1, now_s=began_s)
        if busy is not None:
            await asyncio.sleep(_REFUSED_AFTER_S)
            self.refused += 1
            return Reply(429, self._named(busy.headers), b"")
        try:
            latency_s = self._stall_s if fate == "stall" else self._latency_s()
            await asyncio.sleep(latency_s * self._gate.slowdown())
        finally:
            self._gate.leave()
        self.answered_s.append(clock())
        self.latencies_s.append(clock() - began_s)
        return Reply(200, self._gate.headers() if self.names_quota else {}, b"{}")

    async def aclose(self) -> None:
        """Nothing to close."""

    def _fate(self, body: bytes) -> int | str:
        """What becomes of a request with this body, this time."""
        number, self._came[body] = self._came[body], self._came[body] + 1
        fates = self._fates.get(body, ())
        return fates[number] if number < len(fates) else 200

    def _named(self, headers: dict[str, str]) -> dict[str, str]:
        named = {name.lower(): text for name, text in headers.items()}
        if self.names_quota:
            return named
        return {name: text for name, text in named.items() if not name.startswith("x-ratelimit")}

    def _latency_s(self) -> float:
        if self._random.random() < self._stalls:
            return self._stall_s
        return self._median_s * self._random.lognormvariate(0.0, self._sigma)


def client(
    server: Server,
    *,
    seed: int = 0,
    listener: Listener = ignore_event,
    known_s: list[float] | None = None,
    **traffic: Any,
) -> Any:
    """A judge client whose only endpoint is `server`; `known_s` are latencies of an earlier run."""
    settings = Traffic(**{"attempts": 1000, "deadline_s": 1e6, "timeout_s": 120.0, **traffic})
    endpoint_states = EndpointStates(settings, listener=listener)
    endpoint_states.recall({"http://simulated/v1/chat/completions m": known_s or []})
    return JudgeClient(
        endpoints=[Endpoint(base_url="http://simulated/v1", model="m")],
        transport=server,
        endpoint_states=endpoint_states,
        decode=lambda body: Completion() if body else None,
        traffic=settings,
        listener=listener,
        jitter=Random(seed),
    )


def pressed(server: Server, *, seconds: float, callers: int = 1100, **traffic: Any) -> None:
    """Keep more in line than `server` can do, for so many virtual seconds."""
    judge = client(server, **traffic)

    async def caller() -> None:
        while True:
            await judge.ask(b"{}")

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(caller()) for _ in range(callers)]
            await asyncio.sleep(seconds)
            for task in tasks:
                task.cancel()

    virtually(main())


def batch_s(server: Server, count: int, **traffic: Any) -> float:
    """Virtual seconds until `count` judgements that come at once have all ended."""
    judge = client(server, **traffic)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for row in range(count):
                group.create_task(judge.ask(b'{"row": %d}' % row))

    return virtually(main())[1]
