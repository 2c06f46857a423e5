"""The CPU as one of verl's platforms: chosen by ``VERL_PLATFORM=cpu``, never on its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase

from zerowait.verl.cpu import device as cpu_device
from zerowait.verl.process_role import in_training_worker


class CpuPlatform(PlatformBase):
    """verl's questions about its accelerator, answered for a CPU.

    A device is a logical one: Ray is told that the node has so many GPUs
    (``ray_kwargs.ray_init.num_gpus``), because verl counts no other resource, and each training
    worker takes one of them.
    """

    @property
    def device_name(self) -> str:
        """The device type in torch's words."""
        return "cpu"

    @property
    def vendor_name(self) -> str:
        """The platform's own name."""
        return "cpu"

    @property
    def device_module(self) -> ModuleType:
        """The stand-in for ``torch.cuda``."""
        return cpu_device

    def is_available(self) -> bool:
        """Whether it can be used: always."""
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:  # noqa: FBT001, FBT002
        """Whether verl may choose it unasked: never, or machines with a GPU would be left idle."""
        del use_smi_check
        return False

    def current_device(self) -> Any:
        """The device that tensors go to; verl only ever passes it to ``.to()``."""
        return torch.device("cpu")

    def device_count(self) -> int:
        """How many devices a process sees."""
        return 1

    def set_device(self, device_index: int) -> None:
        """There is only one."""

    def synchronize(self, device_index: int | None = None) -> None:
        """Nothing runs behind our back."""

    def manual_seed(self, seed: int) -> None:
        """Seed torch's random numbers."""
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed torch's random numbers."""
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """The CPU's allocator has none."""

    def empty_cache(self) -> None:
        """Nothing is kept."""

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        """A CUDA notion, absent here."""
        del device_index
        return None, None

    def communication_backend_name(self) -> str:
        """``gloo``; a training worker is a member of its process group afterwards.

        verl asks for the name to write ``cpu:gloo,<device>:<name>``, and torch refuses a list that
        names the CPU twice. But verl uses a group that is there already, and this is the last
        question before it would make one.
        """
        _join_process_group()
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """The variable that Ray sets for the logical devices."""
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        """No ranges are recorded."""
        del msg
        yield

    def profiler_start(self) -> None:
        """No device profiler."""

    def profiler_stop(self) -> None:
        """No device profiler."""

    def ray_resource_name(self) -> str:
        """The only resource that verl counts."""
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        """Ray may set the device variable as it likes: nothing reads it."""
        return []

    def is_ipc_supported(self) -> bool:
        """Whether device memory can be shared between processes."""
        return False

    def cudart(self) -> Any:
        """No CUDA runtime."""
        return None


def _join_process_group() -> None:
    from torch import distributed

    if not in_training_worker() or distributed.is_initialized():
        return
    distributed.init_process_group(
        "gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"])
    )
