"""How much sooner a batch ends when late requests are sent once more.

    python benchmarks/hedging.py [--batches 5]

Simulated in virtual time: 1,024 judgements at once, log-normal latency (median 1 s, sigma 0.8), of
which 1 % stall for 30 s. Then steps of 256 judgements (median 2 s, sigma 0.3) of which one in 64
stalls for 10 s.
"""

import argparse
import asyncio
import sys
from random import Random
from statistics import mean

from simulated import Server, batch_s, client

from zerowait.cli.tables import show
from zerowait.config import Hedge
from zerowait.testing import Capacity, virtually

COUNT = 1024
STEPS = 20
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
    steps(given.batches)
    return 0


def steps(runs: int) -> None:
    """The slowest judgement of each of 20 steps, which are sent within 0 or 3 s, as rollouts end.

    A step before them, in which nothing is known of the latencies, is left out.
    """
    rows = [["256 rows a step", "hedge", "slowest s", "p90", "worst", "10 s, no copy", "requests"]]
    for spread_s in (0.0, 3.0):
        for name in ("off", "p95, 5 %"):
            slowest_s: list[float] = []
            uncopied, sent = 0, 0
            for seed in range(1000, 1000 + runs):
                step_runs = StepRuns(seed, spread_s=spread_s, hedge=WAYS[name])
                slowest_s += step_runs.slowest_s
                uncopied += step_runs.uncopied
                sent += step_runs.server.sent
            slowest_s.sort()
            p90 = slowest_s[len(slowest_s) * 9 // 10]
            took = [f"{s:.1f}" for s in (mean(slowest_s), p90, slowest_s[-1])]
            extra = f"{sent / runs / (STEPS + 1) / 256 - 1:.1%}"
            rows.append([f"within {spread_s:.0f} s", name, *took, str(uncopied), extra])
    show(rows)


class StepRuns:
    """21 steps at one judge, with the settings that users get.

    Args:
        seed: of latencies and of the times at which rows are sent.
        spread_s: seconds within which a step's rows are sent.
        hedge: of the traffic.
    """

    def __init__(self, seed: int, *, spread_s: float, hedge: Hedge | str) -> None:
        self.server = Server(
            Capacity(), seed=seed, median_s=2.0, sigma=0.3, stalls=1 / 64, stall_s=10.0
        )
        self.slowest_s: list[float] = []
        self.uncopied = 0  # rows that took 10 s and were sent once
        self._judge = client(self.server, seed=seed, hedge=hedge)
        self._draws = Random(seed)
        self._spread_s = spread_s
        virtually(self._run())

    async def _run(self) -> None:
        for step in range(STEPS + 1):
            async with asyncio.TaskGroup() as group:
                rows = [group.create_task(self._row(step)) for _ in range(256)]
            took = [row.result() for row in rows]
            if step > 0:
                self.slowest_s.append(max(took_s for took_s, _ in took))
                self.uncopied += sum(s >= 10.0 - 1e-6 and sends == 1 for s, sends in took)
            await asyncio.sleep(8.0)  # the update

    async def _row(self, step: int) -> tuple[float, int]:
        """Seconds that a row took, and how often it was sent."""
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(self._draws.random() * self._spread_s)
        began_s = clock()
        reply = await self._judge.ask(b'{"step": %d}' % step)
        return clock() - began_s, reply.attempts


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
