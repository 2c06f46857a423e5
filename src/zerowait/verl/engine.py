"""verl's FSDP2 engines on the CPU: importing this module registers them.

One thing has to differ: verl keeps the reference model in pinned host memory and moves it to the
accelerator layer by layer. On a CPU there is nothing to move and no pinned memory, so the
reference model is sharded exactly as the actor is.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithValueHead

BACKEND = "fsdp2"
DEVICE = "cpu"


class _NoOffload:
    """Shards a model without an offload policy."""

    engine_config: Any

    def _build_fsdp_module(self, module: Any) -> Any:
        given = self.engine_config
        self.engine_config = dataclasses.replace(given, forward_only=False, offload_policy=False)
        try:
            return super()._build_fsdp_module(module)  # type: ignore[misc]
        finally:
            self.engine_config = given


class CpuLanguageEngine(_NoOffload, FSDPEngineWithLMHead):
    """The engine of actor and reference model."""


class CpuValueEngine(_NoOffload, FSDPEngineWithValueHead):
    """The engine of the critic."""


def register() -> None:
    """Make the engines known to verl; a second call changes nothing."""
    for model_type, engine in (
        ("language_model", CpuLanguageEngine),
        ("value_model", CpuValueEngine),
    ):
        known = EngineRegistry._engines.get(model_type, {}).get(BACKEND, {})  # noqa: SLF001
        if DEVICE not in known:
            EngineRegistry.register(model_type=model_type, backend=BACKEND, device=DEVICE)(engine)


register()
