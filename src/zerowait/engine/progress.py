"""Progress display of a batch: a bar on a terminal, else a line now and then, and a last line."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self

from zerowait.engine.monitor.stats import Stats

_LINE_EVERY_S = 10.0
_STATS_EVERY_S = 1.0
_MOST_REASON_CHARS: Final = 300


class Progress:
    """A progress bar on a terminal, or a line on stderr every 10 s: done, share, rate, time left.

    Args:
        total: number of items.
        shown: False shows nothing.
        what: the word before the numbers.
        stats: of the engine that does the work; shows requests in flight, the limit, and
            abstentions by kind.
        done: how many of the items were done before; they say nothing about the rate.
    """

    def __init__(
        self,
        total: int,
        *,
        shown: bool,
        what: str = "scoring",
        stats: Callable[[], Stats] | None = None,
        done: int = 0,
    ) -> None:
        self._stats = stats
        self._traffic = ""
        self._traffic_due_s = 0.0
        self._total = total
        self._shown = shown and total > 0
        self._what = what
        self._before = self._done = done
        self._started = time.monotonic()
        self._bar: Any = None
        self._task: Any = None
        self._closing = threading.Event()
        self._line_thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        if self._shown and sys.stderr.isatty():
            self._bar = _bar(self.traffic)
            self._task = self._bar.add_task(self._what, total=self._total, completed=self._done)
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

    @property
    def was_seen(self) -> bool:
        """Whether there was a bar, or has been time for a line."""
        return self._bar is not None or time.monotonic() - self._started >= _LINE_EVERY_S

    def say(self, line: str) -> None:
        """Print a last line, once the display has ended; nothing unless it is shown."""
        if self._shown:
            print(f"{self._what}: {line}", file=sys.stderr, flush=True)

    def line(self) -> str:
        """Done, share, rate and time left, in one line."""
        elapsed_s = max(time.monotonic() - self._started, 1e-9)
        rate = (self._done - self._before) / elapsed_s
        left = f"{(self._total - self._done) / rate:.0f} s" if rate > 0 else "unknown"
        share = 100 * self._done / self._total
        return (
            f"{self._what} {self._done}/{self._total} ({share:.0f} %), {rate_text(rate)}, "
            f"{elapsed_s:.0f} s so far, left: {left}"
            + (f", {told}" if (told := self.traffic()) else "")
        )

    def traffic(self) -> str:
        """`traffic_text` of the engine's statistics, at most a second old; empty without any."""
        now_s = time.monotonic()
        if self._stats is not None and now_s >= self._traffic_due_s:
            self._traffic_due_s = now_s + _STATS_EVERY_S
            self._traffic = traffic_text(self._stats())
        return self._traffic

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


def traffic_text(stats: Stats) -> str:
    """Requests in flight, the limit, and abstentions by kind; empty where there are none.

    >>> traffic_text(Stats(in_flight=12, limit=64, abstentions={"timeout": 2}))
    '12 in flight of at most 64, abstained: timeout 2'
    """
    parts = []
    if stats.requests or stats.in_flight:
        parts.append(f"{stats.in_flight} in flight of at most {stats.limit}")
    if stats.abstentions:
        parts.append(f"abstained: {kinds_text(stats.abstentions)}")
    return ", ".join(parts)


def kinds_text(abstentions: Mapping[str, int]) -> str:
    """Failed judgements by kind, the most frequent first.

    >>> kinds_text({"timeout": 2, "refused": 3})
    'refused 3, timeout 2'
    """
    return ", ".join(f"{kind} {count}" for kind, count in Counter(abstentions).most_common())


def failures_text(before: Stats, after: Stats) -> str:
    """Judgements that failed since `before`, and the commonest reason in the provider's words.

    Empty where none failed.

    Args:
        before: statistics at the beginning.
        after: at the end.
    """
    kinds = Counter(after.abstentions)
    kinds.subtract(before.abstentions)
    reasons = Counter(after.reasons)
    reasons.subtract(before.reasons)
    if not +kinds:
        return ""
    counted = f"{(+kinds).total()} judgements failed ({kinds_text(+kinds)})"
    if not +reasons:
        return counted
    reason, count = reasons.most_common(1)[0]
    return f"{counted}; the commonest, {count} times: {reason[:_MOST_REASON_CHARS]}"


def closing_text(rows: int, abstained: int, elapsed_s: float, stats: tuple[Stats, Stats]) -> str:
    """What a batch came to, in one line: rows, time, judges, and the commonest failure.

    Args:
        rows: number of samples.
        abstained: how many of them have no value.
        elapsed_s: seconds that it took.
        stats: of the engine, before and after.
    """
    before, after = stats
    line = (
        f"{rows} row{'s' * (rows != 1)} in {elapsed_s:.1f} s, "
        f"{rate_text(rows / max(elapsed_s, 1e-9))}, {abstained} abstained"
    )
    asked = after.asked - before.asked
    saved = after.cached + after.joined - before.cached - before.joined
    if asked or saved:
        line += f"; {asked} judgements asked, {saved} from the cache or shared"
    failures = failures_text(before, after)
    return f"{line}; {failures}" if failures else line


def _bar(traffic: Callable[[], str]) -> Any:
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

    class Traffic(ProgressColumn):
        def render(self, task: Any) -> Text:
            del task
            return Text(traffic())

    return RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
        Traffic(),
        console=Console(stderr=True),
    )
