"""RPC sessions: each call is answered once, and a killed worker is noticed."""

import asyncio

import pytest

from zerowait import JudgementError, Reward, Sample
from zerowait.errors import ZerowaitError
from zerowait.hub import Streamed
from zerowait.hub.rpc import PendingCalls, Sessions
from zerowait.testing import virtually

HEARTBEAT_S, SESSION_TIMEOUT_S, RECONNECT_S = 10, 300, 5


class Judge:
    """Rewards a sample after the seconds that its response says, and notes cancelled calls."""

    def __init__(self):
        self.cancelled = []

    async def reward(self, sample):
        try:
            await asyncio.sleep(float(sample.response))
        except asyncio.CancelledError:
            self.cancelled.append(sample.response)
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
    return Sessions(judge.reward, heartbeat_s=HEARTBEAT_S, session_timeout_s=SESSION_TIMEOUT_S)


def row(after_s, prompt="q"):
    return Sample(prompt, str(after_s))


def numbers(results):
    return [number for number, _ in results]


def test_results_are_collected_once_in_the_order_in_which_they_came(sessions):
    async def scenario():
        sessions.open("a")
        assert sessions.submit("a", [(1, row(3)), (2, row(1)), (3, row(1))], [])
        return [numbers(await sessions.collect("a")) for _ in range(3)]

    results, elapsed_s = virtually(scenario())
    assert results == [[2, 3], [1], []]
    assert elapsed_s == 3 + HEARTBEAT_S


def test_collect_returns_no_results_as_a_heartbeat(sessions):
    async def scenario():
        sessions.open("a")
        return await sessions.collect("a")

    assert virtually(scenario()) == ([], HEARTBEAT_S)


def test_submit_and_collect_say_that_a_session_does_not_exist_or_is_over(sessions):
    async def scenario():
        first = await sessions.collect("a"), sessions.submit("a", [(1, row(1))], [])
        sessions.open("a")
        sessions.close("a")
        sessions.close("a")
        return first, (await sessions.collect("a"), sessions.submit("a", [], []))

    assert virtually(scenario())[0] == ((None, False), (None, False))


def test_an_error_is_a_result_and_so_is_a_bug_in_the_hub(sessions, caplog):
    async def scenario():
        sessions.open("a")
        sessions.submit("a", [(1, row(1, "fail")), (2, row(1, "break"))], [])
        return dict(await sessions.collect("a"))

    results = virtually(scenario())[0]
    assert isinstance(results[1], JudgementError)
    assert type(results[2]) is ZerowaitError
    assert "KeyError" in str(results[2])
    assert "a bug" in caplog.text


def test_a_cancelled_call_brings_no_result(sessions, judge):
    async def scenario():
        sessions.open("a")
        sessions.submit("a", [(1, row(2)), (2, row(3))], [])
        await asyncio.sleep(1)
        sessions.submit("a", [], [1, 77])
        return numbers(await sessions.collect("a"))

    assert virtually(scenario())[0] == [2]
    assert judge.cancelled == ["2"]


@pytest.mark.parametrize(
    ("end", "rewarded_s"),
    [(Sessions.disconnect, 1), (Sessions.close, 2)],
    ids=["disconnected", "closed"],
)
def test_a_disconnected_session_keeps_undelivered_results_and_a_closed_one_none(
    sessions, end, rewarded_s
):
    async def scenario():
        sessions.open("a")
        sessions.submit("a", [(1, row(1))], [])
        sent = numbers(await sessions.collect("a", from_worker=False))
        end(sessions, "a")
        sessions.open("b", "a")
        sessions.submit("b", [(1, row(1))], [])
        return sent + numbers(await sessions.collect("b"))

    assert virtually(scenario()) == ([1, 1], rewarded_s)


def test_undelivered_results_are_dropped_after_the_session_timeout(sessions):
    async def scenario():
        sessions.open("a")
        sessions.submit("a", [(1, row(1))], [])
        await sessions.collect("a", from_worker=False)
        sessions.disconnect("a")
        await asyncio.sleep(RECONNECT_S + SESSION_TIMEOUT_S)
        sessions.open("b", "a")
        sessions.submit("b", [(1, row(1))], [])
        await sessions.collect("b")

    assert virtually(scenario())[1] == RECONNECT_S + SESSION_TIMEOUT_S + 2


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "silent"])
def test_calls_go_on_for_a_worker_that_comes_back_and_are_not_made_twice(sessions, judge, cut):
    async def scenario():
        sessions.open("a")
        sessions.submit("a", [(1, row(8)), (2, row(9))], [])
        waiting = asyncio.create_task(sessions.collect("a"))
        await asyncio.sleep(4)
        if cut:
            sessions.disconnect("a")
            await asyncio.sleep(RECONNECT_S - 1)
        sessions.open("b", "a")
        sessions.submit("b", [(1, row(8)), (2, row(9)), (3, row(1))], [])
        found = []
        while len(found) < 3:
            found += numbers(await sessions.collect("b"))
        return found, await waiting, len(sessions)

    (found, taken, left), elapsed_s = virtually(scenario())
    assert (sorted(found), taken, left) == ([1, 2, 3], None, 1)
    assert elapsed_s == 9
    assert judge.cancelled == []


