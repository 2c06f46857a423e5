"""The page names the cause of a fall, in runs that were made by the real engine."""

import random
from contextlib import closing
from itertools import product

import msgspec
import pytest

from zerowait.observe.fall import FallReader
from zerowait.observe.page.data import open_run, point, view_document
from zerowait.record import REWARDS, AppendOnlyFile, RewardRecord, open_index
from zerowait.types import Abstain, Reward, Sample, Score, Skipped

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


def written(folder, configuration=None, *, steps=16, change_at=9, seed=3, **of):
    """A run whose rows are made up: 8 prompts with 4 responses a step, judged and by a rule.

    ``of`` has functions of whether the step is late, the row's number and a random source.
    """
    draw = random.Random(seed)
    file = AppendOnlyFile(folder / REWARDS)
    for step, row in product(range(1, steps + 1), range(32)):
        late = step >= change_at
        source = of.get("source", lambda row: "math")(row)
        components = of["components"](late, row, draw, step)
        value = sum(each.value for each in components.values() if isinstance(each, Score))
        sample = Sample(
            f"question {step}-{row // 4}",
            of.get("response", words)(late, draw),
            group=f"{row // 4}",
            data_source=source,
            step=step,
        )
        file.write(
            msgspec.json.encode(RewardRecord(sample=sample, reward=Reward(value, components)))
        )
    file.close()
    parts = {"correct": {"scorer": "qa_em"}, "quality": {"judge": "g"}} | (configuration or {})
    (folder / "reward.json").write_bytes(msgspec.json.encode({"components": parts}))
    return folder


def words(late, draw):
    return " ".join(draw.choice("abcdefghij") for _ in range(24))


def right(draw, share=0.5):
    return Score(float(draw.random() < share))


def near(draw, mean):
    return Score(draw.gauss(mean, 0.1))


def a_penalty(late, row, draw, step):
    """Responses are as long as they were; a limit that was lowered would look the same."""
    return {"correct": right(draw), "quality": near(draw, 0.6), "long": near(draw, -0.9 * late)}


def a_gate(late, row, draw, step):
    correct = right(draw, 0.2 if late else 0.8)
    return {
        "correct": correct,
        "quality": near(draw, 3.0) if correct.value else Skipped("correct > 0"),
    }


def a_lenient_judge(late, row, draw, step):
    return {"correct": right(draw), "quality": near(draw, 0.5 + 0.3 * late)}


def nothing(late, row, draw, step):
    return {"correct": right(draw), "quality": near(draw, 0.5)}


def a_source_that_is_refused(late, row, draw, step):
    refused = Abstain("refused", "I cannot help with that")
    return {"correct": right(draw), "quality": refused if late and row < 12 else near(draw, 0.5)}


def one_answer_to_all(late, row, draw, step):
    return {"correct": Score(0.0) if late else right(draw), "quality": near(draw, 0.5)}


def slowly_worse(late, row, draw, step):
    return {"correct": right(draw, 0.9 - 0.05 * min(max(step - 4, 0), 12))}


def worse_at_once(late, row, draw, step):
    return {"correct": right(draw, 0.3 if late else 0.9)}


@pytest.mark.parametrize(
    ("cause", "says", "given"),
    [
        (
            "grown_penalty",
            "explains",
            {"configuration": {"long": {"shape": "hard_cap"}}, "components": a_penalty},
        ),
        (
            "closed_gate",
            "its gate is correct > 0",
            {
                "configuration": {"quality": {"judge": "g", "gate": "correct > 0"}},
                "components": a_gate,
            },
        ),
        ("lenient_judge", "while no rule rose", {"components": a_lenient_judge}),
        (
            "collapse",
            "are distinct",
            {
                "components": one_answer_to_all,
                "response": lambda late, draw: "I am not sure about it" if late else words(0, draw),
            },
        ),
        (
            "judge_outage",
            "12 of these 12 are of code: 100 % of its rows, and 0 % of the others",
            {
                "components": a_source_that_is_refused,
                "source": lambda row: "code" if row < 12 else "math",
            },
        ),
    ],
)
def test_the_cause_of_a_change_in_made_up_rows_is_named_with_its_figures(
    cause, says, given, tmp_path
):
    with closing(open_index(written(tmp_path, **given))) as index:
        run = open_run(index)
        found = view_document(run, "rewards")
        assert 9 in [*found.falls, *found.changed]
        first = point(run, 9).fall.causes[0]
    assert first.kind == cause
    assert says in " ".join(first.evidence)


