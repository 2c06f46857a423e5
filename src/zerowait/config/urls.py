"""URLs of judges and proxies: checked, shown without secrets, and searched for secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

_LONGEST_HOST_CHARS = 253
_BLANK = re.compile(r"[\s\x00-\x1f\x7f]")
_KEY_CHARS: Final = 20  # without a break; a UUID's longest run has 12, a model's date 8
_RUN: Final = re.compile(r"[A-Za-z0-9_]+")
_DIGIT: Final = re.compile(r"[0-9]")
_LETTER: Final = re.compile(r"[A-Za-z]")


def check_url(name: str, url: str) -> None:
    """Raise a ValueError unless requests can be sent to `url`; never repeats it."""
    if not url.lower().startswith(("http://", "https://")):
        raise ValueError(f"{name} must start with http:// or https://")
    if _BLANK.search(url):
        raise ValueError(f"{name} must have no white space in it, at its ends neither")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(
            f"{name} must have a host and a port that exist: http://host:8001/v1, and an IPv6 "
            "address in brackets"
        ) from None
    if "@" in parts.netloc:
        raise ValueError(f"{name} must hold no user name or password: use api_key_env or headers")
    if port == 0 or not _is_host(parts.hostname or ""):
        raise ValueError(f"{name} must name a host, and a port from 1 to 65535 if any")


def check_proxy(name: str, proxy: str) -> None:
    """Raise a ValueError unless `proxy` is ``env``, ``off`` or a proxy's URL; never repeats it."""
    if proxy in ("env", "off"):
        return
    if not proxy.lower().startswith("http://"):
        raise ValueError(
            f"{name} must be env, off, or a URL that starts with http:// (a proxy for https:// "
            "judges has one, too; SOCKS is not spoken)"
        )
    check_url(name, f"http://{proxy[len('http://') :].rpartition('@')[2]}")


def shown_url(url: str) -> str:
    """The URL without what may be secret, for messages.

    That is user info, the values of the query, and parts of the path that look like a key.

    >>> shown_url("https://me:secret@h:81/v1?key=secret")
    'https://h:81/v1?...'
    >>> shown_url("https://h/bot5812345678AAHfiqksKZ8WmR2z/v1;sig=x#part")
    'https://h/***/v1;...'
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return "a URL"
    host = parts.netloc.rpartition("@")[2]
    path = "/".join(_shown_segment(segment) for segment in parts.path.split("/"))
    return SplitResult(parts.scheme, host, path, "..." if parts.query else "", "").geturl()


def secrets_in_url(url: str) -> tuple[list[str], list[str]]:
    """Texts in `url` that must not reach logs or errors: keys, and other values.

    Keys are the password and parts of the path that look like one; values are those of the query
    and of parameters in the path, the user, and the fragment.

    >>> secrets_in_url("https://me:pw@h/v1?key=a%2Fb&x=1")
    (['pw', 'me:pw'], ['me', 'a%2Fb', '1', 'key=a%2Fb&x=1'])
    """
    parts = urlsplit(url)
    user_info = parts.netloc.rpartition("@")[0]
    user, _, password = user_info.partition(":")
    keys = [password, f"{unquote(user)}:{unquote(password)}"] if password else []
    values = [user]
    for segment in parts.path.split("/"):
        name, *parameters = segment.split(";")
        if _shown_segment(name) != name:
            keys.append(name)
        values += _values(parameters)
    values += _values(parts.query.replace(";", "&").split("&"))
    values += [parts.query if "=" in parts.query else "", parts.fragment]
    return [key for key in keys if key], [value for value in values if value]


def _values(pairs: Iterable[str]) -> list[str]:
    """The value of each ``name=value``; the whole text where there is no name."""
    return [pair.partition("=")[2] if "=" in pair else pair for pair in pairs]


def _shown_segment(segment: str) -> str:
    """A part of a path; ``***`` for what looks like a key, such as the one behind ``bot``."""
    name, semicolon, _ = segment.partition(";")
    is_key = any(
        len(run) >= _KEY_CHARS and _DIGIT.search(run) and _LETTER.search(run)
        for run in _RUN.findall(unquote(name))
    )
    return ("***" if is_key else name) + (";..." if semicolon else "")


def _is_host(host: str) -> bool:
    if ":" in host:  # an IPv6 address, which urlsplit has checked
        return True
    try:
        return 0 < len(host.encode("idna")) <= _LONGEST_HOST_CHARS
    except UnicodeError:  # a part between dots is empty, or longer than 63 characters
        return False
