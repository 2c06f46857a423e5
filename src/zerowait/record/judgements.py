"""The lines of ``judgements.jsonl``, ``events.jsonl`` and ``opinions.jsonl``."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from zerowait.types import Outcome

JUDGEMENTS: Final = "judgements.jsonl"
"""The first part; further ones are ``judgements.00002.jsonl``, ``judgements.00003.jsonl``, ..."""
EVENTS: Final = "events.jsonl"
OPINIONS: Final = "opinions.jsonl"

UNSET: Final = msgspec.Raw()
"""No body in this line."""


# Lines hold no cycle, so the garbage collector need not visit those that wait to be written (`gc`).
class FailedLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An attempt that brought no answer, as a judgement's line has it.

    Args:
        number: which attempt of the judgement it was, from 1.
        at: Unix time in seconds at which it ended.
        endpoint: where it was sent.
        status: of HTTP; 0 where no reply came.
        latency_s: seconds from the send to its end.
        why: what went wrong, in the provider's words where it gave any.
        reply: the body that came back, or its hash; unset where there was none or it is not kept.
    """

    number: int
    at: float
    endpoint: str = ""
    status: int = 0
    latency_s: float = 0.0
    why: str = ""
    reply: msgspec.Raw = UNSET


class JudgementLine(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One row of ``judgements.jsonl``: a settled judgement.

    A request or a reply is written with the first line of its key, and once more where it is
    another one; a line without it has that of the last line of the same key that has it. Bodies
    that are JSON objects are written as they are, others as text.

    Args:
        at: Unix time in seconds at which it was settled.
        key: of the cache's entry: a hash of the request, the rubric's version and the vote.
        source: ``asked``, ``cache``, ``joined`` or ``refused``; see
            `zerowait.events.JudgementSettled`.
        outcome: the verdict, or why there is none.
        uids: of the samples that it was for: one, or the members of a comparison.
        question: index of the judge's question; None for a comparison.
        vote: index among the votes on one question.
        attempts: requests sent, hedged copies included.
        hedges: of these the hedged copies.
        status: of the last reply over HTTP; 0 without one.
        endpoint: that answered, or failed last; empty where none was asked.
        form: of the answer that the endpoint was asked to enforce; empty for none.
        cost_usd: by the usage that its replies name; 0 without a price.
        request, reply: the bodies; hashes (``sha256:...``) where only those are kept. Unset where
            they were written before or are not kept.
        replied: whether there was a reply.
        failed: the attempts that brought no answer.
    """

    at: float
    judge: str
    key: str
    source: Literal["asked", "cache", "joined", "refused"]
    outcome: Outcome
    component: str = ""
    uids: tuple[str, ...] = ()
    question: int | None = None
    vote: int = 0
    attempts: int = 0
    hedges: int = 0
    status: int = 0
    endpoint: str = ""
    model: str = ""
    form: str = ""
    latency_s: float = 0.0
    queue_s: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    request: msgspec.Raw = UNSET
    reply: msgspec.Raw = UNSET
    replied: bool = False
    failed: list[FailedLine] = []


class EventLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row of ``events.jsonl``.

    Args:
        at: Unix time in seconds.
        kind: the event's class in `zerowait.events` in lower case, such as ``limit_changed``,
            ``endpoint_ejected``, ``health_alarm`` or ``judge_drifted``; ``record_cut`` and
            ``record_lost`` are about the record itself.
        step: of the training, as far as it was known.
        fields: of the event.
    """

    at: float
    kind: str
    step: int | None = None
    fields: dict[str, Any] = {}


class OpinionLine(msgspec.Struct, frozen=True, kw_only=True):
    """One row of ``opinions.jsonl``: what a person says about a response.

    Args:
        uid: of the sample; empty where its record has none.
        row: of the sample in the order of recording, from 1.
        up: whether the response is good; None takes an earlier opinion back.
        note: in words.
        who: gave it.
        at: Unix time in seconds.
    """

    row: int
    uid: str = ""
    up: bool | None = None
    note: str = ""
    who: str = ""
    at: float


def encoded_body(body: bytes) -> msgspec.Raw:
    """A body as it is written into a line: a JSON object as it is, anything else as text.

    >>> bytes(encoded_body(b'{"a": 1}')), bytes(encoded_body(b"oh no"))
    (b'{"a": 1}', b'"oh no"')
    """
    # numbers, because a search for one is four times faster than for bytes
    if body and body[0] == _BRACE and _NEWLINE not in body and _RETURN not in body:
        try:
            checked = _checked_json(body)
            if not body.isascii():
                body.decode()
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
        else:
            return checked
    return msgspec.Raw(msgspec.json.encode(body.decode("utf-8", "replace")))


def body_text(written: msgspec.Raw) -> str | None:
    """The body that a line holds, as text; None where it holds none."""
    body = bytes(written)
    if not body:
        return None
    return str(_decode_text(body)) if body.startswith(b'"') else body.decode()


_BRACE, _NEWLINE, _RETURN = b"{\n\r"
_checked_json: Final = msgspec.json.Decoder(msgspec.Raw).decode
_decode_text: Final = msgspec.json.Decoder(str).decode
