"""verl's replay buffer with rewards that come later: nothing waits for a judge that need not."""

import asyncio
import itertools
import queue as queues
import time

import pytest
import torch
from omegaconf import OmegaConf
from tensordict import NonTensorStack, TensorDict
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from zerowait.errors import ConfigError, DataError, JudgementError
from zerowait.types import Abstain, Reward, Sample, Score
from zerowait.verl.rewards.redeemer import Redeemer
from zerowait.verl.rewards.row_rewards import RowRewards
from zerowait.verl.rewards.settings import RewardSettings
from zerowait.verl.rewards.tickets import ticket
from zerowait.verl.trainer.replay_buffer import with_tickets

NEVER = object()
"""A reward that is not known as long as the test runs."""
FAILED = object()
"""A rollout that ended without a row."""


class Hub:
    """The other side of the wire: rewards by the row's name."""

    def __init__(self, rewards):
        self.rewards = rewards
        self.of = {}
        self.given_up = queues.SimpleQueue()

    async def redeem(self, sample, *, of=None):
        self.of[sample.id] = of
        reward = self.rewards[sample.id]
        if reward is NEVER:
            await asyncio.Event().wait()
        if isinstance(reward, Exception):
            raise reward
        return reward

    async def give_up(self, tickets):
        for name in tickets:
            self.given_up.put(name)


def judged(value):
    return Reward(float(value), {"answer": Score(float(value > 0)), "style": Score(float(value))})


LOST = Reward(
    None, {"answer": Score(1.0), "style": Abstain("timeout")}, {}, "neutral", "style: timeout: late"
)


class Own:
    """A reward that an agent loop of the user's own brings along."""

    def __init__(self, value, **info):
        self.value, self.info = value, info


class Rollout:
    """Groups whose tokens are there: each a list of rewards, in the queue and at the hub."""

    def __init__(self, queue, refill=(), *, scores=False):
        self.queue, self.rewards, self.refill = queue, {}, list(refill)
        self.scores = scores  # as verl's own reward loop writes them, before a group is finished
        self.refilled = 0
        self.numbers = itertools.count()

    def add(self, *groups, partition="train", order=None):
        """`order`: in which the responses of a group of as many end; as they began."""
        for values in groups:
            uid = f"g{next(self.numbers)}"
            split = "train" if partition == "train" else "validation"
            for session in order or range(len(values)):
                value = values[session]
                if value is FAILED:
                    continue
                name = f"{uid}_{session}"
                self.rewards[name] = value
                sample = Sample("q", "a", id=name, group=uid, group_size=len(values), split=split)
                row = torch.zeros(3)
                own = isinstance(value, Own)
                row[-1] = value.value if self.scores or own else 0.0
                info = value.info if own else ticket(sample)
                columns = {
                    "rm_scores": torch.nested.as_nested_tensor([row], layout=torch.jagged),
                    "response_mask": torch.nested.as_nested_tensor(
                        [torch.ones(3, dtype=torch.long)], layout=torch.jagged
                    ),
                    "extra_fields": NonTensorStack({"reward_extra_info": info, "kept": 1}),
                }
                tag = [{"status": "success", "global_steps": 1}]
                self.queue.put([f"{name}_0"], partition, TensorDict(columns, batch_size=1), tag)
            status = "failure" if FAILED in values else "finished"
            tag = [{"is_prompt": True, "status": status, "global_steps": 1}]
            self.queue.put([uid], partition, None, tag)

    def more(self, count):
        """What verl calls for prompts in the place of evicted ones."""
        self.refilled += count
        assert self.refilled < 100, "endless refill"
        for _ in range(count):
            self.add(self.refill.pop(0) if len(self.refill) > 1 else self.refill[0])
        return count


def verls_buffer(rollout, metric=None, batch=2, *, kind=ReplayBuffer):
    return kind(
        trainer_mode="sync" if kind is ReplayBuffer else "colocate_async",
        trainer_config=OmegaConf.create({}),
        max_off_policy_threshold=1,
        max_off_policy_strategy="drop",
        sampler_kwargs=OmegaConf.create({}),
        refill_fn=rollout.more,
        filter_groups_metric=metric,
        train_batch_size=batch,
        gen_batch_size=1,
        max_inflight_gen_batches=4,
    )


