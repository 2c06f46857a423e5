"""The client of a hub's actor that answers, or does not; without Ray's processes."""

import asyncio
from concurrent.futures import Future

import pytest

pytest.importorskip("ray")

from zerowait.errors import HubLostError
from zerowait.hub.ray.client import ActorAddress, ActorClient


class Actor:
    """An actor whose method `stats` returns when the test says so."""

    def __init__(self):
        self.stats = self
        self.asked, self.answer = asyncio.Event(), Future()

    def remote(self):
        self.asked.set()
        return self

    def future(self):
        return self.answer


def client_of(actor):
    class Here(ActorAddress):
        def find_or_create_actor(self, _):
            return actor

    where = {"config": "c", "record": None, "name": "hub", "namespace": None}
    return ActorClient(Here(**where, detached=False, patience_s=120.0), 0)


def test_an_answer_that_came_while_the_process_was_suspended_counts(leaping):
    async def scenario(leap):
        actor = Actor()
        asking = asyncio.create_task(client_of(actor).call("stats"))
        await actor.asked.wait()
        actor.answer.set_result("the statistics")
        leap(200)
        return await asking

    assert leaping(scenario) == "the statistics"


def test_a_hub_that_does_not_answer_is_lost(leaping):
    async def scenario(leap):
        actor = Actor()
        asking = asyncio.create_task(client_of(actor).call("stats"))
        await actor.asked.wait()
        leap(121)
        with pytest.raises(HubLostError, match="'hub' did not answer for 120 s"):
            await asking
        return actor.answer.cancelled()

    assert leaping(scenario)
