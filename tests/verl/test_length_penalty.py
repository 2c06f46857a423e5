"""The manager of whole batches, against a judge on the wire and with verl's own batches."""

import asyncio
import io
import logging
import math
import os
import pickle
import subprocess
import sys
import threading
from functools import partial

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from verl import DataProto

from zerowait.engine import progress
from zerowait.errors import ConfigError, DataError, JudgementError
from zerowait.testing import FakeJudge, Hang, Latency, Script, Status
from zerowait.types import Abstain
from zerowait.verl import LengthPenaltyConfig, LengthPenaltyRewardManager

KEY = "sk-planted-key-of-nobody"
WIDTH = 12
WRITTEN = ("original_score", "quality_reward", "length_penalty", "response_length", "median_length")


class Letters:
    """Token ids are letters: 97 is a."""

    eos_token = "\0"

    def decode(self, ids, *, skip_special_tokens):
        return "".join(chr(int(token)) for token in ids)

    def encode(self, text):
        return [ord(letter) for letter in text]


def batch(responses, *, golds=None, uids=None, masks=None, **columns):
    """verl's batch of these responses, prompts padded on the left and responses on the right."""
    count = len(responses)
    tokens = torch.zeros(count, WIDTH, dtype=torch.long)
    attention = torch.zeros(count, 3 + WIDTH, dtype=torch.long)
    attention[:, 1:3] = 1
    for row, text in enumerate(responses):
        tokens[row, : len(text)] = torch.tensor([ord(letter) for letter in text])
        attention[row, 3 : 3 + len(text)] = 1
    tensors = {
        "prompts": torch.tensor([[0, 81, 63]] * count),
        "responses": tokens,
        "attention_mask": attention,
    }
    if masks is not None:
        tensors["response_mask"] = torch.tensor(masks)
    others = {
        "data_source": ["letters"] * count,
        "reward_model": [{"ground_truth": gold} for gold in golds or ["a"] * count],
        "uid": uids or ["p"] * count,
        "extra_info": [{"index": row} for row in range(count)],
        **columns,
    }
    return DataProto.from_dict(
        tensors=tensors,
        non_tensors={name: np.array(values, dtype=object) for name, values in others.items()},
    )


def holds_a(data_source, solution_str, ground_truth, extra_info):
    return {"score": float("a" in solution_str), "acc": "a" in solution_str}


def settings(judge=None, **changes):
    asked = {}
    if judge is not None:
        asked = {"enable_openai_reward": True, "api_key": KEY, "api_endpoint": judge.url}
    return {"cache": "off", **asked, **changes}


def manager(given, compute_score=holds_a, **options):
    return LengthPenaltyRewardManager(
        tokenizer=Letters(),
        num_examine=0,
        compute_score=compute_score,
        length_penalty_config=given,
        **options,
    )


def values(scores):
    """What each row is worth; everything but one token of it has to be 0."""
    rows = [[x for x in row.tolist() if x != 0] for row in scores]
    assert all(len(row) <= 1 for row in rows)
    return [row[0] if row else 0.0 for row in rows]


def test_a_batch_is_worth_score_plus_quality_minus_penalty_at_its_last_valid_tokens():
    texts = ["a" * 4, "b" * 4, "a" * 4, "a" * 10]  # median 4: the last is far beyond 4 x 1.5
    with FakeJudge(answer=lambda body: "Score: 7") as judge:
        with manager(settings(judge, reward_coefficient=0.5, penalty_scale=0.25)) as rewards:
            told = rewards(batch(texts), return_dict=True)
        assert judge.seen.requests == 2  # one per different response that scored above 0
    scores, info = told["reward_tensor"], told["reward_extra_info"]
    assert scores.shape == (4, WIDTH)
    assert scores.dtype == torch.float32
    assert [scores[0, 3], scores[1, 3], scores[2, 3], scores[3, 9]] == [4.5, 0, 4.5, 4.25]
    assert values(scores) == [4.5, 0, 4.5, 4.25]
    assert info["original_score"] == [1, 0, 1, 1]
    assert info["quality_reward"] == [3.5, 0, 3.5, 3.5]
    assert info["length_penalty"] == [0, 0, 0, 0.25]
    assert info["response_length"] == [4, 4, 4, 10]
    assert info["median_length"] == [4] * 4
    assert info["abstained"] == [0] * 4
    assert info["acc"] == [True, False, True, True]  # what the user's function returned beside


