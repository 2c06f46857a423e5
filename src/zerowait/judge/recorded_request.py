"""Whether a recorded request asks what a new one asks, apart from the form of the answer.

A reply may be read by another verdict rule only if the judge was asked the same: by the same
rubric, with the same texts of the sample, at the same model. The form of the answer (``Score: N``,
a JSON object, other bounds) may differ: that is what the new rule reads differently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from zerowait.config.schema import Judge
from zerowait.judge.parsing.form import VerdictForm
from zerowait.judge.request import ChatRequest, SampleTexts, request_of
from zerowait.judge.reward_model import RewardForm
from zerowait.judge.rubric import Rubric
from zerowait.types import Abstain, FailureKind, Score

_FORM: Final = "\ue000the form of the answer\ue001"
"""Stands in a new request where the form of the answer is asked for; no rubric holds it."""
_ASKS_FOR_A_FORM: Final = re.compile(r"First give your reasons|Reply with (?:exactly )?one ")
"""How every instruction about the form begins; see `VerdictForm.asked`."""
_OF_THE_FORM: Final = frozenset(
    {"messages", "model", "response_format", "max_tokens", "max_completion_tokens"}
    | {"logprobs", "top_logprobs"}
)


class _AnyForm:
    """Asks for the form of the answer by a mark."""

    bounds: None = None
    response_format: None = None
    enforced: str = ""

    def asked(self, *, reason_first: bool) -> str:
        """The mark."""
        del reason_first
        return _FORM

    def read(self, text: str) -> Score | Abstain:
        """Nothing: no reply answers a request that is never sent."""
        del text
        return Abstain(FailureKind.UNPARSEABLE, "a pattern of a request is answered by no judge")


class RequestPattern:
    """Recognises requests that ask the same as a new one, apart from the form of the answer.

    Args:
        texts: of the sample, as `texts_for` returns them.
        judge: of the new configuration.
        rubric: the prompt of the question.
        form: the new form of its answer.
        vote: index of the call among the votes on one question.
    """

    def __init__(
        self, texts: SampleTexts, judge: Judge, rubric: Rubric, form: VerdictForm, *, vote: int
    ) -> None:
        # a reward model is asked for no form: its request is compared as it is
        any_form = form if isinstance(form, RewardForm) else _AnyForm()
        self._request = request_of(texts, judge, rubric, form=any_form, vote=vote)
        self._parameters = _compared({"temperature": judge.temperature, **self._request.parameters})

    def difference(self, recorded: Mapping[str, Any]) -> str:
        """What a recorded request's body asks otherwise, in words; empty where it asks the same."""
        model = recorded.get("model")
        if model != self._request.model:
            return f"another model was asked ({model}, now {self._request.model})"
        if not _same_messages(self._request, recorded.get("messages")):
            return "the judge was shown another prompt"
        before = _compared(recorded)
        names = sorted(
            name
            for name in before.keys() | self._parameters.keys()
            if before.get(name) != self._parameters.get(name)
        )
        return f"the judge was asked with another {', '.join(names)}" if names else ""


def decoded_request(body: bytes) -> Mapping[str, Any]:
    """The fields of a recorded request; none where it cannot be read."""
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _compared(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a request that change what a judge says; those of the form are left out."""
    kept = {name: value for name, value in fields.items() if name not in _OF_THE_FORM}
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(kept))
    return {name: value for name, value in plain.items() if value is not None}


def _same_messages(new: ChatRequest, recorded: Any) -> bool:
    if not isinstance(recorded, list) or len(recorded) != len(new.messages):
        return False
    return all(
        isinstance(old, dict)
        and old.get("role") == message.get("role")
        and _same_content(message.get("content"), old.get("content"))
        for message, old in zip(new.messages, recorded, strict=True)
    )


def _same_content(new: Any, old: Any) -> bool:
    if isinstance(new, str):
        return isinstance(old, str) and _matcher(new)(old)
    if not isinstance(new, list) or not isinstance(old, list) or len(new) != len(old):
        return bool(new == old)
    return all(
        _same_content(part["text"], before.get("text"))
        if isinstance(before, dict) and part.get("type") == before.get("type") == "text"
        else part == before
        for part, before in zip(new, old, strict=True)
    )


def _matcher(text: str) -> Callable[[str], bool]:
    """Whether a recorded text is `text` with some form of answer at its mark."""
    before, mark, after = text.partition(_FORM)
    if not mark:
        return lambda recorded: recorded == text

    def matches(recorded: str) -> bool:
        if not (recorded.startswith(before) and recorded.endswith(after)):
            return False
        asked = recorded[len(before) : len(recorded) - len(after)]
        return _ASKS_FOR_A_FORM.match(asked) is not None

    return matches
