"""A hub that is spread over several actors is one hub: real Ray, real processes, real kills."""

import asyncio
import os
import signal
import sqlite3
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

ray = pytest.importorskip("ray")

from zerowait import Sample  # noqa: E402 - Ray is optional
from zerowait.cache.ledger import accounts  # noqa: E402
from zerowait.hub.ray import RayHub  # noqa: E402
from zerowait.record.rewards import read_rewards, read_stats  # noqa: E402
from zerowait.testing import FakeJudge, Latency, Script  # noqa: E402

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
LONG_S = 300


@pytest.fixture(scope="module", autouse=True)
def cluster(under_ray):
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with under_ray():
        yield


def settings(tmp_path, judge, *, shards, concurrency=32, components="quality: {judge: q}"):
    path = tmp_path / f"reward-{shards}.yaml"
    path.write_text(
        f"""
components: {{{components}}}
judges:
  q:
    endpoints: [{{base_url: "{judge.url}", model: m}}]
    verdict: {{integer: [1, 10]}}
traffic: {{concurrency: {concurrency}, hedge: off}}
hub: {{shards: {shards}}}
cache: {{path: {tmp_path / "judgements.db"}}}
"""
    )
    return str(path)


def row(number, split="train"):
    group = {"group": f"g{number // 4}", "group_size": 4}
    return Sample("q", f"answer {number}", split=split, response_tokens=5, **group)


async def rewards(hub, numbers, split="train"):
    async with asyncio.TaskGroup() as tasks:
        rows = [tasks.create_task(hub.reward(row(n, split))) for n in numbers]
    return [one.result().value for one in rows]


@ray.remote(num_cpus=0)
class Worker:
    """A process of the job."""

    def pid(self):
        return os.getpid()

    def ask(self, config, name, numbers, record=None, split="train"):
        return asyncio.run(rewards(RayHub(config, record=record, name=name), numbers, split))


@pytest.fixture(scope="module")
def workers(cluster):
    some = [Worker.remote() for _ in range(8)]
    ray.get([one.pid.remote() for one in some], timeout=LONG_S)
    return some


def until(true):
    give_up = time.monotonic() + LONG_S
    while not true():
        assert time.monotonic() < give_up, "what the test waits for does not come"
        time.sleep(0.01)


def names(name, shards):
    return [name, *(f"{name}-{index}" for index in range(1, shards))]


@contextmanager
def hub_named(name, config, *, shards, record=None):
    """A handle of this process; the hub is ended afterwards."""
    try:
        yield RayHub(config, record=record, name=name)
    finally:
        for each in names(name, shards):
            with suppress(ValueError):
                ray.kill(ray.get_actor(each))


def committed(folder):
    total = 0
    for file in Path(folder).glob("judgements*.db"):
        with sqlite3.connect(file) as database:
            total += database.execute("SELECT count(*) FROM replies").fetchone()[0]
    return total


def test_eight_processes_share_one_limit_and_ask_each_thing_once(tmp_path, workers):
    # every row is asked for by two of the eight, its group by both
    rows = [[(w * 40 + n) % 320 for n in range(80)] for w in range(8)]
    with FakeJudge(Script(latency=Latency(0.1))) as judge:
        config = settings(tmp_path, judge, shards=4)
        record = str(tmp_path / "run")
        with hub_named("eight", config, shards=4, record=record) as hub:
            work = [
                one.ask.remote(config, "eight", rows[w], record) for w, one in enumerate(workers)
            ]
            done = ray.get(work, timeout=LONG_S)
            stats = asyncio.run(hub.stats())
            asyncio.run(hub.aclose())
        assert len(set(ray.get([one.pid.remote() for one in workers]))) == 8
        assert judge.seen.distinct_bodies == 320
        assert set(judge.seen.asked_per_body.values()) == {1}
        assert 1 < judge.seen.peak_in_flight <= 32
    values = {}
    for asked, numbers in zip(rows, done, strict=True):
        for one, value in zip(asked, numbers, strict=True):
            assert values.setdefault(one, value) == value
    assert (stats.settled, stats.asked, stats.asked + stats.joined + stats.cached) == (
        640,
        320,
        640,
    )
    assert stats.requests == 320
    assert stats.limit <= 32
    files = sorted(file.name for file in tmp_path.glob("judgements*.db"))
    assert files == [f"judgements-{index}-of-4.db" for index in range(4)]
    assert len(list(read_rewards(tmp_path / "run"))) == 640
    assert list(read_stats(tmp_path / "run"))[-1].stats["settled"] <= 640


