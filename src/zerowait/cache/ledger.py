"""A budget's account in an SQLite file, so that a run which is resumed knows what it has spent.

A reservation is committed before its request is sent. What a killed process had reserved stays
reserved for ever, which counts as spent: it is unknown how far its requests came. Several
processes may share one budget.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from zerowait.cache.sqlite_file import FileSchema, open_database
from zerowait.cache.store import StoreError
from zerowait.errors import ClosedError
from zerowait.types import Account

LEDGER: Final = FileSchema(
    noun="the ledger",
    application_id=0x7A77_6C67,
    schema=(
        # nano-dollars
        "CREATE TABLE budgets (name TEXT PRIMARY KEY, spent INT NOT NULL, reserved INT NOT NULL)",
    ),
    if_damaged="it holds what was spent of the budgets; delete it to start from nothing",
)

SPEND_FILE: Final = "spend.db"
"""Its name, beside the cache's file."""

_Reservation = tuple[int, "asyncio.Future[bool]"]
"""An amount in nano-dollars, and whether it was granted."""


class LedgerAccount(NamedTuple):
    """A budget's account on disk, in nano-dollars."""

    name: str
    spent: int
    reserved: int


def accounts(path: Path) -> list[LedgerAccount]:
    """Every account in the ledger at `path`, by name; none where there is no ledger.

    Raises:
        ConfigError: the file is no ledger of ours.
    """
    if not path.exists():
        return []
    with closing(open_database(path, busy_timeout_s=1.0, form=LEDGER)) as connection:
        rows = connection.execute("SELECT name, spent, reserved FROM budgets ORDER BY name")
        return [LedgerAccount(*row) for row in rows]


class SqliteLedger:
    """The account `name` in the file `path`; used on one loop, shared with other processes.

    While one batch is being committed the next one gathers, so that a thousand requests a second
    need only a few commits.

    Args:
        path: on a local disk.
        name: whose account it is.
        limit: the budget in nano-dollars.
        key: under which the budget is configured, for messages.
        busy_timeout_s: how long a commit waits for other processes before it fails.

    Raises:
        ConfigError: the file cannot be opened or is no ledger of ours.
    """

    def __init__(
        self,
        path: Path,
        *,
        name: str,
        limit: int,
        key: str = "traffic.budget_usd",
        busy_timeout_s: float = 10.0,
    ) -> None:
        self.key = key
        self._path = path
        self._name = name
        self._limit = limit
        self._connection = open_database(path, busy_timeout_s=busy_timeout_s, form=LEDGER)
        self._pending: list[_Reservation] = []
        self._to_release = self._to_spend = 0
        self._writer: asyncio.Task[None] | None = None
        self._closed = False
        try:
            _, (self._spent, self._reserved) = self._commit((), 0, 0)
        except sqlite3.Error as error:
            self._connection.close()
            raise self._failure(error) from error

    @property
    def account(self) -> Account:
        """The account as this process knows it."""
        reserved = max(0, self._reserved - self._to_release)
        return Account(self._limit, self._spent + self._to_spend, reserved)

    async def affords(self, amount: int) -> bool:
        """Whether `amount` fits; reads the file again before it says no.

        Raises:
            StoreError: the file cannot be read or written.
        """
        if self.account.affords(amount):
            return True
        await self.reserve(0)
        return self.account.affords(amount)

    async def reserve(self, amount: int) -> bool:
        """Whether `amount` was reserved; returns after the commit.

        Raises:
            StoreError: it could not be written down.
            ClosedError: the ledger was closed.
        """
        if self._closed:
            raise ClosedError(f"the ledger {self._path} was closed")
        granted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._pending.append((amount, granted))
        self._wake()
        try:
            return await granted
        except asyncio.CancelledError:
            # both came in one turn of the loop: the grant, and the cancellation of its caller
            if granted.done() and not granted.cancelled() and granted.exception() is None:
                self.settle(amount if granted.result() else 0, 0)
            raise

    def settle(self, reserved: int, spent: int) -> None:
        """Put what was spent in the place of a reservation; committed soon after."""
        self._to_release += reserved
        self._to_spend += spent
        if not self._closed:
            self._wake()

    async def aclose(self) -> None:
        """Commit what is settled, then close the file. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._wake()
        assert self._writer is not None  # noqa: S101 - it was woken
        try:
            await self._writer
        finally:
            self._connection.close()

    def _wake(self) -> None:
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        while self._pending or self._to_release or self._to_spend:
            pending, self._pending = self._pending, []
            release, spend = self._to_release, self._to_spend
            amounts = [amount for amount, _ in pending]
            try:
                granted, known = await asyncio.to_thread(self._commit, amounts, release, spend)
            except Exception as error:  # noqa: BLE001 - raised to the callers that wait
                for _, result in pending:
                    if not result.done():
                        result.set_exception(self._failure(error))
                if not self._pending:
                    return  # what is settled is written with the next, and counts as reserved
                continue
            self._to_release -= release
            self._to_spend -= spend
            self._spent, self._reserved = known
            self._grant(pending, granted)

    def _grant(self, pending: Sequence[_Reservation], granted: Sequence[bool]) -> None:
        """Tell the callers whether their reservations were granted."""
        for (amount, result), grant in zip(pending, granted, strict=True):
            if not result.done():
                result.set_result(grant)
            elif grant:  # its caller was cancelled before anything was sent
                self._to_release += amount

    def _commit(
        self, amounts: Sequence[int], release: int, spend: int
    ) -> tuple[list[bool], tuple[int, int]]:
        """In a thread: settle, then grant what fits in the order of asking."""
        run = self._connection.execute
        granted = []
        run("BEGIN IMMEDIATE")
        try:
            run("INSERT OR IGNORE INTO budgets VALUES (?, 0, 0)", (self._name,))
            spent, reserved = run(
                "SELECT spent, reserved FROM budgets WHERE name = ?", (self._name,)
            ).fetchone()
            spent, reserved = spent + spend, max(0, reserved - release)
            for amount in amounts:
                fits = Account(self._limit, spent, reserved).affords(amount)
                reserved += amount if fits else 0
                granted.append(fits)
            run(
                "UPDATE budgets SET spent = ?, reserved = ? WHERE name = ?",
                (spent, reserved, self._name),
            )
            run("COMMIT")
        finally:
            if self._connection.in_transaction:
                run("ROLLBACK")
        return granted, (spent, reserved)

    def _failure(self, error: Exception) -> StoreError:
        return StoreError(f"the ledger {self._path} failed ({error})")
