"""How long a step waits for its rewards, and how many of them may be missing."""

from __future__ import annotations

import math
from typing import Final

REDEEM_S: Final = 600.0
MAX_ABSTAINED: Final = 0.5


def check_limits(*, redeem_s: float, max_abstained: float) -> None:
    """Raise a ValueError unless `redeem_s` is greater than 0 and `max_abstained` in (0, 1]."""
    if not (math.isfinite(redeem_s) and redeem_s > 0):
        raise ValueError(f"redeem_s must be greater than 0, not {redeem_s}")
    if not 0 < max_abstained <= 1:
        raise ValueError(f"max_abstained must be in (0, 1], not {max_abstained}")
