"""Strikes the secrets of an endpoint out of text that comes from outside, however it is encoded.

A server that quotes what it was sent may quote the key: as it is, JSON-escaped, URL-encoded, as an
HTML entity, in base64 or base32, as digits, in UTF-16 or in capitals, and each of these broken into
lines or spaced out. An error, which is not read as often as an answer, is also searched for the key
backwards, in base85, and compressed in base64. This is the one place that knows these forms;
`zerowait.client.attempt` passes every reply through it before anything else.
"""

from __future__ import annotations

import base64
import re
import string
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import unquote, unquote_plus

from zerowait.client.secret import Secret

STRUCK: Final = "***"

_ROUNDS: Final = 4  # escapes inside escapes: JSON in JSON, a URL in a page's attribute
_LONG_CHARS: Final = 8  # as long as this, a value is found inside of words, too
_SHORTEST_IN_BASE64: Final = 6
_PART_CHARS: Final = 8  # "Incorrect API key provided: sk-proj-ab********"
_MOST_CHARS: Final = 2**20  # of a text that is mapped character by character
_QUOTED: Final = "\"'\\"  # what JSON and Python escape with a backslash, besides the slash
_ESCAPE: Final = (  # each form begins with a character of its own, for which the text is searched
    r"\\\\*(?:u00([0-7][0-9a-fA-F])|U000000([0-7][0-9a-fA-F])|x([0-7][0-9a-fA-F])|([/{quoted}])"
    r"|([01][0-7]{{2}}))"
    r"|\\\\*u\{{0*([0-7][0-9a-fA-F])\}}"
    r"|%(?:25)*([0-7][0-9a-fA-F])|%u00([0-7][0-9a-fA-F])|=([0-7][0-9A-F])"
    r"|&#[xX]0*([0-9a-fA-F]{{2}});?|&#0*([0-9]{{2,3}});?|&(amp|lt|gt|quot|apos);"
)
_ENTITIES: Final = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_=-]")
_PRINTED: Final = re.compile(r"[!#-\[\]-~]")  # without the quote and the backslash of JSON
_PACKED: Final = re.compile(r"(?:H4sI|eJ|eA|eN)[A-Za-z0-9+/_-]{20,}={0,2}")  # gzip and zlib
_MOST_UNPACKED_BYTES: Final = 2**20
_ALPHANUMERIC: Final = frozenset((string.ascii_letters + string.digits).encode())
_OTHERS: Final = bytes(each for each in range(256) if each not in _ALPHANUMERIC)
_PLAIN: Final = re.compile(r"[-+.]?[0-9][0-9.,]*|[A-Za-z]*")

_Span: TypeAlias = tuple[int, int]


class _Forms(NamedTuple):
    """What a text is searched for.

    Args:
        literal: struck out as they are.
        encoded: struck out with the run of base64 around them.
        squeezed: the same without all but letters and digits, of the text and of the form: so it
            is found in lines, in lists and with spaces between.
        in_base85: struck out with all printed characters around them.
        short: values that stand alone.
        is_thorough: whether it is searched for base85 and for compressed parts, too.
    """

    literal: tuple[str, ...]
    encoded: tuple[str, ...]
    squeezed: tuple[str, ...]
    in_base85: tuple[str, ...]
    short: re.Pattern[str] | None
    is_thorough: bool


