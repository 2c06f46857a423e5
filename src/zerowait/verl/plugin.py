"""The ``verl.plugins`` entry point: importing this module registers all we bring.

verl imports it inside ``import verl``, in every process (vLLM's among them), calls nothing in it,
and hides whatever it raises. So it never raises, and imports nothing of verl's: what belongs to one
of verl's registries is put there once somebody imports the registry. It keeps account: `registered`
says what became of each, and ``zerowait doctor verl`` shows it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from zerowait.verl.import_hook import on_import
from zerowait.verl.process_role import in_training_worker
from zerowait.verl.rewards.job_end import close_at_exit

REWARD_MANAGER = "zerowait"
ROLLOUT = "transformers"
PLATFORM = "cpu"
AGENT_LOOP = "search"


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one thing that the plug-in registers.

    Args:
        what: kind and name, such as ``rollout transformers``.
        where: the module of verl's whose registry it belongs to.
        status: ``registered``, now or when that module is imported, ``skipped`` because this
            process does not need it, or ``failed``.
        error: type and text of the exception, when it failed.
    """

    what: str
    where: str
    status: str
    error: str = ""


def registered() -> tuple[Registration, ...]:
    """What was registered in this process, or will be when its registry is there; and why not."""
    return tuple(_ACCOUNT.values())


def import_registries() -> None:
    """Import whatever a registration waits for, so that the account is complete.

    Raises:
        ImportError: a module of verl's cannot be imported.
    """
    for _, module, _, needed in _ENTRIES:
        if needed():
            importlib.import_module(module)


def _register_platform() -> None:
    from verl.plugin.platform.platform_manager import PlatformRegistry

    from zerowait.verl.cpu.platform import CpuPlatform

    PlatformRegistry.register(PLATFORM)(CpuPlatform)


def _register_rollout() -> None:
    from verl.workers.rollout.base import _ROLLOUT_REGISTRY  # verl offers no function for it

    _ROLLOUT_REGISTRY[ROLLOUT, "async"] = "zerowait.verl.cpu.rollout.adapter.ServerAdapter"


def _register_replica() -> None:
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    RolloutReplicaRegistry.register(ROLLOUT, _load_replica)


def _load_replica() -> Any:
    from zerowait.verl.cpu.rollout.replica import TransformersReplica

    return TransformersReplica


def _register_agent_loop() -> None:
    """By name: verl imports it in the process that runs it."""
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry

    _agent_loop_registry[AGENT_LOOP] = {
        "_target_": "zerowait.verl.agent.search_loop.SearchAgentLoop"
    }


def _importing(module: str) -> Callable[[], None]:
    """A registration that a module of ours makes when it is imported."""

    def register() -> None:
        importlib.import_module(module)

    return register


def _on_cpu() -> bool:
    return os.environ.get("VERL_PLATFORM", "").strip().lower() == PLATFORM


def _trains_on_cpu() -> bool:
    """The engine is heavy to import, and only a training worker asks for it."""
    return _on_cpu() and in_training_worker()


def _may_score_or_roll_out() -> bool:
    """Both are heavy to import, and a training worker never asks for either."""
    return not in_training_worker()


def _always() -> bool:
    return True


def _attempt(what: str, where: str, register: Callable[[], None]) -> None:
    """Register, and put down what became of it."""
    try:
        register()
    except Exception as error:  # noqa: BLE001 - verl would hide it; the account must not
        text = f"{type(error).__name__}: {error}"
        _ACCOUNT[what] = Registration(what=what, where=where, status="failed", error=text)
    else:
        _ACCOUNT[what] = Registration(what=what, where=where, status="registered")


def _plan(what: str, module: str, register: Callable[[], None], needed: Callable[[], bool]) -> None:
    """Register once `module` has been imported, if this process has a use for it."""
    status = "registered" if needed() else "skipped"
    _ACCOUNT[what] = Registration(what=what, where=module, status=status)
    if status == "registered":
        on_import(module, partial(_attempt, what, module, register))


_ENTRIES: Final = (
    (
        f"platform {PLATFORM}",
        "verl.plugin.platform.platform_manager",
        _register_platform,
        _on_cpu,
    ),
    (f"rollout {ROLLOUT}", "verl.workers.rollout.base", _register_rollout, _always),
    (
        f"rollout replica {ROLLOUT}",
        "verl.workers.rollout.replica",
        _register_replica,
        _always,
    ),
    (
        "engine fsdp2 on cpu",
        "verl.workers.engine",
        _importing("zerowait.verl.cpu.engine"),
        _trains_on_cpu,
    ),
    (
        f"reward manager {REWARD_MANAGER}",
        "verl.experimental.reward_loop.reward_manager",
        _importing("zerowait.verl.rewards.manager"),
        _may_score_or_roll_out,
    ),
    (
        f"agent loop {AGENT_LOOP}",
        "verl.experimental.agent_loop.agent_loop",
        _register_agent_loop,
        _may_score_or_roll_out,
    ),
    (
        "trainer mode zerowait",
        "verl.trainer.ppo.v1",
        _importing("zerowait.verl.trainer.ticket_trainer"),
        _may_score_or_roll_out,
    ),
)
"""What, the module of verl's that it waits for, how it is registered, and who needs it."""
_ACCOUNT: dict[str, Registration] = {}

for entry in _ENTRIES:
    _plan(*entry)
close_at_exit()
