"""Turn rewards in verl: the episode's messages, their places, and what estimators make of them."""

import statistics
import warnings
from types import SimpleNamespace

import pytest
import torch
from omegaconf import OmegaConf

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

    from zerowait.verl.agent.manager import with_reward_on_model_token
from tests.verl.test_reward_place import RUN_BY_VERL, Rows, configuration, redeemed
from tests.verl.test_trajectory import BY_MODEL, CALLED, output, sample
from zerowait.config import load_config
from zerowait.engine.turns import samples_of_turns
from zerowait.errors import ConfigError
from zerowait.types import Reward, Score, TurnReward
from zerowait.verl.response_mask import episode_messages
from zerowait.verl.rewards.turn_rewards import check_turn_rewards, turn_columns
from zerowait.verl.rows import MANAGER, TURN_REWARDS


def test_an_episodes_messages_are_the_runs_of_its_mask():
    one = sample([output("p", CALLED, turns=4, response_mask=BY_MODEL)])
    assert one.response_messages == [
        {"role": "assistant", "content": "<call>x", "last_token": 6},
        {"role": "tool", "content": "[tool: <answer>Paris</answer>]"},
        {"role": "assistant", "content": "so: Lyon", "last_token": 44},
    ]
    assert [turn.response for turn in samples_of_turns(one)] == ["<call>x", "so: Lyon"]


def test_our_search_loop_says_who_wrote_what_without_a_mask():
    authors = [["model", 7], ["environment", 30], ["model", 8]]
    said = {"judged_whole": True, "model_tokens": 15, "episode": {"authors": authors}}
    one = sample([output("p", CALLED, turns=4, **said)])
    assert one.response == CALLED
    assert [message["role"] for message in one.response_messages] == [
        *("assistant", "tool", "assistant")
    ]


def test_a_response_of_the_model_alone_has_no_messages():
    assert sample([output("p", "all mine")]).response_messages is None
    whole = output("p", "all mine", response_mask=[1] * 8)
    assert sample([whole]).response_messages is None


@pytest.mark.parametrize(
    "text",
    [
        "\nuser\n<tool_response>\nParis\n</tool_response>\nassistant\n",
        "ipython\n\n<tool_response>\nParis\n</tool_response>assistant\n\n",
        "<tool_response>\nParis\n</tool_response>",
    ],
)
def test_role_names_of_the_chat_template_are_no_part_of_what_a_tool_wrote(text):
    mask = [1] + [0] * len(text) + [1]
    told = episode_messages("a" + text + "b", mask, "".join, verbatim=False)
    assert told[1] == {"role": "tool", "content": "<tool_response>\nParis\n</tool_response>"}


def by_turns(*turns, rest=0.0):
    """A reward whose turns are (token, value) pairs."""
    outcomes = [
        TurnReward(value, {"q": Score(value)}, at, token) for at, (token, value) in enumerate(turns)
    ]
    total = rest + sum(value for _, value in turns)
    return Reward(total, {"q": Score(total)}, turns=tuple(outcomes))


def test_under_verls_own_trainers_each_turn_is_paid_on_its_last_token():
    reward = by_turns((1, 0.5), (4, -0.25), rest=1.0)
    fields = {"reward_extra_info": {"q": 1.0}, **turn_columns(reward)}
    one = AgentLoopOutput(
        prompt_ids=[1],
        response_ids=list(range(7)),
        response_mask=[1, 1, 0, 1, 1, 0, 0],
        reward_score=reward.value,
        num_turns=4,
        metrics=AgentLoopMetrics(),
        extra_fields=fields,
    )
    row = with_reward_on_model_token(one).as_dict()
    assert row["rm_scores"].tolist() == [0, 0.5, 0, 0, 0.75, 0, 0]
    assert TURN_REWARDS not in row["extra_fields"]


def test_in_the_modes_zerowait_each_turn_is_paid_on_its_last_token(queue):
    """Returns of both estimators that read tokens are sums made by hand."""
    rows = Rows(3, groups=1)
    rows.masks = {key: [1, 1, 0, 1, 1, 0] for key in rows.masks}
    rows.values = {key: [0.1] * 6 for key in rows.masks}
    rewards = {key[:-2]: by_turns((1, 0.5), (4, 2.0)) for key in rows.masks}
    lost = next(iter(rewards))
    rewards[lost] = Reward(None, {}, policy="neutral", why="q: timeout: 1 of 2 turns were judged")
    batch = rows.put(queue)
    redeemed(batch, rewards, configuration("reinforce_plus_plus"), pays_by_turn=True)
    for key in rows.masks:
        row = queue.rows["train", key]
        if key[:-2] == lost:
            assert not row["rm_scores"].any()
            assert not row["advantages"].any()
            continue
        assert row["rm_scores"].tolist() == [0, 0.5, 0, 0, 2.0, 0]
        expected = [0.9 * (0.5 + 0.9 * 0.9 * 2.0), 0.5 + 0.9 * 0.9 * 2.0, 0, 0.9 * 2.0, 2.0, 0]
        assert (row["returns"] * torch.tensor(rows.masks[key])).tolist() == pytest.approx(expected)