@pytest.fixture
def open_buffer():
    """Makes buffers, and ends what they have open."""
    running = []

    def buffer(
        rollout,
        metric=None,
        *,
        redeem_s=30.0,
        max_abstained=1.0,
        batch=2,
        kind=ReplayBuffer,
        sampled=100,
    ):
        hub = Hub(rollout.rewards)

        async def open_hub():
            return hub

        redeemer = Redeemer(open_hub, on_timeout=lambda sample: LOST)
        running.append(redeemer)
        rows = RowRewards(redeemer, redeem_s=redeem_s, max_abstained=max_abstained, quorum=0.5)
        made = with_tickets(
            verls_buffer(rollout, metric, batch, kind=kind),
            rows=rows,
            settings=RewardSettings(config="", redeem_s=redeem_s, max_sampled_batches=sampled),
            prompts=2,
            responses=2,
        )
        made.hub, made.redeemer = hub, redeemer
        return made

    yield buffer
    for redeemer in running:
        redeemer.close()


def told(hub, count):
    """So many tickets of which the hub was told that they will not be redeemed."""
    return sorted(hub.given_up.get(timeout=30) for _ in range(count))


def await_rewards(buffer, queue, *uids, partition="train"):
    """Their rewards are known afterwards, however little time the buffer gives to those of others."""
    keys = [key for _, key in queue.tags if "_" in key and key.split("_")[0] in uids]
    buffer.rows.read(partition, keys)
    while not buffer.rows.known(keys):
        buffer.redeemer.wait_for_change(0.05)


def values(buffer, batch):
    return sorted(buffer.rewards[key.rsplit("_", 1)[0]].value for key in batch.keys)


def test_asynchronous_steps_train_on_groups_whose_rewards_are_known_and_keep_the_others(
    queue, open_buffer
):
    rollout = Rollout(queue)
    rollout.add([NEVER, judged(1)], [judged(2), judged(3)], [judged(4), NEVER], [judged(6)] * 2)
    buffer = open_buffer(rollout, kind=ReplayBufferAsync)
    batch, _ = buffer.sample(1, "train", 2)
    assert values(rollout, batch) == [2, 3, 6, 6]
    assert buffer.redeemer.pending == 2
    rollout.add([judged(7), judged(8)])
    buffer.rows.begin_step(batch.keys)
    rollout.rewards["g0_0"] = judged(0)
    queue.put(["g9"], "train", None, [{"is_prompt": True, "status": "running", "global_steps": 1}])
    batch, _ = buffer.sample(1, "train", 1)
    assert values(rollout, batch) == [7, 8]


def test_a_group_that_waits_for_its_rewards_is_running_for_verls_rule_of_staleness(
    queue, open_buffer
):
    """As it is under verl's own trainer, where the reward belongs to the rollout."""
    rollout = Rollout(queue)
    rollout.add([NEVER, judged(1)], [judged(2), judged(3)], [judged(4), judged(5)])
    buffer = open_buffer(rollout, kind=ReplayBufferAsync)
    await_rewards(buffer, queue, "g1", "g2")
    assert buffer.get_sampleable_count(1, "train") == 2
    assert buffer.running_keys["train"] == {"g0"}
    buffer.max_off_policy_strategy = "wait"
    assert not buffer._has_enough_samples(1, "train", 2, {"g1", "g2"})


def test_while_a_response_is_generated_a_group_without_rewards_is_waited_for_in_sampling(
    queue, open_buffer
):
    """Another group may be finished and judged sooner; the reward gives up after `redeem_s`."""
    rollout = Rollout(queue)
    rollout.add([NEVER, judged(1)])
    queue.put(["g9"], "train", None, [{"is_prompt": True, "status": "running", "global_steps": 1}])
    buffer = open_buffer(rollout, kind=ReplayBufferAsync, redeem_s=0.3)
    batch, _ = buffer.sample(1, "train", 1)
    assert buffer.rows.reward(batch.keys[0]).value is None
    assert buffer.rows.step.exposed_s < 0.2  # for the rollout it would have waited anyway


def test_the_time_in_which_others_are_trained_on_is_not_counted_as_waiting(queue, open_buffer):
    rollout = Rollout(queue)
    rollout.add([NEVER, judged(1)], [judged(2), judged(3)])
    buffer = open_buffer(rollout, kind=ReplayBufferAsync, redeem_s=1.0)
    buffer.sample(1, "train", 1)
    time.sleep(1.1)
    assert buffer.get_sampleable_count(1, "train") == 1
    buffer.wait_for_sampleable(1, "train", 1)
    assert buffer.rows.reward("g0_0_0") is None


