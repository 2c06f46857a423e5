"""The data types of the package: a sample, the outcome of each judgement of it, its reward.

``Outcome = Score | Abstain | Skipped``. A `Score` is a judgement that was reached. An `Abstain` is
one that failed: it has no value, on purpose. A `Skipped` was not needed, because a gate was closed.
Only `zerowait.engine.combine` turns outcomes into a number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from zerowait.errors import DataError, did_you_mean

Message: TypeAlias = Mapping[str, Any]
"""One chat message: at least ``role`` and ``content``."""
_MESSAGES = "a list of messages like {role, content}"


class FailureKind(StrEnum):
    """Why a judgement was not reached."""

    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"
    HTTP_ERROR = "http_error"
    UNREACHABLE = "unreachable"
    UNPARSEABLE = "unparseable"
    OUT_OF_RANGE = "out_of_range"
    TRUNCATED = "truncated"
    TOO_LONG = "too_long"
    REFUSED = "refused"
    BUDGET = "budget"
    CRASHED = "crashed"
    BAD_INPUT = "bad_input"
    CANCELLED = "cancelled"


POLICY_CAUSED: frozenset[FailureKind] = frozenset(
    {
        FailureKind.REFUSED,
        FailureKind.UNPARSEABLE,
        FailureKind.TRUNCATED,
        FailureKind.OUT_OF_RANGE,
        FailureKind.TOO_LONG,
    }
)
"""Kinds that the policy's own text can cause. If they were silently neutral, the policy could learn
to escape a bad judgement by causing them, so a training recipe has to choose their worth."""


class Score(msgspec.Struct, frozen=True, tag="score", tag_field="outcome"):
    """A judgement that was reached; `value` is finite and in the range that its rule declares.

    Raises:
        ValueError: `value` is NaN or infinite.

    >>> Score(1.0, "matches 'Paris'").value
    1.0
    """

    value: float
    why: str = ""
    detail: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"a score must be a finite number, not {self.value!r}")


class Abstain(msgspec.Struct, frozen=True, tag="abstain", tag_field="outcome"):
    """A judgement that was not reached. It carries no value, on purpose.

    Raises:
        ValueError: `kind` is not one of `FailureKind`.

    >>> Abstain("timeout", "no answer in 60 s").kind
    <FailureKind.TIMEOUT: 'timeout'>
    """

    kind: FailureKind
    detail: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.kind, FailureKind):
            msgspec.structs.force_setattr(self, "kind", _failure_kind(self.kind))


class Skipped(msgspec.Struct, frozen=True, tag="skipped", tag_field="outcome"):
    """A judgement that was not needed: its gate was closed, or it is for other data sources."""

    why: str


Outcome: TypeAlias = Score | Abstain | Skipped


class Sample(msgspec.Struct, frozen=True):
    """One response of the policy, with everything that a scorer or judge may read.

    Args:
        prompt: text, or chat messages; a message may hold pictures.
        response: the policy's text; or the messages of an episode, the tools' among them. Of
            messages the field holds the text of the assistant's last one, which is what rules
            read, and `response_messages` holds them all.
        ground_truth: the gold answer(s), in the form the scorer expects.
        data_source: selects the rule in ``by_data_source`` and in ``sources:``.
        group: identity of the prompt group; all responses to one prompt share it.
        response_tokens: number of tokens that the policy wrote.
        extra: any further columns of the data set.
        id: name of this row in results and records.
        group_size: how many responses the group has; needed where a group's rows are submitted one
            by one.
        split: ``train``, ``validation`` or any other name of the data's part.
        step: the training step the response belongs to.
        response_messages: the messages of the episode behind the prompt, where it has several; set
            by a `response` that is a list. A message of the assistant may say in ``last_token``
            which token of the response is its last.

    Raises:
        DataError: a field has a wrong type, or a number is out of its range; names the field.

    >>> calls = {"role": "assistant", "content": "Let me look."}
    >>> found = {"role": "tool", "content": "Paris"}
    >>> said = {"role": "assistant", "content": "It is Paris."}
    >>> Sample("Capital of France?", [calls, found, said]).response
    'It is Paris.'
    """

    prompt: str | list[dict[str, Any]]
    if TYPE_CHECKING:
        response: str  # a list is taken apart when the sample is made
    else:
        response: str | list[dict[str, Any]]
    ground_truth: Any = None
    data_source: str = ""
    group: str | None = None
    response_tokens: int | None = None
    extra: dict[str, Any] = {}
    id: str | None = None
    group_size: int | None = None
    split: str = "train"
    step: int | None = None
    response_messages: list[dict[str, Any]] | None = None

    if TYPE_CHECKING:

        def __init__(  # noqa: PLR0913, PLR0917 - the fields, for type checkers
            self,
            prompt: str | Sequence[Message],
            response: str | Sequence[Message],
            ground_truth: Any = None,
            data_source: str = "",
            group: str | None = None,
            response_tokens: int | None = None,
            extra: dict[str, Any] = {},  # noqa: B006 - the type of the generated method
            id: str | None = None,  # noqa: A002 - as above
            group_size: int | None = None,
            split: str = "train",
            step: int | None = None,
            response_messages: Sequence[Message] | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.response, str):
            self._take_messages_apart()
        elif self.response_messages is not None and not _is_conversation(self.response_messages):
            raise _wrong("response_messages", _MESSAGES, self.response_messages)
        if not isinstance(self.prompt, str) and not _is_conversation(self.prompt):
            raise _wrong("prompt", f"text, or {_MESSAGES}", self.prompt)
        if not isinstance(self.extra, Mapping):
            raise _wrong("extra", "a mapping of further columns", self.extra)
        for name in ("data_source", "split"):
            if not isinstance(getattr(self, name), str):
                raise _wrong(name, "text", getattr(self, name))
        for name in ("group", "id"):
            given = getattr(self, name)
            if given is not None and not isinstance(given, str | Integral):
                raise _wrong(name, "text", given)
        self._check_numbers()

    def _take_messages_apart(self) -> None:
        """Put a response that is a list into `response_messages`; its last text takes its place."""
        given: Any = self.response
        if not _is_conversation(given) or not all(isinstance(each, Mapping) for each in given):
            raise _wrong("response", f"text, or {_MESSAGES}", given)
        if self.response_messages is not None:
            raise DataError("a sample's response is a list already: leave out response_messages")
        messages = [dict(message) for message in given]
        for message in messages:
            if not isinstance(message.get("content"), str | list | tuple | None):
                raise _wrong(
                    "response", f"{_MESSAGES} with text or parts in content", message["content"]
                )
        own = assistant_turns(messages)
        if not own:
            raise DataError(
                "a sample's response is a list of messages without one whose role is 'assistant', "
                "so that nothing in it is the policy's"
            )
        msgspec.structs.force_setattr(self, "response_messages", messages)
        last = content_text(messages[own[-1]].get("content"))
        msgspec.structs.force_setattr(self, "response", last)

    def _check_numbers(self) -> None:
        size: Any = self.group_size
        if size is not None and not (_is_count(size) and size >= 1):
            raise DataError(
                f"a sample's group_size must be at least 1 and a whole number, not {size!r:.40}"
            )
        if self.step is not None and not isinstance(self.step, Integral):
            raise _wrong("step", "a whole number", self.step)
        tokens: Any = self.response_tokens
        if tokens is not None and not _is_count(tokens):
            raise DataError(
                f"response_tokens must be at least 0 and a whole number, not {tokens!r:.40}"
            )


class TurnReward(msgspec.Struct, frozen=True):
    """What one assistant turn of an episode earned.

    Args:
        value: the weighted sum of what the components that judge turns gave it; None where one
            that counts was not reached.
        components: the outcome of each of them on this turn.
        message: index of the turn among the sample's ``response_messages``; 0 for a response that
            is text.
        token: index of the turn's last token in the response; None where it is not known.
    """

    value: float | None
    components: dict[str, Outcome]
    message: int = 0
    token: int | None = None


class Reward(msgspec.Struct, frozen=True):
    """A sample's reward, with the outcomes it was computed from.

    Args:
        value: the reward, or None when the sample abstained.
        components: each component's outcome, in the order of the configuration.
        metrics: finite numbers worth logging, None where one was not measured; keys are the same
            for every sample of a run.
        policy: the failure policy that applies when `value` is None: ``neutral``, ``mask`` or
            ``drop_group``; empty when there is a value.
        why: which component abstained and why, in words; empty when none did.
        turns: what each assistant turn earned, in order; empty without a component that is
            ``per: turn``.
    """

    value: float | None
    components: dict[str, Outcome]
    metrics: dict[str, float | None] = {}
    policy: str = ""
    why: str = ""
    turns: tuple[TurnReward, ...] = ()

    @property
    def abstained(self) -> bool:
        """Whether no value was reached."""
        return self.value is None


class Account(NamedTuple):
    """The state of a budget in nano-dollars; `limit` None is unlimited."""

    limit: int | None
    spent: int = 0
    reserved: int = 0

    def affords(self, amount: int) -> bool:
        """Whether `amount` nano-dollars fit beside those that are spent and reserved.

        >>> Account(10, 4, 5).affords(1), Account(10, 4, 5).affords(2), Account(None).affords(9)
        (True, False, True)
        """
        return self.limit is None or self.spent + self.reserved + amount <= self.limit


def prompt_text(prompt: str | Sequence[Message]) -> str:
    """The prompt as plain text; of chat messages, the text of each as a paragraph.

    >>> prompt_text([{"role": "user", "content": "2+2?"}])
    '2+2?'
    """
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(content_text(message.get("content")) for message in prompt)


def has_parts(prompt: Any) -> bool:
    """Whether the content of any message is more than text, such as a list of parts."""
    return not isinstance(prompt, str) and any(
        isinstance(message, Mapping) and not isinstance(message.get("content"), str | None)
        for message in prompt
    )


def content_text(content: Any) -> str:
    """A message's content as text; content parts that are not text are left out.

    >>> content_text([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}])
    'a'
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = [part.get("text", "") if isinstance(part, Mapping) else str(part) for part in content]
    return "\n".join(part for part in parts if part)


