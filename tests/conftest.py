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
        "client/test_soak.py",
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
        file = item.path.relative_to(here) if item.path.is_relative_to(here) else None
        if file and (file.parts[0] in WIRE or file.as_posix() in WIRE_FILES):
            item.add_marker(pytest.mark.wire)
        item.add_marker(pytest.mark.xdist_group(_companions(item, file)))
    # With several workers the longest group starts first, and the rest is done beside it.
    items.sort(key=lambda item: item.get_closest_marker("e2e") is None)


def _companions(item, file):
    """What runs one after the other in one worker: trainings, what is in Ray, and each file."""
    if file and file.parts[0] == "e2e":
        return "e2e"
    if file and file.name.startswith("test_ray_"):
        return "ray"
    return str(file or item.path)
