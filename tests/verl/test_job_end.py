"""An interrupted training gives back what its hub had reserved of a budget; real Ray, real file."""

import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("ray")

from zerowait.cache.ledger import accounts
from zerowait.testing import FakeJudge, Latency, Script

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
ASKED = 4
REWARD = """\
components: {{quality: {{judge: q}}}}
judges:
  q:
    endpoints: [{{base_url: "{url}", model: m}}]
    verdict: {{integer: [1, 10]}}
traffic: {{budget_usd: 10, budget_name: mine, hedge: "off"}}
prices: {{m: {{input: 1.0, output: 1.0}}}}
cache: {{path: {folder}/cache.db}}
"""
DRIVER = """\
import asyncio, sys
from importlib.machinery import ModuleSpec
import ray
from zerowait import Sample
from zerowait.hub.ray import RayHub
from zerowait.verl.job_end import close_at_exit

config, name, asked = sys.argv[1:]
sys.modules["__main__"].__spec__ = ModuleSpec(name, None)
close_at_exit()
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)

async def main():
    hub = RayHub(config, record=None)
    async with asyncio.TaskGroup() as tasks:
        for n in range(int(asked)):
            tasks.create_task(hub.reward(Sample("q", f"answer {n}")))

asyncio.run(main())
"""


def interrupted(tmp_path, name):
    """The account after a process that runs as module `name` was interrupted while it waited."""
    with FakeJudge(Script(latency=Latency(600.0))) as judge:
        config = tmp_path / "reward.yaml"
        config.write_text(REWARD.format(url=judge.url, folder=tmp_path))
        driver = subprocess.Popen([sys.executable, "-c", DRIVER, config, name, str(ASKED)])
        try:
            ends = time.monotonic() + 120
            while judge.seen.in_flight < ASKED and driver.poll() is None:
                assert time.monotonic() < ends
                time.sleep(0.05)
            driver.send_signal(signal.SIGINT)
            driver.wait(60)
        finally:
            driver.kill()
            driver.wait()
    [account] = accounts(tmp_path / "spend.db")
    return account


def test_what_was_reserved_is_settled_when_the_trainers_process_ends(tmp_path):
    account = interrupted(tmp_path, "verl.trainer.main_ppo")
    assert account.reserved == 0
    assert account.spent > 0  # the judge had the requests, and may bill them


def test_a_process_that_is_not_the_trainers_closes_no_hub(tmp_path):
    account = interrupted(tmp_path, "another")
    assert account.reserved > 0
    assert account.spent == 0
