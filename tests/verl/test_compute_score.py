"""Reward functions in verl's two conventions, by the environment or by a configuration."""

import asyncio
import inspect
import subprocess
import sys

import numpy as np
import pytest
from omegaconf import OmegaConf

from zerowait.errors import ConfigError, DataError, JudgementError
from zerowait.testing import FakeJudge, Latency, Script, Status
from zerowait.verl import acompute_score, compute_score
from zerowait.verl.batch import scores
from zerowait.verl.batch.environment import VARIABLES, reward_in
from zerowait.verl.process_role import in_reward_worker

KEY = "sk-planted-key-of-nobody"
ONE = ("#### 4", "4", "openai/gsm8k", {})
THOUGHT = "<think>2 + 2 is 4</think> 4"


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """Without the environment of the machine, and closed afterwards."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(scores, "_REWARDS", {})
    yield
    for rewards in scores._REWARDS.values():
        rewards.close()


@pytest.fixture
def monitored(monkeypatch):
    def monitored(judge, **changes):
        given = {
            "TRAIN_WITH_MONITOR": "true",
            "MONITOR_CACHE": "false",
            "MONITOR_MODEL_NAME": "any",
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": judge.url,
            **changes,
        }
        for name, value in given.items():
            monkeypatch.setenv(name, value)

    return monitored


def test_one_response_gives_one_row_and_lists_give_a_list():
    row = compute_score(*ONE)
    assert row["score"] == 1.0
    assert (
        compute_score(
            data_source="openai/gsm8k", solution_str="#### 5", ground_truth="4", extra_info=None
        )["score"]
        == 0.0
    )
    rows = compute_score(
        data_sources=np.array(["openai/gsm8k"] * 2, dtype=object),
        solution_strs=["#### 4", "#### 5"],
        ground_truths=["4", "4"],
        extra_infos=[{}, {}],
    )
    assert [row["score"] for row in rows] == [1.0, 0.0]
    assert all(each.keys() == row.keys() for each in rows)
    assert compute_score(solution_strs=[]) == []


def test_the_asynchronous_twin_says_the_same_and_is_seen_as_what_it_is():
    assert inspect.iscoroutinefunction(acompute_score)

    async def both():
        return await acompute_score(*ONE), await acompute_score(
            solution_strs=["#### 4"], ground_truths=["4"], data_sources=["openai/gsm8k"]
        )

    one, many = asyncio.run(both())
    assert one == compute_score(*ONE)
    assert many == [one]


def test_many_at_a_time_share_the_loop_and_not_each_others_time(monitored):
    async def all_of_them():
        async with asyncio.TaskGroup() as group:
            works = [
                group.create_task(acompute_score(f"<think>{n}</think>", "", "", {"is_correct": 1}))
                for n in range(8)
            ]
        return [work.result()["monitor"] for work in works]

    with FakeJudge(Script(latency=Latency(0.5)), answer=says("yes")) as judge:
        monitored(judge)
        assert None not in asyncio.run(all_of_them())
        assert judge.seen.peak_in_flight > 1


def test_a_row_without_a_rule_has_the_same_keys_and_no_number():
    lost = compute_score("x", "y", "nobody/knows", {})
    assert lost["score"] is None
    assert lost["abstained"] == 1.0
    assert lost["answer_abstained"] == "bad_input"
    assert "nobody/knows" in lost["abstained_why"]
    assert lost.keys() == compute_score(*ONE).keys()


def test_the_policy_is_the_callers():
    lost = ("x", "y", "nobody/knows", {})
    assert compute_score(*lost, on_failure={"value": 0.25})["score"] == 0.25
    given = OmegaConf.create({"default": {"value": 0.5}})
    assert compute_score(*lost, on_failure=given)["score"] == 0.5
    with pytest.raises(JudgementError, match="nobody/knows"):
        compute_score(*lost, on_failure="raise")


@pytest.mark.parametrize("given", [None, "neutral", {"default": "raise", "bad_input": "mask"}])
def test_verls_own_reward_managers_get_a_number_or_the_choice_to_make(monkeypatch, given):
    """They take a score of None, and training ends much later for want of a column."""
    monkeypatch.setattr(scores, "in_reward_worker", lambda: True)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"of 'answer' .*: choose raise .* or \{value: x\}"):
            compute_score(*ONE, on_failure=given)
    with pytest.raises(ConfigError, match="choose raise"):
        asyncio.run(acompute_score(*ONE, on_failure=given))


@pytest.mark.parametrize(
    "given", ["raise", {"value": 0.5}, {"default": "raise", "timeout": {"value": 0}}]
)
def test_verls_own_reward_managers_may_ask_once_the_choice_is_made(monkeypatch, given):
    monkeypatch.setattr(scores, "in_reward_worker", lambda: True)
    assert compute_score(*ONE, on_failure=given)["score"] == 1.0


def test_a_sum_that_no_float_holds_is_dropped_under_verls_own_reward_managers(monkeypatch):
    vast = {"scorer": "contains", "weight": 1e308}
    config = {"components": {"a": vast, "b": vast}, "on_failure": {"value": 0}}
    assert compute_score("b", "b", config=config)["score"] is None
    monkeypatch.setattr(scores, "in_reward_worker", lambda: True)
    with pytest.raises(JudgementError, match="the weighted sum is inf"):
        compute_score("b", "b", config=config)


def test_a_process_without_ray_is_no_reward_worker_of_verls():
    assert not in_reward_worker()


def test_a_configuration_takes_the_place_of_the_environment(tmp_path):
    path = tmp_path / "reward.yaml"
    path.write_text("components: {answer: {scorer: contains, weight: 2}}\n")
    assert compute_score("a b", "b", config=str(path))["score"] == 2.0
    with pytest.raises(ConfigError, match="on_failure belongs into config"):
        compute_score("a b", "b", config=str(path), on_failure="raise")


def test_a_reward_that_compares_siblings_is_refused():
    config = {"components": {"length": {"shape": "median_band"}}}
    with pytest.raises(ConfigError, match="'length' compares the responses of a group"):
        compute_score(*ONE, config=config)


@pytest.mark.parametrize(
    "single",
    [
        {"solution_str": "#### 5"},
        {"ground_truth": "4"},
        {"data_source": "openai/gsm8k"},
        {"extra_info": {}},
    ],
)
def test_an_argument_of_the_other_convention_is_not_ignored(single):
    with pytest.raises(DataError, match=f"{next(iter(single))} is for one response"):
        compute_score(**single, solution_strs=["#### 4"])
    with pytest.raises(DataError, match=f"{next(iter(single))} is for one response"):
        asyncio.run(acompute_score(**single, solution_strs=["#### 4"]))


def test_a_text_is_no_list_of_its_characters():
    with pytest.raises(DataError, match="solution_strs has to be a list, not str"):
        compute_score(solution_strs="44", data_sources=["openai/gsm8k"] * 2)
    with pytest.raises(DataError, match="ground_truths has to be a list, not str"):
        compute_score(solution_strs=["#### 4"] * 2, ground_truths="44")


def test_a_missing_value_where_further_columns_belong_is_named():
    with pytest.raises(DataError, match="extra_info has to be a mapping or None, not float"):
        compute_score("#### 4", "4", "openai/gsm8k", float("nan"))


def test_the_key_of_a_judge_is_not_kept_among_the_names_of_what_is_open(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    compute_score(*ONE)
    assert len(scores._REWARDS) == 1
    assert KEY not in repr(scores._REWARDS.keys())


def test_lists_of_different_lengths_and_no_response_at_all_are_errors():
    with pytest.raises(DataError, match="1 ground_truths for 2 solution_strs"):
        compute_score(solution_strs=["a", "b"], ground_truths=["a"])
    with pytest.raises(DataError, match="no response"):
        compute_score(ground_truth="a")


def says(word):
    return lambda body: f"Verdict: {word}"


def test_the_monitor_pays_for_what_cannot_be_read_from_the_reasoning(monitored):
    """By default a right prediction is worth -1 and a wrong one 1; the rule is recorded beside."""
    with FakeJudge(answer=says("yes")) as judge:
        monitored(judge)
        right, wrong = compute_score(
            solution_strs=[THOUGHT] * 2,
            ground_truths=["4"] * 2,
            data_sources=["openai/gsm8k"] * 2,
            extra_infos=[{"is_correct": True}, {"is_correct": False}],
        )
        assert judge.seen.requests == 1  # the same reasoning is asked about once
    assert (right["score"], wrong["score"]) == (-1.0, 1.0)
    assert (right["monitor/predicted"], right["monitor/right"]) == (1.0, 1.0)
    assert (wrong["monitor/predicted"], wrong["monitor/right"]) == (1.0, 0.0)
    assert right["answer"] is not None


def test_rewards_and_their_balance_come_from_the_environment(monitored):
    with FakeJudge(answer=says("no")) as judge:
        monitored(
            judge,
            MONITOR_CORRECT_REWARD="2",
            MONITOR_WRONG_REWARD="-0.5",
            REBALANCE_MONITOR_REWARD="0.8",
        )
        rows = compute_score(
            solution_strs=[THOUGHT] * 2, extra_infos=[{"is_correct": 0}, {"is_correct": "yes"}]
        )
    assert [row["score"] for row in rows] == [pytest.approx(2 / 0.2), pytest.approx(-0.5 / 0.8)]


def test_a_judge_that_fails_leaves_no_number_and_no_key_in_sight(monitored):
    with FakeJudge(Script(faults=(Status(status=400, always=True),))) as judge:
        monitored(judge)
        row = compute_score(THOUGHT, "4", "", {"is_correct": True})
    assert row["score"] is None
    assert row["monitor_abstained"] == "http_error"
    assert KEY not in str(row)


def test_a_row_that_does_not_say_whether_it_is_correct_abstains(monitored):
    with FakeJudge() as judge:
        monitored(judge)
        row = compute_score(THOUGHT, "4", "", {})
    assert row["score"] is None
    assert "is_correct" in row["abstained_why"]


def test_the_monitors_cache_is_on_unless_it_is_switched_off():
    given = {"TRAIN_WITH_MONITOR": "1", "OPENAI_API_KEY": KEY, "MONITOR_MODEL_NAME": "m"}
    assert "cache" not in reward_in(given)
    assert reward_in(given | {"MONITOR_CACHE": "False"})["cache"] == "off"
    assert KEY not in str(reward_in(given))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"OPENAI_API_KEY": ""}, "OPENAI_API_KEY is not set"),
        ({"MONITOR_MODEL_NAME": " "}, "MONITOR_MODEL_NAME is not set"),
        ({"TRAIN_WITH_MONITOR": "maybe"}, "TRAIN_WITH_MONITOR is 'maybe'; it has to be true or"),
        ({"MONITOR_CACHE": "2"}, "MONITOR_CACHE is '2'"),
        ({"MONITOR_CORRECT_REWARD": "high"}, "MONITOR_CORRECT_REWARD is 'high'; it has to be a nu"),
        ({"MONITOR_WRONG_REWARD": "nan"}, "MONITOR_WRONG_REWARD is 'nan'; it has to be a number"),
        ({"MONITOR_WRONG_REWARD": "1e400"}, "MONITOR_WRONG_REWARD is '1e400'; it has to be a nu"),
        ({"REBALANCE_MONITOR_REWARD": "true"}, "REBALANCE_MONITOR_REWARD is 'true'; it has to be"),
        ({"REBALANCE_MONITOR_REWARD": "1.5"}, "REBALANCE_MONITOR_REWARD is '1.5'"),
    ],
)
def test_a_wrong_variable_is_named(changes, says):
    given = {"TRAIN_WITH_MONITOR": "1", "OPENAI_API_KEY": KEY, "MONITOR_MODEL_NAME": "m"}
    with pytest.raises(ConfigError) as caught:
        reward_in(given | changes)
    assert says in str(caught.value)


def test_a_missing_key_is_named_when_a_trainer_takes_the_function_and_not_at_its_first_batch():
    code = "from zerowait.verl import {}"
    environ = {"TRAIN_WITH_MONITOR": "1", "MONITOR_MODEL_NAME": "m", "PATH": ""}
    environ |= {"PYTHONPATH": ":".join(sys.path)}
    ends = {
        name: subprocess.run(
            [sys.executable, "-c", code.format(name)],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            env=environ,
        )
        for name in ("compute_score", "LengthPenaltyConfig")
    }
    assert "OPENAI_API_KEY is not set" in ends["compute_score"].stderr
    assert ends["LengthPenaltyConfig"].returncode == 0


def test_verls_own_loader_takes_the_functions():
    from verl.trainer.ppo.reward import get_custom_reward_fn

    def loaded(name):
        function = {"path": "pkg://zerowait.verl", "name": name, "reward_kwargs": KWARGS}
        config = OmegaConf.create({"reward": {"custom_reward_function": function}})
        return get_custom_reward_fn(config)

    row = dict(zip(("solution_str", "ground_truth", "data_source", "extra_info"), ONE, strict=True))
    assert loaded("compute_score")(**row)["score"] == 1.0
    awaited = loaded("acompute_score")
    assert inspect.iscoroutinefunction(awaited)
    assert asyncio.run(awaited(**row))["score"] == 1.0


KWARGS = {"on_failure": {"default": {"value": 0.0}}}

BY_LISTS = """
def compute_score(data_sources, solution_strs, ground_truths, extra_infos):
    return [len(solution_strs) * (gold in text) for text, gold in zip(solution_strs, ground_truths)]
