"""Anchors: a judge's drift, measured behind the job's own judgements."""

import asyncio
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait import ConfigError, Engine, Sample, Score
from zerowait.cache import Shard
from zerowait.client import Reply
from zerowait.engine import JudgementResult, Partition
from zerowait.engine.judging.anchors import ANCHORS
from zerowait.events import AnchorsMeasured, JudgeDrifted, JudgementSettled
from zerowait.judge.anchors import drift_between
from zerowait.testing import virtually

ROWS = [
    {"prompt": "q", "response": f"anchor {number}", "verdict": verdict}
    for number, verdict in enumerate([1, 3, 5, 8, 10])
]
PRICES = {"m": {"input": 1.0, "output": 10.0}}


class Wire:
    """Answers after a second: anchors by `shift` beside their reference, anything else with 7."""

    def __init__(self, latency_s=1.0):
        self.shift = 0
        self.latency_s = latency_s
        self.order = []

    async def send(self, request, *, timeout_s):
        text = json.loads(request.body)["messages"][1]["content"]
        number = next((n for n in range(len(ROWS)) if f"anchor {n}\n" in text), None)
        self.order.append("job" if number is None else "anchor")
        await asyncio.sleep(self.latency_s)
        verdict = 7 if number is None else min(10, ROWS[number]["verdict"] + (self.shift or 0))
        content = "no idea" if self.shift is None else f"Score: {verdict}"
        body = {
            "choices": [{"message": {"content": content}}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 10},
        }
        return Reply(200, {}, msgspec.json.encode(body))

    async def aclose(self):
        pass


