"""From where verl will go on: as its own code finds it."""

import pytest
from verl.utils.checkpoint.checkpoint_manager import find_latest_ckpt_path

from zerowait.verl.launch.resume import resumed_step, validates_first


def command(folder, *more):
    return [f'trainer.default_local_dir="{folder}"', "trainer.logger=[console]", *more]


def checkpoints(folder, *steps, latest):
    for step in steps:
        (folder / f"global_step_{step}").mkdir()
    (folder / "latest_checkpointed_iteration.txt").write_text(str(latest))
    return folder


def test_a_run_without_a_checkpoint_begins_anew(tmp_path):
    assert resumed_step(command(tmp_path)) is None
    assert find_latest_ckpt_path(str(tmp_path)) is None


@pytest.mark.parametrize("latest", [5, 10])
def test_a_run_goes_on_after_the_checkpoint_that_verl_calls_the_latest(tmp_path, latest):
    checkpoints(tmp_path, 5, 10, latest=latest)
    assert resumed_step(command(tmp_path)) == latest
    assert find_latest_ckpt_path(str(tmp_path)).endswith(f"global_step_{latest}")


def test_a_checkpoint_that_is_gone_is_none(tmp_path):
    checkpoints(tmp_path, 5, latest=10)
    assert resumed_step(command(tmp_path)) is None
    assert find_latest_ckpt_path(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("override", "step"),
    [
        ("trainer.resume_mode=disable", None),
        ("trainer.resume_mode=auto", 10),
        ("+trainer={resume_mode:disable}", None),
    ],
)
def test_verls_own_keys_decide(tmp_path, override, step):
    checkpoints(tmp_path, 10, latest=10)
    assert resumed_step(command(tmp_path, override)) == step


def test_a_checkpoint_that_is_named_is_the_one(tmp_path):
    checkpoints(tmp_path, 5, 10, latest=10)
    named = [f'trainer.resume_from_path="{tmp_path}/global_step_5"']
    assert resumed_step(command(tmp_path, "trainer.resume_mode=resume_path", *named)) == 5


def test_whether_it_validates_first_is_verls_setting(tmp_path):
    assert validates_first(command(tmp_path))
    assert validates_first(command(tmp_path, "trainer.val_before_train=true"))
    assert not validates_first(command(tmp_path, "trainer.val_before_train=False"))