class Scrubber:
    """Strikes secrets out of text.

    Args:
        keys: keys and passwords; a part of 8 characters from their beginning is struck out, too.
        values: what else may be secret, such as the values of headers. One of fewer than 8
            characters is struck out where it stands alone, since it may be a part of any word.

    >>> Scrubber(["sk-planted"]).text("bad key: sk-planted, or sk%2Dplanted, or c2stcGxhbnRlZA==")
    'bad key: ***, or ***, or ***'
    """

    def __init__(self, keys: Iterable[Secret | str] = (), values: Iterable[str] = ()) -> None:
        self._keys = tuple(_latin(each) for each in _texts(keys) if each.strip())
        values = tuple(_latin(each) for each in _texts(values) if each.strip())
        known = tuple(
            dict.fromkeys(form for each in (*self._keys, *values) for form in _literal(each))
        )
        in_cases = [case for each in self._keys for case in (each.lower(), each.upper())]
        short = [each for each in known if len(each) < _LONG_CHARS]
        literal = tuple(
            dict.fromkeys(each for each in (*known, *in_cases) if len(each) >= _LONG_CHARS)
        )
        long_known = [each for each in known if len(each) >= _SHORTEST_IN_BASE64]
        encoded, squeezed = _squeezed(form for each in long_known for form in _encoded(each))
        spaced = _squeezed((*known, *in_cases), shortest=_LONG_CHARS)[1]
        backwards = tuple(each[::-1] for each in spaced)
        in_bytes = [form for each in long_known for form in _in_bytes(each)]
        alone = _alone(form for each in short for form in (each, *_whole(each)))
        # in an answer a number or a word may be the verdict itself
        telling = [each for each in short if each in self._keys or not _PLAIN.fullmatch(each)]
        alone_in_answers = _alone(form for each in telling for form in (each, *_whole(each)))
        self._in_answers = _Forms(
            literal=literal,
            encoded=encoded,
            # words that an answer may hold, such as "not needed", have no digit
            squeezed=(*squeezed, *(each for each in spaced if re.search(r"\d", each))),
            in_base85=(),
            short=alone_in_answers,
            is_thorough=False,
        )
        self._in_errors = _Forms(
            literal=literal,
            encoded=encoded,
            squeezed=(*squeezed, *spaced, *backwards, *in_bytes),
            in_base85=tuple(dict.fromkeys(x for each in long_known for x in _in_base85(each))),
            short=alone,
            is_thorough=True,
        )
        quoted = any(char in each for each in known for char in _QUOTED)
        self._escape = re.compile(_ESCAPE.format(quoted=re.escape(_QUOTED) if quoted else ""))
        long = (each for each in self._keys if len(each) > _PART_CHARS)
        self._starts = tuple(
            dict.fromkeys(case for each in long for case in (each, each.lower(), each.upper()))
        )
        self._parts = tuple(key[:_PART_CHARS] for key in self._starts)
        self.has_secrets = bool(known)

    def __repr__(self) -> str:
        return f"Scrubber({STRUCK})"

    def text(self, text: str) -> str:
        """`text` without the secrets."""
        if not self.has_secrets:
            return text
        scrubbed = self._scrubbed(_latin(text), self._in_errors)
        return scrubbed.encode("latin-1").decode("utf-8", "replace") if scrubbed else text

    def body(self, body: bytes, *, is_answer: bool = False) -> bytes:
        """`body` without the secrets.

        Args:
            body: the bytes of a reply.
            is_answer: short numbers and words stay, because they may be what the judge says; and it
                is not searched for rare forms.
        """
        if not self.has_secrets:
            return body
        forms = self._in_answers if is_answer else self._in_errors
        scrubbed = self._scrubbed(body.decode("latin-1"), forms)
        return scrubbed.encode("latin-1") if scrubbed else body

    def _scrubbed(self, text: str, forms: _Forms) -> str | None:
        """`text` without the secrets; None when there are none in it."""
        if not self._is_in(text, forms):
            return None
        if len(text) > _MOST_CHARS:
            text = text[:_MOST_CHARS]
        pieces, at = [], 0
        for start, end in _merged(self._found(text, forms)):
            pieces += [text[at:start], STRUCK]
            at = end
        return "".join([*pieces, text[at:]])

    def _is_in(self, text: str, forms: _Forms) -> bool:
        """Whether there is anything to strike out: the quick question that each reply is asked."""
        for _ in range(_ROUNDS):
            if _holds_any(text, forms.literal) or _holds_any(text, forms.encoded):
                return True
            if _holds_any(_letters_and_digits(text), forms.squeezed):
                return True
            if _holds_any(text, self._parts) or (forms.short and forms.short.search(text)):
                return True
            if forms.is_thorough and any(self._rare_hits(text, forms)):
                return True
            unescaped = self._escape.sub(_unescaped, text)
            if unescaped == text:
                return False
            text = unescaped
        return False

    def _found(self, text: str, forms: _Forms) -> Iterator[_Span]:
        """Where in `text` something has to be struck out, escapes included."""
        spans = [(at, at + 1) for at in range(len(text))]
        for _ in range(_ROUNDS):
            for start, end in self._hits(text, forms):
                yield spans[start][0], spans[end - 1][1]
            unescaped, inner = _mapped(self._escape, text, spans)
            if unescaped == text:
                return
            text, spans = unescaped, inner

    def _hits(self, text: str, forms: _Forms) -> Iterator[_Span]:
        for form in forms.literal:
            yield from _each(form, text)
        for form in forms.encoded:
            for start, end in _each(form, text):
                yield _widened(text, start, end, _BASE64)
        for start, end in _each_squeezed(forms.squeezed, text):
            yield _widened(text, start, end, _BASE64)
        if forms.is_thorough:
            yield from self._rare_hits(text, forms)
        for key in self._starts:
            for start, end in _each(key[:_PART_CHARS], text):
                yield start, _as_far_as(key, text, start, end)
        if forms.short is not None:
            yield from (match.span() for match in forms.short.finditer(text))

    def _rare_hits(self, text: str, forms: _Forms) -> Iterator[_Span]:
        """Where in `text` a secret is in base85 or compressed."""
        for form in forms.in_base85:
            for start, end in _each(form, text):
                yield _widened(text, start, end, _PRINTED)
        for packed in _PACKED.finditer(text):
            unpacked = _unpacked(packed[0])
            if unpacked and self._is_in(unpacked, self._in_answers):
                yield packed.span()


