"""How long a batch takes against the ideal, N x latency / C, with a fixed concurrency C.

python benchmarks/batch_time.py [--latency 0.2] [60 500 2000]

All are asked in a process that is set up as the hub's own: its cycle collector runs rarely.
With ``--usual-collector`` it runs as often as Python's default has it, as in a trainer's process.
"""

import argparse
import sys

from asking import by_client, by_hand, through_engine
from serving import quick_judge, show_load

from zerowait.cli.tables import show
from zerowait.engine.garbage_collection import collect_rarely

WAYS = ("zerowait", "its client alone", "aiohttp by hand")


def main() -> int:
    """Print one row for each C."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("concurrency", nargs="*", type=int, default=[60, 500, 2000])
    options.add_argument("--latency", type=float, default=0.2, help="of every answer, in seconds")
    options.add_argument("--usual-collector", action="store_true")
    given = options.parse_args()
    if not given.usual_collector:
        collect_rarely()
    rows = [["C", "judgements", "ideal s", *(f"{way} / ideal" for way in WAYS)]]
    with quick_judge(given.latency) as url:
        for concurrency in given.concurrency:
            count = 10 * concurrency
            ideal_s = count * given.latency / concurrency
            hand = by_hand(url, count, concurrency=concurrency)
            client = by_client(url, count, traffic={"concurrency": concurrency})
            ours = through_engine(url, count, traffic={"concurrency": concurrency})
            ratios = [f"{run.wall_s / ideal_s:.3f}" for run in (ours, client, hand)]
            rows.append([str(concurrency), str(count), f"{ideal_s:.1f}", *ratios])
    show(rows)
    show_load()
    return 0


if __name__ == "__main__":
    sys.exit(main())
