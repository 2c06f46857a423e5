"""The store in a real Redis, started here."""

import asyncio
import importlib.util
import json
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from contextlib import AsyncExitStack

import msgspec
import pytest

from zerowait import Engine, Sample
from zerowait.cache import (
    CacheLimits,
    Entry,
    MemoryCached,
    RedisStore,
    StoreAwayError,
    StoreError,
    open_store,
)
from zerowait.cache.redis import CLAIM_PREFIX, PREFIX
from zerowait.client import Reply
from zerowait.config import Cache, load_config
from zerowait.errors import ClosedError, ConfigError, MissingExtraError
from zerowait.events import StoreFailed, StoreReturned

SERVER = shutil.which("redis-server")
needs_redis = pytest.mark.skipif(
    SERVER is None or importlib.util.find_spec("redis") is None,
    reason="needs redis-server (apt-get install redis-server) and pip install redis",
)
PASSWORD = "planted-0123"


def entry(number=0, created=None):
    created = time.time() if created is None else created
    return Entry(f"reply {number}".encode(), b'{"v":1}', "quality", "m", "fp", created)


class Redis:
    """A redis-server of our own."""

    def __init__(self, folder, port, *options):
        self.name = f"redis://127.0.0.1:{port}/0"
        # it has a minute for an answer, however busy the machine is
        patient = "socket_timeout=60&socket_connect_timeout=60"
        self.url = f"redis://:{PASSWORD}@127.0.0.1:{port}/0?{patient}"
        settings = ["--save", "", "--requirepass", PASSWORD, "--bind", "127.0.0.1"]
        self.process = subprocess.Popen(
            [SERVER, "--port", str(port), "--dir", str(folder), *settings, *options],
            stdout=subprocess.DEVNULL,
        )
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
            except OSError:
                assert self.process.poll() is None
                time.sleep(0.01)
            else:
                return

    def stop(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory, hold_port):
    with hold_port() as port:
        running = Redis(tmp_path_factory.mktemp("redis"), port)
        yield running
        running.stop()


@pytest.fixture
def url(server):
    async def empty():
        store = RedisStore(server.url)
        await store._client.flushall()
        await store.aclose()

    asyncio.run(empty())
    return server.url


def with_store(url, use, **options):
    async def main():
        store = RedisStore(url, **options)
        try:
            return await use(store)
        finally:
            await store.aclose()

    return asyncio.run(main())


@needs_redis
def test_an_entry_comes_back_as_it_was_put_also_to_another_process(url):
    value = entry(1)

    async def use(store):
        await store.ping()
        await store.put("k", value)
        return await store.get("k"), await store.get("other"), store.peek("k"), await store.stats()

    *found, stats = with_store(url, use)
    assert found == [value, None, None]
    assert (stats.entries, stats.hits, stats.misses, stats.puts) == (1, 1, 1, 1)
    assert stats.size_bytes > 0
    assert with_store(url, lambda store: store.get("k")) == value


@needs_redis
def test_a_second_put_replaces_the_first_and_half_a_surrogate_does_no_harm(url):
    async def use(store):
        await store.put("k", entry(1))
        await store.put("k", msgspec.structs.replace(entry(2), model="m\ud800"))
        return await store.get("k")

    found = with_store(url, use)
    assert (found.reply, found.model) == (b"reply 2", "m?")


@needs_redis
def test_hundreds_at_once_share_round_trips_and_each_gets_its_own(url):
    async def use(store):
        await store.get("connects")
        await store._client.config_resetstat()
        async with asyncio.TaskGroup() as group:
            for number in range(700):
                group.create_task(store.put(str(number), entry(number)))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(store.get(str(number))) for number in range(701)]
        asked = await store._client.info("commandstats")
        return [task.result() for task in tasks], asked["cmdstat_mget"]["calls"]

    found, mgets = with_store(url, use)
    assert [value and value.reply for value in found] == [
        *(f"reply {number}".encode() for number in range(700)),
        None,
    ]
    assert mgets <= 3


@needs_redis
def test_the_key_says_whose_it_is_and_in_which_form(url):
    async def use(store):
        await store.put("k", entry())
        return await store._client.keys("*")

    assert with_store(url, use) == [b"zerowait:1:k"]


