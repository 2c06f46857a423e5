"""verl on Ray in the trainer mode ``zerowait``, beside verl's own trainer, with slow judgements."""

import json
import math
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from zerowait.observe.svg import THEMES
from zerowait.observe.timeline import (
    GRADIENTS,
    LOG_PROBS,
    ROLLOUT,
    WEIGHTS,
    draw_step,
    read_step,
)
from zerowait.testing import FakeJudge, Latency, Script

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]
STRAGGLER_S = 10.0
STEPS, PROMPTS = 2, 8
MEASURED = ("original_score", "quality_reward", "length_penalty", "response_length")
SHOWN = {
    *(f"reward/{name}" for name in ("mean", "std", "abstained", "exposed_reward_s")),
    *(
        f"reward/{component}/{what}"
        for component in ("answer", "quality", "length")
        for what in ("mean", "std", "abstained")
    ),
    *(f"reward/{name}/mean" for name in MEASURED),
    *(f"judge/{name}_s" for name in ("p50", "p95", "p99", "loop_lag_p99")),
    *(f"judge/{name}" for name in ("asked", "retries", "hedges", "spent_usd", "repeats_saved")),
    *(f"judge/{name}" for name in ("hit_rate", "limit")),
}


def in_tensorboard(folder, step):
    """Names and values of a step's scalars, as its page would show them."""
    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        name: event.value
        for name in events.Tags()["scalars"]
        for event in events.Scalars(name)
        if event.step == step
    }


@pytest.fixture(scope="module")
def stock(one_device):
    """verl's own trainer, with the same verdicts and failures: the judge's seed is the same."""
    return one_device


@pytest.fixture(scope="module")
def tickets(tmp_path_factory, assets, training, faults):
    """A run in which one judgement in sixteen takes ten seconds; no two are alike."""
    latency = Latency(median_s=0.3, stall_share=1 / 16, stall_s=STRAGGLER_S)
    with FakeJudge(Script(seed=5, latency=latency, faults=faults)) as judge:
        return training(
            tmp_path_factory.mktemp("tickets"),
            assets,
            judge,
            devices=1,
            steps=STEPS,
            trainer={"mode": "zerowait", "max_abstained": 1},
            schedule={"logger": ["console", "file", "tensorboard"]},
        )


def rewarded(done, split, step):
    """The rewards of a step's responses, by what they are; greedy ones may repeat."""
    found = Counter()
    for record in done.records:
        if (record.sample.split, record.sample.step) == (split, step):
            said = (json.dumps(record.sample.prompt), record.sample.response)
            found[(*said, record.reward.value)] += 1
    return found


@pytest.mark.parametrize(("split", "step"), [("validation", 0), ("train", 1)])
def test_the_same_weights_give_the_same_responses_and_rewards_as_under_verls_own_trainer(
    stock, tickets, split, step
):
    ours, verls = rewarded(tickets, split, step), rewarded(stock, split, step)
    assert ours == verls
    assert ours.total() > 8


@pytest.mark.parametrize(("split", "step"), [("train", 2), ("validation", 2)])
def test_after_an_update_the_runs_stay_together_and_no_response_has_two_rewards(
    stock, tickets, split, step
):
    """verl puts a batch in the order in which rewards came, so that sums differ in the last bit."""
    ours, verls = rewarded(tickets, split, step), rewarded(stock, split, step)
    assert ours.total() == verls.total() > 8
    assert (ours & verls).total() > ours.total() / 2
    values = defaultdict(set)
    for prompt, response, value in [*ours, *verls]:
        values[prompt, response].add(value)
    assert all(len(some) == 1 for some in values.values())


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_every_logger_of_verls_is_told_how_rewards_and_judges_do(tickets, step):
    told = in_tensorboard(tickets.folder / "tensorboard", step)
    assert told.keys() >= SHOWN
    assert all(math.isfinite(told[name]) for name in SHOWN)
    logged = tickets.steps[step]
    assert {name: logged[name] for name in SHOWN} == pytest.approx(
        {name: told[name] for name in SHOWN}, rel=1e-6
    )
    assert told["judge/asked"] > 0
    assert told["judge/spent_usd"] > 0
    assert told["reward/response_length/mean"] > 1


def test_dumps_show_what_each_reward_is_made_of(tickets):
    keys = {frozenset(row) for row in tickets.dumped.values()}
    assert len(keys) == 1
    row = next(row for row in tickets.dumped.values() if row["score"] is not None)
    parts = row["original_score"] + row["quality_reward"] - row["length_penalty"]
    assert row["score"] == pytest.approx(parts)


def test_gradients_are_computed_before_the_last_reward_of_a_step(tickets):
    steps = tickets.steps[1:]
    assert any(0 < step["reward/early_gradients"] < 1 for step in steps)
    assert all(math.isfinite(step["actor/grad_norm"]) and step["actor/lr"] > 0 for step in steps)


def test_responses_are_there_before_the_last_of_them_is_judged(tickets):
    """The rollout of a step with a straggler lasts less long than the judgements of the step."""
    judged_s = {}
    for step in range(1, STEPS + 1):
        rows = [r for r in tickets.records if (r.sample.split, r.sample.step) == ("train", step)]
        judged_s[step] = max(r.settled_at for r in rows) - min(r.submitted_at for r in rows)
    late = {step: seconds for step, seconds in judged_s.items() if seconds > STRAGGLER_S}
    assert late
    assert all(tickets.steps[step]["timing_s/gen"] < seconds for step, seconds in late.items())


def test_the_record_tells_when_each_phase_of_a_step_began_and_the_step_can_be_drawn(tickets):
    for step in range(1, STEPS + 1):
        times, logged = read_step(tickets.run, step), tickets.steps[step]
        assert {ROLLOUT, LOG_PROBS, GRADIENTS, WEIGHTS} <= {phase.name for phase in times.phases}
        for before, after in pairwise(times.phases):
            assert before.ended_at <= after.began_at + 0.05
        assert times.ended_at - times.began_at <= logged["timing_s/step"] + 0.05
        assert times.waited_s == pytest.approx(logged["reward/exposed_reward_s"], abs=1.0)
        assert len(times.groups) == PROMPTS
        assert draw_step(times, THEMES["light"], title="run").count("<rect") > PROMPTS
