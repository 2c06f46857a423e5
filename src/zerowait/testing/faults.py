"""Faults of a fake judge: what goes wrong, in which share of requests, and whether retries help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import msgspec

from zerowait.testing.draws import Draws

Part: TypeAlias = Literal["nothing", "headers", "half"]
"""Part of the reply that the client gets before the connection breaks or hangs."""


class Fault(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="fault"
):
    """Base of all faults.

    Args:
        share: of attempts, or of questions with `always`, in (0, 1].
        always: chosen once by the messages' content, so that no retry helps, not even with another
            body; else chosen anew for each attempt, so that a retry can succeed.
        first: limits the fault to a body's first so many attempts; None for all.
    """

    share: float = 1.0
    always: bool = False
    first: int | None = None

    @property
    def name(self) -> str:
        """Its name in scripts and counts, such as ``truncated_json``."""
        return str(self.__struct_config__.tag)

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be in (0, 1], not {self.share}")
        if self.first is not None and self.first < 1:
            raise ValueError(f"first must be at least 1, not {self.first}")


class Status(Fault, frozen=True, kw_only=True, tag="status"):
    """An error reply with this HTTP status; 429 is sent at once, others after the latency.

    With `always` it depends on the request, such as a prompt that is too large: every attempt fails
    while other requests are answered.

    Args:
        status: from 400 to 599.
        retry_after_s: sent as ``Retry-After``; None for none.
        message: of the error; empty takes OpenAI's message for this status.
    """

    status: int
    retry_after_s: float | None = None
    message: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 400 <= self.status <= 599:
            raise ValueError(f"status must be from 400 to 599, not {self.status}")


class Reset(Fault, frozen=True, kw_only=True, tag="reset"):
    """The connection breaks after a part of the reply.

    Args:
        sent: the part.
        graceful: closes the connection instead of resetting it.
    """

    sent: Part = "half"
    graceful: bool = False


class Hang(Fault, frozen=True, kw_only=True, tag="hang"):
    """The reply stops after a part of it and the connection stays open."""

    sent: Part = "nothing"


class TruncatedJson(Fault, frozen=True, kw_only=True, tag="truncated_json"):
    """A whole HTTP reply whose JSON stops in the middle."""


class WrongTypes(Fault, frozen=True, kw_only=True, tag="wrong_types"):
    """Valid JSON of the wrong form: ``choices`` is text, ``content`` a number, and so on."""


class Empty(Fault, frozen=True, kw_only=True, tag="empty"):
    """``content`` is empty, blank or null, and ``finish_reason`` is ``stop``.

    Args:
        tokens: the reported ``completion_tokens``: 0 as from a server that dropped the request,
            more as from a model that wrote nothing.
    """

    tokens: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tokens < 0:
            raise ValueError(f"tokens must be at least 0, not {self.tokens}")


class Ending(Fault, frozen=True, kw_only=True, tag="ending"):
    """Status 200 with a ``finish_reason`` of an incomplete reply.

    Args:
        word: such as ``abort`` or ``error``.
        content: ``none``, ``verdict`` for a wrong verdict, or ``mixed`` for either.
    """

    word: str = "abort"
    content: Literal["none", "verdict", "mixed"] = "mixed"


class ErrorInBody(Fault, frozen=True, kw_only=True, tag="error_in_body"):
    """Status 200 with an error in the body, as API relays send it.

    Args:
        code: the error's ``code``: a status such as 429, or a word such as ``server_error``.
        message: of the error.
    """

    code: int | str = 429
    message: str = "Provider returned error"


class Moderation(Fault, frozen=True, kw_only=True, tag="moderation"):
    """The provider's content filter rejects the request, in the form of that provider."""

    always: bool = True
    form: Literal["azure", "deepseek", "dashscope", "openrouter", "mixed"] = "mixed"


class Exhausted(Fault, frozen=True, kw_only=True, tag="exhausted"):
    """The account has no quota or credit left: OpenAI's 429, DeepSeek's 402, Anthropic's 400."""

    form: Literal["openai", "deepseek", "anthropic"] = "openai"


class Length(Fault, frozen=True, kw_only=True, tag="length"):
    """``finish_reason`` is ``length``; the truncated content may look like a verdict.

    Args:
        cured_at: requests with at least so many maximal tokens get a verdict; None: none does.
        thinking: the tokens are in ``reasoning_content``, and ``content`` is null.
    """

    always: bool = True
    cured_at: int | None = None
    thinking: bool = False


class Refusal(Fault, frozen=True, kw_only=True, tag="refusal"):
    """The judge declines: in ``message.refusal``, in the text, or by ``content_filter``."""

    always: bool = True
    form: Literal["field", "text", "filter", "mixed"] = "mixed"


class Garbage(Fault, frozen=True, kw_only=True, tag="garbage"):
    """Text without a verdict."""

    always: bool = True


class OutOfRange(Fault, frozen=True, kw_only=True, tag="out_of_range"):
    """A verdict outside the rule, such as 11 of 1 to 10, or a word that is no choice."""

    always: bool = True


AnyFault: TypeAlias = (
    Status
    | Reset
    | Hang
    | TruncatedJson
    | WrongTypes
    | Empty
    | Ending
    | ErrorInBody
    | Moderation
    | Exhausted
    | Length
    | Refusal
    | Garbage
    | OutOfRange
)

FAULTS: dict[str, type[AnyFault]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(AnyFault)
}


def check_shares(faults: Sequence[AnyFault]) -> None:
    """Raise ValueError when the shares of one kind, always or per attempt, exceed 1."""
    for always in (True, False):
        total = sum(fault.share for fault in faults if fault.always is always)
        if total > 1 + 1e-9:
            sort = "always" if always else "per attempt"
            raise ValueError(f"the shares of the faults that are {sort} add up to {total:g} > 1")


def choose_fault(
    faults: Sequence[AnyFault], *, content: Draws, attempt: Draws, nth: int, tokens: int | None
) -> AnyFault | None:
    """The fault of this attempt, or None.

    Each fault owns a slice of [0, 1) as wide as its share. Faults with `always` come first.

    Args:
        faults: those of the script, in its order.
        content: draws of the messages' content.
        attempt: draws of this attempt.
        nth: number of this attempt of the body, from 1.
        tokens: the ``max_tokens`` of the request.
    """
    for always, point in ((True, content.fault), (False, attempt.fault)):
        fault = _at(faults, point, always=always)
        if fault is not None and _applies(fault, nth=nth, tokens=tokens):
            return fault
    return None


def _at(faults: Sequence[AnyFault], point: float, *, always: bool) -> AnyFault | None:
    for fault in faults:
        if fault.always is not always:
            continue
        if point < fault.share:
            return fault
        point -= fault.share
    return None


def _applies(fault: AnyFault, *, nth: int, tokens: int | None) -> bool:
    if fault.first is not None and nth > fault.first:
        return False
    if isinstance(fault, Length) and fault.cured_at is not None:
        return tokens is not None and tokens < fault.cured_at
    return True
