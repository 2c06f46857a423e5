"""The texts of the scripts that run inside a sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Final

PRELUDE: Final = Path(__file__).with_name("prelude.py").read_text()
"""Makes the names known that programs may assume."""

HARNESS: Final = Path(__file__).with_name("harness.py").read_text()
"""Calls a program's functions for its tests."""
