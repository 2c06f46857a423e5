"""Length shaping: a group's lengths, rule scores and targets in, penalties out. Pure."""

from __future__ import annotations

from zerowait.shaping.cosine import cosine_between
from zerowait.shaping.group import GroupView, Penalties, Shape
from zerowait.shaping.group_linear import group_linear
from zerowait.shaping.kimi import kimi_length_reward
from zerowait.shaping.lcpo import lcpo_exact, lcpo_max
from zerowait.shaping.median_band import median_band
from zerowait.shaping.overlong import hard_cap, soft_overlong
from zerowait.shaping.repetition import repetition
from zerowait.shaping.table import SHAPES, resolve_shape

__all__ = [
    "SHAPES",
    "GroupView",
    "Penalties",
    "Shape",
    "cosine_between",
    "group_linear",
    "hard_cap",
    "kimi_length_reward",
    "lcpo_exact",
    "lcpo_max",
    "median_band",
    "repetition",
    "resolve_shape",
    "soft_overlong",
]
