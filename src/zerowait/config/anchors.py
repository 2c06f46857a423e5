"""When a judge's anchors are asked again."""

from __future__ import annotations

import msgspec

from zerowait.config.checks import positive


class EverySteps(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every so many training steps, by the ``step`` that samples carry."""

    steps: int

    def __post_init__(self) -> None:
        positive("steps", self.steps)
