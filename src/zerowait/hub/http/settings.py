"""Settings of the HTTP service: its address, its token, its limits."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import math
from typing import Literal

import msgspec

from zerowait.client import Secret
from zerowait.config.checks import seconds
from zerowait.errors import ConfigError

MEBIBYTE = 2**20


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the HTTP service, checked when they are made.

    Args:
        host: the address to listen on; any but a loopback address needs a `token`.
        port: from 0 to 65535; 0 takes a free one.
        token: clients send it as ``Authorization: Bearer``, or as the password of a URL.
        max_body_bytes: the largest request body or WebSocket message.
        body_s: seconds in which a request's body must arrive; later, the answer is 408.
        deadline_s: seconds in which a request must be answered; later, the answer is 504.
        drain_s: seconds in which open requests may end after SIGINT or SIGTERM.
        on_abstain: the number that ``/get_reward`` of OpenRLHF returns for a sample that
            abstained, or ``neutral`` for the mean of its group; None: an error.

    Raises:
        ConfigError: `host` is no loopback address and there is no token, or a number is out of its
            range.
    """

    host: str = "127.0.0.1"
    port: int = 8002
    token: Secret | None = None
    max_body_bytes: int = 64 * MEBIBYTE
    body_s: float = 120.0
    deadline_s: float = 1800.0
    drain_s: float = 30.0
    on_abstain: float | Literal["neutral"] | None = None

    def __post_init__(self) -> None:
        if self.token is None and not is_loopback(self.host):
            raise ConfigError(
                f"--host {self.host}: other machines could spend your judge's money there: name "
                "the environment variable that holds a token with --token-env"
            )
        if not 0 <= self.port < 2**16:
            raise ConfigError(f"--port {self.port}: must be from 0 to 65535")
        seconds("deadline_s", self.deadline_s)
        seconds("body_s", self.body_s)
        if self.max_body_bytes <= 0:
            raise ConfigError(f"max_body_bytes must be greater than 0, not {self.max_body_bytes}")
        if not (math.isfinite(self.drain_s) and self.drain_s >= 0):
            raise ConfigError(f"drain_s must be at least 0, not {self.drain_s}")
        if isinstance(self.on_abstain, float | int) and not math.isfinite(self.on_abstain):
            raise ConfigError(f"on_abstain must be a finite number, not {self.on_abstain}")

    def admits(self, authorization: str | None) -> bool:
        """Whether an ``Authorization`` header carries the token, or none is needed."""
        if self.token is None:
            return True
        given = _token_in(authorization or "")
        return hmac.compare_digest(given, self.token.reveal().encode())


def is_loopback(host: str) -> bool:
    """Whether `host` is an address that only this machine can reach.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _token_in(authorization: str) -> bytes:
    """The token of a Bearer header, or the password of a Basic one; empty for any other."""
    scheme, _, rest = authorization.partition(" ")
    rest = rest.strip()
    if scheme.lower() == "bearer":
        return rest.encode("utf-8", "surrogateescape")
    if scheme.lower() == "basic":  # clients that put the token into the URL
        try:
            return base64.b64decode(rest, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""
