"""Builds the request that asks a judge about a sample, and the cache key of its answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any

import msgspec

from zerowait.config.schema import Judge
from zerowait.control_tokens import break_control_tokens
from zerowait.errors import ConfigError
from zerowait.judge.fence import GUARD, INVISIBLE, fenced
from zerowait.judge.parsing.form import SingleVerdict, VerdictForm
from zerowait.judge.parsing.probability import ProbabilityForm
from zerowait.judge.parsing.verdict import check_rule
from zerowait.judge.reward_model import RewardForm
from zerowait.judge.rubric import CONVERSATION, CRITERIA, REPLY_FORMAT, RESPONSES, Rubric, fill
from zerowait.types import Abstain, FailureKind, Message, Sample, content_text

_OWN_FIELDS = {
    "model": "the endpoint's 'model'",
    "messages": "the rubric",
    "max_tokens": "the judge's 'max_tokens'",
    "n": "nothing: one judgement is one call",
    "stream": "nothing: replies are read whole",
}
_RESPONSE_FORMAT = "response_format"
_CONSTRAINTS = (
    *(_RESPONSE_FORMAT, "structured_outputs", "guided_json", "guided_choice", "guided_regex"),
    *("guided_grammar", "json_schema", "regex", "ebnf", "grammar", "format"),
)
"""Parameters by which OpenAI, vLLM, SGLang, llama.cpp and Ollama constrain an answer."""
_NEWER_LIMIT = "max_completion_tokens"
_CANONICAL = msgspec.json.Encoder(order="sorted")


class ChatRequest(msgspec.Struct, frozen=True):
    """A chat completion request.

    Args:
        model: the model's name at the endpoint.
        messages: the system message and the user message.
        temperature: sampling temperature.
        max_tokens: the longest answer, in tokens.
        parameters: further fields of the body. A null one is left out, so that
            ``{temperature: null}`` sends no temperature; with ``max_completion_tokens`` among
            them `max_tokens` is sent under that name, which some models insist on.

    Raises:
        ConfigError: `parameters` sets a field that has another place.
    """

    model: str
    messages: list[dict[str, str]]
    temperature: float
    max_tokens: int
    parameters: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if not _OWN_FIELDS.keys().isdisjoint(self.parameters):
            _check_parameters(self.parameters)

    def body(self) -> bytes:
        """The canonical JSON body: equal requests are equal bytes, whatever the order of keys.

        >>> ChatRequest("m", [{"role": "user", "content": "?"}], 0.0, 8, {"top_p": 1}).body()
        b'{"max_tokens":8,"messages":[{"content":"?","role":"user"}],"model":"m","temperature":0.0,"top_p":1}'
        """
        fields: dict[str, Any] = {"temperature": self.temperature, **self.parameters}
        fields["max_tokens" if _NEWER_LIMIT not in fields else _NEWER_LIMIT] = self.max_tokens
        fields["model"] = self.model
        fields["messages"] = self.messages
        if None in fields.values():
            fields = {name: value for name, value in fields.items() if value is not None}
        return _CANONICAL.encode(fields)


def check_judge(judge: Judge) -> None:
    """Check that requests to `judge` can be built and its verdicts be told apart.

    Raises:
        ConfigError: its parameters set a field that has another place, or two words of its
            choice are the same to a reader.
    """
    check_rule(judge.verdict)
    _check_parameters(judge.parameters)
    own = own_constraint(judge)
    verdict = judge.verdict
    if own is None or verdict.enforced == "off":
        return
    if verdict.schema is not None or verdict.enforced == "on":
        what = "a schema verdict" if verdict.schema is not None else "structured: on"
        raise ConfigError(
            f"parameters cannot set {own!r} beside {what}, which is sent as {_RESPONSE_FORMAT}; "
            "with 'structured: off' in the verdict it is not"
        )


def own_constraint(judge: Judge) -> str | None:
    """The parameter by which `judge` constrains its answers itself; None without any."""
    return next((name for name in _CONSTRAINTS if name in judge.parameters), None)


def request_for(
    sample: Sample,
    judge: Judge,
    rubric: Rubric,
    *,
    form: VerdictForm | None = None,
    vote: int = 0,
    max_tokens: int | None = None,
) -> ChatRequest | Abstain:
    """The request that asks `judge` about `sample`, or Abstain(bad_input) naming what is missing.

    Args:
        sample: the sample to judge.
        judge: its settings: model, temperature, parameters.
        rubric: the prompt, with placeholders for the sample's texts.
        form: of the answer; by default one verdict by the judge's own rule.
        vote: index of this call among the votes on one sample; a ``seed`` among the judge's
            parameters is shifted by it, or every vote would be the same answer.
        max_tokens: overrides the judge's own.

    Raises:
        ConfigError: the judge's parameters set a field that has another place.
    """
    texts = texts_for(sample, rubric)
    if isinstance(texts, Abstain):
        return texts
    return request_of(texts, judge, rubric, form=form, vote=vote, max_tokens=max_tokens)


def request_of(
    texts: Mapping[str, str],
    judge: Judge,
    rubric: Rubric,
    *,
    form: VerdictForm | None = None,
    vote: int = 0,
    max_tokens: int | None = None,
) -> ChatRequest:
    """The request about a sample's `texts`, as `texts_for` returns them; see `request_for`."""
    if isinstance(form, RewardForm):
        return _conversation_alone(texts[CONVERSATION], judge)
    values = fenced(texts)
    form = form or SingleVerdict(judge.verdict)
    values[CRITERIA] = rubric.listed
    values[REPLY_FORMAT] = form.asked(reason_first=rubric.reason_first)
    parameters = judge.parameters
    if form.response_format is not None:
        parameters = {**parameters, _RESPONSE_FORMAT: form.response_format}
    if isinstance(form, ProbabilityForm):
        parameters = {**form.parameters, **parameters}
    seed = parameters.get("seed")
    if vote and isinstance(seed, int):
        parameters = {**parameters, "seed": seed + vote}
    return chat_request(judge, rubric, values, parameters=parameters, max_tokens=max_tokens)


