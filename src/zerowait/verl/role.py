"""What this process is for, as verl's own environment variables tell."""

from __future__ import annotations

import os


def in_training_worker() -> bool:
    """Whether this process is a member of one of verl's Ray worker groups."""
    return os.environ.get("WG_BACKEND") == "ray" and "RANK" in os.environ
