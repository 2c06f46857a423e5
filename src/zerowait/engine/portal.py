"""Portal: an event loop in a thread of its own, for synchronous callers."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from zerowait.errors import ClosedError, PortalMisuseError

T = TypeVar("T")

_WAITS_FOR_ITSELF = (
    "a blocking call on zerowait's own loop (in a listener, say) waits for itself: await it, or "
    "call from another thread"
)


class Submitted(Future[T]):
    """The future of work on a portal's loop; may be awaited on any other loop, more than once."""

    _portal: Portal

    def result(self, timeout: float | None = None) -> T:
        """See `concurrent.futures.Future.result`.

        Raises:
            PortalMisuseError: called on the portal's own thread before it is done: a deadlock.
        """
        self._check()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """See `concurrent.futures.Future.exception`; raises as `result` does."""
        self._check()
        return super().exception(timeout)

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self).__await__()

    def _check(self) -> None:
        if self._portal.is_own_thread and not self.done():
            raise PortalMisuseError(_WAITS_FOR_ITSELF)


class Portal:
    """An event loop in a thread of its own; opened and closed with ``with`` or `close`.

    Every asyncio object of an engine is created and used on this loop only, so callers may come
    from any thread, from inside any other loop, and from many ``asyncio.run`` calls in a row.
    """

    def __init__(self, name: str = "zerowait") -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        self._closing = threading.Lock()
        started: Future[None] = Future()
        # A daemon, because Python joins the others before any atexit handler could close them.
        self._thread = threading.Thread(target=self._run, args=(started,), name=name, daemon=True)
        self._thread.start()
        started.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        """Whether work can be submitted from this process."""
        return self._loop is not None and self._pid == os.getpid() and self._thread.is_alive()

    @property
    def is_own_thread(self) -> bool:
        """Whether the calling thread is the loop's own, where a blocking call would deadlock."""
        return threading.current_thread() is self._thread

    def submit(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Submitted[T]:
        """Start `work` on the loop; the future is cancelled if the portal closes first.

        Raises:
            ClosedError: the portal is closed, or was opened before a fork.
        """
        if self._pid != os.getpid():
            raise ClosedError("this was opened before a fork; open it again in the child process")
        loop = self._loop
        if loop is None or not self.is_open:
            raise ClosedError("this has been closed; open it again")
        coroutine = work()
        try:
            future: Any = asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError:
            coroutine.close()
            raise ClosedError("this has been closed; open it again") from None
        future.__class__ = Submitted  # asyncio makes the future; this adds no state that it needs
        future._portal = self  # noqa: SLF001 - of our own class
        submitted: Submitted[T] = future
        return submitted

    def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of `work`, which runs on the loop while this thread waits.

        Raises:
            PortalMisuseError: called on the loop's own thread, which would deadlock.
        """
        if self.is_own_thread:
            raise PortalMisuseError(_WAITS_FOR_ITSELF)
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """Tell the loop to cancel all tasks and to end; returns without waiting for that."""
        if self._pid != os.getpid():
            return
        with self._closing:
            loop, self._loop = self._loop, None
            if loop is not None:
                loop.call_soon_threadsafe(loop.stop)

    def close(self) -> None:
        """Cancel all tasks, stop the loop and join its thread. Idempotent, from any thread."""
        if self._pid != os.getpid():
            return
        self.stop()
        if not self.is_own_thread:
            self._thread.join()

    def _run(self, started: Future[None]) -> None:
        try:
            loop = new_loop()
        except BaseException as error:  # noqa: BLE001 - no file descriptor is left, say
            started.set_exception(error)  # raised where the portal is opened
            return
        asyncio.set_event_loop(loop)
        self._loop = loop
        loop.call_soon(started.set_result, None)
        try:
            loop.run_forever()
        finally:
            self._loop = None
            try:
                _cancel_all(loop)
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.run_until_complete(loop.shutdown_default_executor())
            finally:
                asyncio.set_event_loop(None)
                loop.close()


def new_loop() -> asyncio.AbstractEventLoop:
    """A new event loop: uvloop's where it is installed, else asyncio's.

    A process that was started without standard streams gets asyncio's: libuv would use their file
    descriptors for its own files, and abort when it closes one.
    """
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    if not all(map(_is_open, range(3))):
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks))