@pytest.mark.parametrize("column", ["reward_model", "extra_info"])
@pytest.mark.parametrize("found", ["Paris", 7, ["Paris"]])
def test_a_column_that_is_no_mapping_is_told_with_its_row(column, found):
    rows = batch(["a", "b"])
    rows.non_tensor_batch[column][1] = found
    says = pytest.raises(DataError, match=rf"row 1 of the batch: column '{column}' has to be")
    with manager(settings()) as rewards, says:
        rewards(rows)


@pytest.mark.parametrize("found", [float("nan"), None])
def test_a_gap_is_no_gold_answer_and_no_extra_columns(found):
    """Data frames fill gaps with NaN or None."""
    rows = batch(["a", "b"])
    rows.non_tensor_batch["extra_info"][1] = found
    with manager(settings()) as rewards:
        assert values(rewards(rows)) == [1, 0]
        rows.non_tensor_batch["reward_model"][1] = found
        with pytest.raises(DataError, match=r"row 1 of the batch: column 'reward_model' .*not"):
            rewards(rows)


def test_groups_are_the_rows_of_one_prompt_wherever_they_stand():
    texts = ["aa", "aaaaaaaa", "aa", "aaaaaaaa"]
    rewards = manager(settings())
    with rewards:
        together = rewards(batch(texts, uids=["p"] * 4), return_dict=True)
        apart = rewards(batch(texts, uids=["p", "q", "p", "q"]), return_dict=True)
    assert together["reward_extra_info"]["median_length"] == [5] * 4  # the mean of the middle two
    assert apart["reward_extra_info"]["median_length"] == [2, 8, 2, 8]
    assert values(apart["reward_tensor"]) == [1] * 4


def test_both_modes_agree_to_the_last_digit_on_a_hundred_responses():
    """Also on which of them abstain; and the synchronous one has one call in flight."""
    texts = [chr(97 + row % 26) * (1 + row % 11) + "a" for row in range(100)]
    data = batch(texts, uids=[f"p{row // 10}" for row in range(100)])
    seen, told = {}, {}
    for use_async_io in (True, False):
        faults = (Status(status=400, share=0.1, always=True),)
        script = Script(seed=3, latency=Latency(0.004), faults=faults)
        with FakeJudge(script) as judge:
            given = settings(judge, use_async_io=use_async_io, max_concurrent_requests=10)
            with manager(given) as rewards:
                told[use_async_io] = rewards(data, return_dict=True)
            seen[use_async_io] = judge.seen
    fast, slow = (told[mode]["reward_tensor"].numpy().tobytes() for mode in (True, False))
    assert fast == slow
    whys = [told[mode]["reward_extra_info"].pop("abstained_why") for mode in (True, False)]
    assert [bool(why) for why in whys[0]] == [bool(why) for why in whys[1]]  # they name the ports
    assert told[True]["reward_extra_info"] == told[False]["reward_extra_info"]
    assert 0 < sum(told[True]["reward_extra_info"]["abstained"]) < 100
    assert seen[True].requests == seen[False].requests == len(set(texts))
    assert seen[False].peak_in_flight == 1
    assert 1 < seen[True].peak_in_flight <= 10


def test_the_synchronous_mode_works_in_the_calling_thread_and_leaves_nothing_behind():
    with FakeJudge() as judge:
        running = set(threading.enumerate())
        rewards = manager(settings(judge, use_async_io=False))
        rewards(batch(["a"]))
        assert set(threading.enumerate()) <= running


def test_the_synchronous_mode_says_so_where_a_loop_runs_already():
    async def cell():
        return values(rewards(batch(["a"])))

    rewards = manager(settings(use_async_io=False))
    with rewards, pytest.warns(RuntimeWarning, match="one at a time in another thread"):
        assert asyncio.run(cell()) == [1.0]


def test_it_works_in_a_notebook_cell_after_cell():
    async def cell():
        return values(rewards(batch(["a"])))

    with manager(settings()) as rewards:
        assert [asyncio.run(cell()) for _ in range(3)] == [[1.0]] * 3


