"""Settings of the whole suite."""

from pathlib import Path

import pytest
from hypothesis import settings

# Real processes, real servers and real models: seconds each, where a unit test takes milliseconds.
WIRE = frozenset({"chaos", "cli", "hub", "recipes", "testing", "verl"})
WIRE_FILES = frozenset(
    {
        "cache/test_redis.py",
        "client/test_apis.py",
        "client/test_transport.py",
        "client/test_wire.py",
        "engine/test_function_faults.py",
        "engine/test_judge_kinds.py",
        "engine/test_pool.py",
        "engine/test_rewards.py",
        "search/test_retriever.py",
    }
)

# The machine may be busy: a property says what holds, not how fast.
settings.register_profile("zerowait", deadline=None, max_examples=50)
settings.load_profile("zerowait")


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if not item.path.is_relative_to(here):
            continue
        file = item.path.relative_to(here)
        if file.parts[0] in WIRE or file.as_posix() in WIRE_FILES:
            item.add_marker(pytest.mark.wire)
