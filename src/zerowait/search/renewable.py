"""An index that is served, and may be opened anew without a request noticing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from zerowait.search.index import Index, Kind, open_index
from zerowait.search.passages import Passage


class RenewableIndex:
    """The index of a folder as it was when it was opened, or renewed.

    Raises:
        DataError: there is none.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._index: Index = open_index(folder)
        self._searching = Lock()

    @property
    def kind(self) -> Kind:
        """How it ranks."""
        return self._index.kind

    def __len__(self) -> int:
        """How many documents there are."""
        return len(self._index)

    def find(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        """As `Index.find`."""
        with self._searching:
            return self._index.find(queries, topk)

    def renew(self) -> None:
        """Open what the folder holds now; searches go on meanwhile.

        Raises:
            DataError: there is no index any more; the old one goes on being searched.
        """
        fresh = open_index(self._folder)
        with self._searching:
            old, self._index = self._index, fresh
        old.close()

    def close(self) -> None:
        """Let the files go. Idempotent."""
        self._index.close()
