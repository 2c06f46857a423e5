"""What verl asks of ``torch.cuda``, answered for a CPU: the module behind `CpuPlatform`.

``is_available`` says no, which makes verl leave out its memory book-keeping. Streams, events and
graphs are not here, so that code that needs them fails where it asks for them.
"""

from __future__ import annotations

import os
from typing import Any

import torch


def is_available() -> bool:
    """Whether there is an accelerator: no."""
    return False


def device_count() -> int:
    """How many devices this process sees."""
    return 1


def current_device() -> Any:
    """The device of this process."""
    return torch.device("cpu")


def get_device_name(device: Any = None) -> str:
    """The name under which verl looks up the peak speed; it has none for it."""
    del device
    return "CPU"


def set_device(device: Any) -> None:
    """There is only one."""


def synchronize(device: Any = None) -> None:
    """Nothing runs behind our back."""


def empty_cache() -> None:
    """The allocator keeps nothing that could be given back."""


def ipc_collect() -> None:
    """As `empty_cache`."""


def reset_peak_memory_stats(device: Any = None) -> None:
    """No peak is recorded."""


def memory_allocated(device: Any = None) -> int:
    """Bytes on an accelerator."""
    del device
    return 0


memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes of the machine's memory."""
    del device
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


def get_rng_state(device: Any = None) -> torch.Tensor:
    """The state of torch's random numbers."""
    del device
    return torch.get_rng_state()


def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    """Put torch's random numbers back to `state`."""
    del device
    torch.set_rng_state(state)