def test_grpo_gets_the_aggregate_and_its_advantage_is_the_one_by_hand(queue):
    rows = Rows(3, groups=1)
    values = dict(zip(rows.masks, (0.25, 0.5, 1.0), strict=True))
    rewards = {key[:-2]: Reward(value, {"q": Score(value)}) for key, value in values.items()}
    rows.masks = {key: [1, 1, 0, 1] for key in rows.masks}
    redeemed(rows.put(queue), rewards, configuration("grpo"))
    mean, deviation = statistics.mean(values.values()), statistics.stdev(values.values())
    for key, value in values.items():
        got = queue.rows["train", key]["advantages"]
        assert float(got[0]) == pytest.approx((value - mean) / (deviation + 1e-6), rel=1e-4)


REWARD = {
    "components": {"steps": {"judge": "q", "per": "turn"}},
    "judges": {
        "q": {
            "endpoints": [{"base_url": "http://h/v1", "model": "m"}],
            "verdict": {"integer": [1, 9]},
        }
    },
}


def verls(estimator, manager=MANAGER):
    rollout = {"agent": {"agent_loop_manager_class": manager}}
    return OmegaConf.create(
        {"algorithm": {"adv_estimator": estimator}, "actor_rollout_ref": {"rollout": rollout}}
    )


@pytest.mark.parametrize("estimator", RUN_BY_VERL)
def test_an_estimator_that_adds_up_the_rewards_is_refused_and_told_which_do_not(estimator):
    config = load_config(REWARD)
    if estimator in ("gae", "reinforce_plus_plus"):
        check_turn_rewards(config, verls(estimator))
        return
    with pytest.raises(ConfigError, match=r"aggregate.*gae, reinforce_plus_plus"):
        check_turn_rewards(config, verls(estimator))
    aggregated = {**REWARD["components"]["steps"], "aggregate": "mean"}
    check_turn_rewards(
        load_config(REWARD | {"components": {"steps": aggregated}}), verls(estimator)
    )


@pytest.mark.parametrize("estimator", RUN_BY_VERL)
def test_what_is_refused_is_what_verl_adds_up(estimator):
    """Two places of the same sum: only estimators that read tokens tell them apart."""
    from verl.trainer.ppo import core_algos

    mask = torch.ones(4, 6)
    early, late = torch.zeros(4, 6), torch.zeros(4, 6)
    early[:, 1], late[:, 5] = torch.tensor([1.0, 2, 3, 5]), torch.tensor([1.0, 2, 3, 5])
    told = {
        "response_mask": mask,
        "index": torch.tensor([0, 0, 0, 0]).numpy(),
        "config": OmegaConf.create({"gamma": 1.0, "norm_adv_by_std_in_grpo": True}),
        "values": torch.zeros(4, 6),
        "gamma": 1.0,
        "lam": 1.0,
    }
    function = core_algos.get_adv_estimator_fn(estimator)
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    given = {name: value for name, value in told.items() if name in names}
    first, second = (function(token_level_rewards=r, **given)[1] for r in (early, late))
    reads_tokens = estimator in ("gae", "reinforce_plus_plus")
    assert torch.equal(first, second) is not reads_tokens


def test_turns_need_workers_that_know_their_places():
    with pytest.raises(ConfigError, match="agent_loop_manager_class=zerowait"):
        check_turn_rewards(load_config(REWARD), verls("gae", manager=None))


def test_a_rows_pictures_reach_the_sample_as_urls_in_every_form():
    png = bytes.fromhex("89504e470d0a1a0a") + b"rest"
    picture = {"type": "image", "bytes": png, "image": SimpleNamespace(save=None)}
    prompt = [{"role": "user", "content": [picture, {"type": "text", "text": "What is it?"}]}]
    one = sample([output("p", "A cat.")], raw_prompt=prompt)
    first, second = one.prompt[0]["content"]
    assert first["image_url"]["url"].startswith("data:image/png;base64,iVBORw0KGgp")
    assert second == {"type": "text", "text": "What is it?"}
