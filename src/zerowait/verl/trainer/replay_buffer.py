"""verl's replay buffer for rows whose rewards arrive later than their tokens."""

from __future__ import annotations

import inspect
import math
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import (
    FILTER_GROUPS_REWARD_METRIC,
    ReplayBuffer,
    ReplayBufferAsync,
)

from zerowait.errors import ConfigError
from zerowait.verl.rewards.agent_loop_rewards import filter_values
from zerowait.verl.rewards.group_completion import tickets_of_prompts
from zerowait.verl.rewards.reward_info import extra_info
from zerowait.verl.rewards.row_rewards import RowRewards
from zerowait.verl.rewards.sampled_batches import SampledBatches
from zerowait.verl.rewards.settings import RewardSettings

_SHORTEST_POLL_S: Final = 0.03
_LONGEST_POLL_S: Final = 2.0
_POLL_PER_SYNC: Final = 10.0
"""Seconds between two reads of the queue per second that a read takes: at most a tenth of the time
goes into reading it, however many rows it holds."""

VALIDATION_PARTITION: Final = "val"


class TicketReplayBuffer(ReplayBuffer):
    """Holds a finished group back until its rewards are known, where verl needs them to go on.

    That is in validation, where ``algorithm.filter_groups`` selects groups by their rewards, and in
    asynchronous modes, where other groups can be trained on. A group held back counts neither as
    running nor as finished, so that others can be sampled. Otherwise groups pass at once, and
    rewards arrive while log-probabilities are computed.

    Attributes:
        rows: the rewards of verl's rows.
        sampled: the limit on sampling for one step.
        redeem_s: seconds to wait for the rewards of a group held back.
        rewards_per_step: prompts times responses.
        responses: to each prompt.
    """

    rows: RowRewards
    sampled: SampledBatches
    redeem_s: float
    rewards_per_step: int
    responses: int

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._held: dict[str, dict[str, list[str]]] = defaultdict(dict)
        self._held_since: dict[str, float] = {}
        self._waiting_since = math.inf
        self._signal: dict[str, float | None] = {}
        self._sync_s = 0.0

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> Any:
        """As verl's. The tickets of a training batch are being redeemed when it returns."""
        with self._waiting():
            batch, metrics = super().sample(global_steps, partition_id, batch_size)
        if partition_id == VALIDATION_PARTITION:
            self.rows.write(partition_id, batch.keys)
            self.rows.write_infos(partition_id, batch.keys)
        else:
            self.rows.read(partition_id, batch.keys)
        self._drop_held(partition_id)
        return batch, metrics

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """The time in which the trainer has nothing else to do, which counts for `redeem_s`."""
        self._waiting_since = time.monotonic()
        try:
            yield
        finally:
            self._waiting_since = math.inf

    def _drop_held(self, partition_id: str) -> None:
        """Drop the groups held back, as verl's synchronous steps drop groups beyond the batch."""
        self._clear_groups(partition_id, set(self._held[partition_id]))

    def _sync_metadata_from_transfer_queue(self) -> None:
        started = time.monotonic()
        super()._sync_metadata_from_transfer_queue()
        self._sync_s = time.monotonic() - started

    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> Any:
        """As verl's, which calls this first after each read of the queue."""
        started = time.monotonic()
        self._hold_back_where_needed(partition_id)
        self._sync_s += time.monotonic() - started
        return super()._terminal_eviction_reasons(global_steps, partition_id)

    def _hold_back_where_needed(self, partition_id: str) -> None:
        """Hold groups back where verl reads their rewards to choose or to report them."""
        if partition_id == VALIDATION_PARTITION or self.filter_groups_metric is not None:
            ended = self.finished_keys[partition_id] | self.failure_keys[partition_id]
            self._hold_back(partition_id, ended)

    def _hold_back(self, partition_id: str, ended: Collection[str]) -> None:
        """Remove groups whose rewards are not known from the finished ones."""
        self._held[partition_id].clear()
        rows = self._rows_of(partition_id, ended)
        self.rows.read(partition_id, (key for keys in rows.values() for key in keys))
        now = time.monotonic()
        for uid, keys in rows.items():
            since = self._held_since.setdefault(uid, now)
            if now - max(since, self._waiting_since) >= self.redeem_s:
                self.rows.wait(keys, within_s=0.0)
            if not self.rows.known(keys):
                self._held[partition_id][uid] = keys
                self.finished_keys[partition_id].discard(uid)
                self.failure_keys[partition_id].discard(uid)

    def _dapo_filtered_keys(self, partition_id: str) -> tuple[set[str], Counter[float]]:
        """Finished groups without a learning signal: all values equal, or fewer than two left.

        The rule is verl's. Rows without a value are ignored; rows without a ticket count with the
        value that their agent loop has set.
        """
        if partition_id == VALIDATION_PARTITION or self.filter_groups_metric is None:
            return set(), Counter()
        finished = self.finished_keys[partition_id]
        fresh = [uid for uid in finished if uid not in self._signal]
        rows = self._rows_of(partition_id, fresh)
        without = [key for keys in rows.values() for key in keys if not self.rows.has_ticket(key)]
        own = filter_values(partition_id, without, self.filter_groups_metric)
        for uid, keys in rows.items():
            self._signal[uid] = self._shared_value(keys, own)
        if fresh and self.rows.step.rewards >= self.rewards_per_step:
            self.rows.check_ceiling()
        self._count_replaced(fresh)
        shared = {u: v for u in finished if (v := self._signal[u]) is not None}
        return set(shared), Counter(v for v in shared.values() if not math.isnan(v))

    def _count_replaced(self, fresh: Iterable[str]) -> None:
        """Count the groups that are replaced: a warning after one batch, an error at the limit."""
        without = [value for uid in fresh if (value := self._signal[uid]) is not None]
        if without:
            why = f"in each group, {self.filter_groups_metric} was the same, as {without[-1]:g}"
            self.sampled.add(len(without), why=why)

    def _shared_value(self, keys: list[str], own: Mapping[str, float | None]) -> float | None:
        """The value that all valued rows of a group share; None for a group with a signal.

        A group of several responses with fewer than two values has no signal either: the result is
        the value that is left, or NaN.
        """
        numbers = (own[key] if key in own else self._metric(key) for key in keys)
        values = [number for number in numbers if number is not None]
        if len(values) > 1:
            return values[0] if float(np.std(values)) == 0.0 else None
        if len(keys) > 1:
            return values[0] if values else float("nan")
        return None

    def _metric(self, key: str) -> float | None:
        reward = self.rows.reward(key)
        if reward is None or reward.value is None:
            return None
        if self.filter_groups_metric == FILTER_GROUPS_REWARD_METRIC:
            return float(np.float32(reward.value))  # as verl would read it from its row
        value = extra_info(reward)[self.filter_groups_metric]  # `check_filter_metric` knows it
        return None if value is None else float(value)

    def _rows_of(self, partition_id: str, uids: Iterable[str]) -> dict[str, list[str]]:
        rows: dict[str, list[str]] = {uid: [] for uid in uids}
        for key in self.partitions[partition_id]:
            uid = key.split("_")[0]
            if uid in rows:
                rows[uid].append(key)
        return rows

    def _clear_groups(self, partition_id: str, uids: set[str]) -> None:
        for keys in self._rows_of(partition_id, uids).values():
            self.rows.forget(keys)
        # groups that fail or go stale were never read, but may have deposited tickets
        self.rows.give_up(tickets_of_prompts(partition_id, uids, self.responses))
        for uid in uids:
            self._signal.pop(uid, None)
            self._held_since.pop(uid, None)
        super()._clear_groups(partition_id, uids)

    def _select_prompt_uids(
        self, partition_id: str, sampleable_keys: set[str], batch_size: int
    ) -> tuple[list[str], dict[str, dict[str, Any]], dict[str, int]]:
        """As verl's; among prompts of the same age, those that were sampled first."""
        in_order = [uid for uid in self.prompt_global_steps[partition_id] if uid in sampleable_keys]
        chosen: tuple[list[str], dict[str, dict[str, Any]], dict[str, int]]
        chosen = super()._select_prompt_uids(partition_id, in_order, batch_size)
        return chosen

    def _materialize_batch(
        self,
        partition_id: str,
        selected_prompt_uids: list[str],
        partition_snapshot: dict[str, dict[str, Any]],
    ) -> KVBatchMeta:
        """As verl's, with rows in the order of the prompts and not of their completion.

        The order determines mini-batches and the last bits of sums: this makes runs repeatable.
        """
        if partition_id != VALIDATION_PARTITION:
            self.sampled.begin_step()
        for uid in selected_prompt_uids:
            self._signal.pop(uid, None)
            self._held_since.pop(uid, None)
        place = {uid: at for at, uid in enumerate(selected_prompt_uids)}
        ours = [key for key in partition_snapshot if key.split("_")[0] in place]
        ours.sort(key=lambda key: (place[key.split("_")[0]], *map(int, key.split("_")[1:])))
        return super()._materialize_batch(
            partition_id, selected_prompt_uids, {key: partition_snapshot[key] for key in ours}
        )

    def _generating(self, partition_id: str) -> set[str]:
        """The prompts whose responses are not all there yet."""
        begun: set[str] = self.pending_keys[partition_id] | self.running_keys[partition_id]
        return begun - self._held[partition_id].keys()

    def _wait_for_next_poll(self, partition_id: str, last_debug_time: float) -> float:
        generating = self._generating(partition_id)
        poll_s = _POLL_PER_SYNC * self._sync_s
        started = time.monotonic()
        self.rows.wait_for_change(min(max(_SHORTEST_POLL_S, poll_s), _LONGEST_POLL_S))
        if self._held[partition_id] and not generating and partition_id != VALIDATION_PARTITION:
            self.rows.step.exposed_s += time.monotonic() - started
        last: float = super()._wait_for_next_poll(partition_id, last_debug_time)
        return last


