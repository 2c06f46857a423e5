"""What is left of verl's trainer when it is interrupted: nothing."""

import signal
import subprocess
import sys
from pathlib import Path

DRIVER = """
import sys
from pathlib import Path
from zerowait.verl.launch.trainer_process import run_trainer

folder, sys.executable = Path(sys.argv[1]), sys.argv[2]
show = lambda said: print(said, flush=True)
run_trainer([], env={}, folder=folder, on_step=show, tell=show)
"""
HANGS = f"""\
#!{sys.executable}
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
print(f"step:{{os.getpid()}} - ", flush=True)
while True:
    signal.pause()
"""


def test_a_second_interrupt_ends_a_trainer_that_hangs_and_leaves_no_process_behind(tmp_path):
    trainer = tmp_path / "trainer"
    trainer.write_text(HANGS)
    trainer.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, tmp_path / "run", trainer],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert "a second interrupt ends it at once" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) != 0
    assert not Path(f"/proc/{pid}").exists()
