"""Which role this process has in a verl run, by verl's environment variables and actor names."""

from __future__ import annotations

import os
import sys


def in_training_worker() -> bool:
    """Whether this process is a worker of one of verl's Ray worker groups (training)."""
    return os.environ.get("WG_BACKEND") == "ray" and "RANK" in os.environ


def in_reward_worker() -> bool:
    """Whether this process is one of the Ray actors that run verl's reward managers."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return False
    context = ray.get_runtime_context()
    if context.worker.mode != ray.WORKER_MODE:
        return False
    return str(context.get_actor_name()).startswith("reward_loop_worker_")
