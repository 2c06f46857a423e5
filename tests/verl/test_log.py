import os
import sys

import pytest

from zerowait.verl.launch import run_trainer
from zerowait.verl.log import Log


def mode(path):
    return path.stat().st_mode & 0o777


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_line_is_in_the_file_at_once(tmp_path):
    with Log(tmp_path / "log") as log:
        log.write("step:1 \udc80\n")
        assert (tmp_path / "log").read_text() == "step:1 ?\n"


def test_a_full_disk_leaves_lines_out_and_the_next_one_says_so(tmp_path, monkeypatch):
    full = [False]
    write = os.write

    def wire(file, text):
        if full[0]:
            raise OSError(28, "No space left on device")
        return write(file, text)

    monkeypatch.setattr(os, "write", wire)
    with Log(tmp_path / "log") as log:
        log.write("a\n")
        full[0] = True
        log.write("b\n")
        log.write("c\n")
        full[0] = False
        log.write("d\n")
        log.write("e\n")
    said = "zerowait: 2 lines are missing here: No space left on device"
    assert (tmp_path / "log").read_text() == f"a\n\n{said}\nd\ne\n"


def test_log_and_dumps_are_for_their_owner_only_in_a_folder_that_was_there_before(
    tmp_path, monkeypatch, open_umask
):
    run = tmp_path / "run"
    run.mkdir()
    (run / "train.log").write_text("an earlier run")
    monkeypatch.setattr(sys, "executable", "/bin/echo")
    assert run_trainer([], env={}, folder=run, on_step=print) == 0
    assert (run / "train.log").read_text() == "-m verl.trainer.main_ppo\n"
    assert mode(run / "train.log") == 0o600
    assert mode(run / "rollouts") == mode(run / "validation") == 0o700
