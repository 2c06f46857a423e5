"""An agent loop with a tool: what the tool wrote earns nothing, and each turn earns its own reward.

Once under verl's own trainer, where each turn is paid on its last token; once under ours, where
GRPO takes one number.
"""

import hashlib
import json
import os
import statistics
from collections import Counter
from pathlib import Path

import pytest

from zerowait.testing import FakeJudge

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
LOOPS = Path(__file__).parent / "watching"
MODEL_TOKENS = 8
RUBRIC = "## System\nYou judge the last turn. {{reply_format}}\n\n## User\n{{conversation}}\n"


def verdict(body):
    """From 1 to 10, by what the judge is shown."""
    shown = body["messages"][-1]["content"].encode()
    return f"Score: {hashlib.sha256(shown).digest()[0] % 10 + 1}"


@pytest.fixture(scope="module")
def judge():
    with FakeJudge(answer=verdict) as running:
        yield running


def trained(folder, assets, recipes, judge, *, estimator, mode, **component):
    (folder / "turn.md").write_text(RUBRIC)
    loops = folder / "loops.yaml"
    loops.write_text(json.dumps([{"name": "tool", "_target_": "tool_loop.ToolLoop"}]))
    agent = "actor_rollout_ref.rollout.agent"
    quality = {"judge": "turns", "per": "turn", "weight": 0.1, **component}
    endpoint = {"base_url": judge.url, "model": "fake"}
    asked = {
        "endpoints": [endpoint],
        "rubric": str(folder / "turn.md"),
        "verdict": {"integer": [1, 10]},
    }
    recipe = {
        "name": "tool",
        "model": {"path": assets.model},
        "data": {
            "train": [assets.train],
            "validation": [assets.validation],
            "batch": 4,
            "max_prompt_tokens": 32,
            "max_response_tokens": 32,
        },
        "rollout": {"n": 2},
        "algorithm": {"steps": 1, "micro_batch": 16, "estimator": estimator},
        "trainer": {"mode": mode},
        "reward": {
            "components": {"answer": {"scorer": "qa_em"}, "quality": quality},
            "judges": {"turns": asked},
            "cache": "off",
            "on_failure": "neutral",
        },
        "resources": {"device": "cpu"},
        "schedule": {"logger": ["console", "file"]},
        "verl": {
            f"{agent}.agent_loop_config_path": str(loops),
            f"{agent}.default_agent_loop": "tool",
        },
    }
    known = filter(None, [str(LOOPS), os.environ.get("PYTHONPATH")])
    seen = folder / "estimator.jsonl"
    done = recipes(
        folder,
        recipe,
        PYTHONPATH=os.pathsep.join(known),
        VERL_USE_EXTERNAL_MODULES="zerowait.verl.plugin,watched_estimators",
        WATCHED_ESTIMATORS=str(seen),
    )
    rows = (json.loads(line) for line in seen.read_text().splitlines())
    done.rows = [row for row in rows if any(row["mask"])]
    done.trained = [record for record in done.records if record.sample.split == "train"]
    return done


@pytest.fixture(scope="module")
def done(tmp_path_factory, assets, recipes, judge):
    folder = tmp_path_factory.mktemp("by_turn")
    options = {"estimator": "reinforce_plus_plus", "mode": "sync"}
    return trained(folder, assets, recipes, judge, **options)


def test_the_answer_that_only_the_tool_wrote_earns_nothing(done):
    assert len(done.records) > 8
    for record in done.records:
        assert "</answer>" in record.sample.extra["transcript"]
        assert "</answer>" not in record.sample.response
        assert record.sample.response_tokens <= MODEL_TOKENS
        assert record.reward.components["answer"].value == 0.0


def test_verl_was_given_the_same(done):
    told = [row["score"] for row in [*done.dumped.values(), *done.validated.values()]]
    assert sorted(told) == pytest.approx(sorted(record.reward.value for record in done.records))


def test_the_episodes_messages_are_the_models_and_the_tools(done):
    for record in done.records:
        first, tool, second, _ = record.sample.response_messages
        assert (first["role"], tool["role"], second["role"]) == ("assistant", "tool", "assistant")
        assert "</answer>" in tool["content"]
        assert [turn.token for turn in record.reward.turns] == [
            first["last_token"],
            second["last_token"],
        ]


def placed(values):
    return frozenset((at, round(value, 4)) for at, value in values if value)


def test_each_turn_is_paid_on_its_last_token(done):
    recorded = Counter(
        placed((turn.token, turn.value) for turn in record.reward.turns) for record in done.trained
    )
    given = Counter(placed(enumerate(row["rewards"])) for row in done.rows)
    assert given == recorded
    assert {len(row) for row in given} == {2}
    for row in done.rows:
        assert all(bit for value, bit in zip(row["rewards"], row["mask"], strict=True) if value)


def test_grpo_takes_the_aggregate_of_the_turns(tmp_path, assets, recipes, judge):
    options = {"estimator": "grpo", "mode": "zerowait", "aggregate": "mean"}
    done = trained(tmp_path, assets, recipes, judge, **options)
    groups = {}
    for record in done.trained:
        mean = statistics.mean(turn.value for turn in record.reward.turns)
        assert record.reward.value == pytest.approx(mean)
        groups.setdefault(record.sample.group, []).append(mean)
    expected = {
        group: sorted(
            (v - statistics.mean(values)) / (statistics.stdev(values) + 1e-6) for v in values
        )
        for group, values in groups.items()
    }
    told = {}
    for row in done.rows:
        own = {round(a, 5) for a, bit in zip(row["advantages"], row["mask"], strict=True) if bit}
        assert len(own) == 1
        told.setdefault(row["uid"], []).extend(own)
    assert {group: sorted(values) for group, values in told.items()} == {
        group: pytest.approx(values, abs=1e-4) for group, values in expected.items()
    }
    assert any(any(values) for values in expected.values())