def _texts(secrets: Iterable[Secret | str]) -> list[str]:
    return [each.reveal() if isinstance(each, Secret) else each for each in secrets]


def _latin(text: str) -> str:
    """The UTF-8 of `text`, one character for each byte: what both bodies and words are read as."""
    return text.encode("utf-8", "replace").decode("latin-1")


def _literal(text: str) -> Iterator[str]:
    """`text` as it is, as it is meant when it is an encoded part of a URL, and in a form."""
    for form in dict.fromkeys((text, unquote(text, "latin-1"), unquote_plus(text, "latin-1"))):
        if form.strip():
            yield form
            yield form.replace(" ", "+")


def _encoded(text: str) -> Iterator[str]:
    """What `text` looks like inside base64 and base32 at any alignment, and as digits."""
    raw = text.encode("latin-1")
    wide = text.encode("utf-16-le")  # as Windows' tools encode it
    for inner in dict.fromkeys(form for each in (raw, wide) for form in _in_base64(each)):
        yield inner
        yield inner.translate({ord("+"): "-", ord("/"): "_"})
    for inner in _in_base64(raw):
        yield from _in_base64(inner.encode())
    yield from _cores(raw, 5, lambda padded: base64.b32encode(padded).decode())
    for each in (raw, wide):
        yield each.hex()
        yield each.hex().upper()
    yield wide.decode("latin-1").rstrip("\0")
    yield "".join(map(str, raw))


