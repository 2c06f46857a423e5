"""A client of Redis, and what its errors say without the password."""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Any, NamedTuple

from zerowait.errors import ConfigError, MissingExtraError


class Connected(NamedTuple):
    """A client, which connects when it is used.

    Args:
        client: of redis-py.
        errors: whatever it may raise.
        silences: those of `errors` that mean that Redis did not answer.
    """

    client: Any
    errors: tuple[type[Exception], ...]
    silences: tuple[type[Exception], ...]


def connected(url: str, timeout_s: float) -> Connected:
    """A client of the Redis at `url`; `timeout_s` is that of a round trip.

    Raises:
        MissingExtraError: redis-py is not installed.
        ConfigError: the URL cannot be read.
    """
    try:
        redis: Any = importlib.import_module("redis.asyncio")
        errors: Any = importlib.import_module("redis.exceptions")
        retry: Any = importlib.import_module("redis.asyncio.retry")
        backoff: Any = importlib.import_module("redis.backoff")
    except ImportError:
        raise MissingExtraError("cache.url", extra="redis") from None
    client = None
    # its errors quote the URL, and with it the password
    with suppress(ValueError):
        client = redis.Redis.from_url(
            url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            # once more, at once: Redis may have closed an idle connection; never after a timeout
            retry=retry.Retry(backoff.NoBackoff(), 1, (errors.ConnectionError,)),
        )
    if client is None:
        raise ConfigError(f"cache.url {without_password(url)}: is no URL of a Redis")
    silences = (errors.ConnectionError, errors.TimeoutError, OSError, TimeoutError)
    return Connected(client, (errors.RedisError, *silences), silences)


def without_password(url: str) -> str:
    """The URL as it may be shown.

    >>> without_password("redis://me:secret@cache.example:6379/0?password=x")
    'redis://cache.example:6379/0'
    >>> without_password("redis://:se/cr?et@cache.example/0")
    'redis://<hidden>'
    """
    scheme, _, rest = url.partition("://")
    before, mark, query = rest.partition("?")
    if mark and "@" in query:  # the mark may be a part of the password
        return f"{scheme}://<hidden>"
    return f"{scheme}://{before.rpartition('@')[2]}"


def reason(error: BaseException) -> str:
    """What happened, in the system's words where it has some; never a URL."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
