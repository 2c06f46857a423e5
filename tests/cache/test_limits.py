"""Size and age of a cache file, kept while it is in use."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing

import pytest

from zerowait.cache import CacheLimits, Entry, MemoryCached, SqliteStore, StoreError
from zerowait.cache.limits import STEP_ROWS, Trimmer, file_bytes, used_bytes
from zerowait.cache.sqlite_file import SCHEMA, open_database

MB = 2**20


def entry(created, size=2000):
    return Entry(b"r" * size, b"v", "quality", "m", "fp", float(created))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache.db"


def with_store(path, use, **options):
    async def main():
        store = SqliteStore(path, **options)
        try:
            return await use(store)
        finally:
            await store.aclose()

    return asyncio.run(main())


def measured(path):
    connection = sqlite3.connect(path)
    try:
        return used_bytes(connection), file_bytes(connection)
    finally:
        connection.close()


def keys(path):
    connection = sqlite3.connect(path)
    try:
        return {key.decode() for (key,) in connection.execute("SELECT key FROM replies")}
    finally:
        connection.close()


async def fill(store, numbers, size=2000):
    async with asyncio.TaskGroup() as group:
        for number in numbers:
            group.create_task(store.put(str(number), entry(number, size)))


def test_a_file_stays_within_its_size_and_loses_its_oldest_entries_only(path):
    async def use(store):
        for start in range(0, 2000, 200):
            await fill(store, range(start, start + 200))
        await store.get("x")  # answered after the thread has trimmed
        return await store.stats()

    stats = with_store(path, use, limits=CacheLimits(max_bytes=MB))
    used, whole = measured(path)
    left = sorted(map(int, keys(path)))
    assert used <= MB
    assert whole <= 1.5 * MB
    assert left == list(range(left[0], 2000))
    assert len(left) > 200
    assert stats.evicted == 2000 - len(left)


def test_a_smaller_limit_shrinks_an_old_file_that_is_only_read(path):
    with_store(path, lambda store: fill(store, range(2000)))
    assert measured(path)[0] > 3 * MB

    async def use(store):
        for _ in range(50):
            await store.get("1999")

    with_store(path, use, limits=CacheLimits(max_bytes=MB))
    used, whole = measured(path)
    assert used <= MB
    assert whole <= MB
    assert "1999" in keys(path)


def test_an_entry_that_is_put_again_is_young_again(path):
    async def use(store):
        await fill(store, range(400))
        await store.put("0", entry(10_000))
        await fill(store, range(400, 800))
        await store.get("x")

    with_store(path, use, limits=CacheLimits(max_bytes=MB))
    assert "0" in keys(path)
    assert "1" not in keys(path)


def test_what_is_too_old_is_not_served_and_goes(path):
    clock = [1000.0]

    async def use(store):
        await store.put("old", entry(1000))
        await store.put("new", entry(1050))
        before = await store.get("old")
        clock[0] = 1101.0
        after = await store.get("old"), await store.get("new")
        await store.get("x")
        return before, after, await store.stats()

    before, after, stats = with_store(
        path, use, limits=CacheLimits(max_age_s=100), wall=lambda: clock[0]
    )
    assert before == entry(1000)
    assert after == (None, entry(1050))
    assert (stats.hits, stats.misses) == (2, 2)
    assert keys(path) == {"new"}


def test_a_hot_entry_grows_old_too(path):
    clock = [1000.0]

    async def main():
        limits = CacheLimits(max_age_s=100)
        back = SqliteStore(path, limits=limits, wall=lambda: clock[0])
        store = MemoryCached(back, limits=limits, wall=lambda: clock[0])
        await store.put("k", entry(1000))
        hot = store.peek("k")
        clock[0] = 1101.0
        cold = store.peek("k"), await store.get("k")
        await store.aclose()
        return hot, cold

    assert asyncio.run(main()) == (entry(1000), (None, None))


def test_without_limits_nothing_ever_goes(path):
    async def use(store):
        await fill(store, range(500))
        return await store.stats()

    stats = with_store(path, use)
    assert (stats.entries, stats.evicted) == (500, 0)


def test_a_file_of_the_first_schema_can_be_limited(path):
    open_database(path, busy_timeout_s=1, schema=SCHEMA[:1]).close()
    with_store(path, lambda store: fill(store, range(1000)), limits=CacheLimits(max_bytes=MB))

    async def use(store):
        await store.get("x")
        await store.get("x")

    with_store(path, use, limits=CacheLimits(max_bytes=MB))
    assert measured(path)[0] <= MB


def test_a_locked_file_is_trimmed_later_and_nobody_gets_an_error(path):
    with_store(path, lambda store: fill(store, range(1000)))

    async def use(store):
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        assert await store.get("999") is not None
        holder.execute("ROLLBACK")
        holder.close()
        for _ in range(20):
            await store.get("x")

    # the store is opened before the lock is taken; its first step may meet either
    with_store(path, use, limits=CacheLimits(max_bytes=MB), busy_timeout_s=0.02)
    assert measured(path)[0] <= MB


def test_a_file_damaged_while_open_is_still_an_error_for_its_callers_and_no_silence(path):
    with_store(path, lambda store: fill(store, range(300)))

    async def use(store):
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * (size - 4096))
        failed = []
        for number in range(300):  # some pages may still lie in SQLite's own memory
            try:
                assert (await store.get(str(number))) is not None
            except StoreError as error:
                failed.append(str(error))
        assert failed
        assert all(str(path) in error for error in failed)

    with_store(path, use, limits=CacheLimits(max_bytes=MB, max_age_s=1e10))  # none is too old


WRITER = textwrap.dedent(
    """
    import asyncio, sys, time
    from zerowait.cache import Entry, CacheLimits, SqliteStore

    async def write(store, writer):
        number = 0
        while number != int(sys.argv[3]):
            key = f"{sys.argv[2]}-{writer}-{number}"
            await store.put(key, Entry(b"r" * 3000, b"v", "j", "m", "f", time.time()))
            print(key, flush=True)
            number += 1

    async def main():
        store = SqliteStore(sys.argv[1], limits=CacheLimits(max_bytes=2**20))
        async with asyncio.TaskGroup() as group:
            for writer in range(8):
                group.create_task(write(store, writer))
        await store.aclose()

    asyncio.run(main())
    """
)


def writer(path, name, count):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(count)],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_two_processes_keep_one_limit_together_and_neither_drops_twice(path):
    processes = [writer(path, name, 75) for name in ("a", "b")]
    printed = [process.communicate(timeout=60)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    with_store(path, lambda store: store.get("x"), limits=CacheLimits(max_bytes=MB))
    used, _ = measured(path)
    assert 0.5 * MB < used <= MB
    assert keys(path) <= {*printed[0], *printed[1]}


def test_a_process_killed_while_it_trims_leaves_a_sound_file_with_its_newest_entries(path):
    process = writer(path, "w", -1)
    written = [process.stdout.readline().strip() for _ in range(700)]
    process.send_signal(signal.SIGKILL)
    written += [line.strip() for line in process.stdout if line.endswith("\n")]
    process.stdout.close()
    process.wait()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    left = keys(path)
    assert set(written[-100:]) <= left
    assert written[0] not in left


def test_a_step_is_over_before_anybody_waits_long(path):
    """One step of a much too large file touches a bounded number of entries."""
    with_store(path, lambda store: fill(store, range(6000), size=100))
    trimmer = Trimmer(CacheLimits(max_age_s=1.0))
    with closing(open_database(path, busy_timeout_s=1)) as connection:
        evicted = []
        while trimmer.step(connection):
            evicted.append(trimmer.evicted)
    assert evicted == [STEP_ROWS, 6000]
