"""What a process is told of a hub's actor that answers, or does not; without Ray's processes."""

import asyncio
from concurrent.futures import Future

import pytest

pytest.importorskip("ray")

from zerowait.errors import HubLostError
from zerowait.hub.ray.client import ActorAddress, ActorClient


class Actor:
    """Is asked for statistics, and answers when the test lets it."""

    def __init__(self):
        self.stats = self
        self.asked, self.answer = asyncio.Event(), Future()

    def remote(self):
        self.asked.set()
        return self

    def future(self):
        return self.answer


def link_to(actor):
    class Here(ActorAddress):
        def found_or_created(self, _):
            return actor

    where = {"config": "c", "record": None, "name": "hub", "namespace": None}
    return ActorClient(Here(**where, detached=False, patience_s=120.0), 0)


def test_an_answer_that_came_while_the_process_stood_still_counts(leaping):
    async def scenario(leap):
        actor = Actor()
        asking = asyncio.create_task(link_to(actor).call("stats"))
        await actor.asked.wait()
        actor.answer.set_result("the statistics")
        leap(200)
        return await asking

    assert leaping(scenario) == "the statistics"


def test_a_hub_that_answers_nothing_is_lost(leaping):
    async def scenario(leap):
        actor = Actor()
        asking = asyncio.create_task(link_to(actor).call("stats"))
        await actor.asked.wait()
        leap(121)
        with pytest.raises(HubLostError, match="'hub' did not answer for 120 s"):
            await asking
        return actor.answer.cancelled()

    assert leaping(scenario)
