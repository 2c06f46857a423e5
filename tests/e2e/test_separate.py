"""verl on Ray in `zerowait_separate_async`: rollouts on a device of their own, weights over gloo."""

import json
import os
from pathlib import Path

import pytest

from zerowait.testing import FakeJudge, Garbage, Latency, Script

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
ENGINE = Path(__file__).parent / "watching"
CHECKPOINT = "actor_rollout_ref.rollout.checkpoint_engine"
STEPS = 2
GARBAGE = Garbage(share=0.25, always=True)


@pytest.fixture(scope="module")
def done(tmp_path_factory, assets, training):
    folder = tmp_path_factory.mktemp("separate")
    known = filter(None, [str(ENGINE), os.environ.get("PYTHONPATH")])
    latency = Latency(median_s=0.05, sigma=0.5)
    with FakeJudge(Script(seed=5, latency=latency, faults=[GARBAGE])) as judge:
        return training(
            folder,
            assets,
            judge,
            devices=1,
            steps=STEPS,
            variables={"PYTHONPATH": os.pathsep.join(known), "WATCHED_WEIGHTS": str(folder)},
            trainer={"mode": "zerowait_separate_async", "max_abstained": 1},
            verl={f"{CHECKPOINT}.custom_backend_module": "watched_weights"},
        )


@pytest.mark.parametrize("step", range(STEPS + 1))
def test_after_each_update_the_rollouts_hold_the_trainers_weights(done, step):
    sent, held = (
        json.loads((done.folder / f"{who}_{step}.json").read_text()) for who in ("rank0", "server")
    )
    assert sent
    assert sent == {name: held[name] for name in sent}
    if step:
        before = json.loads((done.folder / f"rank0_{step - 1}.json").read_text())
        assert sent != before


def test_rewards_that_were_trained_on_are_those_of_the_record_and_no_abstention_is_a_number(done):
    recorded = {record.sample.id: record for record in done.records}
    trained = done.dumped
    assert len(trained) == STEPS * 32
    abstained = 0
    for key, row in {**trained, **done.validated}.items():
        record = recorded[key]
        assert row["output"] == record.sample.response
        if record.reward.value is None:
            abstained += 1
            assert row["score"] is None
            assert row["abstained_why"]
        else:
            assert row["score"] == pytest.approx(record.reward.value, abs=1e-6)
    assert abstained
    for step in done.steps[1:]:
        assert 0 < step["reward/abstained"] < 1


def test_the_actor_finds_the_probabilities_that_the_rollout_sampled_with(done):
    """In the first step, which is the one whose tokens are not a version behind."""
    assert done.steps[1]["training/rollout_probs_diff_max"] < 1e-3
