"""Fake judge: a real HTTP server with OpenAI's chat completions and responses APIs.

Its script decides latency, capacity and faults, the same on every run. It counts requests, so that
tests can check what really arrived.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from zerowait.errors import ClosedError
from zerowait.testing.app import JudgeApp, listening
from zerowait.testing.reply_plan import AnswerFunction, HoldFunction
from zerowait.testing.request_log import RequestLog, Seen
from zerowait.testing.script import Script

_DEFAULT_SCRIPT = Script()


class FakeJudge:
    """A fake judge server on its own thread; entered once, with ``with`` or ``async with``.

    Args:
        script: its behaviour; two judges with one script send equal bytes for equal requests.
        answer: function from a request's decoded body to the content of its reply, or to an
            `AssistantMessage`, instead of the script's verdict. It runs on the judge's thread and
            must not block. Its exceptions are answered with 500 and raised again when the judge is
            closed.
        hold: coroutine function, awaited on the judge's loop with a request's decoded body before
            its latency begins, so that a test can delay replies until it has reached some state.
            Its exceptions are treated likewise.
        api_key: the only accepted key, in ``Authorization: Bearer`` or ``api-key``; others get 401.
        host: the address to listen on.
        port: 0 takes a free one.

    It answers at every path that ends with ``/chat/completions`` or ``/responses``, with the same
    verdict for the same question, and at ``/completions``. Where a request asks for them, a reply
    has token log-probabilities.

    >>> import urllib.request
    >>> with FakeJudge(Script(seed=7)) as judge:
    ...     with urllib.request.urlopen(judge.url.removesuffix("/v1") + "/healthz") as reply:
    ...         reply.read()
    b'{"status":"ok"}'
    """

    def __init__(
        self,
        script: Script = _DEFAULT_SCRIPT,
        *,
        answer: AnswerFunction | None = None,
        hold: HoldFunction | None = None,
        api_key: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._log = RequestLog()
        self._app = JudgeApp(script, self._log, answer=answer, hold=hold, api_key=api_key)
        self._address = host, port
        self._thread = threading.Thread(target=self._run, name="zerowait-fake-judge")
        self._port: Future[int] = Future()
        self._stop: Future[None] = Future()
        self._ended: Future[None] = Future()
        for future in (self._port, self._ended):
            # A cancelled waiter must not cancel the future that the thread will resolve
            future.set_running_or_notify_cancel()

    @property
    def url(self) -> str:
        """The base URL, such as ``http://127.0.0.1:41234/v1``.

        Raises:
            ClosedError: the judge does not run.
        """
        if not self._port.done() or self._ended.done():
            raise ClosedError("the fake judge runs only inside its `with` block")
        return f"http://{_host_in_url(self._address[0])}:{self._port.result()}/v1"

    @property
    def seen(self) -> Seen:
        """Counts of requests so far; readable from any thread and after the end."""
        return self._log.snapshot()

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._port.result()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
        self._raise_crash(unless=error)

    async def __aenter__(self) -> Self:
        self._thread.start()
        try:
            await asyncio.wrap_future(self._port)
        except BaseException:
            self._request_stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._request_stop()
        await asyncio.wrap_future(self._ended)
        self._thread.join()
        self._raise_crash(unless=error)

    def close(self) -> None:
        """Stop the server before the end of its block. Idempotent."""
        self._request_stop()
        if self._thread.ident is not None:
            self._thread.join()

    def _request_stop(self) -> None:
        with suppress(InvalidStateError):
            self._stop.set_result(None)

    def _raise_crash(self, *, unless: BaseException | None) -> None:
        if unless is None and self._app.crash is not None:
            raise self._app.crash

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_fast_loop_factory()) as runner:
                runner.run(self._serve())
        except Exception as error:
            if self._port.done():
                raise
            self._port.set_exception(error)  # raised in the `with` that waits for the port
        finally:
            self._ended.set_result(None)

    async def _serve(self) -> None:
        async with listening(self._app, *self._address) as port:
            self._port.set_result(port)
            await asyncio.wrap_future(self._stop)


async def serve_forever(
    script: Script,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    api_key: str | None = None,
    on_ready: Callable[[str], Any] | None = None,
) -> Seen:
    """Run a fake judge on the current loop until SIGINT, SIGTERM or cancellation; its counts.

    Args:
        script: its behaviour.
        host: the address to listen on.
        port: 0 takes a free one.
        api_key: the only accepted key; others get 401.
        on_ready: called with the base URL once it listens.

    Raises:
        OSError: the port cannot be bound.
    """
    log = RequestLog()
    app = JudgeApp(script, log, answer=None, api_key=api_key)
    async with listening(app, host, port) as bound:
        with _shutdown_event() as stop:
            if on_ready is not None:
                on_ready(f"http://{_host_in_url(host)}:{bound}/v1")
            await stop.wait()
    return log.snapshot()


@contextmanager
def _shutdown_event() -> Iterator[asyncio.Event]:
    """An event that SIGINT and SIGTERM set."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    # Windows and threads other than the main one have no signal handlers; only a cancellation
    # ends the server there
    with suppress(NotImplementedError, RuntimeError, ValueError):
        for number in signals:
            loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        with suppress(NotImplementedError, RuntimeError, ValueError):
            for number in signals:
                loop.remove_signal_handler(number)


def _fast_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _host_in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