@needs_redis
def test_an_entry_lives_for_the_rest_of_its_age_and_is_not_served_beyond_it(url):
    now = time.time()

    async def use(store):
        await store.put("fresh", entry(1, created=now))
        await store.put("half", entry(2, created=now - 500))
        await store.put("gone", entry(3, created=now - 2000))
        left = [await store._client.pttl(PREFIX + key) for key in ("fresh", "half")]
        await asyncio.sleep(0.01)
        return left, await store.get("gone"), await store.get("half")

    (fresh, half), gone, found = with_store(url, use, limits=CacheLimits(max_age_s=1000))
    assert 900_000 < fresh <= 1_000_000
    assert 400_000 < half <= 500_000
    assert gone is None
    assert found.reply == b"reply 2"
    # a shorter age than the one it was kept with
    assert (
        with_store(url, lambda store: store.get("half"), limits=CacheLimits(max_age_s=10)) is None
    )


@needs_redis
def test_something_else_at_our_key_is_an_error_and_can_be_replaced(url):
    async def use(store):
        await store._client.set(PREFIX + "k", b"not ours")
        with pytest.raises(StoreError, match="no entry of ours at zerowait:1:k"):
            await store.get("k")
        await store.put("k", entry(1))
        return await store.get("k")

    assert with_store(url, use).reply == b"reply 1"


