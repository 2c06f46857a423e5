"""The ``verl.plugins`` entry point: importing this module registers all we bring.

verl imports it inside ``import verl``, in every process, calls nothing in it, and hides whatever it
raises. So it never raises, loads no more than a registration needs, and keeps account: `registered`
says what became of each, and ``zerowait doctor verl`` shows it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import msgspec

from zerowait.verl.role import in_training_worker
from zerowait.verl.when_imported import when_imported

REWARD_MANAGER = "zerowait"
ROLLOUT = "transformers"
PLATFORM = "cpu"
AGENT_LOOP = "search"
_TRAINER = "trainer mode zerowait"


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one thing that the plug-in registers.

    Args:
        what: kind and name, such as ``rollout transformers``.
        where: the registry it belongs to.
        status: ``registered``, ``skipped`` because this process does not need it, or ``failed``.
        error: type and text of the exception, when it failed.
    """

    what: str
    where: str
    status: str
    error: str = ""


def registered() -> tuple[Registration, ...]:
    """What was registered in this process, what was not, and why."""
    return tuple(_LATER.get(entry.what, entry) for entry in _REGISTRATIONS)


def _register_platform() -> None:
    from verl.plugin.platform.platform_manager import PlatformRegistry

    from zerowait.verl.platform import CpuPlatform

    PlatformRegistry.register(PLATFORM)(CpuPlatform)


def _register_rollout() -> None:
    from verl.workers.rollout import base
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    base._ROLLOUT_REGISTRY[(ROLLOUT, "async")] = (  # noqa: SLF001 - verl offers no function for it
        "zerowait.verl.rollout.adapter.ServerAdapter"
    )
    RolloutReplicaRegistry.register(ROLLOUT, _load_replica)


def _load_replica() -> Any:
    from zerowait.verl.rollout.replica import TransformersReplica

    return TransformersReplica


def _register_engine() -> None:
    importlib.import_module("zerowait.verl.engine")


def _register_reward_manager() -> None:
    importlib.import_module("zerowait.verl.reward_manager")


def _register_agent_loop() -> None:
    """By name: verl imports it in the process that runs it."""
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry

    _agent_loop_registry[AGENT_LOOP] = {"_target_": "zerowait.verl.search_loop.SearchAgentLoop"}


def _register_trainer() -> None:
    """Trainers of verl take seconds to import, and only one process of a run needs them."""
    when_imported("verl.trainer.ppo.v1", _load_trainer)


def _load_trainer() -> None:
    entry = _attempt(_TRAINER, "TRAINER_REGISTRY", _import_trainer, _always)
    _LATER[entry.what] = entry


def _import_trainer() -> None:
    importlib.import_module("zerowait.verl.trainer")


def _on_cpu() -> bool:
    return os.environ.get("VERL_PLATFORM", "").strip().lower() == PLATFORM


def _trains_on_cpu() -> bool:
    """The engine is heavy to import, and only a training worker asks for it."""
    return _on_cpu() and in_training_worker()


def _may_score_or_roll_out() -> bool:
    """Both are heavy to import, and a training worker never asks for either."""
    return not in_training_worker()


def _attempt(
    what: str, where: str, register: Callable[[], None], needed: Callable[[], bool]
) -> Registration:
    try:
        if not needed():
            return Registration(what=what, where=where, status="skipped")
        register()
    except Exception as error:  # noqa: BLE001 - verl would hide it; the account must not
        text = f"{type(error).__name__}: {error}"
        return Registration(what=what, where=where, status="failed", error=text)
    return Registration(what=what, where=where, status="registered")


def _always() -> bool:
    return True


_LATER: dict[str, Registration] = {}
"""What became of a registration that had to wait until verl imported what it belongs to."""

_REGISTRATIONS: tuple[Registration, ...] = tuple(
    _attempt(*entry)
    for entry in (
        (f"platform {PLATFORM}", "PlatformRegistry", _register_platform, _on_cpu),
        (f"rollout {ROLLOUT}", "RolloutReplicaRegistry", _register_rollout, _always),
        ("engine fsdp2 on cpu", "EngineRegistry", _register_engine, _trains_on_cpu),
        (
            f"reward manager {REWARD_MANAGER}",
            "reward_loop.reward_manager.registry",
            _register_reward_manager,
            _may_score_or_roll_out,
        ),
        (
            f"agent loop {AGENT_LOOP}",
            "agent_loop registry",
            _register_agent_loop,
            _may_score_or_roll_out,
        ),
        (_TRAINER, "TRAINER_REGISTRY", _register_trainer, _may_score_or_roll_out),
    )
)
