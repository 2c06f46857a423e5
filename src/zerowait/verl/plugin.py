"""The entry point ``verl.plugins``: importing this module registers zerowait's parts with verl.

verl imports it during ``import verl``, in every process (vLLM's among them), calls nothing in it,
and hides its exceptions. So it never raises and imports nothing of verl's: each part is registered
when the module that holds its registry is imported. `registered` lists the results, which
``zerowait doctor verl`` shows. One part registers nothing: it raises the limit of concurrent calls
of verl's rollout servers.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from zerowait.verl.import_hook import on_import
from zerowait.verl.job_end import close_at_exit
from zerowait.verl.process_role import in_training_worker

REWARD_MANAGER = "zerowait"
ROLLOUT = "transformers"
PLATFORM = "cpu"
AGENT_LOOP = "search"
ROLLOUT_CALLS: Final = 100_000
"""The most concurrent calls of a rollout server's actor; waiting requests count."""


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """The result of registering one part of the plug-in.

    Args:
        what: kind and name, such as ``rollout transformers``.
        where: verl's module that holds the registry, or the class that is changed.
        status: ``registered`` (now, or when that module is imported), ``skipped`` because this
            process does not need it, or ``failed``.
        error: type and text of the exception, if it failed.
    """

    what: str
    where: str
    status: str
    error: str = ""


def registered() -> tuple[Registration, ...]:
    """The results of all registrations in this process."""
    return tuple(_REGISTRATIONS.values())


def import_registries() -> None:
    """Import verl's registries, so that no registration is still waiting for one.

    Raises:
        ImportError: a module of verl's cannot be imported.
    """
    for _, module, _, needed in _PARTS:
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


def _raise_call_limit() -> None:
    """Let more calls into verl's rollout servers than its own limit of about a thousand.

    In the asynchronous modes requests wait in the server while it is paused for new weights. Where
    more of them wait than the limit lets in, the call that ends the pause is kept out, and all wait
    for ever. Seen with 2,048 requests on vLLM.
    """
    from verl.workers.rollout.replica import RolloutReplica

    limit_of_verl: Callable[[Any], int] = RolloutReplica.max_concurrency.fget

    def max_concurrency(replica: Any) -> int:
        return max(limit_of_verl(replica), ROLLOUT_CALLS)

    RolloutReplica.max_concurrency = property(max_concurrency)


def _register_agent_loop() -> None:
    """Registered by name; verl imports it in the process that runs it."""
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry

    _agent_loop_registry[AGENT_LOOP] = {
        "_target_": "zerowait.verl.agent.search_loop.SearchAgentLoop"
    }


def _importing(module: str) -> Callable[[], None]:
    """The import of one of our modules, which registers its classes itself."""

    def register() -> None:
        importlib.import_module(module)

    return register


def _on_cpu() -> bool:
    return os.environ.get("VERL_PLATFORM", "").strip().lower() == PLATFORM


def _trains_on_cpu() -> bool:
    """For the engine: heavy to import, and only used in training workers."""
    return _on_cpu() and in_training_worker()


def _may_score_or_roll_out() -> bool:
    """For what is heavy to import and never used in training workers."""
    return not in_training_worker()


def _always() -> bool:
    return True


def _attempt(what: str, where: str, register: Callable[[], None]) -> None:
    """Register one part and store the result."""
    try:
        register()
    except Exception as error:  # noqa: BLE001 - verl would hide it; the result must show it
        text = f"{type(error).__name__}: {error}"
        _REGISTRATIONS[what] = Registration(what=what, where=where, status="failed", error=text)
    else:
        _REGISTRATIONS[what] = Registration(what=what, where=where, status="registered")


def _schedule(
    what: str, module: str, register: Callable[[], None], needed: Callable[[], bool]
) -> None:
    """Register a part when `module` is imported, if this process needs the part."""
    status = "registered" if needed() else "skipped"
    _REGISTRATIONS[what] = Registration(what=what, where=module, status=status)
    if status == "registered":
        on_import(module, partial(_attempt, what, module, register))


_PARTS: Final = (
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
        "call limit of rollout servers",
        "verl.workers.rollout.replica",
        _raise_call_limit,
        _may_score_or_roll_out,
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
"""Name, verl's module that holds the registry, how to register, and whether it is needed here."""
_REGISTRATIONS: dict[str, Registration] = {}

for entry in _PARTS:
    _schedule(*entry)
close_at_exit()
