import asyncio

from hypothesis import given
from hypothesis import strategies as st

from zerowait.cache import Entry, MemoryCached, MemoryStore, NoStore, SqliteStore, open_store
from zerowait.config import Cache


def entry(text="r", size=0):
    return Entry(text.encode() + b"." * size, b"v", "quality", "m", "fp", 1.0)


class Counting(MemoryStore):
    def __init__(self):
        super().__init__()
        self.gets = 0

    async def get(self, key):
        self.gets += 1
        return await super().get(key)


class Full(MemoryStore):
    async def put(self, key, entry):
        raise OSError


def test_what_was_put_is_found_and_what_was_not_is_none():
    async def main():
        store = MemoryStore()
        await store.put("a", entry("1"))
        await store.put("a", entry("2"))
        found = await store.get("a"), await store.get("b"), store.peek("a"), store.peek("b")
        return found, await store.stats()

    found, stats = asyncio.run(main())
    assert found == (entry("2"), None, entry("2"), None)
    assert (stats.entries, stats.hits, stats.misses, stats.puts) == (1, 2, 1, 2)


@given(
    puts=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3000)), max_size=60),
    capacity=st.integers(0, 9000),
)
def test_memory_never_holds_more_than_its_capacity_and_drops_the_oldest_first(puts, capacity):
    store = MemoryStore(capacity)
    for key, size in puts:
        store.keep(str(key), entry(size=size))
        stats = asyncio_free_stats(store)
        assert stats.size_bytes <= capacity
    alive = [key for key in dict.fromkeys(key for key, _ in reversed(puts)) if store.peek(str(key))]
    newest_first = list(dict.fromkeys(key for key, _ in reversed(puts)))
    assert alive == newest_first[: len(alive)]


def asyncio_free_stats(store):
    try:
        store.stats().send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError


def test_a_look_keeps_an_entry_alive():
    store = MemoryStore(1200)
    store.keep("a", entry())
    store.keep("b", entry())
    assert store.peek("a") is not None
    store.keep("c", entry())
    assert store.peek("b") is None
    assert store.peek("a") is not None


def test_no_store_keeps_nothing():
    async def main():
        store = NoStore()
        await store.put("a", entry())
        stats = await store.stats()
        await store.aclose()
        return await store.get("a"), store.peek("a"), stats.entries

    assert asyncio.run(main()) == (None, None, 0)


def test_a_hot_entry_is_found_without_asking_the_store_behind():
    async def main():
        back = Counting()
        await back.put("cold", entry())
        store = MemoryCached(back)
        await store.put("hot", entry())
        assert store.peek("hot") == entry()
        assert store.peek("cold") is None
        for key in ("hot", "cold", "cold", "absent"):
            await store.get(key)
        assert back.gets == 2
        stats = await store.stats()
        await store.aclose()
        return stats

    stats = asyncio.run(main())
    assert (stats.entries, stats.hits, stats.misses, stats.puts) == (2, 4, 1, 2)


def test_what_could_not_be_kept_does_not_become_hot():
    async def main():
        store = MemoryCached(Full())
        try:
            await store.put("a", entry())
        except OSError:
            return store.peek("a"), await store.get("a")
        raise AssertionError

    assert asyncio.run(main()) == (None, None)


def test_a_configuration_without_a_path_opens_a_store_that_keeps_nothing():
    assert isinstance(asyncio.run(open_store(Cache(path=None))), NoStore)


def test_a_configured_file_is_kept_on_disk_with_a_front_in_memory(tmp_path):
    path = tmp_path / "deep" / "judgements.db"

    async def main():
        store = await open_store(Cache(path=str(path)))
        await store.put("a", entry())
        hot = store.peek("a")
        await store.aclose()
        again = SqliteStore(path)
        cold = await again.get("a")
        await again.aclose()
        return hot, cold

    assert asyncio.run(main()) == (entry(), entry())
