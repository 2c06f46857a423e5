"""CPU time of this process per judgement, against a judge that answers at once.

python benchmarks/cpu.py [--count 2000] [--concurrency 60]
"""

import argparse
import sys
import tempfile
from pathlib import Path

from asking import Run, by_hand, through_engine
from serving import judge_process

from zerowait.cli.tables import show
from zerowait.testing import Script


def main() -> int:
    """Print one row for each way of asking."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=2000)
    options.add_argument("--concurrency", type=int, default=60)
    given = options.parse_args()
    fixed = {"concurrency": given.concurrency}
    with judge_process(Script()) as url, tempfile.TemporaryDirectory() as folder:
        by_hand(url, 200, concurrency=given.concurrency)  # imports, connections
        hand = by_hand(url, given.count, concurrency=given.concurrency)
        file = str(Path(folder) / "judgements.db")
        runs = {
            "aiohttp under a semaphore": hand,
            "zerowait, plain": through_engine(url, given.count, traffic={**fixed, "hedge": "off"}),
            "zerowait, hedging": through_engine(url, given.count, traffic=fixed),
            "zerowait, adaptive limit": through_engine(url, given.count, traffic={}),
            "zerowait, with its cache": through_engine(url, given.count, traffic=fixed, cache=file),
            "zerowait, cache is warm": through_engine(url, given.count, traffic=fixed, cache=file),
        }
    show([["", "CPU ms", "/ by hand", "per second"], *(_row(*run, hand) for run in runs.items())])
    return 0


def _row(name: str, run: Run, hand: Run) -> list[str]:
    return [name, f"{run.cpu_ms:.3f}", f"{run.cpu_ms / hand.cpu_ms:.2f}", f"{run.per_s:.0f}"]


if __name__ == "__main__":
    sys.exit(main())
