"""The names of our trainer modes, without anything heavy."""

from __future__ import annotations

from typing import Final

BASE_MODES: Final = {
    "zerowait": "sync",
    "zerowait_colocate_async": "colocate_async",
    "zerowait_separate_async": "separate_async",
}
"""Our modes, in ``trainer.v1.trainer_mode``, and the mode of verl's that each is built on."""

STOPPABLE_MODES: Final = ("sync", *BASE_MODES)
"""The modes in which a training that samples for ever can be stopped: in verl's own asynchronous
ones an error has another prompt drawn."""

SEPARATE_MODES: Final = ("separate_async", "zerowait_separate_async")
"""The modes whose rollouts have devices of their own."""
