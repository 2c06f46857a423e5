"""A slow answer is waited for; a hub that shows no life is not."""

import asyncio

import pytest

from zerowait.errors import HubLostError
from zerowait.hub.pulse import Pulse
from zerowait.testing import virtually


class Hub:
    """Answers beats until `silent_at`."""

    def __init__(self, silent_at=float("inf"), back_at=float("inf")):
        self.silent_at = silent_at
        self.back_at = back_at
        self.beats = 0

    async def beat(self):
        self.beats += 1
        if self.silent_at <= asyncio.get_running_loop().time() < self.back_at:
            await asyncio.Event().wait()


def waited(hub, answer_s, calls=1):
    """What came of `calls` answers after `answer_s`, and how long it took."""

    async def scenario():
        pulse = Pulse(hub.beat, name="'h'", every_s=10, patience_s=60)

        async def one():
            answer = asyncio.ensure_future(asyncio.sleep(answer_s, "answer"))  # noqa: TID251
            try:
                return await pulse.answer(answer)
            except HubLostError as error:
                return str(error)
            finally:
                answer.cancel()

        async with asyncio.TaskGroup() as tasks:
            started = [tasks.create_task(one()) for _ in range(calls)]
        return {task.result() for task in started}

    return virtually(scenario())


def test_an_answer_may_take_an_hour_while_the_hub_shows_that_it_is_alive():
    assert waited(Hub(), 3600) == ({"answer"}, 3600)


def test_one_beat_stands_for_all_calls_that_wait():
    hub = Hub()
    waited(hub, 95, calls=100)
    assert hub.beats == 9


def test_a_quick_answer_needs_no_beat():
    hub = Hub()
    waited(hub, 5)
    assert hub.beats == 0


def test_a_silent_hub_is_an_error_within_its_patience_and_two_beats():
    result, elapsed_s = waited(Hub(silent_at=100), 3600, calls=3)
    assert result == {"the hub 'h' did not answer for 60 s"}
    assert 160 <= elapsed_s <= 190


def test_a_hub_that_comes_back_in_time_is_forgiven():
    assert waited(Hub(silent_at=100, back_at=140), 400)[0] == {"answer"}


def test_a_beat_that_fails_is_no_sign_of_life():
    class Broken:
        async def beat(self):
            raise ConnectionError

    result, elapsed_s = waited(Broken(), 3600)
    assert result == {"the hub 'h' did not answer for 60 s"}
    assert elapsed_s <= 90


def test_the_error_of_the_answer_is_the_callers():
    async def scenario():
        answer = asyncio.get_running_loop().create_future()
        answer.set_exception(KeyError("x"))
        with pytest.raises(KeyError):
            await Pulse(Hub().beat, name="h", every_s=10, patience_s=60).answer(answer)

    virtually(scenario())
