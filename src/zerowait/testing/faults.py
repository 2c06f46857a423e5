"""What can go wrong at a judge, as values: which fault, how often, and how stubborn it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import msgspec

from zerowait.testing.draws import Draws

Part: TypeAlias = Literal["nothing", "headers", "half"]
"""How much of the reply the client gets before the connection breaks or goes silent."""


class Fault(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="fault"
):
    """One way to go wrong.

    Args:
        share: of the attempts, or of the questions with `always`, in (0, 1].
        always: chosen once by the messages' content, so that asking again does not help, not even
            in another body; else chosen anew at each attempt, so that a retry can succeed.
        first: only a body's first so many attempts; None for all.
    """

    share: float = 1.0
    always: bool = False
    first: int | None = None

    @property
    def name(self) -> str:
        """What scripts and counts call it, such as ``truncated_json``."""
        return str(self.__struct_config__.tag)

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be in (0, 1], not {self.share}")
        if self.first is not None and self.first < 1:
            raise ValueError(f"first must be at least 1, not {self.first}")


class Status(Fault, frozen=True, kw_only=True, tag="status"):
    """An error reply with this HTTP status; 429 comes at once, others when the reply was due.

    With `always` it is the request's own: a prompt that one server finds too large, or that crashes
    it, is refused each time while others are answered. Without, each attempt has its own chance.

    Args:
        status: from 400 to 599.
        retry_after_s: sent as ``Retry-After``; None for none.
        message: the error's words; empty: those that OpenAI has for this status.
    """

    status: int
    retry_after_s: float | None = None
    message: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 400 <= self.status <= 599:
            raise ValueError(f"status must be from 400 to 599, not {self.status}")


class Reset(Fault, frozen=True, kw_only=True, tag="reset"):
    """The connection breaks after a part of the reply; `graceful` closes it, else it is reset."""

    sent: Part = "half"
    graceful: bool = False


class Hang(Fault, frozen=True, kw_only=True, tag="hang"):
    """After a part of the reply nothing more comes, until the client goes away."""

    sent: Part = "nothing"


class TruncatedJson(Fault, frozen=True, kw_only=True, tag="truncated_json"):
    """A whole HTTP reply whose JSON stops in the middle."""


class WrongTypes(Fault, frozen=True, kw_only=True, tag="wrong_types"):
    """Valid JSON of the wrong form: ``choices`` is text, ``content`` a number, and so on."""


class Empty(Fault, frozen=True, kw_only=True, tag="empty"):
    """``content`` is empty, blank or null, and ``finish_reason`` is ``stop``.

    Args:
        tokens: the ``completion_tokens`` that it names: with 0 nothing was generated, as where a
            server dropped the request; with more the judge itself wrote nothing.
    """

    tokens: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tokens < 0:
            raise ValueError(f"tokens must be at least 0, not {self.tokens}")


class Ending(Fault, frozen=True, kw_only=True, tag="ending"):
    """``finish_reason`` is a word of a reply that did not end by itself, with status 200.

    Args:
        word: such as ``abort`` or ``error``.
        content: none, or what looks like a verdict and is another than the right one; ``mixed``
            is now one and now the other.
    """

    word: str = "abort"
    content: Literal["none", "verdict", "mixed"] = "mixed"


class ErrorInBody(Fault, frozen=True, kw_only=True, tag="error_in_body"):
    """Status 200, and the body tells of an error, as relays do.

    Args:
        code: the error's ``code``: a status such as 429, or a word such as ``server_error``.
        message: its words.
    """

    code: int | str = 429
    message: str = "Provider returned error"


class Moderation(Fault, frozen=True, kw_only=True, tag="moderation"):
    """The provider's filter turns the request away because of its text, in its words."""

    always: bool = True
    form: Literal["azure", "deepseek", "dashscope", "openrouter", "mixed"] = "mixed"


class Exhausted(Fault, frozen=True, kw_only=True, tag="exhausted"):
    """The account has no quota or money left: OpenAI's 429, DeepSeek's 402, Anthropic's 400."""

    form: Literal["openai", "deepseek", "anthropic"] = "openai"


class Length(Fault, frozen=True, kw_only=True, tag="length"):
    """``finish_reason`` is ``length``; what there is of the content may look like a verdict.

    Args:
        cured_at: a request that allows at least so many tokens gets its verdict; None: never.
        thinking: the tokens went into ``reasoning_content``, and ``content`` is null.
    """

    always: bool = True
    cured_at: int | None = None
    thinking: bool = False


class Refusal(Fault, frozen=True, kw_only=True, tag="refusal"):
    """The judge declines: in ``message.refusal``, in the text, or by ``content_filter``."""

    always: bool = True
    form: Literal["field", "text", "filter", "mixed"] = "mixed"


class Garbage(Fault, frozen=True, kw_only=True, tag="garbage"):
    """Text without a verdict in it."""

    always: bool = True


class OutOfRange(Fault, frozen=True, kw_only=True, tag="out_of_range"):
    """A verdict in the right form that the rule does not allow: 11 of 1..10, a word not offered."""

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
    """Raise ValueError when the shares of one sort add up to more than everything."""
    for always in (True, False):
        total = sum(fault.share for fault in faults if fault.always is always)
        if total > 1 + 1e-9:
            sort = "always" if always else "per attempt"
            raise ValueError(f"the shares of the faults that are {sort} add up to {total:g} > 1")


def chosen(
    faults: Sequence[AnyFault], *, content: Draws, attempt: Draws, nth: int, tokens: int | None
) -> AnyFault | None:
    """The fault that this attempt meets, or None.

    Each fault owns a slice of [0, 1) as wide as its share. The stubborn ones come first.

    Args:
        faults: those of the script, in its order.
        content: draws of the messages' content.
        attempt: draws of this attempt.
        nth: number of this attempt of this body, from 1.
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
