"""``zerowait report``: where the page goes, and who may read it."""

import json

import msgspec
import pytest

from zerowait.record import RewardRecord
from zerowait.types import Reward, Sample, Score


@pytest.fixture
def run(tmp_path):
    """A folder with the record of a run that had no counters and no judgements."""
    folder = tmp_path / "run"
    folder.mkdir()
    rows = [
        RewardRecord(sample=Sample("q", "r", step=step), reward=Reward(value, {"a": Score(value)}))
        for step, value in ((1, 0.5), (2, 0.25))
    ]
    (folder / "rewards.jsonl").write_bytes(b"".join(msgspec.json.encode(r) + b"\n" for r in rows))
    return folder


def test_the_page_is_written_into_the_folder_for_its_owner_alone(zerowait, run):
    done = zerowait("report", "run")
    assert done.returncode == 0, done.stderr
    assert "report: run/report.html" in done.stdout
    assert (run / "report.html").stat().st_mode & 0o077 == 0
    assert "<!doctype html>" in (run / "report.html").read_text()


def test_the_page_may_go_elsewhere_or_nowhere(zerowait, run, tmp_path):
    done = zerowait("report", "run", "--out", "page.html", "--json")
    assert json.loads(done.stdout)["page"] == "page.html"
    assert (tmp_path / "page.html").exists()
    assert json.loads(zerowait("report", "run", "--no-page", "--json").stdout)["page"] is None
    assert not (run / "report.html").exists()


def test_a_step_that_fell_is_told_with_its_likely_cause(zerowait, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    lines = []
    for step in range(1, 7):
        for k in range(16):
            value = float(k % 4 > 0) if step < 6 else float(k % 8 == 0)
            sample = Sample(f"q{step}-{k}", "r", step=step)
            lines.append(RewardRecord(sample=sample, reward=Reward(value, {"rule": Score(value)})))
    (folder / "rewards.jsonl").write_bytes(b"".join(msgspec.json.encode(r) + b"\n" for r in lines))
    done = zerowait("report", "run", "--no-page")
    assert "step 6: The reward fell from 0.75 in the 5 steps before to 0.125" in done.stdout
    assert "likely cause: The responses themselves got worse: rule fell" in done.stdout
    (fall,) = json.loads(zerowait("report", "run", "--no-page", "--json").stdout)["falls"]
    assert (fall["point"], fall["fell"]) == (6, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "--out", "-"], "name one, not -"),
        (["run", "--out", "run"], "is a folder"),
        (["run", "--out", "none/page.html"], "there is no folder none"),
        (["none"], "there is no folder none"),
        (["rnu"], "there is no folder rnu; did you mean run?"),
        (["run/rewards.jsonl"], "holds no record"),
    ],
)
def test_what_cannot_be_read_or_written_is_told_in_a_line(zerowait, run, arguments, says):
    done = zerowait("report", *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
