import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.workers.rollout.replica import RolloutReplica

from zerowait.verl import plugin
from zerowait.verl.cpu.platform import CpuPlatform

REPORT = """
import json, warnings
warnings.simplefilter("ignore")
import verl
from verl.utils.device import get_device_name, get_torch_device
from verl.workers.rollout.base import get_rollout_class
from verl.workers.rollout.replica import get_rollout_replica_class
from verl.workers.engine import EngineRegistry
from zerowait.verl.plugin import registered
print(json.dumps({
    "device": get_device_name(),
    "memory": get_torch_device().memory_allocated(),
    "adapter": get_rollout_class("transformers").__module__,
    "replica": get_rollout_replica_class("transformers").__name__,
    "engine": EngineRegistry.get_engine_cls("language_model", "fsdp2").__name__,
    "registered": {entry.what: entry.status for entry in registered()},
}))
"""


@pytest.mark.timeout(300)
def test_a_training_worker_on_the_cpu_finds_everything_through_verls_own_registries(monkeypatch):
    """As in a Ray worker: verl imports the plug-in by its entry point only."""
    for name, value in {"VERL_PLATFORM": "cpu", "WG_BACKEND": "ray", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    done = subprocess.run(
        [sys.executable, "-c", REPORT], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report == {
        "device": "cpu",
        "memory": 0,
        "adapter": "zerowait.verl.cpu.rollout.adapter",
        "replica": "TransformersReplica",
        "engine": "CpuEngine",
        "registered": {
            "platform cpu": "registered",
            "rollout transformers": "registered",
            "rollout replica transformers": "registered",
            "call limit of rollout servers": "skipped",
            "engine fsdp2 on cpu": "registered",
            "reward manager zerowait": "skipped",
            "agent loop search": "skipped",
            "trainer mode zerowait": "skipped",
        },
    }


LIGHT = """
import json, sys, warnings
warnings.simplefilter("ignore")
import verl
print(json.dumps(sorted(name for name in sys.modules if name.startswith(("verl", "zerowait")))))
"""
LATER = """
import importlib.util, json, warnings
warnings.simplefilter("ignore")
import verl
assert importlib.util.find_spec("verl.experimental.reward_loop.reward_manager.registry")
from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls
from verl.experimental.agent_loop import agent_loop
from verl.trainer.ppo.v1 import get_trainer_cls
from zerowait.verl.plugin import registered
print(json.dumps({
    "manager": get_reward_manager_cls("zerowait").__module__,
    "loop": agent_loop._agent_loop_registry["search"]["_target_"],
    "trainer": get_trainer_cls("zerowait").__module__,
    "failed": [entry.what for entry in registered() if entry.status == "failed"],
}))
"""


def said_by(program, **env):
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=os.environ | env,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.timeout(300)
def test_importing_verl_imports_no_more_of_it_with_the_plug_in_than_without(monkeypatch):
    """It is imported in every process of a run, those of vLLM included."""
    for name in ("VERL_PLATFORM", "WG_BACKEND", "RANK"):
        monkeypatch.delenv(name, raising=False)
    alone = said_by(LIGHT, VERL_USE_EXTERNAL_PLUGINS="none")
    assert "verl" in alone
    ours = {"zerowait", "zerowait.verl"}
    ours |= {
        f"zerowait.verl.{name}" for name in ("import_hook", "job_end", "plugin", "process_role")
    }
    assert set(said_by(LIGHT, VERL_USE_EXTERNAL_PLUGINS="auto")) == {*alone, *ours}


@pytest.mark.timeout(300)
def test_what_waits_for_its_registry_is_there_when_the_registry_is():
    assert said_by(LATER) == {
        "manager": "zerowait.verl.rewards.manager",
        "loop": "zerowait.verl.agent.search_loop.SearchAgentLoop",
        "trainer": "zerowait.verl.trainer.ticket_trainer",
        "failed": [],
    }


def test_verls_rollout_servers_let_in_more_calls_than_requests_can_wait_for_new_weights():
    """verl's own limit for 2,048 requests on an engine of 1,024 is 1,040."""
    replica = SimpleNamespace(config=SimpleNamespace(max_num_seqs=1024))
    assert RolloutReplica.max_concurrency.fget(replica) == plugin.ROLLOUT_CALLS


@pytest.fixture
def registrations(monkeypatch):
    monkeypatch.setattr(plugin, "_REGISTRATIONS", {})
    return plugin._REGISTRATIONS


def test_a_failed_registration_is_kept_and_not_raised(registrations):
    def fail():
        raise ImportError("no module named x")

    plugin._schedule("thing", "json", fail, lambda: True)
    assert (registrations["thing"].status, registrations["thing"].error) == (
        "failed",
        "ImportError: no module named x",
    )


def test_what_is_not_needed_is_not_attempted(registrations):
    plugin._schedule("thing", "json", pytest.fail, lambda: False)
    assert registrations["thing"].status == "skipped"


def test_the_platform_answers_every_question_of_verls():
    asked = PlatformBase.__abstractmethods__
    assert asked
    platform = CpuPlatform()  # a missing answer would be a TypeError
    assert platform.device_name == "cpu"
    assert torch.zeros(1).to(platform.current_device()).device.type == "cpu"
    assert platform.ray_resource_options(0.5) == {"num_gpus": 0.5}


def test_the_platform_is_never_chosen_unasked():
    assert not CpuPlatform().is_platform_available(use_smi_check=True)


def test_asking_for_the_backend_outside_a_training_worker_joins_nothing(monkeypatch):
    monkeypatch.delenv("WG_BACKEND", raising=False)
    assert CpuPlatform().communication_backend_name() == "gloo"
    assert not torch.distributed.is_initialized()


def test_the_device_module_has_no_accelerator_and_real_memory():
    module = CpuPlatform().device_module
    free, total = module.mem_get_info()
    assert 0 < free <= total
    assert not module.is_available()
    state = module.get_rng_state()
    first = torch.rand(1)
    module.set_rng_state(state)
    assert torch.equal(torch.rand(1), first)
