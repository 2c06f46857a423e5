import resource

import pytest

from zerowait.scorers.memory import bounded_growth


def test_an_allocation_beyond_the_bound_fails_and_later_ones_do_not():
    before = resource.getrlimit(resource.RLIMIT_AS)
    with bounded_growth(1 << 25), pytest.raises(MemoryError):
        bytearray(1 << 27)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert len(bytearray(1 << 26)) == 1 << 26


def test_a_bound_in_force_is_never_raised():
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with bounded_growth(1 << 30):
        first, _ = resource.getrlimit(resource.RLIMIT_AS)
        with bounded_growth(1 << 40):
            assert resource.getrlimit(resource.RLIMIT_AS)[0] == first
    assert resource.getrlimit(resource.RLIMIT_AS) == (soft, hard)
