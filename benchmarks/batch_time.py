"""How long a batch takes against the ideal, N x latency / C, with a fixed concurrency C.

python benchmarks/batch_time.py [--latency 0.2] [60 500 2000]
"""

import argparse
import sys

from asking import by_hand, through_engine
from serving import quick_judge, show_load

from zerowait.cli.tables import show


def main() -> int:
    """Print one row for each C."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("concurrency", nargs="*", type=int, default=[60, 500, 2000])
    options.add_argument("--latency", type=float, default=0.2, help="of every answer, in seconds")
    given = options.parse_args()
    rows = [["C", "judgements", "ideal s", "zerowait / ideal", "aiohttp by hand / ideal"]]
    with quick_judge(given.latency) as url:
        for concurrency in given.concurrency:
            count = 10 * concurrency
            ideal_s = count * given.latency / concurrency
            hand = by_hand(url, count, concurrency=concurrency)
            ours = through_engine(url, count, traffic={"concurrency": concurrency})
            ratios = [f"{run.wall_s / ideal_s:.3f}" for run in (ours, hand)]
            rows.append([str(concurrency), str(count), f"{ideal_s:.1f}", *ratios])
    show(rows)
    show_load()
    return 0


if __name__ == "__main__":
    sys.exit(main())
