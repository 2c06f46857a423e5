"""verl's FSDP2 engines on a CPU, for actor, reference model and critic. Importing registers them.

They differ twice from verl's. verl keeps the reference model in pinned host memory and moves
it to the accelerator layer by layer; a CPU has no pinned memory, so the reference model is sharded
as the actor is. And verl only loads a critic with the flash-attn package, which needs a GPU.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithValueHead

BACKEND = "fsdp2"
DEVICE = "cpu"


class CpuEngine(FSDPEngineWithLMHead):
    """FSDP2 engine that shards every model without an offload policy."""

    engine_config: Any

    def _build_fsdp_module(self, module: Any) -> Any:
        original = self.engine_config
        self.engine_config = dataclasses.replace(original, forward_only=False, offload_policy=False)
        try:
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config = original


class CpuCritic(CpuEngine, FSDPEngineWithValueHead):
    """Critic: the policy's layers with a head of one value per token.

    It is loaded as verl loads any other model, by the class in the model's configuration, which is
    set to a token classifier with one label.
    """

    model_config: Any

    def _build_module(self) -> Any:
        files, kind = self.model_config.hf_config, self.model_config.model_type
        architecture: str = files.architectures[0]
        family, _, _ = architecture.partition("For")
        files.architectures = [f"{family}ForTokenClassification"]
        # one value per token, without dropout: a value must be repeatable
        files.num_labels, files.classifier_dropout, files.hidden_dropout = 1, 0.0, 0.0
        self.model_config.model_type = "language_model"
        try:
            return super()._build_module()
        finally:
            self.model_config.model_type = kind


for _model_type, _engine in (("language_model", CpuEngine), ("value_model", CpuCritic)):
    EngineRegistry.register(model_type=_model_type, backend=BACKEND, device=DEVICE)(_engine)
