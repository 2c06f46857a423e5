"""verl's FSDP2 engines on the CPU, for actor, reference model and critic: importing registers them.

Two things have to differ. verl keeps the reference model in pinned host memory and moves it to the
accelerator layer by layer; on a CPU there is nothing to move and no pinned memory, so the
reference model is sharded exactly as the actor is. And verl loads a critic with the flash-attn
package only, which needs a GPU.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithValueHead

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


class CpuCritic(CpuEngine, FSDPEngineWithValueHead):
    """A policy's layers with a head of one value per token, in the configured attention.

    verl's way to load any model but a critic takes the class that the model's configuration names,
    so the configuration names one that gives a number per token.
    """

    model_config: Any

    def _build_module(self) -> Any:
        files, kind = self.model_config.hf_config, self.model_config.model_type
        architecture: str = files.architectures[0]
        family, _, _ = architecture.partition("For")
        files.architectures = [f"{family}ForTokenClassification"]
        # one value per token; a value must not depend on which units were dropped
        files.num_labels, files.classifier_dropout, files.hidden_dropout = 1, 0.0, 0.0
        self.model_config.model_type = "language_model"
        try:
            return super()._build_module()
        finally:
            self.model_config.model_type = kind


for _model_type, _engine in (("language_model", CpuEngine), ("value_model", CpuCritic)):
    EngineRegistry.register(model_type=_model_type, backend=BACKEND, device=DEVICE)(_engine)
