"""Runs scorers that may hang or crash in worker processes: users' functions above all.

Built-in rules share the processes of one `WorkerPool`, which grows while calls are slow. The
functions of each component have processes of their own, so that no component waits for another
one's function: synchronous functions ``workers`` processes, each with one call at a time;
asynchronous ones a single process, in which up to ``concurrency`` calls overlap. Functions that
other processes cannot import, such as lambdas, run in this process: see `local_calls`.

A call's deadline starts when a worker begins with it, never while it waits for a worker. Importing
the user's module has a deadline of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from zerowait.engine.pool.async_worker import AsyncWorker
from zerowait.engine.pool.local_calls import LocalCalls
from zerowait.engine.pool.microbatch import MicroBatches
from zerowait.engine.pool.worker import ForkServer
from zerowait.engine.pool.worker_pool import Growth, WorkerPool
from zerowait.errors import ClosedError
from zerowait.scorers import UserScorer, is_user_function, selected, worker_calls
from zerowait.types import Abstain, Outcome, Sample

WORKERS: Final = 2
"""Processes of a component's synchronous functions, unless its ``workers`` says otherwise."""

CONCURRENCY: Final = 64
"""Overlapping calls of a component's asynchronous functions, unless its ``concurrency`` does."""

_GROWTH: Final = Growth()


class CallLimits(NamedTuple):
    """How many calls of a component's own functions may run at once.

    Args:
        component: the component's name.
        workers: processes for its synchronous functions, each with one call at a time.
        concurrency: overlapping calls of its asynchronous functions.
    """

    component: str = ""
    workers: int = WORKERS
    concurrency: int = CONCURRENCY


class ScorerPool:
    """Runs scorers by name in worker processes, started when first needed; belongs to one loop.

    Args:
        max_workers: how many calls of built-in rules run at once; slow ones do not count.
        functions: users' functions by target; calls of one that takes lists are handed over as
            lists, and calls of one that is known to be asynchronous overlap.
        load_timeout_s: how long a worker may take to import the module of a scorer.
        leak_bytes: a worker that has grown by so much since its first calls is replaced.
        growth: when there are more processes for built-in rules.

    Raises:
        ValueError: `max_workers` is less than 1.
    """

    def __init__(
        self,
        *,
        max_workers: int = WORKERS,
        functions: Mapping[str, UserScorer] = MappingProxyType({}),
        load_timeout_s: float = 120.0,
        leak_bytes: int = 1 << 30,
        growth: Growth = _GROWTH,
    ) -> None:
        if max_workers < 1:
            raise ValueError(f"max_workers must be at least 1, not {max_workers}")
        self._take_lists = frozenset(name for name, each in functions.items() if each.takes_lists)
        self._overlapping = frozenset(name for name, each in functions.items() if each.overlaps)
        self._local = {name: each for name, each in functions.items() if each.is_local}
        self._local_calls: dict[CallLimits, LocalCalls] = {}
        self._load_timeout_s = load_timeout_s
        self._server = ForkServer(leak_bytes)
        self._rules = WorkerPool(
            self._server, size=max_workers, load_timeout_s=load_timeout_s, growth=growth
        )
        self._default = CallLimits(workers=max_workers)
        self._functions: dict[CallLimits, WorkerPool] = {}
        self._batches: dict[CallLimits, MicroBatches] = {}
        self._async_workers: dict[CallLimits, AsyncWorker] = {}
        self._closed = False

    async def run(
        self,
        target: str,
        sample: Sample,
        *,
        options: Mapping[str, Any] | None = None,
        timeout_s: float = 30.0,
        limits: CallLimits | None = None,
    ) -> Outcome:
        """The outcome of the scorer called `target` for `sample`.

        A scorer that takes longer than `timeout_s`, counted from the moment a worker has the
        sample, abstains with ``timeout`` and its process is ended; one that raises, ends its
        process, or returns what cannot be understood or sent abstains with ``crashed``; one that
        is still running or waiting at `aclose` abstains with ``cancelled``. For a function that
        takes lists, `timeout_s` is for a list; a list that fails is retried in halves.

        Args:
            target: ``module:function`` or a built-in name.
            sample: what is scored.
            options: keyword arguments of the scorer.
            timeout_s: of one call.
            limits: of the component's own functions; components share no process.

        Raises:
            ClosedError: the pool was closed before.
        """
        if self._closed:
            raise ClosedError("the scorer pool is closed")
        rule = selected(target, sample, options or {})
        if isinstance(rule, Abstain):
            return rule
        limits = self._default if limits is None else limits
        if rule.scorer in self._local:
            calls = self._local_calls_of(limits)
            return await calls.run(self._local[rule.scorer], sample, rule.options, timeout_s)
        call = worker_calls.packed_call(sample, rule.options)
        if isinstance(call, Abstain):
            return call
        if rule.scorer in self._take_lists:
            batches = self._batches_of(limits)
            return await batches.run(rule.scorer, call, rule.options, timeout_s=timeout_s)
        if rule.scorer in self._overlapping:
            return await self._async_worker_of(limits).score(rule.scorer, call, timeout_s)
        pool = self._pool_of(limits) if is_user_function(rule.scorer) else self._rules
        outcomes = await pool.score(rule.scorer, lambda: [call], timeout_s)
        return outcomes if isinstance(outcomes, Abstain) else outcomes[0]

    async def aclose(self) -> None:
        """End every worker; what is still running or waiting abstains. Idempotent."""
        self._closed = True
        for pool in (self._rules, *self._functions.values()):
            pool.close()
        for worker in self._async_workers.values():
            worker.close()
        for calls in self._local_calls.values():
            calls.close()
        await self._server.aclose()
        for batches in self._batches.values():
            await batches.aclose()

    def _local_calls_of(self, limits: CallLimits) -> LocalCalls:
        if limits not in self._local_calls:
            self._local_calls[limits] = LocalCalls(limits.workers, limits.concurrency)
        return self._local_calls[limits]

    def _pool_of(self, limits: CallLimits) -> WorkerPool:
        if limits not in self._functions:
            # no growth: each process of a function may hold a GPU, a model or a lock
            self._functions[limits] = WorkerPool(
                self._server, size=limits.workers, load_timeout_s=self._load_timeout_s
            )
        return self._functions[limits]

    def _batches_of(self, limits: CallLimits) -> MicroBatches:
        if limits not in self._batches:
            self._batches[limits] = MicroBatches(self._pool_of(limits).score)
        return self._batches[limits]

    def _async_worker_of(self, limits: CallLimits) -> AsyncWorker:
        if limits not in self._async_workers:
            retry_pool = self._pool_of(limits._replace(workers=1))
            self._async_workers[limits] = AsyncWorker(
                self._server, retry_pool, limits.concurrency, load_timeout_s=self._load_timeout_s
            )
        return self._async_workers[limits]
