"""verl's own GRPO trainer on Ray, with our rewards and a judge that answers 429 and garbage."""

import io
import json
import math
import subprocess
import sys
from collections import Counter
from contextlib import closing

import pytest

from zerowait.observe import summarise
from zerowait.record import open_index
from zerowait.types import Abstain

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def two_devices(tmp_path_factory, assets, judge, training):
    return training(tmp_path_factory.mktemp("two"), assets, judge, devices=2, steps=1)


def scored_again(run, tmp_path):
    """What ``zerowait score`` makes of the samples that the run recorded."""
    target = tmp_path / "again.jsonl"
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from zerowait.cli import main; main()", "score", "-q"),
            *(str(run.run / "rewards.jsonl"), "-c", str(run.folder / "reward.yaml")),
            *("-o", str(target)),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, 3), done.stderr
    return [json.loads(line) for line in target.read_text().splitlines()]


def test_what_verl_trained_on_is_what_score_gives_for_the_same_samples(one_device, tmp_path):
    again = scored_again(one_device, tmp_path)
    assert len(again) == len(one_device.records) > 2 * 32
    for record, row in zip(one_device.records, again, strict=True):
        assert row["reward"] == record.reward.value
        dumped = one_device.dumped if record.sample.split == "train" else one_device.validated
        assert dumped[record.sample.id]["score"] == pytest.approx(record.trained_on, abs=1e-6)
        assert dumped[record.sample.id]["output"] == record.sample.response
        if record.reward.value is not None:
            assert record.trained_on == record.reward.value


def test_every_row_that_verl_trained_on_is_on_the_record(one_device):
    recorded = {r.sample.id for r in one_device.records if r.sample.split == "train"}
    assert recorded == set(one_device.dumped)


def test_no_abstention_is_trained_on_or_dumped_as_nought(one_device):
    lost = [r for r in one_device.records if r.reward.value is None]
    assert lost
    for record in lost:
        assert record.trained_on is not None
        assert math.isfinite(record.trained_on)
        assert record.substitute_from
        siblings = [
            r.reward.value
            for r in one_device.records
            if r.sample.group == record.sample.group and r.reward.value is not None
        ]
        if siblings:
            assert record.trained_on == pytest.approx(math.fsum(siblings) / len(siblings))
        dumped = one_device.dumped if record.sample.split == "train" else one_device.validated
        assert dumped[record.sample.id]["score"] == pytest.approx(record.trained_on, abs=1e-6)


def summaries(folder):
    with closing(open_index(folder)) as index:
        return summarise(index)


def test_each_abstentions_reason_is_counted(one_device):
    kinds = Counter(
        f"{name}/{outcome.kind.value}"
        for record in one_device.records
        for name, outcome in record.reward.components.items()
        if isinstance(outcome, Abstain)
    )
    counted = Counter()
    for step in summaries(one_device.run):
        counted.update(step.abstentions)
    assert counted == kinds
    assert counted["quality/unparseable"] > 0


def test_lengths_are_shaped_within_the_whole_group(one_device):
    for record in one_device.records:
        length = record.reward.components["length"]
        siblings = sorted(
            r.sample.response_tokens
            for r in one_device.records
            if r.sample.group == record.sample.group
        )
        middle = len(siblings) // 2
        median = (siblings[middle] + siblings[~middle]) / 2
        assert length.detail["median_length"] == median
        assert length.detail["response_length"] == record.sample.response_tokens


def test_validation_comes_before_and_after_and_apart_from_training(one_device):
    steps = summaries(one_device.run)
    assert [(s.split, s.step) for s in steps if s.split != "train"] == [
        ("validation", 0),
        ("validation", 2),
    ]
    assert all(s.rows == 32 for s in steps if s.split == "train")


def test_two_processes_give_the_same_rewards_for_the_same_samples(one_device, two_devices):
    """Greedy validation before the first step: the same weights, so the same responses."""

    def first_validation(run):
        return {
            json.dumps(r.sample.prompt): (r.sample.response, r.reward.value)
            for r in run.records
            if (r.sample.split, r.sample.step) == ("validation", 0)
        }

    assert first_validation(two_devices) == first_validation(one_device)
    for record in two_devices.records:
        if record.sample.split == "train":
            dumped = two_devices.dumped[record.sample.id]
            assert dumped["score"] == pytest.approx(record.trained_on, abs=1e-6)


def test_two_processes_train_together_and_their_rollouts_are_the_actors(two_devices):
    """Data parallel over gloo, one rollout server per rank, both kept in step."""
    assert "transformers:1" in two_devices.log
    for step in two_devices.steps[1:]:
        assert step["training/rollout_probs_diff_max"] < 1e-3


def test_rewards_of_two_processes_are_what_score_gives(two_devices, tmp_path):
    again = scored_again(two_devices, tmp_path)
    for record, row in zip(two_devices.records, again, strict=True):
        assert row["reward"] == record.reward.value


def test_the_report_shows_the_run(one_device):
    from zerowait.observe import by_step, comparison, read_report, traffic, write_page

    report = read_report(one_device.run)
    assert len(by_step(report)) == 1 + 2
    assert [row[0] for row in comparison(report)][1:5] == ["reward", "answer", "quality", "length"]
    assert dict(row[:2] for row in traffic(report))["asked"] != "0"
    page = io.BytesIO()
    write_page(one_device.run, page)
    assert b'"view' in page.getvalue()
