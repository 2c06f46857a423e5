import resource
import subprocess
import sys
import textwrap

from zerowait.scorers.memory_limit import bounded_growth


def in_a_fresh_process(code: str) -> None:
    """Run `code` in a process without a freed heap from which an allocation could come."""
    told = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 0, told.stderr


def test_an_allocation_beyond_the_bound_fails_and_later_ones_do_not():
    in_a_fresh_process(
        """
        import contextlib, resource
        from zerowait.scorers.memory_limit import bounded_growth

        before, failed = resource.getrlimit(resource.RLIMIT_AS), True
        with bounded_growth(1 << 25), contextlib.suppress(MemoryError):
            bytearray(1 << 27)
            failed = False
        assert failed
        assert resource.getrlimit(resource.RLIMIT_AS) == before
        assert len(bytearray(1 << 26)) == 1 << 26
        """
    )


def test_a_heap_that_was_freed_lifts_the_bound_by_no_more_than_its_size():
    """The C library gives freed memory out again: that is no growth, and cannot be bounded."""
    in_a_fresh_process(
        """
        import contextlib
        from zerowait.scorers.memory_limit import bounded_growth

        freed = [bytes(1 << 16) for _ in range(1 << 11)]
        pin = bytes(1 << 10)  # above them, so that the heap under it is kept
        del freed
        failed = True
        with bounded_growth(1 << 25), contextlib.suppress(MemoryError):
            bytearray((1 << 27) + (1 << 26))
            failed = False
        assert failed
        """
    )


def test_a_bound_in_force_is_never_raised():
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with bounded_growth(1 << 30):
        first, _ = resource.getrlimit(resource.RLIMIT_AS)
        with bounded_growth(1 << 40):
            assert resource.getrlimit(resource.RLIMIT_AS)[0] == first
    assert resource.getrlimit(resource.RLIMIT_AS) == (soft, hard)
