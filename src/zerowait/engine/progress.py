"""What a person sees while a batch is being scored."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Any, Self

_LINE_EVERY_S = 10.0


class Progress:
    """A bar on a terminal, or a line on stderr at least every 10 s: done, share, rate, time left.

    Args:
        total: how many there are. shown: False shows nothing.
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
        self._liner: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        if self._shown and sys.stderr.isatty():
            self._bar = _bar()
            self._task = self._bar.add_task(self._what, total=self._total)
            self._bar.start()
        elif self._shown:
            self._liner = threading.Thread(
                target=self._lines, name="zerowait-progress", daemon=True
            )
            self._liner.start()
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
        if self._liner is not None:
            self._liner.join()

    def advance(self, count: int = 1) -> None:
        """So many more are done."""
        self._done += count
        if self._bar is not None:
            self._bar.advance(self._task, count)

    def line(self) -> str:
        """Where it stands, in one line."""
        elapsed_s = max(time.monotonic() - self._started, 1e-9)
        rate = self._done / elapsed_s
        left = f"{(self._total - self._done) / rate:.0f} s" if rate > 0 else "unknown"
        share = 100 * self._done / self._total
        return (
            f"{self._what} {self._done}/{self._total} ({share:.0f} %), {paced(rate)}, "
            f"{elapsed_s:.0f} s so far, left: {left}"
        )

    def _lines(self) -> None:
        while not self._closing.wait(_LINE_EVERY_S):
            print(self.line(), file=sys.stderr, flush=True)


def paced(rate: float) -> str:
    """How fast it goes, for people, from how many are done per second.

    >>> paced(12.34), paced(0.05), paced(0.0)
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
            return Text(paced(task.speed or 0.0))

    return RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
