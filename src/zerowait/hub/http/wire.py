"""What goes over HTTP between a hub and those who ask it, as bytes and back."""

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

_FIELDS: Final = tuple(Sample.__struct_fields__)
# \uff5c is the wide bar in DeepSeek's special tokens
_ENDING: Final = re.compile(
    r"(?:\s*(?:<[|\uff5c][^<>|\uff5c]{1,40}[|\uff5c]>|</s>|<eos>|<pad>|<end_of_turn>))+\s*\Z"
)
"""Special tokens at the end of a response that was decoded with them."""
_TOLD: Final = {kind.__name__: kind for kind in (ClosedError, ConfigError, DataError)} | {
    JudgementError.__name__: JudgementError
}


class WireFault(msgspec.Struct, frozen=True):
    """What went wrong: the name of an exception and one line about it."""

    type: str
    message: str


class Complaint(msgspec.Struct, frozen=True):
    """The body of every reply that is not a success."""

    error: WireFault


class WireCall(msgspec.Struct, frozen=True):
    """What an `HttpHub` sends: a sample to reward, or nothing to give the call up."""

    id: int
    sample: msgspec.Raw = msgspec.Raw(b"")

    @property
    def given_up(self) -> bool:
        """Whether nobody waits for it any more."""
        return not memoryview(self.sample)


class WireAnswer(msgspec.Struct, frozen=True):
    """What an `HttpHub` gets for a call: a reward, or what went wrong.

    The first one of a connection answers no call and says how long a message may be.
    """

    id: int
    streamed: Streamed | None = None
    error: WireFault | None = None
    max_message_bytes: int | None = None


class _RemoteAsk(msgspec.Struct, frozen=True):
    query: list[str]
    prompts: list[str]
    labels: list[Any] | None = None


_decode_ask = msgspec.json.Decoder(_RemoteAsk).decode
_decode_sample = msgspec.json.Decoder(Sample).decode
_decode_complaint = msgspec.json.Decoder(Complaint).decode
_decode_call = msgspec.json.Decoder(WireCall).decode
decode_answer = msgspec.json.Decoder(WireAnswer).decode


def encode(value: Any) -> bytes:
    """JSON of a sample, a reward or statistics.

    Raises:
        DataError: it holds a value that JSON cannot carry.
    """
    try:
        return msgspec.json.encode(value, enc_hook=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"this cannot travel as JSON: {error}") from None


def complaint(error: Exception, message: str | None = None) -> bytes:
    """The body of a reply that says `error`."""
    return encode(Complaint(_fault(error, message)))


def raised_by_hub(fault: WireFault) -> ZerowaitError:
    """The exception that a hub raised, for the one who asked it."""
    return _TOLD.get(fault.type, ZerowaitError)(fault.message)


def complained(body: bytes) -> str:
    """What a reply that is no success says, in one line."""
    try:
        return _decode_complaint(body).error.message
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return " ".join(body[:200].decode(errors="replace").split())


def call(number: int, sample: bytes) -> bytes:
    """The message that asks for the reward of an encoded sample."""
    return b'{"id":%d,"sample":%b}' % (number, sample)


def give_up(number: int) -> bytes:
    """The message that gives a call up."""
    return b'{"id":%d}' % number


def call_in(message: bytes) -> WireCall:
    """The call in a client's message.

    Raises:
        DataError: it is none.
    """
    try:
        return _decode_call(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"the message is no call: {error}") from None


def hello(max_message_bytes: int) -> bytes:
    """The first message of a connection."""
    return encode(WireAnswer(-1, max_message_bytes=max_message_bytes))


def answered(number: int, streamed: Streamed) -> bytes:
    """The message that answers a call with its reward."""
    return encode(WireAnswer(number, streamed))


def failed(number: int, error: Exception) -> bytes:
    """The message that answers a call with what went wrong."""
    return encode(WireAnswer(number, error=_fault(error)))


def sample_in(body: bytes | msgspec.Raw) -> Sample:
    """The one sample that a hub's client sent.

    Raises:
        DataError: it is none.
    """
    try:
        return _decode_sample(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"the body is no sample: {error}") from None


