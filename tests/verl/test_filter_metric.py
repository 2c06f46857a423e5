"""Groups are filtered by a number that the reward has, or training does not begin."""

import pytest
from omegaconf import OmegaConf

from zerowait.config import load_config
from zerowait.errors import ConfigError
from zerowait.verl.rewards.filter_metric import check_filter_metric
from zerowait.verl.rewards.streaming_rules import check_streaming

REWARD = """
components: {answer: {scorer: qa_em}, brevity: {scorer: format}, length: {shape: median_band}}
on_failure: raise
"""


@pytest.fixture
def reward(tmp_path):
    path = tmp_path / "reward.yaml"
    path.write_text(REWARD)
    return path


@pytest.mark.parametrize("metric", ["acc", "answers", "score", "abstained_why", "answer_abstained"])
def test_a_metric_that_no_row_has_as_a_number_is_refused_with_the_names_that_are_there(
    reward, metric
):
    with pytest.raises(ConfigError) as caught:
        check_filter_metric(
            load_config(reward), {"enable": True, "metric": metric}, streaming=False
        )
    assert f"algorithm.filter_groups.metric={metric} " in str(caught.value)
    assert "reward, or one of its components: answer, brevity, length" in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        None,
        {"metric": "acc"},
        {"enable": "False", "metric": "acc"},
        {"enable": True},
        {"enable": True, "metric": "reward"},
        {"enable": "true", "metric": "brevity"},
        {"enable": True, "metric": "answer/scored"},
        {"enable": True, "metric": "original_score"},
        {"enable": True, "metric": "judged_reward"},
    ],
)
def test_what_rows_have_and_what_is_not_filtered_is_left_alone(reward, given):
    check_filter_metric(load_config(reward), given, streaming=False)


def test_verls_own_trainers_are_refused_it_when_the_reward_manager_starts(reward):
    filtered = {"filter_groups": {"enable": True, "metric": "acc"}}
    with pytest.raises(ConfigError, match="metric=acc is no number"):
        check_streaming(reward, OmegaConf.create({"algorithm": filtered}))


def test_the_trainer_modes_zerowait_are_refused_it_before_verls_trainer_is_built(reward):
    from zerowait.verl.trainer.ticket_trainer import ZerowaitTrainer

    config = {
        "trainer": {"v1": {"trainer_mode": "zerowait"}},
        "reward": {
            "reward_manager": {"name": "zerowait"},
            "reward_model": {"enable": False},
            "zerowait": {"config": str(reward)},
        },
        "algorithm": {"filter_groups": {"enable": True, "metric": "acc"}},
    }
    with pytest.raises(ConfigError, match="metric=acc is no number"):
        ZerowaitTrainer(OmegaConf.create(config))


MAY_LACK = """
components:
  raised: {scorer: qa_em}
  neutral: {scorer: qa_em}
  chosen: {scorer: qa_em}
  gated: {judge: q, gate: raised > 0}
  some: {scorer: qa_em, sources: [nq]}
  shadow: {scorer: qa_em, weight: 0}
judges: {q: {endpoints: [{base_url: "http://h/v1", model: m}], verdict: {integer: [1, 10]}}}
on_failure: {default: raise, neutral: neutral, chosen: {value: 0}}
"""


@pytest.mark.parametrize(
    ("metric", "why"),
    [
        ("neutral", "may abstain, since its failure policy is not raise"),
        ("chosen", "may abstain, since its failure policy is not raise"),
        ("gated", "is skipped in some rows"),
        ("some", "is skipped in some rows"),
        ("shadow", "may abstain, since its weight is 0"),
        ("judged_reward", "is not measured where something abstains"),
    ],
)
def test_verls_own_trainers_are_refused_a_number_that_some_rows_lack(tmp_path, metric, why):
    """They would end at float(None), in the middle of a training."""
    path = tmp_path / "reward.yaml"
    path.write_text(MAY_LACK)
    given = {"enable": True, "metric": metric}
    with pytest.raises(ConfigError, match=f"metric={metric} {why}.*mode: zerowait"):
        check_streaming(path, OmegaConf.create({"algorithm": {"filter_groups": given}}))
    check_filter_metric(load_config(path), given, streaming=False)


@pytest.mark.parametrize(
    "metric", ["reward", "raised", "abstained", "gated/scored", "neutral/abstained"]
)
def test_verls_own_trainers_may_filter_by_what_every_row_has(tmp_path, metric):
    path = tmp_path / "reward.yaml"
    path.write_text(MAY_LACK)
    check_filter_metric(load_config(path), {"enable": True, "metric": metric}, streaming=True)
