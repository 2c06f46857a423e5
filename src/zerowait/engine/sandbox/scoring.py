"""Runs the scorer ``code``: a row's programs in a sandbox, then its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar

import msgspec

from zerowait.config.sandbox import RemoteSandboxSettings
from zerowait.engine.sandbox.local import Isolation, LocalSandbox
from zerowait.scorers.code.program import Program, Run
from zerowait.scorers.code.row_tests import StdinTests
from zerowait.scorers.code.rule import (
    Assignment,
    CodeOptions,
    assignment,
    code_options,
    failed_so_far,
    outcome_of_runs,
)
from zerowait.types import Abstain, FailureKind, Outcome, Sample

T = TypeVar("T")

_LARGE_BYTES: Final = 1 << 18


class Sandbox(Protocol):
    """Runs programs of strangers."""

    async def run(self, program: Program) -> Run | Abstain:
        """What became of `program`; an abstention where it could not be run."""
        ...

    async def aclose(self) -> None:
        """End what still runs. Idempotent."""
        ...


class CodeScoring:
    """Scores rows by running their programs; belongs to one loop.

    Args:
        remote: the remote sandboxes.
        isolation: of programs on this machine.
    """

    def __init__(
        self,
        remote: Mapping[RemoteSandboxSettings, Sandbox] = MappingProxyType({}),
        *,
        isolation: Isolation = "namespaces",
    ) -> None:
        self._remote = remote
        self._isolation = isolation
        self._local: dict[str, Sandbox] = {}
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._options = lru_cache(maxsize=64)(_decoded)

    async def outcome(
        self, sample: Sample, options: Mapping[str, Any], *, component: str, concurrency: int
    ) -> Outcome:
        """The outcome of one row.

        Args:
            sample: to score.
            options: of the scorer.
            component: whose programs share the `concurrency`.
            concurrency: programs at once.
        """
        found = self._options(msgspec.json.encode(options))
        given = sample.ground_truth
        size = len(given) if isinstance(given, str) else 0
        try:
            assigned = await _computed(size, lambda: assignment(sample, found))
        except Exception as error:  # noqa: BLE001 - rows of a data set hold anything
            return Abstain(FailureKind.BAD_INPUT, f"{type(error).__name__}: {error}")
        if not isinstance(assigned, Assignment):
            return assigned
        slots = self._slots.setdefault(component, asyncio.Semaphore(concurrency))
        sandbox = self._sandbox(found)
        if found.credit == "share" and isinstance(assigned.tests, StdinTests):
            at_once = concurrency
        else:
            at_once = 1
        runs = await _run_all(assigned, found, sandbox, slots, at_once)
        try:
            return await _computed(_size(runs), lambda: outcome_of_runs(assigned, runs, found))
        except Exception as error:  # noqa: BLE001 - what a program has sent may be anything
            return Abstain(FailureKind.CRASHED, f"the runs' results: {type(error).__name__}")

    async def aclose(self) -> None:
        """End every sandbox. Idempotent."""
        for sandbox in (*self._local.values(), *self._remote.values()):
            await sandbox.aclose()

    def _sandbox(self, options: CodeOptions) -> Sandbox:
        if options.sandbox is not None:
            return self._remote[options.sandbox]
        python = options.python or ""
        if python not in self._local:
            self._local[python] = LocalSandbox(python, isolation=self._isolation)
        return self._local[python]


async def _computed(size: int, work: Callable[[], T]) -> T:
    """The result of `work`; in a thread where it reads so many bytes that the loop would wait."""
    return work() if size < _LARGE_BYTES else await asyncio.to_thread(work)


def _size(runs: Sequence[Run | Abstain]) -> int:
    return sum(len(run.stdout) for run in runs if isinstance(run, Run))


def _decoded(options: bytes) -> CodeOptions:
    return code_options(msgspec.json.decode(options))


async def _run_all(
    assigned: Assignment,
    options: CodeOptions,
    sandbox: Sandbox,
    slots: asyncio.Semaphore,
    at_once: int,
) -> list[Run | Abstain]:
    """What became of the programs, up to the one that decides the row."""
    runs: list[Run | Abstain] = []

    async def one(program: Program) -> Run | Abstain:
        async with slots:
            return await sandbox.run(program)

    programs = assigned.programs

    def has_failed() -> bool:
        return failed_so_far(assigned, runs, options)

    while len(runs) < len(programs) and not await _computed(_size(runs[-1:]), has_failed):
        part = programs[len(runs) : len(runs) + at_once]
        if len(part) == 1:
            runs.append(await one(part[0]))
            continue
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(program)) for program in part]
        runs += [task.result() for task in tasks]
    return runs