def samples_in(body: bytes) -> tuple[list[Sample], bool]:
    """The samples in a body, and whether it holds a list of them.

    Raises:
        DataError: names the row, and the nearest field where one does not exist.
    """
    tree = _tree(body)
    if isinstance(tree, list):
        return [_sample(row, f"[{index}]") for index, row in enumerate(tree)], True
    return [_sample(tree, "the sample")], False


def samples_in_lines(body: bytes) -> list[Sample]:
    """The samples in a body of JSON lines; blank lines mean nothing.

    Raises:
        DataError: names the line, and the nearest field where one does not exist.
    """
    lines = enumerate(body.split(b"\n"), start=1)
    return [_sample(_tree(line, f"line {n}"), f"line {n}") for n, line in lines if line.strip()]


def line(index: int, reward: Reward) -> bytes:
    """The line that answers the sample at `index`."""
    return encode({"index": index, "reward": reward}) + b"\n"


def samples_asked(body: bytes, constants: Mapping[str, str]) -> list[Sample]:
    """The samples in a request of OpenRLHF's remote reward model.

    Args:
        body: ``{"query": [prompt + response], "prompts": [...], "labels": [...]}``.
        constants: further fields of every sample: ``data_source`` and ``split``.

    Raises:
        DataError: it is no such request, or a query does not hold its prompt.
    """
    for name in constants:
        if name not in ("data_source", "split"):
            hint = did_you_mean(name, ["data_source", "split"])
            raise DataError(f"the URL has the parameter {name!r}, which does not exist{hint}")
    try:
        ask = _decode_ask(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f'the body is not {{"query", "prompts", "labels"}}: {error}') from None
    labels = ask.labels if ask.labels is not None else [None] * len(ask.query)
    if not len(ask.query) == len(ask.prompts) == len(labels):
        raise DataError(
            f"{len(ask.query)} queries, {len(ask.prompts)} prompts and {len(labels)} labels: "
            "there must be one of each for every sample"
        )
    samples = []
    for index, (query, prompt) in enumerate(zip(ask.query, ask.prompts, strict=True)):
        _, found, response = query.partition(prompt)
        if not found and prompt:
            raise DataError(f"query[{index}] does not hold prompts[{index}]")
        response = _ENDING.sub("", response if prompt else query)
        row = {"prompt": prompt, "response": response, "ground_truth": labels[index], **constants}
        samples.append(msgspec.convert(row, Sample))
    return samples


def remote_answer(rewards: Sequence[Reward], instead: float | None) -> dict[str, Any]:
    """The reply that OpenRLHF reads; every list has one number for each sample.

    A metric that some sample does not have is left out of it, since there is no number for it.

    Args:
        rewards: of the samples, in order.
        instead: the number of a sample that abstained, as the user chose it.

    Raises:
        JudgementError: a sample abstained and there is no such number.
    """
    values = []
    for reward in rewards:
        if reward.value is None and instead is None:
            raise JudgementError(f"no reward was reached and --on-abstain is error: {reward.why}")
        values.append(instead if reward.value is None else reward.value)
    logs: dict[str, list[float]] = {"abstained": [float(r.abstained) for r in rewards]}
    for name in rewards[0].metrics if rewards else ():
        measured = [reward.metrics.get(name) for reward in rewards]
        numbers = [number for number in measured if number is not None]
        if len(numbers) == len(measured):
            logs[name] = numbers
    return {"rewards": values, "scores": values, "extra_logs": logs}


def _fault(error: Exception, message: str | None = None) -> WireFault:
    text = str(error) if message is None else message
    return WireFault(type(error).__name__, " ".join(text.split()))


def _tree(body: bytes, what: str = "the body") -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{what} is not JSON: {error}") from None


def _sample(row: Any, where: str) -> Sample:
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


def _plain(value: Any) -> Any:
    """Python values of numpy scalars and arrays, which data sets bring along."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is no JSON value")
