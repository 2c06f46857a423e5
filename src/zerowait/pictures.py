"""Pictures in chat messages, in every form in which trainers and data sets write them.

A picture is a content part of type ``image_url`` (OpenAI), ``image`` (transformers, verl, TRL) or
``input_image`` (OpenAI's responses API). Its data is a URL, a ``data:`` URL, bytes, base64 text or
an image of PIL, under ``image_url``, ``image``, ``bytes``, ``url``, ``base64`` or ``path``. Judges
get it as a URL: bytes travel unchanged in a ``data:`` URL, and PIL images as PNG, which loses no
pixel.
"""

from __future__ import annotations

import base64
import binascii
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from zerowait.errors import DataError

_TYPES: Final = frozenset({"image", "image_url", "input_image"})
_KEYS: Final = ("bytes", "image_url", "url", "image", "base64", "data", "source", "path")
"""Where a part may hold its data; the bytes of a file come before what was decoded from them."""
_BASE64: Final = frozenset({"bytes", "base64", "data"})
_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
)
_IN_BODY: Final = b'"image_url"'
_PART: Final = re.compile(rb'"type":"(?:image_url|input_image)"')
_DATA: Final = re.compile(rb'(?<=:")data:image/[a-z.+-]+;base64,[A-Za-z0-9+/=]*(?=")')
"""Of a request's body; in the texts between pictures every quotation mark is escaped."""
_INLINE_URL: Final = re.compile(
    r"data:image/(?P<kind>[a-z]+)[a-z.+-]*;base64,(?P<data>.*)", re.DOTALL
)
_REMOTE: Final = ("http://", "https://")
_INLINE: Final = "data:"
_WITHOUT_PNG: Final = frozenset({"CMYK", "YCbCr", "HSV", "LAB"})
"""Modes of PIL that no PNG has; such an image is sent as RGB."""


def is_picture(part: Any) -> bool:
    """Whether a content part is a picture.

    >>> is_picture({"type": "image"}), is_picture({"type": "text", "text": "image"})
    (True, False)
    """
    return isinstance(part, Mapping) and part.get("type") in _TYPES


def picture_url(part: Any, *, folder: Path | None = None) -> str | None:
    """The URL of a picture; None for a part that only marks its place.

    Args:
        part: a content part; or its data alone, as a column of pictures has it.
        folder: that a local file's relative path starts from; None: local files are not read.
            Rows that came over a network could name any file of this machine.

    Raises:
        DataError: its data has a form that is not known, or is a local file.

    >>> picture_url({"type": "image_url", "image_url": {"url": "https://host/cat.png"}})
    'https://host/cat.png'
    >>> picture_url({"type": "image", "bytes": bytes.fromhex("89504e470d0a1a0a")})
    'data:image/png;base64,iVBORw0KGgo='
    """
    if not isinstance(part, Mapping):
        return None if part is None else _as_url("image", part, folder=folder)
    for key in _KEYS:
        value = part.get(key)
        if value is None or (isinstance(value, str) and not value):
            continue
        if isinstance(value, Mapping):  # {"url": ...}, {"bytes": ..., "path": ...}
            return picture_url(value, folder=folder)
        return _as_url(key, value, folder=folder)
    return None


def picture_bytes(url: str) -> int:
    """The size in bytes of the picture in a ``data:`` URL; 0 for another URL.

    >>> picture_bytes("data:image/png;base64,iVBORw0KGgo="), picture_bytes("https://host/cat.png")
    (8, 0)
    """
    head, _, encoded = url.partition(",")
    if not head.startswith("data:"):
        return 0
    return len(encoded) * 3 // 4 - encoded[-2:].count("=")


def pictures_in(body: bytes) -> tuple[int, int]:
    """How many pictures a request's body holds, and how many bytes of it are their data.

    >>> pictures_in(b'{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw=="}}')
    (1, 30)
    """
    if _IN_BODY not in body:
        return 0, 0
    return len(_PART.findall(body)), sum(map(len, _DATA.findall(body)))


def picture_data(url: str) -> tuple[bytes, str] | None:
    r"""The bytes in a ``data:`` URL and the ending of their file's name; None for another URL.

    >>> picture_data("data:image/png;base64,iVBORw0KGgo=")
    (b'\x89PNG\r\n\x1a\n', 'png')
    """
    found = _INLINE_URL.fullmatch(url)
    if found is None:
        return None
    try:
        return base64.b64decode(found["data"], validate=True), found["kind"]
    except (binascii.Error, ValueError):
        return None


def holds_pictures(prompt: Any) -> bool:
    """Whether any message of a prompt holds a picture."""
    if isinstance(prompt, str):
        return False
    contents = [each.get("content") for each in prompt if isinstance(each, Mapping)]
    return any(
        is_picture(part)
        for content in contents
        if isinstance(content, list | tuple)
        for part in content
    )