@pytest.mark.parametrize("use_async_io", [True, False])
@pytest.mark.parametrize("policy", ["neutral", "mask"])
def test_a_failed_judgement_is_no_number_and_says_why(policy, use_async_io):
    script = Script(faults=(Status(status=400, always=True),))
    with FakeJudge(script) as judge:
        given = settings(judge, on_failure=policy, use_async_io=use_async_io)
        with manager(given) as rewards:
            told = rewards(batch(["a", "b"]), return_dict=True)
    scores, info = told["reward_tensor"], told["reward_extra_info"]
    assert math.isnan(scores[0, 0])
    assert not scores[:, 1:].any()
    assert scores[1, 0] == 0  # the judge was not asked about it: its rule score is not above 0
    assert info["abstained"] == [1, 0]
    assert info["abstained_why"][0].startswith("quality: http_error")
    assert info["quality_reward"] == [None, 0]
    assert info["quality_abstained"] == ["http_error", ""]
    assert {len(column) for column in info.values()} == {2}


def test_a_value_counts_as_the_user_said_and_raise_raises():
    script = Script(faults=(Status(status=400, always=True),))
    with FakeJudge(script) as judge:
        given = settings(judge, on_failure={"value": 5}, reward_coefficient=0.1)
        with manager(given) as rewards:
            assert values(rewards(batch(["a"]))) == [1.5]
        raising = manager(settings(judge, on_failure="raise"))
        with raising, pytest.raises(JudgementError, match="quality: http_error"):
            raising(batch(["a"]))


@pytest.mark.parametrize("use_async_io", [True, False])
def test_a_judge_that_hangs_ends_at_the_batchs_deadline_and_the_policy_decides(use_async_io):
    with FakeJudge(Script(faults=(Hang(always=True),))) as judge:
        given = settings(judge, deadline_s=1.0, use_async_io=use_async_io)
        with manager(given) as rewards:
            told = rewards(batch(["a", "b"]), return_dict=True)["reward_extra_info"]
    assert told["quality_abstained"] == ["timeout", ""]
    assert told["original_score"] == [1, 0]


def test_lengths_are_the_tokens_that_the_model_wrote():
    masks = [[1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]]
    with manager(settings()) as rewards:
        told = rewards(batch(["aabba", "aaa"], masks=masks), return_dict=True)
    assert told["reward_extra_info"]["response_length"] == [3, 3]


def test_without_a_mask_several_turns_need_somebody_who_says_what_the_model_wrote():
    """A count says how long the model's text is, and not which of it."""
    rewards = manager(settings())
    with rewards:
        for said in ({}, {"model_tokens": 2}):
            with pytest.raises(ConfigError, match="agent_loop_manager_class"):
                rewards(batch(["aabb"], __num_turns__=[4], tool_extra_fields=[said]))
        told = rewards(
            batch(["bbaa"], __num_turns__=[4], tool_extra_fields=[{"response_mask": [1, 1, 0, 0]}]),
            return_dict=True,
        )
    assert told["reward_extra_info"]["response_length"] == [2]
    assert told["reward_extra_info"]["original_score"] == [0]  # the a is a tool's


@pytest.mark.parametrize(("masks", "score"), [([1, 1, 0, 0], 0), ([0, 0, 1, 1], 1)])
def test_a_batch_is_judged_by_the_models_own_text(masks, score):
    with manager(settings()) as rewards:
        told = rewards(batch(["bbaa"], masks=[masks + [0] * (WIDTH - 4)]), return_dict=True)
    assert told["reward_extra_info"]["original_score"] == [score]


def test_an_empty_response_is_a_response():
    with manager(settings()) as rewards:
        told = rewards(batch(["", "aa", "aa"]), return_dict=True)
    assert values(told["reward_tensor"]) == [-1, 1, 1]
    assert told["reward_extra_info"]["response_length"] == [0, 2, 2]


def test_rows_without_a_prompt_group_are_an_error_only_where_lengths_are_compared():
    data = batch(["aa", "aaaaaa"])
    del data.non_tensor_batch["uid"]
    with manager(settings()) as rewards, pytest.raises(DataError, match="'uid'"):
        rewards(data)
    with manager(settings(enable=False)) as rewards:
        told = rewards(data, return_dict=True)
    assert values(told["reward_tensor"]) == [1, 1]
    assert told["reward_extra_info"]["length_penalty"] == [0, 0]
    assert told["reward_extra_info"].keys() >= set(WRITTEN)


def by_lists(data_sources, solution_strs, ground_truths, extra_infos, bonus=0.0):
    SIZES.append(len(solution_strs))
    if "boom" in solution_strs:
        raise ValueError("boom")
    return [float("a" in text) + bonus for text in solution_strs]


