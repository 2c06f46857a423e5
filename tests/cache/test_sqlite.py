import asyncio
import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.cache import Entry, SqliteStore, StoreError
from zerowait.cache.sqlite_file import (
    APPLICATION_ID,
    CACHE,
    SCHEMA,
    _why_not,
    filesystem,
    open_database,
)
from zerowait.errors import ClosedError, ConfigError

ENTRY = Entry(b'{"raw":1}', b'{"value":7}', "quality", "m", "fp", 1234.5)


def entry(number=0):
    return Entry(f"reply {number}".encode(), b"v", "quality", "m", "fp", float(number))


def opened(path, **options):
    return open_database(path, busy_timeout_s=60.0, **options)


def with_store(path, use, **options):
    async def main():
        store = SqliteStore(path, **options)
        try:
            return await use(store)
        finally:
            await store.aclose()

    return asyncio.run(main())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache.db"


def test_an_entry_comes_back_as_it_was_put_also_after_closing(path):
    async def put_and_get(store):
        await store.put("k", ENTRY)
        return await store.get("k"), await store.get("other"), store.peek("k")

    assert with_store(path, put_and_get) == (ENTRY, None, None)
    assert with_store(path, lambda store: store.get("k")) == ENTRY


def test_a_second_put_replaces_the_first(path):
    async def use(store):
        await store.put("k", entry(1))
        await store.put("k", entry(2))
        return await store.get("k"), (await store.stats()).entries

    assert with_store(path, use) == (entry(2), 1)


@settings(max_examples=30, deadline=None)
@given(
    key=st.text(st.characters(exclude_categories=["Cs"])),
    value=st.builds(
        Entry,
        st.binary(),
        st.binary(),
        st.text(st.characters(exclude_categories=["Cs"])),
        st.text(st.characters(exclude_categories=["Cs"])),
        st.text(st.characters(exclude_categories=["Cs"])),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
)
def test_any_bytes_and_any_text_survive(tmp_path_factory, key, value):
    path = tmp_path_factory.mktemp("any") / "cache.db"

    async def use(store):
        await store.put(key, value)
        return await store.get(key)

    assert with_store(path, use) == value


def test_half_a_surrogate_in_a_servers_words_does_not_spoil_the_batch(path):
    async def use(store):
        async with asyncio.TaskGroup() as group:
            group.create_task(store.put("a", Entry(b"", b"", "j", "m\ud800", "", 0.0)))
            group.create_task(store.put("b", ENTRY))
        return (await store.get("a")).model, await store.get("b")

    assert with_store(path, use) == ("m?", ENTRY)


@pytest.mark.parametrize("count", [1, 2, 9, 65, 700, 1200])
def test_many_callers_at_once_each_get_their_own(path, count):
    async def use(store):
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(store.put(str(number), entry(number)))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(store.get(str(number))) for number in range(count + 1)]
        return [task.result() for task in tasks], await store.stats()

    found, stats = with_store(path, use)
    assert found == [*map(entry, range(count)), None]
    assert (stats.entries, stats.hits, stats.misses, stats.puts) == (count, count, 1, count)
    assert stats.size_bytes > 0


def test_what_waits_together_shares_a_commit(path):
    """The first put waits for the lock; the other 299 gather meanwhile."""

    async def use(store):
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        async with asyncio.TaskGroup() as group:
            for number in range(300):
                group.create_task(store.put(str(number), entry(number)))
            await asyncio.sleep(0.05)
            holder.execute("ROLLBACK")
        _, pages_in_log, _ = holder.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        holder.close()
        return pages_in_log

    assert with_store(path, use) < 300  # 300 commits would have written 600 at least


def test_a_put_returns_only_when_another_connection_sees_it(path):
    async def use(store):
        seen = []
        for number in range(20):
            await store.put(str(number), entry(number))
            with sqlite3.connect(path) as other:
                seen.append(other.execute("SELECT count(*) FROM replies").fetchone()[0])
            other.close()
        return seen

    assert with_store(path, use) == list(range(1, 21))


def test_a_caller_that_is_cancelled_disturbs_nobody(path):
    async def use(store):
        tasks = [asyncio.create_task(store.put(str(n), entry(n))) for n in range(50)]
        tasks += [asyncio.create_task(store.get(str(n))) for n in range(50)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.exception() is None for task in tasks if not task.cancelled())
        return await store.get("1")

    assert with_store(path, use) == entry(1)


def test_one_store_serves_several_loops(path):
    store = SqliteStore(path)
    found = []

    def other():
        found.append(asyncio.run(store.get("k")))

    asyncio.run(store.put("k", ENTRY))
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    asyncio.run(store.aclose())
    assert found == [ENTRY]


