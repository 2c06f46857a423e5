"""The recipes length_penalty and monitor: what their rewards are worth, and that verl takes them."""

import shutil
from pathlib import Path

import pytest

from zerowait import Sample
from zerowait import open as open_rewards
from zerowait.config import load_config
from zerowait.config.source import read_yaml
from zerowait.engine.plan import compile_plan
from zerowait.testing import FakeJudge, Script, Status
from zerowait.tiny_models.arithmetic import NUMBERS, arithmetic_questions
from zerowait.verl import LengthPenaltyConfig
from zerowait.verl.launch.recipe import load_recipe

RECIPES = Path(__file__).parents[2] / "recipes"
BOTH = ["length_penalty", "monitor"]


def rewards(name, judge):
    """The recipe's reward, with its judge at another address."""
    text = (RECIPES / name / "reward.yaml").read_text()
    assert text.count("http://127.0.0.1:8003/v1") == 1
    tree = read_yaml(RECIPES / name / "reward.yaml").tree
    tree["judges"][next(iter(tree["judges"]))]["endpoints"][0]["base_url"] = judge.url
    return open_rewards(tree)


def says(content):
    return lambda body: content


def test_a_long_right_answer_loses_its_penalty_and_a_wrong_one_is_not_judged():
    texts = ["<answer>two</answer>"] * 3 + ["<answer>one</answer>"]
    rows = [
        Sample("?", text, "two", group="q", response_tokens=length)
        for text, length in zip(texts, [4, 4, 9, 4], strict=True)
    ]
    with FakeJudge(answer=says("Score: 10")) as judge, rewards("length_penalty", judge) as reward:
        scored = reward.score(rows)
        assert judge.seen.requests == 1
    assert [each.value for each in scored] == pytest.approx([1.2, 1.2, 1.0, 0.0])


def test_the_length_penalty_recipe_is_what_the_settings_of_the_same_name_stand_for():
    given = LengthPenaltyConfig(
        enable_openai_reward=True, api_key="x", api_endpoint="http://h/v1",
        penalty_scale=0.2, reward_coefficient=0.02, rubric="quality",
    )  # fmt: skip
    made = load_config(given.reward({"scorer": "qa_em"}))
    written = load_config(RECIPES / "length_penalty" / "reward.yaml")
    assert compile_plan(made).terms == compile_plan(written).terms
    assert compile_plan(made).shapes == compile_plan(written).shapes
    quality, other = (config.components["quality"] for config in (made, written))
    assert (quality.gate, quality.weight) == (other.gate, other.weight)


def test_the_monitor_pays_less_for_a_right_prediction_and_more_for_a_rare_truth():
    rows = [
        Sample("?", "<answer>two</answer>", "two", extra={"even": True}),
        Sample("?", "<answer>one</answer>", "one", extra={"even": False}),
    ]
    with FakeJudge(answer=says("Verdict: yes")) as judge, rewards("monitor", judge) as reward:
        right, wrong = reward.score(rows)
    assert right.value == pytest.approx(1 - 0.1 / 0.4545)
    assert wrong.value == pytest.approx(1 + 0.1 / 0.5455)


def test_the_monitor_sees_what_stands_before_the_end_of_the_answer_and_nothing_else():
    asked = []

    def answer(body):
        asked.append(str(body))
        return "Verdict: no"

    row = Sample(
        "What comes after one?", "hm <answer>two</answer> idle", "two", extra={"even": True}
    )
    with FakeJudge(answer=answer) as judge, rewards("monitor", judge) as reward:
        reward.score([row])
    assert "hm <answer>two" in asked[0]
    assert "idle" not in asked[0]
    assert "What comes after one?" not in asked[0]


def test_its_balance_is_that_of_the_questions():
    even = [NUMBERS.index(question.answer) % 2 == 0 for question in arithmetic_questions()]
    config = load_config(RECIPES / "monitor" / "reward.yaml")
    share = config.judges["monitor"].monitor.rebalance.true
    assert share == pytest.approx(sum(even) / len(even), abs=1e-4)


@pytest.mark.parametrize("name", BOTH)
def test_a_judge_that_is_down_abstains_and_one_that_cannot_be_read_has_its_price(name):
    row = Sample(
        "?", "<answer>two</answer>", "two", group="q", response_tokens=4, extra={"even": 1}
    )
    refused = Script(faults=(Status(status=400, always=True),))
    with FakeJudge(refused) as judge, rewards(name, judge) as reward:
        assert reward.score([row])[0].policy == "neutral"
    with FakeJudge(answer=says("I would rather not say.")) as judge, rewards(name, judge) as reward:
        worth = reward.score([row])[0].value
    assert worth == pytest.approx({"length_penalty": 1.0, "monitor": 0.9}[name])


@pytest.mark.parametrize("name", BOTH)
def test_a_recipe_and_its_reward_are_valid(name):
    recipe = load_recipe(RECIPES / name / "recipe.yaml")
    assert recipe.name == name
    compile_plan(recipe.reward)


@pytest.mark.parametrize("name", BOTH)
def test_a_dry_run_composes_verls_configuration_and_reaches_no_judge(name, tmp_path, zerowait):
    shutil.copytree(RECIPES / name, tmp_path / "recipes" / name)
    assets = tmp_path / "runs" / "tiny" / "assets"
    (assets / "model").mkdir(parents=True)
    for file in ("config.json", "tokenizer.json"):
        (assets / "model" / file).write_text("{}")
    row = '{"prompt": [{"role": "user", "content": "q"}], "reward_model": {"ground_truth": "a"}}\n'
    for part in ("train", "validation"):
        (assets / f"{part}.jsonl").write_text(row * 8)
    done = zerowait("train", f"recipes/{name}/recipe.yaml", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "name: zerowait" in done.stdout
    assert f"recipes/{name}/reward.yaml" in done.stdout
