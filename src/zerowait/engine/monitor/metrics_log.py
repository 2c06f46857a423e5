"""``log_to``: turns rewards into the metrics of steps, and hands them to the loggers.

The engine's loop only puts rewards into a queue. A thread of this module computes the metrics, and
each logger writes them in a thread of its own.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

import msgspec

from zerowait.config import PrometheusLog, RewardConfig
from zerowait.engine.monitor.metrics import (
    alarm_metrics,
    coverage,
    has_all_prices,
    judge_metrics,
    reward_metrics,
)
from zerowait.engine.monitor.stats import JudgeCounts, Stats
from zerowait.events import Event, JudgementSettled, RewardSettled
from zerowait.loggers import BackgroundLogger, MetricLogger, logger_of
from zerowait.loggers.otel import OtelLogger
from zerowait.loggers.prometheus import PrometheusLogger
from zerowait.types import Reward

POINT_EVERY_S: Final = 10.0
"""How often rewards of samples without a step become a point."""
_LOOK_EVERY_S: Final = 0.25
_POLL_S: Final = 0.01
_QUIET_S: Final = 2.0
_STEPS_KEPT: Final = 4
_MOST_WAITING: Final = 200_000
_END_S: Final = 30.0
_SENT: Final = ("asked", "refused")
"""Judgements with a span: the others sent no request of their own."""

_log = logging.getLogger(__name__)


class LoggedReward(NamedTuple):
    """What the metrics need of a reward; `counts` are those of the engine when it was known."""

    split: str
    step: int | None
    source: str
    reward: Reward
    counts: JudgeCounts


class MetricPoint(NamedTuple):
    """The rewards of one step and part of the data; `before` are the counts at its beginning."""

    split: str
    step: int
    rows: list[LoggedReward]
    before: JudgeCounts


class _Step:
    """The rewards of a step, whether some are in no point yet, and the counts at its beginning."""

    def __init__(self) -> None:
        self.rows: list[LoggedReward] = []
        self.is_new = False
        self.before: JudgeCounts | None = None


class StepRewards:
    """Sorts rewards into steps, and says which are due to be written as a point.

    A step is due when a later one begins, or when no reward has come for 2 s and none is pending.
    If more of its rewards come, it is due once more, with all of them. Samples without a step are
    due together every 10 s, and their step is the number of samples so far.

    Args:
        now_s: of any clock in seconds, as in the methods.
    """

    def __init__(self, now_s: float) -> None:
        self._steps: OrderedDict[tuple[str, int], _Step] = OrderedDict()
        self._stepless: dict[str, list[LoggedReward]] = {}
        self._counts = JudgeCounts()
        self._settled = 0
        self._last_reward_s = self._last_point_s = now_s

    def add(self, row: LoggedReward, now_s: float) -> Iterator[MetricPoint]:
        """Add a reward; the points that are due because it is the first one of its step."""
        self._last_reward_s = now_s
        self._settled += 1
        if row.step is None:
            self._stepless.setdefault(row.split, []).append(row)
            return
        key = row.split, row.step
        step = self._steps.get(key)
        if step is None:
            yield from self._new_points()
            step = self._steps[key] = _Step()
            if len(self._steps) > _STEPS_KEPT:
                self._steps.popitem(last=False)
        step.rows.append(row)
        step.is_new = True

    def due(
        self, now_s: float, *, is_idle: Callable[[], bool], ended: bool = False
    ) -> Iterator[MetricPoint]:
        """The points that are due now.

        Args:
            now_s: the time.
            is_idle: whether no sample is pending.
            ended: whether no reward will come any more, so that all are due.
        """
        quiet = now_s - self._last_reward_s >= _QUIET_S
        if ended or (quiet and any(step.is_new for step in self._steps.values()) and is_idle()):
            yield from self._new_points()
        if ended or now_s - self._last_point_s >= POINT_EVERY_S:
            self._last_point_s = now_s
            given, self._stepless = self._stepless, {}
            for split, rows in given.items():
                yield self._point(split, self._settled, rows, self._counts)

    def _new_points(self) -> Iterator[MetricPoint]:
        for (split, number), step in self._steps.items():
            if step.is_new:
                step.is_new = False
                step.before = step.before or self._counts
                yield self._point(split, number, step.rows, step.before)

    def _point(
        self, split: str, step: int, rows: list[LoggedReward], before: JudgeCounts
    ) -> MetricPoint:
        self._counts = rows[-1].counts
        return MetricPoint(split, step, rows, before)


class MetricsLog:
    """An event listener that logs each step's metrics; docs/how-to/log-metrics.md has the rules.

    Args:
        config: the reward configuration.
        stats: returns a snapshot; called from other threads.
        counts: returns the counts of the judges; called for each reward.
        pending: returns the number of samples that are being scored.
        clock: seconds, for the pauses.

    Raises:
        MissingExtraError: a logger's package is not installed.
    """

    def __init__(
        self,
        config: RewardConfig,
        stats: Callable[[], Stats],
        counts: Callable[[], JudgeCounts],
        pending: Callable[[], int],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._otel: OtelLogger | None = None
        self._prometheus: PrometheusLogger | None = None
        self._loggers: dict[str, tuple[BackgroundLogger, MetricLogger]] = {}
        for name, settings in config.log_to.wanted.items():
            if isinstance(settings, PrometheusLog):
                logger: MetricLogger = _prometheus_of(settings, stats)
            else:
                logger = logger_of(name, config)
            if isinstance(logger, OtelLogger):
                self._otel = logger
            elif isinstance(logger, PrometheusLogger):
                self._prometheus = logger
            self._loggers[name] = BackgroundLogger(name, logger, self._end_now), logger
        self._priced = bool(config.judges) and has_all_prices(config)
        self._stats = stats
        self._counts = counts
        self._pending = pending
        self._clock = clock
        self._queue: deque[LoggedReward] = deque()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zerowait-metrics", daemon=True)
        self._steps = StepRewards(clock())
        self._dropped = 0

    @property
    def url(self) -> str | None:
        """What Prometheus scrapes; None unless it is served."""
        return None if self._prometheus is None else self._prometheus.url

    @property
    def listens_to(self) -> tuple[type[Event], ...]:
        """The events that it wants."""
        rewards = (RewardSettled,) if self._loggers else ()
        return rewards if self._otel is None else (*rewards, JudgementSettled)

    def start(self) -> None:
        """Start the loggers.

        Raises:
            ConfigError: the address for Prometheus cannot be listened on, or a folder not be made.
        """
        started: list[BackgroundLogger] = []
        try:
            for background, _ in self._loggers.values():
                background.start()
                started.append(background)
        except BaseException:
            for background in started:
                background.end()
            raise
        if self._loggers:
            self._thread.start()

    def __call__(self, event: Event) -> None:
        """Queue an event; returns at once."""
        match event:
            case RewardSettled(sample=sample, reward=reward):
                if len(self._queue) < _MOST_WAITING:
                    about = sample.split, sample.step, sample.data_source
                    self._queue.append(LoggedReward(*about, reward, self._counts()))
                else:
                    self._dropped += 1
            case JudgementSettled() if self._otel is not None and event.source in _SENT:
                otel = self._otel
                write = partial(otel.judgement, event, otel.current_context(), time.time_ns())
                self._loggers["otel"][0].submit(write)
            case _:
                pass

    async def aclose(self) -> None:
        """Write what is left; a logger that takes longer than 30 s is given up."""
        give_up_at_s = time.monotonic() + _END_S
        self._closing.set()
        await _wait_while(self._thread.is_alive, give_up_at_s)
        for background, _ in self._loggers.values():
            background.end()
        await _wait_while(lambda: bool(self._running()), give_up_at_s)
        for background in self._running():
            background.give_up()

    def _end_now(self) -> None:
        """Write what is left while the process ends; for rewards that the program did not close."""
        give_up_at_s = time.monotonic() + _END_S
        self._closing.set()
        self._thread.join(_END_S)
        for background, _ in self._loggers.values():
            background.end()
        for background, _ in self._loggers.values():
            background.join(give_up_at_s - time.monotonic())

    def _running(self) -> list[BackgroundLogger]:
        return [background for background, _ in self._loggers.values() if background.is_running]

    def _run(self) -> None:
        ended = False
        while not ended:
            ended = self._closing.wait(_LOOK_EVERY_S)
            try:
                self._write_due(ended=ended)
            except Exception:  # noqa: BLE001 - a metric less, and the next ones are tried again
                _log.exception("log_to: the metrics could not be computed")
        if self._dropped:
            _log.warning("log_to: %d rewards came too fast and are in no metric", self._dropped)

    def _write_due(self, *, ended: bool) -> None:
        while self._queue:
            for point in self._steps.add(self._queue.popleft(), self._clock()):
                self._write(point)
        for point in self._steps.due(self._clock(), is_idle=self._is_idle, ended=ended):
            self._write(point)

    def _is_idle(self) -> bool:
        return self._pending() == 0

    def _write(self, point: MetricPoint) -> None:
        metrics = self._metrics_of(point)
        known = {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
        for background, logger in self._loggers.values():
            background.submit(partial(logger.log, known, int(point.step)))

    def _metrics_of(self, point: MetricPoint) -> Mapping[str, float]:
        rows = point.rows
        if point.split != "train":
            return coverage([row.source for row in rows], [row.reward.value for row in rows])
        after = msgspec.structs.replace(self._stats(), **rows[-1].counts._asdict())
        return {
            **reward_metrics(row.reward for row in rows),
            **judge_metrics(point.before, after, priced=self._priced),
            **alarm_metrics(after),
        }


def _prometheus_of(settings: PrometheusLog, stats: Callable[[], Stats]) -> PrometheusLogger:
    from zerowait.engine.monitor.prometheus import StatsMetrics

    return PrometheusLogger(settings, StatsMetrics(stats))


async def _wait_while(condition: Callable[[], bool], until_s: float) -> None:
    """Wait for threads to end; no executor does it, since at the interpreter's exit there is none.

    Args:
        condition: whether to wait on.
        until_s: by `time.monotonic`.
    """
    while condition() and time.monotonic() < until_s:  # noqa: ASYNC110 - threads, which set no asyncio.Event
        await asyncio.sleep(_POLL_S)
