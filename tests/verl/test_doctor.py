"""``zerowait doctor verl``: what keeps verl from asking us for its rewards."""

import sys

import pytest

from zerowait.cli.doctor import verl as doctor


@pytest.fixture(autouse=True)
def as_verl_was_imported(monkeypatch):
    monkeypatch.setenv("VERL_PLATFORM", "")
    monkeypatch.delenv("VERL_USE_EXTERNAL_PLUGINS", raising=False)


def test_a_sound_installation_is_shown_with_what_verl_has_of_us(capsys):
    assert doctor(["reward.reward_manager.name=zerowait"]) == 0
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
    monkeypatch.setattr("zerowait.cli.doctor._version", lambda name: "0.10.0")
    assert doctor([]) == 0
    assert "tested with verl 0.9.x" in capsys.readouterr().out


def test_every_trap_in_the_overrides_is_named(capsys):
    assert doctor(["reward_model.reward_manager=batch", "trainer.use_v1=False"]) == 1
    said = capsys.readouterr().out
    assert "trap: reward_model.reward_manager is accepted and ignored" in said
    assert "trap: trainer.use_v1=False chooses a trainer" in said
