"""The interface to the judgements in the record of a run, by which a replay answers its judges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from zerowait.types import Abstain

AnsweredBy: TypeAlias = Literal["same", "reread", "failed", "cache", "asked", "missing"]
"""How a judgement of a replay was answered: by the reply to the ``same`` request; by one that was
``reread`` in another form; it had ``failed`` in the run, and fails again; by the ``cache``; the
judge was ``asked``; or the answer is ``missing``."""


class RecordedReply(msgspec.Struct, frozen=True, kw_only=True):
    """A judgement in the record of a run.

    Args:
        key: of its request.
        vote: index of the call among the votes on one question.
        request: the body of the request; empty where it was not kept.
        reply: the raw body of the reply; empty where there was none, or it was not kept.
        failure: why there was no verdict; None where there was one.
    """

    key: str
    vote: int = 0
    request: bytes = b""
    reply: bytes = b""
    failure: Abstain | None = None


class RecordedReplies(Protocol):
    """The judgements in the record of a run."""

    @property
    def may_ask(self) -> bool:
        """Whether a judge is asked for what the record cannot answer."""
        ...

    def with_key(self, key: str) -> Sequence[RecordedReply]:
        """The judgements of one request, the latest first."""
        ...

    def of_samples(self, uids: tuple[str, ...]) -> Sequence[RecordedReply]:
        """All judgements of the samples that have these names in the record, the latest first."""
        ...

    def count(self, judge: str, how: AnsweredBy, why: str = "") -> None:
        """Count how a question to `judge` was answered; of a missing answer, and why."""
        ...
