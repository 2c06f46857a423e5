"""JSON bodies and messages of the HTTP service: samples, rewards, calls and errors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from zerowait.errors import (
    ClosedError,
    ConfigError,
    DataError,
    JudgementError,
    ZerowaitError,
    did_you_mean,
)
from zerowait.hub.streaming import Streamed
from zerowait.types import Reward, Sample

_OPENRLHF_CONSTANTS: Final = ("data_source", "split", "group_size")
_FIELDS: Final = tuple(Sample.__struct_fields__)
# \uff5c is the wide bar in DeepSeek's special tokens
_ENDING: Final = re.compile(
    r"(?:\s*(?:<[|\uff5c][^<>|\uff5c]{1,40}[|\uff5c]>|</s>|<eos>|<pad>|<end_of_turn>))+\s*\Z"
)
"""Special tokens at the end of a response, where it was decoded with them."""
_EXCEPTIONS: Final = {kind.__name__: kind for kind in (ClosedError, ConfigError, DataError)} | {
    JudgementError.__name__: JudgementError
}


class WireError(msgspec.Struct, frozen=True):
    """An error as JSON: the name of the exception class and its message in one line."""

    type: str
    message: str


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of a reply with an error status."""

    error: WireError


class WireCall(msgspec.Struct, frozen=True):
    """An `HttpHub`'s message: a call with samples to reward, or without any to cancel the call.

    Args:
        id: of the call, unique in its connection.
        sample: one row of a streaming trainer, answered by a `Streamed`.
        samples: rows with their whole groups, answered by their rewards.
        deadline_s: of `samples`, see `Engine.score_all`.
    """

    id: int
    sample: msgspec.Raw = msgspec.Raw(b"")
    samples: list[msgspec.Raw] = []
    deadline_s: float | None = None

    @property
    def cancelled(self) -> bool:
        """Whether the message cancels the call."""
        return not memoryview(self.sample) and not self.samples


class WireAnswer(msgspec.Struct, frozen=True):
    """The service's message to an `HttpHub`: a call's reward, its rewards, or its error.

    The first message of a connection answers no call (`id` -1) and holds `max_message_bytes`, the
    limit for messages to the service.
    """

    id: int
    streamed: Streamed | None = None
    rewards: list[Reward] | None = None
    error: WireError | None = None
    max_message_bytes: int | None = None


class OpenRlhfRequest(msgspec.Struct, frozen=True):
    """The body that OpenRLHF's remote reward client sends."""

    query: list[str]
    prompts: list[str]
    labels: list[Any] | None = None


class OpenRlhfReply(msgspec.Struct, frozen=True):
    """The reply to OpenRLHF: a number for each sample, and metrics of them.

    Args:
        rewards: what OpenRLHF trains on.
        scores: what its dynamic filtering reads.
        extra_logs: by name a metric's numbers.
    """

    rewards: Sequence[float]
    scores: Sequence[float]
    extra_logs: dict[str, list[float]]


class Health(msgspec.Struct, frozen=True):
    """Whether the service takes requests: ``ok`` or ``draining``."""

    status: str


_decode_openrlhf_request = msgspec.json.Decoder(OpenRlhfRequest).decode
_decode_sample = msgspec.json.Decoder(Sample).decode
_decode_error_body = msgspec.json.Decoder(ErrorBody).decode
_decode_call = msgspec.json.Decoder(WireCall).decode
decode_answer = msgspec.json.Decoder(WireAnswer).decode


def encode(value: Any) -> bytes:
    """JSON of a sample, a reward or statistics.

    Raises:
        DataError: it holds a value that JSON cannot carry.
    """
    try:
        return msgspec.json.encode(value, enc_hook=_to_builtin)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"this cannot travel as JSON: {error}") from None


def error_body(error: Exception, message: str | None = None) -> bytes:
    """The JSON body of a reply that reports `error`.

    Args:
        error: its class is named.
        message: instead of the error's own.
    """
    return encode(ErrorBody(_wire_error(error, message)))


def exception_of(error: WireError) -> ZerowaitError:
    """The exception that the service raised; of an unknown class, a `ZerowaitError`."""
    return _EXCEPTIONS.get(error.type, ZerowaitError)(error.message)


def error_message(body: bytes) -> str:
    """The message of a reply with an error status, in one line."""
    try:
        return _decode_error_body(body).error.message
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return " ".join(body[:200].decode(errors="replace").split())


def call_for(sample: Sample) -> bytes:
    """The body of a call for one row of a streaming trainer."""
    return b'"sample":%b' % encode(sample)


def call_for_all(samples: Sequence[Sample], deadline_s: float | None) -> bytes:
    """The body of a call for the rewards of rows with their whole groups."""
    body = b'"samples":%b' % encode(samples)
    return body if deadline_s is None else body + b',"deadline_s":%b' % encode(deadline_s)


def encode_call(call_id: int, body: bytes) -> bytes:
    """The message of a call, of the body that `call_for` or `call_for_all` made."""
    return b'{"id":%d,%b}' % (call_id, body)


def encode_cancel(call_id: int) -> bytes:
    """The message that cancels a call."""
    return b'{"id":%d}' % call_id


def decode_call(message: bytes) -> WireCall:
    """The call in a client's message.

    Raises:
        DataError: the message is no call.
    """
    try:
        return _decode_call(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"the message is no call: {error}") from None


def encode_hello(max_message_bytes: int) -> bytes:
    """The first message of a connection, with the limit for messages to the service."""
    return encode(WireAnswer(-1, max_message_bytes=max_message_bytes))


def encode_result(call_id: int, streamed: Streamed) -> bytes:
    """The message that answers a call with its reward."""
    return encode(WireAnswer(call_id, streamed))


