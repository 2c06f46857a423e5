import json
import subprocess
import sys

import pytest
import torch
from verl.plugin.platform.platform_base import PlatformBase

from zerowait.verl import plugin
from zerowait.verl.platform import CpuPlatform

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
    """As in a Ray worker: verl imports the plug-in by its entry point, nobody else does."""
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
        "adapter": "zerowait.verl.rollout.adapter",
        "replica": "TransformersReplica",
        "engine": "CpuEngine",
        "registered": {
            "platform cpu": "registered",
            "rollout transformers": "registered",
            "engine fsdp2 on cpu": "registered",
            "reward manager zerowait": "skipped",
            "agent loop search": "skipped",
            "trainer mode zerowait": "skipped",
        },
    }


def test_a_failed_registration_is_kept_and_not_raised():
    def fail():
        raise ImportError("no module named x")

    entry = plugin._attempt("thing", "registry", fail, lambda: True)
    assert (entry.status, entry.error) == ("failed", "ImportError: no module named x")


def test_what_is_not_needed_is_not_attempted():
    entry = plugin._attempt("thing", "registry", pytest.fail, lambda: False)
    assert entry.status == "skipped"


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
