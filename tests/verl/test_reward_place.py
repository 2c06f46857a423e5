"""Where a reward stands in verl's tensors: on the last token that the model wrote, in every writer in.

Advantages and returns are verl's own, over rows with tokens of tools at the start, in the middle and
at the end, and are compared with sums made by hand over the model's own tokens alone.
"""

import asyncio
import math
import statistics
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from msgspec import structs
from omegaconf import OmegaConf
from tensordict import NonTensorStack, TensorDict
from transfer_queue import KVBatchMeta
from verl import DataProto
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

    from zerowait.verl.agent.manager import move_to_model_tokens, with_reward_on_model_token
from zerowait.search import SearchSettings
from zerowait.types import Abstain, Reward, Sample, Score, TurnReward
from zerowait.verl.batch.data_proto import abstain_without_tokens, as_tensor
from zerowait.verl.estimators import ESTIMATORS, not_run
from zerowait.verl.response_mask import last_written, own_text
from zerowait.verl.rewards.redeemer import Redeemer
from zerowait.verl.rewards.row_rewards import RowRewards
from zerowait.verl.rewards.tickets import ticket
from zerowait.verl.rewards.turn_rewards import turn_columns
from zerowait.verl.rows import TURN_REWARDS
from zerowait.verl.trainer.search_ceiling import SearchCeiling
from zerowait.verl.trainer.ticket_trainer import ZerowaitTrainer

RUN_BY_VERL = [name for name in ESTIMATORS if not_run(name) is None]
GAMMA, LAM = 0.9, 0.8
# where others wrote: nowhere, at the start, in the middle, at the end, everywhere but in one place
LAYOUTS = ("1111", "0011", "1100", "10011", "111000", "0110", "0100110", "000100", "1", "10", "01")


class Hub:
    """The other side of the wire: rewards by the row's name."""

    def __init__(self, rewards):
        self.rewards = rewards

    async def redeem(self, sample, *, of=None):
        return self.rewards[sample.id]

    async def give_up(self, tickets):
        pass


class Rows:
    """Rows of a step: groups of three with masks and values drawn by `seed`."""

    def __init__(self, seed, *, groups=4):
        self.draw = np.random.default_rng(seed)
        self.masks, self.rewards, self.values, self.uids = {}, {}, {}, {}
        for group in range(groups):
            for session in range(3):
                key = f"u{group}_{session}_0"
                layout = LAYOUTS[self.draw.integers(len(LAYOUTS))]
                self.masks[key] = [int(bit) for bit in layout]
                self.rewards[key] = float(self.draw.integers(1, 9)) / 4
                self.values[key] = self.draw.normal(size=len(layout))
                self.uids[key] = f"u{group}"

    def put(self, queue, *, scores=None, critic=False):
        """Into the queue, with the scores that a streaming trainer finds there, or tickets."""
        for key, mask in self.masks.items():
            name = key[:-2]
            sample = Sample("q", "a", group=self.uids[key], id=name, group_size=3)
            bits = torch.tensor(mask)
            tensors = {
                "response_mask": bits,
                "loss_mask": bits.clone(),
                "rm_scores": torch.zeros(len(mask)) if scores is None else scores[key],
            }
            for part in ("rollout_log_probs", "old_log_probs", "ref_log_prob"):
                tensors[part] = torch.zeros(len(mask))
            if critic:
                tensors["values"] = torch.tensor(self.values[key], dtype=torch.float32)
            columns = {
                part: torch.nested.as_nested_tensor([row], layout=torch.jagged)
                for part, row in tensors.items()
            }
            info = {"reward_extra_info": ticket(sample)}
            columns |= {"uid": NonTensorStack(self.uids[key]), "extra_fields": NonTensorStack(info)}
            queue.put([key], "train", TensorDict(columns, batch_size=1), [{}])
        keys = list(self.masks)
        return KVBatchMeta(keys=keys, tags=[{} for _ in keys], partition_id="train")


def configuration(estimator, *, std=True):
    algorithm = {
        "adv_estimator": estimator,
        "gamma": GAMMA,
        "lam": LAM,
        "norm_adv_by_std_in_grpo": std,
        "use_kl_in_reward": False,
        "kl_penalty": "kl",
        "kl_ctrl": {"type": "fixed", "kl_coef": 0.1},
        "rollout_correction": None,
    }
    return OmegaConf.create({"algorithm": algorithm, "actor_rollout_ref": {"rollout": {"n": 3}}})


def bare(cls, config):
    trainer = object.__new__(cls)
    trainer.config = config
    trainer.kl_ctrl_in_reward = core_algos.get_kl_controller(config.algorithm.kl_ctrl)
    return trainer