def encode_results(call_id: int, rewards: list[Reward]) -> bytes:
    """The message that answers a call with the rewards of its samples."""
    return encode(WireAnswer(call_id, rewards=rewards))


def encode_error(call_id: int, error: Exception) -> bytes:
    """The message that answers a call with its error."""
    return encode(WireAnswer(call_id, error=_wire_error(error)))


def decode_sample(body: bytes | msgspec.Raw) -> Sample:
    """The sample in a body or a call.

    Raises:
        DataError: the body is no sample.
    """
    try:
        return _decode_sample(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"the body is no sample: {error}") from None


def decode_samples(body: bytes) -> tuple[list[Sample], bool]:
    """The samples in a body, and whether it holds a list rather than one sample.

    Raises:
        DataError: names the row, and for an unknown field the nearest one.
    """
    tree = _decode_json(body)
    if isinstance(tree, list):
        return [_sample(row, f"[{index}]") for index, row in enumerate(tree)], True
    return [_sample(tree, "the sample")], False


def decode_ndjson(body: bytes) -> list[Sample]:
    """The samples in a body of JSON lines; blank lines are skipped.

    Raises:
        DataError: names the line, and for an unknown field the nearest one.
    """
    lines = enumerate(body.split(b"\n"), start=1)
    return [
        _sample(_decode_json(line, f"line {n}"), f"line {n}") for n, line in lines if line.strip()
    ]


def encode_line(index: int, reward: Reward) -> bytes:
    """The JSON line with the reward of the sample at `index`."""
    return encode({"index": index, "reward": reward}) + b"\n"


def decode_openrlhf(body: bytes, constants: Mapping[str, str]) -> list[Sample]:
    """The samples in a request of OpenRLHF's remote reward model.

    Args:
        body: ``{"query": [prompt + response], "prompts": [...], "labels": [...]}``.
        constants: the URL's parameters, fields of every sample: ``data_source``, ``split`` and
            ``group_size``, with which the rows of one prompt are a group.

    Raises:
        DataError: the body is no such request, or a query does not contain its prompt.
    """
    for name in constants:
        if name not in _OPENRLHF_CONSTANTS:
            hint = did_you_mean(name, _OPENRLHF_CONSTANTS)
            raise DataError(f"the URL has the parameter {name!r}, which does not exist{hint}")
    fields: dict[str, Any] = dict(constants)
    if "group_size" in fields:
        fields["group_size"] = _whole_number("group_size", fields["group_size"])
    try:
        request = _decode_openrlhf_request(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f'the body is not {{"query", "prompts", "labels"}}: {error}') from None
    labels = request.labels if request.labels is not None else [None] * len(request.query)
    if not len(request.query) == len(request.prompts) == len(labels):
        raise DataError(
            f"{len(request.query)} queries, {len(request.prompts)} prompts and {len(labels)} "
            "labels: there must be one of each for every sample"
        )
    samples = []
    for index, (query, prompt) in enumerate(zip(request.query, request.prompts, strict=True)):
        _, found, response = query.partition(prompt) if prompt else ("", query, query)
        if prompt and not found:
            raise DataError(f"query[{index}] does not hold prompts[{index}]")
        response = _ENDING.sub("", response)
        row = {"prompt": prompt, "response": response, "ground_truth": labels[index], **fields}
        if "group_size" in fields:
            row["group"] = prompt
        samples.append(msgspec.convert(row, Sample))
    return samples


def openrlhf_reply(rewards: Sequence[Reward], values: Sequence[float]) -> dict[str, Any]:
    """The reply to OpenRLHF: ``rewards``, ``scores`` and ``extra_logs``, a number for each sample.

    ``extra_logs`` leaves out a metric that any of the samples has no number for.

    Args:
        rewards: of the samples, in order.
        values: the number of each that OpenRLHF trains on.
    """
    logs: dict[str, list[float]] = {"abstained": [float(r.abstained) for r in rewards]}
    for name in rewards[0].metrics if rewards else ():
        measured = [reward.metrics.get(name) for reward in rewards]
        numbers = [number for number in measured if number is not None]
        if len(numbers) == len(measured):
            logs[name] = numbers
    return {"rewards": values, "scores": values, "extra_logs": logs}


def openrlhf_value(reward: Reward, on_abstain: float | None) -> float:
    """The number of a sample that OpenRLHF trains on.

    Args:
        reward: of the sample.
        on_abstain: the number for a sample that abstained, as the user chose it, or None.

    Raises:
        JudgementError: the sample abstained and `on_abstain` is None.
    """
    if reward.value is not None:
        return reward.value
    if on_abstain is None:
        raise JudgementError(f"no reward was reached and --on-abstain is error: {reward.why}")
    return on_abstain


def _wire_error(error: Exception, message: str | None = None) -> WireError:
    text = str(error) if message is None else message
    return WireError(type(error).__name__, " ".join(text.split()))


def _whole_number(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text):
        raise DataError(f"the URL's {name} has to be a whole number of at least 1, not {text!r}")
    return int(text)


def _decode_json(body: bytes, what: str = "the body") -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{what} is not JSON: {error}") from None


def _sample(row: Any, where: str) -> Sample:
    """A JSON object as a `Sample`; errors name `where` it stood."""
    if not isinstance(row, dict):
        raise DataError(f"{where} must be an object with at least prompt and response")
    for key in row:
        if key not in _FIELDS:
            hint = did_you_mean(key, _FIELDS)
            raise DataError(f"{where} has the field {key!r}, which does not exist{hint}")
    try:
        return msgspec.convert(row, Sample)
    except msgspec.ValidationError as error:
        raise DataError(f"{where}: {error}") from None


def _to_builtin(value: Any) -> Any:
    """A value of numpy as Python's own, which data sets may hold."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is no JSON value")
