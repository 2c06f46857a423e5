"""Settings of the whole suite."""

from pathlib import Path

import pytest
from hypothesis import settings

# Real processes, real servers and real models: seconds each, where a unit test takes milliseconds.
WIRE = ("chaos", "cli", "hub", "recipes", "testing", "verl")

# The machine may be busy: a property says what holds, not how fast.
settings.register_profile("zerowait", deadline=None, max_examples=50)
settings.load_profile("zerowait")


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and item.path.relative_to(here).parts[0] in WIRE:
            item.add_marker(pytest.mark.wire)
