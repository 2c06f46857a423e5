"""Claims of processes on keys: a lock on one byte of a file beside the cache, for each key.

The process that claims a key asks the judge; others wait for its reply. The system releases the
locks of a process that ends in any way, so that no claim outlives its process, and none has to be
renewed. Where there are no such locks, every process may ask.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Final

SUFFIX: Final = "-claims"
"""After the name of the cache's file; the file stays empty."""

# Those of the open file and not of the process: two stores of one process are two owners.
_SET_LOCK: Final[int | None] = getattr(fcntl, "F_OFD_SETLK", None)
_FLOCK: Final = struct.Struct("@hhqqi4x")
_POSITION_BITS: Final = 62


class Claims:
    """The claims of one store; used by one thread.

    Args:
        path: of the cache.
    """

    def __init__(self, path: Path) -> None:
        self._held: set[bytes] = set()
        self._fd: int | None = None
        if _SET_LOCK is not None:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            try:
                self._fd = os.open(path.with_name(path.name + SUFFIX), flags, 0o600)
            except OSError:  # the folder is read-only: every process may ask
                self._fd = None

    def take(self, keys: Iterable[bytes]) -> set[bytes]:
        """Those of `keys` that are claimed from now on; not those that are claimed already."""
        taken = {key for key in keys if key not in self._held and self._lock(key, fcntl.F_WRLCK)}
        self._held |= taken
        return taken

    def drop(self, keys: Iterable[bytes]) -> None:
        """Give up those of `keys` that are claimed here."""
        for key in keys:
            if key in self._held:
                self._held.discard(key)
                self._lock(key, fcntl.F_UNLCK)

    def close(self) -> None:
        """Give up all."""
        self._held.clear()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _lock(self, key: bytes, kind: int) -> bool:
        if self._fd is None or _SET_LOCK is None:
            return True
        position = int.from_bytes(blake2b(key, digest_size=8).digest()) >> 64 - _POSITION_BITS
        try:
            fcntl.fcntl(self._fd, _SET_LOCK, _FLOCK.pack(kind, os.SEEK_SET, position, 1, 0))
        except BlockingIOError:
            return False
        except OSError:  # this filesystem, or system, has no such locks
            return True
        return True
