"""The end of a training, an orderly one or not: what its hub had reserved is settled first.

When verl's process ends, for whatever reason, Ray kills every actor of the job, the hub among them.
What a killed hub had reserved of a budget would stay reserved for ever. So the process of verl's
trainer closes the hub before Ray does that: what was not sent is given up, and what was sent is
charged what its reply bills, or its worst case.
"""

from __future__ import annotations

import atexit
import sys
from contextlib import suppress
from typing import Any, Final

_TRAINER: Final = "verl.trainer.main_ppo"
_HUB: Final = "zerowait-hub"
_DRAIN_S: Final = 3.0
_PATIENCE_S: Final = 8.0  # `zerowait train` kills verl 20 s after an interrupt


def close_at_exit() -> None:
    """Close the job's hub when this process ends, if it is that of verl's trainer.

    Ray's own handler runs later: handlers run in the reverse order, and verl imports Ray first.
    """
    atexit.register(_close_as_trainer)


def _close_as_trainer() -> None:
    # not asked when verl is imported: the trainer's module is not the main one yet
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if getattr(spec, "name", None) == _TRAINER and "ray" in sys.modules:
        with suppress(Exception):  # whatever ended the training is what has to be seen
            close_hubs()


def close_hubs(*, drain_s: float = _DRAIN_S, patience_s: float = _PATIENCE_S) -> int:
    """Close the hubs that this job has created; how many there were.

    Args:
        drain_s: how long requests that were sent may still bring their answer.
        patience_s: how long to wait for it all.
    """
    import ray

    if not ray.is_initialized():
        return 0
    closing = [hub.aclose.remote(drain_s) for hub in _own_hubs(ray)]
    if closing:
        ray.wait(closing, num_returns=len(closing), timeout=patience_s)
    return len(closing)


def _own_hubs(ray: Any) -> list[Any]:
    job = ray.get_runtime_context().get_job_id()
    names = [name for name in ray.util.list_named_actors() if name.startswith(_HUB)]
    hubs = []
    for name in names:
        with suppress(ValueError):  # it died meanwhile
            hubs.append(ray.get_actor(name))
    # another job in the same namespace keeps its own
    return [hub for hub in hubs if hub._actor_id.job_id.hex() == job]  # noqa: SLF001
