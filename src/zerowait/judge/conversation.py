"""The conversation that a judge reads: the messages of a prompt and of an episode, as text.

`{{conversation}}` is the prompt and everything after it, `{{turns}}` what came after it, and
`{{last}}` the assistant's last message. A conversation that is longer than the judge's
``max_conversation_chars`` is cut by one rule, and the number of characters that were left out is
reported:

1. The results of tools, the oldest first, keep their first and last 500 characters.
2. If that is not enough, the oldest messages behind the prompt are left out with their pictures,
   never the last one.
3. If prompt and last message alone are too long, there is no judgement (``too_long``).

Pictures become marks in the text, ``[picture 1]``, and are sent beside it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from zerowait.errors import DataError
from zerowait.pictures import column_of, is_picture, own_pictures, placed
from zerowait.types import Abstain, FailureKind, Message, Sample, assistant_turns, content_text

_CANONICAL: Final = msgspec.json.Encoder(order="sorted")
_KEPT: Final = 500
"""Characters that stay at each end of a tool's result that is shortened."""
_UNSHOWN: Final = frozenset(
    {"video", "video_url", "input_video", "audio", "audio_url", "input_audio"}
)
"""Types of parts without which a judge would judge what it has neither seen nor heard."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""Characters that JSON in UTF-8 cannot carry."""
LEFT_OUT: Final = "left_out"
"""Role of the line that stands in the place of messages that were left out."""


class Pictures(msgspec.Struct):
    """The pictures of a sample's messages, each once, in the order in which they are shown.

    Args:
        sample: whose column ``images`` or ``image`` holds the pictures of parts that only mark a
            place.
        urls: of the pictures.
        known: the URL in each place that was shown: the id of a message's content, and the index.
        column: what is left of the sample's column.
    """

    sample: Sample
    urls: list[str] = []
    known: dict[tuple[int, int], str] = {}
    column: Iterator[Any] | None = None

    def mark(self, content: Sequence[Any], at: int) -> str:
        """The text in the place of the picture `content[at]`, which names it by its number."""
        place, part = (id(content), at), content[at]
        url = self.known.get(place)  # a message may be shown twice, and takes its pictures once
        if url is None:
            if self.column is None:
                self.column = column_of(own_pictures(self.sample.extra))
            url = self.known[place] = placed(part, self.column)
        if url not in self.urls:
            self.urls.append(url)
        return f"[picture {self.urls.index(url) + 1}]"


def response_messages(sample: Sample) -> Sequence[Message]:
    """The messages behind the prompt; a response that is text is one of the assistant."""
    if sample.response_messages is not None:
        return sample.response_messages
    return [{"role": "assistant", "content": sample.response}]


def last_text(sample: Sample, pictures: Pictures) -> str:
    """The assistant's last message, with its tool calls."""
    messages = sample.response_messages
    own = assistant_turns(messages or ())
    return message_text(messages[own[-1]], pictures) if messages and own else sample.response


def written_turns(
    before: Sequence[Message], after: Sequence[Message], pictures: Pictures, *, max_chars: int
) -> tuple[list[dict[str, str]], int] | Abstain:
    """The messages as role and text, and the number of characters that were left out of them.

    An abstention where the prompt and the last message alone are too long.

    Args:
        before: the prompt's messages, which are never cut.
        after: those behind it, at least one.
        pictures: collects those that are shown.
        max_chars: the most characters of all texts together.

    Raises:
        DataError: a picture has no data.
    """
    excess: float
    shown = len(pictures.urls)
    turns = _turns([*before, *after], pictures)
    excess = sum(len(turn["content"]) for turn in turns) - max_chars
    if excess <= 0:
        return turns, 0
    prompt, rest = turns[: len(before)], turns[len(before) :]
    shortened, excess, cut = _with_short_results(rest, excess)
    if excess > 0:
        fitting = _without_oldest(shortened, excess)
        if isinstance(fitting, Abstain):
            return fitting
        line, dropped, cut_away = fitting
        del pictures.urls[shown:]  # those of messages that were left out are not shown either
        turns = _turns([*before, *after[dropped:]], pictures)
        prompt, rest = turns[: len(before)], turns[len(before) :]
        shortened = [line, *_with_short_results(rest, math.inf)[0]]
        cut += cut_away
    return [*prompt, *shortened], cut


