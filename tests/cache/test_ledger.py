"""The account of a budget on disk."""

import asyncio
import random
import sqlite3
import stat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.cache import SqliteLedger, SqliteStore, StoreError
from zerowait.errors import ClosedError, ConfigError
from zerowait.testing import virtually


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spend.db"


def with_ledger(path, use, *, name="run", limit=100, **options):
    async def main():
        ledger = SqliteLedger(path, name=name, limit=limit, **options)
        try:
            return await use(ledger)
        finally:
            await ledger.aclose()

    return asyncio.run(main())


def on_disk(path, name="run"):
    connection = sqlite3.connect(path)
    row = connection.execute(
        "SELECT spent, reserved FROM budgets WHERE name = ?", (name,)
    ).fetchone()
    connection.close()
    return row


def test_a_reservation_is_on_disk_before_it_is_granted(path):
    async def use(ledger):
        seen = []
        for _ in range(5):
            await ledger.reserve(10)
            seen.append(on_disk(path))
        return seen

    assert with_ledger(path, use) == [(0, 10), (0, 20), (0, 30), (0, 40), (0, 50)]


def test_what_is_settled_survives_and_makes_room(path):
    async def use(ledger):
        granted = [await ledger.reserve(60), await ledger.reserve(60)]
        ledger.settle(60, 25)
        granted.append(await ledger.reserve(60))
        ledger.settle(60, 5)
        return granted, ledger.account

    granted, account = with_ledger(path, use)
    assert granted == [True, False, True]
    assert account == (100, 30, 0)
    assert on_disk(path) == (30, 0)


def test_budgets_of_other_names_are_apart(path):
    async def use(ledger):
        return await ledger.reserve(100)

    assert with_ledger(path, use)
    assert with_ledger(path, use, name="other")
    assert not with_ledger(path, use)


def test_two_processes_share_one_budget_and_a_no_looks_again(path):
    async def main():
        one = SqliteLedger(path, name="run", limit=100)
        two = SqliteLedger(path, name="run", limit=100)
        assert await one.reserve(80)
        assert not await two.reserve(30)
        assert not await two.affords(30)
        one.settle(80, 10)
        await one.reserve(0)
        assert await two.affords(30)
        assert await two.reserve(90)
        assert await one.affords(1)  # as far as it knows; a reservation looks at the file
        assert not await one.reserve(1)
        assert not await one.affords(1)
        await one.aclose()
        await two.aclose()

    asyncio.run(main())
    assert on_disk(path) == (10, 90)


def test_many_at_once_share_commits_and_are_granted_exactly_what_fits(path):
    async def use(ledger):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ledger.reserve(7)) for _ in range(1024)]
        return sum(task.result() for task in tasks)

    assert with_ledger(path, use, limit=7000) == 1000
    assert on_disk(path) == (0, 7000)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_interleaving_of_grants_and_cancellations_loses_or_leaks_money(tmp_path_factory, seed):
    path = tmp_path_factory.mktemp("ledger") / "spend.db"
    draw = random.Random(seed)

    async def one(ledger):
        await asyncio.sleep(draw.choice([0, draw.random()]))
        amount = draw.randint(1, 20)
        if not await ledger.reserve(amount):
            return 0
        spent = amount  # a cancelled call is charged its reservation
        try:
            await asyncio.sleep(draw.random())
            spent = draw.randint(0, amount)
        finally:
            ledger.settle(amount, spent)
            paid.append(spent)
        return None

    paid = []

    async def scenario():
        ledger = SqliteLedger(path, name="run", limit=300)
        tasks = [asyncio.create_task(one(ledger)) for _ in range(60)]
        for _ in range(20):
            await asyncio.sleep(draw.choice([0, 0, draw.random() / 5]))
            draw.choice(tasks).cancel()
            assert ledger.account.spent <= 300
        await asyncio.wait(tasks)
        await ledger.aclose()

    virtually(scenario())
    assert on_disk(path) == (sum(paid), 0)
    assert sum(paid) <= 300


def test_a_locked_ledger_grants_nothing_and_what_was_settled_is_written_later(path):
    async def use(ledger):
        assert await ledger.reserve(10)
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        ledger.settle(10, 4)
        with pytest.raises(StoreError, match=r"spend.db failed .*locked"):
            await ledger.reserve(1)
        holder.execute("ROLLBACK")
        holder.close()
        assert ledger.account == (100, 4, 0)

    with_ledger(path, use, busy_timeout_s=0.02)
    assert on_disk(path) == (4, 0)


def test_who_asks_while_a_commit_fails_is_answered_too(path):
    async def use(ledger):
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        first = asyncio.create_task(ledger.reserve(1))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(ledger.reserve(2))
        await asyncio.wait([first, second], timeout=60)
        holder.execute("ROLLBACK")
        holder.close()
        assert first.done()
        assert second.done()
        assert isinstance(first.exception(), StoreError)
        assert isinstance(second.exception(), StoreError)
        return await ledger.reserve(3)

    assert with_ledger(path, use, busy_timeout_s=0.05)
    assert on_disk(path) == (0, 3)


def test_a_closed_ledger_grants_nothing(path):
    async def use(ledger):
        await ledger.aclose()
        with pytest.raises(ClosedError):
            await ledger.reserve(1)

    with_ledger(path, use)


def test_a_ledger_is_for_its_owner_only_and_is_no_cache(path, tmp_path):
    async def use(ledger):
        await ledger.reserve(1)
        return {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}

    assert with_ledger(path, use) == {0o600}
    with pytest.raises(ConfigError, match="another program"):
        SqliteStore(path)


def test_a_damaged_ledger_says_what_deleting_it_means(path):
    path.write_bytes(b"no database" * 100)
    with pytest.raises(ConfigError, match=r"the ledger .* it holds what was spent"):
        SqliteLedger(path, name="run", limit=1)
