"""Turn rewards in verl: which estimators can use them, and what is refused at the start."""

import pytest
import torch
from omegaconf import OmegaConf

from zerowait.config import load_config
from zerowait.errors import ConfigError
from zerowait.verl.estimators import ESTIMATORS, not_run
from zerowait.verl.rewards.turn_rewards import check_turn_rewards
from zerowait.verl.rows import MANAGER

RUN_BY_VERL = [name for name in ESTIMATORS if not_run(name) is None]

REWARD = {
    "components": {"steps": {"judge": "q", "per": "turn"}},
    "judges": {
        "q": {
            "endpoints": [{"base_url": "http://h/v1", "model": "m"}],
            "verdict": {"integer": [1, 9]},
        }
    },
}


def verls(estimator, manager=MANAGER):
    rollout = {"agent": {"agent_loop_manager_class": manager}}
    return OmegaConf.create(
        {"algorithm": {"adv_estimator": estimator}, "actor_rollout_ref": {"rollout": rollout}}
    )


@pytest.mark.parametrize("estimator", RUN_BY_VERL)
def test_an_estimator_that_adds_up_the_rewards_is_refused_and_told_which_do_not(estimator):
    config = load_config(REWARD)
    if estimator in ("gae", "reinforce_plus_plus"):
        check_turn_rewards(config, verls(estimator))
        return
    with pytest.raises(ConfigError, match=r"aggregate.*gae, reinforce_plus_plus"):
        check_turn_rewards(config, verls(estimator))
    aggregated = {**REWARD["components"]["steps"], "aggregate": "mean"}
    check_turn_rewards(
        load_config(REWARD | {"components": {"steps": aggregated}}), verls(estimator)
    )


@pytest.mark.parametrize("estimator", RUN_BY_VERL)
def test_what_is_refused_is_what_verl_adds_up(estimator):
    """Two places of the same sum: only estimators that read tokens tell them apart."""
    from verl.trainer.ppo import core_algos

    mask = torch.ones(4, 6)
    early, late = torch.zeros(4, 6), torch.zeros(4, 6)
    early[:, 1], late[:, 5] = torch.tensor([1.0, 2, 3, 5]), torch.tensor([1.0, 2, 3, 5])
    told = {
        "response_mask": mask,
        "index": torch.tensor([0, 0, 0, 0]).numpy(),
        "config": OmegaConf.create({"gamma": 1.0, "norm_adv_by_std_in_grpo": True}),
        "values": torch.zeros(4, 6),
        "gamma": 1.0,
        "lam": 1.0,
    }
    function = core_algos.get_adv_estimator_fn(estimator)
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    given = {name: value for name, value in told.items() if name in names}
    first, second = (function(token_level_rewards=r, **given)[1] for r in (early, late))
    reads_tokens = estimator in ("gae", "reinforce_plus_plus")
    assert torch.equal(first, second) is not reads_tokens


def test_turns_need_workers_that_know_their_places():
    with pytest.raises(ConfigError, match="agent_loop_manager_class=zerowait"):
        check_turn_rewards(load_config(REWARD), verls("gae", manager=None))
