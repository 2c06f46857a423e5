"""What came of one request to a judge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from zerowait.types import Outcome

Read: TypeAlias = Callable[[bytes], Outcome]
"""What the body of a judge's reply means."""


class JudgementResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one flight brought, for everybody who waited for it.

    Args:
        reply: the body that `outcome` was read from, by `read`; empty when there was none.
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