@pytest.fixture
def config(tmp_path):
    (tmp_path / "anchors.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))

    def make(*, cache="off", traffic=None, **judge):
        return {
            "components": {"quality": {"judge": "q"}},
            "judges": {
                "q": {
                    "endpoints": [{"base_url": "http://judge/v1", "model": "m"}],
                    "verdict": {"integer": [1, 10]},
                    "max_tokens": 100,
                    "anchors": str(tmp_path / "anchors.jsonl"),
                }
                | judge
            },
            "prices": PRICES,
            "traffic": {"concurrency": 8, "hedge": "off"} | (traffic or {}),
            "cache": cache,
        }

    return make


def observed(config, job, wire=None, *, shard=None):
    """The events and the last stats of an engine in which `job(engine, wire)` runs."""
    wire, events = wire or Wire(), []

    async def asked_elsewhere(_index, _ask):
        return JudgementResult(outcome=Score(5.0), source="asked"), False

    partition = None if shard is None else Partition(shard, asked_elsewhere)

    async def scenario():
        async with Engine(
            config, transport=wire, listener=events.append, partition=partition
        ) as engine:
            await job(engine, wire)
            return engine.stats()

    stats, _ = virtually(scenario())
    return events, stats, wire


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


async def judged(engine, count, first=0, **fields):
    await engine.score_all([Sample("q", f"row {first + n}", **fields) for n in range(count)])


async def rest(_engine, _wire):
    await asyncio.sleep(60)


def test_anchors_are_asked_at_the_start_and_compared_with_their_reference(config):
    events, stats, wire = observed(config(), rest)
    [measured] = of(AnchorsMeasured, events)
    assert (measured.judge, measured.measurement, measured.reached) == ("q", 1, 5)
    assert measured.since_first.mean_abs == measured.from_reference.mean_abs == 0.0
    assert measured.from_reference.rank_correlation == pytest.approx(1.0)
    assert wire.order == ["anchor"] * 5
    assert stats.anchors["q"].measurements == 1
    assert of(JudgeDrifted, events) == []


def test_of_the_shards_of_a_hub_the_first_one_asks_them_once_for_all(config):
    async def job(engine, _wire):
        await asyncio.sleep(10)
        await judged(engine, 10)  # and the other shard about as many
        await asyncio.sleep(10)

    told = [observed(config(anchors_every=20), job, shard=Shard(at, 2)) for at in range(2)]
    counts = [len(of(AnchorsMeasured, events)) for events, _, _ in told]
    assert counts == [2, 0]
    assert [wire.order.count("anchor") for _, _, wire in told] == [10, 0]


def test_they_are_asked_again_after_so_many_judgements_and_told_apart_from_them(config):
    async def job(engine, wire):
        await asyncio.sleep(10)
        await judged(engine, 20)
        await asyncio.sleep(10)
        await judged(engine, 19, first=100)
        await asyncio.sleep(10)

    events, stats, wire = observed(config(anchors_every=20), job)
    assert [event.measurement for event in of(AnchorsMeasured, events)] == [1, 2]
    assert wire.order.count("anchor") == 10
    assert stats.components[ANCHORS].asked == 10
    assert stats.components["quality"].asked == 39
    assert stats.settled == 39


def test_they_are_asked_again_after_so_many_training_steps(config):
    async def job(engine, _wire):
        for step in range(1, 8):
            await judged(engine, 2, first=10 * step, step=step)
            await judged(engine, 2, first=10 * step + 5, step=100, split="validation")
            await asyncio.sleep(10)

    events, _, _ = observed(config(anchors_every={"steps": 3}), job)
    assert len(of(AnchorsMeasured, events)) == 3  # at the start, at steps 4 and 7


def test_a_judge_that_drifts_is_told_of_once_until_it_was_within_the_limit(config):
    async def job(engine, wire):
        for number, shift in enumerate([0, 2, 2, 0, 2]):
            wire.shift = shift
            if number:
                await judged(engine, 5, first=10 * number)
            await asyncio.sleep(20)

    events, stats, _ = observed(config(anchors_every=5), job)
    drifted = of(JudgeDrifted, events)
    assert [event.against for event in drifted] == ["first", "reference"] * 2
    assert drifted[0].drift.mean_abs == pytest.approx((2 + 2 + 2 + 2 + 0) / 5 / 9)
    assert drifted[0].drift.flips == 1  # from 5 to 7, across the middle of 1 to 10
    assert stats.anchors["q"].alarms == 4
    assert len(of(AnchorsMeasured, events)) == 5


def test_a_larger_limit_is_not_passed(config):
    async def job(engine, wire):
        await asyncio.sleep(20)
        wire.shift = 2
        await judged(engine, 5)
        await asyncio.sleep(20)

    events, _, _ = observed(config(anchors_every=5, anchors_alarm=0.5), job)
    assert of(JudgeDrifted, events) == []


def test_a_judge_off_its_references_from_the_start_is_told_of(config):
    wire = Wire()
    wire.shift = 3
    events, _, _ = observed(config(), rest, wire)
    assert [event.against for event in of(JudgeDrifted, events)] == ["reference"]


def test_anchors_that_are_not_reached_are_not_compared(config):
    wire = Wire()
    wire.shift = None
    events, stats, _ = observed(config(traffic={"attempts": 1}), rest, wire)
    [measured] = of(AnchorsMeasured, events)
    assert (measured.reached, measured.since_first, measured.from_reference) == (0, None, None)
    assert stats.abstentions == {"unparseable": 5}


def test_no_cache_answers_for_a_judge_and_none_keeps_what_it_says(config, tmp_path):
    settings = config(cache={"path": str(tmp_path / "judgements.db")}, anchors_every=5)

    async def run():
        wire = Wire(latency_s=0.001)
        async with Engine(settings, transport=wire) as engine:
            await measured(engine, 1)
            await judged(engine, 5)
            await measured(engine, 2)
        return wire.order

    async def measured(engine, times):  # in real time: the clock cannot jump over a file's
        while not (found := engine.stats().anchors) or found["q"].measurements < times:  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    assert asyncio.run(run()).count("anchor") == 10
    assert asyncio.run(run()) == ["anchor"] * 10


def test_the_jobs_own_judgements_go_first(config):
    async def job(engine, _wire):
        await judged(engine, 40)
        await asyncio.sleep(10)

    wire = observed(config(traffic={"concurrency": 2}), job)[2]
    assert wire.order.count("anchor") == 5
    assert wire.order == ["job"] * 40 + ["anchor"] * 5


def test_anchors_are_asked_at_last_where_nobody_ever_leaves_room(config):
    async def job(engine, _wire):
        async def press(which):
            for number in range(80):
                await engine.score(Sample("q", f"row {which} {number}"))

        async with asyncio.TaskGroup() as group:
            for which in range(4):
                group.create_task(press(which))

    events, _, wire = observed(config(traffic={"concurrency": 1}), job)
    assert wire.order[-1] == "job"
    assert wire.order.count("anchor") == 5
    assert len(of(AnchorsMeasured, events)) == 1


def test_anchors_count_in_the_budget(config):
    worst = observed(config(), rest)[1].spent_usd
    events, stats, wire = observed(config(traffic={"budget_usd": worst / 2}), rest)
    assert worst > 0
    assert stats.spent_usd <= worst / 2
    assert len(wire.order) < 5
    assert "budget" in stats.abstentions
    assert all(e.component == ANCHORS for e in of(JudgementSettled, events))


def test_a_measurement_ends_with_its_engine(config):
    async def leave_at_once(_engine, _wire):
        await asyncio.sleep(0.5)

    events, _, wire = observed(config(), leave_at_once, Wire(latency_s=100))
    assert of(AnchorsMeasured, events) == []
    assert len(wire.order) == 4  # no more at once than this


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "anchors.jsonl:2: is no JSON"),
        ("[]", "anchors.jsonl:2: is no JSON object"),
        ('{"prompt": "q", "response": "r"}', "anchors.jsonl:2: an anchor needs its reference"),
        (
            '{"prompt": "q", "response": "r", "verdict": 11}',
            "its verdict is 11, expected a number from 1 to 10",
        ),
        (
            '{"prompt": "q", "response": "r", "verdict": "good"}',
            "its verdict is 'good', expected a number",
        ),
        ('{"prompt": "q", "respnse": "r", "verdict": 1}', "did you mean 'response'?"),
        ('{"prompt": "q", "response": 7, "verdict": 1}', "Expected `str | array`"),
        ('{"prompt": "", "response": "r", "verdict": 1}', "needs {{prompt}}"),
    ],
)
def test_a_wrong_line_is_named_before_anything_is_asked(line, problem, config, tmp_path):
    file = tmp_path / "anchors.jsonl"
    file.write_text(f"{json.dumps(ROWS[0])}\n{line}\n")
    with pytest.raises(ConfigError) as error:
        Engine(config())
    assert problem in str(error.value)
    assert "judges.q.anchors" in str(error.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"anchors": "nowhere.jsonl"}, "cannot be read: No such file"),
        ({"anchors_every": 0}, "anchors_every must be greater than 0"),
        ({"anchors_every": {"stpes": 1}}, "did you mean 'steps'?"),
        ({"anchors_every": {"steps": 0}}, "steps must be greater than 0"),
        ({"anchors_alarm": -1}, "anchors_alarm must be greater than 0"),
    ],
)
def test_a_wrong_setting_is_an_error_at_the_start(change, problem, config):
    with pytest.raises(ConfigError) as error:
        Engine(config(**change))
    assert problem in str(error.value)


