"""The replies of one judge: what they mean, which of them are kept, and which model sent them."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Final

import msgspec

from zerowait.cache import Entry, Store, StoreAwayError, StoreError
from zerowait.engine.settled import Read, Settled
from zerowait.events import Listener, ModelChanged, StoreFailed
from zerowait.judge import Origin, Served
from zerowait.types import Abstain, FailureKind, Outcome, Score

_REREAD: Final = 16_384
"""About as many replies as the store's front holds in memory, whose bytes these are."""


class Replies:
    """The replies of the judge `name`: kept are those with a verdict, and read anew each time."""

    def __init__(self, name: str, *, store: Store, listener: Listener) -> None:
        self._name = name
        self._store = store
        self._listener = listener
        self._served = Served()
        self._reread = lru_cache(maxsize=_REREAD)(outcome_of)

    def hot(self, key: str, read: Read) -> Settled | None:
        """What a reply in memory says, or None where there is none with a verdict."""
        return self._recalled(self._store.peek(key), read)

    def in_memory(self, key: str) -> bool:
        """Whether `hot` may find something under `key`."""
        return self._store.peek(key) is not None

    async def kept(self, key: str, read: Read, *, wait_s: float) -> Settled | None:
        """What the kept reply says, or None where the judge has to be asked; `release` it then.

        Where another process asks the judge the same, this waits for it, at most `wait_s`.
        """
        try:
            entry = await self._store.claim(key, wait_s=wait_s)
        except StoreError as error:
            self._failed(error)
            return None
        return self._recalled(entry, read)

    def release(self, key: str) -> None:
        """Let other processes ask: there is no reply to keep. Does nothing after `keep`."""
        self._store.release(key)

    async def keep(self, key: str, reply: bytes, outcome: Score, origin: Origin) -> None:
        """Commits the reply before its reward is handed out, so that nobody pays for it twice.

        A verdict that was reached counts even where it cannot be kept (a full disk, say).
        """
        entry = Entry(
            reply=reply,
            verdict=msgspec.json.encode(outcome),
            judge=self._name,
            model=origin.model,
            fingerprint=origin.fingerprint,
            created=time.time(),
        )
        try:
            await self._store.put(key, entry)
        except StoreError as error:
            self._failed(error)

    def see(self, origin: Origin) -> None:
        """Raise the alarm when another model answers than before, here or in the cache."""
        change = self._served.changed(origin)
        if change is not None:
            before, after = map(str, change)
            self._listener(ModelChanged(judge=self._name, before=before, after=after))

    def _failed(self, error: StoreError) -> None:
        if not isinstance(error, StoreAwayError):  # that was told when it began
            self._listener(StoreFailed(why=str(error)))

    def _recalled(self, entry: Entry | None, read: Read) -> Settled | None:
        if entry is None:
            return None
        outcome = self._reread(read, entry.reply)
        if not isinstance(outcome, Score):
            return None
        self.see(Origin(entry.model, entry.fingerprint))
        return Settled(
            outcome=outcome, source="cache", model=entry.model, reply=entry.reply, read=read
        )


def outcome_of(read: Read, reply: bytes) -> Outcome:
    """What a reply means; one that a reader trips over means nothing, and harms no sibling."""
    try:
        return read(reply)
    except Exception as error:  # noqa: BLE001 - judges write whatever they write
        why = f"the reply could not be read: {type(error).__name__}: {error}"
        return Abstain(FailureKind.UNPARSEABLE, why)