async def awaited(data_source, solution_str, ground_truth, extra_info):
    await asyncio.sleep(0)
    return float("a" in solution_str)


SIZES = []


def test_a_function_that_takes_lists_gets_small_ones_and_a_bad_sample_costs_no_sibling():
    SIZES.clear()
    texts = ["a"] * 40 + ["boom"]
    with manager(settings(enable=False), by_lists) as rewards:
        told = rewards(batch(texts), return_dict=True)
    assert max(SIZES) == 32
    assert values(told["reward_tensor"])[:40] == [1.0] * 40
    assert math.isnan(told["reward_tensor"][40, 3])
    assert told["reward_extra_info"]["score_abstained"] == [""] * 40 + ["crashed"]


def verls_wrapper(raw_fn, extra_kwargs, *args, **kwargs):
    return raw_fn(*args, **{**kwargs, **extra_kwargs})


@pytest.mark.parametrize(
    ("function", "worth"),
    [
        (awaited, 1.0),
        (partial(by_lists, bonus=0.5), 1.5),
        (partial(verls_wrapper, by_lists, {"bonus": 0.5}), 1.5),
        (lambda sample: 2.0, 2.0),
    ],
)
def test_functions_of_every_convention_are_called_in_their_own(function, worth):
    with manager(settings(), function) as rewards:
        assert values(rewards(batch(["a"]))) == [worth]


def test_a_name_is_a_scorer_and_no_name_is_the_rule_of_the_data_source():
    data = batch(["a"], data_source=["nobody/knows"])
    with manager(settings(), "contains") as rewards:
        assert values(rewards(data)) == [1.0]
    with manager(settings(), None) as rewards:
        told = rewards(data, return_dict=True)["reward_extra_info"]
    assert told["score_abstained"] == ["bad_input"]
    with pytest.raises(ConfigError, match="there is no scorer 'contain'; did you mean"):
        manager(settings(), "contain")


@pytest.mark.parametrize("returned", [None, math.nan, "one", Abstain("crashed", "x")])
def test_a_function_that_gives_no_number_abstains(returned):
    with manager(settings(), lambda sample: returned) as rewards:
        assert math.isnan(rewards(batch(["a"]))[0, 0])


def test_starting_and_shutting_down_may_be_repeated_and_a_batch_opens_again():
    before = set(threading.enumerate())
    rewards = manager(settings())
    rewards.shutdown_workers()
    rewards.start_workers()
    rewards.start_workers()
    assert values(rewards(batch(["a"]))) == [1.0]
    rewards.shutdown_workers()
    rewards.shutdown_workers()
    begun = set(threading.enumerate()) - before
    assert not [thread for thread in begun if thread.name == "zerowait"]
    assert values(rewards(batch(["a"]))) == [1.0]
    rewards.shutdown_workers()


def test_it_travels_to_another_process_and_opens_there():
    with manager(settings()) as rewards:
        rewards(batch(["a"]))
        copied = pickle.loads(pickle.dumps(rewards))
    with copied:
        assert values(copied(batch(["a"]))) == [1.0]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_opens_its_own():
    with manager(settings()) as rewards:
        rewards.start_workers()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 7 if values(rewards(batch(["a"]))) == [1.0] else 2
                rewards.shutdown_workers()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert values(rewards(batch(["a"]))) == [1.0]


@pytest.mark.parametrize("use_async_io", [True, False])
def test_whoever_waits_long_is_told_how_far_it_is(use_async_io, monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.02)

    async def until_told(body):
        while "\n" not in screen.getvalue():  # noqa: ASYNC110 - written by another thread
            await asyncio.sleep(0.005)

    with FakeJudge(hold=until_told) as judge:
        rewards = manager(settings(judge, use_async_io=use_async_io))
        rewards(batch(["a"]))
        rewards.shutdown_workers()
    assert screen.getvalue().startswith("scoring 0/1 (0 %), none done yet")


def test_the_batch_is_left_as_it_was():
    data = batch(["a", "aaaa"])
    before = pickle.dumps(data.non_tensor_batch)
    with manager(settings()) as rewards:
        rewards(data, return_dict=True)
    assert pickle.dumps(data.non_tensor_batch) == before
    assert set(data.batch.keys()) == {"prompts", "responses", "attention_mask"}


