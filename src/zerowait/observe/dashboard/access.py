"""Who may read the dashboard: its address, its token, and the requests that are refused."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import msgspec
from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from zerowait.client import Secret
from zerowait.errors import ConfigError
from zerowait.hub.http.settings import is_loopback

PageHandler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

LOGIN_PATH: Final = "/login"
_LONGEST_TOKEN_CHARS: Final = 1024
_KEPT_HEADERS: Final = (hdrs.ALLOW, hdrs.RETRY_AFTER)
_PORT: Final = re.compile(r":\d+$")
_HEADERS: Final = {
    # no inline script, nothing from elsewhere: the text of a record can never run
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class DashboardSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the dashboard, checked when they are made.

    Args:
        host: the address to listen on; any but a loopback address needs a `token`.
        port: from 0 to 65535; 0 takes a free one.
        token: what a browser has to give once; None asks for nothing.

    Raises:
        ConfigError: `host` is no loopback address and there is no token, or `port` is out of range.
    """

    host: str = "127.0.0.1"
    port: int = 8003
    token: Secret | None = None

    def __post_init__(self) -> None:
        if self.token is None and not is_loopback(self.host):
            raise ConfigError(
                f"--host {self.host}: other machines could read the run's prompts and responses: "
                "the dashboard needs a token there"
            )
        if not 0 <= self.port < 2**16:
            raise ConfigError(f"--port {self.port}: must be from 0 to 65535")


class AccessControl:
    """Lets in requests with the token or its cookie; without a token, those to a loopback name.

    A page of another site can send requests to this machine, and can even give its own name this
    machine's address (DNS rebinding). So a request without a token must name a loopback host, and a
    request that changes something must come from the dashboard's own page or carry the token.

    Args:
        token: None: there is none.
        static: paths that the page for entering the token needs; they hold nothing of a run.
    """

    def __init__(self, token: Secret | None, *, static: frozenset[str]) -> None:
        self._token = token
        self._open_paths = static | {LOGIN_PATH}
        # the cookie holds a session's name, not the token; cookies of all ports share one jar
        self._cookie = f"zerowait-{secrets.token_hex(4)}"
        self._session = secrets.token_urlsafe(32)

    @property
    def middleware(self) -> Middleware:
        """Refuses what must not be answered, and adds the protecting headers to every answer."""

        @web.middleware
        async def admission(request: web.Request, handler: PageHandler) -> web.StreamResponse:
            response = await self._answer(request, handler)
            response.headers.update(_HEADERS)
            response.headers.setdefault(hdrs.CACHE_CONTROL, "no-store")
            return response

        return admission

    async def _answer(self, request: web.Request, handler: PageHandler) -> web.StreamResponse:
        try:
            given = request.query.get("token")
            if given is not None and request.path == "/" and request.method == hdrs.METH_GET:
                return self.log_in(given)
            self._check_source(request)
            if not self._admits(request):
                if request.path == "/":
                    raise web.HTTPSeeOther(LOGIN_PATH)
                raise web.HTTPUnauthorized(
                    text="the dashboard's token is needed: open / to give it"
                )
            return await handler(request)
        except web.HTTPException as error:
            if error.status < 400:
                return web.Response(status=error.status, headers=error.headers)
            body = msgspec.json.encode({"error": error.text or error.reason})
            kept = {name: error.headers[name] for name in _KEPT_HEADERS if name in error.headers}
            return web.Response(
                body=body, status=error.status, content_type="application/json", headers=kept
            )

    def log_in(self, given: str) -> web.Response:
        """Redirects to the page, with the cookie.

        Raises:
            HTTPForbidden: it is not the token.
        """
        response = web.Response(status=303, headers={hdrs.LOCATION: "/"})
        if self._token is None:
            return response
        if not _same(given[:_LONGEST_TOKEN_CHARS].strip(), self._token.reveal()):
            raise web.HTTPForbidden(text="this is not the token that the dashboard printed")
        response.set_cookie(self._cookie, self._session, httponly=True, samesite="Strict", path="/")
        return response

    def _admits(self, request: web.Request) -> bool:
        if request.path in self._open_paths:
            return True
        if self._token is None:
            if _is_loopback_host(request.host):
                return True
            raise web.HTTPForbidden(
                text="without a token the dashboard answers only at a name of this machine, such "
                "as localhost; start it with --token to open it under another name"
            )
        return self._has_token(request) or _same(
            request.cookies.get(self._cookie, ""), self._session
        )

    def _has_token(self, request: web.Request) -> bool:
        scheme, _, given = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
        bearer = self._token is not None and scheme.lower() == "bearer"
        return bearer and self._token is not None and _same(given.strip(), self._token.reveal())

    def _check_source(self, request: web.Request) -> None:
        """Refuse what another site's page sends; browsers say which page it is."""
        site = request.headers.get("Sec-Fetch-Site", "same-origin")
        if request.path.startswith("/api/") and site not in {"same-origin", "none"}:
            raise web.HTTPForbidden(text="pages of other sites may not read the dashboard")
        if request.method in {hdrs.METH_GET, hdrs.METH_HEAD}:
            return
        origin = request.headers.get(hdrs.ORIGIN)
        own = origin is not None and urlsplit(origin).netloc == request.host
        if not own and not self._has_token(request):
            raise web.HTTPForbidden(text="only the dashboard's own page may change something")


def _same(given: str, expected: str) -> bool:
    """Whether two texts are equal, in a time that does not depend on how they differ."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _is_loopback_host(host: str) -> bool:
    name = host.rpartition(":")[0] if _PORT.search(host) else host
    return is_loopback(name.strip("[]").lower())
