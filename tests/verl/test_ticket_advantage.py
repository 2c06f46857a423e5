"""A step whose rewards are redeemed: verl's own advantages, none for what abstained, one update."""

import asyncio
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from tensordict import NonTensorStack, TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from zerowait.errors import ConfigError, DataError, JudgementError
from zerowait.search import SearchSettings
from zerowait.types import Abstain, Reward, Sample, Score, Skipped
from zerowait.verl.estimators import ESTIMATORS, has_group_baseline, not_run, whitens
from zerowait.verl.rewards.redeemer import Redeemer
from zerowait.verl.rewards.row_rewards import RowRewards
from zerowait.verl.rewards.tickets import ticket
from zerowait.verl.trainer.search_ceiling import SearchCeiling
from zerowait.verl.trainer.ticket_trainer import ZerowaitTrainer

RUN_BY_VERL = [name for name in ESTIMATORS if not_run(name) is None]
COMPARING = [name for name in RUN_BY_VERL if has_group_baseline(name)]
WHITENED = [name for name in RUN_BY_VERL if whitens(name)]


class Hub:
    """The other side of the wire: rewards by the row's name."""

    def __init__(self, rewards):
        self.rewards = rewards
        self.asked = []

    async def redeem(self, sample, *, of=None):
        self.asked.append(sample.id)
        found = self.rewards[sample.id]
        if isinstance(found, Exception):
            raise found
        return found

    async def give_up(self, tickets):
        pass


def judged(value):
    return Reward(float(value), {"answer": Score(float(value))})


def lost(policy="neutral", kind="timeout"):
    return Reward(None, {"answer": Abstain(kind)}, {}, policy, f"answer: {kind}: too slow")


def configuration(
    estimator="grpo", *, n=4, std=True, kl=False, correction=None, gamma=1.0, log_probs=True
):
    algorithm = {
        "adv_estimator": estimator,
        "gamma": gamma,
        "lam": 0.95,
        "norm_adv_by_std_in_grpo": std,
        "use_kl_in_reward": kl,
        "kl_penalty": "kl",
        "kl_ctrl": {"type": "fixed", "kl_coef": 0.1},
        "rollout_correction": correction,
    }
    rollout = {"n": n, "calculate_log_probs": log_probs}
    return OmegaConf.create({"algorithm": algorithm, "actor_rollout_ref": {"rollout": rollout}})


class Step:
    """A step's rows in the queue: groups of rewards, each a number or what was lost."""

    def __init__(
        self, queue, groups, config, *, outputs=1, padding=0, size=None, lengths=(3, 5, 2, 4, 6)
    ):
        self.queue, self.config = queue, config
        self.rewards = {}
        self.keys = []
        random = torch.Generator().manual_seed(7)
        lengths = itertools.cycle(lengths)
        for group, values in enumerate(groups):
            for session, value in enumerate(values):
                name = f"u{group}_{session}"
                self.rewards[name] = value
                sample = Sample(
                    "q", "a", group=f"u{group}", id=name, group_size=size or len(values)
                )
                for index in range(outputs):
                    self.put(f"{name}_{index}", f"u{group}", next(lengths), ticket(sample), random)
        for place in range(padding):
            self.put(f"pad_{place}_0", "pad", 1, None, random, mask=0)

    def put(self, key, uid, length, info, random, mask=1):
        self.keys.append(key)
        noise = lambda: torch.randn(length, generator=random)  # noqa: E731
        masks = torch.full((length,), mask)
        if length > 4:
            masks[2] = 0  # a token of a tool
        tensors = {
            "response_mask": masks,
            "loss_mask": masks.clone(),
            "rm_scores": torch.zeros(length),
            "rollout_log_probs": noise(),
            "old_log_probs": noise(),
            "ref_log_prob": noise(),
        }
        if self.config.algorithm.adv_estimator == "gae":
            tensors["values"] = noise()
        columns = {
            name: torch.nested.as_nested_tensor([value], layout=torch.jagged)
            for name, value in tensors.items()
        }
        # padding rows are copies of the first row, its ticket included
        extra = {"reward_extra_info": info or {"ticket": b"damaged on purpose"}}
        columns |= {"uid": NonTensorStack(uid), "extra_fields": NonTensorStack(extra)}
        tag = [{"is_padding": info is None}]
        self.queue.put([key], "train", TensorDict(columns, batch_size=1), tag)

    @property
    def batch(self):
        tags = [self.queue.tags["train", key] for key in self.keys]
        return KVBatchMeta(keys=list(self.keys), tags=tags, partition_id="train")

    def field(self, name):
        return {key: self.queue.rows["train", key].get(name) for key in self.keys}

    def advantages(self):
        """The advantage of each row's first token."""
        return [float(row[0]) for row in self.field("advantages").values()]


def bare(cls, config):
    """A trainer without its cluster."""
    trainer = object.__new__(cls)
    trainer.config = config
    trainer.kl_ctrl_in_reward = core_algos.get_kl_controller(config.algorithm.kl_ctrl)
    return trainer


