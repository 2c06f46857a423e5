"""Tickets: deposited by one process, redeemed by another, judged once."""

import asyncio

import pytest

from zerowait import JudgementError, Reward, Sample, Score
from zerowait.errors import ClosedError
from zerowait.hub.tickets import Tickets, ticket_of
from zerowait.testing import virtually


class Judge:
    """Rewards a sample after the seconds it says, and counts."""

    def __init__(self):
        self.asked = []
        self.given_up = []

    async def reward(self, sample):
        self.asked.append(sample.id)
        try:
            await asyncio.sleep(float(sample.response))
        except asyncio.CancelledError:
            self.given_up.append(sample.id)
            raise
        if sample.prompt == "fail":
            raise JudgementError("lost")
        return Reward(1.0, {"answer": Score(1.0)})


@pytest.fixture
def judge():
    return Judge()


@pytest.fixture
def tickets(judge):
    return Tickets(judge.reward)


def row(name, after_s=1, prompt="q", split="train"):
    return Sample(prompt, str(after_s), id=name, split=split)


def test_a_ticket_is_judged_in_the_background_and_redeemed_at_once(tickets, judge):
    async def scenario():
        loop = asyncio.get_running_loop()
        tickets.deposit([row("a", 5), row("b", 3)])
        await asyncio.sleep(5)
        before = loop.time()
        reward = await tickets.redeem(row("a", 5))
        return reward.value, loop.time() - before, len(tickets)

    assert virtually(scenario())[0] == (1.0, 0, 1)
    assert judge.asked == ["a", "b"]


def test_a_ticket_that_is_not_known_yet_is_waited_for(tickets):
    async def scenario():
        tickets.deposit([row("a", 5)])
        return await tickets.redeem(row("a", 5))

    assert virtually(scenario())[1] == 5


def test_a_restarted_hub_judges_a_ticket_that_it_does_not_know(tickets, judge):
    async def scenario():
        return await tickets.redeem(row("a", 2))

    reward, elapsed_s = virtually(scenario())
    assert (reward.value, elapsed_s, judge.asked) == (1.0, 2, ["a"])


def test_a_ticket_that_is_deposited_twice_is_judged_once(tickets, judge):
    async def scenario():
        tickets.deposit([row("a"), row("a")])
        await tickets.redeem(row("a"))

    virtually(scenario())
    assert judge.asked == ["a"]


def test_cancelling_one_redeemer_cancels_no_other(tickets, judge):
    async def scenario():
        tickets.deposit([row("a", 5)])
        impatient = asyncio.create_task(tickets.redeem(row("a", 5)))
        await asyncio.sleep(1)
        impatient.cancel()
        return await tickets.redeem(row("a", 5))

    assert virtually(scenario())[1] == 5
    assert judge.asked == ["a"]
    assert judge.given_up == []


def test_validation_and_training_tickets_of_one_name_are_two(tickets, judge):
    assert ticket_of(row("a")) != ticket_of(row("a", split="validation"))


def test_a_ticket_that_is_given_up_is_no_longer_judged(tickets, judge):
    async def scenario():
        tickets.deposit([row("a", 5), row("b", 5)])
        await asyncio.sleep(1)
        tickets.give_up([ticket_of(row("a")), "never/heard of"])
        await tickets.redeem(row("b", 5))

    virtually(scenario())
    assert judge.given_up == ["a"]


def test_redeeming_a_ticket_that_is_given_up_meanwhile_is_an_error(tickets):
    """A cancellation would pass for the waiter's own, and end it without a word."""

    async def scenario():
        waiting = asyncio.create_task(tickets.redeem(row("a", 5)))
        await asyncio.sleep(1)
        tickets.give_up([ticket_of(row("a"))])
        with pytest.raises(ClosedError, match="'train/a' was given up"):
            await waiting

    assert virtually(scenario())[1] == 1


def test_a_failure_is_raised_when_the_ticket_is_redeemed(tickets):
    async def scenario():
        tickets.deposit([row("a", 1, "fail")])
        await asyncio.sleep(2)
        with pytest.raises(JudgementError):
            await tickets.redeem(row("a", 1, "fail"))

    virtually(scenario())


def test_closing_gives_every_ticket_up(tickets, judge):
    async def scenario():
        tickets.deposit([row("a", 5), row("b", 5)])
        await asyncio.sleep(1)
        await tickets.aclose()
        await tickets.aclose()

    virtually(scenario())
    assert sorted(judge.given_up) == ["a", "b"]
    assert len(tickets) == 0
