"""Claims in an SQLite file: which process asks a judge for what, so that no other one does.

A claim is a lease. Its process renews it as long as it lives, so that one that was killed keeps
nobody from asking for longer than a lease.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable
from typing import Final

LEASE_S: Final = 15.0
_RENEWALS: Final = 3
_CLAIM: Final = """
    INSERT INTO claims VALUES (?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, until = excluded.until
    WHERE claims.until < ?
"""


class Claims:
    """The claims of one process, used by the thread that owns the connection.

    Args:
        lease_s: how long a claim lasts after its process was last heard of.
        wall: Unix time in seconds.
    """

    def __init__(self, *, lease_s: float = LEASE_S, wall: Callable[[], float] = time.time) -> None:
        self._lease_s = lease_s
        self._wall = wall
        self._owner = os.urandom(8)
        self._held: set[bytes] = set()
        self._renewed_s = time.monotonic()

    @property
    def due_s(self) -> float | None:
        """Seconds until the claims have to be renewed; None where there are none."""
        if not self._held:
            return None
        return max(0.0, self._renewed_s + self._lease_s / _RENEWALS - time.monotonic())

    def take(self, connection: sqlite3.Connection, keys: Iterable[bytes]) -> list[bool]:
        """Whether each of `keys` is claimed for this process now; inside of a transaction."""
        now = self._wall()
        taken = []
        if not self._held:
            self._renewed_s = time.monotonic()
        for key in keys:
            row = (key, self._owner, now + self._lease_s, now)
            taken.append(connection.execute(_CLAIM, row).rowcount > 0)
            if taken[-1]:
                self._held.add(key)
        return taken

    def drop(self, connection: sqlite3.Connection, keys: Iterable[bytes]) -> None:
        """Give up those of `keys` that are claimed for this process."""
        mine = self._held.intersection(keys)
        if mine:
            rows = [(key, self._owner) for key in mine]
            connection.executemany("DELETE FROM claims WHERE key = ? AND owner = ?", rows)
            self._held -= mine

    def renew(self, connection: sqlite3.Connection) -> None:
        """Renew the claims if it is time."""
        due_s = self.due_s
        if due_s is None or due_s > 0:
            return
        self._renewed_s = time.monotonic()
        until = self._wall() + self._lease_s
        connection.execute("UPDATE claims SET until = ? WHERE owner = ?", (until, self._owner))

    def clear(self, connection: sqlite3.Connection) -> None:
        """Give up all of this process's claims, and those that have run out."""
        connection.execute(
            "DELETE FROM claims WHERE owner = ? OR until < ?", (self._owner, self._wall())
        )
        self._held.clear()