def compute(step, *, max_abstained=1.0, quorum=0.5):
    """Run the trainer's own hook; the trainer, with what it knows about its rows."""
    hub = Hub(step.rewards)
    trainer = bare(ZerowaitTrainer, step.config)

    async def open_hub():
        return hub

    with Redeemer(open_hub, on_timeout=lambda sample: lost()) as redeemer:
        rows = RowRewards(redeemer, redeem_s=30, max_abstained=max_abstained, quorum=quorum)
        real = [key for key in step.keys if not key.startswith("pad")]
        rows.read("train", real)
        trainer._rows, trainer.hub, trainer._shaped = rows, hub, True
        trainer._settled, trainer._trained = {}, []
        trainer._searches = SearchCeiling(SearchSettings())
        trainer.actor_rollout_wg = SimpleNamespace(_dispatch_info={"actor": [0, 0]})
        trainer.metrics = {}
        trainer.done = trainer._compute_advantage(step.batch, trainer.metrics)
        assert redeemer.pending == 0
    return trainer


def same_bits(verls, ours, *, padding):
    """All of them, but that a padding row of ours has 0 where verl's own opo has 0/0."""
    expected = verls.nan_to_num() if padding and verls.is_floating_point() else verls
    return np.array_equal(expected.numpy(), ours.numpy())


def test_an_abstained_row_is_out_of_the_baseline_and_gets_no_push(queue):
    step = Step(queue, [[judged(1), lost(), judged(0), judged(0)]], configuration(std=False))
    compute(step)
    assert step.advantages() == pytest.approx([2 / 3, 0, -1 / 3, -1 / 3])


def test_the_survivors_deviation_is_the_one_that_is_divided_by(queue):
    step = Step(queue, [[judged(1), lost(), judged(0), judged(0)]], configuration())
    compute(step)
    values = torch.tensor([1.0, 0, 0])
    expected = ((values - values.mean()) / (values.std() + 1e-6)).tolist()
    assert step.advantages() == pytest.approx([expected[0], 0, expected[1], expected[2]])


@pytest.mark.parametrize("estimator", RUN_BY_VERL)
def test_a_step_in_which_all_abstained_pushes_nothing(queue, estimator):
    step = Step(queue, [[lost()] * 3, [lost()] * 2], configuration(estimator), padding=1)
    compute(step)
    assert step.advantages() == [0.0] * 6
    assert all(row.isfinite().all() for row in step.field("returns").values())


@pytest.mark.parametrize("estimator", RUN_BY_VERL)
@pytest.mark.parametrize("padding", [1, 3])
def test_where_all_abstained_verl_computes_nothing_of_the_padding(queue, estimator, padding):
    """The mean KL of no token is 0/0, and would be logged and steer the adaptive controller."""
    step = Step(queue, [[lost()] * 2], configuration(estimator, kl=True), padding=padding)
    trainer = compute(step)
    assert trainer.metrics == {}


@pytest.mark.parametrize("log_probs", [True, False])
def test_a_step_without_a_value_has_the_fields_of_any_other(queue, log_probs):
    """Groups sent ahead of others become one batch with them."""
    config = configuration(correction={"rollout_is": "token"}, log_probs=log_probs)
    step = Step(queue, [[lost()] * 2], config)
    compute(step)
    assert [row is not None for row in step.field("rollout_is_weights").values()] == [log_probs] * 2


@pytest.mark.parametrize("estimator", COMPARING)
def test_the_last_survivor_of_a_group_gets_no_push(queue, estimator):
    groups = [[judged(5), lost(), lost()], [judged(1), judged(0), judged(0)]]
    step = Step(queue, groups, configuration(estimator))
    compute(step)
    assert step.advantages()[:3] == [0, 0, 0]
    assert any(step.advantages()[3:])


def test_a_group_of_one_by_configuration_is_left_to_verl(queue):
    step = Step(queue, [[judged(5)], [judged(2)]], configuration(n=1))
    compute(step)
    assert step.advantages() == pytest.approx([5, 2], rel=1e-5)


def test_a_survivor_of_failed_rollouts_is_no_group_of_one(queue):
    """Only one session of four came back from the rollout at all."""
    step = Step(queue, [[judged(5)], [judged(1), judged(0)]], configuration(std=False), size=4)
    compute(step)
    assert step.advantages() == [0, 0.5, -0.5]


@pytest.mark.parametrize("estimator", ["gae", "reinforce_plus_plus"])
def test_without_a_baseline_over_the_group_a_lone_survivor_counts(queue, estimator):
    groups = [[judged(5), lost()], [judged(1), judged(0)]]
    step = Step(queue, groups, configuration(estimator))
    compute(step)
    assert step.advantages()[0] != 0
    assert step.advantages()[1] == 0


def test_rloo_leaves_out_the_row_itself_and_those_that_abstained(queue):
    step = Step(queue, [[judged(3), lost(), judged(1), judged(2)]], configuration("rloo"))
    compute(step)
    assert step.advantages() == pytest.approx([3 - 1.5, 0, 1 - 2.5, 2 - 2])


