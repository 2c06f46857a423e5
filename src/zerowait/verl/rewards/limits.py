"""How long a step waits for its rewards, and how many of them may be missing."""

from __future__ import annotations

import math
from typing import Final

REDEEM_S: Final = 600.0
MAX_ABSTAINED: Final = 0.5
MAX_SAMPLED_BATCHES: Final = 20
"""Of a step whose groups are filtered. A policy that is right or wrong in nine of ten groups
throughout needs ten."""


def check_limits(*, redeem_s: float, max_abstained: float, max_sampled_batches: int) -> None:
    """Raise a ValueError unless each is in its range.

    `redeem_s` is greater than 0, `max_abstained` in (0, 1], `max_sampled_batches` at least 1.
    """
    if not (math.isfinite(redeem_s) and redeem_s > 0):
        raise ValueError(f"redeem_s must be greater than 0, not {redeem_s}")
    if not 0 < max_abstained <= 1:
        raise ValueError(f"max_abstained must be in (0, 1], not {max_abstained}")
    if max_sampled_batches < 1:
        raise ValueError(f"max_sampled_batches must be at least 1, not {max_sampled_batches}")
