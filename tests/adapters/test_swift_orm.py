"""The reward function for ms-swift, called by the real package's own scoring."""

import pytest

import zerowait.swift
from zerowait import ConfigError, DataError
from zerowait.errors import JudgementError
from zerowait.testing import FakeJudge, Script, Status

scoring = pytest.importorskip("swift.rl_core.grpo_algorithm")
RULE = {"components": {"answer": {"scorer": "qa_em"}}}


def sample(n, response):
    from swift.rl_core.data import GRPOSample

    asked = [{"role": "user", "content": "Capital of France?"}]
    said = [{"role": "assistant", "content": response}]
    return GRPOSample(
        messages=asked + said,
        prompt_id="prompt_0",
        request_id=f"r{n}",
        response_token_ids=[1, 2],
        extra={"solution": "Paris"},
    )


def scored(orm, *responses):
    """What ms-swift makes of the function: its matrix of rewards, and the advantages."""
    import torch
    from swift.rl_core.advantage import compute_advantages

    rewards = scoring.score_completions(
        [sample(n, each) for n, each in enumerate(responses)],
        reward_funcs=[orm(args=None)],
        reward_model_plugins=[None],
        use_gym_env=False,
        device=torch.device("cpu"),
    )
    advantages, _ = compute_advantages(
        rewards, torch.ones(1), num_generations=len(responses), scale_rewards="none"
    )
    return rewards[:, 0].tolist(), advantages.tolist()


def test_swift_takes_each_rows_reward():
    rewards, _ = scored(zerowait.swift.orm(RULE), "<answer>Paris</answer>", "<answer>Rome</answer>")
    assert rewards == [1.0, 0.0]


def test_a_neutral_abstention_has_advantage_zero_and_an_error_stops_the_training(judged):
    fails = Status(status=500, share=0.4, always=True)
    responses = [f"response {n}" for n in range(16)]
    with FakeJudge(Script(faults=(fails,))) as judge:
        rewards, advantages = scored(
            zerowait.swift.orm(judged(judge), on_abstain="neutral"), *responses
        )
        marked, _ = scored(zerowait.swift.orm(judged(judge), on_abstain=-99.0), *responses)
        with pytest.raises(JudgementError, match="no reward was reached"):
            scored(zerowait.swift.orm(judged(judge)), *responses)
    lost = [row for row, value in enumerate(marked) if value == -99.0]
    kept = [rewards[row] for row in range(16) if row not in lost]
    assert 0 < len(lost) < 16
    assert [rewards[row] for row in lost] == pytest.approx([sum(kept) / len(kept)] * len(lost))
    assert [advantages[row] for row in lost] == pytest.approx([0.0] * len(lost), abs=1e-5)


def test_swift_itself_would_take_a_none_for_a_zero():
    """Why the adapter returns no None; when this fails, a None has become the better form."""

    class Nothing:
        def __init__(self, args=None):
            del args

        def __call__(self, completions, **_):
            return [None] + [1.0] * (len(completions) - 1)

    _, advantages = scored(Nothing, "a", "b")
    assert advantages == [-0.5, 0.5]


def test_what_is_wrong_is_told_before_the_training():
    with pytest.raises(ConfigError, match="no scorer 'qa_en'"):
        zerowait.swift.orm({"components": {"answer": {"scorer": "qa_en"}}})
    with pytest.raises(ConfigError, match="on_abstain must be"):
        zerowait.swift.orm(RULE, on_abstain="raise")
    with pytest.raises(DataError, match="no column 'gold'"):
        scored(zerowait.swift.orm(RULE, ground_truth="gold"), "a")
