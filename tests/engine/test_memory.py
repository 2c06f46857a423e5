"""What an engine holds does not grow with the requests that it has made."""

import asyncio
import gc
import json
import sys
from types import ModuleType

import pytest

from zerowait import Engine, Sample
from zerowait.client import Reply

ROWS = 16
FIRST, STEPS = 3, 13
ROOM = 100  # texts; one for each request would be 160


def said(content, fingerprint=""):
    body = {
        "choices": [{"message": {"content": content}}],
        "model": "m",
        "system_fingerprint": fingerprint,
    }
    return Reply(200, {}, json.dumps(body).encode())


class Wire:
    """A judge on the wire; `answer` makes each reply from its number."""

    def __init__(self, answer):
        self.answer = answer
        self.sent = 0

    async def send(self, request, *, timeout_s):
        self.sent += 1
        await asyncio.sleep(0)
        return self.answer(self.sent)

    async def aclose(self):
        pass


def config(cache):
    judge = {"endpoints": [{"base_url": "http://judge/v1", "model": "m"}]}
    return {
        "components": {"quality": {"judge": "q"}},
        "judges": {"q": {**judge, "verdict": {"integer": [1, 10]}}},
        "traffic": {"concurrency": 64, "hedge": "off", "give_up_after": "off"},
        "cache": cache,
    }


def rows(step):
    return [Sample("q", f"answer {step} {row}", step=step) for row in range(ROWS)]


async def scored(engine, step):
    await engine.score_all(rows(step))


async def given_up(engine, step):
    tasks = [asyncio.create_task(engine.score(row)) for row in rows(step)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def texts_in(root):
    """How many texts and bytes are reachable from `root`, not by way of a module."""
    seen = {id(vars(module)) for module in sys.modules.values() if isinstance(module, ModuleType)}
    texts, found = 0, [root]
    while found:
        one = found.pop()
        if id(one) in seen or isinstance(one, ModuleType | type):
            continue
        seen.add(id(one))
        texts += isinstance(one, str | bytes)
        found += gc.get_referents(one)
    return texts


def growth(wire, cache, one_step):
    """How many more texts an engine holds after `STEPS` steps than after `FIRST`."""

    async def main():
        async with Engine(config(cache), transport=wire) as engine:
            for step in range(FIRST):
                await one_step(engine, step)
            gc.collect()
            before = texts_in(engine)
            for step in range(FIRST, STEPS):
                await one_step(engine, step)
            gc.collect()
            return texts_in(engine) - before

    return asyncio.run(main())


@pytest.mark.parametrize("cache", ["off", "file"])
@pytest.mark.parametrize(
    "answer",
    [
        lambda _: said("no idea"),
        lambda _: Reply(400, {}, b"no"),
        lambda number: said(f"Score: {11 + number}"),
    ],
    ids=["unparseable", "refused", "out of range"],
)
def test_requests_that_lead_to_nothing_leave_nothing(answer, cache, tmp_path):
    where = "off" if cache == "off" else {"path": str(tmp_path / "cache.db")}
    assert growth(Wire(answer), where, scored) < ROOM


def test_requests_that_are_given_up_leave_nothing():
    assert growth(Wire(lambda _: said("Score: 7")), "off", given_up) < ROOM


def test_without_a_cache_answers_leave_nothing_either():
    assert growth(Wire(lambda _: said("Score: 7")), "off", scored) < ROOM


def test_a_server_that_names_another_fingerprint_with_every_reply_is_no_leak():
    assert growth(Wire(lambda number: said("Score: 7", f"fp {number}")), "off", scored) < ROOM


def test_an_answer_in_memory_is_found_by_its_texts(tmp_path):
    """What these tests would not see go: the keys that are of use."""
    wire = Wire(lambda _: said("Score: 7"))

    async def twice(engine, step):
        await scored(engine, 0)

    assert growth(wire, {"path": str(tmp_path / "cache.db")}, twice) < ROOM
    assert wire.sent == ROWS
