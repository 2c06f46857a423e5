"""The CPU as a verl platform, selected by ``VERL_PLATFORM=cpu`` only."""

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
    """verl's platform interface for a CPU.

    Devices are logical: ``ray_kwargs.ray_init.num_gpus`` gives Ray that many GPUs, because verl
    counts no other resource, and each training worker takes one.
    """

    @property
    def device_name(self) -> str:
        """Torch's device type."""
        return "cpu"

    @property
    def vendor_name(self) -> str:
        """The platform's name."""
        return "cpu"

    @property
    def device_module(self) -> ModuleType:
        """The module in place of ``torch.cuda``."""
        return cpu_device

    def is_available(self) -> bool:
        """True: a CPU can always be used."""
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:  # noqa: FBT001, FBT002
        """False: verl must not select it by itself, or a machine's GPU would not be used."""
        del use_smi_check
        return False

    def current_device(self) -> Any:
        """The device that tensors go to; verl only ever passes it to ``.to()``."""
        return torch.device("cpu")

    def device_count(self) -> int:
        """Number of devices that a process sees: 1."""
        return 1

    def set_device(self, device_index: int) -> None:
        """Does nothing: there is one device."""

    def synchronize(self, device_index: int | None = None) -> None:
        """Does nothing: nothing runs asynchronously."""

    def manual_seed(self, seed: int) -> None:
        """Seed torch's random number generator."""
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed torch's random number generator."""
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """Does nothing: the allocator has no settings."""

    def empty_cache(self) -> None:
        """Does nothing: the allocator has no cache."""

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        """(None, None): a CPU has no compute capability."""
        del device_index
        return None, None

    def communication_backend_name(self) -> str:
        """``gloo``; a training worker joins its process group as a side effect.

        verl would create the group with ``cpu:gloo,<device>:<name>``, and torch refuses a list that
        names the CPU twice. verl uses a group that exists already, and this is its last call before
        it would create one.
        """
        _join_process_group()
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """The environment variable that Ray sets for the logical devices."""
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        """Does nothing: no ranges are recorded."""
        del msg
        yield

    def profiler_start(self) -> None:
        """Does nothing: there is no device profiler."""

    def profiler_stop(self) -> None:
        """Does nothing: there is no device profiler."""

    def ray_resource_name(self) -> str:
        """The Ray resource that verl counts."""
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        """Empty: nothing reads the device variable that Ray sets."""
        return []

    def is_ipc_supported(self) -> bool:
        """False: there is no device memory to share between processes."""
        return False

    def cudart(self) -> Any:
        """None: there is no CUDA runtime."""
        return None


def _join_process_group() -> None:
    from torch import distributed

    if not in_training_worker() or distributed.is_initialized():
        return
    distributed.init_process_group(
        "gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"])
    )
