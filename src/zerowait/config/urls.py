"""URLs of judges: checked before anything is asked, and shown without what may be secret."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

_LONGEST_HOST_CHARS = 253
_BLANK = re.compile(r"[\s\x00-\x1f\x7f]")


def check_url(name: str, url: str) -> None:
    """Raise a ValueError unless `url` is one that can be asked; its text is never repeated."""
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


def shown_url(url: str) -> str:
    """The URL without user info and without the values of its query, for messages.

    >>> shown_url("https://me:secret@h:81/v1?key=secret")
    'https://h:81/v1?...'
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return "a URL"
    host = parts.netloc.rpartition("@")[2]
    return SplitResult(parts.scheme, host, parts.path, "..." if parts.query else "", "").geturl()


def _is_host(host: str) -> bool:
    if ":" in host:  # an IPv6 address, which urlsplit has checked
        return True
    try:
        return 0 < len(host.encode("idna")) <= _LONGEST_HOST_CHARS
    except UnicodeError:  # a part between dots is empty, or longer than 63 characters
        return False
