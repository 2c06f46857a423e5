"""Finds verdicts in JSON objects, also in loosely written ones.

Comments, trailing commas and Python literals are accepted, and text before and after the object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from zerowait.judge.parsing.answer import folded, plain_characters
from zerowait.judge.parsing.claims import (
    ClaimReader,
    Reading,
    Verdict,
    VerdictClaim,
    is_last_word,
)
from zerowait.judge.parsing.context import introduced_as_other, reconsiders, sentence_continues
from zerowait.patterns import lazy_pattern

# A string that nothing ends takes the rest, so that none is looked through twice.
_STRING = r"'(?:[^'\\\n]++|\\.)*+(?:'|(?=\n)|\Z)|\"(?:[^\"\\]++|\\.)*+(?:\"|\Z)"
_TOKEN = lazy_pattern(
    rf"(?P<string>{_STRING})|(?P<word>[A-Za-z_]\w*+)|(?P<bracket>[\[{{}}\]])|[^\[{{}}\]\w'\"]++|.",
    re.DOTALL,
)
_WORDS = {"True": "true", "False": "false", "None": "null"}
_ESCAPE = lazy_pattern(r"\\x[0-9a-f]{2}|\\(.)|\"", re.DOTALL)


def as_json(text: str, start: int) -> tuple[str, int] | None:
    r"""The object that begins at `start`, as JSON, and where it ends; None where it never does.

    >>> as_json("Here: {'score': 8, 'clear': True, 'why': 'It\\'s \"good\"'}.", 6)
    ('{"score": 8, "clear": true, "why": "It\'s \\"good\\""}', 56)
    """
    depth, said = 0, []
    for token in _TOKEN.finditer(text, start):
        if token["string"]:
            said.append(_string(token["string"]))
            continue
        said.append(_WORDS.get(token["word"], token[0]))
        if token["bracket"]:
            depth += 1 if token["bracket"] in "[{" else -1
            if not depth:
                return "".join(said), token.end()
    return None


def _string(literal: str) -> str:
    if literal[0] == '"' and "\\x" not in literal and "\\'" not in literal:
        return literal
    return f'"{_ESCAPE.sub(_escape, literal[1:-1])}"'


def _escape(match: re.Match[str]) -> str:
    if match[0] == '"':
        return '\\"'
    if match[1] is None:
        return f"\\u00{match[0][2:]}"
    return "'" if match[1] == "'" else match[0]


T = TypeVar("T")
Span: TypeAlias = tuple[int, int]

_MOST_TRIES = 32  # each reads the rest of the text
_LONGEST_LOOSE = 32_768  # characters that are read again, with what is loose in them mended
_OPENS = lazy_pattern(r"""\{(?=\s*+["'}/#])""")
_FENCE = lazy_pattern(r"```[a-z]*")

_COMMENT = lazy_pattern(
    r"""(?P<string>"(?:[^"\\]++|\\.)*+"?)|//[^\n]*+|/\*.*?(?:\*/|\Z)|\#[^\n]*+""", re.DOTALL
)
_TRAILING_COMMA = lazy_pattern(r"""(?P<string>"(?:[^"\\]++|\\.)*+"?)|,(?=\s*[}\]])""", re.DOTALL)
_REASONS = frozenset(
    (
        *("reason", "reasons", "reasoning", "explanation", "rationale", "why", "comment"),
        *("feedback", "justification", "analysis", "理由", "原因", "解释", "评语"),
    )
)

_WRAPPERS = frozenset(
    (
        *("result", "output", "arguments", "parameters", "input", "function", "function_call"),
        *("final", "review", "feedback", "json", "data", "content", "value", "tool_call"),
    )
)
_SEVERAL = frozenset(("scores", "ratings", "criteria"))
"""Names of an object whose members are verdicts on one criterion each."""
_SCALE_KEY = lazy_pattern(
    r"(?:max|maximum|out_?of|of|scale|range|highest|best)"
    r"(?:[ _-]?(?:score|rating|grade|value|points?))?"
    r"|(?:score|rating|grade)[ _-](?:max|maximum|scale|range|out_?of)"
)
_OF_A_CALL = frozenset(("type", "id", "name", "function", "arguments", "parameters", "input"))


_PROSE_KEY = lazy_pattern(
    r"(?:overall[ _-])?(?:evaluation|assessment|judge?ment|verdict|overall|评价|評価)"
)
_PROSE_WORDS = 3
_NO_PROSE = lazy_pattern(
    r"[0-9][ ]?(?:/|out[ ]of|points?\b)"
    r"|\b(?:scores?|rat(?:e|ed|ing)|cannot|can't|unable|unsure|n/a)\b"
)
_WORD_START = lazy_pattern(r"\b\w")


class _Pairs(list[tuple[str, Any]]):
    """An object's members, repeated keys included."""


def json_claims(text: str, reader: ClaimReader) -> tuple[list[VerdictClaim], list[Span]]:
    """The verdicts that a text's JSON objects claim, and the spans of the objects.

    Only members of an object itself count, or of an object that is its only member and has a name
    that says nothing else; several different ones claim something that is not a verdict, and so do
    different objects with no word between them, such as those of a list.
    """
    claims: list[VerdictClaim] = []
    spans: list[Span] = []
    seen = folded(text)
    try:
        objects = list(_objects(text, _object))
    except ValueError:
        return [VerdictClaim(None, 0, len(text), final=False)], [(0, len(text))]
    for value, span in objects:
        claim = _claim(value, span, text, reader)
        if claim is not None and (
            introduced_as_other(seen, span[0]) or sentence_continues(seen, span[1])
        ):
            claim = claim._replace(verdict=None, final=False)
        if claim is not None and claims and not _has_words(seen[spans[-1][1] : span[0]]):
            same = claim.verdict == claims[-1].verdict
            claim = claim if same else claim._replace(verdict=None, final=False)
        claims.extend([] if claim is None else [claim])
        spans.append(span)
    return claims, spans


def _has_words(between: str) -> bool:
    """Whether the text between two objects has more than the marks of a code block."""
    return any(map(str.isalnum, _FENCE.sub("", between)))


def json_object(text: str) -> dict[str, Any] | None:
    """The text's one JSON object, its numbers as they are; None where it has none, or several.

    An object that gives a key twice is not accepted, since it is open which of the two counts, nor
    is one that the text quotes.
    """
    seen = folded(text)
    try:
        found = [(value, span) for value, span in _objects(text, decode_object) if value]
    except ValueError:
        return None
    if not found or any(value != found[0][0] for value, _ in found):
        return None
    value, (start, end) = found[-1]
    return None if introduced_as_other(seen, start) or sentence_continues(seen, end) else value


def _objects(text: str, decode: Callable[[str, int], tuple[T, int]]) -> Iterator[tuple[T, Span]]:
    """The outermost JSON objects of a text, each with its span.

    An object inside braces that are not closed may be part of something else, and is left out.

    Raises:
        ValueError: so many objects are loosely written, or broken, that reading on would take
            more time than the text is long.
    """
    position, depth, tries = 0, 0, 0
    while opens := _OPENS.search(text, position):
        start = opens.start()
        depth += text.count("{", position, start) - text.count("}", position, start)
        found = None
        if depth <= 0:
            found = _decoded(text, start, decode)
            if found is None or found.loose:
                tries += 1
        if tries > _MOST_TRIES:
            raise ValueError("too many loosely written objects for a verdict")
        if found is None:
            depth += 1
            position = start + 1
        else:
            position = found.end
            yield found.value, (start, position)
        depth = max(depth, 0)


class _Decoded(NamedTuple, Generic[T]):
    """A decoded object, the position behind it, and whether it had to be mended."""

    value: T
    end: int
    loose: bool


def _decoded(
    text: str, start: int, decode: Callable[[str, int], tuple[T, int]]
) -> _Decoded[T] | None:
    """The object that begins at `start`, strictly or loosely written, and where it ends."""
    try:
        return _Decoded(*decode(text, start), loose=False)
    except ValueError:
        pass
    except RecursionError:
        return None
    # each comment and surplus comma becomes as many blanks, so that positions stay the same
    written = text[start : start + _LONGEST_LOOSE]
    loose = _TRAILING_COMMA.sub(_blank, _COMMENT.sub(_blank, written))
    try:
        value, end = decode(loose, 0)
    except ValueError:
        found = _decoded_literal((written, loose), decode)
        return None if found is None else found._replace(end=start + found.end)
    except RecursionError:
        return None
    return _Decoded(value, start + end, loose=True)


def _decoded_literal(
    sources: Iterable[str], decode: Callable[[str, int], tuple[T, int]]
) -> _Decoded[T] | None:
    """The object that one of `sources` begins with, written as a Python literal; None without."""
    for source in sources:
        found = as_json(source, 0)
        if found is None:
            continue
        try:
            value, end = decode(found[0], 0)
        except (ValueError, RecursionError):
            continue
        if end == len(found[0]):
            return _Decoded(value, found[1], loose=True)
    return None


def _object(text: str, start: int) -> tuple[_Pairs, int]:
    """The object that begins at `start` as pairs, repeated keys included, and where it ends."""
    return _DECODER.raw_decode(text, start)


def decode_object(text: str, start: int) -> tuple[dict[str, Any], int]:
    """The JSON object that begins at `start`, and where it ends; no key may come twice.

    Raises:
        ValueError: it is not JSON, or repeats a key.
        RecursionError: it is nested too deeply.
    """
    return _STRICT_DECODER.raw_decode(text, start)


def decode_whole(text: str) -> dict[str, Any] | None:
    """The JSON object that `text` is and nothing else; no key may come twice in it.

    Returns:
        The object; None for another value.

    Raises:
        ValueError: it is not JSON, or repeats a key.
        RecursionError: it is nested too deeply.
    """
    written = _STRICT_DECODER.decode(text)
    return written if isinstance(written, dict) else None


def _blank(match: re.Match[str]) -> str:
    """A matched string unchanged, or a matched comment or comma as blanks."""
    return match["string"] or " " * len(match[0])


def _claim(
    members: _Pairs, span: tuple[int, int], text: str, reader: ClaimReader
) -> VerdictClaim | None:
    """The verdict that one object claims; None where it claims none.

    Args:
        members: of the object.
        span: of the object in `text`.
        text: that the object stands in.
        reader: of the verdict's values.
    """
    while (inner := _inner(members, reader)) is not None:
        members = inner
    verdicts = set(_verdicts(members, reader))
    if not verdicts:
        return None
    if any(_says_other(key, value, reader) for key, value in members):
        verdicts.add(None)
    reason = next((v for k, v in members if k.casefold() in _REASONS and isinstance(v, str)), "")
    if reason and reconsiders(folded(_reason_behind(members, reader))):
        verdicts.add(None)
    return VerdictClaim(
        verdict=verdicts.pop() if len(verdicts) == 1 else None,
        start=span[0],
        end=span[1],
        final=is_last_word(text, span[1]),
        reason=reason,
    )


def _reason_behind(members: _Pairs, reader: ClaimReader) -> str:
    """The reasons that come behind the verdict, and may so take it back."""
    keys = [folded(key) for key, _ in members]
    place = next((i for i, key in enumerate(keys) if reader.key.fullmatch(key)), len(keys))
    behind = zip(keys[place:], members[place:], strict=True)
    said = (value for key, (_, value) in behind if key in _REASONS and isinstance(value, str))
    return plain_characters("\n".join(said))


def _inner(members: _Pairs, reader: ClaimReader) -> _Pairs | None:
    """The object that is all there is in `members`, or the arguments of the call that they are."""
    if len(members) == 1 and isinstance(members[0][1], _Pairs):
        key = folded(members[0][0])
        return members[0][1] if key in _WRAPPERS or reader.key.fullmatch(key) else None
    if len(members) < 2 or not {key for key, _ in members} <= _OF_A_CALL:
        return None
    found = [_object_in(value) for _, value in members]
    objects = [value for value in found if value is not None]
    return objects[0] if len(objects) == 1 else None


def _object_in(value: Any) -> _Pairs | None:
    """A member that is an object, or the text of one, as calls have their arguments."""
    if isinstance(value, str) and value.strip().startswith("{"):
        text = value.strip()
        found = _decoded(text, 0, _object)
        return found.value if found and found.end == len(text) else None
    return value if isinstance(value, _Pairs) else None


def _verdict(value: Any, reader: ClaimReader) -> Verdict | None:
    if isinstance(value, str):
        value = folded(plain_characters(value))
        return _whole(reader.read_at(value, 0), value)
    if isinstance(value, _Pairs) and reader.inner_key is not None:
        return _nested(value, reader)
    return reader.from_number(value) if isinstance(value, float) else None


def _nested(members: _Pairs, reader: ClaimReader) -> Verdict | None:
    """The verdict on a criterion that is an object: ``{"reason": "...", "score": 7}``."""
    inner = reader.inside()
    said = set(_verdicts(members, inner))
    if len(said) != 1 or any(_says_other(key, value, inner) for key, value in members):
        return None
    return said.pop()


def _verdicts(members: _Pairs, reader: ClaimReader) -> Iterator[Verdict | None]:
    """What each member that is named like a verdict says, also in an object of such a name."""
    for name, value in members:
        key = folded(name)
        if key in _SEVERAL and isinstance(value, _Pairs):
            yield from _verdicts(value, reader)
        elif reader.key.fullmatch(key):
            if not (_PROSE_KEY.fullmatch(key) and _is_prose(value, reader)):
                yield _verdict(value, reader)
        elif key in _WRAPPERS and isinstance(value, _Pairs):
            yield from _verdicts(value, reader)
        elif (
            isinstance(value, bool)
            and (reading := reader.read_at(key, 0))
            and reading.end == len(key)
        ):
            yield reading.verdict if value else None


def _is_prose(value: Any, reader: ClaimReader) -> bool:
    """Whether a member such as "evaluation" holds sentences and no verdict."""
    if not isinstance(value, str):
        return False
    text = folded(plain_characters(value))
    words = list(_WORD_START.finditer(text))
    sentences = len(words) >= _PROSE_WORDS or text.endswith((".", "!", "。"))
    if not sentences or reader.read_at(text, 0) or _NO_PROSE.search(text):
        return False
    return not any(  # "one" and "two" are words of prose
        reading.verdict is not None
        for word in words
        if (reading := reader.read_at(text, word.start()))
        and (isinstance(reading.verdict, str) or text[word.start()].isdigit())
    )


def _says_other(key: str, value: Any, reader: ClaimReader) -> bool:
    """Whether a member beside the verdict names another scale for it."""
    if not _SCALE_KEY.fullmatch(folded(key)):
        return False
    return reader.is_other_scale(f"{value:.15g}" if isinstance(value, float) else str(value))


def _whole(reading: Reading | None, value: str) -> Verdict | None:
    if reading is None or not is_last_word(value, reading.end):
        return None
    return reading.verdict


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key is given twice")
    return members


_DECODER = json.JSONDecoder(
    object_pairs_hook=_Pairs, parse_int=float, parse_constant=_no_constant, strict=False
)
_STRICT_DECODER = json.JSONDecoder(
    object_pairs_hook=_each_key_once, parse_constant=_no_constant, strict=False
)
