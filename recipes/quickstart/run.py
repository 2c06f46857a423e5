"""The quickstart: prepare, start a judge, train, and show what was learned.

    python recipes/quickstart/run.py [--seed 1] [--own-judge]

With ``--own-judge`` no judge is started: put your API into ``reward.yaml``.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
RUNS = Path("runs/quickstart")


def main() -> int:
    """Run it all; the exit code of the first step that failed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--own-judge", action="store_true", help="the judge in reward.yaml runs")
    given = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that training and judge end, too
    output = RUNS / f"seed-{given.seed}"
    started = time.monotonic()
    os.environ.setdefault("TQDM_DISABLE", "1")  # the bars of the model's conversion
    run([sys.executable, str(HERE / "prepare.py"), "--output", str(RUNS)])
    with contextlib.nullcontext() if given.own_judge else judge(RUNS / "judge.log"):
        zerowait("train", str(HERE / "recipe.yaml"), f"--output={output}", f"--seed={given.seed}")
    zerowait("report", str(output))
    draw = [sys.executable, str(HERE / "curves.py"), str(output), f"--out={output}/curves.svg"]
    subprocess.run(draw, check=False)  # a reward of your own may have no rule of that name
    print(f"{(time.monotonic() - started) / 60:.1f} minutes")
    print(f"To use your own API: put it into {os.path.relpath(HERE)}/reward.yaml, then")
    print("    make quickstart ARGS=--own-judge")
    print(f"Open {output}/report.html in a browser: every prompt, answer, verdict and reward")
    return 0


@contextlib.contextmanager
def judge(log: Path) -> Iterator[None]:
    """A small judge from real weights, over HTTP, in a process of its own."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as out:
        process = subprocess.Popen(
            [*ZEROWAIT, "judge", "--weights", "minilm", "--port", "8001"],
            stdout=subprocess.PIPE,
            stderr=out,
            text=True,
        )
        try:
            line = process.stdout.readline() if process.stdout else ""
            if "answers at" not in line:
                process.wait(10)
                sys.exit(f"the judge did not start: {log.read_text().strip() or line.strip()}")
            print(line.strip())
            yield
        finally:
            process.terminate()
            process.wait(10)


ZEROWAIT = [sys.executable, "-c", "from zerowait.cli import main; main()"]


def zerowait(*arguments: str) -> None:
    """Run the zerowait command."""
    run([*ZEROWAIT, *arguments])


def run(command: list[str]) -> None:
    """Run a step; end with its exit code when it fails."""
    with subprocess.Popen(command) as process:
        try:
            code = process.wait()
        except SystemExit:
            process.terminate()
            raise
    if code:
        sys.exit(code)


if __name__ == "__main__":
    sys.exit(main())
