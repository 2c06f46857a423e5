"""Rewards by the batch: each call is answered once, and a process that was killed is noticed."""

import asyncio

import pytest

from zerowait import JudgementError, Reward, Sample
from zerowait.errors import ZerowaitError
from zerowait.hub import Streamed
from zerowait.hub.rpc.pending_calls import PendingCalls
from zerowait.hub.rpc.sessions import Sessions
from zerowait.testing import virtually

HEARTBEAT_S, SILENCE_S = 10, 300


class Judge:
    """Rewards a sample after the seconds it says, and remembers who was given up."""

    def __init__(self):
        self.given_up = []

    async def reward(self, sample):
        try:
            await asyncio.sleep(float(sample.response))
        except asyncio.CancelledError:
            self.given_up.append(sample.response)
            raise
        if sample.prompt == "fail":
            raise JudgementError("lost")
        if sample.prompt == "break":
            raise KeyError("a bug")
        value = float(sample.response)
        return Streamed(reward=Reward(value, {}))


@pytest.fixture
def judge():
    return Judge()


@pytest.fixture
def sessions(judge):
    return Sessions(judge.reward, beat_s=HEARTBEAT_S, silence_s=SILENCE_S)


def row(after_s, prompt="q"):
    return Sample(prompt, str(after_s))


def numbers(results):
    return [number for number, _ in results]


def test_results_are_collected_once_in_the_order_in_which_they_came(sessions):
    async def scenario():
        sessions.join("a")
        assert sessions.submit("a", [(1, row(3)), (2, row(1)), (3, row(1))], [])
        return [numbers(await sessions.collect("a")) for _ in range(3)]

    results, elapsed_s = virtually(scenario())
    assert results == [[2, 3], [1], []]
    assert elapsed_s == 3 + HEARTBEAT_S


def test_collecting_answers_with_nothing_as_a_sign_of_life(sessions):
    async def scenario():
        sessions.join("a")
        return await sessions.collect("a")

    assert virtually(scenario()) == ([], HEARTBEAT_S)


def test_a_session_that_does_not_exist_or_is_over_says_so(sessions):
    async def scenario():
        first = await sessions.collect("a"), sessions.submit("a", [(1, row(1))], [])
        sessions.join("a")
        sessions.leave("a")
        sessions.leave("a")
        return first, (await sessions.collect("a"), sessions.submit("a", [], []))

    assert virtually(scenario())[0] == ((None, False), (None, False))


def test_an_error_is_a_result_and_a_bug_in_the_hub_is_no_silence(sessions, caplog):
    async def scenario():
        sessions.join("a")
        sessions.submit("a", [(1, row(1, "fail")), (2, row(1, "break"))], [])
        return dict(await sessions.collect("a"))

    results = virtually(scenario())[0]
    assert isinstance(results[1], JudgementError)
    assert type(results[2]) is ZerowaitError
    assert "KeyError" in str(results[2])
    assert "a bug" in caplog.text


def test_a_call_that_was_given_up_is_cancelled_and_brings_no_result(sessions, judge):
    async def scenario():
        sessions.join("a")
        sessions.submit("a", [(1, row(2)), (2, row(3))], [])
        await asyncio.sleep(1)
        sessions.submit("a", [], [1, 77])
        return numbers(await sessions.collect("a"))

    assert virtually(scenario())[0] == [2]
    assert judge.given_up == ["2"]


@pytest.mark.parametrize(
    ("end", "rewarded_s"), [(Sessions.cut, 1), (Sessions.leave, 2)], ids=["cut", "left"]
)
def test_what_was_sent_and_did_not_arrive_is_kept_where_a_session_is_cut(sessions, end, rewarded_s):
    async def scenario():
        sessions.join("a")
        sessions.submit("a", [(1, row(1))], [])
        sent = numbers(await sessions.collect("a", heard=False))
        end(sessions, "a")
        sessions.join("b", "a")
        sessions.submit("b", [(1, row(1))], [])
        return sent + numbers(await sessions.collect("b"))

    assert virtually(scenario()) == ([1, 1], rewarded_s)


def test_what_is_kept_of_a_session_that_was_cut_is_forgotten_in_the_end(sessions):
    async def scenario():
        sessions.join("a")
        sessions.submit("a", [(1, row(1))], [])
        await sessions.collect("a", heard=False)
        sessions.cut("a")
        await asyncio.sleep(SILENCE_S)
        sessions.join("b", "a")
        sessions.submit("b", [(1, row(1))], [])
        await sessions.collect("b")

    assert virtually(scenario())[1] == SILENCE_S + 2


def test_what_a_process_did_not_collect_while_it_was_stopped_is_kept_for_its_next_session(sessions):
    async def scenario():
        sessions.join("a")
        sessions.submit("a", [(1, row(1))], [])
        await asyncio.sleep(SILENCE_S + 1)
        over = "a" not in sessions
        sessions.join("b", "a")
        sessions.submit("b", [(1, row(1))], [])
        return over, numbers(await sessions.collect("b"))

    assert virtually(scenario()) == ((True, [1]), SILENCE_S + 1)


def test_a_silent_session_is_ended_and_no_other(sessions, judge):
    async def scenario():
        sessions.join("dead")
        sessions.join("alive")
        sessions.submit("dead", [(1, row(1000))], [])
        sessions.submit("alive", [(1, row(900))], [])
        while not await sessions.collect("alive"):
            pass
        return len(sessions)

    (left, elapsed_s) = virtually(scenario())
    assert (left, elapsed_s) == (1, 900)
    assert judge.given_up == ["1000"]


def served(judge, sessions, scenario):
    """`scenario(desk)` with a courier between the desk and the sessions."""

    async def write(desk):
        while sessions.submit("s", *await desk.batch()):
            pass

    async def whole():
        desk = PendingCalls()
        sessions.join("s")
        writing = asyncio.create_task(write(desk))
        working = asyncio.create_task(scenario(desk))
        while not working.done():
            desk.settle(await sessions.collect("s"))
            await asyncio.sleep(0)
        writing.cancel()
        await asyncio.wait({writing})
        assert not desk.waiting
        return working.result()

    return virtually(whole())[0]


def test_everybody_at_the_desk_gets_their_own_reward(judge, sessions):
    async def scenario(desk):
        async with asyncio.TaskGroup() as tasks:
            calls = [tasks.create_task(desk.result(row(n % 7))) for n in range(1000)]
        return [call.result().value for call in calls]

    assert served(judge, sessions, scenario) == [n % 7 for n in range(1000)]


def test_whoever_leaves_the_desk_gives_their_call_up(judge, sessions):
    async def scenario(desk):
        call = asyncio.create_task(desk.result(row(50)))
        await asyncio.sleep(5)
        call.cancel()
        await asyncio.wait({call})
        await asyncio.sleep(1)

    served(judge, sessions, scenario)
    assert judge.given_up == ["50"]


def test_all_that_is_waited_for_can_be_handed_in_again():
    async def scenario():
        desk = PendingCalls()
        calls = [asyncio.create_task(desk.result(row(n))) for n in range(3)]
        await asyncio.sleep(0)
        first, _ = await desk.batch()
        desk.settle([(1, JudgementError("lost"))])
        desk.again()
        second, _ = await desk.batch()
        desk.fail(JudgementError("all lost"))
        await asyncio.wait(calls)
        desk.again()
        errors = [str(call.exception()) for call in calls]
        return numbers(first), numbers(second), errors, desk.waiting

    first, second, errors, waiting = virtually(scenario())[0]
    assert (first, second) == ([0, 1, 2], [0, 2])
    assert errors == ["all lost", "lost", "all lost"]
    assert not waiting