@pytest.mark.parametrize("count", [0, 501])
def test_no_anchors_and_too_many_are_errors(count, config, tmp_path):
    (tmp_path / "anchors.jsonl").write_text(f"{json.dumps(ROWS[0])}\n" * count)
    with pytest.raises(ConfigError, match=f"has {count} anchors; give 1 to 500"):
        Engine(config())


shares = st.lists(st.none() | st.floats(0, 1), min_size=1, max_size=30)


@given(shares)
def test_nothing_drifts_from_itself(values):
    drift = drift_between(values, values)
    if drift is not None:
        assert (drift.mean_abs, drift.flips) == (0.0, 0)
        assert drift.rank_correlation is None or drift.rank_correlation == pytest.approx(1.0)


@given(st.lists(st.tuples(st.none() | st.floats(0, 1), st.none() | st.floats(0, 1)), max_size=30))
def test_drift_is_symmetric_and_within_its_bounds(pairs):
    before, now = [a for a, _ in pairs], [b for _, b in pairs]
    there, back = drift_between(before, now), drift_between(now, before)
    if there is None:
        assert back is None
        return
    assert there.mean_abs == back.mean_abs
    assert 0 <= there.mean_abs <= 1
    assert 0 <= there.flips <= there.anchors == sum(None not in pair for pair in pairs)
    assert there.rank_correlation is None or -1 <= there.rank_correlation <= 1


def test_a_reversed_order_has_a_rank_correlation_of_minus_one():
    drift = drift_between([0.0, 0.2, 0.9], [0.9, 0.5, 0.1])
    assert drift.rank_correlation == pytest.approx(-1.0)
    assert drift.flips == 2
