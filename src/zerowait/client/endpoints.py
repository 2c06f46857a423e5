"""Where a judge can be asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from zerowait.client.secret import Secret
from zerowait.config.endpoint import Endpoint

_SHORTEST_KEY_CHARS: Final = 8


class Target(msgspec.Struct, frozen=True):
    """One endpoint, ready to be sent to; only its `name` is shown.

    Args:
        name: the URL without the query, which may hold a key.
        url: the full URL.
        headers: sent with every request, the key among them.
        secrets: what to strike out of replies and messages that quote it.
    """

    name: str
    url: str
    headers: Mapping[str, str]
    secrets: tuple[Secret, ...] = ()

    def __repr__(self) -> str:
        return f"Target(name={self.name!r})"

    def __rich_repr__(self) -> Any:
        yield "name", self.name

    def redact(self, text: str) -> str:
        """`text` without this endpoint's key and its headers' values."""
        for secret in self.secrets:
            text = secret.redact(text)
        return text

    def scrub(self, body: bytes) -> bytes:
        """`redact` for a reply as it came, so that nothing downstream ever holds a key."""
        for secret in self.secrets:
            body = body.replace(secret.reveal().encode(), b"***")
        return body


def target(endpoint: Endpoint, *, key: Secret | None = None) -> Target:
    """What requests to `endpoint` look like, authorised by `key`.

    >>> target(Endpoint(base_url="http://127.0.0.1:8001/v1", model="m")).name
    'http://127.0.0.1:8001/v1/chat/completions'
    """
    parts = urlsplit(endpoint.url)
    headers = {"Content-Type": "application/json", "User-Agent": "zerowait", **endpoint.headers}
    if key is not None and endpoint.api_version is not None:
        headers["api-key"] = key.reveal()
    elif key is not None:
        headers["Authorization"] = f"Bearer {key.reveal()}"
    name = f"{parts.scheme}://{parts.netloc}{parts.path}"
    keys = [] if key is None else [key]
    return Target(name, endpoint.url, headers, (*keys, *_secrets(endpoint.headers)))


def _secrets(headers: Mapping[str, str]) -> list[Secret]:
    """The values of a user's own headers, and their last words, where they may be keys."""
    values = [part for value in headers.values() for part in (value, value.rpartition(" ")[2])]
    return [Secret(v) for v in dict.fromkeys(values) if len(v.strip()) >= _SHORTEST_KEY_CHARS]
