"""What a record costs: CPU per judgement with and without one, by part, and a million to query.

python benchmarks/record.py [--count 1000] [--rounds 31] [--latency 0.2] [--judgements 1000000]
    [--keep FOLDER]

The judgements of the first table go to a judge that answers after `--latency` seconds, by the
default configuration: with a record and without by turns, and the turns of a round are compared
with each other. Its CPU time is user and system time of this process, all of its threads included.
Other programs change a turn by more than a record costs, so the second table measures inside the
turns that are recorded: each part by a clock, and its share of all other CPU time of the same turn.
What a record costs elsewhere (names of samples) is only in the first.
Those of the third are made up, each of another sample, with a request of 1.3 kB; what is timed is
the index and what the first view of a page and its filters ask of it.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import resource
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from asking import TEXT, reward_config
from serving import quick_judge, show_load

import zerowait
from zerowait.cli.tables import show
from zerowait.config import Recording
from zerowait.engine import Rewards
from zerowait.engine.recorded import _BatchedWrites
from zerowait.events import JudgementSettled
from zerowait.record import INDEX, RewardRecord, RunRecord, open_index
from zerowait.types import Abstain, Outcome, Reward, Sample, Score

KINDS = {"without a record": None, "rewards only": "off", "rewards and judgements": "on"}
PER_STEP, GROUP = 1024, 8
WRITTEN_S = 0.25

FIRST_VIEW = {
    "mean reward by step": """
        SELECT * FROM steps ORDER BY split, step""",
    "components by step": """
        SELECT * FROM step_components ORDER BY component, split, step""",
    "judges: outcomes, latency, cost": """
        SELECT judge, source, outcome, kind, count(*), avg(latency_s), max(latency_s),
          sum(cost_usd)
        FROM judgements GROUP BY judge, source, outcome, kind""",
    "groups of a step without a difference": """
        SELECT prompt_group, count(*), min(value) FROM rewards
        WHERE current = 1 AND split = 'train' AND step = 9
        GROUP BY prompt_group HAVING max(value) = min(value)""",
    "the reasons of failures": """
        SELECT component, kind, why, count(*) FROM components WHERE outcome = 'abstain'
        GROUP BY component, kind, why ORDER BY count(*) DESC LIMIT 20""",
}
FILTERS = {
    "abstained by refusal, one page": """
        SELECT r.row, prompt, response, r.value FROM components c JOIN rewards r USING (row)
        WHERE component = 'quality' AND kind = 'refused' AND current = 1 LIMIT 50""",
    "the worst of a step": """
        SELECT row, prompt, response, value FROM rewards
        WHERE split = 'train' AND step = 7 AND current = 1 ORDER BY value LIMIT 50""",
    "the worst of all": """
        SELECT row, prompt, response, value FROM rewards
        WHERE value IS NOT NULL AND current = 1 ORDER BY value LIMIT 50""",
    "a group, side by side, with what the judge read": """
        SELECT r.row, response, r.value, j.why, q.body, a.body FROM rewards r
        JOIN judgement_rows USING (uid) JOIN judgements j USING (judgement)
        LEFT JOIN texts q ON q.text = request LEFT JOIN texts a ON a.text = reply
        WHERE prompt_group = 'g3-5' AND step = 3""",
    "judgements of a judge that timed out": """
        SELECT at, why, attempts, endpoint FROM judgements
        WHERE judge = 'quality' AND kind = 'timeout' ORDER BY judgement DESC LIMIT 50""",
}


def main() -> int:
    """Print the tables."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=1000)
    options.add_argument("--rounds", type=int, default=31)
    options.add_argument("--latency", type=float, default=0.2, help="seconds of the judge")
    options.add_argument("--judgements", type=int, default=1_000_000)
    options.add_argument("--keep", type=Path, help="folder of the made-up record; it is used again")
    given = options.parse_args()
    if given.rounds:
        with quick_judge(given.latency) as url:
            show(cpu_table(url, given.count, given.rounds))
            show(parts_table(url, given.count, given.rounds))
    if given.judgements:
        with folder_of(given.keep) as folder:
            show(index_table(folder, given.judgements))
    show_load()
    return 0


def cpu_table(url: str, count: int, rounds: int) -> list[Sequence[str]]:
    """CPU per judgement for each kind of record, by turns in one process, and what a record adds.

    Other programs slow single turns down, so each is compared with the turn without a record of the
    same round; the order changes with each round. The last column compares lower quartiles, which
    other programs disturb less.
    """
    taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with ExitStack() as stack:
        opened = {
            kind: stack.enter_context(open_rewards(url, judgements))
            for kind, judgements in KINDS.items()
        }
        order = list(opened)
        for number in range(-1, rounds):
            for kind in order:
                cpu = cpu_us(opened[kind], count, number)
                if number >= 0:  # the first turn connects
                    taken[kind].append(cpu)
            order = order[1:] + order[:1]
    without = taken["without a record"]
    rows: list[Sequence[str]] = [
        ("record", "us", "middle half", "more, us", "middle half", "more", "more, quiet turns")
    ]
    quiet = statistics.quantiles(without, n=4)[0]
    for kind, each in taken.items():
        more = [mine - other for mine, other in zip(each, without, strict=True)]
        share = statistics.median(more) / statistics.median(without)
        share_quiet = statistics.quantiles(each, n=4)[0] / quiet - 1
        rows.append((kind, *shown(each), *shown(more), f"{share:.1%}", f"{share_quiet:.1%}"))
    return rows


