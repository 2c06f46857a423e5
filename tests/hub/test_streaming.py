"""Substitutes for abstained rows, for a trainer that needs a finite number for every row."""

import asyncio
import math

import pytest
from msgspec.structs import replace

from zerowait import Abstain, Engine, JudgementError, Sample, Score
from zerowait.client import Reply
from zerowait.hub import Stream, streaming
from zerowait.testing import virtually

CONFIG = {
    "components": {"quality": {"judge": "q"}},
    "judges": {
        "q": {
            "endpoints": [{"base_url": "http://judge/v1", "model": "m"}],
            "verdict": {"integer": [1, 10]},
        }
    },
    "traffic": {"attempts": 1},
    "cache": "off",
}


class Verdicts:
    """A judge behind a transport: gives the verdict that the response names, after its seconds."""

    async def send(self, request, *, timeout_s):
        said, after_s = request.body.decode().split("SAY ")[1].split()[:2]
        await asyncio.sleep(float(after_s))
        if said == "fail":
            return Reply(400, {}, b"{}")
        content = b'{"choices": [{"message": {"content": "Score: %s"}}]}' % said.encode()
        return Reply(200, {}, content)

    async def aclose(self):
        pass


def row(say, after_s=1, *, group="g", size=4, **fields):
    return Sample("q", f"SAY {say} {after_s} .", group=group, group_size=size, step=1, **fields)


def streamed(rows, config=CONFIG, group_deadline_s=60):
    """Each row's streamed reward or exception, and how long it took together."""

    async def scenario():
        async with Engine(config, transport=Verdicts()) as engine:
            stream = Stream(engine, group_deadline_s=group_deadline_s)

            async def one(sample):
                try:
                    return await stream.reward(sample)
                except JudgementError as error:
                    return error

            async with asyncio.TaskGroup() as tasks:
                started = [tasks.create_task(one(sample)) for sample in rows]
            assert len(stream._groups) == 0
            return [task.result() for task in started]

    return virtually(scenario())


def test_a_judged_row_gets_its_reward_without_waiting_for_its_siblings():
    async def scenario():
        async with Engine(CONFIG, transport=Verdicts()) as engine:
            stream = Stream(engine, group_deadline_s=60)
            return await stream.reward(row(7, 1))

    result, elapsed_s = virtually(scenario())
    assert result.value == 7
    assert result.substitute_from == ""
    assert elapsed_s == pytest.approx(1)


def test_an_abstained_row_gets_the_mean_of_its_surviving_siblings():
    results, _ = streamed([row(9), row("fail"), row(1, 5), row(2)])
    assert [result.trained_on for result in results] == [9, 4, 1, 2]
    assert [result.value for result in results] == [9, None, 1, 2]
    assert [result.substitute for result in results] == [None, 4, None, None]
    assert results[1].substitute_from == "group"
    assert results[1].reward.value is None
    assert isinstance(results[1].reward.components["quality"], Abstain)


def test_mean_centred_advantages_are_those_of_the_survivors_alone():
    """[1, 1, 0, 0] with the second abstaining: [2/3, 0, -1/3, -1/3]."""
    config = CONFIG | {"judges": {"q": CONFIG["judges"]["q"] | {"verdict": {"integer": [0, 10]}}}}
    results, _ = streamed([row(1), row("fail"), row(0), row(0)], config)
    values = [result.trained_on for result in results]
    mean = math.fsum(values) / 4
    assert [value - mean for value in values] == pytest.approx([2 / 3, 0, -1 / 3, -1 / 3])


def test_a_group_without_survivors_gets_one_number_for_all_and_so_advantage_0():
    lost = [row("fail", group="lost", size=2) for _ in range(2)]
    results, _ = streamed([*lost, row(8, 3, group="other", size=1)])
    assert [result.trained_on for result in results] == [8, 8, 8]
    assert {result.substitute_from for result in results[:2]} == {"step"}


def test_no_abstention_becomes_0():
    results, _ = streamed([row("fail"), row(5), row("fail"), row(5)])
    assert 0.0 not in [result.trained_on for result in results]


def test_when_no_row_was_judged_there_is_no_substitute():
    results, _ = streamed([row("fail", size=2), row("fail", size=2)])
    assert [(r.value, r.substitute, r.substitute_from) for r in results] == [(None, None, "")] * 2
    with pytest.raises(JudgementError, match=r"nothing a neutral reward could be.*http_error"):
        results[0].number("train")
    assert math.isnan(results[0].number("validation"))


def test_a_training_step_without_a_judged_row_gets_the_mean_of_the_run():
    async def scenario():
        async with Engine(CONFIG, transport=Verdicts()) as engine:
            stream = Stream(engine, group_deadline_s=60)
            rows = [row(9, size=1, group="a"), row(2, size=1, group="b"), row(4, size=1, group="c")]
            for sample in rows:
                await stream.reward(sample)
            lost = replace(row("fail", size=1, group="d"), step=2)
            return await stream.reward(lost)

    result, _ = virtually(scenario())
    assert (result.value, result.trained_on, result.substitute_from) == (None, 5, "run")


