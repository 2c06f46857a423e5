"""CPU time of this process per judgement, against a judge that answers at once.

python benchmarks/cpu.py [--count 2000] [--concurrency 60]
"""

import argparse
import sys
import tempfile
from pathlib import Path

from asking import Run, by_hand, by_sdk, through_engine
from serving import quick_judge, show_load

from zerowait.cli.tables import show


def main() -> int:
    """Print one row for each way of asking."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=2000)
    options.add_argument("--concurrency", type=int, default=60)
    given = options.parse_args()
    fixed = {"concurrency": given.concurrency}
    with quick_judge() as url, tempfile.TemporaryDirectory() as folder:
        by_hand(url, 200, concurrency=given.concurrency)  # imports, connections
        hand = by_hand(url, given.count, concurrency=given.concurrency)
        file = str(Path(folder) / "judgements.db")
        runs = {
            "aiohttp under a semaphore": hand,
            "openai SDK under a semaphore": by_sdk(
                url, given.count // 4, concurrency=given.concurrency
            ),
            "zerowait, plain": through_engine(url, given.count, traffic={**fixed, "hedge": "off"}),
            "zerowait, hedging": through_engine(url, given.count, traffic=fixed),
            "zerowait, adaptive limit": through_engine(url, given.count, traffic={}),
            "zerowait, with its cache": through_engine(url, given.count, traffic=fixed, cache=file),
            "zerowait, cache on disk": through_engine(url, given.count, traffic=fixed, cache=file),
            "zerowait, cache in memory": through_engine(
                url, given.count, traffic=fixed, cache=file, rounds=3
            ),
        }
    header = ["", "CPU ms", "/ by hand", "per second"]
    show([header, *(_row(name, run, hand) for name, run in runs.items())])
    if runs["openai SDK under a semaphore"] is None:
        print("the SDK is not installed: pip install openai")
    show_load()
    return 0


def _row(name: str, run: Run | None, hand: Run) -> list[str]:
    if run is None:
        return [name, "-", "-", "-"]
    return [name, f"{run.cpu_ms:.3f}", f"{run.cpu_ms / hand.cpu_ms:.2f}", f"{run.per_s:.0f}"]


if __name__ == "__main__":
    sys.exit(main())