def test_responses_are_logged_not_printed_and_no_more_than_asked(caplog, capsys):
    with caplog.at_level(logging.INFO, "zerowait"), FakeJudge() as judge:
        rewards = LengthPenaltyRewardManager(
            tokenizer=Letters(),
            num_examine=1,
            compute_score=holds_a,
            length_penalty_config=settings(judge),
        )
        with rewards:
            rewards(batch(["a", "aa"]))
    told = [record.getMessage() for record in caplog.records if "[response]" in record.msg]
    assert len(told) == 1
    assert "[prompt] Q?\n[response] a\n[ground_truth] a" in told[0]
    assert capsys.readouterr() == ("", "")
    assert KEY not in caplog.text


def test_the_key_is_sent_and_shown_nowhere():
    given = LengthPenaltyConfig(api_key=KEY, api_endpoint="http://127.0.0.1:1/v1?key=hidden")
    assert KEY not in f"{given} {given!r}"
    assert "hidden" not in f"{given} {given!r}"
    with FakeJudge(api_key=KEY) as judge, manager(settings(judge)) as rewards:
        assert not rewards(batch(["a"]), return_dict=True)["reward_extra_info"]["abstained"][0]
    with FakeJudge(api_key="another") as judge, manager(settings(judge)) as rewards:
        told = rewards(batch(["a"]), return_dict=True)["reward_extra_info"]
    assert told["quality_abstained"] == ["http_error"]
    assert KEY not in str(told)


def test_settings_come_as_keywords_as_a_mapping_and_from_omegaconf():
    made = OmegaConf.create(
        {"scale": 0.5, "lp": {"penalty_scale": "${scale}", "on_failure": {"default": "neutral"}}}
    )
    given = LengthPenaltyConfig(made.lp)
    assert given == LengthPenaltyConfig(penalty_scale=0.5, on_failure={"default": "neutral"})
    assert given == LengthPenaltyConfig({"penalty_scale": 0.5}, on_failure={"default": "neutral"})
    with manager(made.lp) as rewards:
        assert rewards.config.penalty_scale == 0.5


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"peak_ration": 0.3}, "it has no key 'peak_ration'; did you mean 'peak_ratio'?"),
        ({"peak_ratio": 0.5}, "outer_ratio must be greater than peak_ratio, but 0.5 <= 0.5"),
        ({"outer_ratio": 0.3}, "outer_ratio must be greater than peak_ratio"),
        ({"penalty_scale": "much"}, "penalty_scale must be a number, not text"),
        ({"penalty_scale": math.inf}, "penalty_scale must be a finite number"),
        ({"deadline_s": 0}, "deadline_s must be greater than 0"),
        ({"max_concurrent_requests": 0}, "max_concurrent_requests must be greater than 0"),
        ({"max_concurrent_requests": "many"}, "max_concurrent_requests"),
        ({"api_endpoint": "qianfan"}, "api_endpoint must start with http:// or https://"),
        ({"enable": "yes"}, "enable"),
    ],
)
def test_a_wrong_setting_is_named_with_what_fits(given, says):
    with pytest.raises(ConfigError) as caught:
        LengthPenaltyConfig(given)
    assert str(caught.value).startswith("LengthPenaltyConfig: ")
    assert says in str(caught.value)


def test_worker_processes_are_accepted_and_deprecated():
    with pytest.warns(DeprecationWarning, match="num_async_workers has no effect"):
        LengthPenaltyConfig(num_async_workers=4)


def test_a_missing_key_is_named_at_the_start_and_goes_nowhere_by_itself(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    judged = LengthPenaltyConfig(enable_openai_reward=True)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY, which is not set"):
        manager(judged)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.raises(ConfigError, match="api_endpoint is needed: OPENAI_API_KEY goes only where"):
        manager(judged)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    assert judged.reward()["judges"]["quality"]["endpoints"] == [
        {
            "base_url": "http://127.0.0.1:1/v1",
            "model": "deepseek-v3",
            "api_key_env": "OPENAI_API_KEY",
        }
    ]


def test_the_names_need_neither_verl_nor_torch():
    code = (
        "import sys; from zerowait.verl import *; from zerowait.verl import LengthPenaltyConfig;"
        "print(LengthPenaltyConfig().outer_ratio, {'verl', 'torch', 'ray'} & set(sys.modules))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60
    )
    assert ended.stdout == "0.5 set()\n", ended.stderr
