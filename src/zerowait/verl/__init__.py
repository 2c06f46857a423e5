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

__all__ = [
    "AsyncOpenAIManager",
    "AsyncOpenAIWorker",
    "LengthPenaltyConfig",
    "LengthPenaltyRewardManager",
    "get_request_hash",
]


def __getattr__(name: str) -> Any:
    """What users import from here; the plug-in, which every process of a run loads, needs none."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module("zerowait.verl.batch"), name)
    globals()[name] = value
    return value