@needs_redis
def test_a_full_redis_reaches_the_caller_and_the_reads_go_on(tmp_path, hold_port):
    async def use(store):
        await store.put("k", entry(1))
        big = msgspec.structs.replace(entry(2), reply=b"x" * 500_000)

        async def fill():
            for number in range(20):
                await store.put(f"big {number}", big)

        with pytest.raises(StoreError, match=r"redis://127.0.0.1:\d+/0 failed .*maxmemory"):
            await fill()
        return await store.get("k")

    with hold_port() as port:
        full = ("--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
        server = Redis(tmp_path, port, *full)
        try:
            assert with_store(server.url, use).reply == b"reply 1"
        finally:
            server.stop()


class BreakerEvents:
    """A listener that keeps when the breaker opened and closed."""

    def __init__(self):
        self.events = []
        self.back = asyncio.Event()

    def __call__(self, event):
        self.events.append(event)
        if isinstance(event, StoreReturned):
            self.back.set()

    @property
    def told(self):
        about = (StoreFailed, StoreReturned)
        return [type(event) for event in self.events if isinstance(event, about)]


@needs_redis
def test_a_redis_that_goes_is_an_error_for_each_caller_and_one_that_comes_back_works(
    tmp_path, hold_port
):
    server = None

    async def main(port):
        nonlocal server
        heard = BreakerEvents()
        server = Redis(tmp_path, port)
        store = RedisStore(server.url, pause_s=0.01, listener=heard)
        await store.put("k", entry(1))
        server.stop()
        with pytest.raises(StoreAwayError, match=r"failed \("):
            await store.get("k")
        with pytest.raises(StoreAwayError):
            await store.put("k", entry(2))
        server = Redis(tmp_path, port)
        await heard.back.wait()
        await store.put("k", entry(3))
        found = await store.get("k")
        await store.aclose()
        return found, heard

    with hold_port() as port:
        try:
            found, heard = asyncio.run(main(port))
        finally:
            server.stop()
    assert found.reply == b"reply 3"
    assert heard.told == [StoreFailed, StoreReturned]
    assert "not used until it answers again" in heard.events[0].why
    assert "planted" not in heard.events[0].why


class Line:
    """The wire to a Redis, which can fall silent: it takes what is said, and nothing comes back."""

    def __init__(self, server):
        self._port = int(server.name.rpartition(":")[2].partition("/")[0])
        self.silent = False
        self.heard = bytearray()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"redis://:{PASSWORD}@127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"
        return self

    async def __aexit__(self, *_):
        self._server.close()

    async def _connected(self, reader, writer):
        above, below = await asyncio.open_connection("127.0.0.1", self._port)
        answers = asyncio.create_task(self._pass_on(above, writer))
        while said := await reader.read(65536):
            self.heard += said
            if not self.silent:
                below.write(said)
        answers.cancel()
        below.close()
        writer.close()

    async def hears_what_nobody_answers(self):
        self.heard.clear()
        while not self.heard:  # noqa: ASYNC110 - heard in another task
            await asyncio.sleep(0.001)

    async def _pass_on(self, above, writer):
        while answer := await above.read(65536):
            if not self.silent:
                writer.write(answer)


@needs_redis
def test_a_redis_that_falls_silent_is_not_used_until_it_answers(server, leaping):
    async def main(leap):
        heard = BreakerEvents()
        async with Line(server) as line:
            store = RedisStore(line.url, timeout_s=60, pause_s=0.01, listener=heard)
            await store.put("k", entry(1))
            line.silent = True
            # more than one round trip holds: those behind it do not wait for one of their own
            gets = [asyncio.create_task(store.get(str(n))) for n in range(1500)]
            puts = [asyncio.create_task(store.put(str(n), entry(n))) for n in range(1500)]
            await line.hears_what_nobody_answers()
            leap(60)
            await asyncio.wait([*gets, *puts])
            failures = {type(task.exception()) for task in (*gets, *puts)}
            line.heard.clear()
            for number in range(100):
                with pytest.raises(StoreAwayError, match="not used"):
                    await store.get(str(number))
                with pytest.raises(StoreAwayError, match="not used"):
                    await store.put(str(number), entry(number))
            asked, told = bytes(line.heard), heard.told
            line.silent = False
            leap(60)  # the end of a sign of life that was asked for meanwhile
            await heard.back.wait()
            found = await store.get("k")
            await store.aclose()
            return failures, asked, told, found, heard

    failures, asked, told, found, heard = leaping(main)
    assert failures == {StoreAwayError}
    assert b"GET" not in asked
    assert b"SET\r" not in asked
    assert told == [StoreFailed]
    assert heard.told == [StoreFailed, StoreReturned]
    assert found.reply == b"reply 1"


@needs_redis
def test_closing_does_not_wait_for_a_redis_that_is_away_and_leaves_nothing_behind(server):
    async def main():
        async with Line(server) as line:
            line.silent = True
            store = RedisStore(line.url, timeout_s=0.1, pause_s=3600.0)
            with pytest.raises(StoreAwayError):
                await store.get("k")
            before = asyncio.current_task()
            await store.aclose()
            await store.aclose()
            with pytest.raises(ClosedError):
                await store.get("k")
            return [
                task.get_coro().__qualname__ for task in asyncio.all_tasks() if task is not before
            ]

    assert not [name for name in asyncio.run(main()) if "Absence" in name or "RedisStore" in name]


@needs_redis
def test_a_caller_that_is_cancelled_disturbs_nobody(url):
    async def use(store):
        tasks = [asyncio.create_task(store.put(str(n), entry(n))) for n in range(50)]
        tasks += [asyncio.create_task(store.get(str(n))) for n in range(50)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.exception() is None for task in tasks if not task.cancelled())
        return await store.get("1")

    assert with_store(url, use).reply == b"reply 1"


@needs_redis
def test_closing_carries_out_what_was_ordered_and_refuses_more(url):
    async def main():
        store = RedisStore(url)
        tasks = [asyncio.create_task(store.put(str(n), entry(n))) for n in range(100)]
        await asyncio.sleep(0)
        await store.aclose()
        await store.aclose()
        await asyncio.wait(tasks)
        with pytest.raises(ClosedError):
            await store.get("1")
        return [task.exception() for task in tasks]

    assert asyncio.run(main()) == [None] * 100
    assert with_store(url, lambda store: store.stats()).entries == 100


WRITER = textwrap.dedent(
    """
    import asyncio, sys
    from zerowait.cache import Entry, RedisStore

    async def write(store, writer):
        number = 0
        while True:
            key = f"{writer}-{number}"
            await store.put(key, Entry(key.encode() * 20, b"v", "j", "m", "f", 0.0))
            print(key, flush=True)
            number += 1

    async def main():
        store = RedisStore(sys.argv[1])
        async with asyncio.TaskGroup() as group:
            for writer in range(8):
                group.create_task(write(store, writer))

    asyncio.run(main())
    """
)


@needs_redis
def test_a_killed_process_loses_nothing_that_it_had_acknowledged(url):
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True
    )
    acknowledged = [process.stdout.readline().strip() for _ in range(200)]
    process.send_signal(signal.SIGKILL)
    acknowledged += [line.strip() for line in process.stdout if line.endswith("\n")]
    process.stdout.close()
    process.wait()

    async def use(store):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(store.get(key)) for key in acknowledged]
        return [task.result() for task in tasks]

    found = with_store(url, use)
    assert [value.reply for value in found] == [key.encode() * 20 for key in acknowledged]