@pytest.mark.parametrize(
    "estimator", ["gae", "reinforce_plus_plus", "reinforce_plus_plus_baseline"]
)
@pytest.mark.parametrize("kl", [False, True])
def test_whitening_and_kl_see_the_survivors_only(queue, estimator, kl):
    """The survivors' numbers are those of a step that never had the other rows."""
    values = [[judged(3), lost(), judged(1)], [judged(2), judged(0), lost()]]
    step = Step(queue, values, configuration(estimator, kl=kl), padding=2)
    trainer = compute(step)
    found = {name: step.field(name) for name in ("advantages", "returns")}
    stayed = [key for key in step.keys if step.rewards.get(key[:-2], judged(0)).value is not None]
    verls = bare(PPOTrainerSync, step.config)
    metrics = {}
    verls._compute_advantage(step.batch.select_keys(stayed), metrics)
    for name, rows in found.items():
        for key in stayed:
            assert torch.equal(rows[key], step.field(name)[key]), (name, key)
    assert trainer.kl_ctrl_in_reward.value == verls.kl_ctrl_in_reward.value
    assert {k: v for k, v in trainer.metrics.items() if k in metrics} == metrics


def test_the_critic_is_not_pushed_by_a_row_without_a_value(queue):
    step = Step(queue, [[judged(3), lost(), judged(1)]], configuration("gae"))
    compute(step)
    key = "u0_1_0"
    assert torch.equal(step.field("returns")[key], step.field("values")[key])
    assert not step.field("advantages")[key].any()


@pytest.mark.parametrize(
    ("estimator", "kl", "outputs"),
    [*((name, name > "h", 1) for name in RUN_BY_VERL), ("grpo", True, 3), ("gae", True, 3)],
)
def test_without_a_failure_every_bit_is_verls_own(queue, estimator, kl, outputs):
    """Also what it keeps in memory: the KL controller and the metrics."""
    groups = [
        [judged(v) for v in row] for row in ([0.1, 0.7, 0.7, 1.3], [2, 2, 2, 2], [0, 3, 0, 0.2])
    ]
    correction = {"rollout_is": "token", "rollout_is_threshold": 2.0}
    config = configuration(estimator, kl=kl, correction=correction)
    ours = Step(queue, groups, config, outputs=outputs, padding=3)
    trainer = compute(ours)
    found = {key: dict(queue.rows["train", key]) for key in ours.keys}

    queue.rows.clear()
    verls = bare(PPOTrainerSync, config)
    stock = Step(queue, groups, config, outputs=outputs, padding=3)
    for key in stock.keys:  # as the reward loop of verl's own trainer writes them
        if not key.startswith("pad"):
            row = torch.zeros_like(stock.field("response_mask")[key], dtype=torch.float32)
            row[-1] = stock.rewards[key.rsplit("_", 1)[0]].value
            queue.rows["train", key]["rm_scores"] = row
    metrics = {}
    done = verls._compute_advantage(stock.batch, metrics)
    assert done == trainer.done
    assert metrics == trainer.metrics
    assert verls.kl_ctrl_in_reward.value == trainer.kl_ctrl_in_reward.value
    for key in stock.keys:
        row = queue.rows["train", key]
        assert row.keys() == found[key].keys()
        for name, value in row.items():
            if isinstance(value, torch.Tensor):
                assert value.dtype == found[key][name].dtype
                padding = key.startswith("pad")
                assert same_bits(value, found[key][name], padding=padding), (key, name)


@pytest.mark.parametrize("kl", [False, True])
def test_the_rewards_that_are_told_are_those_that_were_trained_on(queue, kl):
    """A lone survivor has a score; with a penalty in the reward its row's reward is not known."""
    step = Step(queue, [[judged(5), lost()], [judged(1), judged(3)]], configuration(kl=kl))
    trainer = compute(step)
    trainer._correct_scores(step.batch, trainer.metrics)
    assert trainer.metrics["critic/score/mean"] == pytest.approx(3)
    field = "token_level_rewards" if kl else "rm_scores"
    trained = [float(step.field(field)[key].sum()) for key in ("u1_0_0", "u1_1_0")]
    assert trainer.metrics["critic/rewards/mean"] == pytest.approx(sum(trained) / 2)
    assert trainer.metrics["critic/rewards/min"] == pytest.approx(min(trained))


def test_what_nobody_judged_has_no_mean_in_verls_own_metrics(queue):
    step = Step(queue, [[lost(), lost()]], configuration())
    trainer = compute(step)
    trainer.metrics |= {"critic/score/mean": 0.0, "critic/rewards/max": 0.0}
    trainer._correct_scores(step.batch, trainer.metrics)
    names = [f"critic/{name}/{kind}" for name in NAMES for kind in ("mean", "max", "min")]
    assert all(np.isnan(trainer.metrics[name]) for name in names)


NAMES = ("score", "rewards")


def test_every_output_of_a_session_shares_its_reward_and_is_asked_for_once(queue):
    step = Step(queue, [[judged(1), lost(), judged(0)]], configuration(std=False), outputs=2)
    trainer = compute(step)
    assert sorted(trainer.hub.asked) == ["u0_0", "u0_1", "u0_2"]
    assert step.advantages() == pytest.approx([0.5, 0.5, 0, 0, -0.5, -0.5])
    assert [float(row[-1]) for row in step.field("rm_scores").values()] == [1, 1, 0, 0, 0, 0]


def test_rows_without_a_value_get_every_field_that_the_others_got(queue):
    correction = {"rollout_is": "token", "rollout_is_threshold": 2.0}
    config = configuration(kl=True, correction=correction)
    step = Step(queue, [[judged(1), lost(), lost("mask"), judged(0)]], config, padding=1)
    compute(step)
    names = {frozenset(queue.rows["train", key]) for key in step.keys}
    assert len(names) == 1
    assert {"token_level_rewards", "rollout_is_weights"} <= names.pop()