def _conversation_alone(turns: str, judge: Judge) -> ChatRequest:
    """The request that shows a reward model a conversation, without control tokens in its texts."""
    messages: list[dict[str, str]] = msgspec.json.decode(turns)
    for turn in messages:
        turn["content"] = break_control_tokens(turn["content"], by=INVISIBLE)
    return ChatRequest(
        judge.endpoints[0].model, messages, judge.temperature, judge.max_tokens, judge.parameters
    )


def texts_for(sample: Sample, rubric: Rubric) -> dict[str, str] | Abstain:
    """The sample's text for each placeholder of `rubric`, or Abstain(bad_input) for a missing one.

    ``{{responses}}`` is left to the caller that compares several samples.
    """
    texts: dict[str, str] = {}
    for name in rubric.needs:
        if name == RESPONSES:
            continue
        text = _value(sample, name)
        if text is None:
            return Abstain(
                FailureKind.BAD_INPUT,
                f"the rubric {rubric.name!r} needs {{{{{name}}}}}, which this sample does not have",
            )
        texts[name] = str.__str__(text)  # encoders take no subclass of str, such as numpy's
    return texts


def extra_text(sample: Sample, column: str) -> str | None:
    """The text of the column ``extra[column]`` as a judge reads it; None where it has none."""
    return _text(sample.extra.get(column))


def chat_request(
    judge: Judge,
    rubric: Rubric,
    values: Mapping[str, str],
    *,
    parameters: dict[str, Any],
    max_tokens: int | None = None,
) -> ChatRequest:
    """The request that sends `judge` the `rubric` with its placeholders filled.

    Args:
        judge: its settings.
        rubric: system and user message with placeholders.
        values: fenced text or instruction for each placeholder.
        parameters: further fields of the request's body.
        max_tokens: overrides the judge's own.
    """
    return ChatRequest(
        model=judge.endpoints[0].model,
        messages=[
            {"role": "system", "content": _system(rubric.system, values[REPLY_FORMAT])},
            {"role": "user", "content": fill(rubric.user, values)},
        ],
        temperature=judge.temperature,
        max_tokens=max_tokens or parameters.get(_NEWER_LIMIT) or judge.max_tokens,
        parameters=parameters,
    )


@lru_cache(maxsize=256)
def _system(template: str, reply_format: str) -> str:
    """The system message with its instructions; the same for all samples, as it shows none."""
    return f"{fill(template, {REPLY_FORMAT: reply_format})}\n\n{GUARD}"


