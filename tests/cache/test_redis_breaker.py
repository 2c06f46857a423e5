"""The circuit breaker of a Redis that does not answer, in virtual time."""

import asyncio

from zerowait.cache.redis import RedisBreaker
from zerowait.events import StoreFailed, StoreReturned
from zerowait.testing import virtually


class Server:
    """Answers probes from a moment on."""

    def __init__(self, answers_at_s=0.0):
        self.answers_at_s = answers_at_s
        self.probed_at_s = []

    async def probe(self):
        now_s = asyncio.get_running_loop().time()
        self.probed_at_s.append(now_s)
        return now_s >= self.answers_at_s


class Events:
    def __init__(self):
        self.events = []

    def __call__(self, event):
        self.events.append(type(event))


def test_it_is_open_until_a_probe_is_answered_and_each_change_is_one_event():
    server, events = Server(answers_at_s=10.0), Events()

    async def main():
        breaker = RedisBreaker(server.probe, listener=events, pause_s=4.0)
        assert not breaker.is_open
        for _ in range(3):
            breaker.open("no answer")
        assert breaker.is_open
        await asyncio.sleep(11.0)
        assert breaker.is_open
        await asyncio.sleep(2.0)
        return breaker.is_open

    assert virtually(main()) == (False, 13.0)
    assert server.probed_at_s == [4.0, 8.0, 12.0]
    assert events.events == [StoreFailed, StoreReturned]


def test_a_server_that_answers_only_probes_is_probed_less_and_less_often():
    server = Server()

    async def main():
        loop = asyncio.get_running_loop()
        back = asyncio.Event()

        def note(event):
            if isinstance(event, StoreReturned):
                back.set()

        breaker = RedisBreaker(server.probe, listener=note, pause_s=1.0)

        async def open_s():
            began_s = loop.time()
            back.clear()
            breaker.open("no answer")
            await back.wait()
            return loop.time() - began_s

        lengths = [await open_s() for _ in range(9)]
        breaker.answered()
        return lengths, await open_s()

    lengths, after_an_answer_s = virtually(main())[0]
    assert lengths == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    assert after_an_answer_s == 1.0


def test_closing_ends_the_probing():
    server = Server(answers_at_s=1e9)

    async def main():
        breaker = RedisBreaker(server.probe, listener=Events(), pause_s=1.0)
        await breaker.aclose()
        breaker.open("no answer")
        await asyncio.sleep(3.5)
        await breaker.aclose()
        await breaker.aclose()
        await asyncio.sleep(60.0)

    virtually(main())
    assert server.probed_at_s == [1.0, 2.0, 3.0]