def test_a_loop_that_ended_before_its_answer_does_not_stop_the_thread(path):
    store = SqliteStore(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")

    async def leave():
        task = asyncio.create_task(store.put("k", ENTRY))
        await asyncio.sleep(0.02)
        task.cancel()

    asyncio.run(leave())
    holder.execute("ROLLBACK")
    holder.close()
    assert asyncio.run(store.get("k")) in {None, ENTRY}
    asyncio.run(store.aclose())


def test_closing_commits_what_was_ordered_and_ends_the_thread(path):
    of_others = threading.enumerate()

    async def main():
        store = SqliteStore(path)
        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(store.put(str(number), entry(number)))
            await asyncio.sleep(0)
            await store.aclose()
            await store.aclose()
        with pytest.raises(ClosedError):
            await store.get("1")
        with pytest.raises(ClosedError):
            await store.put("1", ENTRY)

    asyncio.run(main())
    left = [thread for thread in threading.enumerate() if thread not in of_others]
    assert "zerowait-cache" not in [thread.name for thread in left]
    assert with_store(path, lambda store: store.stats()).entries == 100
    assert not list(path.parent.glob("*-wal"))


def test_a_full_disk_reaches_the_caller_and_later_puts_work_again(path):
    """A file that may not grow fails the way a full disk does."""
    big = Entry(b"x" * 400_000, b"", "", "", "", 0.0)
    free = resource.getrlimit(resource.RLIMIT_FSIZE)

    async def use(store):
        await store.put("before", ENTRY)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, free[1]))
        try:
            with pytest.raises(StoreError, match=str(path)):
                await store.put("big", big)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, free)
        assert await store.get("big") is None
        assert await store.get("before") == ENTRY
        await store.put("big", big)
        return await store.get("big")

    assert with_store(path, use) == big


def test_a_locked_file_reaches_the_caller_once_the_patience_is_over(path):
    async def use(store):
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            await store.put("k", ENTRY)
        holder.execute("ROLLBACK")
        holder.close()
        await store.put("k", ENTRY)
        return await store.get("k")

    assert with_store(path, use, busy_timeout_s=0.05) == ENTRY


def test_a_file_damaged_while_open_is_an_error_and_no_wrong_answer(path):
    async def fill(store):
        async with asyncio.TaskGroup() as group:
            for number in range(200):
                group.create_task(store.put(str(number), entry(number)))

    with_store(path, fill)

    async def use(store):
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * (size - 4096))
        with pytest.raises(StoreError, match=str(path)):
            await store.get("1")

    with_store(path, use)


@pytest.mark.parametrize(
    "content", [b"this is no database at all" * 50, b"SQLite format 3\0" + b"x" * 5000]
)
def test_a_file_that_is_no_database_is_refused_by_name(path, content):
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=str(path)):
        SqliteStore(path)
    assert path.read_bytes() == content


def test_the_database_of_another_program_is_refused_and_left_alone(path):
    with sqlite3.connect(path) as theirs:
        theirs.execute("CREATE TABLE bookmarks (url TEXT)")
    theirs.close()
    content = path.read_bytes()
    with pytest.raises(ConfigError, match="another program"):
        SqliteStore(path)
    assert path.read_bytes() == content


def test_a_file_of_a_newer_version_is_refused_with_both_numbers(path):
    with_store(path, lambda store: store.put("k", ENTRY))
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA user_version = 99")
    raw.close()
    with pytest.raises(
        ConfigError, match=rf"newer zerowait .schema 99, this one knows {len(SCHEMA)}"
    ):
        SqliteStore(path)


def test_a_file_of_an_older_version_is_migrated_and_keeps_its_entries(path):
    with_store(path, lambda store: store.put("k", ENTRY))
    longer = [*SCHEMA, "ALTER TABLE replies ADD COLUMN note TEXT DEFAULT 'none'"]
    connection = opened(path, schema=longer)
    row = connection.execute("SELECT key, verdict, note FROM replies").fetchone()
    version = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    assert row == (b"k", ENTRY.verdict, "none")
    assert version == (len(longer),)


def test_a_migration_that_fails_changes_nothing(path):
    with_store(path, lambda store: store.put("k", ENTRY))
    with pytest.raises(ConfigError):
        opened(path, schema=[*SCHEMA, "CREATE TABLE half (x); CREATE TABLE broken ("])
    assert with_store(path, lambda store: store.get("k")) == ENTRY
    raw = sqlite3.connect(path)
    tables = raw.execute("SELECT name FROM sqlite_master WHERE name = 'half'").fetchall()
    raw.close()
    assert tables == []


def test_the_file_says_whose_it_is(path):
    connection = opened(path)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_file_and_log_are_for_their_owner_only(path):
    old = os.umask(0)
    try:

        async def modes(store):
            await store.put("k", ENTRY)
            return {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}

        assert with_store(path, modes) == {0o600}
        path.chmod(0o644)
        assert with_store(path, modes) == {0o600}
    finally:
        os.umask(old)


def test_missing_directories_are_made_and_the_home_directory_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert with_store("~/a/b/cache.db", lambda store: store.put("k", ENTRY)) is None
    assert (tmp_path / "a" / "b" / "cache.db").is_file()