def assistant_turns(messages: Sequence[Message]) -> list[int]:
    """The indices of the assistant's messages.

    >>> assistant_turns([{"role": "assistant"}, {"role": "tool"}, {"role": "assistant"}])
    [0, 2]
    """
    return [at for at, message in enumerate(messages) if message.get("role") == "assistant"]


def check_sample(given: object, call: str, *, many: str = "") -> None:
    """Raise a DataError unless `given` is a `Sample`.

    Args:
        given: the argument of `call`.
        call: the name of the function, for the message.
        many: the name of the function that takes several samples, if there is one.

    Raises:
        DataError: says what to write instead.
    """
    if not isinstance(given, Sample):
        raise DataError(f"{call} takes a Sample, not {_type_of(given)}{_instead(given, many)}")


def samples_in(given: object, call: str, *, one: str = "") -> list[Sample]:
    """The samples in `given`, as a list.

    Args:
        given: the argument of `call`.
        call: the name of the function, for the message.
        one: the name of the function that takes a single sample, if there is one.

    Raises:
        DataError: `given` is no iterable of samples; says what to write instead.
    """
    if isinstance(given, Sample):
        instead = f": write [sample], or use {one}" if one else ": write [sample]"
        raise DataError(f"{call} takes a list of Samples, not one{instead}")
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise DataError(f"{call} takes a list of Samples, not {_type_of(given)}{_instead(given)}")
    rows = list(given)
    for number, row in enumerate(rows):
        if not isinstance(row, Sample):
            what = f"row {number} is {_type_of(row)}, not a Sample"
            raise DataError(f"{call}: {what}{_instead(row) or ': make one of its columns'}")
    return rows