def test_an_asynchronous_step_stops_at_a_judgement_that_cannot_be_had(queue, open_buffer):
    rollout = Rollout(queue)
    rollout.add([JudgementError("the judge is gone"), judged(1)], [NEVER, judged(3)])
    buffer = open_buffer(rollout, kind=ReplayBufferAsync)
    with pytest.raises(JudgementError, match="the judge is gone"):
        buffer.sample(1, "train", 1)


@pytest.mark.parametrize("kind", [ReplayBuffer, ReplayBufferAsync])
def test_a_training_batch_passes_before_any_reward_is_known(queue, open_buffer, kind):
    rollout = Rollout(queue)
    rollout.add([NEVER, NEVER], [NEVER, judged(1)])
    buffer = open_buffer(rollout, kind=kind)
    batch, metrics = buffer.sample(1, "train", 2)
    assert len(batch) == 4
    assert metrics == {}
    assert buffer.redeemer.pending >= 3


def test_a_batch_is_in_the_order_of_its_prompts_however_its_responses_ended(queue, open_buffer):
    """So that a run with the same seed has the same mini-batches and the same sums."""
    rollout = Rollout(queue)
    rollout.add([judged(v) for v in range(12)], order=[10, 2, 9, *range(2), *range(3, 9), 11])
    for uid in ("g1", "g2", "g3"):
        queue.put([uid], "train", None, [{"is_prompt": True, "status": "running"}])
    rollout.numbers = iter([3, 1, 2])
    rollout.add(*[[judged(1), judged(2)]] * 3, order=[1, 0])
    batch, _ = open_buffer(rollout).sample(1, "train", 4)
    assert batch.keys == [
        *(f"g0_{session}_0" for session in range(12)),
        *(f"g{group}_{session}_0" for group in (1, 2, 3) for session in (0, 1)),
    ]


def test_surplus_groups_are_the_last_prompts(queue, open_buffer):
    rollout = Rollout(queue)
    rollout.add(*[[judged(0), judged(at)] for at in (1, 2, 3, 4, 5)])
    buffer = open_buffer(rollout, "reward")
    await_rewards(buffer, queue, *(f"g{at}" for at in range(5)))
    batch, _ = buffer.sample(1, "train", 2)
    assert values(rollout, batch) == [0, 0, 1, 2]


def test_validation_has_its_rewards_when_it_is_sampled(queue, open_buffer):
    rollout = Rollout(queue)
    rollout.add([judged(1)], [LOST], partition="val")
    buffer = open_buffer(rollout)
    batch, _ = buffer.sample(1, "val", 2)
    rows = [queue.rows["val", key] for key in batch.keys]
    assert [float(row["rm_scores"][-1]) for row in rows] == [1.0, 0.0]
    infos = [row["extra_fields"]["reward_extra_info"] for row in rows]
    assert [info["judged_reward"] for info in infos] == [1.0, None]
    assert infos[1]["abstained_why"] == "style: timeout: late"
    assert all("ticket" not in info for info in infos)
    assert all(row["extra_fields"]["kept"] == 1 for row in rows)
    assert [reward.value for reward in buffer.rows.validated()] == [1.0, None]


def test_validation_waits_no_longer_than_it_was_told(queue, open_buffer):
    rollout = Rollout(queue)
    rollout.add([judged(1)], [NEVER], partition="val")
    buffer = open_buffer(rollout, redeem_s=0.2)
    await_rewards(buffer, queue, "g0", partition="val")
    batch, _ = buffer.sample(1, "val", 2)
    assert {buffer.rows.reward(key).value for key in batch.keys} == {1.0, None}


@pytest.mark.parametrize("metric", ["reward", "style"])
def test_groups_without_a_signal_are_replaced_as_verl_does(queue, open_buffer, metric):
    """The same rewards under verl's own streaming: the same groups, evictions and refills."""
    first = [[judged(0.1), judged(0.1)], [judged(0), judged(2)]]
    more = [[judged(3), judged(3)], [judged(4), judged(5)]]
    ours = Rollout(queue, more)
    ours.add(*first)
    buffer = open_buffer(ours, metric)
    batch, metrics = buffer.sample(1, "train", 2)
    assert values(ours, batch) == [0, 2, 4, 5]

    queue.rows.clear()
    queue.tags.clear()
    stock = Rollout(queue, more, scores=True)
    stock.add(*first)
    verls = verls_buffer(stock, "reward")
    theirs, their_metrics = verls.sample(1, "train", 2)
    assert values(stock, theirs) == values(ours, batch)
    assert stock.refilled == ours.refilled == 2
    assert metrics.keys() == their_metrics.keys()
    assert metrics["training/filter_groups/evicted_samples"] == 2


