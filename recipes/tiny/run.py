"""Train the tiny policy with a fake judge, and show what it learned.

python recipes/tiny/run.py [--recipe recipes/tiny/recipe.yaml] [--output runs/tiny/run]
"""

import argparse
import subprocess
import sys
from pathlib import Path

from zerowait.testing import FakeJudge, Latency, Script
from zerowait.tiny_models.arithmetic import make_arithmetic_policy
from zerowait.verl.launch.recipe import load_recipe

HERE = Path(__file__).parent
ASSETS = Path("runs/tiny/assets")
ZEROWAIT = [sys.executable, "-c", "from zerowait.cli import main; main()"]


def main() -> int:
    """Run it all; the exit code of the first step that failed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--recipe", default=str(HERE / "recipe.yaml"))
    options.add_argument("--output", default="runs/tiny/run")
    given = options.parse_args()
    make_arithmetic_policy(ASSETS)
    (judge,) = load_recipe(Path(given.recipe)).reward.judges.values()
    script = Script(latency=Latency(median_s=0.1, sigma=0.5), verdict=judge.verdict)
    with FakeJudge(script, port=8003):
        commands = (
            ["train", given.recipe, f"--output={given.output}"],
            ["report", given.output],
        )
        for command in commands:
            code = subprocess.run([*ZEROWAIT, *command], check=False).returncode
            if code:
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
