"""How much sooner a batch ends when late requests are sent once more.

    python benchmarks/hedging.py [--batches 5]

Simulated in virtual time: 1,024 judgements at once, log-normal latency (median 1 s, sigma 0.8), of
which 1 % stall for 30 s.
"""

import argparse
import sys
from statistics import mean

from simulated import Server, batch_s

from zerowait.cli.tables import show
from zerowait.config import Hedge
from zerowait.testing import Capacity

COUNT = 1024
WAYS = {"off": "off", "p95, 5 %": Hedge(), "p95, 2 %": Hedge(extra=0.02)}


def main() -> int:
    """Print one row for each concurrency and way."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--batches", type=int, default=5)
    given = options.parse_args()
    rows = [["C", "hedge", "batch s", "/ off", "worst s", "extra requests"]]
    for concurrency in (60, 256):
        plain_s = 0.0
        for name, hedge in WAYS.items():
            times_s, sent = [], 0
            for seed in range(given.batches):
                server = Server(Capacity(), seed=seed, sigma=0.8, stalls=0.01)
                times_s.append(batch_s(server, COUNT, concurrency=concurrency, hedge=hedge))
                sent += server.sent
            plain_s = plain_s or mean(times_s)
            extra = sent / given.batches / COUNT - 1
            took = [f"{mean(times_s):.1f}", f"{mean(times_s) / plain_s:.2f}", f"{max(times_s):.1f}"]
            rows.append([str(concurrency), name, *took, f"{extra:.1%}"])
    show(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