@pytest.mark.parametrize("shards", [1, 3])
def test_validation_is_paid_from_its_own_budget_wherever_it_is_judged(tmp_path, workers, shards):
    """The owner of a key asks for all shards; a restarted hub knows what was spent."""
    with FakeJudge() as judge:
        config = settings(tmp_path, judge, shards=shards)
        with Path(config).open("a") as more:
            more.write("prices: {m: {input: 1.0, output: 10.0}}\n")
        budgets = "traffic: {budget_usd: 5, validation_budget_usd: 0.1, "
        Path(config).write_text(Path(config).read_text().replace("traffic: {", budgets))
        stats = []
        for run, numbers in enumerate([range(40), range(40, 400)]):
            name = f"paid-{shards}-{run}"
            with hub_named(name, config, shards=shards) as hub:
                work = [
                    one.ask.remote(config, name, [n + 1000 * w for n in numbers], None, split)
                    for w, (one, split) in enumerate(
                        zip(workers, ["validation", "train"], strict=False)
                    )
                ]
                _, trained = ray.get(work, timeout=LONG_S)
                stats.append(asyncio.run(hub.stats()))
                asyncio.run(hub.aclose())
            assert None not in trained
    first, second = stats
    assert 0 < first.validation_budget_spent_usd < second.validation_budget_spent_usd <= 0.1
    assert second.budget_spent_usd > 0.1
    assert second.abstentions.keys() == {"budget"}
    kept = {one.name: one.spent for one in accounts(tmp_path / "spend.db")}
    assert kept == {
        config: pytest.approx(second.budget_spent_usd * 1e9),
        f"{config} (validation)": pytest.approx(second.validation_budget_spent_usd * 1e9),
    }


def test_rows_of_a_group_meet_whichever_process_they_come_from(tmp_path, workers):
    shaped = "quality: {judge: q}, length: {shape: median_band}"
    with FakeJudge() as judge:
        config = settings(tmp_path, judge, shards=3, components=shaped)
        with hub_named("groups", config, shards=3) as hub:
            halves = [
                one.ask.remote(config, "groups", range(w, 40, 2))
                for w, one in enumerate(workers[:2])
            ]
            ray.get(halves, timeout=LONG_S)
            stats = asyncio.run(hub.stats())
    assert (stats.settled, stats.abstained) == (40, 0)


@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_shard_comes_back_and_asks_only_for_what_was_not_committed(
    tmp_path, workers, victim, gate
):
    name, held = f"phoenix{victim}", gate(40)
    with FakeJudge(hold=held) as judge:
        config = settings(tmp_path, judge, shards=4, concurrency=16)
        with hub_named(name, config, shards=4) as hub:
            asyncio.run(hub.ready())
            actor = ray.get_actor(names(name, 4)[victim])
            pid = ray.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=LONG_S)
            halves = [
                one.ask.remote(config, name, range(w * 100, w * 100 + 100))
                for w, one in enumerate(workers[:2])
            ]
            until(lambda: (committed(tmp_path), judge.seen.in_flight) == (40, 16))
            os.kill(pid, signal.SIGKILL)
            until(lambda: judge.seen.cancelled_by_client > 0)
            held.open()
            done = ray.get(halves, timeout=LONG_S)
            assert [len(values) for values in done] == [100, 100]
        assert judge.seen.distinct_bodies == 200
        assert committed(tmp_path) == 200
        assert 200 < judge.seen.requests <= 200 + 16  # again what its victim had under way
        assert judge.seen.peak_in_flight <= 16
        with hub_named("rerun", config, shards=4) as hub:
            again = asyncio.run(rewards(hub, range(200)))
            assert asyncio.run(hub.stats()).asked == 0
    assert again == done[0] + done[1]


def test_another_number_of_shards_finds_what_the_earlier_ones_kept(tmp_path):
    told = []
    with FakeJudge() as judge:
        for shards in (1, 4, 2, 1):
            config = settings(tmp_path, judge, shards=shards)
            with hub_named(f"layout{len(told)}", config, shards=shards) as hub:
                asyncio.run(rewards(hub, range(40 + 20 * len(told))))
                stats = asyncio.run(hub.stats())
                told.append((stats.asked, stats.cached))
                asyncio.run(hub.aclose())
    assert told == [(40, 0), (20, 40), (20, 60), (20, 80)]