def _squeezed(
    forms: Iterable[str], *, shortest: int = _SHORTEST_IN_BASE64
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Forms that are too short without their punctuation, as they are; and the others without it.

    >>> _squeezed(["c2stcGxh/bnRl", "+/+/+/ab"])
    (('+/+/+/ab',), ('c2stcGxhbnRl',))
    """
    plain, squeezed = [], []
    for form in forms:
        kept = _letters_and_digits(form)
        if len(kept) < shortest or "\0" in form:
            plain.append(form)
        else:
            squeezed.append(kept)
    return tuple(dict.fromkeys(plain)), tuple(dict.fromkeys(squeezed))


def _in_bytes(text: str) -> Iterator[str]:
    """`text` as source code writes bytes, and as bits, without what stands between."""
    raw = text.encode("latin-1")
    yield "".join(f"0x{each:02x}" for each in raw)
    yield "".join(f"0x{each:02X}" for each in raw)
    yield "".join(f"{each:08b}" for each in raw)


def _in_base85(text: str) -> Iterator[str]:
    """What `text` looks like inside base85 and Ascii85 at any alignment of four bytes."""
    raw = text.encode("latin-1")
    for skipped in range(4):
        whole = raw[skipped : skipped + (len(raw) - skipped) // 4 * 4]
        if len(whole) >= _SHORTEST_IN_BASE64:
            yield base64.b85encode(whole).decode()
            yield base64.a85encode(whole).decode()


def _unpacked(packed: str) -> str:
    """What gzip or zlib compressed and base64 wrote down; empty where that cannot be read."""
    plain = packed.translate({ord("-"): "+", ord("_"): "/"}).rstrip("=")
    try:
        raw = base64.b64decode(plain + "=" * (-len(plain) % 4))
        reader = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
        return reader.decompress(raw, _MOST_UNPACKED_BYTES).decode("latin-1")
    except (ValueError, zlib.error):
        return ""


def _in_base64(raw: bytes) -> Iterator[str]:
    yield from _cores(raw, 6, lambda padded: base64.b64encode(padded).decode())


def _cores(raw: bytes, bits: int, encode: Callable[[bytes], str]) -> Iterator[str]:
    """`raw` in an encoding of so many bits a character, at each of its alignments.

    A character at either end that depends on neighbours, too, is no part of it.
    """
    for shift in range(3 if bits == 6 else 5):
        first, last = -(-shift * 8 // bits), (shift + len(raw)) * 8 // bits
        yield encode(bytes(shift) + raw)[first:last]


def _whole(text: str) -> Iterator[str]:
    """A short `text` alone, encoded; what is shorter than 3 bytes looks like anything."""
    if len(text) >= 3:
        yield text.encode("latin-1").hex()
        yield text.encode("latin-1").hex().upper()
        encoded = base64.b64encode(text.encode("latin-1")).decode()
        for form in (encoded, encoded.rstrip("=")):
            yield form
            yield form.translate({ord("+"): "-", ord("/"): "_"})


def _alone(forms: Iterable[str]) -> re.Pattern[str] | None:
    """Matches any of `forms` that is no part of a longer word."""
    known = sorted(set(forms), key=len, reverse=True)
    if not known:
        return None
    return re.compile(rf"(?<![A-Za-z0-9_])(?:{'|'.join(map(re.escape, known))})(?![A-Za-z0-9_])")


def _unescaped(found: re.Match[str]) -> str:
    """The character that an escape stands for."""
    *hexed, decimal, entity = found.groups()
    plain, octal = hexed.pop(3), hexed.pop(3)
    if plain is not None:
        return plain
    if entity is not None:
        return _ENTITIES[entity]
    if octal is not None:
        return chr(int(octal, 8))
    code = int(decimal) if decimal is not None else int(next(filter(None, hexed)), 16)
    return chr(code) if code < 256 else found[0]


def _mapped(escape: re.Pattern[str], text: str, spans: list[_Span]) -> tuple[str, list[_Span]]:
    """`text` with its escapes read, and where each of its characters was."""
    pieces: list[str] = []
    inner: list[_Span] = []
    at = 0
    for match in escape.finditer(text):
        start, end = match.span()
        read = _unescaped(match)
        pieces += [text[at:start], read]
        inner += spans[at:start]
        inner += [(spans[start][0], spans[end - 1][1])] * len(read)
        at = end
    return "".join([*pieces, text[at:]]), inner + spans[at:]


def _each(form: str, text: str) -> Iterator[_Span]:
    at = text.find(form)
    while at >= 0:
        yield at, at + len(form)
        at = text.find(form, at + 1)


def _holds_any(text: str, forms: tuple[str, ...]) -> bool:
    for form in forms:  # noqa: SIM110 - any() takes half as long again
        if form in text:
            return True
    return False


def _letters_and_digits(text: str) -> str:
    return text.encode("latin-1").translate(None, _OTHERS).decode("ascii")


def _each_squeezed(forms: Iterable[str], text: str) -> Iterator[_Span]:
    """Where in `text` one of `forms` is, whatever stands between its letters and digits."""
    squeezed = _letters_and_digits(text)
    found = [span for form in forms for span in _each(form, squeezed)]
    if found:
        places = [at for at, each in enumerate(text.encode("latin-1")) if each in _ALPHANUMERIC]
        yield from ((places[start], places[end - 1] + 1) for start, end in found)


def _widened(text: str, start: int, end: int, run: re.Pattern[str]) -> _Span:
    """The whole run of an encoding's characters around a hit: its ends hold bits of the secret."""
    while start and run.fullmatch(text[start - 1]):
        start -= 1
    while end < len(text) and run.fullmatch(text[end]):
        end += 1
    return start, end


def _as_far_as(key: str, text: str, start: int, end: int) -> int:
    """Where the part of `key` that begins at `start` ends."""
    while end < len(text) and end - start < len(key) and text[end] == key[end - start]:
        end += 1
    return end


def _merged(spans: Iterable[_Span]) -> list[_Span]:
    """`spans` in order, those that touch each other as one."""
    merged: list[_Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged
