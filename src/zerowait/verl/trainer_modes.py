"""Names of trainer modes (``trainer.v1.trainer_mode``). Imports nothing."""

from __future__ import annotations

from typing import Final

BASE_MODES: Final = {
    "zerowait": "sync",
    "zerowait_colocate_async": "colocate_async",
    "zerowait_separate_async": "separate_async",
}
"""zerowait's modes, which give tickets, and the mode of verl's that each extends."""

STOPPABLE_MODES: Final = ("sync", *BASE_MODES)
"""The modes in which an error stops a step that samples without end; verl's own asynchronous modes
draw another prompt instead."""

SEPARATE_MODES: Final = ("separate_async", "zerowait_separate_async")
"""The modes in which rollouts run on devices of their own."""
