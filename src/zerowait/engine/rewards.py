"""Rewards, the synchronous API: an engine on an event loop in a thread of its own."""

from __future__ import annotations

import atexit
import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from zerowait.config import RewardConfig, load_config
from zerowait.config.checks import seconds
from zerowait.engine.engine import Engine
from zerowait.engine.groups.shapes import Tokenizer
from zerowait.engine.monitor.stats import Stats
from zerowait.engine.portal import Portal, Submitted
from zerowait.engine.progress import Progress, closing_text
from zerowait.engine.recorded import RecordedEngine
from zerowait.engine.serving.servers import LOGS, LocalServers
from zerowait.events import Listener, ignore_event
from zerowait.record import RunRecord
from zerowait.types import Reward, Sample, check_sample, samples_in


class Rewards:
    """Computes rewards for synchronous code; made by `open`, closed by ``with`` or `close`.

    Usable from any thread, inside a running loop (a notebook), and from many calls in a row.
    """

    def __init__(
        self,
        config: str | Path | Mapping[str, Any] | RewardConfig,
        *,
        tokenizer: Tokenizer | None = None,
        listener: Listener = ignore_event,
        record: str | Path | None = None,
    ) -> None:
        try:
            loaded = load_config(config)
        finally:
            del config  # a mapping may hold a key, and a traceback may show local variables
        self._record: RunRecord | None = None
        servers: Callable[[RewardConfig], LocalServers] | None = None
        if record is not None:
            folder = Path(record).expanduser()
            self._record = RunRecord(folder, loaded.record, stats=self.stats, config=loaded)
            servers = partial(LocalServers, folder=folder / LOGS)
        self._engine = Engine(
            loaded,
            tokenizer=tokenizer,
            listener=listener,
            servers=servers,
            recorder=self._record,
        )
        self._recorded = RecordedEngine(self._engine, self._record)
        self._portal = Portal()
        self._closing = threading.Lock()
        self._closed: concurrent.futures.Future[None] | None = None
        try:
            self._portal.call(self._open)
        except BaseException:
            self._portal.close()
            raise
        atexit.register(self.close)

    async def _open(self) -> None:
        await self._engine.__aenter__()
        try:
            if self._record is not None:
                self._record.open()
        except BaseException:
            await self._engine.aclose()
            raise

    async def _aclose(self, drain_s: float) -> None:
        try:
            await self._engine.aclose(drain_s=drain_s)
        finally:
            if self._record is not None:
                self._record.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def submit(self, sample: Sample) -> Submitted[Reward]:
        """A future of the sample's reward; returns at once.

        The future raises what `Engine.score` raises. Cancelling it gives up this caller's wait,
        never a call that others share. It may be waited for with ``result()`` or ``await``.

        Raises:
            DataError: it is no Sample.
        """
        check_sample(sample, "submit", many="submit_all")
        return self._portal.submit(lambda: self._recorded.score(sample))

    def submit_all(
        self, samples: Iterable[Sample], *, deadline_s: float | None = None
    ) -> Submitted[list[Reward]]:
        """A future of the rewards of all samples, in order; returns at once.

        Cancelling it gives up this caller's wait, never a call that others share.

        Args:
            samples: rows that share a ``group`` form a prompt group.
            deadline_s: seconds from now; a component that is not known by then abstains with
                ``timeout``. None: it is waited for.

        Raises:
            ConfigError: `deadline_s` is no number above 0.
            DataError: one of them is no Sample.
        """
        rows = samples_in(samples, "submit_all", one="submit")
        if deadline_s is not None:
            deadline_s = seconds("deadline_s", deadline_s)
        return self._portal.submit(lambda: self._recorded.score_all(rows, deadline_s=deadline_s))

    def score(
        self,
        samples: Iterable[Sample],
        *,
        progress: bool = False,
        on_reward: Callable[[int, Reward], None] | None = None,
        deadline_s: float | None = None,
    ) -> list[Reward]:
        """The rewards of all samples, in order.

        Args:
            samples: rows that share a ``group`` form a prompt group.
            progress: a bar on a terminal, else a line at least every 10 s while it waits; then a
                last line that names the commonest failure. Without a terminal nothing is said of
                a batch that took less and in which nothing abstained. All on stderr.
            on_reward: called on the loop thread with a row's index and reward as they come.
            deadline_s: seconds from now; a component that is not known by then abstains with
                ``timeout``. None: it is waited for.

        Raises:
            As `submit`'s future. ConfigError: `deadline_s` is no number above 0.
        """
        rows = samples_in(samples, "score", one="submit")
        before, began_s = self.stats() if progress else None, time.monotonic()
        with Progress(len(rows), shown=progress, stats=self.stats) as bar:

            def tell(index: int, reward: Reward) -> None:
                bar.advance()
                if on_reward is not None:
                    on_reward(index, reward)

            rewards = self._portal.call(
                lambda: self._recorded.score_all(rows, on_reward=tell, deadline_s=deadline_s)
            )
        if before is not None:
            abstained = sum(reward.abstained for reward in rewards)
            elapsed_s = time.monotonic() - began_s
            if abstained or bar.was_seen:
                bar.say(closing_text(len(rows), abstained, elapsed_s, (before, self.stats())))
        return rewards

    def stats(self) -> Stats:
        """A frozen snapshot of what happened so far."""
        return self._engine.stats()

    @property
    def metrics_url(self) -> str | None:
        """What Prometheus scrapes, with ``log_to: [prometheus]``; None where it is not served."""
        return self._engine.metrics_url

    def close(self, *, drain_s: float = 0.0) -> None:
        """Close the engine and its thread. Idempotent, from any thread and any number of them.

        On the loop's own thread (in a listener, say) it only begins to close: waiting there would
        be a deadlock.

        Args:
            drain_s: seconds in which requests already sent may still bring their answer into the
                cache.
        """
        atexit.unregister(self.close)
        with self._closing:
            if self._closed is None and self._portal.is_open:
                self._closed = self._portal.submit(lambda: self._aclose(drain_s))
                self._closed.add_done_callback(lambda _: self._portal.stop())
        if self._portal.is_own_thread:
            return
        if self._closed is not None:
            try:
                self._closed.result()
            except concurrent.futures.CancelledError:
                pass
            except BaseException:
                self._closed.cancel()
                raise
        self._portal.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "open rewards cannot travel to another process: open them there, or share a hub "
            "(docs/explanation/hub.md)"
        )


def open(  # noqa: A001 - users write zerowait.open
    config: str | Path | Mapping[str, Any] | RewardConfig,
    *,
    tokenizer: Tokenizer | None = None,
    listener: Listener = ignore_event,
    record: str | Path | None = None,
) -> Rewards:
    """`Rewards` of a configuration, with an event loop in a thread of their own.

    Args:
        config: a path to a ``reward.yaml``, a mapping, or a `RewardConfig`.
        tokenizer: counts a response's tokens where a sample does not say how many it has.
        listener: called with every event, on the loop thread; must be quick.
        record: the folder of the run's record, which gets every reward and judgement; None keeps
            none. See ``docs/reference/record.md``.

    Raises:
        ConfigError: names the file, the line, the key and the nearest right one.
    """
    try:
        loaded = load_config(config)
    finally:
        del config  # see Rewards
    return Rewards(loaded, tokenizer=tokenizer, listener=listener, record=record)
