"""The socket through which verl hands new weights to vLLM, which two trainings must not share."""

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
    """Hold the host's place for a training whose weights go to vLLM through verl's socket.

    verl 0.9.1 names its socket in ``/tmp`` by Ray's job id, replica and rank. Every Ray that a
    training starts for itself counts its jobs from 1, so that two trainings on one host would send
    their weights to each other's rollouts. Within one Ray each has an id of its own.

    Raises:
        ConfigError: another such training runs on this host.
    """
    shares = setup.engine == "vllm" and setup.ray_address is None and not setup.rollout_devices
    if not shares or sys.platform != "linux":
        yield
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as held:
        try:
            held.bind(name)  # an abstract name: it ends with this process, however that ends
        except OSError:
            raise ConfigError(
                "another `zerowait train` with vLLM runs on this host with a Ray of its own, and "
                "verl would send the weights of both through one socket "
                "(/tmp/rl-colocate-zmq-...): start one Ray for both (ray start --head) and write "
                "resources: {ray_address: auto}, or wait for the other to end"
            ) from None
        yield