def test_a_masked_row_is_out_of_both_masks_and_a_neutral_one_is_not(queue):
    step = Step(queue, [[judged(1), lost("mask"), lost("neutral"), judged(0)]], configuration())
    compute(step)
    for name in ("response_mask", "loss_mask"):
        assert [bool(row.any()) for row in step.field(name).values()] == [True, False, True, True]


def test_a_group_below_its_quorum_is_dropped_and_one_above_it_is_not(queue):
    dropping = lost("drop_group")
    groups = [[judged(1), dropping, dropping, judged(3)], [dropping, dropping, judged(1), dropping]]
    step = Step(queue, groups, configuration(std=False))
    trainer = compute(step, quorum=0.5)
    assert step.advantages() == [-1, 0, 0, 1, 0, 0, 0, 0]
    assert [bool(row.any()) for row in step.field("loss_mask").values()] == [True] * 4 + [False] * 4
    assert trainer._rows.reward("u1_2_0").why == "its group fell below the quorum"


def test_a_policy_that_says_raise_stops_the_training(queue):
    step = Step(queue, [[judged(1), JudgementError("answer: timeout")]], configuration())
    with pytest.raises(JudgementError, match="answer: timeout"):
        compute(step)


def test_too_many_abstentions_stop_the_training_and_say_why(queue):
    step = Step(queue, [[judged(1), lost(), lost(kind="refused"), lost()]], configuration())
    with pytest.raises(
        JudgementError,
        match=r"3 of 4 rewards of this step abstained, more than reward.zerowait.max_abstained=0.5 "
        r"allows: answer: timeout \(2\), answer: refused \(1\)",
    ):
        compute(step, max_abstained=0.5)


@pytest.mark.parametrize("estimator", [e.value for e in core_algos.AdvantageEstimator])
def test_an_estimator_is_refused_when_verls_own_trainer_cannot_run_it_and_only_then(
    queue, estimator
):
    """Also with the keys that the estimator asks for; a newer verl that runs it fails here."""
    config = configuration(estimator)
    config.algorithm.gdpo_reward_keys = ["answer"]
    step = Step(queue, [[judged(1), judged(0)]], config)
    verls = bare(PPOTrainerSync, config)
    if not_run(estimator) is None:
        verls._compute_advantage(step.batch, {})
        return
    with pytest.raises((AssertionError, KeyError, TypeError)):
        verls._compute_advantage(step.batch, {})


@pytest.mark.parametrize("estimator", WHITENED)
@pytest.mark.parametrize("lengths", [(1, 4), (0, 4)])
def test_a_step_with_less_than_two_tokens_left_pushes_nothing(queue, estimator, lengths):
    """There is no deviation to divide by, and verl's whitening raises."""
    groups = [[judged(3), lost()], [lost("mask"), lost()]]
    step = Step(queue, groups, configuration(estimator, kl=True), padding=1, lengths=[4])
    if lengths[0] == 0:
        step.queue.rows["train", "u0_0_0"]["response_mask"].zero_()
    else:
        step.queue.rows["train", "u0_0_0"]["response_mask"][1:] = 0
    compute(step)
    assert step.advantages() == [0.0] * 5
    assert all(row.isfinite().all() for row in step.field("returns").values())
    told = [3, 0, 0, 0] if lengths[0] else [0, 0, 0, 0]  # on the model's own token, where it is one
    assert step.field("rm_scores")["u0_0_0"].tolist() == told


@pytest.mark.parametrize("estimator", RUN_BY_VERL)
@pytest.mark.parametrize("some_lost", [True, False])
def test_one_row_of_padding_stops_no_estimator(queue, estimator, some_lost):
    """verl gives it a group of its own, of one."""
    groups = [[judged(1), judged(0), lost() if some_lost else judged(0.5)]]
    step = Step(queue, groups, configuration(estimator), padding=1)
    compute(step)
    assert estimator == "gae" or step.advantages()[-1] == 0  # gae leaves it to the mask
    assert any(step.advantages()[:2])


@pytest.mark.parametrize("estimator", WHITENED)
def test_two_tokens_are_enough_for_a_deviation(queue, estimator):
    step = Step(queue, [[judged(3), lost(), judged(0)]], configuration(estimator), lengths=[1])
    compute(step)
    pushed = step.advantages()
    assert pushed[1] == 0
    assert pushed[0] == pytest.approx(-pushed[2])
    assert pushed[0] != 0


def test_a_row_that_brought_its_own_reward_is_trained_on_as_it_is(queue):
    """An agent loop may set the reward itself; then no judge is asked."""
    step = Step(queue, [[judged(1), judged(0)]], configuration(std=False))
    row = queue.rows["train", "u0_1_0"]
    row["extra_fields"] = {}
    row["rm_scores"][-1] = 7.0
    trainer = compute(step)
    assert trainer.hub.asked == ["u0_0"]
    assert step.advantages() == [-3, 3]


