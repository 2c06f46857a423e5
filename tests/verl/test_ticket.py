"""The trainer mode's configuration, and tickets on their way through verl's rows."""

import ast
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from verl.trainer.ppo.core_algos import AdvantageEstimator
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from zerowait.errors import ConfigError, DataError
from zerowait.types import Sample
from zerowait.verl import plugin
from zerowait.verl.estimators import check_estimator, has_group_baseline
from zerowait.verl.launch.recipe import Trainer
from zerowait.verl.rewards.settings import check_ticketed, gives_tickets, settings_in
from zerowait.verl.rewards.tickets import ticket, ticket_in
from zerowait.verl.trainer.ticket_trainer import TicketTrainer
from zerowait.verl.trainer_modes import BASE_MODES

SAMPLE = Sample(
    [{"role": "user", "content": "2+2?"}],
    "4",
    {"answers": ["4"]},
    "sums",
    "g",
    3,
    {"level": 1.5},
    "g_0",
    4,
    "train",
    7,
)


def config(mode="zerowait", *, manager="zerowait", own=None, model=False):
    reward = {
        "reward_manager": {"name": manager},
        "reward_model": {"enable": model},
        "custom_reward_function": {"path": None},
    }
    if own is not None:
        reward["zerowait"] = own
    return OmegaConf.create({"trainer": {"v1": {"trainer_mode": mode}}, "reward": reward})


def test_a_ticket_brings_its_sample_through_verls_rows_unchanged():
    assert ticket_in({"reward_extra_info": ticket(SAMPLE), "turns": 2}) == SAMPLE


@pytest.mark.parametrize(
    "fields", [None, {}, {"reward_extra_info": {}}, {"reward_extra_info": {"acc": 1.0}}]
)
def test_a_row_without_a_ticket_has_none(fields):
    assert ticket_in(fields) is None


def test_a_damaged_ticket_is_an_error_and_no_reward():
    with pytest.raises(DataError, match="damaged"):
        ticket_in({"reward_extra_info": {"ticket": b"\x00"}})


def test_only_our_mode_hands_out_tickets():
    assert gives_tickets(config())
    assert not gives_tickets(config("sync"))


@pytest.mark.parametrize(
    ("own", "says"),
    [
        (None, "reward.zerowait.config is not set"),
        (
            {"config": "r.yaml", "redem_s": 3},
            "there is no key reward.zerowait.redem_s; did you mean 'redeem_s'?",
        ),
        ({"config": "r.yaml", "redeem_s": 0}, "redeem_s must be greater than 0"),
        ({"config": "r.yaml", "max_abstained": 1.5}, r"max_abstained must be in \(0, 1\]"),
    ],
)
def test_what_is_wrong_with_the_settings_is_named(own, says):
    with pytest.raises(ConfigError, match=says):
        settings_in(config(own=own))


@pytest.mark.parametrize("key", ["redeem_s", "max_abstained"])
@pytest.mark.parametrize("mode", ["sync", "colocate_async"])
def test_a_limit_that_verls_own_trainers_would_ignore_is_refused(key, mode):
    """A judge that is down would not stop them, whatever `max_abstained` said."""
    with pytest.raises(
        ConfigError, match=rf"reward.zerowait.{key} is for .*trainer_mode is {mode}"
    ):
        settings_in(config(mode, own={"config": "r.yaml", key: 0.5}))
    assert settings_in(config(mode, own={"config": "r.yaml"})).config == "r.yaml"


def test_settings_are_read_from_verls_configuration():
    settings = settings_in(config(own={"config": "r.yaml", "redeem_s": 5, "record": "run"}))
    assert (settings.config, settings.redeem_s, settings.record) == ("r.yaml", 5.0, "run")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (
            {"manager": "naive"},
            "trainer_mode=zerowait needs reward.reward_manager.name=zerowait, not naive",
        ),
        ({"model": True}, "never asks the reward manager"),
    ],
)
def test_a_configuration_whose_rows_would_have_no_ticket_is_refused(changed, says):
    with pytest.raises(ConfigError, match=says):
        check_ticketed(config(**changed))