def _instead(given: object, many: str = "") -> str:
    """The end of an error message: what to write instead of `given`."""
    if isinstance(given, Mapping):
        return ": write Sample(prompt=..., response=...) of its columns"
    if isinstance(given, list | tuple) and many:
        return f": use {many} for several"
    return ": write Sample(prompt, response)" if isinstance(given, str) else ""


def _type_of(given: object) -> str:
    return "nothing" if given is None else f"a {type(given).__name__}"


def _is_conversation(prompt: object) -> bool:
    """Whether `prompt` is a list that may hold chat messages; judges check each message later."""
    plain = str | bytes | float | int | None
    return isinstance(prompt, list | tuple) and not any(isinstance(each, plain) for each in prompt)


def _wrong(name: str, wanted: str, given: object) -> DataError:
    return DataError(f"a sample's {name} has to be {wanted}, not {_type_of(given)}")


def _is_count(tokens: Any) -> bool:
    """Whether `tokens` is a whole number of at least 0, of any numeric type of Python or NumPy."""
    return isinstance(tokens, Real) and bool(tokens >= 0 and tokens % 1 == 0)  # type: ignore[operator]


def _failure_kind(given: str) -> FailureKind:
    try:
        return FailureKind(given)
    except ValueError:
        hint = did_you_mean(str(given), [kind.value for kind in FailureKind])
        raise ValueError(f"there is no failure kind {given!r}{hint}") from None