class AsyncTicketReplayBuffer(TicketReplayBuffer, ReplayBufferAsync):
    """For verl's asynchronous modes, in which a group may wait for a later step.

    Groups whose rewards are known are trained on first. A group that waits for its rewards counts
    as running, which is what it would be under verl's own trainer, so that verl's rules for stale
    groups are the same. When no response is being generated any more and every group that is there
    is needed, they all pass: their rewards arrive while log-probabilities are computed.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._target = 0

    def wait_for_sampleable(
        self, global_steps: int, partition_id: str, target_count: int
    ) -> tuple[set[str], dict[str, Any]]:
        """As verl's, which waits here for a number of groups."""
        self._target = target_count
        found: tuple[set[str], dict[str, Any]]
        with self._waiting():
            found = super().wait_for_sampleable(global_steps, partition_id, target_count)
        return found

    def _hold_back_where_needed(self, partition_id: str) -> None:
        """In training wherever other groups can be trained on meanwhile."""
        if partition_id == VALIDATION_PARTITION:
            super()._hold_back_where_needed(partition_id)
            return
        # verl replaces a group with a failed rollout at once, whatever its rewards
        self._hold_back(partition_id, set(self.finished_keys[partition_id]))
        if self.filter_groups_metric is None and self._all_are_needed(partition_id):
            self.finished_keys[partition_id] |= self._held[partition_id].keys()
            self._held[partition_id].clear()
        self.running_keys[partition_id] |= self._held[partition_id].keys()

    def _all_are_needed(self, partition_id: str) -> bool:
        held, known = self._held[partition_id], self.finished_keys[partition_id]
        return not self._generating(partition_id) and len(held) + len(known) <= self._target

    def _drop_held(self, partition_id: str) -> None:
        """Keep them: they wait for their rewards, and verl's rules for stale groups apply."""


