"""Several engines share a job: each asks the judge for the keys that it owns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from zerowait.cache import Shard
from zerowait.engine.judging.result import JudgementResult, Read
from zerowait.judge import ChatRequest


class ForwardedRequest(msgspec.Struct, frozen=True):
    """A judge request that is forwarded to the engine that owns its key.

    Args:
        judge: its name in the configuration, which is the same for all engines.
        key: of the request.
        request: what the judge is asked.
        read: the reader of its reply: the index of the judge's question, or a reader that can be
            pickled.
        apart: whether it is paid from the validation's own budget.
        form: of the answer that the endpoint is asked to enforce, by name; empty for none.
    """

    judge: str
    key: str
    request: ChatRequest
    read: int | Read
    apart: bool = False
    form: str = ""


@dataclass(frozen=True)
class Partition:
    """The keys that this engine owns, and the way to the owners of the others.

    Args:
        shard: this engine's place among the others.
        ask: sends a `ForwardedRequest` to the engine of an index; returns its result, and whether
            it joined a call in flight there (see `Engine.answer`).
    """

    shard: Shard
    ask: Callable[[int, ForwardedRequest], Awaitable[tuple[JudgementResult, bool]]]

    def elsewhere(self, key: str) -> int | None:
        """The index of the engine that owns `key`, or None: it is this one."""
        owner = self.shard.owner(key)
        return None if owner == self.shard.index else owner