def in_two(url, work, **options):
    async def main():
        first, second = RedisStore(url, **options), RedisStore(url, **options)
        try:
            return await work(first, second)
        finally:
            await first.aclose()
            await second.aclose()

    return asyncio.run(main())


async def claim_keys(store):
    return await store._client.keys(f"{CLAIM_PREFIX}*")


@needs_redis
def test_machines_that_want_the_same_wait_for_the_one_that_asks(url):
    async def work(first, second):
        assert await first.claim("k", wait_s=60) is None
        waits = asyncio.create_task(second.claim("k", wait_s=60))
        await asyncio.sleep(0.3)
        waited = not waits.done()
        await first.put("k", entry(1))
        found = await waits
        again = await second.claim("k", wait_s=60), await first.claim("k", wait_s=60)
        while await claim_keys(first):  # noqa: ASYNC110 - it is released in the background
            await asyncio.sleep(0.01)
        return waited, found, again

    waited, found, again = in_two(url, work)
    assert waited
    assert found.reply == b"reply 1"
    assert again == (found, found)


@needs_redis
@pytest.mark.parametrize("ending", ["release", "aclose", "cancel"])
def test_a_claim_that_ends_without_an_entry_is_free_at_once(url, ending):
    async def work(first, second):
        if ending == "cancel":  # in the moment in which it is granted
            call = asyncio.create_task(first.claim("k", wait_s=60))
            await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait({call})
        else:
            assert await first.claim("k", wait_s=60) is None
        waits = asyncio.create_task(second.claim("k", wait_s=60))
        await asyncio.sleep(0.1)
        if ending == "release":
            first.release("k")
        elif ending == "aclose":
            await first.aclose()
        return await waits, await claim_keys(second)

    found, claimed = in_two(url, work, timeout_s=600)  # no lease ends in this test
    assert found is None
    assert claimed == [b"zerowait:claim:k"]


@needs_redis
def test_a_claim_lasts_while_its_process_lives_and_expires_when_it_is_killed(url, leaping):
    """A lease of ten minutes, which is renewed before it ends; a killed process renews nothing."""
    patient = url.replace("=60", "=100000")  # no leap ends a round trip
    claim = f"{CLAIM_PREFIX}k"

    async def main(leap):
        first, second = (RedisStore(patient, timeout_s=200) for _ in range(2))
        assert await first.claim("k", wait_s=60) is None
        waits = asyncio.create_task(second.claim("k", wait_s=100_000))
        for _ in range(2):
            await first._client.pexpire(claim, 100_000)
            leap(200)
            while await first._client.pttl(claim) < 200_000:  # noqa: ASYNC110 - in the background
                await asyncio.sleep(0.01)
        waited = not waits.done()
        first._renewing.cancel()  # as if it had been killed
        await first._client.pexpire(claim, 1)
        found = await waits
        await first.aclose()
        await second.aclose()
        return waited, found

    assert leaping(main) == (True, None)


CLAIMER = textwrap.dedent(
    """
    import asyncio, sys
    from zerowait.cache import RedisStore

    async def main():
        store = RedisStore(sys.argv[1], timeout_s=600)
        print(await store.claim("k", wait_s=60), flush=True)
        await asyncio.Event().wait()

    asyncio.run(main())
    """
)