def test_a_judge_that_drifts_as_the_prompts_get_harder_is_named_beside_them(tmp_path):
    """The harder prompts lower the rule, too; on those that both windows have it stays."""
    file = AppendOnlyFile(tmp_path / REWARDS)
    draw = random.Random(5)
    for step, row in product(range(1, 13), range(64)):
        late = step >= 9
        hard = row // 4 < (12 if late else 2)
        components = {
            "correct": right(draw, 0.1 if hard else 0.8),
            "quality": near(draw, 0.7 - 0.3 * late - 0.1 * hard),
        }
        value = components["correct"].value + components["quality"].value
        source = "aime" if hard else "gsm8k"
        sample = Sample(
            f"{step}-{row // 4}", "a", group=f"{row // 4}", step=step, data_source=source
        )
        file.write(
            msgspec.json.encode(RewardRecord(sample=sample, reward=Reward(value, components)))
        )
    file.close()
    (tmp_path / "reward.json").write_text(
        '{"components": {"correct": {"scorer": "qa_em"}, "quality": {"judge": "g"}}}'
    )
    with closing(open_index(tmp_path)) as index:
        causes = {cause.kind: cause for cause in point(open_run(index), 9).fall.causes}
    assert {"harder_prompts", "judge_drift"} <= causes.keys()
    (said,) = causes["judge_drift"].evidence
    assert said.startswith("on the data source that both have most of, quality fell from 0.")


def test_a_slow_fall_is_asked_about_at_its_end_and_a_sudden_or_no_fall_is_none(tmp_path):
    found = []
    for name, components in (("slow", slowly_worse), ("sudden", worse_at_once), ("calm", nothing)):
        (tmp_path / name).mkdir()
        folder = written(tmp_path / name, steps=20, components=components)
        with closing(open_index(folder)) as index:
            run = open_run(index)
            asked = view_document(run, "rewards").slow
            found.append(asked)
            if asked:
                panel = point(run, asked[1])
                assert panel.slow.since == asked[0]
                assert "no single step" in panel.slow.words
                assert [cause.kind for cause in panel.slow.causes] == ["worse_responses"]
                assert point(run, asked[1] - 1).slow is None
    (began, ended), *others = found
    assert 4 <= began <= 8
    assert 16 <= ended <= 20
    assert others == [None, None]


@pytest.mark.parametrize(("held_out", "told"), [((0.6, 0.5, 0.3), True), ((0.6, 0.5, 0.6), False)])
def test_a_held_out_score_that_falls_while_training_rises_is_told(held_out, told, tmp_path):
    draw = random.Random(1)
    file = AppendOnlyFile(tmp_path / REWARDS)
    for step, row in product(range(1, 13), range(32)):
        value = float(draw.random() < 0.3 + 0.05 * step)
        sample, reward = Sample(f"{row}", "a", step=step), Reward(value, {"correct": Score(value)})
        file.write(msgspec.json.encode(RewardRecord(sample=sample, reward=reward)))
    for number, share in enumerate(held_out, 1):
        for row in range(200):
            value = float(row < share * 200)
            sample = Sample(f"v{row}", "a", step=4 * number, split="validation")
            reward = Reward(value, {"correct": Score(value)})
            file.write(msgspec.json.encode(RewardRecord(sample=sample, reward=reward)))
    file.close()
    with closing(open_index(tmp_path)) as index:
        notes = view_document(open_run(index), "rewards").notes
    assert bool(notes) is told
    for note in notes:
        assert note.startswith("validation fell from 0.6 at step 4 to 0.3 at step 12, while train")


def test_where_nothing_happened_no_change_over_a_longer_time_is_told(tmp_path):
    for seed in range(5):
        folder = tmp_path / str(seed)
        folder.mkdir()
        with closing(open_index(written(folder, seed=seed, steps=24, components=nothing))) as index:
            found = view_document(open_run(index), "rewards")
        assert (found.slow, found.notes, found.changed) == (None, [], [])
