"""Measures the drift of judges by their anchors while a job runs, at the lowest priority."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from zerowait.client import EndpointStates
from zerowait.config import EverySteps, Judge
from zerowait.engine.judging.runner import JudgeRunner
from zerowait.events import (
    AnchorsMeasured,
    Drift,
    Event,
    JudgeDrifted,
    JudgementSettled,
    Listener,
    RewardSettled,
)
from zerowait.judge.anchors import Anchor, drift_between, share_of
from zerowait.types import Sample

ANCHORS: Final = "(anchors)"
"""The component on whose account anchors are asked; no component of a reward can be called so."""

_AT_ONCE: Final = 4
_LOOK_EVERY_S: Final = 0.25
_LONGEST_WAIT_S: Final = 30.0


class AnchorSet(msgspec.Struct, frozen=True, kw_only=True):
    """A judge with its anchors; `bounds` are its least and its greatest score."""

    judge: Judge
    anchors: list[Anchor]
    bounds: tuple[float, float]


class AnchorWatch:
    """Measures the drift of a job's judges, each in a task of its own, until it is closed.

    A measurement begins when it is started and each time when it is due. It asks at most four
    anchors of a judge at once, each when no request waits for a slot or for quota, or after 30 s.

    Args:
        sets: the anchors, by judge.
        endpoint_states: where the judges' slots are handed out.
        listener: receives every measurement and every alarm.
        stands_for: the number of engines of the job: the judgements of the others, which take as
            many, are not seen here.
    """

    def __init__(
        self,
        sets: Mapping[str, AnchorSet],
        endpoint_states: EndpointStates,
        listener: Listener,
        *,
        stands_for: int = 1,
    ) -> None:
        self._sets = sets
        self._endpoint_states = endpoint_states
        self._listener = listener
        self._stands_for = stands_for
        self._meters: dict[str, _DriftMeter] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, judges: Mapping[str, JudgeRunner]) -> None:
        """Begin to measure, on the running loop."""
        for name, given in self._sets.items():
            meter = _DriftMeter(name, given, judges[name], self._endpoint_states, self._listener)
            self._meters[name] = meter
            self._tasks.append(asyncio.create_task(meter.run(), name=f"anchors of {name}"))

    def __call__(self, event: Event) -> None:
        """Count what makes a measurement due."""
        if not self._meters:
            return
        match event:
            case JudgementSettled(judge=name, component=component) if component != ANCHORS:
                meter = self._meters.get(name)
                if meter is not None:
                    meter.add_judgements(self._stands_for)
            case RewardSettled(sample=Sample(step=int(step), split="train")):
                for meter in self._meters.values():
                    meter.at_step(step)
            case _:
                pass

    async def aclose(self) -> None:
        """End every measurement. Idempotent; raises what a task failed with, which none should."""
        tasks, self._tasks = self._tasks, []
        self._meters = {}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()


class _DriftMeter:
    """The measurements of one judge so far."""

    def __init__(
        self,
        name: str,
        given: AnchorSet,
        asked: JudgeRunner,
        endpoint_states: EndpointStates,
        listener: Listener,
    ) -> None:
        self._name = name
        self._given = given
        self._asked = asked
        self._endpoint_states = endpoint_states
        self._listener = listener
        self._due = asyncio.Event()
        self._due.set()
        self._judgements = 0
        self._step: int | None = None
        self._measurements = 0
        self._first: list[float | None] = [None] * len(given.anchors)
        self._above: set[str] = set()

    def add_judgements(self, count: int) -> None:
        every = self._given.judge.anchors_every
        self._judgements += count
        if not isinstance(every, EverySteps) and self._judgements >= every:
            self._judgements = 0
            self._due.set()

    def at_step(self, step: int) -> None:
        every = self._given.judge.anchors_every
        if self._step is None:
            self._step = step
        if isinstance(every, EverySteps) and step >= self._step + every.steps:
            self._step = step
            self._due.set()

    async def run(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            self._compare(await self._measured())

    async def _measured(self) -> list[float | None]:
        """Each anchor's verdict as a share of the range; None where it was not reached."""
        anchors, bounds = self._given.anchors, self._given.bounds
        room = asyncio.Semaphore(_AT_ONCE)

        async def ask(anchor: Anchor) -> float | None:
            async with room:
                await self._wait_for_room()
                return share_of(await self._asked.judge(anchor.sample, component=ANCHORS), bounds)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(anchor)) for anchor in anchors]
        return [task.result() for task in tasks]

    async def _wait_for_room(self) -> None:
        """Wait until no request would have to wait for us; at most 30 s, or drift would go unseen.

        It polls: slots and quota become free in many places. It sleeps before the first look, too:
        a job that begins when its engine opens has not queued its requests yet.
        """
        states, clock = self._endpoint_states, asyncio.get_running_loop().time
        give_up_at = clock() + _LONGEST_WAIT_S
        is_crowded = True
        while is_crowded and clock() < give_up_at:
            await asyncio.sleep(_LOOK_EVERY_S)
            is_crowded = states.waiting > 0 or states.in_flight >= states.limit

    def _compare(self, shares: list[float | None]) -> None:
        self._measurements += 1
        # what the first measurement did not reach is compared with the first verdict that was
        self._first = [a if a is not None else b for a, b in zip(self._first, shares, strict=True)]
        references = [anchor.reference for anchor in self._given.anchors]
        since_first = drift_between(self._first, shares)
        from_reference = drift_between(references, shares)
        self._listener(
            AnchorsMeasured(
                judge=self._name,
                measurement=self._measurements,
                asked=len(shares),
                reached=sum(share is not None for share in shares),
                since_first=since_first,
                from_reference=from_reference,
            )
        )
        self._warn("first", since_first)
        self._warn("reference", from_reference)

    def _warn(self, against: Literal["first", "reference"], drift: Drift | None) -> None:
        """Tell when the drift gets above the limit, and not again before it was below."""
        limit = self._given.judge.anchors_alarm
        if drift is None:
            return
        if drift.mean_abs <= limit:
            self._above.discard(against)
        elif against not in self._above:
            self._above.add(against)
            self._listener(
                JudgeDrifted(judge=self._name, against=against, drift=drift, limit=limit)
            )
