"""A logger in a thread of its own, so that nothing it does can delay a reward."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from zerowait.client.scrubber import Scrubber

_EVERY_S: Final = 0.2
_MOST_WAITING: Final = 20_000
_SECRETS: Final = (
    *("WANDB_API_KEY", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "HF_TOKEN"),
    *("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"),
    "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
)
"""Variables whose values a logger's error may quote."""

_log = logging.getLogger(__name__)


class MetricLogger(Protocol):
    """Writes metrics to one place."""

    def prepare(self) -> None:
        """Begin what must work at once; called by the thread that opens the rewards.

        Raises:
            ConfigError: its settings are wrong.
        """
        ...

    def open(self) -> None:
        """Begin a run of its own, unless the program has one; called by the logger's thread."""
        ...

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Write the metrics of a step."""
        ...

    def close(self) -> None:
        """Write what is left, and end the run if it is its own."""
        ...


class BackgroundLogger:
    """Runs a logger in a thread: a bounded queue, and one warning about what goes wrong.

    A logger that cannot be opened is not tried again; one that fails later is tried again
    with the next metrics. Both are told once.

    Args:
        name: of the logger, for the warning.
        logger: used by this thread only, but for `prepare`.
        at_exit: called when the process ends and the logger is still open, before what its package
            has registered to end its runs.
    """

    def __init__(
        self, name: str, logger: MetricLogger, at_exit: Callable[[], None] | None = None
    ) -> None:
        self._at_exit = at_exit
        self._name = name
        self._logger = logger
        self._queue: deque[Callable[[], None]] = deque()
        self._closing = threading.Event()
        self._told = self._failed = False
        # A daemon, because one that hangs must not keep the process from ending
        self._thread = threading.Thread(target=self._run, name=f"zerowait-{name}", daemon=True)

    def start(self) -> None:
        """Prepare the logger and start its thread.

        Raises:
            ConfigError: its settings are wrong.
        """
        self._logger.prepare()
        self._thread.start()

    def submit(self, work: Callable[[], None]) -> None:
        """Let the thread call `work`; returns at once, and drops it where too much waits."""
        if self._failed:
            return
        if len(self._queue) >= _MOST_WAITING:
            self._tell(f"{_MOST_WAITING} entries wait for it; what comes until then is left out")
            return
        self._queue.append(work)

    def end(self) -> None:
        """Let the thread write what waits, close the logger, and end."""
        self._closing.set()

    @property
    def is_running(self) -> bool:
        """Whether its thread has not ended."""
        return self._thread.is_alive()

    def give_up(self) -> None:
        """Tell that it has not ended in time; its thread ends with the process."""
        self._failed = True
        self._tell("it did not end in time: its last metrics may be missing")

    def _run(self) -> None:
        if not self._tried(self._logger.open):
            self._failed = True
            self._queue.clear()
            return
        if self._at_exit is not None:
            atexit.register(self._at_exit)
        ended = False
        while not ended:
            ended = self._closing.wait(_EVERY_S)
            while self._queue and not self._failed:
                self._tried(self._queue.popleft())
        self._tried(self._logger.close)
        if self._at_exit is not None:
            atexit.unregister(self._at_exit)

    def join(self, within_s: float) -> None:
        """Wait for its thread to end, at most so many seconds."""
        self._thread.join(max(0.0, within_s))

    def _tried(self, work: Callable[[], None]) -> bool:
        """Whether `work` succeeded."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a backend may raise anything, and rewards go on
            self._tell(f"{type(error).__name__}: {_first_line(error)}")
            return False
        return True

    def _tell(self, what: str) -> None:
        if not self._told:
            self._told = True
            known = Scrubber([value for name in _SECRETS if (value := os.environ.get(name))])
            about = "rewards go on; told once"
            _log.warning("log_to %s: %s (%s)", self._name, known.text(what), about)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:500] if lines else "no message"