def test_a_path_that_cannot_be_made_says_what_to_change(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="set cache"):
        SqliteStore(tmp_path / "file" / "cache.db")


def test_a_directory_is_no_cache(tmp_path):
    with pytest.raises(ConfigError, match=str(tmp_path)):
        SqliteStore(tmp_path)


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "lustre", "fuse.sshfs", "ceph", "beegfs", "fuse.gcsfuse"]
)
def test_a_network_filesystem_is_refused_before_anything_is_written(tmp_path, kind):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/x {tmp_path.resolve()}/net {kind} rw 0 0\n")
    with pytest.raises(ConfigError, match=f"{kind}.*local disk"):
        opened(tmp_path / "net" / "cache.db", mounts=mounts)
    assert not (tmp_path / "net").exists()


@pytest.mark.parametrize("kind", ["ext4", "xfs", "overlay", "tmpfs", "fuse.mergerfs", "btrfs"])
def test_a_local_filesystem_is_accepted(tmp_path, kind):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"server:/ / nfs4 rw 0 0\n/dev/sda {tmp_path.resolve()} {kind} rw 0 0\n")
    opened(tmp_path / "cache.db", mounts=mounts).close()


def test_a_link_into_a_network_filesystem_is_seen_through(tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "net")
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\ns:/ {tmp_path.resolve()}/net nfs rw 0 0\n")
    with pytest.raises(ConfigError, match="network"):
        opened(tmp_path / "link" / "cache.db", mounts=mounts)


def test_a_system_without_a_mount_table_is_trusted(tmp_path):
    opened(tmp_path / "cache.db", mounts=tmp_path / "absent").close()


def test_the_innermost_and_the_last_mount_decides():
    table = "a / ext4 rw 0 0\nb /data nfs rw 0 0\nc /data/local xfs rw 0 0\nd /data tmpfs rw 0 0"
    assert filesystem(Path("/data/local/x"), table) == "xfs"
    assert filesystem(Path("/data/x"), table) == "tmpfs"
    assert filesystem(Path("/datax"), table) == "ext4"


WRITER = textwrap.dedent(
    """
    import asyncio, sys
    from zerowait.cache import Entry, SqliteStore

    async def write(store, name):
        number = 0
        while True:
            key = f"{name}-{number}"
            await store.put(key, Entry(key.encode() * 20, b"v", "j", "m", "f", 0.0))
            print(key, flush=True)
            number += 1
            if number == int(sys.argv[3]):
                return

    async def main():
        store = SqliteStore(sys.argv[1])
        async with asyncio.TaskGroup() as group:
            for writer in range(8):
                group.create_task(write(store, f"{sys.argv[2]}-{writer}"))
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


def test_a_killed_process_loses_nothing_that_it_had_acknowledged(path):
    process = writer(path, "w", -1)
    acknowledged = [process.stdout.readline().strip() for _ in range(200)]
    process.send_signal(signal.SIGKILL)
    acknowledged += [line.strip() for line in process.stdout if line.endswith("\n")]
    process.stdout.close()
    process.wait()

    async def use(store):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(store.get(key)) for key in acknowledged]
        return [task.result() for task in tasks]

    found = with_store(path, use)
    assert len(found) >= 200
    assert [entry.reply for entry in found] == [key.encode() * 20 for key in acknowledged]


def test_several_processes_may_open_and_write_one_new_file_at_once(path):
    processes = [writer(path, f"p{number}", 10) for number in range(3)]
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert with_store(path, lambda store: store.stats()).entries == 3 * 8 * 10


def test_opening_at_the_same_time_in_many_threads_never_fails(tmp_path):
    for round_ in range(5):
        path = tmp_path / f"{round_}.db"
        barrier, errors = threading.Barrier(8), []

        def open_it(path=path, barrier=barrier, errors=errors):
            barrier.wait()
            try:
                opened(path).close()
            except ConfigError as error:
                errors.append(error)

        threads = [threading.Thread(target=open_it) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (sqlite3.SQLITE_READONLY, "make it and its folder writable"),
        (sqlite3.SQLITE_READONLY_DIRECTORY, "make it and its folder writable"),
        (sqlite3.SQLITE_CANTOPEN, "make it and its folder writable"),
        (sqlite3.SQLITE_FULL, "make room on its disk"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "wait for the program that holds it"),
        (sqlite3.SQLITE_NOTADB, "see whether it is the right file"),
        (sqlite3.SQLITE_CORRUPT, "see whether it is the right file"),
    ],
)
def test_only_a_file_that_may_be_damaged_is_said_to_be_deleted(code, says):
    error = sqlite3.OperationalError("what SQLite says")
    error.sqlite_errorcode = code
    text = _why_not(error, CACHE)
    assert says in text
    assert "(what SQLite says)" in text
    assert ("delete it" in text) == ("right file" in says)