@needs_redis
@pytest.mark.parametrize("reaped", [True, False])
def test_a_claim_of_a_process_that_was_killed_on_this_machine_is_free_at_once(url, reaped):
    """Its lease has half an hour. As long as the process lives the others wait for it."""

    async def main(process):
        store = RedisStore(url, timeout_s=600)
        try:
            waits = asyncio.create_task(store.claim("k", wait_s=900))
            await asyncio.sleep(0.3)
            waited = not waits.done()
            process.kill()
            if reaped:
                process.wait()
            return waited, await waits, await claim_keys(store)
        finally:
            await store.aclose()

    with subprocess.Popen(
        [sys.executable, "-c", CLAIMER, url], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "None\n"
        waited, found, claimed = asyncio.run(main(process))
    assert waited
    assert found is None
    assert claimed == [b"zerowait:claim:k"]


@needs_redis
@pytest.mark.parametrize("value", [b"0123456789abcdef", b"\x94\xa1a\x01\xa1b\xa1c", b"\xc0", b""])
def test_a_claim_from_elsewhere_is_left_to_expire(url, value):
    """Of another machine, or of a version of zerowait that wrote only a token."""

    async def use(store):
        await store._client.set(f"{CLAIM_PREFIX}k", value, px=600_000)
        found = await store.claim("k", wait_s=0.3)
        return found, await store._client.get(f"{CLAIM_PREFIX}k")

    assert with_store(url, use) == (None, value)


@needs_redis
def test_nobody_waits_longer_than_was_said_nor_takes_the_claim_of_another(url):
    async def work(first, second):
        assert await first.claim("k", wait_s=60) is None
        assert await second.claim("k", wait_s=0.2) is None
        second.release("k")
        third = asyncio.create_task(second.claim("k", wait_s=60))
        await asyncio.sleep(0.3)
        waited = not third.done()
        first.release("k")
        return waited, await third

    assert in_two(url, work) == (True, None)


@needs_redis
def test_of_two_calls_in_one_process_one_asks(url):
    async def use(store):
        calls = [asyncio.create_task(store.claim("k", wait_s=60)) for _ in range(2)]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0.2)
        asked = [call.result() for call in calls if call.done()]
        await store.put("k", entry(1))
        return asked, [await call for call in calls]

    asked, found = with_store(url, use)
    assert asked == [None]
    assert {value and value.reply for value in found} == {None, b"reply 1"}


@needs_redis
def test_a_call_that_waits_and_is_cancelled_takes_no_claim_away(url):
    async def use(store):
        assert await store.claim("k", wait_s=60) is None
        waits = asyncio.create_task(store.claim("k", wait_s=60))
        await asyncio.sleep(0.25)
        waits.cancel()
        await asyncio.wait({waits})
        await store.get("a round trip")
        return await claim_keys(store)

    assert with_store(url, use) == [b"zerowait:claim:k"]


@needs_redis
def test_a_redis_that_takes_no_claim_lets_every_process_ask(tmp_path, hold_port):
    async def work(first, second):
        await first.put("k", entry(1))
        await first._client.config_set("maxmemory", 1)
        await first._client.config_set("maxmemory-policy", "noeviction")
        claims = [await store.claim("other", wait_s=60) for store in (first, second)]
        return claims, (await first.claim("k", wait_s=60)).reply

    with hold_port() as port:
        server = Redis(tmp_path, port)
        try:
            assert in_two(server.url, work) == ([None, None], b"reply 1")
        finally:
            server.stop()


class Wire:
    """A judge on the wire that always says `content`."""

    def __init__(self, content="Score: 7", latency_s=0.0):
        self.content = content
        self.latency_s = latency_s
        self.sent = 0

    async def send(self, request, *, timeout_s):
        self.sent += 1
        await asyncio.sleep(self.latency_s)
        body = {"choices": [{"message": {"content": self.content}}], "model": "m"}
        return Reply(200, {}, json.dumps(body).encode())

    async def aclose(self):
        pass


def judged_by(url):
    return {
        "components": {"quality": {"judge": "q"}},
        "judges": {
            "q": {
                "endpoints": [{"base_url": "http://judge/v1", "model": "m"}],
                "verdict": {"integer": [1, 10]},
            }
        },
        "cache": {"url": url},
    }


def scored(url, wire):
    async def main():
        async with Engine(judged_by(url), transport=wire) as engine:
            rewards = await engine.score_all([Sample("q", f"a {i}") for i in range(20)])
            return [reward.value for reward in rewards], engine.stats()

    return asyncio.run(main())


