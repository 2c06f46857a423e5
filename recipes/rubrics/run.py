"""Train the tiny policy by the rubric of each row, and show what it learned.

python recipes/rubrics/run.py [--output runs/rubrics/run]

The judge is a server that looks for the words which a criterion quotes: deterministic, so that the
numbers of the README can be seen again.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from zerowait.testing import FakeJudge, Latency, Script
from zerowait.tiny_models.arithmetic import make_arithmetic_policy

RECIPE = "recipes/rubrics/recipe.yaml"
REWARD = "recipes/rubrics/reward.yaml"
POLICY = Path("runs/tiny/assets")
ASSETS = Path("runs/rubrics/assets")
ZEROWAIT = [sys.executable, "-c", "from zerowait.cli import main; main()"]
NUMBERS = frozenset(
    (
        *("zero", "one", "two", "three", "four", "five", "six"),
        *("seven", "eight", "nine", "ten", "eleven", "twelve"),
    )
)
RESPONSE = re.compile(r"<<<BEGIN RESPONSE \w+>>>\n(.*?)\n<<<END RESPONSE", re.DOTALL)
CRITERION = re.compile(r"^(C\d+): (.+)$", re.MULTILINE)


def rubric_of(answer: str) -> list[dict[str, Any]]:
    """The criteria of a question with this answer, in HealthBench's form."""
    return [
        {"criterion": f'Says "{answer}".', "points": 6, "tags": ["axis:accuracy"]},
        {
            "criterion": f'Says a number other than "{answer}".',
            "points": -3,
            "tags": ["axis:accuracy"],
        },
        {"criterion": 'Writes "<answer>" once.', "points": 2, "tags": ["axis:form"]},
    ]


def is_met(criterion: str, response: str) -> bool:
    """Whether `response` meets one of those criteria."""
    quoted = criterion.split('"')[1]
    words = re.findall(r"[a-z]+", response.lower())
    if criterion.startswith("Writes"):
        return response.count(quoted) == 1
    if criterion.startswith("Says a number other"):
        return bool(NUMBERS.intersection(words) - {quoted})
    return quoted in words


def verdicts(body: dict[str, Any]) -> str:
    """The judge's reply: true or false for each criterion of the request."""
    text = body["messages"][-1]["content"]
    found = RESPONSE.search(text)
    response = "" if found is None else found[1]
    listed = CRITERION.findall(text.rpartition("The criteria:")[2].partition("Reply with")[0])
    met = {name: {"reason": "", "met": is_met(said, response)} for name, said in listed}
    return json.dumps(met)


def write_rows(name: str) -> None:
    """The policy's questions, each with a rubric in its ``extra_info``."""
    lines = (POLICY / name).read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    for row in rows:
        row["extra_info"]["rubric"] = rubric_of(row["reward_model"]["ground_truth"])
    (ASSETS / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def main() -> int:
    """Run it all; the exit code of the first step that failed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--output", default="runs/rubrics/run")
    given = options.parse_args()
    make_arithmetic_policy(POLICY)
    ASSETS.mkdir(parents=True, exist_ok=True)
    files = ["train.jsonl", "validation.jsonl"]
    for name in files:
        write_rows(name)
    script = Script(latency=Latency(median_s=0.1, sigma=0.5))
    with FakeJudge(script, answer=verdicts, port=8003):
        commands = (
            [
                "doctor",
                "data",
                *(str(ASSETS / name) for name in files),
                f"--config={REWARD}",
            ],
            ["train", RECIPE, f"--output={given.output}"],
            ["report", given.output],
        )
        for command in commands:
            code = subprocess.run([*ZEROWAIT, *command], check=False).returncode
            if code:
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
