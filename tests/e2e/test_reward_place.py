"""PPO with a critic on the CPU: what the record says each row earned is what verl's tensors give it.

Episodes of two searches in 27 tokens: some end in what the environment wrote.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from zerowait.search.index import build_index
from zerowait.testing import FakeJudge, Latency, Script
from zerowait.tiny_models.arithmetic import make_arithmetic_policy
from zerowait.tiny_models.search import make_search_policy

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]
RECIPES = Path(__file__).parents[2] / "recipes"
WATCHING = Path(__file__).parent / "watching"
SERVE = [sys.executable, "-c", "from zerowait.cli import main; main()", "retriever", "serve"]


def trained(folder, recipes, recipe, policy, *, steps=1):
    """The finished run, and the rows that verl's GAE was given in it."""
    seen = folder / "gae.jsonl"
    recipe = recipe | {
        "model": {"path": policy.model},
        "data": recipe["data"] | {"train": [policy.train], "validation": [policy.validation]},
        "algorithm": recipe["algorithm"] | {"estimator": "gae", "steps": steps},
        "schedule": {"logger": ["console", "file"]},
    }
    done = recipes(
        folder,
        recipe,
        VERL_USE_EXTERNAL_MODULES="zerowait.verl.plugin,watched_gae",
        WATCHED_GAE=str(seen),
        PYTHONPATH=os.pathsep.join([str(WATCHING), os.environ.get("PYTHONPATH", "")]),
    )
    done.rows = [json.loads(line) for line in seen.read_text().splitlines()]
    done.trained = [r for r in done.records if r.sample.split == "train"]
    return done


def recipe_of(name):
    return yaml.safe_load((RECIPES / name / "recipe.yaml").read_text())


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    made = make_search_policy(folder)
    build_index(Path(made.corpus), folder / "index")
    command = [*SERVE, str(folder / "index"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as retriever:
        url = retriever.stdout.readline().split()[-1]
        yield made.policy, url
        retriever.terminate()


@pytest.fixture(scope="module", params=["sync", "zerowait"])
def search(request, tmp_path_factory, recipes, world):
    policy, url = world
    recipe = recipe_of("search")
    recipe["data"] |= {"max_response_tokens": 27}
    recipe["search"] |= {"max_turns": 2, "retriever": {"url": url, "topk": 1}}
    recipe |= {"trainer": {"mode": request.param}, "verl": {}}
    recipe["reward"] = {"components": {"answer": {"scorer": "qa_em", "format_score": 0.5}}}
    # an episode that ends in what it found has no answer, and earns a quarter for what it found
    recipe["reward"]["components"]["found"] = {"scorer": "contains", "weight": 0.25}
    return trained(tmp_path_factory.mktemp(request.param), recipes, recipe, policy)


def by_author(record):
    authors = record.sample.extra["episode"]["authors"]
    return [int(author == "model") for author, count in authors for _ in range(count)]


def bare(mask):
    """Without the nought of the padding, and of an observation at the very end."""
    return tuple(mask[: max((at for at, bit in enumerate(mask, start=1) if bit), default=0)])


def test_each_row_of_the_tensors_earns_what_the_record_says_it_earned(search):
    recorded = Counter((bare(by_author(r)), r.reward.value) for r in search.trained)
    on_own = Counter(
        (
            bare(row["mask"]),
            sum(x for x, bit in zip(row["rewards"], row["mask"], strict=True) if bit),
        )
        for row in search.rows
        if any(row["mask"])
    )
    assert on_own == recorded
    ending = [r for r in search.trained if by_author(r)[-1] == 0]
    assert ending, "no episode ended in what the environment wrote"
    assert {r.reward.value for r in search.trained} - {0.0}


def test_returns_of_every_own_token_are_the_rows_reward(search):
    """verl's gamma and lambda are 1 by default: every token that the model wrote is due all of it."""
    for row in search.rows:
        told = sum(row["rewards"])
        own = [x for x, bit in zip(row["returns"], row["mask"], strict=True) if bit]
        assert own == pytest.approx([told] * len(own), abs=1e-5)


def test_the_critics_targets_have_the_mean_of_the_record(search):
    mean = sum(r.reward.value for r in search.trained) / len(search.trained)
    assert search.steps[1]["critic/score/mean"] == pytest.approx(mean)


def test_ppo_trains_on_what_the_record_says(tmp_path, recipes):
    """The recipe as it is, for one step: the policy is its own reference then, so that KL is 0."""
    recipe = recipe_of("ppo")
    recipe["reward"] = yaml.safe_load((RECIPES / "tiny" / "reward.yaml").read_text())
    with FakeJudge(Script(latency=Latency(median_s=0.05))) as judge:
        (asked,) = recipe["reward"]["judges"].values()
        asked["endpoints"] = [{"base_url": judge.url, "model": "fake"}]
        done = trained(tmp_path, recipes, recipe, make_arithmetic_policy(tmp_path / "tiny"))
    recorded = sorted(r.reward.value for r in done.trained)
    given = sorted(
        sum(x for x, bit in zip(row["rewards"], row["mask"], strict=True) if bit)
        for row in done.rows
    )
    assert given == pytest.approx(recorded, abs=1e-3)
    waits = [json.loads(line) for line in (done.run / "waits.jsonl").read_text().splitlines()]
    assert [row["step"] for row in waits] == [1]
    assert waits[0]["exposed_s"] == pytest.approx(done.steps[1]["reward/exposed_reward_s"])
