"""verl's FSDP2 engine on the CPU, for actor and reference model: importing this registers it.

One thing has to differ: verl keeps the reference model in pinned host memory and moves it to the
accelerator layer by layer. On a CPU there is nothing to move and no pinned memory, so the
reference model is sharded exactly as the actor is.

There is no engine for a critic, because verl loads one with flash-attn only.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead

MODEL_TYPE = "language_model"
BACKEND = "fsdp2"
DEVICE = "cpu"


class CpuEngine(FSDPEngineWithLMHead):
    """Shards every model without an offload policy."""

    engine_config: Any

    def _build_fsdp_module(self, module: Any) -> Any:
        given = self.engine_config
        self.engine_config = dataclasses.replace(given, forward_only=False, offload_policy=False)
        try:
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config = given


EngineRegistry.register(model_type=MODEL_TYPE, backend=BACKEND, device=DEVICE)(CpuEngine)
