"""The picture and the table of what runs of the quickstart learned."""

import importlib.util
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from zerowait.hub import RewardRecord
from zerowait.types import Abstain, FailureKind, Reward, Sample, Score

ROOT = Path(__file__).parents[2]


def _load():
    path = ROOT / "recipes" / "quickstart" / "curves.py"
    spec = importlib.util.spec_from_file_location("quickstart_curves", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


curves = _load()


def record(folder, rows):
    """A run whose record has these rows: split, step, the rule's outcome."""
    folder.mkdir(parents=True)
    lines = []
    for place, (split, step, rule) in enumerate(rows):
        sample = Sample("q", "a", id=str(place), split=split, step=step)
        value = rule.value if isinstance(rule, Score) else None
        reward = Reward(value, {"answer": rule})
        lines.append(RewardRecord(sample=sample, reward=reward, submitted_at=1.0, settled_at=2.0))
    (folder / "rewards.jsonl").write_bytes(b"".join(msgspec.json.encode(x) + b"\n" for x in lines))
    return folder


RIGHT, WRONG = Score(value=1.0), Score(value=0.0)
OUTAGE = Abstain(kind=FailureKind.TIMEOUT, detail="")


@pytest.fixture
def runs(tmp_path):
    first = [("validation", 0, WRONG), ("train", 1, WRONG), ("train", 2, RIGHT)]
    first += [("train", 2, OUTAGE), ("validation", 2, RIGHT), ("validation", 2, WRONG)]
    second = [("validation", 0, WRONG), ("train", 1, Score(value=-0.3))]
    return [record(tmp_path / "seed-1", first), record(tmp_path / "a <b> & c", second)]


def test_a_run_is_read_as_means_by_step_and_an_abstention_is_no_zero(runs):
    run = curves.read_run(runs[0])
    assert run.name == "seed 1"
    assert run.held_out == [(0, 0.0), (2, 0.5)]
    assert run.rewards == [(1, 0.0), (2, 1.0)]


def test_a_smoothed_point_is_the_mean_of_as_many_steps_as_there_are_up_to_four():
    points = [(step, float(step)) for step in range(1, 7)]
    assert curves.smoothed(points) == [(1, 1), (2, 1.5), (3, 2), (4, 2.5), (5, 3.5), (6, 4.5)]
    assert curves.smoothed([]) == []


def test_the_command_draws_both_themes_and_prints_the_table(runs, tmp_path, monkeypatch, capsys):
    out = tmp_path / "new" / "curve.svg"
    monkeypatch.setattr(sys, "argv", ["curves.py", *map(str, runs), "--out", str(out)])
    assert curves.main() == 0
    assert capsys.readouterr().out.splitlines() == [
        "| rule on held-out prompts | step 0 | step 2 |",
        "| --- | --- | --- |",
        "| seed 1 | 0.000 | 0.500 |",
        "| a <b> & c | 0.000 | - |",
        f"picture: {out.with_name('curve-light.svg')}",
        f"picture: {out.with_name('curve-dark.svg')}",
    ]
    for theme in ("light", "dark"):
        svg = ET.parse(out.with_name(f"curve-{theme}.svg")).getroot()
        width, height = float(svg.get("width")), float(svg.get("height"))
        said = [node.text for node in svg.iter() if node.tag.endswith("title")]
        assert said[1:] == [
            "seed 1, step 0: 0.000",
            "seed 1, step 2: 0.500",
            "a <b> & c, step 0: 0.000",
        ]
        for node in svg.iter():
            for x, y in re.findall(r"([\d.-]+),([\d.-]+)", node.get("points", "")):
                assert 0 <= float(x) <= width
                assert 0 <= float(y) <= height


@pytest.mark.parametrize("rows", [None, [("train", 1, RIGHT)], [("validation", 0, OUTAGE)]])
def test_a_folder_without_held_out_scores_is_named(tmp_path, monkeypatch, capsys, rows):
    folder = tmp_path / "run"
    if rows is not None:
        record(folder, rows)
    monkeypatch.setattr(sys, "argv", ["curves.py", str(folder), f"--out={tmp_path}/a.svg"])
    assert curves.main() == 2
    assert str(folder) in capsys.readouterr().err
    assert not list(tmp_path.glob("*.svg"))


def _published_table():
    text = (ROOT / "docs" / "measurements.md").read_text()
    section = text.partition("\n## The quickstart in three seeds\n")[2]
    table = section[section.index("\n|") + 1 :].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    steps = [int(cell.removeprefix("step ")) for cell in rows[0][1:]]
    return {row[0]: list(zip(steps, map(float, row[1:]), strict=True)) for row in rows[2:]}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_published_picture_shows_the_published_table(theme):
    svg = ET.parse(ROOT / "docs" / "assets" / f"quickstart-{theme}.svg").getroot()
    said = [node.text for node in svg.iter() if node.tag.endswith("title")][1:]
    table = _published_table()
    assert said == [f"{run}, step {s}: {y:.3f}" for run, scores in table.items() for s, y in scores]


def test_every_published_seed_rises_and_stays_risen():
    table = _published_table()
    assert sorted(table) == ["seed 1", "seed 2", "seed 3"]
    for scores in table.values():
        (_, first), *later = scores
        assert all(score >= first + 0.15 for step, score in later if step >= 4)
