"""Which agent loops may start without the manager that knows what the model wrote."""

import subprocess
import sys

import pytest
import ray
from omegaconf import OmegaConf
from ray import cloudpickle

from zerowait.errors import ConfigError
from zerowait.verl.agent.manager import AgentLoopManager, AgentLoopRewardWorker
from zerowait.verl.agent_loop_check import check_agent_loop
from zerowait.verl.rows import MANAGER


def config(**agent):
    return OmegaConf.create({"actor_rollout_ref": {"rollout": {"agent": agent or None}}})


class Mine(AgentLoopManager):
    """One that is derived from ours."""


class Stranger:
    """One that is not."""


@pytest.mark.parametrize("loop", ["single_turn_agent", "search", None])
def test_loops_in_which_nobody_else_has_the_last_word_may_start(loop):
    check_agent_loop(config(default_agent_loop=loop, agent_loop_manager_class=None))


def test_without_any_agent_section_verls_single_turns_start():
    check_agent_loop(config())


@pytest.mark.parametrize("loop", ["tool_agent", "mine", "swe"])
def test_other_loops_start_with_our_manager_only(loop, monkeypatch):
    check_agent_loop(config(default_agent_loop=loop, agent_loop_manager_class=MANAGER))
    for name, says in (
        (None, "it is not set"),
        ("verl.trainer.ppo.v1.AgentLoopManagerTQ", "is not derived from it"),
    ):
        with pytest.raises(ConfigError, match=rf"'{loop}' .*{MANAGER}, .*{says}"):
            check_agent_loop(config(default_agent_loop=loop, agent_loop_manager_class=name))


def test_a_manager_of_ones_own_is_looked_at(monkeypatch):
    import zerowait.verl.agent.manager as module

    monkeypatch.setattr(module, "Mine", Mine, raising=False)
    monkeypatch.setattr(module, "Stranger", Stranger, raising=False)
    name = f"{module.__name__}.Mine"
    check_agent_loop(config(default_agent_loop="mine", agent_loop_manager_class=name))
    for wrong, says in (("Stranger", "not derived"), ("Missing", "cannot be loaded")):
        name = f"{module.__name__}.{wrong}"
        with pytest.raises(ConfigError, match=says):
            check_agent_loop(config(default_agent_loop="mine", agent_loop_manager_class=name))


def test_the_named_manager_is_the_one_there_is():
    assert f"{AgentLoopManager.__module__}.{AgentLoopManager.__name__}" == MANAGER


def test_rays_copy_of_the_worker_begins_as_verls_does_in_another_process(tmp_path):
    """Ray sends what a worker inherits by value, and verl's own class is not to be found by name."""
    program = tmp_path / "begin.py"
    program.write_text(
        "import sys, warnings; warnings.simplefilter('ignore')\n"
        "from ray import cloudpickle\n"
        "kind = cloudpickle.loads(open(sys.argv[1], 'rb').read())\n"
        "try:\n    kind()\nexcept TypeError as error:\n    print(error)\n"
    )
    sent = tmp_path / "worker.pickle"
    sent.write_bytes(
        cloudpickle.dumps(ray.remote(AgentLoopRewardWorker).__ray_metadata__.modified_class)
    )
    done = subprocess.run(
        [sys.executable, program, sent], capture_output=True, text=True, check=False, timeout=120
    )
    assert "missing" in done.stdout, done.stderr  # verl's own arguments, and not who `super` is
