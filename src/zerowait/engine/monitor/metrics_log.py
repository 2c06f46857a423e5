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
from collections.abc import Callable, Mapping
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


class _Rows:
    """The rewards of one step and part of the data.

    `is_new` says whether some are not written yet, and `before` are the counts at the end of the
    step before, once it has been written.
    """

    def __init__(self) -> None:
        self.rows: list[LoggedReward] = []
        self.is_new = False
        self.before: JudgeCounts | None = None


class MetricsLog:
    """An event listener that logs each step's metrics; see docs/how-to/log-metrics.md.

    The point of a step is written when a later step begins, or when nothing is pending and no
    reward has come for 2 s; with further rewards of the step it is written once more. Samples
    without a step make a point every 10 s, whose step is the number of samples settled so far.

    Args:
        config: the reward configuration.
        stats: returns a snapshot; called from other threads.
        counts: returns the counts of the judges; called for each reward.
        clock: seconds, for the pauses.

    Raises:
        MissingExtraError: a logger's package is not installed.
    """

    def __init__(
        self,
        config: RewardConfig,
        stats: Callable[[], Stats],
        counts: Callable[[], JudgeCounts],
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
            self._loggers[name] = BackgroundLogger(name, logger), logger
        self._priced = bool(config.judges) and has_all_prices(config)
        self._stats = stats
        self._counts = counts
        self._clock = clock
        self._queue: deque[LoggedReward] = deque()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zerowait-metrics", daemon=True)
        self._steps: OrderedDict[tuple[str, int], _Rows] = OrderedDict()
        self._stepless: dict[str, _Rows] = {}
        self._before = JudgeCounts()
        self._settled = self._dropped = 0
        self._last_reward_s = self._last_point_s = clock()

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

    def _running(self) -> list[BackgroundLogger]:
        return [background for background, _ in self._loggers.values() if background.is_running]

    def _run(self) -> None:
        ended = False
        while not ended:
            ended = self._closing.wait(_LOOK_EVERY_S)
            try:
                self._take()
                self._write_due(ended=ended)
            except Exception:  # noqa: BLE001 - a metric less, and the next ones are tried again
                _log.exception("log_to: the metrics could not be computed")

    def _take(self) -> None:
        """Sort the rewards that came into their steps."""
        if not self._queue:
            return
        self._last_reward_s = self._clock()
        while self._queue:
            row = self._queue.popleft()
            self._settled += 1
            if row.step is None:
                rows = self._stepless.setdefault(row.split, _Rows())
            else:
                rows = self._of_step(row.split, row.step)
            rows.rows.append(row)
            rows.is_new = True

    def _of_step(self, split: str, step: int) -> _Rows:
        rows = self._steps.get((split, step))
        if rows is None:
            self._write_steps()
            rows = self._steps[split, step] = _Rows()
            if len(self._steps) > _STEPS_KEPT:
                self._steps.popitem(last=False)
        return rows

    def _write_due(self, *, ended: bool) -> None:
        now_s = self._clock()
        if ended or self._is_quiet(now_s):
            self._write_steps()
        if ended or now_s - self._last_point_s >= POINT_EVERY_S:
            self._last_point_s = now_s
            for split, rows in self._stepless.items():
                self._write(split, rows, self._settled)
            self._stepless.clear()
        if ended and self._dropped:
            _log.warning("log_to: %d rewards came too fast and are in no metric", self._dropped)

    def _is_quiet(self, now_s: float) -> bool:
        if now_s - self._last_reward_s < _QUIET_S:
            return False
        if not any(rows.is_new for rows in self._steps.values()):
            return False
        stats = self._stats()
        return stats.submitted <= stats.settled

    def _write_steps(self) -> None:
        for (split, step), rows in self._steps.items():
            if rows.is_new:
                rows.is_new = False
                self._write(split, rows, step)

    def _write(self, split: str, step_rows: _Rows, step: int) -> None:
        rows = step_rows.rows
        if split == "train":
            counts = rows[-1].counts
            after = msgspec.structs.replace(self._stats(), **counts._asdict())
            step_rows.before = step_rows.before or self._before
            metrics: Mapping[str, float] = {
                **reward_metrics(row.reward for row in rows),
                **judge_metrics(step_rows.before, after, priced=self._priced),
                **alarm_metrics(after),
            }
            self._before = counts
        else:
            metrics = coverage([row.source for row in rows], [row.reward.value for row in rows])
        known = {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
        for background, logger in self._loggers.values():
            background.submit(partial(logger.log, known, step))


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
