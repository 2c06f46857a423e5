"""``zerowait doctor verl``: what keeps verl from asking us for its rewards."""

import sys

import pytest

from zerowait.cli.doctor import verl as doctor


@pytest.fixture(autouse=True)
def as_verl_was_imported(monkeypatch):
    monkeypatch.setenv("VERL_PLATFORM", "")
    monkeypatch.delenv("VERL_USE_EXTERNAL_PLUGINS", raising=False)


def test_a_sound_installation_is_shown_with_what_verl_has_of_us(capsys):
    assert doctor([]) == 0
    said = capsys.readouterr().out
    assert "trainer mode zerowait: registered" in said
    assert "reward manager zerowait: registered" in said
    assert "trap" not in said


def test_an_environment_that_keeps_the_plug_in_out_is_a_failure(capsys, monkeypatch):
    monkeypatch.setenv("VERL_USE_EXTERNAL_PLUGINS", "none")
    assert doctor([]) == 1
    assert "VERL_USE_EXTERNAL_PLUGINS=none keeps verl from" in capsys.readouterr().out


def test_a_trainer_whose_packages_are_missing_is_a_line_and_no_traceback(capsys, monkeypatch):
    """verl alone installs, and trains with its extra packages only."""
    monkeypatch.setitem(sys.modules, "verl.trainer.ppo.v1", None)
    assert doctor([]) == 1
    assert "verl's trainer cannot be imported" in capsys.readouterr().out


def test_another_release_of_verl_is_said(capsys, monkeypatch):
    monkeypatch.setattr("zerowait.cli.doctor._installed_version", lambda name: "0.10.0")
    assert doctor([]) == 0
    assert "tested with verl 0.9.x" in capsys.readouterr().out


def test_every_trap_in_the_overrides_is_named(capsys):
    assert doctor(["reward_model.reward_manager=batch", "trainer.use_v1=False"]) == 1
    said = capsys.readouterr().out
    assert "trap: reward_model.reward_manager is accepted and ignored" in said
    assert "trap: trainer.use_v1=False chooses a trainer" in said


@pytest.fixture
def sound(tmp_path):
    """A command line of the user's own, whole and right, by its keys."""
    (tmp_path / "reward.yaml").write_text("components: {answer: {scorer: contains}}\n")
    return {
        "data.custom_cls.path": "pkg://zerowait.verl.dataset",
        "data.custom_cls.name": "RewardDataset",
        "reward.reward_manager.name": "zerowait",
        "+reward.zerowait.config": str(tmp_path / "reward.yaml"),
        "algorithm.adv_estimator": "grpo",
        "actor_rollout_ref.rollout.name": "vllm",
    }


def said_of(command, capsys):
    code = doctor([f"{key}={value}" for key, value in command.items()])
    traps = [line for line in capsys.readouterr().out.splitlines() if line.startswith("trap: ")]
    assert code == (1 if traps else 0)
    return traps


def test_a_whole_command_line_of_ones_own_is_fine(sound, capsys):
    assert said_of(sound, capsys) == []
    ticketed = sound | {"trainer.v1.trainer_mode": "zerowait", "+reward.zerowait.redeem_s": "5"}
    assert said_of(ticketed, capsys) == []


@pytest.mark.parametrize(
    ("left_out", "added", "says"),
    [
        ("reward.reward_manager.name", {}, "reward.reward_manager.name is not set, so that verl's own manager naive scores"),
        ("data.custom_cls", {}, "data.custom_cls.path is not set, so that rewards are not told the split"),
        ("data.custom_cls.name", {}, "data.custom_cls.name is not set; write data.custom_cls.name=RewardDataset"),
        ("data.custom_cls.name", {"data.custom_cls.name": "RewardDatset"}, "has no such class; write data.custom_cls.name=RewardDataset"),
        ("data.custom_cls", {"data.custm_cls.path": "x"}, "there is no 'custm_cls' in data; did you mean 'custom_cls'?"),
        ("+reward.zerowait", {}, "reward.zerowait.config is not set: give the path of a reward.yaml"),
        ("+reward.zerowait", {"+reward.zerowait.confg": "r.yaml"}, "there is no key reward.zerowait.confg; did you mean 'config'?"),
        ("+reward.zerowait", {"+reward.zerowiat.config": "r.yaml"}, "reward.zerowait.config is not set (reward.zerowiat is, which is not read)"),
        ("+reward.zerowait", {"reward.zerowait.config": "r.yaml"}, "it is added with a plus, as in +reward.zerowait.config=..."),
        ("+reward.zerowait", {"+reward.zerowait.config": "/no/reward.yaml"}, "/no/reward.yaml: cannot be read: No such file or directory"),
        ("-", {"+reward.zerowait.redeem_s": "5"}, "reward.zerowait.redeem_s is for the trainer modes"),
        ("-", {"+reward.zerowait.max_abstained": "2", "trainer.v1.trainer_mode": "zerowait"}, "max_abstained must be in (0, 1], not 2"),
        ("-", {"data.train_files": "[/no/train.parquet]"}, "/no/train.parquet: there is no such file"),
        ("-", {"trainer.save_freq": "abc"}, "trainer.save_freq must be a whole number, not text 'abc'"),
        ("-", {"actor_rollout_ref.actor.strategy": "fsdp2", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": "3"}, "ppo_micro_batch_size_per_gpu is 3, and does not divide the 32 rows that a device computes in one update: write 2"),
        ("-", {"trainer.nosuch": "1"}, "trainer.nosuch is no key of verl's configuration"),
        ("-", {"trainer.v1.trainer_mode": "zerowiat"}, "did you mean 'zerowait'?"),
    ],
)  # fmt: skip
def test_what_is_missing_or_misspelt_is_named(sound, capsys, left_out, added, says):
    command = {key: value for key, value in sound.items() if not key.startswith(left_out)} | added
    traps = said_of(command, capsys)
    assert any(says in trap for trap in traps), traps


def test_each_of_several_mistakes_is_named(sound, capsys):
    command = {"trainer.nosuch": "1", "trainer.save_freq": "abc", "reward.reward_manager.name": "zerowait"}  # fmt: skip
    said = "\n".join(said_of(command, capsys))
    for part in ("trainer.nosuch", "trainer.save_freq", "data.custom_cls.path", "zerowait.config"):
        assert part in said


def test_a_reward_file_that_verls_own_trainers_cannot_carry_out_is_named(sound, capsys, tmp_path):
    (tmp_path / "reward.yaml").write_text(
        "components: {answer: {scorer: contains}}\non_failure: mask\n"
    )
    [said] = said_of(sound, capsys)
    assert "on_failure.default is 'mask', which verl's own trainers cannot do" in said
    assert said_of(sound | {"trainer.v1.trainer_mode": "zerowait"}, capsys) == []