def parts_table(url: str, count: int, rounds: int) -> list[Sequence[str]]:
    """CPU per judgement of the parts of recording, and their share of the rest of the same turn."""
    with (
        clocked(RunRecord, "__call__", time.perf_counter) as queued,
        clocked(_BatchedWrites, "add", time.perf_counter) as added,
        clocked(_BatchedWrites, "_write_or_keep_error", time.thread_time) as written,
        open_rewards(url, "on") as rewards,
    ):
        clocks = (queued, added, written)
        turns = [parts_of(rewards, count, number, clocks) for number in range(rounds + 1)]
    parts = {
        "judgements and events are queued": [turn[0] for turn in turns[1:]],
        "rewards are put together and written, with counters": [
            turn[1] + turn[2] for turn in turns[1:]
        ],
        "the thread that writes judgements and events": [turn[3] for turn in turns[1:]],
        "all": [sum(turn[:4]) for turn in turns[1:]],
    }
    rest = [turn[4] for turn in turns[1:]]
    table: list[Sequence[str]] = [("part", "us", "middle half", "share of the rest", "middle half")]
    for name, each in parts.items():
        shares = [100 * mine / other for mine, other in zip(each, rest, strict=True)]
        table.append((name, *shown(each), *(f"{share} %" for share in shown(shares))))
    return table


def parts_of(
    rewards: Rewards, count: int, number: int, clocks: Sequence[Clocked]
) -> tuple[float, ...]:
    """CPU microseconds per judgement: those of each clock, the thread, and everything else."""
    for each in clocks:
        each.taken.clear()
    [thread] = [each for each in threading.enumerate() if each.name == "zerowait-record"]
    clock = time.pthread_getcpuclockid(thread.ident or 0)
    before_s = time.clock_gettime(clock)
    all_us = cpu_us(rewards, count, number)
    thread_us = (time.clock_gettime(clock) - before_s) / count * 1e6
    parts_us = [each.own_s() / count * 1e6 for each in clocks]
    clocks_us = sum(2 * each.of_clock_s() * len(each.taken) for each in clocks) / count * 1e6
    return *parts_us, thread_us, all_us - clocks_us - sum(parts_us) - thread_us


class Clocked(NamedTuple):
    """How long the calls of a method took.

    The clock of a thread counts its own time only, but a look at it takes longer than to queue a
    judgement. Calls as short as that are timed by the clock on the wall, and the longest hundredth
    is left out, in which another thread had the core.
    """

    taken: list[float]
    clock: Callable[[], float]

    def own_s(self) -> float:
        """Seconds of all calls, without those of the clock."""
        if self.clock is time.thread_time:
            kept = self.taken
        else:
            kept = sorted(self.taken)[: math.ceil(0.99 * len(self.taken))]
        return (statistics.fmean(kept) - self.of_clock_s()) * len(self.taken)

    def of_clock_s(self) -> float:
        """What looking at the clock takes of what is measured."""
        return statistics.median(-self.clock() + self.clock() for _ in range(1001))


@contextmanager
def clocked(kind: type[Any], name: str, clock: Callable[[], float]) -> Iterator[Clocked]:
    """Time each call of this method."""
    taken: list[float] = []
    original = getattr(kind, name)

    def timed(*given: Any) -> None:
        began_s = clock()
        original(*given)
        taken.append(clock() - began_s)

    setattr(kind, name, timed)
    try:
        yield Clocked(taken, clock)
    finally:
        setattr(kind, name, original)


def shown(taken: list[float]) -> tuple[str, str]:
    """The median, and between which values the middle half lies."""
    low, middle, high = statistics.quantiles(taken, n=4)
    return f"{middle:.1f}", f"{low:.1f} to {high:.1f}"


@contextmanager
def open_rewards(url: str, judgements: str | None) -> Iterator[Rewards]:
    """Rewards by the default configuration, with a record or without."""
    with tempfile.TemporaryDirectory() as name:
        config = reward_config(url, traffic={}, cache=str(Path(name) / "cache.db"))
        if judgements is not None:
            config["record"] = {"judgements": judgements}
        record = None if judgements is None else Path(name) / "run"
        with zerowait.open(config, record=record) as rewards:
            yield rewards


