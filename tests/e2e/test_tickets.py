"""verl on Ray in the trainer mode ``zerowait``, beside verl's own trainer, with slow judgements."""

import json
import re
from collections import Counter, defaultdict

import pytest

from zerowait.testing import FakeJudge, Latency, Script

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
STRAGGLER_S = 10.0
STEPS = 2


def run(folder, assets, training, mode):
    """A run in which one judgement in sixteen takes ten seconds; no two are alike."""
    latency = Latency(median_s=0.3, stall_share=1 / 16, stall_s=STRAGGLER_S)
    with FakeJudge(Script(seed=5, latency=latency)) as judge:
        done = training(folder, assets, judge, devices=1, steps=STEPS, trainer={"mode": mode})
    done.steps = steps_in(done.run / "train.log")
    return done


def steps_in(log):
    """What verl logged for each step."""
    found = []
    for line in log.read_text().splitlines():
        if re.search(r"\bstep:\d+ - ", line) and "timing_s/step" in line:
            pairs = re.findall(r"([\w/@.-]+):(-?[\d.]+(?:e-?\d+)?|nan)(?= - |$)", line)
            found.append({name: float(value) for name, value in pairs})
    return found


@pytest.fixture(scope="module")
def stock(tmp_path_factory, assets, training):
    return run(tmp_path_factory.mktemp("stock"), assets, training, "sync")


@pytest.fixture(scope="module")
def tickets(tmp_path_factory, assets, training):
    return run(tmp_path_factory.mktemp("tickets"), assets, training, "zerowait")


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


def test_a_step_waits_for_its_judges_behind_its_own_work_only(tickets):
    for step in tickets.steps:
        worked = step["timing_s/old_log_prob"]
        assert step["reward/exposed_reward_s"] <= max(0, STRAGGLER_S - worked) + 3
        assert step["timing_s/gen"] < STRAGGLER_S