@needs_redis
def test_a_run_goes_on_without_a_redis_that_falls_silent_and_says_so_once(server, leaping):
    wire, heard = Wire(), BreakerEvents()
    patient = "socket_timeout=50&socket_connect_timeout=50"

    async def main(leap):
        async with (
            Line(server) as line,
            Engine(judged_by(f"{line.url}?{patient}"), transport=wire, listener=heard) as engine,
        ):
            line.silent = True
            first = asyncio.create_task(engine.score(Sample("q", "first")))
            await line.hears_what_nobody_answers()
            leap(50)
            values = [(await first).value]
            for batch in range(5):
                rows = [Sample("q", f"a {batch} {i}") for i in range(20)]
                values += [reward.value for reward in await engine.score_all(rows)]
            return values, engine.stats()

    values, stats = leaping(main)
    assert values == [7] * 101
    assert wire.sent == 101
    assert heard.told == [StoreFailed]
    assert stats.store_failures == 1


@needs_redis
def test_engines_share_verdicts_through_redis_and_never_failures(url):
    values, _ = scored(url, Wire("no idea"))
    assert values == [None] * 20
    first, second = Wire(), Wire()
    assert scored(url, first)[0] == [7] * 20
    assert first.sent == 20
    values, stats = scored(url, second)
    assert values == [7] * 20
    assert (second.sent, stats.cached) == (0, 20)


@needs_redis
def test_engines_at_once_ask_each_distinct_request_once(url):
    wire = Wire(latency_s=0.3)

    async def main():
        async with AsyncExitStack() as stack:
            engines = [
                await stack.enter_async_context(Engine(judged_by(url), transport=wire))
                for _ in range(4)
            ]
            rows = [Sample("q", f"a {i}") for i in range(50)]
            async with asyncio.TaskGroup() as group:
                calls = [group.create_task(engine.score_all(rows)) for engine in engines]
            return [reward.value for call in calls for reward in call.result()]

    assert asyncio.run(main()) == [7] * 200
    assert wire.sent == 50


@needs_redis
def test_hot_entries_are_found_without_asking_redis(url):
    async def main():
        store = await open_store(Cache(url=url))
        assert isinstance(store, MemoryCached)
        await store.put("k", entry(1))
        hot = store.peek("k")
        await store.aclose()
        return hot

    assert asyncio.run(main()).reply == b"reply 1"


@needs_redis
@pytest.mark.parametrize("user", [f":{PASSWORD}x@", ""])
def test_a_redis_that_refuses_us_is_one_clear_line_without_the_password(server, user):
    url = f"redis://{user}{server.name.removeprefix('redis://')}"
    with pytest.raises(ConfigError) as caught:
        asyncio.run(open_store(Cache(url=url)))
    assert f"the cache {server.name} does not answer" in str(caught.value)
    assert "planted" not in str(caught.value)


@needs_redis
def test_nobody_there_is_one_clear_line_without_the_password(hold_port):
    with hold_port() as port, pytest.raises(ConfigError) as caught:
        asyncio.run(open_store(Cache(url=f"redis://me:{PASSWORD}@127.0.0.1:{port}/0")))
    assert "does not answer" in str(caught.value)
    assert "planted" not in str(caught.value)


@needs_redis
@pytest.mark.parametrize("url", [f"redis://:{PASSWORD}@host:port/0", "redis://:planted@[::1/0"])
def test_a_url_that_cannot_be_read_is_an_error_without_the_password(url):
    with pytest.raises(ConfigError, match=r"cache\.url") as caught:
        RedisStore(url)
    assert "planted" not in str(caught.value)


def test_without_redis_py_the_line_that_installs_it_is_the_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(MissingExtraError, match=r"cache.url needs an extra: .*zerowait\[redis\]"):
        asyncio.run(open_store(Cache(url="redis://127.0.0.1/0")))


def test_no_way_of_printing_a_configuration_shows_the_password():
    config = load_config(
        {
            "components": {"answer": {"scorer": "qa_em"}},
            "cache": {"url": f"redis://:{PASSWORD}@127.0.0.1/0", "max_age_days": 3},
        }
    )
    assert config.cache.url.startswith("redis://:planted")
    assert "planted" not in f"{config!r} {config} {config.cache}"