_TICKET_CLASSES: Final = {
    ReplayBuffer: TicketReplayBuffer,
    ReplayBufferAsync: AsyncTicketReplayBuffer,
}


def with_tickets(
    buffer: ReplayBuffer,
    *,
    rows: RowRewards,
    settings: RewardSettings,
    prompts: int,
    responses: int,
) -> TicketReplayBuffer:
    """A ticket buffer with the settings of verl's own.

    Args:
        buffer: verl's own.
        rows: the rewards of its rows.
        settings: how long to wait for a reward, and how many batches a step may sample.
        prompts: number of prompts in a step.
        responses: number of responses to each prompt.

    Raises:
        ConfigError: `buffer` is a class of the user's own.
    """
    kind = _TICKET_CLASSES.get(type(buffer))
    if kind is None:
        raise ConfigError(
            "trainer.v1.sampler.custom_sampler cannot be used with the trainer modes zerowait, "
            "which bring a replay buffer of their own: leave it out"
        )
    names = inspect.signature(ReplayBuffer).parameters
    ours = kind(**{name: getattr(buffer, name) for name in names})
    ours.rows, ours.redeem_s = rows, settings.redeem_s
    ours.sampled = SampledBatches(batch=prompts, most=settings.max_sampled_batches)
    ours.rewards_per_step, ours.responses = prompts * responses, responses
    ours.poll_interval = 0.0  # `_wait_for_next_poll` waits for rewards instead
    return ours
