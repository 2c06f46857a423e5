"""Judges that are served for a Ray job: replicas placed by Ray, shared by shards, replaced."""

import asyncio
import os
import signal
import time

import pytest

ray = pytest.importorskip("ray")

from zerowait import Sample  # noqa: E402 - Ray is optional
from zerowait.errors import ConfigError  # noqa: E402
from zerowait.hub.ray import RayHub  # noqa: E402

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
LONG_S = 300

REWARD = """
components: {{quality: {{judge: quality}}}}
judges:
  quality:
    endpoints: [{{serve: {{engine: llama_cpp, model: {model}, gpus: {gpus}, replicas: 2}}}}]
    verdict: {{integer: [1, 10]}}
traffic: {{hedge: off, timeout_s: 60, deadline_s: 300}}
hub: {{shards: {shards}}}
cache: off
"""


def written(tmp_path, weights, *, shards=1, gpus=0):
    path = tmp_path / f"{weights.path.stem}-{shards}-{gpus}.yaml"
    path.write_text(REWARD.format(model=weights.path.name, shards=shards, gpus=gpus))
    return path


def rows(count, of):
    return [
        Sample(f"{of} {number}", "r", id=f"{of}{number}", split="train") for number in range(count)
    ]


async def rewards(hub, samples):
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(hub.reward(sample)) for sample in samples]
    return [task.result().reward.value for task in asked]


async def until(holds, what):
    end = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.1)


def test_replicas_are_shared_by_shards_and_replaced_when_they_die(weights, under_ray, tmp_path):
    slow, broken = weights("slow"), weights("broken")
    with under_ray():

        async def scenario():
            hub = RayHub(written(tmp_path, slow, shards=2), record=str(tmp_path / "run"))
            await hub.ready()
            assert len(slow.started) == 2
            assert await rewards(hub, rows(20, "first")) == [7.0] * 20
            judged = asyncio.create_task(rewards(hub, rows(60, "killed")))
            os.kill(slow.running[0], signal.SIGKILL)
            assert await judged == [7.0] * 60
            await until(lambda: len(slow.running) == 2, "the server is not restarted")

            before = set(slow.running)
            name = slow.path.stem
            found = [each for each in ray.util.list_named_actors() if name in each]
            assert len(found) == 2
            ray.kill(ray.get_actor(found[0]))
            assert await rewards(hub, rows(40, "gone")) == [7.0] * 40
            await until(
                lambda: len(slow.running) == 2 and before != set(slow.running),
                "the actor is not replaced",
            )
            logs = list((tmp_path / "run" / "judge_servers").iterdir())
            assert len(logs) == 2
            await hub.aclose()
            await until(lambda: not slow.running, "servers outlive the hub")

            hub = RayHub(written(tmp_path, broken), record=None, name="broken")
            with pytest.raises(ConfigError, match=r"serve did not start: [\s\S]*tensor 'blk.0'"):
                await hub.ready()

            hub = RayHub(written(tmp_path, slow, gpus=3), record=None, name="greedy")
            with pytest.raises(
                ConfigError, match=r"serve\.gpus asks for 6 GPUs .* Ray's cluster has 0"
            ):
                await hub.ready()

        asyncio.run(scenario())
