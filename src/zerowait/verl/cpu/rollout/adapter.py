"""verl's rollout adapter in a training worker: sends the trained weights to its rollout server."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import ray
import torch
from verl.workers.rollout.base import BaseRollout

from zerowait.errors import ConfigError
from zerowait.verl.cpu.rollout.settings import check_parallelism, server_name
from zerowait.verl.cpu.rollout.weights import buckets


class ServerAdapter(BaseRollout):
    """verl's client of a rollout server; one per training rank, each with a replica of its own.

    Args:
        config: verl's rollout configuration.
        model_config: verl's model configuration.
        device_mesh: of the training workers.
        replica_rank: of the server; -1 for this process's rank.

    Raises:
        ConfigError: the rollout would have to split the model over several devices.
    """

    def __init__(
        self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1
    ) -> None:
        super().__init__(config, model_config, device_mesh)
        check_parallelism(self.config)
        rank = int(os.environ.get("RANK", "0"))
        self.replica_rank = rank if replica_rank == -1 else replica_rank
        self.is_leader_rank = True
        self._server: Any = None

    @property
    def _handle(self) -> Any:
        # Looked up at the first call: the server starts after this training worker.
        if self._server is None:
            self._server = ray.get_actor(server_name(self.replica_rank))
        return self._server

    async def resume(self, tags: Sequence[str]) -> None:
        """Move the server's weights to its device, or resume decoding, as `tags` say."""
        await self._handle.wake_up.remote(tags=list(tags))

    async def release(self) -> None:
        """Free the server's memory on the device."""
        await self._handle.sleep.remote()

    async def update_weights(
        self,
        weights: Iterable[tuple[str, torch.Tensor]] | AsyncIterator[tuple[str, torch.Tensor]],
        wire_format: str = "named_tensors",
        *,
        global_steps: int | None = None,
        peft_config: Any = None,
        **_: Any,
    ) -> None:
        """Replace all of the server's weights; it decodes nothing until the update is complete.

        Args:
            weights: names and tensors.
            wire_format: must be ``named_tensors``.
            global_steps: the training step, which becomes the version of the weights.
            peft_config: must be None.

        Raises:
            ConfigError: the weights are a LoRA adapter or a difference.
            WeightMismatchError: they are not the weights of the server's model.
        """
        if peft_config is not None:
            raise ConfigError(
                "the transformers rollout takes whole weights: set "
                "actor_rollout_ref.model.lora.merge=True"
            )
        if wire_format != "named_tensors":
            raise ConfigError(f"the transformers rollout has no weights as {wire_format!r}")
        limit_bytes = self.config.checkpoint_engine.update_weights_bucket_megabytes << 20
        dtype = getattr(torch, self.config.dtype)
        await self._handle.begin_update.remote()
        async for bucket in buckets(weights, limit_bytes=limit_bytes, dtype=dtype):
            await self._handle.load_weights.remote(bucket)
        await self._handle.finish_update.remote(global_steps)
