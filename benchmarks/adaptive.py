"""What the adaptive limit gets out of a server: answers per second against an oracle, and 429s.

    python benchmarks/adaptive.py [--seconds 120] [--live 60]

Simulated in virtual time: log-normal latency (median 1 s, sigma 0.4), more in line than can be
done, the first 15 s left out. The oracle knows the capacity. `--live` adds eight rows over sockets,
against a fake judge, each of so many real seconds: 60 or more.
"""

import argparse
import asyncio
import contextlib
import math
import sys
from collections.abc import Sequence
from statistics import median

from asking import reward_config
from serving import judge_process
from simulated import Server, batch_s, pressed

from zerowait import Sample, Score
from zerowait.cli.tables import show
from zerowait.engine import Engine, Stats
from zerowait.events import Event, JudgementSettled
from zerowait.testing import Capacity, Change, Latency, Script

MEAN_S = math.exp(0.4**2 / 2)
RAMP_S = 15.0
WAYS = ("auto", 32, 60, 256)
BATCH_WAYS = ("auto", 60, 100, 130)
SILENT = "3000 RPM, no headers"


def servers(seconds: float) -> dict[str, tuple[Capacity, float]]:
    """Each server with the oracle's answers per second after the ramp."""
    third = seconds / 3
    down_up = (Change(at_s=third, concurrency=30), Change(at_s=2 * third, concurrency=60))
    mean_cap = (60 * (third - RAMP_S) + 30 * third + 60 * third) / (seconds - RAMP_S)
    return {
        "cap 60": (Capacity(concurrency=60, retry_after_s=1.0), 60 / MEAN_S),
        "cap 60-30-60": (Capacity(concurrency=60, changes=down_up), mean_cap / MEAN_S),
        "3000 RPM": (Capacity(rpm=3000), 50.0),
        SILENT: (Capacity(rpm=3000), 50.0),
        "knee 128": (Capacity(knee=128), 128 / MEAN_S),
    }


def main() -> int:
    """Print one row for each server and way."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=120.0, help="virtual")
    options.add_argument("--seed", type=int, default=100, help="of the simulated latencies")
    options.add_argument("--live", type=float, default=0.0, help="real seconds per row")
    given = options.parse_args()
    if 0 < given.live < 4 * RAMP_S:
        options.error(
            f"--live: {4 * RAMP_S:.0f} or more, since the first {RAMP_S:.0f} s are left out"
        )
    rows = [["server", "concurrency", "answers / oracle", "429 share", "median latency s"]]
    for name, (capacity, oracle) in servers(given.seconds).items():
        for way in WAYS:
            server = Server(capacity, seed=given.seed)
            server.names_quota = name != SILENT
            pressed(server, seconds=given.seconds, concurrency=way)
            answered = sum(when >= RAMP_S for when in server.answered_s)
            ratio = answered / (given.seconds - RAMP_S) / oracle
            refused = server.refused / server.sent
            latency = f"{median(server.latencies_s):.2f}"
            rows.append([name, str(way), f"{ratio:.3f}", f"{refused:.1%}", latency])
    show(rows)
    for sigma in (0.4, 1.2):
        random_refusals(range(given.seed, given.seed + 16), sigma)
    own_failures(range(given.seed, given.seed + 8))
    if given.live:
        live(given.live)
    return 0


def random_refusals(seeds: Sequence[int], sigma: float) -> None:
    """1,000 judgements (median 0.3 s) where a share of the requests is refused by chance."""
    head = [f"429 by chance, sigma {sigma:g}", "server", *(f"{way}: s" for way in BATCH_WAYS)]
    rows = [[*head, "auto / best fixed"]]
    for refuses in (0.0, 0.01, 0.03, 0.1):
        for name, cap in (("unbounded", None), ("cap 100", 100)):
            capacity = Capacity(concurrency=cap, retry_after_s=1.0)
            took = [
                sum(
                    batch_s(
                        Server(capacity, seed=seed, median_s=0.3, sigma=sigma, refuses=refuses),
                        1000,
                        concurrency=way,
                        hedge="off",
                    )
                    for seed in seeds
                )
                / len(seeds)
                for way in BATCH_WAYS
            ]
            ratio = f"{took[0] / min(took[1:]):.2f}"
            rows.append([f"{refuses:.0%}", name, *(f"{s:.2f}" for s in took), ratio])
    show(rows)


def own_failures(seeds: Sequence[int]) -> None:
    """2,000 judgements (median 0.3 s), ten of which fail each time; the others are answered."""
    rows = [["10 of 2,000 always", "auto: s", "/ none", "100: s", "/ none"]]
    bodies = [b'{"row": %d}' % row for row in range(100, 2000, 190)]
    plain: dict[int | str, float] = {}
    for status in (200, 429, 500):
        cells = []
        for way in ("auto", 100):
            fates = dict.fromkeys(bodies, (status,) * 50)
            servers = [Server(Capacity(), seed=each, median_s=0.3, fates=fates) for each in seeds]
            took = [
                batch_s(each, 2000, concurrency=way, hedge="off", attempts=6) for each in servers
            ]
            mean_s = sum(took) / len(took)
            plain.setdefault(way, mean_s)
            cells += [f"{mean_s:.2f}", f"{mean_s / plain[way]:.2f}"]
        rows.append(["none" if status == 200 else str(status), *cells])
    show(rows)


def live(seconds: float) -> None:
    """The same over sockets and through the whole engine, as long as `servers` of that time."""
    rows = [["live server", "concurrency", "answers / oracle", "429 share"]]
    latency = Latency(median_s=1.0, sigma=0.4)
    for name, (capacity, oracle) in servers(seconds).items():
        if name == SILENT:
            continue  # the live judge names its quota
        for way in ("auto", 32):
            with judge_process(Script(latency=latency, capacity=capacity)) as url:
                answered, stats = asyncio.run(engaged(url, way, seconds, int(oracle * seconds)))
            ratio = answered / (seconds - RAMP_S) / oracle
            rows.append([name, str(way), f"{ratio:.3f}", f"{stats.retries / stats.requests:.1%}"])
    show(rows)


async def engaged(url: str, way: int | str, seconds: float, count: int) -> tuple[int, Stats]:
    """The answers after the ramp, with twice `count` in line so that there is always more to do."""
    clock = asyncio.get_running_loop().time
    settings = reward_config(url, traffic={"concurrency": way, "attempts": 1000}, cache="off")
    samples = [Sample("Say something.", f"number {number}") for number in range(2 * count)]
    answered_s: list[float] = []

    def note(event: Event) -> None:
        if isinstance(event, JudgementSettled) and isinstance(event.outcome, Score):
            answered_s.append(clock())

    async with Engine(settings, listener=note) as engine:
        began_s = clock()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await engine.score_all(samples)
        return sum(RAMP_S <= when - began_s <= seconds for when in answered_s), engine.stats()


if __name__ == "__main__":
    sys.exit(main())
