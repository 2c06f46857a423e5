"""An index that can be replaced by a newer build while it is searched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from zerowait.search.index import Index, Kind, open_index
from zerowait.search.passages import Passage


class ReloadableIndex:
    """The index of a folder as of the last `reload`, or of its construction.

    Args:
        folder: of the index.

    Raises:
        DataError: there is no index in it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._index: Index = open_index(folder)
        self._lock = Lock()

    @property
    def kind(self) -> Kind:
        """How it ranks: ``bm25``, ``dense`` or ``hybrid``."""
        return self._index.kind

    def __len__(self) -> int:
        """The number of documents."""
        return len(self._index)

    def find(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        """As `Index.find`."""
        with self._lock:
            return self._index.find(queries, topk)

    def reload(self) -> None:
        """Open the folder's current index; searches continue on the old one meanwhile.

        Raises:
            DataError: the folder has no index any more; the old one stays in use.
        """
        new = open_index(self._folder)
        with self._lock:
            old, self._index = self._index, new
        old.close()

    def close(self) -> None:
        """Close the files. Idempotent."""
        self._index.close()
