"""Lock against two trainings on one host that would share verl's weight socket for vLLM."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from zerowait.errors import ConfigError
from zerowait.verl.launch.training_setup import TrainingSetup

_NAME: Final = "\0zerowait-train-weights"


@contextmanager
def weight_socket(setup: TrainingSetup, *, name: str = _NAME) -> Iterator[None]:
    """Hold this host's lock while a training sends weights to vLLM through verl's socket.

    verl 0.9.1 names that socket in ``/tmp`` by Ray's job id, replica and rank. Each Ray cluster
    that a training starts counts its jobs from 1, so two such trainings on one host would send
    their weights to each other's rollouts. In a shared cluster every job has an id of its own.

    Args:
        setup: of the training; the lock is only taken for vLLM with a Ray of its own.
        name: of the lock, an abstract Unix socket.

    Raises:
        ConfigError: another such training runs on this host.
    """
    shares = setup.engine == "vllm" and setup.ray_address is None and not setup.rollout_devices
    if not shares or sys.platform != "linux":
        yield
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as held:
        try:
            held.bind(name)  # an abstract socket: the kernel frees it when this process ends
        except OSError:
            raise ConfigError(
                "another `zerowait train` with vLLM runs on this host with a Ray of its own, and "
                "verl would send the weights of both through one socket "
                "(/tmp/rl-colocate-zmq-...): start one Ray for both (ray start --head) and write "
                "resources: {ray_address: auto}, or wait for the other to end"
            ) from None
        yield