def with_urls(
    messages: Sequence[Mapping[str, Any]], pictures: Any = None, *, folder: Path | None = None
) -> list[dict[str, Any]]:
    """Messages whose pictures all are parts of type ``image_url``, which every encoder can write.

    Args:
        messages: of a chat.
        pictures: the row's own column of pictures, for parts that only mark a place.
        folder: that local files' relative paths start from; None: they are not read.

    Raises:
        DataError: as `picture_url`, or a place has no picture.
    """
    column = column_of(pictures)
    return [_with_urls(message, column, folder=folder) for message in messages]


def column_of(pictures: Any) -> Iterator[Any]:
    """The pictures of a data set's column, one after the other; one picture alone is one."""
    if pictures is None:
        return iter(())
    if getattr(pictures, "ndim", 0) == 1:  # of numpy, as pandas has it
        pictures = list(pictures)
    return iter(pictures if isinstance(pictures, list | tuple) else [pictures])


def own_pictures(row: Mapping[str, Any]) -> Any:
    """The row's column of pictures, ``images`` or ``image``; None where it has none."""
    for name in ("images", "image"):
        value = row.get(name)
        is_list = isinstance(value, list | tuple) or getattr(value, "ndim", 0) == 1
        if value is not None and not (is_list and len(value) == 0):
            return value
    return None


def placed(part: Any, column: Iterator[Any], *, folder: Path | None = None) -> str:
    """The URL of a part, taken from the row's column where the part only marks a place.

    Raises:
        DataError: as `picture_url`, or the column has no picture for it.
    """
    url = picture_url(part, folder=folder)
    if url is None:
        url = picture_url(next(column, None), folder=folder)
    if url is None:
        raise DataError(
            "a message has the place of a picture without its data: give it in the part "
            '({"type": "image_url", "image_url": {"url": ...}}), or in the column images'
        )
    return url


def _with_urls(
    message: Mapping[str, Any], column: Iterator[Any], *, folder: Path | None
) -> dict[str, Any]:
    content = message.get("content")
    if not isinstance(content, list | tuple) or not any(map(is_picture, content)):
        return dict(message)
    parts = [
        {"type": "image_url", "image_url": {"url": placed(part, column, folder=folder)}}
        if is_picture(part)
        else part
        for part in content
    ]
    return {**message, "content": parts}


def _as_url(key: str, value: Any, *, folder: Path | None) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return _data_url(bytes(value))
    if isinstance(value, str | Path):
        return _text_as_url(key, str(value), folder=folder)
    if callable(getattr(value, "save", None)):  # an image of PIL
        if (mode := getattr(value, "mode", "")) in _WITHOUT_PNG:
            value = value.convert("RGB")
        elif mode in {"I", "F"}:
            raise DataError(f"an image of PIL in mode {mode} is no picture: convert it to RGB")
        written = io.BytesIO()
        value.save(written, format="PNG", compress_level=1)
        return _data_url(written.getvalue())
    raise DataError(
        f"a picture is a URL, bytes, base64 or an image of PIL, not a {type(value).__name__}"
    )


def _text_as_url(key: str, text: str, *, folder: Path | None) -> str:
    text = text.strip()
    if text[:8].lower().startswith(_REMOTE):
        return text
    if text[:5].lower() == _INLINE:
        return _checked(text)
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        if key in _BASE64:
            raise DataError(f"a picture's {key!r} is no base64 text: {text[:40]!r}") from None
        data = b""
    if key in _BASE64 or _kind(data) is not None:  # JSON has no bytes, and writes them so
        return _data_url(data)
    if folder is None:
        raise DataError(
            f"a picture is {text[:80]!r}, and local files are not read here: give an http(s) URL, "
            "a data:image/... URL or the file's bytes"
        )
    path = folder / Path(text.removeprefix("file://")).expanduser()
    try:
        return _data_url(path.read_bytes())
    except OSError as error:
        raise DataError(f"the picture {path} cannot be read: {error.strerror}") from None


def _checked(url: str) -> str:
    """A ``data:`` URL whose media type is that of its bytes, as judges insist on it."""
    head, _, encoded = url.partition(",")
    if not head.lower().endswith(";base64"):
        raise DataError(f"a picture's data URL has no base64 in it: {url[:60]!r}")
    try:
        data = base64.b64decode("".join(encoded.split()), validate=True)
    except (binascii.Error, ValueError):
        raise DataError(f"a picture's data URL holds no base64 text: {url[:60]!r}") from None
    return _data_url(data)


def _kind(data: bytes) -> str | None:
    """The media type of a picture's bytes; None for other bytes."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((name for start, name in _SIGNATURES if data.startswith(start)), None)


def _data_url(data: bytes) -> str:
    kind = _kind(data)
    if kind is None:
        raise DataError(
            f"a picture of {len(data)} bytes is no PNG, JPEG, GIF, WebP or BMP: it begins "
            f"{data[:8]!r}"
        )
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
