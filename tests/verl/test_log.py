import os
import subprocess
import sys

import pytest

from zerowait.verl.launch.log import TrainerLog, last_error
from zerowait.verl.launch.trainer_process import run_trainer


def mode(path):
    return path.stat().st_mode & 0o777


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_line_is_in_the_file_at_once(tmp_path):
    with TrainerLog(tmp_path / "log") as log:
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
    with TrainerLog(tmp_path / "log") as log:
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


FILLS = """\
#!{python}
import sys
try:
    with open("{folder}/global_step_1", "wb") as checkpoint:
        for _ in range(64):
            checkpoint.write(b"x" * 2**16)
            checkpoint.flush()
except OSError as error:
    print(f"(TaskRunner pid=1) OSError: {{error}}: 'global_step_1'", flush=True)
    sys.exit(1)
"""


def told_by(folder, script, monkeypatch):
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    told = []
    code = run_trainer([], env={}, folder=folder, on_step=print, tell=told.append)
    return code, told


@pytest.fixture
def small_disk(tmp_path):
    """A disk of one megabyte, which only root can mount."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_checkpoint_that_fills_the_disk_is_said_with_the_systems_words(
    tmp_path, small_disk, monkeypatch
):
    """The log is on the same disk, and so has no room for the reason either."""
    script = tmp_path / "trainer"
    script.write_text(FILLS.format(python=sys.executable, folder=small_disk / "run"))
    code, told = told_by(small_disk / "run", script, monkeypatch)
    assert code == 1
    assert told == [
        f"[Errno 28] No space left on device: 'global_step_1'; {small_disk / 'run'} has 0 MiB free"
    ]


def test_a_disk_that_is_full_is_said_where_nobody_else_says_it(tmp_path, small_disk, monkeypatch):
    script = tmp_path / "trainer"
    script.write_text(
        f"#!/bin/sh\nhead -c 9000000 /dev/zero > {small_disk}/run/x 2>/dev/null; exit 3\n"
    )
    code, [told] = told_by(small_disk / "run", script, monkeypatch)
    assert code == 3
    assert told == f"No space left on device; {small_disk / 'run'} has 0 MiB free"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("(WorkerDict pid=7) OSError: [Errno 122] Disk quota exceeded: '/x/model.pt'", "[Errno 122] Disk quota exceeded: '/x/model.pt'"),
        ("OSError: [Errno 27] File too large", "[Errno 27] File too large"),
        ("SafetensorError: I/O error: No space left on device (os error 28)", "No space left on device (os error 28)"),
        ("RuntimeError: [enforce fail at inline_container.cc:863] . PytorchStreamWriter failed writing file data/3: file write failed", "PytorchStreamWriter failed writing file data/3: file write failed"),
        ("sqlite3.OperationalError: database is locked", None),
    ],
)  # fmt: skip
def test_each_way_in_which_it_is_said_is_known(tmp_path, monkeypatch, line, says):
    script = tmp_path / "trainer"
    script.write_text(f'#!/bin/sh\necho "{line}"\nexit 1\n')
    _, told = told_by(tmp_path / "run", script, monkeypatch)
    assert [word.split("; ")[0] for word in told] == ([] if says is None else [says])


def test_a_training_that_ends_well_says_nothing_of_it(tmp_path, monkeypatch):
    script = tmp_path / "trainer"
    script.write_text('#!/bin/sh\necho "a logger: No space left on device"\n')
    assert told_by(tmp_path / "run", script, monkeypatch) == (0, [])


JUDGE_DIED = """\
step:2 - reward/mean:0.5
ray.exceptions.RayTaskError(JudgementError): \x1b[36mray::TaskRunnerV1.run()\x1b[39m (pid=7)
  File "zerowait/hub/rpc.py", line 100, in call
    return await call.result
zerowait.errors.JudgementError: quality: unreachable: no connection (on_failure says raise)
\x1b[36m(WorkerDict pid=9)\x1b[0m ValueError: what an actor logs is not what ended the training
"""
DIED = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."
ACTOR_DIED = f"""\
{DIED}
\tclass_name: create_colocated_worker_cls.<locals>.WorkerDict
\tactor_id: 5066c201
"""


@pytest.mark.parametrize(
    ("log", "error"),
    [
        (JUDGE_DIED, "quality: unreachable: no connection (on_failure says raise)"),
        (ACTOR_DIED, f"{DIED} (WorkerDict)"),
        (f"KeyError: {'x' * 900}\n", f"KeyError: {'x' * 490}…"),
        ("step:2 - reward/mean:0.5\n", ""),
    ],
)
def test_the_error_that_ended_the_training_is_found_among_the_lines_around_it(tmp_path, log, error):
    (tmp_path / "train.log").write_text(log)
    assert last_error(tmp_path) == error


def test_without_a_log_there_is_no_error(tmp_path):
    assert last_error(tmp_path) == ""