"""


def test_a_users_function_that_takes_lists_gets_them_from_calls_of_single_responses(
    tmp_path, monkeypatch
):
    """As under verl's own managers, which no longer call a function with a batch."""
    (tmp_path / "scores_by_lists.py").write_text(BY_LISTS)
    monkeypatch.syspath_prepend(tmp_path)
    config = {"components": {"answer": {"scorer": "scores_by_lists:compute_score"}}}

    async def all_of_them():
        async with asyncio.TaskGroup() as group:
            works = [
                group.create_task(acompute_score(f"it is {n}", str(n % 2), "", {}, config=config))
                for n in range(6)
            ]
        return [work.result() for work in works]

    worth = [row["score"] for row in asyncio.run(all_of_them())]
    assert [bool(score) for score in worth] == [True, True, False, False, False, False]
    assert worth[1] > 1


@pytest.mark.parametrize(
    ("extra", "refused"),
    [
        ({"num_turns": 2}, False),
        ({"num_turns": None}, False),
        ({"num_turns": 4, "judged_whole": True}, False),
        ({"num_turns": 4}, True),
        ({"num_turns": np.int32(3)}, True),
    ],
)
def test_under_verls_own_managers_a_text_that_tools_wrote_in_is_refused(
    monkeypatch, extra, refused
):
    """They decode the whole response: the answer in it may be a tool's."""
    monkeypatch.setattr(scores, "in_reward_worker", lambda: True)
    call = (*ONE[:3], extra)
    if refused:
        with pytest.raises(DataError, match=r"reward_manager\.name=zerowait"):
            compute_score(*call, **KWARGS)
    else:
        assert compute_score(*call, **KWARGS)["score"] == 1.0