def request_key(body: bytes, rubric_version: str, vote: int = 0) -> str:
    """The cache key of the answer to a request: 64 hexadecimal digits.

    It depends on model, messages and parameters, which are in the body, and on neither endpoint nor
    API key.

    Args:
        body: of the request, canonical.
        rubric_version: changes with the rubric's text.
        vote: index of the call among the votes on one sample.

    >>> request_key(b"{}", "1")[:12], request_key(b"{}", "1", vote=1)[:12]
    ('170c84fc41b9', '0047ae4e66a2')
    """
    digest = sha256(body)
    digest.update(f"\0{rubric_version}\0{vote}".encode())
    return digest.hexdigest()


def _check_parameters(parameters: Mapping[str, Any]) -> None:
    for name in parameters:
        if name in _OWN_FIELDS:
            raise ConfigError(f"parameters cannot set {name!r}; its place is {_OWN_FIELDS[name]}")


def _value(sample: Sample, name: str) -> str | None:
    """The sample's text for a placeholder, or None where it has none that a judge could read."""
    match name:
        case "response":
            return sample.response  # an empty response is a response, and is judged
        case "prompt":
            return _conversation(sample.prompt)
        case "ground_truth":
            return _text(sample.ground_truth)
        case "conversation":
            turns = _turns(sample)
            return None if turns is None else _CANONICAL.encode(turns).decode()
        case _:
            return _text(sample.extra.get(name.removeprefix("extra.")))


def _conversation(prompt: str | Sequence[Message]) -> str | None:
    """The prompt as one text, each of several messages below its role; None for an empty one."""
    if isinstance(prompt, str):
        return prompt if prompt.strip() else None
    try:
        turns = [(str(message.get("role", "?")), _message_text(message)) for message in prompt]
    except (AttributeError, TypeError):  # a data set's rows may hold any type
        return None
    if not any(text.strip() for _, text in turns):
        return None
    if len(turns) == 1:
        return turns[0][1]
    return "\n\n".join(f"[{role}]\n{text}" for role, text in turns)


def _turns(sample: Sample) -> list[dict[str, str]] | None:
    """The prompt's messages, then the response as the assistant's; None without a prompt."""
    if _conversation(sample.prompt) is None:
        return None
    before = sample.prompt
    if isinstance(before, str):
        before = [{"role": "user", "content": before}]
    turns = [
        {"role": str(turn.get("role", "?")), "content": str.__str__(_message_text(turn))}
        for turn in before
    ]
    return [*turns, {"role": "assistant", "content": str.__str__(sample.response)}]


def _message_text(message: Message) -> str:
    """A message's text, with its tool calls as JSON below."""
    text = content_text(message.get("content"))
    calls = message.get("tool_calls")
    if not calls:
        return text
    return f"{text}\n{_text(calls) or ''}".strip()


def _text(value: Any) -> str | None:
    """A value as the judge reads it; None for nothing, NaN, blank text and empty collections."""
    if isinstance(value, str):
        return value if value.strip() else None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, (int, float)):
        return str(value)
    try:
        return _structured(value)
    except (TypeError, ValueError, RecursionError):  # no text form that is the same in every run
        return None


def _structured(value: Any) -> str | None:
    """Several strings as lines, any other structure as JSON."""
    plain = as_builtins(value)
    if not isinstance(plain, (list, tuple, dict)):
        return _text(plain)
    if not plain:
        return None
    if not isinstance(plain, dict) and all(isinstance(item, str) for item in plain):
        return _text("\n".join(plain))
    return _CANONICAL.encode(plain).decode()


def as_builtins(value: Any) -> Any:
    """A value of a data set, without types of other libraries: numpy's arrays become lists.

    Raises:
        TypeError: something in it has no such form.
    """
    return msgspec.to_builtins(value, enc_hook=_plain, str_keys=True, order="sorted")


def _plain(value: Any) -> Any:
    """A mapping, array or scalar of another library as Python's own type."""
    if isinstance(value, Mapping):
        return dict(value)
    tolist = getattr(value, "tolist", None)  # numpy's and torch's arrays and scalars
    if tolist is None:
        raise TypeError(f"{type(value).__name__} has no text form")
    return tolist()