def by_tickets(rows, queue, config, *, critic):
    batch = rows.put(queue, critic=critic)
    judged = {key[:-2]: Reward(v, {"a": Score(v)}) for key, v in rows.rewards.items()}
    return redeemed(batch, judged, config)


def redeemed(batch, rewards, config, **options):
    """The trainer after its own hook, with the rewards by name."""
    trainer = bare(ZerowaitTrainer, config)

    async def open_hub():
        return Hub(rewards)

    with Redeemer(open_hub, on_timeout=lambda sample: None) as redeemer:
        trainer._rows = RowRewards(redeemer, redeem_s=30, max_abstained=1.0, quorum=0.5, **options)
        trainer._rows.read("train", batch.keys)
        trainer._shaped, trainer._settled, trainer._trained = True, {}, []
        trainer._searches = SearchCeiling(SearchSettings())
        trainer.actor_rollout_wg = SimpleNamespace(_dispatch_info={"actor": [0]})
        trainer._compute_advantage(batch, {})
    return trainer


def output(mask, score, kind=AgentLoopOutput, **fields):
    return kind(
        prompt_ids=[1],
        response_ids=list(range(len(mask))),
        response_mask=mask,
        reward_score=score,
        num_turns=4,
        metrics=AgentLoopMetrics(),
        **fields,
    )


def by_streaming(rows, queue, config, *, critic):
    """verl's own trainer, over the rows that verl makes of the outputs of our agent loops."""
    scores = {
        key: with_reward_on_model_token(output(mask, rows.rewards[key])).as_dict()["rm_scores"]
        for key, mask in rows.masks.items()
    }
    batch = rows.put(queue, scores=scores, critic=critic)
    bare(PPOTrainerSync, config)._compute_advantage(batch, {})


def by_batches(rows, queue, config, *, critic):
    """verl's own trainer, over the tensor of the manager for batches."""
    told = as_tensor(padded(list(rows.masks.values())), [judged(v) for v in rows.rewards.values()])
    places = zip(rows.masks, told, strict=True)
    scores = {key: row[: len(rows.masks[key])] for key, row in places}
    batch = rows.put(queue, scores=scores, critic=critic)
    bare(PPOTrainerSync, config)._compute_advantage(batch, {})


def judged(value):
    return Reward(value, {"a": Score(value)})


def padded(masks):
    """verl's batch of responses with these masks."""
    width = max(map(len, masks))
    wide = torch.tensor([[*mask, *[0] * (width - len(mask))] for mask in masks])
    there = torch.tensor([[1] * len(mask) + [0] * (width - len(mask)) for mask in masks])
    tensors = {"responses": wide * 7, "response_mask": wide, "attention_mask": there}
    return DataProto.from_dict(tensors=tensors)


def by_hand(estimator, rows, *, std):
    """Advantages and returns of each row's own tokens, in double precision; None: not told."""
    groups = {}
    for key, uid in rows.uids.items():
        groups.setdefault(uid, []).append(key)
    own = {key: sum(mask) for key, mask in rows.masks.items()}
    if estimator == "gae":
        found = {key: _gae(rows, key) for key in rows.masks}
        return _whitened({k: a for k, (a, _) in found.items()}), {
            k: r for k, (_, r) in found.items()
        }
    if estimator == "reinforce_plus_plus":
        returns = {
            key: [rows.rewards[key] * GAMMA ** (own[key] - 1 - at) for at in range(own[key])]
            for key in rows.masks
        }
        return _whitened(returns), returns
    advantage = {}
    for keys in groups.values():
        values = [rows.rewards[key] for key in keys]
        for key, one in zip(
            keys, _of_group(estimator, values, [own[k] for k in keys], std), strict=True
        ):
            advantage[key] = [one] * own[key]
    if estimator == "reinforce_plus_plus_baseline":
        advantage = _whitened(advantage)
    return advantage, advantage


def _of_group(estimator, values, lengths, std):
    n, mean = len(values), sum(values) / len(values)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1)) + 1e-6
    if estimator in ("grpo", "grpo_vectorized"):  # verl asks only the first whether to divide
        divides = std or estimator == "grpo_vectorized"
        return [(v - mean) / (deviation if divides else 1) for v in values]
    if estimator in ("rloo", "rloo_vectorized"):
        return [v - (sum(values) - v) / (n - 1) for v in values]
    if estimator == "opo":
        baseline = sum(v * k for v, k in zip(values, lengths, strict=True)) / sum(lengths)
        return [v - baseline for v in values]
    if estimator == "grpo_passk":
        first, second = sorted(values, reverse=True)[:2]
        best = values.index(first)
        push = (first - second) / (deviation if std else 1)
        return [push if at == best else 0.0 for at in range(n)]
    return [v - mean for v in values]  # gpg (no reward is 0 here), reinforce_plus_plus_baseline