def cpu_us(rewards: Rewards, count: int, number: int) -> float:
    """CPU microseconds of this process per judgement, all of its threads included."""
    texts = [f"{number} {index} {TEXT}" for index in range(count)]
    samples = [Sample("Say something.", text) for text in texts]
    began = used_s()
    lost = sum(reward.abstained for reward in rewards.score(samples))
    time.sleep(WRITTEN_S)  # what was queued is written meanwhile
    if lost:
        raise SystemExit(f"{lost} of {count} judgements were not reached")
    return (used_s() - began) / count * 1e6


def used_s() -> float:
    """Seconds of CPU that this process has used, in user and system mode."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@contextmanager
def folder_of(kept: Path | None) -> Iterator[Path]:
    """The folder of the made-up record; removed afterwards unless it is to be kept."""
    folder = kept or Path(tempfile.mkdtemp(prefix="zerowait-record-"))
    try:
        yield folder
    finally:
        if kept is None:
            shutil.rmtree(folder)


def index_table(folder: Path, count: int) -> list[Sequence[str]]:
    """Seconds and bytes of the index of `count` judgements, and of what a page asks of it."""
    if not (folder / "judgements.jsonl").exists():
        asyncio.run(make_up(folder, count))
    (folder / INDEX).unlink(missing_ok=True)
    lines_bytes = sum(path.stat().st_size for path in folder.glob("*.jsonl"))
    rows: list[Sequence[str]] = [(f"{count:,} judgements", "seconds", "CPU seconds")]
    with taking(rows, f"the index is made, of {lines_bytes / 2**30:.2f} GiB of lines"):
        open_index(folder).close()
    size_bytes = (folder / INDEX).stat().st_size
    with taking(rows, f"it is opened again ({size_bytes / 2**30:.2f} GiB)"):
        index = open_index(folder)
    with closing(index):
        index.execute("SELECT count(*) FROM rewards").fetchone()
        with taking(rows, "the first view, all of it"):
            for query in FIRST_VIEW.values():
                index.execute(query).fetchall()
        for name, query in (FIRST_VIEW | FILTERS).items():
            with taking(rows, name):
                index.execute(query).fetchall()
    return rows


@contextmanager
def taking(rows: list[Sequence[str]], what: str) -> Iterator[None]:
    """Add a row with the time that the block takes."""
    began, cpu = time.monotonic(), time.process_time()
    yield
    wall_s, cpu_s = time.monotonic() - began, time.process_time() - cpu
    rows.append((what, f"{wall_s:.2f}", f"{cpu_s:.2f}"))


async def make_up(folder: Path, count: int) -> None:
    """Write a record of `count` samples with one judgement each, by the writer of real ones."""
    draw = random.Random(7)
    record = RunRecord(folder, Recording(max_bytes=2**50))
    record.open()
    for number in range(count):
        step, group = divmod(number, PER_STEP)
        uid = record.new_uid()
        outcome = made_up_outcome(draw)
        sample = Sample(
            f"Question {group // GROUP} of step {step}?",
            f"{number} {TEXT[: draw.randrange(100, 900)]}",
            "Paris",
            group=f"g{step}-{group // GROUP}",
            step=step,
        )
        record(judgement(number, uid, outcome))
        components: dict[str, Outcome] = {"quality": outcome, "answer": Score(draw.random() // 0.5)}
        value = outcome.value if isinstance(outcome, Score) else None
        metrics: dict[str, float | None] = {"quality/scored": 1.0, "length": float(number % 900)}
        reward = Reward(value, components, metrics, "" if value is not None else "neutral")
        record.reward(RewardRecord(uid=uid, sample=sample, reward=reward, trained_on=value))
        if number % 1000 == 0:
            await asyncio.sleep(0.02)  # the thread that writes judgements keeps up
    record.close()


def made_up_outcome(draw: random.Random) -> Outcome:
    """A verdict, or in 2 % of the cases a failure."""
    chance = draw.random()
    if chance < 0.01:
        return Abstain("timeout", "http://judge: no answer in 60 s (after 6 attempts)")
    if chance < 0.02:
        return Abstain("refused", "the judge refuses to judge this")
    return Score(float(draw.randrange(1, 11)), "as the material shows")


def judgement(number: int, uid: str, outcome: Outcome) -> JudgementSettled:
    """The event of a judgement whose texts are its own."""
    words: dict[str, Any] = {"status": 200, "attempts": 1, "prompt_tokens": 450}
    return JudgementSettled(
        judge="quality",
        component="quality",
        key=f"{number:064x}",
        outcome=outcome,
        source="asked" if number % 4 else "cache",
        uids=(uid,),
        question=0,
        endpoint="http://judge/v1/chat/completions",
        model="m",
        latency_s=0.5 + number % 100 / 100,
        cost_usd=1e-4,
        request=b'{"model":"m","messages":[{"role":"user","content":"%d %b"}]}'
        % (number, TEXT[:1200].encode()),
        reply=b'{"id":"%d","choices":[{"message":{"content":"Score: 7"}}]}' % number,
        **words,
    )


if __name__ == "__main__":
    sys.exit(main())
