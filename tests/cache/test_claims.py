"""Several processes with one cache file: each distinct request is asked once, whatever ends."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

import zerowait
from zerowait import Engine, Sample, Score
from zerowait.cache import Entry
from zerowait.cache.limits import CacheLimits
from zerowait.cache.sqlite import SqliteStore
from zerowait.engine.concurrent_tasks import side_by_side
from zerowait.testing import FakeJudge, Latency, Script, Status

KEY = "ab" * 32


def entry(text="reply"):
    return Entry(text.encode(), b"8", "quality", "model", "", time.time())


@asynccontextmanager
async def stores(tmp_path, count=2, **given):
    opened = [SqliteStore(tmp_path / "judgements.db", **given) for _ in range(count)]
    try:
        yield opened
    finally:
        for store in opened:
            await store.aclose()


def in_two(tmp_path, work, **given):
    async def main():
        async with stores(tmp_path, **given) as (first, second):
            return await work(first, second)

    return asyncio.run(main())


def config(judge, tmp_path, **traffic):
    return {
        "components": {"quality": {"judge": "q"}},
        "judges": {
            "q": {
                "endpoints": [{"base_url": judge.url, "model": "m"}],
                "verdict": {"integer": [1, 10]},
            }
        },
        "cache": str(tmp_path / "judgements.db"),
        "traffic": traffic,
    }


ROWS = [Sample("2+2?", f"answer {number % 40}") for number in range(80)]


@pytest.mark.parametrize("shards", [1, 4])
def test_four_that_are_open_at_once_ask_each_distinct_request_once(tmp_path, shards):
    """Four owners of one file, from threads of one process or four."""
    with ExitStack() as stack:
        judge = stack.enter_context(FakeJudge(Script(latency=Latency(0.1))))
        each = [stack.enter_context(zerowait.open(config(judge, tmp_path))) for _ in range(4)]
        futures = [rewards.submit_all(ROWS[:: 1 if shards == 1 else -1]) for rewards in each]
        values = [[reward.value for reward in future.result(60)] for future in futures]
        seen = judge.seen.requests
    assert seen == 40
    if shards > 1:
        values = [row[::-1] for row in values]
    assert values[1:] == values[:1] * 3
    assert None not in values[0]


def test_those_who_wait_get_what_the_one_who_asks_puts(tmp_path):
    async def work(first, second):
        assert await first.claim(KEY, wait_s=60) is None
        waits = asyncio.create_task(second.claim(KEY, wait_s=60))
        await asyncio.sleep(0.2)
        waited = not waits.done()
        await first.put(KEY, entry())
        return waited, await waits

    waited, found = in_two(tmp_path, work)
    assert waited
    assert found.reply == b"reply"


@pytest.mark.parametrize("ending", ["release", "aclose", "cancel"])
def test_a_claim_that_ends_without_an_entry_is_free_at_once(tmp_path, ending):
    async def work(first, second):
        if ending == "cancel":  # in the moment in which it is granted
            call = asyncio.create_task(first.claim(KEY, wait_s=60))
            await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait({call})
        else:
            assert await first.claim(KEY, wait_s=60) is None
        waits = asyncio.create_task(second.claim(KEY, wait_s=60))
        await asyncio.sleep(0.1)
        if ending == "release":
            first.release(KEY)
        elif ending == "aclose":
            await first.aclose()
        began_s = time.monotonic()
        return await waits, time.monotonic() - began_s

    found, took_s = in_two(tmp_path, work)
    assert found is None
    assert took_s < 60


def test_a_claim_ends_with_its_process_and_never_while_it_lives(tmp_path):
    code = f"""
