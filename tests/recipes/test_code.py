"""The recipe for programs earns what its page says."""

import json
from pathlib import Path

import pytest

import zerowait

RECIPE = Path(__file__).parents[2] / "recipes/code"

pytestmark = pytest.mark.wire


def test_each_row_earns_what_the_page_says():
    rows = [json.loads(line) for line in (RECIPE / "samples.jsonl").read_text().splitlines()]
    with zerowait.open(RECIPE / "reward.yaml") as rewards:
        found = rewards.score(zerowait.Sample(**row) for row in rows)
    page = dict(
        line.strip("| ").split(" | ")[:2]
        for line in (RECIPE / "README.md").read_text().splitlines()
        if line.startswith("| ") and ":" in line
    )
    said = {row["id"]: page[row["id"]] for row in rows}
    earned = {
        row["id"]: "abstains" if reward.value is None else f"{reward.value:g}"
        for row, reward in zip(rows, found, strict=True)
    }
    assert earned == said
