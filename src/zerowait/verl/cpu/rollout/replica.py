"""Start the rollout server of one data-parallel rank, on the node of its training worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from verl.utils.device import get_device_name, get_resource_name
from verl.workers.rollout.replica import RolloutReplica

from zerowait.errors import ConfigError
from zerowait.verl.cpu.rollout.server import TransformersServer
from zerowait.verl.cpu.rollout.settings import ROLLOUT_NAME, check_parallelism, server_name


def server_actor(
    replica_rank: int, *, node_id: str, environment: Mapping[str, str], calls: int
) -> Any:
    """The server as a Ray actor class for one node, to be created with ``.remote(...)``.

    Args:
        replica_rank: of the server.
        node_id: Ray's id of the node.
        environment: variables of the actor's process.
        calls: the most that run at once; a request that waits to be decoded counts.
    """
    return ray.remote(TransformersServer).options(
        name=server_name(replica_rank),
        num_cpus=0,
        max_concurrency=calls,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node_id, soft=False),
        runtime_env={"env_vars": dict(environment)},
    )


class TransformersReplica(RolloutReplica):
    """One server, on the node and the device of its training worker."""

    async def launch_servers(self) -> None:
        """Start the server and wait until its model is loaded.

        Raises:
            ConfigError: the model would have to be split, or is not the policy.
        """
        check_parallelism(self.config)
        if self.is_reward_model or self.is_teacher_model:
            raise ConfigError("the transformers rollout serves the policy only")
        node_id, device = await self._place()
        environment = {}
        if get_device_name() == "cuda":
            # The actor requests no GPU from Ray, because it shares that of its training worker; Ray
            # hides all GPUs from such an actor unless it is told not to set the variable.
            environment = {
                "CUDA_VISIBLE_DEVICES": device,
                "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            }
        actor = server_actor(
            self.replica_rank,
            node_id=node_id,
            environment=environment,
            calls=self.max_concurrency,
        )
        server = actor.remote(
            self.config,
            self.model_config,
            device=get_device_name(),
            replica_rank=self.replica_rank,
        )
        await server.stats.remote()
        self.servers = [server]
        self._server_handle = server
        self._server_address = f"{ROLLOUT_NAME}:{self.replica_rank}"

    async def _place(self) -> tuple[str, str]:
        """Ray's id of the training worker's node, and its device there."""

        def here(_: Any) -> tuple[str, str]:
            context = ray.get_runtime_context()
            devices = context.get_accelerator_ids().get(get_resource_name()) or ["0"]
            return context.get_node_id(), str(devices[0])

        place: tuple[str, str] = await self.workers[0].__ray_call__.remote(here)
        return place
