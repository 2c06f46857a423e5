"""A bound on the memory that a computation may take, so that it fails before the machine does."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_STATM = Path("/proc/self/statm")


@contextlib.contextmanager
def bounded_growth(most_bytes: int) -> Iterator[None]:
    """Inside, an allocation that takes the process `most_bytes` beyond its size fails.

    It fails with a MemoryError, which is an ordinary failure of the computation. The bound is the
    whole process's: use it where nothing else runs. On systems without ``/proc`` there is none.
    """
    size = _address_space_bytes()
    if size is None:
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    bound = size + most_bytes
    if soft != resource.RLIM_INFINITY:
        bound = min(bound, soft)
    resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _address_space_bytes() -> int | None:
    try:
        pages = int(_STATM.read_bytes().split()[0])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
