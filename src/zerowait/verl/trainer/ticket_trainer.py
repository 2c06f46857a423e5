"""verl's trainer modes ``zerowait...``: a step computes while judges work, then redeems tickets.

A failed judgement never becomes a number: its row is neutral or masked. Selected with
``trainer.v1.trainer_mode=zerowait`` (or ``zerowait_colocate_async``, ``zerowait_separate_async``)
and the reward manager ``zerowait``. Only hooks of the driver are overridden, and training workers
run verl's code; for gradients before the last reward they get one method more (`PartWorker`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import ray
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from zerowait.config import load_config
from zerowait.engine import Stats
from zerowait.engine.monitor.metrics import (
    alarm_metrics,
    coverage,
    has_all_prices,
    judge_metrics,
    reward_metrics,
)
from zerowait.hub import WaitRecord, append_wait
from zerowait.hub.ray import RayTickets
from zerowait.verl.agent.search_loop import search_settings
from zerowait.verl.agent_loop_check import check_agent_loop
from zerowait.verl.batch_sizes import rows_of_update
from zerowait.verl.early_gradients import wants_early_gradients
from zerowait.verl.estimators import (
    check_estimator,
    estimator_in,
    has_group_baseline,
    needs_two_responses,
    whitens,
)
from zerowait.verl.part_worker import PartWorker
from zerowait.verl.rewards.advantage import advantages, optional_fields, row_sums
from zerowait.verl.rewards.deadline import timed_out_reward
from zerowait.verl.rewards.episode_metrics import episode_metrics
from zerowait.verl.rewards.filter_metric import check_filter_metric
from zerowait.verl.rewards.metrics import valued_row_metrics, without_placeholders
from zerowait.verl.rewards.redeemer import Redeemer
from zerowait.verl.rewards.reward_info import extra_info
from zerowait.verl.rewards.row_rewards import RowRewards
from zerowait.verl.rewards.row_treatment import RowTreatment, SettledSession
from zerowait.verl.rewards.settings import RewardSettings, check_ticketed, settings_in
from zerowait.verl.rewards.streaming_rules import has_shape, refuse_lone_comparison
from zerowait.verl.rewards.turn_rewards import check_turn_rewards, pays_by_turn
from zerowait.verl.trainer.interleave import interleaved
from zerowait.verl.trainer.phase_times import PhaseTimes
from zerowait.verl.trainer.replay_buffer import with_tickets
from zerowait.verl.trainer.search_ceiling import SearchCeiling
from zerowait.verl.trainer.update_parts import UpdateParts
from zerowait.verl.trainer_modes import BASE_MODES

_LOG = logging.getLogger(__name__)
_ADVANTAGES: Final = "adv"
"""verl's name of the phase in which the trainer waits for rewards that are still missing."""


