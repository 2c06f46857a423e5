"""Judges behind a proxy: a real proxy, a real judge, plain and with TLS."""

import asyncio
import base64
import ssl
import subprocess
from contextlib import asynccontextmanager

import pytest
import uvloop

import zerowait
from zerowait import ConfigError, Sample
from zerowait.client import HttpTransport, Request, TransportError
from zerowait.client.http.proxy import proxy_for
from zerowait.config import Endpoint, Traffic, load_config
from zerowait.testing import FakeJudge

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
PASSWORD = "pr0xy-pass/word"
USER = "me:pr0xy-pass%2Fword"
BASIC = "Basic " + base64.b64encode(f"me:{PASSWORD}".encode()).decode()


@asynccontextmanager
async def listening(serve, context=None):
    """A server of `serve`; none of its connections is left behind."""
    tasks = set()

    async def served(reader, writer):
        tasks.add(asyncio.current_task())
        try:
            await serve(reader, writer)
        except* (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(served, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await asyncio.sleep(0.05)  # closed transports drop their sockets in the loop's next turns


class Proxy:
    """A forward proxy that knows CONNECT and whole addresses, and may ask for a password."""

    def __init__(self, *, asks=False, answer=None):
        self.heads = []
        self.asks = asks
        self.answer = answer

    async def serve(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        if self.answer is not None:
            writer.write(self.answer)
            return
        if self.asks and f"Proxy-Authorization: {BASIC}\r\n" not in head:
            words = f"wrong password in {head!r}".encode()
            writer.write(
                b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: %d\r\n\r\n"
                % len(words)
            )
            writer.write(words)
            return
        method, target, _ = head.split(" ", 2)
        if method == "CONNECT":
            host, _, port = target.rpartition(":")
            there = await asyncio.open_connection(host, int(port))
            writer.write(b"HTTP/1.1 200 Connection established\r\nX-Via: us\r\n\r\n")
        else:
            authority, _, path = target.removeprefix("http://").partition("/")
            host, _, port = authority.rpartition(":")
            there = await asyncio.open_connection(host, int(port))
            there[1].write(head.replace(target, f"/{path}", 1).encode())
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pipe(reader, there[1]))
                tasks.create_task(self._pipe(there[0], writer))
        finally:
            there[1].close()

    async def _pipe(self, reader, writer):
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()


def proxying(proxy):
    return listening(proxy.serve)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key, "-out", cert,
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return cert, key


@asynccontextmanager
async def judging(certificate=None):
    """A judge that answers each request, with TLS where there is a certificate."""

    async def answer(reader, writer):
        while head := await reader.readuntil(b"\r\n\r\n"):
            heads.append(head.decode())
            lines = head.lower().split(b"\r\n")
            await reader.readexactly(
                next(int(x[15:]) for x in lines if x.startswith(b"content-length:"))
            )
            writer.write(OK)

    heads, context = [], None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
    async with listening(answer, context) as port:
        yield port, heads


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("user", ["", f"{USER}@"])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_requests_go_through_the_proxy(user, tls, new_loop, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    proxy = Proxy(asks=bool(user))

    async def scenario():
        transport = HttpTransport()
        async with proxying(proxy) as port, judging(certificate if tls else None) as (there, heads):
            url = f"http{'s' if tls else ''}://localhost:{there}/v1/chat/completions"
            request = Request(
                url, {"Authorization": "Bearer k"}, b"{}", f"http://{user}127.0.0.1:{port}"
            )
            replies = [await transport.send(request, timeout_s=30) for _ in range(3)]
            await transport.aclose()
            return replies, heads, there

    with asyncio.Runner(loop_factory=new_loop) as runner:
        replies, heads, there = runner.run(scenario())
    assert [reply.body for reply in replies] == [b"ok"] * 3
    assert len(proxy.heads) == 1  # one connection for all
    method, target = proxy.heads[0].split(" ")[:2]
    expected = (
        ("CONNECT", f"localhost:{there}")
        if tls
        else ("POST", f"http://localhost:{there}/v1/chat/completions")
    )
    assert (method, target) == expected
    assert heads[0].startswith("POST /v1/chat/completions HTTP/1.1")
    assert ("Bearer k" in proxy.heads[0]) is not tls
    if tls:
        assert "proxy-authorization" not in "".join(heads).lower()


ENDS = {
    "a password": (Proxy(asks=True), "the proxy refused: 407"),
    "no": (Proxy(answer=b"HTTP/1.1 403 Forbidden\r\n\r\n"), "the proxy refused: 403"),
    "silence": (Proxy(answer=b""), "the proxy closed the connection without an answer"),
    "nonsense": (Proxy(answer=b"SSH-2.0-OpenSSH\r\n\r\n"), "the proxy does not speak HTTP"),
    "without end": (Proxy(answer=b"x" * 100_000), "without an answer"),
}


@pytest.mark.parametrize(("proxy", "says"), ENDS.values(), ids=ENDS.keys())
def test_a_proxy_that_refuses_is_named_and_nothing_was_sent(proxy, says):
    async def scenario():
        transport = HttpTransport()
        async with proxying(proxy) as port:
            request = Request(
                "https://localhost:9/v1",
                {},
                b"{}",
                f"http://me:{PASSWORD.replace('/', '')}@127.0.0.1:{port}",
            )
            with pytest.raises(TransportError) as caught:
                await transport.send(request, timeout_s=30)
            await transport.aclose()
        return caught.value

    error = asyncio.run(scenario())
    assert says in error.detail
    assert not error.sent


def test_a_proxy_that_hangs_is_given_up_in_time():
    async def hang(reader, writer):
        await reader.read()

    async def scenario():
        transport = HttpTransport(connect_timeout_s=0.1)
        async with listening(hang) as port:
            request = Request("https://localhost:9/v1", {}, b"{}", f"http://127.0.0.1:{port}")
            with pytest.raises(TransportError, match="no connection in time"):
                await transport.send(request, timeout_s=30)
            await transport.aclose()

    asyncio.run(scenario())


ENV = {
    "https_proxy": "http://p:1",
    "http_proxy": "q:2",
    "no_proxy": "direct.org,.corp.net,10.0.0.0/8,h:81",
}


@pytest.mark.parametrize(
    ("url", "own", "shared", "expected"),
    [
        ("https://judge/v1", None, None, None),
        ("https://judge/v1", None, "env", "http://p:1"),
        ("http://judge/v1", None, "env", "http://q:2"),
        ("http://judge/v1", None, "http://r:3", "http://r:3"),
        ("http://direct.org/v1", None, "http://r:3", "http://r:3"),
        ("http://judge/v1", "off", "http://r:3", None),
        ("http://judge/v1", "http://s:4", "http://r:3", "http://s:4"),
        ("http://judge/v1", "env", None, "http://q:2"),
        ("https://direct.org/v1", None, "env", None),
        ("https://a.corp.net/v1", None, "env", None),
        ("https://corp.org/v1", None, "env", "http://p:1"),
        ("http://10.1.2.3:8000/v1", None, "env", None),
        ("http://11.1.2.3:8000/v1", None, "env", "http://q:2"),
        ("http://h:81/v1", None, "env", None),
        ("http://h:82/v1", None, "env", "http://q:2"),
    ],
)
def test_which_proxy_an_endpoint_has(url, own, shared, expected, monkeypatch):
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(Endpoint(base_url=url, model="m", proxy=own), shared) == expected


def test_all_proxy_is_for_all_and_a_proxy_that_is_none_is_an_error(monkeypatch):
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ALL_PROXY", "http://all:1")
    endpoint = Endpoint(base_url="https://judge/v1", model="m")
    assert proxy_for(endpoint, "env") == "http://all:1"
    monkeypatch.setenv("ALL_PROXY", f"socks5://me:{PASSWORD}@all:1")
    with pytest.raises(ConfigError, match="environment's ALL_PROXY must be") as caught:
        proxy_for(endpoint, "env")
    assert PASSWORD not in str(caught.value)


def config(url, **traffic):
    return {
        "components": {"q": {"judge": "q"}},
        "judges": {
            "q": {"endpoints": [{"base_url": url, "model": "m"}], "verdict": {"integer": [1, 10]}}
        },
        "traffic": {"attempts": 1, **traffic},
        "cache": "off",
    }


@pytest.mark.parametrize(
    "wrong", ["socks5://h:1", "https://h:1", "h:1", "http://", "http://me:s3cret@:1", "on", True, 7]
)
def test_a_proxy_that_is_none_is_a_configuration_error(wrong):
    with pytest.raises(ConfigError, match=r"traffic\.proxy must") as caught:
        load_config(config("http://h/v1", proxy=wrong))
    assert "s3cret" not in str(caught.value)
    given = config("http://h/v1")
    given["judges"]["q"]["endpoints"][0]["proxy"] = wrong
    with pytest.raises(ConfigError, match=r"endpoints\[0\]\.proxy must"):
        load_config(given)


def test_off_is_read_as_yaml_reads_it_and_a_password_is_never_shown():
    given = config("http://h/v1", proxy=False)
    given["judges"]["q"]["endpoints"][0]["proxy"] = False
    loaded = load_config(given)
    assert (loaded.traffic.proxy, loaded.judges["q"].endpoints[0].proxy) == ("off", "off")
    shown = repr(Traffic(proxy="http://me:s3cret@h:1"))
    assert "s3cret" not in shown
    assert "proxy='http://h:1'" in shown


def test_judges_are_asked_through_the_proxy_and_its_password_comes_back_nowhere():
    proxy = Proxy(asks=True)

    async def scenario(user):
        async with proxying(proxy) as port:
            with_proxy = config(judge.url, proxy=f"http://{user}@127.0.0.1:{port}")
            async with zerowait.Engine(with_proxy) as engine:
                return await engine.score(Sample("p", "r"))

    with FakeJudge() as judge:
        assert asyncio.run(scenario(USER)).value is not None
        lost = asyncio.run(scenario("me:wr0ng-one"))
    assert lost.value is None
    assert "407" in lost.why
    assert "wr0ng" not in lost.why
    assert base64.b64encode(b"me:wr0ng-one").decode() not in lost.why
