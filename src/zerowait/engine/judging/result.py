"""The result of one judge request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from zerowait.completion import Completion
from zerowait.events import FailedAttempt
from zerowait.types import Outcome

Read: TypeAlias = Callable[[Completion], Outcome]
"""Reads the verdict in a decoded reply."""


class JudgementResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one call, for every caller that waited for it.

    Args:
        outcome: the verdict, or why there is none.
        source: whether the judge was asked, the cache knew, or the budget refused.
        attempts: requests sent.
        latency_s: of the attempt that succeeded, in seconds.
        queue_s: seconds in our own queues.
        prompt_tokens: as the judge billed them.
        completion_tokens: likewise.
        cost_usd: by these, in dollars; 0 without a price.
        model: the name of the model that answered.
        reply: the body that `outcome` was read from, by `read`; empty when there was none.
        read: the reader.
        hedges: of the attempts, the hedged copies.
        endpoint: the one that answered, or was asked last; empty where none was asked.
        elapsed_s: seconds that the call took, with queues, retries and waits.
        status: of the last HTTP reply; 0 without one.
        failed: the attempts that brought no answer, where a record is kept.
        refused_by: the endpoint that refuses to enforce the form of the answer; empty for none.
    """

    outcome: Outcome
    source: Literal["asked", "cache", "refused"]
    attempts: int = 0
    latency_s: float = 0.0
    queue_s: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    model: str = ""
    reply: bytes = b""
    read: Read | None = None
    hedges: int = 0
    endpoint: str = ""
    elapsed_s: float = 0.0
    status: int = 0
    failed: tuple[FailedAttempt, ...] = ()
    refused_by: str = ""