@pytest.mark.parametrize("metric", ["reward", "style"])
def test_rewards_that_an_agent_loop_brings_along_are_filtered_by_verls_rule(
    queue, open_buffer, metric
):
    """Such rows have no ticket, and were taken for rows without any value, one group after another."""
    same, different = [Own(1.0, style=2)] * 2, [Own(1.0, style=2), Own(0.0, style=3)]
    rollout = Rollout(queue, [different])
    rollout.add(same, different)
    batch, metrics = open_buffer(rollout, metric).sample(1, "train", 2)
    assert values(rollout, batch) == [0, 0, 1, 1]
    assert metrics["training/filter_groups/evicted_samples"] == 1
    assert rollout.refilled == 2


@pytest.mark.parametrize("nothing", [None, float("nan")])
def test_a_row_whose_agent_loop_has_no_number_has_no_say(queue, open_buffer, nothing):
    lost = Own(0.0, style=nothing)
    rollout = Rollout(queue, [[Own(0.0, style=1), lost, judged(4)]])
    rollout.add([Own(0.0, style=1), lost, Own(0.0, style=1)], [Own(0.0, style=1), lost])
    batch, _ = open_buffer(rollout, "style", batch=1).sample(1, "train", 1)
    assert values(rollout, batch) == [0, 0, 4]


@pytest.mark.parametrize(("info", "says"), [({}, "and no 'style' beside"), ({"style": "x"}, "'x'")])
def test_an_agent_loop_that_does_not_know_the_metric_is_told(queue, open_buffer, info, says):
    rollout = Rollout(queue, [[judged(0), judged(1)]])
    rollout.add([Own(0.0, **info), Own(1.0, **info)])
    with pytest.raises(DataError, match=says):
        open_buffer(rollout, "style", batch=1).sample(1, "train", 1)


def test_an_abstained_row_has_no_say_in_whether_a_group_has_a_signal(queue, open_buffer):
    """Its placeholder is 0, and a group of [1, 1, placeholder] looks as if it had one."""
    rollout = Rollout(queue, [[judged(1), judged(0)]])
    rollout.add([judged(1), judged(1), LOST], [judged(1), judged(0), LOST])
    buffer = open_buffer(rollout, "reward", batch=1)
    batch, metrics = buffer.sample(1, "train", 1)
    assert metrics["training/filter_groups/evicted_samples"] == 1
    assert [buffer.rows.reward(key).value for key in batch.keys] == [1.0, 0.0, None]


def test_a_group_reduced_to_one_survivor_is_replaced(queue, open_buffer):
    rollout = Rollout(queue, [[judged(1), judged(0)]])
    rollout.add([judged(1), LOST])
    buffer = open_buffer(rollout, "reward", batch=1)
    batch, _ = buffer.sample(1, "train", 1)
    assert values(rollout, batch) == [0, 1]


def test_a_judge_that_is_down_stops_the_training_and_does_not_refill_for_ever(queue, open_buffer):
    rollout = Rollout(queue, [[LOST, LOST]])
    rollout.add([LOST, LOST])
    buffer = open_buffer(rollout, "reward", batch=1, max_abstained=0.5)
    with pytest.raises(JudgementError, match=r"abstained, more than .*: style: timeout"):
        buffer.sample(1, "train", 1)


def test_enough_groups_do_not_wait_for_one_whose_rewards_are_not_known(queue, open_buffer):
    rollout = Rollout(queue, [[judged(1), judged(0)]])
    rollout.add([judged(0), judged(2)], [NEVER, judged(1)], [judged(3), judged(4)])
    buffer = open_buffer(rollout, "reward")
    batch, _ = buffer.sample(1, "train", 2)
    assert values(rollout, batch) == [0, 2, 3, 4]
    assert buffer.redeemer.pending == 0
    assert queue.list()["train"].keys() == set(batch.keys)


