"""zerowait inside verl: a plug-in, never a fork.

Importing this package loads neither verl, Ray nor torch. verl itself finds `zerowait.verl.plugin`
through the ``verl.plugins`` entry point, in every process of a run.
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
    """What users import from here; the plug-in, which every process of a run loads, needs none."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # the functions apart, because importing them reads the environment
    module = "zerowait.verl.batch.scores" if name in _FUNCTIONS else "zerowait.verl.batch"
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value
