"""zerowait for verl, as a plug-in.

Importing this package loads neither verl, Ray nor torch. verl imports `zerowait.verl.plugin`
through the entry point ``verl.plugins``, in every process of a run.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zerowait.verl.batch import (
        AsyncOpenAIManager,
        AsyncOpenAIWorker,
        LengthPenaltyConfig,
        LengthPenaltyRewardManager,
        get_request_hash,
    )
    from zerowait.verl.batch.scores import acompute_score, compute_score

__all__ = [
    "AsyncOpenAIManager",
    "AsyncOpenAIWorker",
    "LengthPenaltyConfig",
    "LengthPenaltyRewardManager",
    "acompute_score",
    "compute_score",
    "get_request_hash",
]

_FUNCTIONS = ("acompute_score", "compute_score")


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: verl loads this package in every process of a run."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # the functions have a module of their own, because importing it reads the environment
    module = "zerowait.verl.batch.scores" if name in _FUNCTIONS else "zerowait.verl.batch"
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value