@pytest.mark.parametrize(
    ("mode", "verls", "called"),
    [
        ("zerowait", PPOTrainerSync, "sync"),
        ("zerowait_colocate_async", PPOTrainerColocateAsync, "colocate_async"),
        ("zerowait_separate_async", PPOTrainerSeparateAsync, "separate_async"),
    ],
)
def test_verl_finds_each_mode_and_takes_it_for_its_own(mode, verls, called):
    trainer = get_trainer_cls(mode)
    assert issubclass(trainer, TicketTrainer)
    assert issubclass(trainer, verls)
    assert not trainer.__abstractmethods__
    one = object.__new__(trainer)
    one.config = config(mode)
    one.trainer_mode = mode  # as verl's constructor does, from the configuration
    assert one.trainer_mode == called
    assert gives_tickets(one.config)


def test_the_plug_in_says_that_the_mode_is_registered():
    status = {entry.what: entry.status for entry in plugin.registered()}
    assert status["trainer mode zerowait"] == "registered"


def test_the_mode_is_registered_whichever_of_our_modules_is_imported_first():
    """verl's import registers the mode, whose import must not need the module that began it."""
    say = "from zerowait.verl import plugin; print([e.error for e in plugin.registered()])"
    for first in ("agent.manager", "rewards.row_rewards"):
        command = [sys.executable, "-W", "ignore", "-c", f"import zerowait.verl.{first}; {say}"]
        errors = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert set(ast.literal_eval(errors.splitlines()[-1])) == {""}


def test_only_the_packages_that_import_verls_trainers_first_import_them():
    importers = {
        path.parent.name
        for path in Path(plugin.__file__).parent.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if "verl.trainer.ppo.v1" in ast.unparse(node)
        and isinstance(node, (ast.Import, ast.ImportFrom))
    }
    assert importers == {"agent", "trainer"}


@pytest.mark.parametrize("use_v1", [True, False])
def test_an_estimator_is_refused_where_verls_trainer_cannot_run_it(use_v1):
    """The trainer that `trainer.use_v1=False` chooses samples what remax needs."""
    chosen = AdvantageEstimator.REMAX
    given = {"trainer": {"use_v1": use_v1}, "algorithm": {"adv_estimator": chosen}}
    refused = pytest.raises(ConfigError, match=r"adv_estimator=remax cannot .* take rloo")
    with refused if use_v1 else nullcontext():
        check_estimator(OmegaConf.create(given))


def test_an_estimator_that_nobody_knows_is_taken_to_compare_siblings():
    assert has_group_baseline("somebodys_own")
    assert not has_group_baseline("gae")


@pytest.mark.parametrize("mode", ["sync", *BASE_MODES])
def test_how_much_a_step_may_sample_is_read_where_training_can_be_stopped(mode):
    assert settings_in(config(mode, own={"config": "r.yaml"})).max_sampled_batches == 20
    own = {"config": "r.yaml", "max_sampled_batches": 3}
    assert settings_in(config(mode, own=own)).max_sampled_batches == 3
    with pytest.raises(ConfigError, match="max_sampled_batches must be at least 1, not 0"):
        settings_in(config(mode, own=own | {"max_sampled_batches": 0}))


@pytest.mark.parametrize("mode", ["colocate_async", "separate_async"])
def test_how_much_a_step_may_sample_is_refused_where_verl_would_draw_for_ever(mode):
    with pytest.raises(ConfigError, match=r"max_sampled_batches is for .* draws other prompts"):
        settings_in(config(mode, own={"config": "r.yaml", "max_sampled_batches": 3}))
    with pytest.raises(ValueError, match=r"max_sampled_batches is read in sync and zerowait"):
        Trainer(mode=mode, max_sampled_batches=3)
