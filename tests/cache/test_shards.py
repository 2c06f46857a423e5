"""A cache in several files: each key has one owner, and no layout hides what another has kept."""

import asyncio
from collections import Counter
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from zerowait.cache import Entry, Shard, open_store, shard_files
from zerowait.config import Cache


def key(number):
    return sha256(b"%d" % number).hexdigest()


ENTRY = Entry(reply=b"r", verdict=b"7", judge="q", model="m", fingerprint="", created=0.0)


async def kept(cache, shards, numbers):
    """Keep each entry where it belongs."""
    for index in range(shards):
        store = await open_store(cache, Shard(index, shards))
        for number in numbers:
            if Shard(of=shards).owner(key(number)) == index:
                await store.put(key(number), ENTRY)
        await store.aclose()


async def found(cache, shards, numbers):
    """The numbers whose entries their owners find."""
    known = set()
    for index in range(shards):
        store = await open_store(cache, Shard(index, shards))
        for number in numbers:
            if Shard(of=shards).owner(key(number)) == index and await store.get(key(number)):
                known.add(number)
        await store.aclose()
    return known


@given(st.integers(1, 64), st.integers(0, 10**9))
def test_every_key_has_one_owner_among_the_shards(count, number):
    owners = {Shard(index, count).owner(key(number)) for index in range(count)}
    assert len(owners) == 1
    assert owners < set(range(count + 1))


def test_keys_are_spread_evenly():
    load = Counter(Shard(of=8).owner(key(number)) for number in range(8000))
    assert max(load.values()) < 1150


def test_every_layout_finds_what_the_others_have_kept(tmp_path):
    cache = Cache(path=str(tmp_path / "j.db"))

    async def scenario():
        await kept(cache, 1, range(10))
        await kept(cache, 3, range(10, 20))
        await kept(cache, 2, range(20, 30))
        return [await found(cache, shards, range(40)) for shards in (1, 2, 3, 5)]

    for known in asyncio.run(scenario()):
        assert known == set(range(30))
    files = [file.name for _, file in shard_files(tmp_path / "j.db")]
    assert files[0] == "j.db"
    assert len(files) == 1 + 2 + 3 + 5


def test_files_that_only_look_alike_are_left_alone(tmp_path):
    for name in ("j-0-of-1.db", "j-a-of-2.db", "jj-0-of-2.db", "j-0-of-2.db-wal", "j-0-of-2.txt"):
        (tmp_path / name).touch()
    assert shard_files(tmp_path / "j.db") == []
    assert shard_files(tmp_path / "nowhere" / "j.db") == []
