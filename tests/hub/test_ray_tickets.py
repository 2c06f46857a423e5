"""Tickets over a real Ray: deposited by a worker, redeemed here, through the death of the hub."""

import asyncio
import os
import signal
import sqlite3
import sys
import time
from contextlib import suppress

import pytest

ray = pytest.importorskip("ray")

from zerowait import Sample  # noqa: E402 - Ray is optional
from zerowait.errors import ConfigError  # noqa: E402
from zerowait.hub.ray import RayTickets  # noqa: E402
from zerowait.testing import FakeJudge, Latency, Script  # noqa: E402
from zerowait.verl.process_role import in_reward_worker  # noqa: E402

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
LONG_S = 300
ROWS = 40


@pytest.fixture(scope="module", autouse=True)
def cluster(under_ray):
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with under_ray():
        yield


def row(number):
    return Sample("q", f"answer {number}", id=f"g_{number}", group="g")


@ray.remote(num_cpus=0)
class Worker:
    """A process of the job that deposits rows."""

    def deposit(self, config, name):
        """Deposit every row; returns when the hub has them."""

        async def all_of_them():
            hub = RayTickets(config, record=None, name=name)
            async with asyncio.TaskGroup() as tasks:
                for number in range(ROWS):
                    tasks.create_task(hub.deposit(row(number)))

        asyncio.run(all_of_them())


def settings(tmp_path, judge):
    path = tmp_path / "reward.yaml"
    path.write_text(
        f"""
components: {{quality: {{judge: q}}}}
judges:
  q:
    endpoints: [{{base_url: "{judge.url}", model: m}}]
    verdict: {{integer: [1, 10]}}
traffic: {{concurrency: 8}}
cache: {{path: {tmp_path}/reward.db}}
"""
    )
    return str(path)


async def redeemed(hub):
    async with asyncio.TaskGroup() as tasks:
        rows = [tasks.create_task(hub.redeem(row(number))) for number in range(ROWS)]
    return [task.result().value for task in rows]


def committed(path):
    with sqlite3.connect(path) as database:
        return database.execute("SELECT count(*) FROM replies").fetchone()[0]


def until(true):
    give_up = time.monotonic() + LONG_S
    while not true():
        assert time.monotonic() < give_up, "what the test waits for does not come"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def worker(cluster):
    return Worker.remote()


@pytest.fixture
def named():
    """Ends the hub of that name."""
    names = []
    yield names.append
    for name in names:
        with suppress(ValueError):
            ray.kill(ray.get_actor(name))


def test_rows_are_judged_before_they_are_redeemed_and_asked_once(tmp_path, named, worker):
    named("tickets")
    with FakeJudge(Script(latency=Latency(0.05))) as judge:
        config = settings(tmp_path, judge)
        hub = RayTickets(config, record=None, name="tickets")
        ray.get(worker.deposit.remote(config, "tickets"), timeout=LONG_S)
        until(lambda: judge.seen.answered == ROWS)
        values = asyncio.run(redeemed(hub))
        assert all(value is not None for value in values)
        assert judge.seen.requests == ROWS


def test_a_hub_that_died_between_deposit_and_redemption_loses_nothing(
    tmp_path, named, worker, gate
):
    named("mortal")
    held = gate(10)
    with FakeJudge(hold=held) as judge:
        config = settings(tmp_path, judge)
        hub = RayTickets(config, record=None, name="mortal")
        ray.get(worker.deposit.remote(config, "mortal"), timeout=LONG_S)
        until(lambda: (committed(tmp_path / "reward.db"), judge.seen.in_flight) == (10, 8))
        pid = hub._first._actor.__ray_call__.remote(lambda _: os.getpid())
        os.kill(ray.get(pid, timeout=LONG_S), signal.SIGKILL)
        until(lambda: judge.seen.cancelled_by_client == 8)
        held.open()
        values = asyncio.run(redeemed(hub))
        assert all(value is not None for value in values)
        assert judge.seen.distinct_bodies == ROWS
        assert judge.seen.requests == ROWS + 8


def test_a_deposit_raises_the_error_in_the_configuration(tmp_path, named):
    named("wrong")
    path = tmp_path / "reward.yaml"
    path.write_text("components: {answer: {scorrer: qa_em}}\n")

    async def deposit():
        await RayTickets(str(path), record=None, name="wrong").deposit(row(1))

    with pytest.raises(ConfigError, match="scorer"):
        asyncio.run(deposit())


def test_a_process_of_verls_reward_managers_is_known_by_its_actors_name():
    class Asked:
        def ask(self):
            return in_reward_worker()

    actor = ray.remote(num_cpus=0)(Asked)
    actors = [actor.options(name=name).remote() for name in ("reward_loop_worker_1", "worker_1")]
    assert ray.get([each.ask.remote() for each in actors], timeout=60) == [True, False]
    assert not in_reward_worker()