@pytest.mark.parametrize("brought", [float("nan"), float("inf")])
def test_a_reward_of_an_agent_loops_own_that_is_no_number_is_told_and_not_learned_from(
    queue, brought
):
    step = Step(queue, [[judged(1), judged(0)]], configuration())
    row = queue.rows["train", "u0_1_0"]
    row["extra_fields"] = {}
    row["rm_scores"][-1] = brought
    with pytest.raises(DataError, match=f"response u0_1_0: its agent loop .* reward is {brought}"):
        compute(step)


def updates(trainer):
    """How often the workers would have been told to learn."""
    made = []
    batch = trainer._update_unless_empty(
        trainer.done, trainer.metrics, lambda b, m: made.append(b) or b
    )
    assert batch is trainer.done
    return len(made)


def test_a_step_with_a_reward_that_an_agent_loop_brought_is_learned_from(queue):
    """It has no ticket, and so no treatment; all others are masked."""
    step = Step(queue, [[judged(1), lost("mask"), lost("mask")]], configuration(), padding=1)
    queue.rows["train", "u0_0_0"]["extra_fields"] = {}
    trainer = compute(step)
    assert updates(trainer) == 1
    assert trainer._out_of_loss(step.batch) == [False, True, True, True]


@pytest.mark.parametrize(("policy", "learned"), [("mask", 0), ("neutral", 1)])
def test_a_step_without_a_token_left_is_not_learned_from(queue, policy, learned):
    step = Step(queue, [[lost(policy), lost(policy)]], configuration(), padding=1)
    trainer = compute(step)
    assert updates(trainer) == learned
    assert trainer.metrics["reward/update_skipped"] == 1 - learned


def test_unequal_groups_each_have_a_baseline_of_their_own(queue):
    groups = [[judged(1), judged(0)], [judged(4), judged(2), judged(0), lost()], [judged(9)]]
    step = Step(queue, groups, configuration(std=False))
    compute(step)
    assert step.advantages() == [0.5, -0.5, 2, 0, -2, 0, 9]


def test_a_length_that_is_not_the_masks_is_an_error_and_no_penalty(queue):
    step = Step(queue, [[judged(1), judged(0)]], configuration())
    sample = Sample("q", "a", group="u0", id="u0_1", group_size=2, response_tokens=5)
    queue.rows["train", "u0_1_0"]["extra_fields"] = {"reward_extra_info": ticket(sample)}
    with pytest.raises(ConfigError, match="as 5 tokens long, and by its mask the model wrote 4"):
        compute(step)


@pytest.mark.parametrize("estimator", RUN_BY_VERL)
@pytest.mark.parametrize("some_lost", [True, False])
def test_no_row_of_verls_ever_holds_a_nan(queue, estimator, some_lost):
    """One in a padding row is enough for a gradient that is NaN altogether."""
    lost_ones = [[judged(1), lost(), lost("mask"), judged(0)], [lost(), lost(), lost()]]
    groups = lost_ones if some_lost else [[judged(1), judged(0)], [judged(2), judged(2)]]
    step = Step(queue, groups, configuration(estimator, kl=True), padding=2)
    compute(step)
    for key in step.keys:
        for value in queue.rows["train", key].values():
            assert not isinstance(value, torch.Tensor) or np.isfinite(value.numpy()).all()


MIXED = [
    [judged(1), lost(), judged(0.25), judged(0)],
    [judged(2), judged(0.5), lost("mask"), lost()],
    [lost(), judged(3), lost("mask")],
    [judged(0.7), judged(0.1)],
    [lost(), lost()],
]


class Survivor:
    """What a paper's formula takes of one response: rewards and values of the model's tokens."""

    def __init__(self, queue, key, value, *, kl):
        row = queue.rows["train", key]
        self.key, self.group = key, key.split("_")[0]
        model = queue.rows["train", key]["response_mask"].bool().numpy()
        number = lambda name: row[name].double().numpy()[model]  # noqa: E731
        self.rewards = np.zeros(model.sum())
        self.rewards[-1] = value
        if kl:
            self.rewards -= 0.1 * (number("old_log_probs") - number("ref_log_prob"))
        self.values = number("values") if "values" in row else None
        self.score = self.rewards.sum()

    def to_go(self, gamma):
        """The discounted sum of rewards from each token on."""
        back = itertools.accumulate(self.rewards[::-1], lambda after, now: now + gamma * after)
        return np.array(list(back))[::-1]


def whitened(advantages):
    flat = np.concatenate(advantages)
    return [(one - flat.mean()) / flat.std(ddof=1) for one in advantages]


def constant(rows, scores):
    return [np.full(len(row.rewards), score) for row, score in zip(rows, scores, strict=True)]


def against(rows, baseline):
    """Each score less `baseline` of its group's scores, tokens and of the row's place among them."""
    scores = []
    for row in rows:
        group = [other for other in rows if other.group == row.group]
        lengths = np.array([len(other.rewards) for other in group])
        found = np.array([other.score for other in group])
        scores.append(baseline(found, lengths, group.index(row)))
    return scores


def pass_at_k(scores, _, place):
    best, second = np.sort(scores)[::-1][:2]
    return (best - second) / (scores.std(ddof=1) + 1e-6) if scores[place] == best else 0.0


def leave_one_out(scores, _, place):
    return scores[place] - np.delete(scores, place).mean()


def standardized(scores, _, place):
    return (scores[place] - scores.mean()) / (scores.std(ddof=1) + 1e-6)


