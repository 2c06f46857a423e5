"""A fake judge in a process of its own, so that its CPU time is not ours."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection

from zerowait.testing import FakeJudge, Script


@contextlib.contextmanager
def judge_process(script: Script) -> Iterator[str]:
    """The base URL of a fake judge that lives as long as the block."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(script, theirs), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("stop")
        process.join(timeout=10)
        process.terminate()


def _serve(script: Script, pipe: Connection) -> None:
    with FakeJudge(script) as judge:
        pipe.send(judge.url)
        pipe.recv()
