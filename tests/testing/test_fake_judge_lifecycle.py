"""Starting and stopping: nothing hangs and nothing is left behind."""

import asyncio
import gc
import signal
import socket
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiohttp
import pytest

from zerowait.errors import ClosedError
from zerowait.testing import FakeJudge, Hang, Latency, Script, Status, serve_forever

HANGS = Script(faults=(Hang(),))


def threads():
    return [thread.name for thread in threading.enumerate() if "fake-judge" in thread.name]


def test_closing_ends_the_requests_that_hang(client):
    async def work(judge):
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(client.post(session, judge.url, client.chat(str(n))))
                for n in range(20)
            ]
            await client.until(lambda: judge.seen.in_flight == 20)
            judge.close()
        return [task.result() for task in tasks]

    with FakeJudge(HANGS) as judge:
        gots = asyncio.run(work(judge))
    # aiohttp asks once more where a reused connection closes; no server listens then
    assert all(got.error for got in gots)
    assert judge.seen.in_flight == judge.seen.cancelled_by_client == 0
    assert threads() == []


def test_closing_ends_the_requests_that_wait_for_their_time(client):
    async def work():
        async with (
            aiohttp.ClientSession() as session,
            asyncio.TaskGroup() as group,
            FakeJudge(Script(latency=Latency(60))) as judge,
        ):
            task = group.create_task(client.post(session, judge.url, client.chat("a")))
            await client.until(lambda: judge.seen.in_flight)
        return task.result()

    assert asyncio.run(work()).error


def test_who_connects_while_it_closes_leaves_no_socket_behind(client, monkeypatch):
    """asyncio's own loop, as where uvloop is not installed, closes nothing by itself."""
    monkeypatch.setitem(sys.modules, "uvloop", None)
    gc.collect()
    is_busy, may_go_on = threading.Event(), threading.Event()

    def answer(_):
        is_busy.set()
        assert may_go_on.wait(60)
        return "7"

    with FakeJudge(answer=answer) as judge, ThreadPoolExecutor(2) as pool:
        port = int(judge.url.rsplit(":", 1)[1].removesuffix("/v1"))
        pool.submit(client.ask, judge.url, "a")
        assert is_busy.wait(60)
        late = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        closing = pool.submit(judge.close)
        while not judge._stop.done():
            time.sleep(0.001)
        may_go_on.set()
        closing.result(60)
    for link in late:
        link.close()
    with warnings.catch_warnings(record=True, action="always") as told:
        gc.collect()
    assert told == []


def test_it_runs_in_async_with_and_leaves_no_thread(client):
    async def work():
        async with FakeJudge() as judge, aiohttp.ClientSession() as session:
            return await client.post(session, judge.url, client.chat("a"))

    assert asyncio.run(work()).status == 200
    assert threads() == []


def test_cancelling_the_start_leaves_no_thread():
    async def start():
        async with FakeJudge():
            await asyncio.Event().wait()

    async def work():
        task = asyncio.create_task(start())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    for thread in threading.enumerate():
        if "fake-judge" in thread.name:
            thread.join()
    assert threads() == []


def test_closing_twice_is_closing_once():
    with FakeJudge() as judge:
        judge.close()
        judge.close()


def test_a_judge_that_does_not_run_has_no_url_but_keeps_its_counts(client):
    judge = FakeJudge()
    with pytest.raises(ClosedError):
        _ = judge.url
    with judge:
        client.ask(judge.url, "a")
    with pytest.raises(ClosedError):
        _ = judge.url
    assert judge.seen.answered == 1


def test_a_port_in_use_is_an_error_and_leaves_no_thread():
    with FakeJudge() as judge:
        port = int(judge.url.rsplit(":", 1)[1].removesuffix("/v1"))
        with pytest.raises(OSError, match=str(port)), FakeJudge(port=port):
            pass
        assert len(threads()) == 1


def test_the_next_judge_may_take_the_port_of_the_last(client, hold_port):
    with hold_port() as port:
        for _ in range(2):
            with FakeJudge(port=port) as judge:
                assert judge.url == f"http://127.0.0.1:{port}/v1"
                assert client.ask(judge.url, "a").status == 200


def test_an_answer_that_raises_is_a_500_and_an_error_of_the_test(client):
    def answer(body):
        raise LookupError("the test has no answer")

    def ask():
        with FakeJudge(answer=answer) as judge:
            assert client.ask(judge.url, "a").status == 500

    with pytest.raises(LookupError, match="no answer"):
        ask()


def test_an_answer_that_is_held_back_keeps_no_other_waiting(client):
    told = threading.Event()

    async def hold(body):
        if "late" in str(body):
            await client.until(told.is_set)

    async def scenario(judge):
        late = asyncio.create_task(client.post_all(judge.url, [client.chat("late")], at_once=1))
        await client.until(lambda: judge.seen.in_flight == 1)
        (soon,) = await client.post_all(judge.url, [client.chat("soon")], at_once=1)
        waits = judge.seen.in_flight
        told.set()
        return soon.status, waits, (await late)[0].status

    with FakeJudge(hold=hold) as judge:
        assert asyncio.run(scenario(judge)) == (200, 1, 200)


def test_what_fails_while_it_holds_an_answer_back_is_an_error_of_the_test(client):
    async def hold(body):
        raise LookupError("nothing to wait for")

    def ask():
        with FakeJudge(hold=hold) as judge:
            assert client.ask(judge.url, "a").status == 500

    with pytest.raises(LookupError, match="nothing to wait for"):
        ask()


def test_an_answer_that_raises_does_not_hide_the_error_of_the_test(client):
    def answer(body):
        raise LookupError

    def ask():
        with FakeJudge(answer=answer) as judge:
            client.ask(judge.url, "a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ask()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_no_descriptor_and_no_thread_is_left_behind(client):
    def once():
        script = Script(faults=(Status(status=500, share=0.5), Hang(share=0.1)))
        with FakeJudge(script) as judge:

            async def work():
                bodies = [client.chat(str(n)) for n in range(20)]
                async with asyncio.timeout(0.05):
                    await client.post_all(judge.url, bodies, at_once=20)

            with pytest.raises(TimeoutError):
                asyncio.run(work())
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    once()
    counts = [once() for _ in range(10)]
    # what every third judge leaves is there three times; the process may open one thing itself
    descriptors, threads = (last - first for first, last in zip(counts[0], counts[-1], strict=True))
    assert descriptors < 3
    assert threads < 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serving_ends_with_a_signal_and_says_what_it_saw(client, number):
    async def one_client(url):
        async with aiohttp.ClientSession() as session:
            await client.post(session, url, client.chat("a"))
        signal.raise_signal(number)

    async def work():
        async with asyncio.TaskGroup() as group:
            return await serve_forever(
                Script(), port=0, on_ready=lambda url: group.create_task(one_client(url))
            )

    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # another test may have set one
    try:
        seen = asyncio.run(work())
        assert seen.answered == 1
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_host_that_cannot_be_a_name_is_an_error_and_no_hang():
    with pytest.raises(UnicodeError), FakeJudge(host="a" * 300):
        pass
    assert threads() == []
