"""1,024 judgements as people ask them, and as zerowait does, of the same judge.

    python benchmarks/thousand.py [--latency 0.2]

Every answer takes 0.2 s, a tenth of what a real judge takes. The two slow ways are timed on a part
of the 1,024 and multiplied, which the table says. The judge bears 256 at once and more.
"""

import argparse
import multiprocessing
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from multiprocessing.managers import DictProxy
from pathlib import Path
from typing import Any

import msgspec
from asking import by_hand, question, through_engine
from serving import quick_judge, show_load

from zerowait.cli.tables import show

COUNT = 1024
PROCESSES = 4
_POLL_S = 0.1


def main() -> int:
    """Print one row for each way."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--latency", type=float, default=0.2, help="of every answer, in seconds")
    given = options.parse_args()
    with quick_judge(given.latency) as url, tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "judgements.db")
        fixed = {"concurrency": 256}
        ways: list[tuple[str, float, str]] = [
            ("one by one", *_part(one_by_one, url, 96)),
            (f"{PROCESSES} processes, polling", *_part(by_processes, url, 256)),
            ("batch of 60 in flight", by_hand(url, COUNT, concurrency=60).wall_s, "all"),
            ("zerowait, auto, first step", _ours(url, traffic={}), "all"),
            ("zerowait, auto, second step", _ours(url, traffic={}, rounds=2), "all"),
            ("zerowait, concurrency 256", _ours(url, traffic=fixed, cache=file), "all"),
            ("zerowait, cache on disk", _ours(url, traffic=fixed, cache=file), "all"),
            ("zerowait, cache in memory", _ours(url, traffic=fixed, cache=file, rounds=3), "all"),
        ]
    best_s = ways[5][1]
    rows = [["1,024 judgements", "seconds", "/ concurrency 256", "timed"]]
    rows += [[name, f"{s:.2f}", f"{s / best_s:.2f}", timed] for name, s, timed in ways]
    show(rows)
    show_load()
    return 0


def _ours(url: str, **how: Any) -> float:
    return through_engine(url, COUNT, **how).wall_s


def _part(ask: Callable[[str, int], None], url: str, count: int) -> tuple[float, str]:
    began_s = time.perf_counter()
    ask(url, count)
    return (time.perf_counter() - began_s) * COUNT / count, f"{count}, times {COUNT / count:.3g}"


def one_by_one(url: str, count: int) -> None:
    """A loop that asks and waits."""
    for number in range(count):
        _ask(url, number)


def by_processes(url: str, count: int) -> None:
    """Worker processes that write into a shared dict, which the trainer looks into by and by."""
    with multiprocessing.Manager() as manager:
        results, questions = manager.dict(), manager.Queue()
        workers = [
            multiprocessing.Process(target=_work, args=(url, questions, results))
            for _ in range(PROCESSES)
        ]
        for worker in workers:
            worker.start()
        for number in range(count):
            questions.put(number)
        while len(results) < count:
            time.sleep(_POLL_S)
        for _ in workers:
            questions.put(None)
        for worker in workers:
            worker.join()


def _work(url: str, questions: Any, results: "DictProxy[int, str]") -> None:
    while (number := questions.get()) is not None:
        results[number] = _ask(url, number)


def _ask(url: str, number: int) -> str:
    request = urllib.request.Request(  # noqa: S310 - our own server
        f"{url}/chat/completions",
        data=msgspec.json.encode(question(number)),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310
        return msgspec.json.decode(reply.read())["choices"][0]["message"]["content"]


if __name__ == "__main__":
    sys.exit(main())
