"""Leaving alone what does not answer, on a clock of our own."""

import asyncio

from zerowait.cache.redis import Absence
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


class Told:
    def __init__(self):
        self.events = []

    def __call__(self, event):
        self.events.append(type(event))


def test_it_is_away_until_a_probe_is_answered_and_each_end_is_told_once():
    server, told = Server(answers_at_s=10.0), Told()

    async def main():
        absence = Absence(server.probe, listener=told, pause_s=4.0)
        assert not absence
        for _ in range(3):
            absence.begin("no answer")
        assert absence
        await asyncio.sleep(11.0)
        assert absence
        await asyncio.sleep(2.0)
        return bool(absence)

    assert virtually(main()) == (False, 13.0)
    assert server.probed_at_s == [4.0, 8.0, 12.0]
    assert told.events == [StoreFailed, StoreReturned]


def test_who_answers_probes_and_nothing_else_is_probed_ever_more_seldom():
    server = Server()

    async def main():
        loop = asyncio.get_running_loop()
        back = asyncio.Event()

        def told(event):
            if isinstance(event, StoreReturned):
                back.set()

        absence = Absence(server.probe, listener=told, pause_s=1.0)

        async def absent_s():
            began_s = loop.time()
            back.clear()
            absence.begin("no answer")
            await back.wait()
            return loop.time() - began_s

        lengths = [await absent_s() for _ in range(9)]
        absence.answered()
        return lengths, await absent_s()

    lengths, after_an_answer_s = virtually(main())[0]
    assert lengths == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    assert after_an_answer_s == 1.0


def test_closing_ends_the_probing():
    server = Server(answers_at_s=1e9)

    async def main():
        absence = Absence(server.probe, listener=Told(), pause_s=1.0)
        await absence.aclose()
        absence.begin("no answer")
        await asyncio.sleep(3.5)
        await absence.aclose()
        await absence.aclose()
        await asyncio.sleep(60.0)

    virtually(main())
    assert server.probed_at_s == [1.0, 2.0, 3.0]