def centred(scores, _, place):
    return scores[place] - scores.mean()


def by_length(scores, lengths, place):
    return scores[place] - (lengths * scores).sum() / lengths.sum()


def generalized(row, gamma, lam=0.95):
    """Schulman et al. 2016: the sum of (gamma lambda)^k times the TD errors that follow."""
    following = np.append(row.values[1:], 0.0)
    errors = row.rewards + gamma * following - row.values
    steps = range(len(errors))
    return np.array([sum((gamma * lam) ** (k - t) * errors[k] for k in steps[t:]) for t in steps])


def compared(baseline):
    return lambda rows, _: constant(rows, against(rows, baseline))


def scaled(rows, _):
    """By how many responses there are for each one that has a reward."""
    scale = len(rows) / sum(row.score != 0 for row in rows)
    return constant(rows, [scale * one for one in against(rows, centred)])


BY_THE_PAPER = {
    "grpo": compared(standardized),  # Shao et al. 2024
    "grpo_vectorized": compared(standardized),
    "rloo": compared(leave_one_out),  # Ahmadian et al. 2024
    "rloo_vectorized": compared(leave_one_out),
    "opo": compared(by_length),  # Hao et al. 2025
    "grpo_passk": compared(pass_at_k),  # arXiv 2503.19595
    "gpg": scaled,  # Chu et al. 2025
    "reinforce_plus_plus": lambda rows, gamma: whitened([row.to_go(gamma) for row in rows]),
    "reinforce_plus_plus_baseline": lambda rows, _: whitened(compared(centred)(rows, None)),
    "gae": lambda rows, gamma: whitened([generalized(row, gamma) for row in rows]),
}
"""From survivors and gamma, each survivor's advantages by token, as they were published."""


@pytest.mark.parametrize("estimator", RUN_BY_VERL)
@pytest.mark.parametrize("kl", [False, True])
def test_survivors_get_what_the_papers_formula_makes_of_survivors_alone(queue, estimator, kl):
    """Responses without a reward are in no mean, no deviation, no count and no whitening."""
    gamma = 0.9
    step = Step(queue, MIXED, configuration(estimator, kl=kl, gamma=gamma))
    compute(step)
    valued = {key: step.rewards[key[:-2]].value for key in step.keys}
    rows = [Survivor(queue, key, v, kl=kl) for key, v in valued.items() if v is not None]
    if estimator in COMPARING:
        rows = [row for row in rows if row.group != "u2"]
    expected = dict(zip((r.key for r in rows), BY_THE_PAPER[estimator](rows, gamma), strict=True))
    for key, advantages in step.field("advantages").items():
        model = queue.rows["train", key]["response_mask"].bool()
        found = advantages[model].tolist()
        assert found == pytest.approx(expected.get(key, [0.0] * len(found)), rel=2e-4, abs=2e-5)


def test_without_the_deviation_survivors_are_centred_alone(queue):
    step = Step(queue, MIXED, configuration("grpo", std=False))
    compute(step)
    valued = {key: step.rewards[key[:-2]].value for key in step.keys}
    rows = [Survivor(queue, key, v, kl=False) for key, v in valued.items() if v is not None]
    expected = dict(zip((row.key for row in rows), against(rows, centred), strict=True))
    found = dict(zip(step.keys, step.advantages(), strict=True))
    assert found == pytest.approx({key: expected.get(key, 0.0) for key in step.keys}, abs=1e-6)


@pytest.mark.parametrize("mode", ["seq-mean-token-mean", "seq-mean-token-sum", "token-mean"])
@pytest.mark.parametrize("policy", ["neutral", "mask"])
def test_what_a_row_without_a_reward_does_to_the_loss_is_what_the_manual_says(queue, mode, policy):
    """Only token-mean loses a masked row's share of the denominator; verl's own function sums."""
    step = Step(queue, [[judged(1), lost(policy), judged(0)]], configuration(), lengths=[4])
    compute(step)
    masks = torch.stack(list(step.field("loss_mask").values()))
    gains = torch.stack(list(step.field("advantages").values())).abs()
    tokens = int(masks.sum())
    told = {"batch_num_tokens": tokens, "global_batch_size": 3}
    loss = core_algos.agg_loss(gains, masks, mode, **told)
    pushed = float(gains[0, 0])
    if mode == "token-mean":
        assert tokens == (8 if policy == "mask" else 12)
        assert float(loss) == pytest.approx(pushed * 8 / tokens)
    else:
        per_row = 1 if mode == "seq-mean-token-mean" else 4
        assert float(loss) == pytest.approx(2 * pushed * per_row / 3)


def test_a_reward_of_which_nothing_was_measured_pushes_nothing(queue):
    """A lone response among failed rollouts, whose judge compares siblings; it stays in the loss."""
    unmeasured = Reward(None, {"best": Skipped("no siblings")})
    step = Step(queue, [[unmeasured], [judged(1), judged(0)]], configuration(std=False), size=2)
    trainer = compute(step)
    assert step.advantages() == [0, 0.5, -0.5]
    assert step.field("loss_mask")["u0_0_0"].all()
    assert trainer._rows.step.abstained == {"nothing was measured": 1}