import asyncio, sys
from zerowait.cache.sqlite import SqliteStore
async def main():
    store = SqliteStore({str(tmp_path / "judgements.db")!r})
    assert await store.claim({KEY!r}, wait_s=60) is None
    print("claimed", flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"""
    source = str(Path(zerowait.__file__).parent.parent)
    environ = {**os.environ, "PYTHONPATH": source}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "claimed\n"

        async def main():
            async with stores(tmp_path, count=1) as (store,):
                waits = asyncio.create_task(store.claim(KEY, wait_s=60))
                await asyncio.sleep(1)
                waited = not waits.done()
                process.send_signal(signal.SIGKILL)
                return waited, await waits

        assert asyncio.run(main()) == (True, None)


def test_nobody_waits_longer_than_was_said(tmp_path):
    async def work(first, second):
        assert await first.claim(KEY, wait_s=60) is None
        began_s = time.monotonic()
        found = await second.claim(KEY, wait_s=0.3)
        took_s = time.monotonic() - began_s
        second.release(KEY)  # which it never had
        third = asyncio.create_task(second.claim(KEY, wait_s=60))
        await asyncio.sleep(0.2)
        is_free = third.done()
        third.cancel()
        return found, took_s, is_free

    found, took_s, is_free = in_two(tmp_path, work)
    assert found is None
    assert took_s >= 0.3
    assert not is_free


def test_what_is_there_is_found_without_a_claim_and_what_is_too_old_is_asked_anew(tmp_path):
    async def work(first, second):
        await first.put(KEY, entry())
        found = await second.claim(KEY, wait_s=60)
        old = Entry(b"old", b"8", "quality", "model", "", time.time() - 1000)
        await first.put(KEY[::-1], old)
        return found, await second.claim(KEY[::-1], wait_s=60), second._claimed

    found, old, claimed = in_two(tmp_path, work, limits=CacheLimits(max_age_s=500))
    assert found.reply == b"reply"
    assert old is None
    assert claimed == {KEY[::-1]}


def test_of_two_calls_of_one_store_one_asks(tmp_path):
    async def work(first, _):
        calls = [asyncio.create_task(first.claim(KEY, wait_s=60)) for _ in range(2)]
        done, pending = await asyncio.wait(calls, timeout=0.3)
        await first.put(KEY, entry())
        (late,) = pending
        return [call.result() for call in done], await late

    asked, waited = in_two(tmp_path, work)
    assert asked == [None]
    assert waited.reply == b"reply"


def test_hundreds_wait_for_hundreds(tmp_path):
    keys = [f"{number:064x}" for number in range(1200)]

    async def work(first, second):
        claimed = await side_by_side([first.claim(key, wait_s=60) for key in keys])
        waits = asyncio.create_task(side_by_side([second.claim(key, wait_s=60) for key in keys]))
        await asyncio.sleep(0.2)
        await side_by_side([first.put(key, entry(key)) for key in keys])
        return claimed, await waits

    claimed, found = in_two(tmp_path, work)
    assert claimed == [None] * len(keys)
    assert [each.reply.decode() for each in found] == keys


def test_a_failure_lets_the_next_one_ask_at_once(tmp_path):
    """The judge refuses what the first asks; the second, which waited, asks and abstains, too."""
    asked = threading.Event()

    async def hold(_):
        await asyncio.to_thread(asked.wait, 60)

    script = Script(faults=(Status(status=400, always=True),))
    with FakeJudge(script, hold=hold) as judge:

        async def main():
            given = config(judge, tmp_path)
            async with Engine(given) as first, Engine(given) as second:
                calls = [asyncio.create_task(each.score(ROWS[0])) for each in (first, second)]
                await asyncio.sleep(0.3)
                before = judge.seen.requests
                asked.set()
                async with asyncio.timeout(60):
                    rewards = [await call for call in calls]
                return before, rewards

        before, rewards = asyncio.run(main())
        assert before <= 1
        assert judge.seen.requests == 2
    assert not any(isinstance(reward.components["quality"], Score) for reward in rewards)


def test_a_caller_who_gives_up_while_it_waits_asks_nothing(tmp_path):
    with FakeJudge(Script(latency=Latency(0.5))) as judge:

        async def main():
            given = config(judge, tmp_path)
            async with Engine(given) as first, Engine(given) as second:
                call = asyncio.create_task(first.score(ROWS[0]))
                await asyncio.sleep(0.1)
                waits = asyncio.create_task(second.score(ROWS[0]))
                await asyncio.sleep(0.1)
                waits.cancel()
                await asyncio.wait({waits})
                await call
                return await second.score(ROWS[0])

        reward = asyncio.run(main())
        assert judge.seen.requests == 1
    assert reward.value is not None
