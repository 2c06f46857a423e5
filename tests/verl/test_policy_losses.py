"""Settings on which verl's policy losses would stop are refused before anything starts."""

import copy
import re

import pytest
import torch
from omegaconf import OmegaConf
from verl.trainer.ppo.core_algos import get_policy_loss_fn

from zerowait.verl.launch.composed_config import compose_config
from zerowait.verl.policy_losses import unfit_loss

ACTOR = "actor_rollout_ref.actor"
LOSS = f"{ACTOR}.policy_loss"


@pytest.fixture(scope="module")
def verls():
    """verl's own configuration."""
    return compose_config([])


def changed(config, given):
    config = copy.deepcopy(config)
    for key, value in given.items():
        OmegaConf.update(config, key, value)
    return config


@pytest.mark.parametrize(
    ("given", "key", "problem"),
    [
        ({f"{LOSS}.loss_mode": "dro"}, f"{LOSS}.dro_beta", "is not set"),
        ({f"{LOSS}.loss_mode": "dro", f"{LOSS}.dro_beta": 0}, f"{LOSS}.dro_beta", "is 0, and"),
        (
            {f"{LOSS}.loss_mode": "clip_cov", f"{LOSS}.clip_cov_ratio": -0.1},
            f"{LOSS}.clip_cov_ratio",
            "is -0.1, and the policy loss clip_cov needs more than 0",
        ),
        (
            {f"{LOSS}.loss_mode": "kl_cov", f"{LOSS}.kl_cov_ratio": 0.0},
            f"{LOSS}.kl_cov_ratio",
            "is 0, and the policy loss kl_cov",
        ),
        ({f"{ACTOR}.clip_ratio_c": 1.0}, f"{ACTOR}.clip_ratio_c", "is 1, and .* verl's is 3.0"),
    ],
)
def test_a_setting_on_which_verls_loss_stops_is_named(verls, given, key, problem):
    config = changed(verls, given)
    found, why = unfit_loss(config)
    assert found == key
    assert re.search(problem, why), why
    rows = torch.zeros(2, 3)
    actor = config.actor_rollout_ref.actor
    with pytest.raises(
        (ValueError, AssertionError), match=r"larger than 0|positive|greater than 1"
    ):
        get_policy_loss_fn(actor.policy_loss.loss_mode)(
            old_log_prob=rows,
            log_prob=rows,
            advantages=rows,
            response_mask=torch.ones(2, 3),
            loss_agg_mode="token-mean",
            config=actor,
        )


@pytest.mark.parametrize(
    "given",
    [
        {},
        {f"{LOSS}.loss_mode": "dro", f"{LOSS}.dro_beta": 0.5},
        {f"{LOSS}.loss_mode": "clip_cov", f"{LOSS}.clip_cov_ratio": None},
        {f"{LOSS}.loss_mode": "gspo", f"{ACTOR}.clip_ratio_c": 1.0},
        {f"{LOSS}.loss_mode": "a_loss_of_the_users_own"},
    ],
)
def test_other_settings_are_let_through(verls, given):
    assert unfit_loss(changed(verls, given)) is None