def test_a_call_that_ends_before_its_worker_asks_for_it_again_is_not_made_twice(sessions):
    async def scenario():
        sessions.open("a")
        sessions.submit("a", [(1, row(2)), (2, row(9))], [])
        await asyncio.sleep(1)
        sessions.open("b", "a")
        await asyncio.sleep(2)
        sessions.submit("b", [(1, row(2)), (2, row(9))], [])
        return numbers(await sessions.collect("b")) + numbers(await sessions.collect("b"))

    assert virtually(scenario()) == ([1, 2], 9)


def test_calls_go_on_through_two_cuts_in_quick_succession(sessions, judge):
    async def scenario():
        sessions.open("a")
        sessions.submit("a", [(1, row(20))], [])
        sessions.disconnect("a")
        sessions.open("b", "a")
        await asyncio.sleep(1)
        sessions.disconnect("b")
        sessions.open("c", "b")
        sessions.submit("c", [(1, row(20))], [])
        found = []
        while not found:
            found = numbers(await sessions.collect("c"))
        return found

    assert virtually(scenario()) == ([1], 20)
    assert judge.cancelled == []


def test_a_call_that_its_worker_does_not_ask_for_again_is_cancelled(sessions, judge):
    async def scenario():
        sessions.open("a")
        sessions.submit("a", [(1, row(100)), (2, row(50))], [])
        await asyncio.sleep(1)
        sessions.disconnect("a")
        sessions.open("b", "a")
        sessions.submit("b", [(2, row(50))], [])
        await asyncio.sleep(RECONNECT_S + 1)
        return list(judge.cancelled)

    assert virtually(scenario())[0] == ["100"]


def test_calls_of_a_worker_that_does_not_come_back_are_cancelled(sessions, judge):
    async def scenario():
        sessions.open("a")
        sessions.submit("a", [(1, row(100)), (2, row(2))], [])
        await asyncio.sleep(1)
        sessions.disconnect("a")
        await asyncio.sleep(RECONNECT_S - 1)
        going_on = list(judge.cancelled)
        await asyncio.sleep(2)
        cancelled = list(judge.cancelled)
        sessions.open("b", "a")  # much later; what was done meanwhile is there
        sessions.submit("b", [(2, row(2))], [])
        return going_on, cancelled, numbers(await sessions.collect("b"))

    assert virtually(scenario()) == (([], ["100"], [2]), RECONNECT_S + 2)


def test_results_for_a_suspended_worker_are_kept_for_its_next_session(sessions):
    async def scenario():
        sessions.open("a")
        sessions.submit("a", [(1, row(1))], [])
        await asyncio.sleep(SESSION_TIMEOUT_S + 1)
        over = "a" not in sessions
        sessions.open("b", "a")
        sessions.submit("b", [(1, row(1))], [])
        return over, numbers(await sessions.collect("b"))

    assert virtually(scenario()) == ((True, [1]), SESSION_TIMEOUT_S + 1)


def test_a_silent_session_is_disconnected_and_no_other(sessions, judge):
    async def scenario():
        sessions.open("dead")
        sessions.open("alive")
        sessions.submit("dead", [(1, row(1000))], [])
        sessions.submit("alive", [(1, row(900))], [])
        while not await sessions.collect("alive"):
            pass
        return len(sessions)

    (left, elapsed_s) = virtually(scenario())
    assert (left, elapsed_s) == (1, 900)
    assert judge.cancelled == ["1000"]


def served(judge, sessions, scenario):
    """The result of `scenario(pending)`, while the sessions answer the pending calls."""

    async def write(pending):
        while sessions.submit("s", *await pending.next_batch()):
            pass

    async def whole():
        pending = PendingCalls()
        sessions.open("s")
        writing = asyncio.create_task(write(pending))
        working = asyncio.create_task(scenario(pending))
        while not working.done():
            pending.settle(await sessions.collect("s"))
            await asyncio.sleep(0)
        writing.cancel()
        await asyncio.wait({writing})
        assert not pending.waiting
        return working.result()

    return virtually(whole())[0]


def test_each_of_a_thousand_callers_gets_its_own_reward(judge, sessions):
    async def scenario(pending):
        async with asyncio.TaskGroup() as tasks:
            calls = [tasks.create_task(pending.call(row(n % 7))) for n in range(1000)]
        return [call.result().value for call in calls]

    assert served(judge, sessions, scenario) == [n % 7 for n in range(1000)]


def test_cancelling_a_caller_cancels_its_call_in_the_hub(judge, sessions):
    async def scenario(pending):
        call = asyncio.create_task(pending.call(row(50)))
        await asyncio.sleep(5)
        call.cancel()
        await asyncio.wait({call})
        await asyncio.sleep(1)

    served(judge, sessions, scenario)
    assert judge.cancelled == ["50"]


def test_every_unanswered_call_can_be_queued_again():
    async def scenario():
        pending = PendingCalls()
        calls = [asyncio.create_task(pending.call(row(n))) for n in range(3)]
        await asyncio.sleep(0)
        first, _ = await pending.next_batch()
        pending.settle([(1, JudgementError("lost"))])
        pending.requeue()
        second, _ = await pending.next_batch()
        pending.fail(JudgementError("all lost"))
        await asyncio.wait(calls)
        pending.requeue()
        errors = [str(call.exception()) for call in calls]
        return numbers(first), numbers(second), errors, pending.waiting

    first, second, errors, waiting = virtually(scenario())[0]
    assert (first, second) == ([0, 1, 2], [0, 2])
    assert errors == ["all lost", "lost", "all lost"]
    assert not waiting