class LateHub(Hub):
    """A hub that holds rewards back until so many parts of the update were sent."""

    def __init__(self, rewards, after_parts):
        super().__init__(rewards)
        self.after_parts = after_parts
        self.parts = 0

    async def redeem(self, sample, *, of=None):
        while self.parts < self.after_parts.get(sample.id, 0):  # noqa: ASYNC110 - another thread's
            await asyncio.sleep(0.005)
        return await super().redeem(sample, of=of)


class Workers:
    """The other side of the wire: notes the parts, each of which ends when `ended` says so."""

    def __init__(self, queue, ranks, hub, ended):
        self._dispatch_info = {"actor": list(range(ranks))}
        self.queue, self.hub, self.ended = queue, hub, ended
        self.parts = []

    def update_part(self, part):
        rows = [self.queue.rows["train", key] for key in part.keys]
        pushed = {k: row["advantages"].clone() for k, row in zip(part.keys, rows, strict=True)}
        self.parts.append(SimpleNamespace(keys=list(part.keys), pushed=pushed, **part.extra_info))
        self.hub.parts += 1
        return SimpleNamespace(
            futures=[self], get=lambda: {"metrics": {"mfu": [0.5], "grad_norm": [1.0]}}
        )

    def update_actor(self, batch):
        """What verl's own update calls."""
        self.parts.append(SimpleNamespace(keys=list(batch.keys), **batch.extra_info))
        return {"metrics": {"mfu": [0.5], "grad_norm": [1.0]}}


def settings(config, *, mode="token-mean", dynamic=True):
    actor = {
        "use_dynamic_bsz": dynamic,
        "ppo_micro_batch_size_per_gpu": 2,
        "loss_agg_mode": mode,
        "calculate_entropy": False,
        "entropy_coeff": 0.0,
        "ppo_epochs": 1,
        "data_loader_seed": 1,
        "shuffle": False,
    }
    return OmegaConf.merge(
        config, {"actor_rollout_ref": {"actor": actor, "rollout": {"temperature": 1.0, "n": 1}}}
    )


@pytest.fixture(autouse=True)
def parts_end(monkeypatch):
    """Ray's answer to whether the workers have computed a part."""

    def wait(answers, *, num_returns, timeout):
        del num_returns, timeout
        ended = [workers for workers in answers if workers.ended()]
        return ended, [workers for workers in answers if workers not in ended]

    monkeypatch.setattr("ray.wait", wait)


NEVER = 1_000


def updated(
    step,
    late,
    *,
    after=1,
    ended=lambda: True,
    max_abstained=1.0,
    redeem_s=30.0,
    ranks=1,
    updates=1,
):
    """A trainer after a step's update; rewards of `late` rows come `after` so many parts.

    `step.parts` are what its training workers were given. Each part but the last is there when
    `ended` says so.
    """
    hub = LateHub(step.rewards, late if isinstance(late, dict) else dict.fromkeys(late, after))

    async def open_hub():
        return hub

    step.config.actor_rollout_ref.actor.ppo_mini_batch_size = len(step.keys) // updates
    trainer = bare(ZerowaitTrainer, step.config)
    workers = Workers(step.queue, ranks, hub, ended)
    trainer.actor_rollout_wg, step.parts = workers, workers.parts
    for key in step.keys:
        step.queue.tags["train", key]["seq_len"] = 8
    with Redeemer(open_hub, on_timeout=lambda sample: lost()) as redeemer:
        rows = RowRewards(redeemer, redeem_s=redeem_s, max_abstained=max_abstained, quorum=0.5)
        rows.read("train", [key for key in step.keys if not key.startswith("pad")])
        trainer._rows, trainer._shaped, trainer._early = rows, True, True
        trainer._settings = SimpleNamespace(redeem_s=redeem_s)
        trainer._settled, trainer._trained = {}, []
        trainer._searches = SearchCeiling(SearchSettings())
        while not all(rows.known([f"{name}_0"]) for name in step.rewards.keys() - hub.after_parts):
            rows.wait_for_change(0.01)
        trainer.metrics = {}
        done = trainer._compute_advantage(step.batch, trainer.metrics)
        trainer._update_actor(done, trainer.metrics)
    return trainer


GROUPS = [[judged(1), judged(0)], [judged(3), lost()], [judged(2), judged(5)]]


@pytest.mark.parametrize("estimator", ["grpo", "rloo", "opo", "grpo_vectorized"])
def test_groups_whose_rewards_are_known_go_first_with_the_advantages_they_would_have_had(
    queue, estimator
):
    step = Step(queue, GROUPS, settings(configuration(estimator)), padding=2)
    trainer = updated(step, late={"u1_0"})
    first, last = step.parts
    assert first.keys == ["u0_0_0", "u0_1_0", "u2_0_0", "u2_1_0"]
    assert last.keys == ["u1_0_0", "u1_1_0", "pad_0_0", "pad_1_0"]
    assert (first.first_part, first.last_part) == (True, False)
    assert (last.first_part, last.last_part) == (False, True)
    assert trainer.metrics["reward/early_gradients"] == pytest.approx(4 / 6)
    assert trainer.metrics["actor/grad_norm"] == 1
    assert trainer.metrics["perf/mfu/actor"] == 0.5
    early = {key: dict(queue.rows["train", key]) for key in step.keys}
    waited = Step(queue, GROUPS, step.config, padding=2)
    updated(waited, late=set())
    for key in step.keys:
        for name, value in queue.rows["train", key].items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(value, early[key][name]), (key, name)
    pushed = first.pushed | last.pushed
    assert all(torch.equal(pushed[key], row) for key, row in waited.field("advantages").items())


