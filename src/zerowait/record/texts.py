"""Texts of a record: pictures as files of their own, and what is left where texts are not kept."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from zerowait.pictures import picture_data
from zerowait.types import (
    Abstain,
    FailureKind,
    Outcome,
    Reward,
    Sample,
    Score,
    Skipped,
    prompt_text,
)

PICTURES: Final = "pictures"
"""The folder of the pictures in the recorded texts, each once, named by its sha-256."""
HASHED: Final = "sha256:"

_INLINE: Final = re.compile(rb"data:image/[a-zA-Z0-9.+-]+;base64,[A-Za-z0-9+/=]+")
_OWN_WORDS: Final = frozenset(
    {
        *(FailureKind.TIMEOUT, FailureKind.RATE_LIMITED, FailureKind.HTTP_ERROR),
        *(FailureKind.UNREACHABLE, FailureKind.BUDGET, FailureKind.CANCELLED),
    }
)
"""Failures whose words are the transport's or the provider's, and quote no text of a sample."""


def hash_of(text: str) -> str:
    """The sha-256 of a text in UTF-8, as hexadecimal digits."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def store_picture(folder: Path, data: bytes, suffix: str) -> str:
    """The path of a picture in the record's folder, where it is stored once.

    Raises:
        OSError: it was not stored.
    """
    name = f"{PICTURES}/{sha256(data).hexdigest()}.{suffix}"
    path = folder / name
    if not path.exists():
        path.parent.mkdir(mode=0o700, exist_ok=True)
        written = path.with_name(f"{path.name}.{uuid.uuid4().hex}")  # a half is never seen
        written.touch(mode=0o600)
        written.write_bytes(data)
        written.replace(path)
    return name


def with_picture_files(body: bytes, folder: Path | None) -> bytes:
    """A request's body with the path of each picture instead of its data.

    Args:
        body: of the request.
        folder: of the record, where the pictures are stored; None stores none.
    """
    if b";base64," not in body:
        return body

    def path_of(found: re.Match[bytes]) -> bytes:
        picture = picture_data(found[0].decode("ascii"))
        if picture is None:
            return found[0]
        data, suffix = picture
        if folder is None:
            return f"{PICTURES}/{sha256(data).hexdigest()}.{suffix}".encode()
        return store_picture(folder, data, suffix).encode()

    return _INLINE.sub(path_of, body)


def outcome_without_words(outcome: Outcome) -> Outcome:
    """The outcome without what may quote a text: reasons, and details other than numbers."""
    match outcome:
        case Score(value=value, detail=detail):
            measured: dict[str, Any] = {
                name: detail[name] for name in ("measured", "turns") if name in detail
            }
            return Score(value, "", measured)
        case Abstain(kind=kind, detail=words):
            return Abstain(kind, words if kind in _OWN_WORDS else "")
        case _:
            return Skipped("")


def sample_without_texts(sample: Sample, texts: Literal["hash", "drop"]) -> Sample:
    """The sample with hashes in place of prompt and response, or with neither."""

    def instead(text: str) -> str:
        return f"{HASHED}{hash_of(text)}" if texts == "hash" else ""

    return msgspec.structs.replace(
        sample,
        prompt=instead(prompt_text(sample.prompt)),
        response=instead(sample.response),
        response_messages=None,
        ground_truth=None,
        extra={},
    )


def reward_without_words(reward: Reward) -> Reward:
    """The reward without what may quote a text."""
    components = _without_words(reward.components)
    abstained = (
        f"{name}: {outcome.kind.value}"
        for name, outcome in components.items()
        if isinstance(outcome, Abstain)
    )
    turns = tuple(
        msgspec.structs.replace(turn, components=_without_words(turn.components))
        for turn in reward.turns
    )
    why = "; ".join(abstained) if reward.why else ""
    return msgspec.structs.replace(reward, components=components, why=why, turns=turns)


def reasons_without_words(reasons: Mapping[str, int]) -> dict[str, int]:
    """Counts of failures by reason, without reasons that may quote a text.

    >>> reasons_without_words({"unparseable: the judge wrote 'x'": 2, "timeout: no answer": 1})
    {'unparseable': 2, 'timeout: no answer': 1}
    """
    counts: dict[str, int] = {}
    for reason, number in reasons.items():
        kind = reason.partition(":")[0]
        shown = reason if kind in _OWN_WORDS else kind
        counts[shown] = counts.get(shown, 0) + number
    return counts


def _without_words(components: dict[str, Outcome]) -> dict[str, Any]:
    return {name: outcome_without_words(outcome) for name, outcome in components.items()}
