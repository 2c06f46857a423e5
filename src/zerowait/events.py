"""What happens, as typed values handed to whoever listens.

The library never prints and never configures logging. An engine calls every listener with every
event, on its own loop; a listener must be quick. Metrics, records and progress bars are listeners.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from zerowait.types import Outcome, Reward, Sample


class RequestRetried(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt failed and another follows after `wait_s` seconds."""

    endpoint: str
    attempt: int
    wait_s: float
    why: str


class RequestEnded(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt came to its end.

    Args:
        status: the HTTP status, or 0 when no reply came.
        latency_s: from the send to the end of the reply.
        queue_s: spent waiting for a slot before the send.
    """

    endpoint: str
    status: int
    latency_s: float
    queue_s: float


class JudgementSettled(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's verdict was reached, or it is known that it was not.

    Args:
        source: ``asked`` the judge, answered from the ``cache``, or ``joined`` a call in flight.
        latency_s: of the successful attempt; 0 when nobody was asked.
    """

    judge: str
    key: str
    outcome: Outcome
    source: Literal["asked", "cache", "joined"]
    attempts: int = 0
    latency_s: float = 0.0
    queue_s: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    model: str = ""


class RewardSettled(msgspec.Struct, frozen=True, kw_only=True):
    """A sample's reward is known; `submitted_at` and `settled_at` are Unix times in seconds."""

    sample: Sample
    reward: Reward
    submitted_at: float
    settled_at: float


class StoreFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The cache could not be read or written; the judgement goes on without it."""

    why: str


class LoopLagged(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's loop did not run for `lag_s` seconds: something blocked it.

    Args:
        lag_s: how late the loop was.
        where: the function that blocked it, with file and line; empty when it is not known, as
            for code that holds Python's global lock, or a process that was stopped.
    """

    lag_s: float
    where: str = ""


Event: TypeAlias = (
    RequestRetried | RequestEnded | JudgementSettled | RewardSettled | StoreFailed | LoopLagged
)
Listener: TypeAlias = Callable[[Event], None]


def nobody(event: Event) -> None:
    """A listener that ignores every event."""
