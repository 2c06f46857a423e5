"""What a worker process does with a sample: bytes in, bytes out, whatever the function does.

Only bytes cross between the processes, so that a value that cannot be pickled, unpickled or sent
is an abstention of its sample and never a fault of the channel.
"""

from __future__ import annotations

import asyncio
import inspect
import pickle
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec

from zerowait.errors import ConfigError
from zerowait.scorers.adapt import crash, outcome_of
from zerowait.scorers.table import Scorer, resolve
from zerowait.scorers.user import UserScorer, settled
from zerowait.types import Abstain, FailureKind, Outcome, Sample

LARGEST_BYTES: Final = 1 << 20
"""The largest outcome that a worker sends back; a larger one is an abstention."""


def packed_work(sample: Sample, options: Mapping[str, Any]) -> bytes | Abstain:
    """What `answer` needs to know, or an abstention where it cannot be sent to another process."""
    try:
        return pickle.dumps((sample, dict(options)))
    except Exception as error:  # noqa: BLE001 (a row may hold anything)
        return Abstain(
            FailureKind.BAD_INPUT,
            f"the sample cannot be sent to a worker process: {type(error).__name__}: {error}",
        )


def load(name: str) -> bytes:
    """Nothing once the scorer called `name` is imported, else the packed abstention."""
    try:
        _scorer(name)
    except ConfigError as error:
        return _packed(Abstain(FailureKind.CRASHED, str(error)), name)
    return b""


def answer(name: str, work: bytes) -> bytes:
    """The packed outcome of the scorer called `name` for packed `work`."""
    try:
        sample, options = pickle.loads(work)  # noqa: S301 (our own parent packed it)
    except Exception as error:  # noqa: BLE001 (a row may hold anything)
        message = f"the sample cannot be read in a worker process: {type(error).__name__}: {error}"
        return _packed(Abstain(FailureKind.BAD_INPUT, message), name)
    try:
        outcome = outcome_of(_returned(name, sample, options), name)
    except BaseException as error:  # noqa: BLE001 (sys.exit must not end the worker)
        outcome = crash(error, name)
    return _packed(outcome, name)


def unpacked(reply: bytes) -> Outcome:
    """The outcome in a worker's reply.

    >>> unpacked(_packed(Abstain(FailureKind.CRASHED, "why"), "my:f")).detail
    'why'
    """
    outcome: Outcome = _DECODER.decode(reply)
    return outcome


def _returned(name: str, sample: Sample, options: Mapping[str, Any]) -> Any:
    scorer = _scorer(name)
    if not isinstance(scorer, UserScorer):
        return scorer(sample, **options)
    returned = scorer.start(sample, **options)
    if inspect.isawaitable(returned):
        return _runner().run(settled(returned))
    return returned


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
    """A scalar of NumPy or PyTorch as Python's own."""
    if getattr(value, "shape", None) == ():
        return value.item()
    raise TypeError(f"a {type(value).__name__} cannot be sent")


@cache
def _scorer(name: str) -> Scorer:
    return resolve(name)


@cache
def _runner() -> asyncio.Runner:
    """One loop for the life of the worker: users' HTTP clients and locks belong to a loop."""
    return asyncio.Runner()


_DECODER: Final = msgspec.msgpack.Decoder(Outcome)