class TicketTrainer(PPOTrainer):
    """Mixin for verl's trainers: rewards arrive while log-probabilities and values are computed.

    Args:
        config: verl's whole configuration.

    Raises:
        ConfigError: rewards would not reach the trainer as tickets, their configuration is wrong,
            or verl's trainer cannot run the estimator.
    """

    def __init__(self, config: Any) -> None:
        self._settings: RewardSettings = settings_in(config)
        check_ticketed(config)
        rewards = load_config(self._settings.config)
        check_filter_metric(rewards, config.algorithm.get("filter_groups"), streaming=False)
        refuse_lone_comparison(rewards, int(config.actor_rollout_ref.rollout.n))
        check_agent_loop(config)
        check_estimator(config)
        check_turn_rewards(rewards, config)
        self._shaped = has_shape(rewards)
        self._priced = has_all_prices(rewards)
        self._redeemer = Redeemer(
            self._open_hub,
            on_timeout=lambda sample: timed_out_reward(rewards, sample, self._settings.redeem_s),
        )
        self._rows = RowRewards(
            self._redeemer,
            redeem_s=self._settings.redeem_s,
            max_abstained=self._settings.max_abstained,
            quorum=rewards.on_failure.quorum,
            pays_by_turn=pays_by_turn(rewards),
        )
        self._searches = SearchCeiling(search_settings(config))
        self._settled: dict[str, SettledSession] = {}
        self._trained: list[str] = []
        self._stats = Stats()
        try:
            super().__init__(config)
        except BaseException:
            self._redeemer.close()
            raise

    async def _open_hub(self) -> RayTickets:
        """The job's hub, ready to redeem tickets; a ConfigError where reward.yaml is wrong."""
        hub = RayTickets(self._settings.config, record=self._settings.record)
        await hub.ready()
        return hub

    @property
    def trainer_mode(self) -> str:
        """The mode of verl's that ours extends: verl compares it with its own names."""
        return BASE_MODES[str(self.config.trainer.v1.trainer_mode)]

    @trainer_mode.setter
    def trainer_mode(self, configured: str) -> None:
        del configured

    @property
    def timing_raw(self) -> PhaseTimes:
        """Verl's seconds by phase of the step, with the times of the phases."""
        return self._times

    @timing_raw.setter
    def timing_raw(self, fresh: dict[str, float]) -> None:
        self._times = PhaseTimes(fresh)

    def fit(self, agent_loop_manager: Any) -> None:
        """As verl's; closes the connection to the hub with the training."""
        try:
            super().fit(agent_loop_manager)
        finally:
            self._redeemer.close()

    def _build_replay_buffer(self) -> ReplayBuffer:
        return with_tickets(
            super()._build_replay_buffer(),
            rows=self._rows,
            settings=self._settings,
            prompts=self.config.data.train_batch_size,
            responses=self.config.actor_rollout_ref.rollout.n,
        )

    def on_step_begin(self) -> None:
        """Drop the rows of the last step."""
        super().on_step_begin()
        self._rows.begin_step(self._trained)
        self._settled, self._trained = {}, []

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        self._rows.wait(batch.keys, within_s=self._redeem_s_left())
        before = set(self._trained)
        fresh = [key for key in batch.keys if key not in before]
        self._rows.abstain_without_tokens(batch.partition_id, fresh)
        self._rows.check_ceiling()
        self._searches.check(sample for sample, _ in self._rows.sessions(batch.keys).values())
        self._settle(batch.partition_id, fresh)
        done, treatments = self._advantages(batch, metrics)
        if RowTreatment.MASKED in treatments.values():
            done.reorder(interleaved(self._out_of_loss(done), self._ranks()))
        return done

    def _redeem_s_left(self) -> float | None:
        """Seconds for which the step may still wait for rewards; None for all of ``redeem_s``."""
        return None

    def _settle(self, partition_id: str, keys: list[str]) -> None:
        """Check and settle whole groups whose rewards are known, and write the rewards."""
        self._rows.check_agent_loop_rewards(partition_id, keys)
        if self._shaped:
            self._rows.check_lengths(partition_id, keys)
        baseline = has_group_baseline(estimator_in(self.config))
        self._settled |= self._rows.settle(keys, group_baseline=baseline)
        self._trained += keys
        self._rows.write(partition_id, keys)

    def _advantages(
        self, batch: KVBatchMeta, metrics: dict[str, Any]
    ) -> tuple[KVBatchMeta, dict[str, RowTreatment]]:
        """The settled rows with their advantages, and the rows' treatments by key."""
        estimator = estimator_in(self.config)
        compute = super()._compute_advantage
        settled = {key: self._settled[key] for key in batch.keys if key in self._settled}
        treatments = {key: one.treatment for key, one in settled.items()}
        done = advantages(
            batch,
            treatments,
            lambda some: compute(some, metrics),
            optional=optional_fields(self.config),
            whitened=whitens(estimator),
            paired=needs_two_responses(estimator),
        )
        return done, treatments

    def _out_of_loss(self, batch: KVBatchMeta) -> list[bool]:
        """By row of the batch, whether it is out of the loss: masked, or padding."""
        masked = {key for key, one in self._settled.items() if one.treatment is RowTreatment.MASKED}
        rows = zip(batch.keys, batch.tags, strict=True)
        return [key in masked or bool(tag.get("is_padding")) for key, tag in rows]

    def _ranks(self) -> int:
        """Number of shares that verl splits a batch into, as in its `_balance_batch`."""
        return int(max(self.actor_rollout_wg._dispatch_info["actor"])) + 1  # noqa: SLF001

    def _update_critic(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        return self._update_unless_empty(batch, metrics, super()._update_critic)

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        return self._update_unless_empty(batch, metrics, super()._update_actor)

    def _update_unless_empty(
        self,
        batch: KVBatchMeta,
        metrics: dict[str, Any],
        update: Callable[[KVBatchMeta, dict[str, Any]], KVBatchMeta],
    ) -> KVBatchMeta:
        """Skip the update when every row is out of the loss, which would be 0/0."""
        skip = all(self._out_of_loss(batch))
        metrics["reward/update_skipped"] = float(skip)
        return batch if skip else update(batch, metrics)

    def _compute_metrics(
        self,
        batch: KVBatchMeta,
        metrics: dict[str, Any],
        timing_raw: dict[str, Any],
        global_steps: int,
        epoch: int,
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps, epoch)
        sessions = self._rows.sessions(batch.keys)
        metrics.update(reward_metrics(reward for _, reward in sessions.values()))
        metrics.update(episode_metrics(sample for sample, _ in sessions.values()))
        metrics["reward/exposed_reward_s"] = self._rows.step.exposed_s
        if self._settings.record is not None:
            append_wait(Path(self._settings.record), self._wait_record(global_steps))
        before, self._stats = self._stats, self._redeemer.stats()
        metrics.update(judge_metrics(before, self._stats, priced=self._priced))
        metrics.update(alarm_metrics(self._stats))
        if any(settled.treatment is not RowTreatment.TRAINED for settled in self._settled.values()):
            self._correct_scores(batch, metrics)

    def _wait_record(self, step: int) -> WaitRecord:
        """The step's phases, and the waits for rewards before its advantages."""
        phases = self.timing_raw.phases
        starts = [phase.began_at for phase in phases if phase.name == _ADVANTAGES]
        counts = self._rows.step
        waits = [wait for wait in counts.waits if starts and wait.ended_at > min(starts)]
        return WaitRecord(step=step, exposed_s=counts.exposed_s, phases=[*phases, *waits])

    def _correct_scores(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> None:
        """Replace verl's means over all rows by means over the rows that have a value.

        ``critic/rewards`` is over the trained rows: for others its KL penalty is not known.
        """
        padding = {k for k, t in zip(batch.keys, batch.tags, strict=True) if t.get("is_padding")}
        real = [key for key in batch.keys if key not in padding]
        lost = {k for k, settled in self._settled.items() if settled.reward.value is None}
        unpushed = {
            k
            for k, settled in self._settled.items()
            if settled.treatment is not RowTreatment.TRAINED
        }
        penalized = self.config.algorithm.use_kl_in_reward
        for name, field, absent in (
            ("score", "rm_scores", lost),
            ("rewards", "token_level_rewards" if penalized else "rm_scores", unpushed),
        ):
            keys = [key for key in real if key not in absent]
            metrics.update(valued_row_metrics(row_sums(batch.partition_id, keys, field), name))

    def _validate(self) -> dict[str, float]:
        with self._rows.validation():
            metrics: dict[str, float] = super()._validate()
        return metrics

    def _val_metrics_update(
        self,
        data_sources: Sequence[str],
        sample_uids: Sequence[str],
        reward_extra_infos_dict: dict[str, list[Any]],
        sample_turns: Sequence[int],
        expected_acc_counts: dict[tuple[str, str], int] | None = None,
    ) -> dict[str, float]:
        metrics: dict[str, float]
        if "abstained" not in reward_extra_infos_dict:  # no row had a ticket
            metrics = super()._val_metrics_update(
                data_sources,
                sample_uids,
                reward_extra_infos_dict,
                sample_turns,
                expected_acc_counts,
            )
            return metrics
        infos, missing = without_placeholders(reward_extra_infos_dict, data_sources, sample_uids)
        expected = {k: n - missing.get(k, 0) for k, n in (expected_acc_counts or {}).items()}
        metrics = super()._val_metrics_update(
            data_sources, sample_uids, infos, sample_turns, expected_acc_counts=expected
        )
        return metrics | coverage(data_sources, infos["reward"])

    def _maybe_log_val_generations(
        self, inputs: list[str], outputs: list[str], scores: list[float]
    ) -> None:
        values = [None if r is None else r.value for r in self._rows.validated()]
        super()._maybe_log_val_generations(inputs, outputs, values or scores)

    def _dump_generations(
        self,
        *,
        inputs: list[str],
        outputs: list[str],
        gts: list[Any],
        scores: list[float],
        reward_extra_infos_dict: dict[str, list[Any]],
        dump_path: str,
    ) -> None:
        rewards = [self._rows.reward(key) for key in reward_extra_infos_dict["uid"]]
        values = [s if r is None else r.value for s, r in zip(scores, rewards, strict=True)]
        infos = dict(reward_extra_infos_dict)
        known = [extra_info(reward) for reward in rewards if reward is not None]
        for name in known[0] if known else ():
            infos[name] = [None if r is None else extra_info(r).get(name) for r in rewards]
        if "reward" in infos:
            infos["reward"] = values
        super()._dump_generations(
            inputs=inputs,
            outputs=outputs,
            gts=gts,
            scores=values,
            reward_extra_infos_dict=infos,
            dump_path=dump_path,
        )


@register_trainer("zerowait")
class ZerowaitTrainer(TicketTrainer, PPOTrainerSync):
    """Synchronous steps, whose gradient is computed while the last rewards are still missing.

    Args:
        config: verl's whole configuration.

    Raises:
        ConfigError: as `TicketTrainer`, or ``early_gradients`` is ``on`` where parts of a step
            would not add up to one update.
    """

    _early: bool = False
    _parts: UpdateParts | None = None
    _idle_s: float = 0.0

    def _init_resource_pool_mgr(self) -> None:
        chosen = self._settings.early_gradients
        self._early, why = wants_early_gradients(self.config, chosen)
        if why is not None:
            _LOG.warning("zerowait: no gradients before the last reward of a step, since %s", why)
        super()._init_resource_pool_mgr()
        if self._early:
            for role in (Role.ActorRolloutRef, Role.ActorRollout):
                if role in self.role_worker_mapping:
                    self.role_worker_mapping[role] = ray.remote(PartWorker)

    def on_step_begin(self) -> None:
        """As `TicketTrainer`'s; nothing of the step's gradient is there yet."""
        super().on_step_begin()
        self._parts, self._idle_s = None, 0.0

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        # several outputs of a session may make more rows, which verl trains on in several updates
        if self._early and len(batch) == rows_of_update(self.config):
            self._parts = UpdateParts(
                self.actor_rollout_wg, self.config, ranks=self._ranks(), whole=batch
            )
            self._idle_s = self._parts.send_while_waiting(
                self._rows, self._advantages_of_part, redeem_s=self._settings.redeem_s
            )
            self._rows.step.exposed_s += self._idle_s
        done = super()._compute_advantage(batch, metrics)
        if self._parts is not None:
            self._parts.collect()
        return done

    def _redeem_s_left(self) -> float | None:
        return max(0.0, self._settings.redeem_s - self._idle_s) if self._idle_s else None

    def _advantages_of_part(self, part: KVBatchMeta) -> KVBatchMeta:
        """Whole groups whose rewards are known, with their advantages."""
        self._rows.abstain_without_tokens(part.partition_id, part.keys)
        self._settle(part.partition_id, list(part.keys))
        done, _ = self._advantages(part, {})  # those of all rows together are the step's metrics
        return done

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        parts = self._parts
        if parts is None or not parts.sent:
            metrics["reward/early_gradients"] = metrics["timing_s/early_gradients"] = 0.0
            return super()._update_actor(batch, metrics)
        real = sum(not tag.get("is_padding") for tag in batch.tags)
        metrics["reward/early_gradients"] = len(parts.sent) / real
        metrics["timing_s/early_gradients"] = parts.early_s

        def finish(batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
            metrics.update(parts.finish(batch))
            return batch

        return self._update_unless_empty(batch, metrics, finish)


@register_trainer("zerowait_colocate_async")
class ZerowaitColocateAsync(TicketTrainer, PPOTrainerColocateAsync):
    """Rollouts on the GPUs that train; they continue after an update of the weights."""


@register_trainer("zerowait_separate_async")
class ZerowaitSeparateAsync(TicketTrainer, PPOTrainerSeparateAsync):
    """Rollouts on GPUs of their own."""
