"""Reward models behind HTTP: requests to and replies from vLLM's pooling APIs.

vLLM serves them at ``/classify``, ``/pooling`` and ``/score``. Inside zerowait requests and replies
have the form of chat completions, under which they are priced and cached; they are translated when
they are sent and received. Source: vLLM's documentation, "Pooling Models".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from zerowait.config.schema import VerdictRule
from zerowait.judge.rubric import CONVERSATION, REPLY_FORMAT, Rubric
from zerowait.types import Abstain, FailureKind, Score

_CANONICAL: Final = msgspec.json.Encoder(order="sorted")
_OF_WRITERS: Final = ("temperature", "max_tokens", "max_completion_tokens")
_NUMBERS: Final = ("score", "probs", "data", "embedding")

CONVERSATION_ALONE: Final = Rubric(
    "reward model", "1", "", f"{{{{{CONVERSATION}}}}}{{{{{REPLY_FORMAT}}}}}", reason_first=False
)
"""The rubric of a reward model: the conversation without instructions."""


class RewardForm(msgspec.Struct, frozen=True):
    """The number of a reward model, unchanged or checked against the range of `rule`."""

    rule: VerdictRule

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The least and the greatest score; None for a raw one."""
        return None if self.rule.reward == "raw" else self.rule.reward

    @property
    def response_format(self) -> None:
        """None: a reward model writes no text."""
        return None

    @property
    def enforced(self) -> str:
        """Empty: a reward model writes no text."""
        return ""

    def asked(self, *, reason_first: bool) -> str:
        """Empty: a reward model reads no instructions."""
        del reason_first
        return ""

    def read(self, text: str) -> Score | Abstain:
        """The number that `reward_reply` found, or why there is none."""
        try:
            value = float(text)
        except ValueError:
            return Abstain(FailureKind.UNPARSEABLE, "the reply has not exactly one number")
        if not math.isfinite(value):
            return Abstain(FailureKind.OUT_OF_RANGE, f"the reward is {value}, and no finite number")
        if self.bounds is not None and not self.bounds[0] <= value <= self.bounds[1]:
            low, high = self.bounds
            why = f"the reward is {value:g}, expected a number from {low:g} to {high:g}"
            return Abstain(FailureKind.OUT_OF_RANGE, why)
        return Score(value, "", {"verdict": value})


def reward_body(chat: bytes, api: str) -> bytes:
    """The chat request `chat`, translated to a reward model's `api`.

    ``score`` compares two texts: the turns before the response, and the response.

    >>> chat = b'{"model":"m","max_tokens":8,"messages":[{"role":"user","content":"?"}]}'
    >>> reward_body(chat, "classify")
    b'{"messages":[{"content":"?","role":"user"}],"model":"m"}'
    """
    asked: dict[str, Any] = msgspec.json.decode(chat)
    body = {name: value for name, value in asked.items() if name not in _OF_WRITERS}
    if api == "score":
        *before, last = body.pop("messages")
        body["text_1"] = "\n\n".join(message["content"] for message in before)
        body["text_2"] = last["content"]
    return _CANONICAL.encode(body)


class _Rewarded(msgspec.Struct, frozen=True):
    data: list[Any]
    usage: Any = None
    model: Any = None


_decode = msgspec.json.Decoder(_Rewarded).decode


def reward_reply(body: bytes) -> dict[str, Any] | None:
    """The chat completion whose text is the number in a reward model's reply `body`.

    The text is empty where the reply has several numbers and does not say which is the reward; of
    two classes' probabilities it is the second, as in verl. None for bytes that are no such reply.
    """
    try:
        reply = _decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    if not reply.data or not all(isinstance(item, Mapping) for item in reply.data):
        return None
    number = _number(reply.data[0]) if len(reply.data) == 1 else None
    text = "" if number is None else repr(number)
    return {
        "choices": [{"message": {"content": text}, "finish_reason": "stop"}],
        "usage": _read_alone(reply.usage),
        "model": reply.model,
    }


def _read_alone(usage: Any) -> Any:
    """The prompt's tokens alone: 0 written tokens are no failure of a model that writes none."""
    known = usage if isinstance(usage, Mapping) else {}
    return {"prompt_tokens": known.get("prompt_tokens")}


def _number(item: Mapping[str, Any]) -> float | None:
    """The number of an item that is the reward; None where it has none, or several."""
    found = [item[name] for name in _NUMBERS if item.get(name) is not None]
    if len(found) != 1:
        return None
    value = found[0]
    if found == [item.get("probs")] and isinstance(value, list) and len(value) == 2:
        value = value[1]
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return math.inf
