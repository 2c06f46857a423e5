"""A judge that is none: a real HTTP server with the faces of OpenAI's chat and responses APIs.

It answers, is slow, turns requests away and breaks in every way its script says, the same on every
run, and counts what it saw, so that a test can look at the truth from the other side of the wire.
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
from zerowait.testing.reply_plan import Hold, PlannedReply
from zerowait.testing.script import Script
from zerowait.testing.request_log import RequestLog, Seen

_PLAIN = Script()


class FakeJudge:
    """A fake judge on a thread and a loop of its own; ``with`` or ``async with``, once.

    Args:
        script: what it does; two judges with one script send the same bytes for the same requests.
        answer: the content of a reply, from the request's decoded body; in place of the script's
            verdict. It is called on the judge's thread and must not block. What it raises is
            answered with 500 and raised again when the judge is closed.
        hold: awaited with a request's decoded body before its latency begins, on the judge's loop,
            so that a test can keep answers back until the state that it looks at is reached. What
            it raises is treated likewise.
        api_key: any other key, sent as ``Authorization: Bearer`` or ``api-key``, gets a 401.
        host: the address it listens on.
        port: 0 takes a free one.

    It answers at every path that ends with ``/chat/completions`` or ``/responses``, alike for the
    same question in either API.

    >>> import urllib.request
    >>> with FakeJudge(Script(seed=7)) as judge:
    ...     with urllib.request.urlopen(judge.url.removesuffix("/v1") + "/healthz") as reply:
    ...         reply.read()
    b'{"status":"ok"}'
    """

    def __init__(
        self,
        script: Script = _PLAIN,
        *,
        answer: PlannedReply | None = None,
        hold: Hold | None = None,
        api_key: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._tally = RequestLog()
        self._face = JudgeApp(script, self._tally, answer=answer, hold=hold, api_key=api_key)
        self._address = host, port
        self._thread = threading.Thread(target=self._run, name="zerowait-fake-judge")
        self._port: Future[int] = Future()
        self._stop: Future[None] = Future()
        self._ended: Future[None] = Future()
        for future in (self._port, self._ended):
            # a waiting coroutine that is cancelled must not cancel what the thread will set
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
        """What it has seen so far; may be read from any thread and after the end."""
        return self._tally.snapshot()

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
            self._tell_to_stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._tell_to_stop()
        await asyncio.wrap_future(self._ended)
        self._thread.join()
        self._raise_crash(unless=error)

    def close(self) -> None:
        """End it before the end of its block; nobody is answered any more. May be called again."""
        self._tell_to_stop()
        if self._thread.ident is not None:
            self._thread.join()

    def _tell_to_stop(self) -> None:
        with suppress(InvalidStateError):
            self._stop.set_result(None)

    def _raise_crash(self, *, unless: BaseException | None) -> None:
        if unless is None and self._face.crash is not None:
            raise self._face.crash

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_fast_loop_factory()) as runner:
                runner.run(self._serve())
        finally:
            self._ended.set_result(None)

    async def _serve(self) -> None:
        try:
            async with listening(self._face, *self._address) as port:
                self._port.set_result(port)
                await asyncio.wrap_future(self._stop)
        except OSError as error:
            if self._port.done():
                raise
            self._port.set_exception(error)


async def serve_forever(
    script: Script,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    api_key: str | None = None,
    on_ready: Callable[[str], Any] | None = None,
) -> Seen:
    """What a fake judge saw that ran on the current loop until SIGINT, SIGTERM or cancellation.

    Args:
        script: what it does.
        host: the address it listens on.
        port: 0 takes a free one.
        api_key: any other key is answered with 401.
        on_ready: called with the base URL once it listens.

    Raises:
        OSError: the port cannot be bound.
    """
    tally = RequestLog()
    face = JudgeApp(script, tally, answer=None, api_key=api_key)
    async with listening(face, host, port) as bound:
        with _told_to_end() as told:
            if on_ready is not None:
                on_ready(f"http://{_host_in_url(host)}:{bound}/v1")
            await told.wait()
    return tally.snapshot()


@contextmanager
def _told_to_end() -> Iterator[asyncio.Event]:
    """An event that is set when the process is told to end."""
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    # not on Windows and not off the main thread; there the runner cancels us, or nobody does
    with suppress(NotImplementedError, RuntimeError, ValueError):
        for number in signals:
            loop.add_signal_handler(number, told.set)
    try:
        yield told
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