def test_groups_that_arrive_while_a_part_is_computed_are_the_next_part_all_together(queue):
    groups = [[judged(1), judged(0)], [judged(3), lost()], [judged(2), judged(5)], [judged(1)] * 2]
    step = Step(queue, groups, settings(configuration()))
    meanwhile = ["u1_0_0", "u1_1_0", "u2_0_0", "u2_1_0"]

    def ended():
        return all("advantages" in queue.rows["train", key] for key in meanwhile)

    trainer = updated(step, {"u1_0": 1, "u2_0": 1, "u3_0": 2}, ended=ended)
    assert [part.keys for part in step.parts] == [
        ["u0_0_0", "u0_1_0"],
        meanwhile,
        ["u3_0_0", "u3_1_0"],
    ]
    assert trainer.metrics["reward/early_gradients"] == pytest.approx(6 / 8)


def test_time_in_which_a_part_is_computed_is_not_one_of_waiting(queue):
    """The late reward comes while the first part is computed, which takes longer."""
    step = Step(queue, GROUPS[:2], settings(configuration()))
    trainer = updated(step, {"u1_0": 1}, ended=lambda: False)
    assert [part.keys for part in step.parts] == [["u0_0_0", "u0_1_0"], ["u1_0_0", "u1_1_0"]]
    assert trainer._idle_s == 0


def test_the_tokens_of_a_row_that_turns_out_masked_leave_the_denominator_of_the_last_part(queue):
    groups = [[judged(1), judged(0)], [judged(3), lost("mask")]]
    step = Step(queue, groups, settings(configuration()))
    masks = {key: mask.clone() for key, mask in step.field("loss_mask").items()}
    updated(step, late={"u1_1"})
    tokens = sum(int(mask.sum()) for mask in masks.values())
    masked = int(masks["u1_1_0"].sum())
    assert [part.step_tokens for part in step.parts] == [tokens, tokens - masked]
    step = Step(queue, groups, settings(configuration(), mode="seq-mean-token-mean"))
    updated(step, late={"u1_1"})
    assert [part.step_tokens for part in step.parts] == [tokens, tokens]  # it divides nothing there


def test_a_part_can_be_shared_among_ranks_and_cut_into_micro_batches(queue):
    """Two ranks with micro-batches of two rows: a part has a multiple of four rows."""
    groups = [[judged(1), judged(0)]] * 5 + [[judged(0), judged(2)]]
    step = Step(queue, groups, settings(configuration(), dynamic=False), padding=4)
    updated(step, late={"u5_0"}, ranks=2)
    assert [len(part.keys) for part in step.parts] == [8, 8]


def test_rows_for_several_updates_are_verls_own_to_train_on(queue):
    """Two outputs of each session make twice the rows of a mini-batch."""
    step = Step(queue, GROUPS, settings(configuration()), outputs=2)
    updated(step, late={"u1_0"}, after=NEVER, redeem_s=0.2, updates=2)
    (batch,) = step.parts
    assert (len(batch.keys), batch.mini_batch_size) == (12, 6)


def test_when_every_reward_is_there_in_time_the_update_is_verls_own(queue):
    step = Step(queue, GROUPS, settings(configuration()))
    trainer = updated(step, late=set())
    (part,) = step.parts
    assert part.keys == step.keys
    assert part.mini_batch_size == len(step.keys)
    assert trainer.metrics["reward/early_gradients"] == 0


@pytest.mark.parametrize(
    ("late", "ceiling", "says"),
    [
        (JudgementError("the judge is gone"), 1.0, "the judge is gone"),
        (lost(), 0.1, "1 of 4 rewards of this step abstained"),
    ],
)
def test_a_judge_that_dies_in_the_middle_stops_training_before_the_optimizer_steps(
    queue, late, ceiling, says
):
    groups = [[judged(1), judged(0)], [judged(3), late]]
    step = Step(queue, groups, settings(configuration()))
    with pytest.raises(JudgementError, match=says):
        updated(step, late={"u1_1"}, max_abstained=ceiling)
    assert [part.last_part for part in step.parts] == [False]


def test_a_reward_that_does_not_come_within_redeem_s_abstains(queue):
    groups = [[judged(1), judged(0)], [judged(3), judged(2), judged(1)]]
    step = Step(queue, groups, settings(configuration()))
    trainer = updated(step, late={"u1_1"}, after=NEVER, redeem_s=0.2)
    assert [part.last_part for part in step.parts] == [False, True]
    assert trainer._rows.reward("u1_1_0").value is None
    assert trainer._rows.step.exposed_s >= 0.2
    assert step.advantages()[3] == 0


def test_a_step_whose_rows_are_all_masked_in_the_end_is_not_updated(queue):
    step = Step(queue, [[lost("mask")] * 2, [lost("mask")] * 2], settings(configuration()))
    trainer = updated(step, late={"u1_1"})
    assert not any(part.last_part for part in step.parts)
    assert trainer.metrics["reward/update_skipped"] == 1
