"""Endpoints of a judge: their URL, model, key and API (OpenAI's, or a reward model's)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlencode, urlsplit, urlunsplit

import msgspec

from zerowait.attribution import ReplyEnding, ending_of
from zerowait.config.checks import positive
from zerowait.config.obfuscated_pickle import obfuscated
from zerowait.config.serve import ServeSettings
from zerowait.config.urls import check_proxy, check_url, shown_url

Api: TypeAlias = Literal["chat", "completions", "responses", "classify", "pooling", "score"]

REWARD_APIS: Final = ("classify", "pooling", "score")
"""Those of vLLM that answer a conversation with a number."""

VERL: Final = "verl"
"""The ``base_url`` of the reward-model servers that verl itself starts."""

VERL_HOST: Final = "reward-model.verl"
"""The name that stands for their router in URLs."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OURS = ("content-length", "transfer-encoding", "host")
_PATHS: Final[dict[Api, str]] = {
    "chat": "/chat/completions",
    "completions": "/completions",
    "responses": "/responses",
    "classify": "/classify",
    "pooling": "/pooling",
    "score": "/score",
}


class _NotGiven(str):
    """The empty text of a key that is not there, which is not the same as an empty one."""

    __slots__ = ()


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One address at which a judge answers.

    Args:
        base_url: a base such as ``http://127.0.0.1:8001/v1``, or a full URL that ends with
            ``/chat/completions`` or ``/responses``; a reward model's with ``/classify``,
            ``/pooling`` or ``/score``; ``verl`` for the reward model that verl serves.
        model: the name sent as ``model``; with `serve` by default its ``model``.
        serve: servers that zerowait starts itself, in place of `base_url`.
        api: ``chat``, ``completions``, ``responses``, ``classify``, ``pooling`` or ``score``;
            default: what the URL ends with, else ``chat``. ``completions`` (a base model's: the
            prompt is one text without chat template) is never the default.
        api_key_env: the environment variable that holds the key.
        api_key: the key itself; accepted, never shown.
        headers: sent with every request.
        api_version: Azure's; sent as the query ``api-version``, and the key as ``api-key``.
        weight: share of the judgements among the endpoints of the same priority.
        proxy: as ``traffic.proxy``, for this endpoint alone; ``off`` goes there directly.
        priority: the lowest is used first; higher ones only while the circuit breakers of all
            endpoints with a lower one are open.
        endings: further words in ``finish_reason`` that mean a complete reply; those of a judge's
            endpoints count for all of them.
    """

    base_url: str = msgspec.field(default_factory=_NotGiven)
    model: str = msgspec.field(default_factory=_NotGiven)
    serve: ServeSettings | None = None
    api: Api | None = None
    api_key_env: str | None = None
    api_key: str | None = None
    headers: dict[str, str] = {}
    api_version: str | None = None
    weight: float = 1.0
    priority: int = 0
    endings: list[str] = []
    proxy: str | None = None

    def __post_init__(self) -> None:
        self._name_its_servers()
        for key in ("base_url", "model"):
            if type(getattr(self, key)) is _NotGiven:
                # in the words of msgspec for a field that has no default
                raise ValueError(f"Object missing required field `{key}`")
        check_url("base_url", self.base_url)
        if not self.model.strip():
            raise ValueError("model must be the name that the endpoint knows, not nothing")
        if self.api_key_env is not None and not _VARIABLE.fullmatch(self.api_key_env):
            # it may well be the key itself, so it is not repeated
            raise ValueError(
                "api_key_env must be the NAME of an environment variable that holds the key: "
                "letters, digits and _"
            )
        key = "any" if self.api_key is None else self.api_key
        if not (key.strip() and key.isascii() and key.isprintable()):
            raise ValueError("api_key must be printable ASCII: no line break, no other letters")
        _check_headers(self.headers)
        positive("weight", self.weight)
        _check_endings(self.endings)
        if self.proxy is not None:
            check_proxy("proxy", self.proxy)
        named = self._named
        if self.api is not None and named not in (None, self.api):
            raise ValueError(f"api is {self.api}, and base_url is that of {named}")

    def __repr__(self) -> str:  # a literal key must not reach a log through a repr
        return f"Endpoint(base_url={shown_url(self.base_url)!r}, model={self.model!r})"

    __str__ = __repr__

    def __rich_repr__(self) -> Any:
        yield "base_url", shown_url(self.base_url)
        yield "model", self.model

    def __reduce__(self) -> tuple[Any, ...]:  # nor through a pickle that is shown as text
        return obfuscated(_endpoint, msgspec.structs.asdict(self))

    def _name_its_servers(self) -> None:
        """Set the URL that stands for servers whose address is known only when they run."""
        if self.serve is None and self.base_url != VERL:
            return
        host = VERL_HOST if self.serve is None else self.serve.host(0)
        base = f"http://{host}" if self.api in REWARD_APIS else f"http://{host}/v1"
        if self.serve is not None:
            if self.base_url not in ("", base):
                raise ValueError("base_url does not go with serve, whose servers have their own")
            if not self.model:
                msgspec.structs.force_setattr(self, "model", self.serve.model)
        msgspec.structs.force_setattr(self, "base_url", base)
        msgspec.structs.force_setattr(self, "proxy", "off")

    @property
    def is_verls(self) -> bool:
        """Whether verl starts the servers of this endpoint."""
        return urlsplit(self.base_url).hostname == VERL_HOST

    @property
    def replicas(self) -> list[Endpoint]:
        """This endpoint, or one for each of the servers that are started for it."""
        if self.serve is None:
            return [self]
        first, replace = self.serve.host(0), msgspec.structs.replace
        return [
            replace(self, serve=None, base_url=self.base_url.replace(first, self.serve.host(index)))
            for index in range(self.serve.replicas)
        ]

    @property
    def speaks(self) -> Api:
        """The API in which requests are sent."""
        return self.api or self._named or "chat"

    @property
    def url(self) -> str:
        """The full URL to which requests go.

        >>> base = "https://my.openai.azure.com/openai/deployments/gpt"
        >>> Endpoint(base_url=base, model="gpt", api_version="2024-10-21").url.removeprefix(base)
        '/chat/completions?api-version=2024-10-21'
        """
        parts = urlsplit(self.base_url)
        path, query = parts.path.rstrip("/"), parts.query
        if self._named is None:
            path += _PATHS[self.speaks]
        if self.api_version is not None:
            query += ("&" if query else "") + urlencode({"api-version": self.api_version})
        return urlunsplit((parts.scheme, parts.netloc, path, query, ""))

    @property
    def _named(self) -> Api | None:
        """The API that the URL ends with."""
        return _api_of(self.base_url, self.api)


def _endpoint(settings: Mapping[str, Any]) -> Endpoint:
    return Endpoint(**settings)


@cache  # asked for with each request; a run has a handful of URLs
def _api_of(url: str, given: Api | None) -> Api | None:
    path = urlsplit(url).path.rstrip("/")
    if path.endswith("/completions"):
        is_chat = given != "completions" or path.endswith(_PATHS["chat"])
        return "chat" if is_chat else "completions"
    return next((api for api, ending in _PATHS.items() if path.endswith(ending)), None)


def _check_endings(endings: Sequence[str]) -> None:
    for word in endings:
        if not word.strip():
            raise ValueError("endings must be words that occur in finish_reason, not nothing")
        known = ending_of(word)
        if known in (ReplyEnding.CUT, ReplyEnding.FILTERED):
            raise ValueError(
                f"endings must be words for a complete reply, and {word!r} says it was {known}"
            )


def _check_headers(headers: Mapping[str, str]) -> None:
    """Raise a ValueError for a wrong header; it never repeats a value, which may be a key."""
    for name, value in headers.items():
        if not _HEADER.fullmatch(name):
            raise ValueError(f"headers must have names without spaces and colons, not {name!r}")
        if name.lower() in _OURS:
            raise ValueError(f"headers must leave {name} to the request itself")
        if any(char in value for char in "\r\n\0"):
            raise ValueError(f"headers must hold one line each, and {name} has a line break")