def _gae(rows, key):
    values = [v for v, bit in zip(rows.values[key], rows.masks[key], strict=True) if bit]
    advantages, later, after = [], 0.0, 0.0
    for at in reversed(range(len(values))):
        reward = rows.rewards[key] if at == len(values) - 1 else 0.0
        later = reward + GAMMA * after - values[at] + GAMMA * LAM * later
        after = values[at]
        advantages.insert(0, later)
    return advantages, [a + v for a, v in zip(advantages, values, strict=True)]


def _whitened(rows):
    flat = np.array([x for row in rows.values() for x in row])
    scale = 1 / math.sqrt(flat.var(ddof=1) + 1e-8)
    return {key: [(x - flat.mean()) * scale for x in row] for key, row in rows.items()}


WRITERS = {"tickets": by_tickets, "streaming": by_streaming, "batches": by_batches}
CASES = [
    *((name, std, name == "gae") for name in RUN_BY_VERL for std in (True, False)),
    ("grpo", True, True),
    ("reinforce_plus_plus", True, True),
]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(("estimator", "std", "critic"), CASES)
def test_advantages_and_returns_are_those_of_the_models_own_tokens(
    queue, writer, estimator, std, critic
):
    for seed in range(8):
        queue.rows.clear()
        queue.tags.clear()
        rows = Rows(seed)
        WRITERS[writer](rows, queue, configuration(estimator, std=std), critic=critic)
        advantages, returns = by_hand(estimator, rows, std=std)
        for key, mask in rows.masks.items():
            row = queue.rows["train", key]
            own = torch.tensor(mask, dtype=torch.bool)
            for name, expected in (("advantages", advantages), ("returns", returns)):
                found = row[name][own].tolist()
                assert found == pytest.approx(expected[key], rel=2e-5, abs=2e-6), (seed, key, name)
            assert float(row["rm_scores"][last_written(mask)]) == rows.rewards[key]
            assert float(row["rm_scores"].sum()) == rows.rewards[key]


@pytest.mark.parametrize("mask", [[0], [0, 0, 0]])
def test_a_response_without_a_token_of_the_models_abstains_and_is_told(queue, mask):
    """In no group's baseline, and no number that the policy could have learned from."""
    rows = Rows(3, groups=2)
    rows.masks["u0_1_0"] = mask
    batch = rows.put(queue)
    rewards = {key[:-2]: judged(v) for key, v in rows.rewards.items()}
    trainer = redeemed(batch, rewards, configuration("grpo", std=False))
    told = trainer._rows.reward("u0_1_0")
    assert (told.value, told.policy) == (None, "neutral")
    assert "wrote no token" in told.why
    assert trainer._rows.step.abstained == {"reward: bad_input": 1}
    left = [rows.rewards[key] for key in ("u0_0_0", "u0_2_0")]
    expected = left[0] - sum(left) / 2
    first = last_written(rows.masks["u0_0_0"])
    assert float(queue.rows["train", "u0_0_0"]["advantages"][first]) == pytest.approx(expected)
    assert not queue.rows["train", "u0_1_0"]["rm_scores"].any()


def test_of_several_outputs_one_without_own_tokens_leaves_the_others_their_reward(queue):
    rows = Rows(5, groups=1)
    rows.masks = {"u0_0_0": [0, 0], "u0_0_1": [1, 0], "u0_1_0": [1], "u0_2_0": [1, 1]}
    rows.rewards = {"u0_0_0": 2.0, "u0_0_1": 2.0, "u0_1_0": 1.0, "u0_2_0": 0.0}
    rows.uids = dict.fromkeys(rows.masks, "u0")
    rewards = {key[:-2]: judged(v) for key, v in rows.rewards.items()}
    trainer = redeemed(rows.put(queue), rewards, configuration("grpo", std=False))
    assert trainer._rows.reward("u0_0_0").value == 2.0
    assert queue.rows["train", "u0_0_1"]["rm_scores"].tolist() == [2.0, 0.0]
    assert float(queue.rows["train", "u0_0_1"]["advantages"][0]) == pytest.approx(1.0)


def test_a_batchs_response_without_a_token_of_the_models_abstains():
    data = padded([[1, 0], [0, 0]])
    rewards = abstain_without_tokens(data, [judged(1.0), judged(2.0)])
    assert [reward.value for reward in rewards] == [1.0, None]
    tensor = as_tensor(data, rewards)
    assert tensor[0].tolist() == [1.0, 0.0]
    assert math.isnan(float(tensor[1, 0]))


def test_what_abstained_already_says_why_it_did():
    lost = Reward(None, {"a": Abstain("timeout")}, {}, "mask", "a: timeout: late")
    assert abstain_without_tokens(padded([[0, 0]]), [lost]) == [lost]


