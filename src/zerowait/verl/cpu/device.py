"""The functions of ``torch.cuda`` that verl calls, for a CPU: `CpuPlatform`'s device module.

``is_available`` is False, so that verl skips its memory statistics. Streams, events and graphs are
absent, so that code that needs them fails where it uses them.
"""

from __future__ import annotations

import os
from typing import Any

import torch


def is_available() -> bool:
    """False: there is no accelerator."""
    return False


def device_count() -> int:
    """Number of devices that this process sees: 1."""
    return 1


def current_device() -> Any:
    """This process's device."""
    return torch.device("cpu")


def get_device_name(device: Any = None) -> str:
    """The name by which verl looks up a device's peak FLOPS; it has no entry for a CPU."""
    del device
    return "CPU"


def set_device(device: Any) -> None:
    """Does nothing: there is one device."""


def synchronize(device: Any = None) -> None:
    """Does nothing: nothing runs asynchronously."""


def empty_cache() -> None:
    """Does nothing: the allocator has no cache."""


def ipc_collect() -> None:
    """Does nothing, as `empty_cache`."""


def reset_peak_memory_stats(device: Any = None) -> None:
    """Does nothing: no peak is recorded."""


def memory_allocated(device: Any = None) -> int:
    """Bytes allocated on an accelerator: 0."""
    del device
    return 0


memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total memory of the machine, in bytes."""
    del device
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


def get_rng_state(device: Any = None) -> torch.Tensor:
    """The state of torch's random number generator."""
    del device
    return torch.get_rng_state()


def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    """Restore the state of torch's random number generator."""
    del device
    torch.set_rng_state(state)
