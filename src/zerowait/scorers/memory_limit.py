"""A limit on the memory that a computation may allocate."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_STATM = Path("/proc/self/statm")


@contextlib.contextmanager
def bounded_growth(most_bytes: int) -> Iterator[None]:
    """A context in which the process may grow by at most `most_bytes`.

    An allocation beyond that raises a MemoryError, an ordinary failure of the computation. The
    limit is of the whole process: use it where nothing else runs. Systems without ``/proc`` have
    no limit.
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
