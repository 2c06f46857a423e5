"""``zerowait doctor data``, and how ``doctor config`` speaks of rubrics and structured verdicts."""

import json

import pytest

from zerowait.testing import FakeJudge, Script

GOOD = [
    {"criterion": "Says why.", "points": 5, "tags": ["axis:a"]},
    {"criterion": "Is rude.", "points": -2},
]


@pytest.fixture
def reward(tmp_path):
    def write(url="http://127.0.0.1:1/v1", **verdict):
        file = tmp_path / "reward.yaml"
        judge = {"endpoints": [{"base_url": url, "model": "m"}], "verdict": verdict}
        config = {"components": {"q": {"judge": "q"}}, "judges": {"q": judge}, "cache": "off"}
        file.write_text(json.dumps(config))
        return file

    return write


def rows(tmp_path, *rubrics):
    file = tmp_path / "rows.jsonl"
    lines = [
        {
            "prompt": [{"role": "user", "content": "?"}],
            "reward_model": {"ground_truth": "x"},
            "extra_info": {"rubric": rubric},
        }
        for rubric in rubrics
    ]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return file


def test_rubrics_of_rows_are_counted(tmp_path, reward, zerowait):
    file = rows(tmp_path, GOOD, json.dumps(GOOD[:1]))
    done = zerowait("doctor", "data", file, "-c", reward(rubric="extra.rubric"))
    assert done.returncode == 0, done.stderr
    assert (
        "2 rows, 2 rubrics: 3 criteria, 1 to 2 each, -2 to 5 points, 1 of them negative"
        in done.stdout
    )
    assert "tags: axis:a 2" in done.stdout


def test_a_malformed_rubric_is_named_by_row_and_criterion(tmp_path, reward, zerowait):
    file = rows(tmp_path, GOOD, [{"criterium": "x"}], GOOD, None)
    done = zerowait("doctor", "data", file, "-c", reward(rubric="extra.rubric"))
    assert done.returncode == 2
    assert "2 rows cannot be scored" in done.stderr
    assert (
        "2: extra.rubric[0]: has no text under criterion, description, criteria; it has criterium"
        in done.stderr
    )
    assert "4: extra.rubric: must be a list of criteria" in done.stderr


def test_data_for_a_configuration_without_rubrics_is_refused(tmp_path, reward, zerowait):
    done = zerowait("doctor", "data", rows(tmp_path, GOOD), "-c", reward(integer=[1, 5]))
    assert done.returncode == 2
    assert "no judge has a verdict {rubric: extra.NAME} to check for" in done.stderr


def test_score_refuses_a_file_with_a_malformed_rubric(tmp_path, reward, zerowait):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"prompt": "?", "response": "!", "rubric": []}))
    with FakeJudge() as judge:
        done = zerowait("score", file, "-c", reward(judge.url, rubric="extra.rubric"))
        assert judge.seen.requests == 0
    assert done.returncode == 2
    assert "extra.rubric: has no criterion" in done.stderr


@pytest.mark.parametrize(("server", "form"), [("enforced", "json_schema"), ("deepseek", "prompt")])
def test_ask_shows_in_which_form_a_verdict_was_asked_for(reward, zerowait, server, form):
    with FakeJudge(Script(structured=server)) as judge:
        done = zerowait("doctor", "config", reward(judge.url, integer=[1, 5]), "--ask", "--json")
        shown = zerowait("doctor", "config", reward(judge.url, rubric="extra.r"), "--ask")
    (answer,) = json.loads(done.stdout)["answers"]
    assert answer["form"] == form
    assert ("unavailable now" in (answer["refusal"] or "")) == (form == "prompt")
    assert "points by the criteria in extra.r; criteria together; 1 call a sample" in shown.stdout
    assert form in shown.stdout
    assert ("refuses structured output" in shown.stdout) == (form == "prompt")
