"""Comparing answers while one response makes the rule `math` hang, beside the same alone.

    python benchmarks/hanging_math.py [--others 8000] [--timeout-s 20]

Two worker processes compare `--others` fractions, alone and beside one response that is made to
hang until `--timeout-s`: with the process that stands in for the one that hangs, and without. The
processes are started, and math-verify loaded, before the clock is.
"""

import argparse
import asyncio
import sys
import time

from serving import show_load

from zerowait import Sample
from zerowait.cli.tables import show
from zerowait.engine.pool import ScorerPool

_HANGING = Sample("", r"\boxed{9^{9^{9^9}}}", "5")
_WORKERS = 2
_NEVER_S = 1e6
_AT_ONCE = 256


def main() -> int:
    """Print one row for each way; the exit code says whether every answer was right."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--others", type=int, default=8000)
    options.add_argument("--timeout-s", type=float, default=20.0)
    given = options.parse_args()
    ways = {
        "alone": (None, 0.5),
        "beside one that hangs": (given.timeout_s, 0.5),
        "beside it, without a stand-in": (given.timeout_s, _NEVER_S),
    }
    took = {
        name: asyncio.run(_seconds(given.others, hangs_s, patience_s))
        for name, (hangs_s, patience_s) in ways.items()
    }
    rows = [[f"{given.others:,} answers", "seconds", "/ alone", "wrong", "the one that hangs"]]
    for name, (seconds, wrong, hung) in took.items():
        rows.append([name, f"{seconds:.2f}", f"{seconds / took['alone'][0]:.2f}", str(wrong), hung])
    show(rows)
    show_load()
    return int(any(wrong for _, wrong, _ in took.values()))


async def _seconds(others: int, hangs_s: float | None, patience_s: float) -> tuple[float, int, str]:
    """How long the others took, how many of them were not right, and what became of the one."""
    pool = ScorerPool(max_workers=_WORKERS, patience_s=patience_s)
    try:
        await _right(pool, 2 * _WORKERS)
        hung = None
        if hangs_s is not None:
            hung = asyncio.create_task(pool.run("math", _HANGING, timeout_s=hangs_s))
            await asyncio.sleep(0)
        began_s = time.perf_counter()
        right = await _right(pool, others)
        took_s = time.perf_counter() - began_s
        if hung is None:
            return took_s, others - right, ""
        return took_s, others - right, str(getattr(await hung, "kind", "scored"))
    finally:
        await pool.aclose()


async def _right(pool: ScorerPool, count: int) -> int:
    """How many of `count` right answers are found right."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> bool:
        sample = Sample("", rf"\boxed{{\frac{{{number}}}{{7}}}}", f"{number}/7")
        async with slots:
            return getattr(await pool.run("math", sample), "value", 0) == 1

    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(one(number)) for number in range(1, count + 1)]
    return sum(each.result() for each in asked)


if __name__ == "__main__":
    sys.exit(main())
