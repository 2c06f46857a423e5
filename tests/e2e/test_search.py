"""verl with the search agent on a CPU, in both trainers: GRPO past a retriever that dies, and PPO.

With PPO an episode has 27 tokens for two searches, so that some end in what the environment wrote.
"""

import json
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from zerowait.hub import read_rewards
from zerowait.search.index import build_index
from zerowait.search.passages import FAILED, INVALID
from zerowait.tiny_models.search import make_search_policy

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]
SERVE = [sys.executable, "-c", "from zerowait.cli import main; main()", "retriever", "serve"]
WATCHING = Path(__file__).parent / "watching"
PAUSE = "pause"
OBSERVED = re.compile(rf"\n\n<information>.*?</information>\n\n|{re.escape(INVALID)}", re.DOTALL)
PPO = {"data": {"max_response_tokens": 27}, "algorithm": {"estimator": "gae"}}
PPO |= {"search": {"max_turns": 2}}
# an episode that ends in what it found has no answer, and earns a quarter for what it found
PPO_REWARD = {"answer": {"scorer": "qa_em", "format_score": 0.5}}
PPO_REWARD |= {"found": {"scorer": "contains", "weight": 0.25}}


class RetrieverProcess:
    """``zerowait retriever serve`` on a port of the test, which can be killed and started again."""

    def __init__(self, index, port):
        self.url = f"http://127.0.0.1:{port}/retrieve"
        self._command = [*SERVE, str(index), "--port", str(port)]
        self._process = None

    def start(self):
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert "are served at" in self._process.stdout.readline()

    def kill(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            self._process.stdout.close()
            self._process = None


@contextmanager
def an_outage(retriever, run):
    """Killed once a search of the first step was answered, back once one was not.

    However long it takes to come back, the training goes on no further meanwhile.
    """
    over, pause = threading.Event(), run.with_name(PAUSE)

    def come_and_go():
        if seen(run, over, lambda episode: episode["searches"] > episode["failed_searches"]):
            retriever.kill()
            seen(run, over, lambda episode: episode["failed_searches"] > 0)
            pause.touch()
            try:
                retriever.start()
            finally:
                pause.unlink()

    watcher = threading.Thread(target=come_and_go)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join(60)


def seen(run, over, sign):
    """Whether a training episode with `sign` was rewarded before the run was over."""
    while not over.wait(0.05):
        if (run / "rewards.jsonl").exists():
            trained = [r.sample for r in read_rewards(run) if r.sample.split == "train"]
            if any(sign(sample.extra["episode"]) for sample in trained):
                return True
    return False


@pytest.fixture(scope="module")
def world(tmp_path_factory, hold_port):
    folder = tmp_path_factory.mktemp("search")
    made = make_search_policy(folder)
    build_index(Path(made.corpus), folder / "index")
    with hold_port() as port:
        retriever = RetrieverProcess(folder / "index", port)
        retriever.start()
        yield SimpleNamespace(policy=made.policy, retriever=retriever)
        retriever.kill()


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def train(folder, world, recipes, *, mode, steps, parts=None, components=None, **retriever):
    """A finished run, with what the policy loss and GAE were given."""
    losses, gae = folder / "losses.jsonl", folder / "gae.jsonl"
    recipe = {
        "name": "search",
        "seed": 3,
        "model": {"path": world.policy.model},
        "data": {
            "train": [world.policy.train],
            "validation": [world.policy.validation],
            "batch": 8,
            "max_prompt_tokens": 32,
            "max_response_tokens": 96,
        },
        "rollout": {"n": 4},
        "algorithm": {"steps": steps, "learning_rate": 1e-4, "micro_batch": 32},
        "reward": {"components": components or {"answer": {"scorer": "qa_em"}}, "cache": "off"},
        "search": {
            "max_turns": 1,
            "max_turn_length": 16,
            "max_obs_length": 64,
            "retriever": {"url": world.retriever.url, "topk": 1, **retriever},
        },
        "trainer": {"mode": mode},
        "resources": {"device": "cpu"},
        "schedule": {"logger": ["console", "file"]},
        "verl": {"actor_rollout_ref.actor.policy_loss.loss_mode": "watched"},
    }
    for section, more in (parts or {}).items():
        recipe[section] |= more
    done = recipes(
        folder,
        recipe,
        VERL_USE_EXTERNAL_MODULES="zerowait.verl.plugin,watched_loss,watched_gae",
        WATCHED_LOSS=str(losses),
        WATCHED_GAE=str(gae),
        WATCHED_PAUSE=str(folder / PAUSE),
        PYTHONPATH=os.pathsep.join([str(WATCHING), os.environ.get("PYTHONPATH", "")]),
    )
    done.losses, done.rows = lines(losses), lines(gae)
    done.trained = [r for r in done.records if r.sample.split == "train"]
    return done


def ppo(folder, world, recipes, *, mode):
    return train(folder, world, recipes, mode=mode, steps=1, parts=PPO, components=PPO_REWARD)


@pytest.fixture(scope="module")
def streaming(tmp_path_factory, world, recipes):
    """PPO with a critic, in verl's own trainer."""
    return ppo(tmp_path_factory.mktemp("streaming"), world, recipes, mode="sync")


@pytest.fixture(scope="module")
def ppo_tickets(tmp_path_factory, world, recipes):
    return ppo(tmp_path_factory.mktemp("ppo"), world, recipes, mode="zerowait")


@pytest.fixture(scope="module")
def tickets(tmp_path_factory, world, recipes):
    folder = tmp_path_factory.mktemp("tickets")
    # nothing is remembered: an answered query that is asked again has to reach the retriever
    limits = {"remember": 0, "timeout_s": 5, "deadline_s": 5}
    with an_outage(world.retriever, folder / "run"):
        return train(folder, world, recipes, mode="zerowait", steps=4, **limits)


@pytest.fixture(params=["streaming", "tickets"])
def run(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["streaming", "ppo_tickets"])
def ppo_run(request):
    return request.getfixturevalue(request.param)


def by_author(record):
    """The mask that follows from who wrote which tokens."""
    authors = record.sample.extra["episode"]["authors"]
    return [int(author == "model") for author, count in authors for _ in range(count)]


def bare(mask):
    """Without the nought of the padding, and of an observation at the very end."""
    return tuple(mask[: max((at for at, bit in enumerate(mask, start=1) if bit), default=0)])


def test_the_loss_sees_the_tokens_that_the_model_wrote_and_no_others(run):
    given = Counter(bare(row["mask"]) for row in run.losses)
    assert given == Counter(bare(by_author(record)) for record in run.trained)
    assert any(0 in by_author(record) for record in run.trained)


def test_no_advantage_stands_at_what_the_environment_wrote_amid_the_models_tokens(tickets):
    assert any(0 in bare(row["mask"]) for row in tickets.losses)
    assert not any(row["moved"] for row in tickets.losses)


def test_each_observation_in_the_text_is_one_that_the_environment_wrote(run):
    for record in run.records:
        authors = [author for author, _ in record.sample.extra["episode"]["authors"]]
        is_cut = authors[-1] == "environment"  # where the episode's tokens ended, an end is missing
        whole = len(OBSERVED.findall(record.sample.response))
        assert whole in {authors.count("environment") - is_cut, authors.count("environment")}


def test_lengths_count_the_models_own_tokens(run):
    for record in run.records:
        assert record.sample.response_tokens == sum(by_author(record))


def test_log_probabilities_stand_at_the_tokens_they_are_of(run):
    for step in run.steps[1:]:
        assert step["training/rollout_probs_diff_max"] < 1e-3


def test_validation_runs_episodes_too_and_every_one_is_rewarded(run):
    validated = [r for r in run.records if r.sample.split == "validation"]
    assert {r.sample.step for r in validated} == {0, len(run.steps) - 1}
    assert all(r.reward.value is not None for r in run.records)
    assert all(r.sample.extra["episode"]["turns"] >= 1 for r in validated)


def test_the_loggers_say_at_each_step_how_its_episodes_went(tickets):
    for number, step in enumerate(tickets.steps[1:], start=1):
        went = [r.sample.extra["episode"] for r in tickets.trained if r.sample.step == number]
        searches = [episode["searches"] for episode in went]
        failed = sum(episode["failed_searches"] for episode in went)
        answered = sum(episode["stop"] == "answered" for episode in went)
        assert step["episode/searches/mean"] == pytest.approx(sum(searches) / len(went))
        assert step["episode/searches_failed"] == pytest.approx(failed / max(1, sum(searches)))
        assert step["episode/stop/answered"] == pytest.approx(answered / len(went))
        assert step["episode/environment_tokens/max"] <= 64 * max(searches)


def test_the_loggers_say_how_the_validated_episodes_went(run):
    last = max(r.sample.step for r in run.records if r.sample.split == "validation")
    went = [
        r.sample.extra["episode"]
        for r in run.records
        if (r.sample.split, r.sample.step) == ("validation", last)
    ]
    searches = sum(episode["searches"] for episode in went) / len(went)
    logged = run.steps[-1]["val-aux/tiny/keepers/episode_searches/mean@1"]
    assert logged == pytest.approx(searches)


def test_a_retriever_that_was_killed_costs_its_searches_and_nothing_else(tickets):
    failed = [r for r in tickets.trained if r.sample.extra["episode"]["failed_searches"]]
    assert failed
    for record in failed:
        assert FAILED in record.sample.response
        assert record.reward.value is not None
    assert {r.sample.step for r in tickets.trained} == {1, 2, 3, 4}
    assert len(tickets.trained) == 4 * 32


def test_searches_are_answered_again_once_the_retriever_is_back(tickets):
    last_failed = max(
        r.settled_at for r in tickets.trained if r.sample.extra["episode"]["failed_searches"]
    )
    answered = [
        r
        for r in tickets.records
        if r.submitted_at > last_failed and "<information>Doc 1" in r.sample.response
    ]
    assert answered


def test_each_row_of_the_tensors_earns_what_the_record_says_it_earned(ppo_run):
    recorded = Counter((bare(by_author(r)), r.reward.value) for r in ppo_run.trained)
    on_own = Counter(
        (
            bare(row["mask"]),
            sum(x for x, bit in zip(row["rewards"], row["mask"], strict=True) if bit),
        )
        for row in ppo_run.rows
        if any(row["mask"])
    )
    assert on_own == recorded
    ending = [r for r in ppo_run.trained if by_author(r)[-1] == 0]
    assert ending, "no episode ended in what the environment wrote"
    assert {r.reward.value for r in ppo_run.trained} - {0.0}


def test_returns_of_every_own_token_are_the_rows_reward(ppo_run):
    """verl's gamma and lambda are 1 by default: every token that the model wrote is due all of it."""
    for row in ppo_run.rows:
        told = sum(row["rewards"])
        own = [x for x, bit in zip(row["returns"], row["mask"], strict=True) if bit]
        assert own == pytest.approx([told] * len(own), abs=1e-5)


def test_the_critics_targets_have_the_mean_of_the_record(ppo_run):
    mean = sum(r.reward.value for r in ppo_run.trained) / len(ppo_run.trained)
    assert ppo_run.steps[1]["critic/score/mean"] == pytest.approx(mean)
