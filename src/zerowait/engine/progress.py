"""Progress display of a batch: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Any, Self

_LINE_EVERY_S = 10.0


class Progress:
    """A progress bar on a terminal, or a line on stderr every 10 s: done, share, rate, time left.

    Args:
        total: number of items.
        shown: False shows nothing.
        what: the word before the numbers.
    """

    def __init__(self, total: int, *, shown: bool, what: str = "scoring") -> None:
        self._total = total
        self._shown = shown and total > 0
        self._what = what
        self._done = 0
        self._started = time.monotonic()
        self._bar: Any = None
        self._task: Any = None
        self._closing = threading.Event()
        self._line_thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        if self._shown and sys.stderr.isatty():
            self._bar = _bar()
            self._task = self._bar.add_task(self._what, total=self._total)
            self._bar.start()
        elif self._shown:
            self._line_thread = threading.Thread(
                target=self._print_lines, name="zerowait-progress", daemon=True
            )
            self._line_thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        if self._bar is not None:
            self._bar.stop()
        if self._line_thread is not None:
            self._line_thread.join()

    def advance(self, count: int = 1) -> None:
        """Count `count` more items as done."""
        self._done += count
        if self._bar is not None:
            self._bar.advance(self._task, count)

    def line(self) -> str:
        """Done, share, rate and time left, in one line."""
        elapsed_s = max(time.monotonic() - self._started, 1e-9)
        rate = self._done / elapsed_s
        left = f"{(self._total - self._done) / rate:.0f} s" if rate > 0 else "unknown"
        share = 100 * self._done / self._total
        return (
            f"{self._what} {self._done}/{self._total} ({share:.0f} %), {rate_text(rate)}, "
            f"{elapsed_s:.0f} s so far, left: {left}"
        )

    def _print_lines(self) -> None:
        while not self._closing.wait(_LINE_EVERY_S):
            print(self.line(), file=sys.stderr, flush=True)


def rate_text(rate: float) -> str:
    """The rate, in items per second, as text.

    >>> rate_text(12.34), rate_text(0.05), rate_text(0.0)
    ('12.3/s', '20.0 s each', 'none done yet')
    """
    if rate <= 0:
        return "none done yet"
    return f"{rate:.1f}/s" if rate >= 1 else f"{1 / rate:.1f} s each"


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as RichProgress
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text(rate_text(task.speed or 0.0))

    return RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