def test_validation_and_training_never_substitute_each_other():
    rows = [row(9, size=1, group="t"), row("fail", 2, size=1, group="v", split="validation")]
    results, _ = streamed(rows)
    assert (results[1].trained_on, results[1].substitute_from) == (None, "")


def test_a_validation_of_which_nothing_was_judged_has_no_number_and_stops_nothing():
    """Not even that of an earlier one, which would plot judgements that were not made."""

    async def scenario():
        async with Engine(CONFIG, transport=Verdicts()) as engine:
            stream = Stream(engine, group_deadline_s=60)
            numbers = []
            for step, say in [(1, 9), (2, "fail"), (3, 4)]:
                sample = row(say, size=1, group=f"v{step}", split="validation")
                numbers.append((await stream.reward(replace(sample, step=step))).trained_on)
            return numbers

    assert virtually(scenario())[0] == [9, None, 4]


def test_the_judged_rows_of_a_validation_substitute_the_others():
    rows = [row(8, group=f"v{n}", size=1, split="validation") for n in range(2)]
    results, _ = streamed([*rows, row("fail", 2, group="v2", size=1, split="validation")])
    assert (results[2].trained_on, results[2].substitute_from) == (8, "step")


def test_raise_stops_every_later_row_too():
    config = CONFIG | {"on_failure": "raise"}

    async def scenario():
        async with Engine(config, transport=Verdicts()) as engine:
            stream = Stream(engine, group_deadline_s=60)
            with pytest.raises(JudgementError):
                await stream.reward(row("fail", size=1))
            with pytest.raises(JudgementError, match="on_failure says raise"):
                await stream.reward(row(7, size=1))

    virtually(scenario())


def test_a_sibling_that_never_comes_is_waited_for_only_so_long():
    results, elapsed_s = waited_for_a_sibling()
    assert (results.value, results.trained_on) == (None, 6)
    assert results.substitute_from == "group"
    assert elapsed_s == pytest.approx(61)


def waited_for_a_sibling():
    async def scenario():
        async with Engine(CONFIG, transport=Verdicts()) as engine:
            stream = Stream(engine, group_deadline_s=60)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(stream.reward(row(6)))
                abstained = tasks.create_task(stream.reward(row("fail")))
            return abstained.result()

    return virtually(scenario())


def test_scores_are_scores():
    results, _ = streamed([row(3, size=1)])
    assert results[0].reward.components["quality"] == Score(
        3.0, results[0].reward.components["quality"].why, {"verdict": 3}
    )


def test_siblings_of_a_group_without_survivors_get_one_number_whatever_arrives_meanwhile():
    """A row of the same step that comes between two siblings' wake-ups changes the step's mean."""

    async def scenario():
        async with Engine(CONFIG, transport=Verdicts()) as engine:
            stream = Stream(engine, group_deadline_s=60)
            lost = [row("fail", 1, group="lost", size=3) for _ in range(3)]
            late = [row(n, 1 + n / 1000, group=f"late {n}", size=1) for n in range(1, 10)]
            async with asyncio.TaskGroup() as tasks:
                waiting = [tasks.create_task(stream.reward(r)) for r in [*lost, *late]]
            return {task.result().trained_on for task in waiting[:3]}

    numbers, _ = virtually(scenario())
    assert len(numbers) == 1


def test_a_row_without_a_group_waits_for_no_other_whatever_its_group_size():
    """It waits for no sibling, and no later row is averaged with it."""
    judged, lost = streamed([row(9, group=None), row("fail", group=None)])[0]
    assert (judged.value, judged.substitute_from) == (9, "")
    assert (lost.value, lost.trained_on, lost.substitute_from) == (None, 9, "step")
    assert streamed([row(9, group=None), row("fail", group=None)])[1] < 60


def test_nothing_is_kept_of_rows_whose_callers_have_gone():
    """A worker that dies cancels its rows; a hub that lives for weeks must not remember them."""

    async def scenario():
        async with Engine(CONFIG, transport=Verdicts()) as engine:
            stream = Stream(engine, group_deadline_s=60)
            rows = [row(n, 5, group=None, size=None) for n in range(1, 9)]
            waiting = [asyncio.create_task(stream.reward(each)) for each in rows]
            await asyncio.sleep(1)
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
            return len(stream._groups)

    assert virtually(scenario())[0] == 0


def test_groups_whose_siblings_never_come_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(streaming, "_GROUPS_KEPT", 8)

    async def scenario():
        async with Engine(CONFIG, transport=Verdicts()) as engine:
            stream = Stream(engine, group_deadline_s=60)
            for number in range(30):
                await stream.reward(row(7, group=f"g{number}"))
            return len(stream._groups)

    assert virtually(scenario())[0] == 8