class Dense(AgentLoopOutput):
    """An agent loop of the user's own with rewards for several tokens, one of them a tool's."""

    note: str = ""

    def as_dict(self):
        row = super().as_dict()
        row["rm_scores"] = torch.tensor([0.5, 0.25, 1.0, 0.0])
        row["note"] = self.note
        return row


def test_rewards_of_an_output_class_of_ones_own_stay_on_the_models_tokens():
    one = with_reward_on_model_token(
        output([1, 0, 1, 0], 9.0, Dense, note="kept", extra_fields={"k": 1})
    )
    row = one.as_dict()
    assert row["rm_scores"].tolist() == [0.5, 0.0, 1.25, 0.0]
    assert (row["note"], row["extra_fields"]) == ("kept", {"k": 1})
    assert isinstance(one, Dense)
    assert type(with_reward_on_model_token(one)) is type(one)


@pytest.mark.parametrize("mask", LAYOUTS)
def test_a_row_keeps_its_sum_wherever_its_reward_moves(mask):
    bits = torch.tensor([int(bit) for bit in mask])
    scores = torch.zeros(len(mask))
    scores[-1] = 3.5
    moved = move_to_model_tokens(scores, bits)
    assert float(moved.sum()) == 3.5
    assert not (moved * (1 - bits)).any()


def test_a_reward_without_any_own_token_stays_where_verl_puts_it():
    scores = torch.tensor([0.0, 2.0])
    assert move_to_model_tokens(scores, torch.tensor([0, 0])).tolist() == [0.0, 2.0]


def test_stretches_on_two_sides_of_a_tools_text_make_no_word_together():
    letters = [ord(letter) for letter in "is 4[2]2."]
    mask = [1, 1, 1, 1, 0, 0, 0, 1, 1]
    assert own_text(letters, mask, lambda ids: "".join(map(chr, ids))) == "is 4\n2."


def test_verls_worker_of_ours_places_rewards_and_tells_masks(monkeypatch):
    """verl's own `_agent_loop_postprocess` and `_compute_score`, up to the queue."""
    import transfer_queue
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

    from zerowait.verl.agent.manager import AgentLoopRewardWorker

    put = {}

    async def keep(keys, fields, tags, partition_id):
        put["rm_scores"] = [row.tolist() for row in fields["rm_scores"].unbind()]
        put["extra_fields"] = [dict(one) for one in fields["extra_fields"]]

    sent = []

    async def compute_score(batch):
        sent.append(
            [list(said["response_mask"]) for said in batch.non_tensor_batch["tool_extra_fields"]]
        )
        return {"reward_score": 0.75, "reward_extra_info": {"acc": 1.0}}

    monkeypatch.setattr(transfer_queue, "async_kv_batch_put", keep)
    worker = object.__new__(AgentLoopRewardWorker)
    assert isinstance(worker, AgentLoopWorker)
    worker.reward_loop_worker_handles = [
        SimpleNamespace(compute_score=SimpleNamespace(remote=compute_score))
    ]
    worker.processor, worker.mm_processor_kwargs, worker.distillation_enabled = None, {}, False
    row = {"uid": "u", "session_id": 0, "global_steps": 1, "raw_prompt": [{"role": "user"}]}
    outputs = [output([1, 1, 0], None, extra_fields={"a": 1}), output([0, 1, 0, 0], None)]
    asyncio.run(worker._agent_loop_postprocess(outputs, False, **row))
    assert sent == [[[1, 1, 0], [0, 1, 0, 0]]]
    assert put["rm_scores"] == [[0, 0.75, 0], [0, 0.75, 0, 0]]
    assert put["extra_fields"][0] == {"a": 1, "reward_extra_info": {"acc": 1.0}}
    assert put["extra_fields"][1] == {"reward_extra_info": {"acc": 1.0}}


def by_turns(*turns, rest=0.0):
    """A reward whose turns are (token, value) pairs."""
    outcomes = [
        TurnReward(value, {"q": Score(value)}, at, token) for at, (token, value) in enumerate(turns)
    ]
    total = rest + sum(value for _, value in turns)
    return Reward(total, {"q": Score(total)}, turns=tuple(outcomes))


def test_where_a_policys_value_counts_for_the_turns_nothing_is_paid_by_turn():
    judged = by_turns((1, 0.5), (4, 2.0))
    missing = structs.replace(judged.turns[0], value=None)
    valued = structs.replace(judged, value=0.0, turns=(missing, judged.turns[1]))
    assert turn_columns(valued) == {}
    assert turn_columns(judged) == {TURN_REWARDS: [(1, 0.5), (4, 2.0)]}


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
