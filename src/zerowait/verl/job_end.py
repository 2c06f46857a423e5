"""Close the job's hub when verl's trainer process ends, so that its budget reservations settle.

When that process ends, for whatever reason, Ray kills every actor of the job, the hub among them,
and what a killed hub had reserved of a budget would stay reserved for ever. Closing the hub first
releases what was not sent, and charges what was sent: what its reply bills, or its worst case.
"""

from __future__ import annotations

import atexit
import sys
from contextlib import suppress
from typing import Any, Final

_TRAINER: Final = "verl.trainer.main_ppo"
_HUB: Final = "zerowait-hub"
_DRAIN_S: Final = 3.0
_TIMEOUT_S: Final = 8.0  # `zerowait train` kills verl 20 s after an interrupt


def close_at_exit() -> None:
    """Register the closing of the job's hub for the exit of verl's trainer process.

    Ray's own exit handler runs later: handlers run in reverse order, and verl imports Ray first.
    """
    atexit.register(_close_as_trainer)


def _close_as_trainer() -> None:
    # asked here and not at import, when the trainer's module is not the main one yet
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if getattr(spec, "name", None) == _TRAINER and "ray" in sys.modules:
        with suppress(Exception):  # must not hide the error that ended the training
            close_hubs()


def close_hubs(*, drain_s: float = _DRAIN_S, timeout_s: float = _TIMEOUT_S) -> int:
    """Close the hubs of this job; returns their number.

    Args:
        drain_s: seconds that requests in flight have to finish.
        timeout_s: seconds to wait for all hubs.
    """
    import ray

    if not ray.is_initialized():
        return 0
    closing = [hub.aclose.remote(drain_s) for hub in _own_hubs(ray)]
    if closing:
        ray.wait(closing, num_returns=len(closing), timeout=timeout_s)
    return len(closing)


def _own_hubs(ray: Any) -> list[Any]:
    job = ray.get_runtime_context().get_job_id()
    names = [name for name in ray.util.list_named_actors() if name.startswith(_HUB)]
    hubs = []
    for name in names:
        with suppress(ValueError):  # it ended meanwhile
            hubs.append(ray.get_actor(name))
    # another job in the same namespace keeps its own
    return [hub for hub in hubs if hub._actor_id.job_id.hex() == job]  # noqa: SLF001
