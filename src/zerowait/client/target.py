"""What a request to an endpoint needs: URL, headers, proxy, and the secrets to strike out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from zerowait.client.scrubber import Scrubber
from zerowait.client.secret import Secret
from zerowait.client.transport import Reply
from zerowait.config.endpoint import Endpoint
from zerowait.config.urls import secrets_in_url, shown_url

_WORDS: Final = re.compile(r"[\s,;=\"]+")  # of "Bearer KEY", "session=KEY; theme=dark"
_KEY_CHARS: Final = 8
_LONGEST_ERROR_BYTES: Final = 2**17


class Target(msgspec.Struct, frozen=True):
    """One endpoint, ready to be sent to; only its `name` is shown.

    Args:
        name: the URL without what may be secret in it.
        url: the full URL.
        headers: sent with every request, the key among them.
        scrubber: strikes the endpoint's secrets out of replies and messages that quote them.
        proxy: the proxy's URL, which may hold a password; None for no proxy.
        has_secrets: whether replies have to be scrubbed at all.
    """

    name: str
    url: str
    headers: Mapping[str, str]
    scrubber: Scrubber = Scrubber()
    proxy: str | None = None
    has_secrets: bool = False

    def __repr__(self) -> str:
        return f"Target(name={self.name!r})"

    def __rich_repr__(self) -> Any:
        yield "name", self.name

    def redact(self, text: str) -> str:
        """`text` without this endpoint's secrets."""
        return self.scrubber.text(text)

    def scrub(self, reply: Reply) -> Reply:
        """`reply` without this endpoint's secrets, so that nothing downstream ever holds one."""
        is_answer = 200 <= reply.status < 300
        # no more of an error is read, and a page of megabytes would hold the event loop up
        body = reply.body if is_answer else reply.body[:_LONGEST_ERROR_BYTES]
        body = self.scrubber.body(body, is_answer=is_answer)
        headers = reply.headers
        if not is_answer:  # they say where to go, or why not, in words of the server's
            headers = {name: self.scrubber.text(value) for name, value in headers.items()}
        if body is reply.body and headers == reply.headers:
            return reply
        return Reply(reply.status, headers, body)


def target(endpoint: Endpoint, *, key: Secret | None = None, proxy: str | None = None) -> Target:
    """The target of requests to `endpoint`, authorised by `key`.

    Args:
        endpoint: as it is configured.
        key: the endpoint's API key.
        proxy: the URL of the proxy that requests go through.

    >>> target(Endpoint(base_url="http://127.0.0.1:8001/v1", model="m")).name
    'http://127.0.0.1:8001/v1/chat/completions'
    """
    headers = {"Content-Type": "application/json", "User-Agent": "zerowait", **endpoint.headers}
    if key is not None and endpoint.api_version is not None:
        headers["api-key"] = key.reveal()
    elif key is not None:
        headers["Authorization"] = f"Bearer {key.reveal()}"
    scrubber = _scrubber(endpoint, key, proxy)
    name = scrubber.text(shown_url(endpoint.url).partition("?")[0])
    return Target(name, endpoint.url, headers, scrubber, proxy, scrubber.has_secrets)


def _scrubber(endpoint: Endpoint, key: Secret | None, proxy: str | None) -> Scrubber:
    """Knows the key, the secrets in the URLs, and the values of the user's own headers."""
    keys: list[Secret | str] = [] if key is None else [key]
    values: list[str] = []
    for url in (endpoint.base_url, *([] if proxy is None else [proxy])):
        found, others = secrets_in_url(url)
        keys += found
        values += others
    for value in endpoint.headers.values():
        *others, last = _WORDS.split(value.strip())
        values += [value, last, *(word for word in others if len(word) >= _KEY_CHARS)]
    return Scrubber(keys, values)
