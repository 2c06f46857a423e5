"""An engine that is one of several: it asks for the keys that it owns, the others for the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from zerowait.cache import Shard
from zerowait.engine.judging.result import JudgementResult, Read
from zerowait.judge import ChatRequest


class ForwardedRequest(msgspec.Struct, frozen=True):
    """A judgement that another engine is to bring about.

    Args:
        judge: its name in the configuration, which is the same for all.
        key: of the request; its owner is asked.
        request: what the judge is asked.
        read: what a reply's body means: the judge's question of that index, or a reader that can
            travel.
        apart: whether it is paid from the validation's own budget.
    """

    judge: str
    key: str
    request: ChatRequest
    read: int | Read
    apart: bool = False


@dataclass(frozen=True)
class Partition:
    """Which keys are this engine's, and how the owner of another one is asked.

    Args:
        shard: this engine's place among the others.
        ask: what the engine at an index brings for a `ForwardedRequest`, and whether it joined a
            judgement that was in flight there; see `Engine.answer`.
    """

    shard: Shard
    ask: Callable[[int, ForwardedRequest], Awaitable[tuple[JudgementResult, bool]]]

    def elsewhere(self, key: str) -> int | None:
        """The index of the engine that owns `key`, or None: it is this one."""
        owner = self.shard.owner(key)
        return None if owner == self.shard.index else owner