def test_asynchronous_steps_keep_for_later_what_is_not_known_or_left_over(queue, open_buffer):
    rollout = Rollout(queue, [[judged(6), judged(7)]])
    rollout.add([NEVER, judged(1)], [judged(0), judged(2)], [judged(5), judged(5)])
    rollout.add([judged(3), judged(4)])
    buffer = open_buffer(rollout, "reward", batch=1, kind=ReplayBufferAsync)
    await_rewards(buffer, queue, "g1", "g2", "g3")
    batch, metrics = buffer.sample(1, "train", 1)
    assert values(rollout, batch) == [0, 2]
    assert metrics["training/filter_groups/evicted_samples"] == 1
    buffer.rows.begin_step(batch.keys)
    assert buffer.rows.reward("g3_0_0").value == 3.0
    later, _ = buffer.sample(1, "train", 2)
    assert values(rollout, later) == [3, 4, 6, 7]
    assert buffer.redeemer.pending == 1


def test_validation_between_asynchronous_steps_leaves_their_rows_alone(queue, open_buffer):
    rollout = Rollout(queue)
    rollout.add([NEVER, judged(1)])
    rollout.add([judged(1)], partition="val")
    buffer = open_buffer(rollout, "reward", batch=1, kind=ReplayBufferAsync)
    with buffer.rows.validation():
        buffer.sample(1, "val", 1)
        assert buffer.redeemer.pending == 0
    assert queue.list()["train"].keys() == {"g0", "g0_0_0", "g0_1_0"}


@pytest.mark.parametrize("metric", [None, "reward"])
def test_the_hub_learns_at_once_which_siblings_will_not_come(queue, open_buffer, metric):
    """Or those that are here would wait for them, ten minutes by default."""
    rollout = Rollout(queue, [[judged(1), judged(0)]])
    rollout.add([judged(1), FAILED, judged(0), FAILED], [judged(0), judged(2)])
    buffer = open_buffer(rollout, metric)
    batch, _ = buffer.sample(1, "train", 2)
    buffer.rows.wait(batch.keys)
    assert buffer.hub.of == {"g0_0": 2, "g0_2": 2, "g1_0": None, "g1_1": None}
    # what was handed in before its rollout failed is given up
    assert told(buffer.hub, 2) == ["train/g0_1", "train/g0_3"]


@pytest.mark.parametrize("kind", [ReplayBuffer, ReplayBufferAsync])
def test_a_group_that_verl_drops_unread_leaves_no_ticket_open(queue, open_buffer, kind):
    """Asynchronous modes evict failed groups, and their tickets are never read."""
    rollout = Rollout(queue, [[judged(1), judged(0)]])
    rollout.add([judged(1), FAILED], [judged(0), judged(2)])
    buffer = open_buffer(rollout, kind=kind, batch=1)
    buffer._sync_metadata_from_transfer_queue()
    buffer._clear_groups("train", {"g0"})
    assert told(buffer.hub, 2) == ["train/g0_0", "train/g0_1"]


def test_a_sampler_of_the_users_own_is_refused():
    class Own(ReplayBuffer):
        def __init__(self):
            pass

    with pytest.raises(ConfigError, match="custom_sampler cannot be used"):
        with_tickets(Own(), rows=None, settings=None, prompts=1, responses=1)


@pytest.mark.parametrize("value", [judged(0), judged(1)])
@pytest.mark.parametrize("sampled", [1, 3])
def test_a_step_whose_groups_never_differ_is_told_of_and_stopped(
    queue, open_buffer, caplog, sampled, value
):
    """Two groups make a batch; with a paid judge every further one costs."""
    rollout = Rollout(queue, refill=[[value, value]])
    rollout.add([value, value], [value, value])
    buffer = open_buffer(rollout, "reward", sampled=sampled)
    with pytest.raises(JudgementError, match=f"max_sampled_batches={sampled} "):
        buffer.sample(1, "train", 2)
    assert rollout.refilled <= 2 * 2 * sampled
    told = [r.getMessage() for r in caplog.records if "sampled in vain" in r.getMessage()]
    assert len(told) == (sampled > 1)


def test_a_step_that_is_filled_in_the_end_goes_on_and_the_next_counts_anew(
    queue, open_buffer, caplog
):
    same, differ = [judged(1), judged(1)], [judged(1), judged(0)]
    rollout = Rollout(queue, refill=[same, differ, differ, differ, differ, differ, differ])
    rollout.add(same, differ)
    buffer = open_buffer(rollout, "reward", sampled=2)
    for _ in range(2):
        batch, _ = buffer.sample(1, "train", 2)
        assert len({key.split("_")[0] for key in batch.keys}) == 2
        rollout.add(same, differ)
