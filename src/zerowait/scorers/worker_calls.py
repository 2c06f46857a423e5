"""Calls of scorers in a worker process: packed calls in, packed outcomes out.

Calls and outcomes cross between the processes as bytes, so that a value that cannot be pickled,
unpickled or sent is an abstention of its sample and never a fault of the connection.
"""

from __future__ import annotations

import asyncio
import inspect
import pickle
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import msgspec

from zerowait.errors import ZerowaitError
from zerowait.scorers.memory_limit import bounded_growth
from zerowait.scorers.results import crash, outcome_of
from zerowait.scorers.table import Scorer, warmed_up
from zerowait.scorers.user import UserScorer, awaited
from zerowait.types import Abstain, FailureKind, Outcome, Sample

LARGEST_BYTES: Final = 1 << 20
"""The largest outcome that a worker sends back; a larger one is an abstention."""

# A response must not take the trainer's memory; users' functions may hold models.
_MOST_GROWTH_BYTES = 512 << 20


def packed_call(sample: Sample, options: Mapping[str, Any]) -> bytes | Abstain:
    """The sample and the scorer's options as bytes; an abstention where they cannot be pickled."""
    try:
        return pickle.dumps((sample, dict(options)))
    except Exception as error:  # noqa: BLE001 (a row may hold anything)
        return Abstain(
            FailureKind.BAD_INPUT,
            f"the sample cannot be sent to a worker process: {type(error).__name__}: {error}",
        )


def load(name: str) -> bytes:
    """Load the scorer called `name`; empty when it is ready, else a packed abstention."""
    try:
        _scorer(name)
    except ZerowaitError as error:
        return _packed(Abstain(FailureKind.CRASHED, str(error)), name)
    return b""


def answer_many(name: str, calls: Sequence[bytes]) -> list[bytes] | bytes:
    """The packed outcome of each packed call, or one packed abstention for all of them.

    All calls have the same options. Only a function that takes lists gets more than one.
    """
    rows = [_row(call) for call in calls]
    good = [row for row in rows if not isinstance(row, Abstain)]
    outcomes = _outcomes(name, good) if good else []
    if isinstance(outcomes, Abstain):
        return _packed(outcomes, name)
    judged = iter(outcomes)
    found = [row if isinstance(row, Abstain) else next(judged) for row in rows]
    return [_packed(outcome, name) for outcome in found]


async def answer_one(name: str, call: bytes) -> list[bytes] | bytes:
    """As `answer_many` for one call of an asynchronous function, on the running loop."""
    row = _row(call)
    if isinstance(row, Abstain):
        return [_packed(row, name)]
    sample, options = row
    try:
        scorer = _scorer(name)
        assert isinstance(scorer, UserScorer)  # noqa: S101 - nothing else is asynchronous
        outcomes = scorer.read(await awaited(scorer.start(sample, **options)), 1)
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        outcomes = crash(error, name)
    if isinstance(outcomes, Abstain):
        return _packed(outcomes, name)
    return [_packed(outcome, name) for outcome in outcomes]


def unpacked(reply: bytes) -> Outcome:
    """The outcome in a packed one.

    >>> unpacked(_packed(Abstain(FailureKind.CRASHED, "why"), "my:f")).detail
    'why'
    """
    outcome: Outcome = _DECODER.decode(reply)
    return outcome


def unpacked_abstention(reply: object) -> Abstain:
    """The abstention that a worker sent for all calls of a request."""
    assert isinstance(reply, bytes)  # noqa: S101 - one reply, and not a list of them
    outcome = unpacked(reply)
    assert isinstance(outcome, Abstain)  # noqa: S101 - nothing else is sent alone
    return outcome


def _row(call: bytes) -> tuple[Sample, dict[str, Any]] | Abstain:
    try:
        row: tuple[Sample, dict[str, Any]] = pickle.loads(call)  # noqa: S301 (our parent's)
    except Exception as error:  # noqa: BLE001 (a row may hold anything)
        why = f"the sample cannot be read in a worker process: {type(error).__name__}: {error}"
        return Abstain(FailureKind.BAD_INPUT, why)
    return row


def _outcomes(name: str, rows: Sequence[tuple[Sample, dict[str, Any]]]) -> list[Outcome] | Abstain:
    samples, options = [sample for sample, _ in rows], rows[0][1]
    try:
        scorer = _scorer(name)
        if not isinstance(scorer, UserScorer):
            with bounded_growth(_MOST_GROWTH_BYTES):
                return [outcome_of(scorer(*samples, **options), name)]
        returned = scorer.start(*samples, **options)
        if inspect.isawaitable(returned):
            returned = _runner().run(awaited(returned))
        return scorer.read(returned, len(samples))
    except BaseException as error:  # noqa: BLE001 (sys.exit must not end the worker)
        return crash(error, name)


def _packed(outcome: Outcome, name: str) -> bytes:
    try:
        reply = msgspec.msgpack.encode(outcome, enc_hook=_scalar)
        _DECODER.decode(reply)
    except Exception as error:  # noqa: BLE001 (a detail may hold anything)
        why = f"{name} returned something that cannot be sent: {type(error).__name__}"
        return msgspec.msgpack.encode(Abstain(FailureKind.CRASHED, why))
    if len(reply) > LARGEST_BYTES:
        why = f"{name} returned {len(reply):,} bytes; at most {LARGEST_BYTES:,} are taken"
        return msgspec.msgpack.encode(Abstain(FailureKind.CRASHED, why))
    return reply


def _scalar(value: Any) -> Any:
    """A scalar of NumPy or PyTorch as a Python number."""
    if getattr(value, "shape", None) == ():
        return value.item()
    raise TypeError(f"a {type(value).__name__} cannot be sent")


@cache
def _scorer(name: str) -> Scorer:
    return warmed_up(name)


@cache
def _runner() -> asyncio.Runner:
    """One loop for the life of the worker: users' HTTP clients and locks belong to a loop."""
    return asyncio.Runner()


_DECODER: Final = msgspec.msgpack.Decoder(Outcome)
