"""The page names the cause of a fall, in runs that were made by the real engine."""

import random
from contextlib import closing
from itertools import product

import msgspec
import pytest

from zerowait.observe.fall import FallReader
from zerowait.observe.page.data import open_run, point, view_document
from zerowait.record import REWARDS, AppendOnlyFile, RewardRecord, open_index
from zerowait.types import Reward, Sample, Score

FALLS_AT = 6


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("harder prompts", "harder_prompts"),
        ("harder prompts of one source", "harder_prompts"),
        ("a judge outage", "judge_outage"),
        ("a drifted judge", "judge_drift"),
        ("reward hacking by length", "length_hacking"),
        ("a broken form", "broken_form"),
        ("one endpoint of two", "endpoint_differs"),
        ("another weight on resume", "reconfigured"),
    ],
)
def test_the_first_cause_is_the_true_one(name, cause, prepare, tmp_path):
    with closing(open_index(prepare(name, tmp_path / "run"))) as index:
        run = open_run(index)
        assert FALLS_AT in view_document(run, "rewards").falls
        panel = point(run, FALLS_AT)
    assert panel.fall.fell
    assert panel.fall.causes[0].kind == cause, panel.fall
    assert panel.worst[0].responses[-1].components


def test_a_component_that_got_worse_is_asked_about_although_the_reward_did_not_fall(
    prepare, tmp_path
):
    folder = prepare("an outage behind a rising rule", tmp_path / "run")
    with closing(open_index(folder)) as index:
        run = open_run(index)
        found = view_document(run, "rewards")
        assert (found.falls, found.changed) == ([], [FALLS_AT])
        fall = point(run, FALLS_AT).fall
    assert not fall.fell
    assert "but quality" in fall.words
    assert fall.causes[0].kind == "judge_outage", fall


@pytest.mark.parametrize("only", [None, 5])
def test_prompts_that_a_younger_policy_answered_are_not_called_harder(only, tmp_path):
    """At the first step of a second epoch they were last seen when the policy knew nothing."""
    means = [0.2, 0.3, 0.4, 0.5, 0.6, 0.2, 0.8, 0.85, 0.9, 0.95]
    file = AppendOnlyFile(tmp_path / REWARDS)
    for step, mean in enumerate(means):
        for k in range(16):
            value = mean + 0.05 * (-1) ** k
            sample = Sample(f"question {step % 5}-{k // 4}", "a", group=f"{k // 4}", step=step)
            reward = Reward(value, {"correct": Score(value)})
            file.write(msgspec.json.encode(RewardRecord(sample=sample, reward=reward)))
    file.close()
    with closing(open_index(tmp_path)) as index:
        run = open_run(index)
        fall = FallReader(index, run.axis, run.judged, only=only).explain(5)
    assert fall.fell
    assert [cause.kind for cause in fall.causes] == ["passing", "worse_responses"]


def test_a_run_that_recorded_few_steps_far_apart_has_a_point_for_each(tmp_path):
    file = AppendOnlyFile(tmp_path / REWARDS)
    for step in (1, 250, 500, 750):
        sample, reward = Sample("q", "a", step=step), Reward(0.5, {"correct": Score(0.5)})
        file.write(msgspec.json.encode(RewardRecord(sample=sample, reward=reward)))
    file.close()
    with closing(open_index(tmp_path)) as index:
        assert view_document(open_run(index), "rewards").train.points == [1, 250, 500, 750]


@pytest.mark.parametrize(
    "configuration", ['{"components": {"correct": null}}', '{"components": [1]}', "[]", "{"]
)
def test_a_configuration_of_another_form_is_no_error_of_the_page(configuration, tmp_path):
    file = AppendOnlyFile(tmp_path / REWARDS)
    for step, value in ((1, 1e300), (2, -1e300), (3, 0.5)):
        sample, reward = Sample("q", "a", step=step), Reward(value, {"correct": Score(value)})
        file.write(msgspec.json.encode(RewardRecord(sample=sample, reward=reward)))
    file.close()
    (tmp_path / "reward.json").write_text(configuration)
    with closing(open_index(tmp_path)) as index:
        run = open_run(index)
        assert view_document(run, "rewards").train.points == [1, 2, 3]
        assert point(run, 3).fall.words


def test_where_nothing_happened_hardly_a_step_is_asked_about(tmp_path):
    """Some steps are low by chance, the more so as the responses to a prompt are alike."""
    asked_about = 0
    for seed in range(4):
        draw = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        file = AppendOnlyFile(folder / REWARDS)
        for step, group in product(range(24), range(8)):
            difficulty = draw.random()
            for k in range(4):
                value = float(draw.random() > difficulty)
                sample = Sample(f"{step}-{group}", f"{k}", group=f"{group}", step=step)
                reward = Reward(value, {"correct": Score(value)})
                file.write(msgspec.json.encode(RewardRecord(sample=sample, reward=reward)))
        file.close()
        with closing(open_index(folder)) as index:
            found = view_document(open_run(index), "rewards")
        asked_about += len(found.falls) + len(found.changed)
    assert asked_about <= 4
