"""How much sooner a batch ends when late requests are sent once more.

    python benchmarks/hedging.py [--batches 5]

Simulated in virtual time: 1,024 judgements at once, log-normal latency (median 1 s, sigma 0.8), of
which 1 % stall for 30 s.
"""

import argparse
import sys
from random import Random
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
    after_a_restart(given.batches)
    refused_copies()
    return 0


def refused_copies() -> None:
    """400 judgements of which the last one stalls for 30 s, and the first copies of it get a 429.

    The copies are sent again after their Retry-After of 1 s.
    """
    rows = [["400 rows, the last one stalls", "hedge", "batch s", "requests"]]
    for refused in (0, 1, 2):
        fates = {b'{"row": 399}': ("stall", *[429] * refused)}
        for name in ("off", "p95, 5 %"):
            server = Server(Capacity(), seed=1, median_s=0.1, sigma=0.2, fates=fates)
            took_s = batch_s(server, 400, concurrency=60, hedge=WAYS[name])
            rows.append([f"{refused} copies refused", name, f"{took_s:.1f}", str(server.sent)])
    show(rows)


def after_a_restart(batches: int) -> None:
    """97 judgements that an earlier run left, without and with the latencies that it knew."""
    draws = Random(2)
    known_s = [draws.lognormvariate(0.0, 0.8) for _ in range(128)]
    rows = [["97 rows after a restart", "mean s", "worst s"]]
    for name, known in (("latencies forgotten", None), ("latencies remembered", known_s)):
        servers = [Server(Capacity(), seed=s, sigma=0.8, stalls=0.01) for s in range(4 * batches)]
        times_s = [batch_s(server, 97, concurrency=60, known_s=known) for server in servers]
        rows.append([name, f"{mean(times_s):.1f}", f"{max(times_s):.1f}"])
    show(rows)


if __name__ == "__main__":
    sys.exit(main())