def _turns(messages: Sequence[Message], pictures: Pictures) -> list[dict[str, str]]:
    return [
        {
            "role": _SURROGATE.sub("\ufffd", str(m.get("role", "?"))),
            "content": _SURROGATE.sub("\ufffd", str.__str__(message_text(m, pictures))),
        }
        for m in messages
    ]


def _with_short_results(
    turns: Sequence[dict[str, str]], excess: float
) -> tuple[list[dict[str, str]], float, int]:
    """The turns with tools' results shortened, the excess that is left, and what was cut."""
    cut, shortened = 0, []
    for turn in turns:
        text = turn["content"]
        away = len(text) - 2 * _KEPT
        line = f"\n[{away} characters are left out here]\n"
        saved = away - len(line)
        if excess > 0 and turn["role"] != "assistant" and saved > 0:
            turn = {**turn, "content": f"{text[:_KEPT]}{line}{text[-_KEPT:]}"}  # noqa: PLW2901 - the shorter one
            excess -= saved
            cut += away
        shortened.append(turn)
    return shortened, excess, cut


def _without_oldest(
    turns: Sequence[dict[str, str]], excess: float
) -> tuple[dict[str, str], int, int] | Abstain:
    """The line in the place of the oldest turns, their number, and that of their characters."""
    cut = 0
    for count, turn in enumerate(turns[:-1], start=1):
        cut += len(turn["content"])
        line = f"[{count} messages of {cut} characters are left out here]"
        if cut - len(line) >= excess:
            return {"role": LEFT_OUT, "content": line}, count, cut
    return Abstain(
        FailureKind.TOO_LONG,
        "the prompt and the last message alone are longer than the judge's max_conversation_chars",
    )


def conversation_text(turns: Sequence[Mapping[str, str]]) -> str:
    """The turns as one text, from which `turns_in` reads them."""
    return _CANONICAL.encode(turns).decode()


def turns_in(text: str) -> list[dict[str, str]]:
    """The turns that `conversation_text` wrote."""
    turns: list[dict[str, str]] = msgspec.json.decode(text)
    return turns


def message_text(message: Message, pictures: Pictures) -> str:
    """A message's text, with marks for its pictures, and its tool calls as JSON below."""
    content = message.get("content")
    if isinstance(content, list | tuple) and any(map(is_picture, content)):
        content = [
            pictures.mark(content, at) if is_picture(part) else part
            for at, part in enumerate(content)
        ]
    _check_parts(content)
    text = content_text(content)
    calls = message.get("tool_calls")
    if calls is None:
        calls = message.get("function_call")  # OpenAI's older form
    if calls is None:
        return text
    try:
        return f"{text}\n{_structured(calls) or ''}".strip()
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"a message's tool calls cannot be written down: {error}") from None


def _check_parts(content: Any) -> None:
    """Raises a DataError where a message holds what no judge is shown."""
    for part in content if isinstance(content, list | tuple) else ():
        if isinstance(part, Mapping) and (kind := part.get("type")) in _UNSHOWN:
            raise DataError(
                f"a message holds a part of type {kind!r}, which judges are not shown: "
                "show them {{response}} alone, or leave such parts out"
            )


def value_text(value: Any) -> str | None:
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
        return value_text(plain)
    if not plain:
        return None
    if not isinstance(plain, dict) and all(isinstance(item, str) for item in plain):
        return value_text("\n".join(plain))
    try:
        return _CANONICAL.encode(plain).decode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(plain, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def as_builtins(value: Any) -> Any:
    """A value of a data set, without types of other libraries: numpy's arrays become lists.

    Raises:
        TypeError: something in it has no such form.
    """
    return msgspec.to_builtins(value, enc_hook=_plain, str_keys=True, order="sorted")


def _plain(value: Any) -> Any:
    """A mapping, array, scalar or model of another library as Python's own type."""
    if isinstance(value, Mapping):
        return dict(value)
    if callable(dump := getattr(value, "model_dump", None)):  # pydantic's, as OpenAI's calls
        return dump(mode="json")
    tolist = getattr(value, "tolist", None)  # numpy's and torch's arrays and scalars
    if tolist is None:
        raise TypeError(f"{type(value).__name__} has no text form")
    return tolist()
