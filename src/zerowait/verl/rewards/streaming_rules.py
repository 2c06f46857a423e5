"""Check that verl's own trainers, which take one finite number per row, can run a reward."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from zerowait.config import (
    JudgeComponent,
    RewardConfig,
    ShapeComponent,
    load_config,
)
from zerowait.engine.combine import policy_for
from zerowait.engine.plan import compile_plan
from zerowait.errors import ConfigError
from zerowait.types import Abstain, FailureKind
from zerowait.verl.agent_loop_check import check_agent_loop
from zerowait.verl.estimators import ESTIMATORS, check_estimator, estimator_in, has_group_baseline
from zerowait.verl.rewards.filter_metric import check_filter_metric
from zerowait.verl.rewards.settings import check_ticketed, gives_tickets, settings_in
from zerowait.verl.rewards.turn_rewards import check_turn_rewards
from zerowait.verl.rewards.verl_judge import check_verls_model
from zerowait.verl.trainer_modes import BASE_MODES

_ROWS_OF_A_WORKER = 1000
"""Ray runs at most so many calls of one asynchronous actor at a time."""
_ROWS_OF_EACH = 800
"""Rows for each of several workers: verl draws a worker for every row, so that one gets more than
its share; 1000 are seven standard deviations above 800."""


def check_rewards(verl_config: Any) -> None:
    """Raise a ConfigError for whatever the trainer and its reward workers refuse when they start.

    A reward worker that dies ends no training: verl draws other prompts, or says nothing.

    Args:
        verl_config: verl's whole configuration, with the reward manager ``zerowait``.
    """
    settings = settings_in(verl_config)
    check_agent_loop(verl_config)
    if not gives_tickets(verl_config):
        check_streaming(settings.config, verl_config)
        return
    config = load_config(settings.config)
    check_verls_model(config, verl_config)
    check_ticketed(verl_config)
    compile_plan(config)
    check_filter_metric(config, verl_config.algorithm.get("filter_groups"), streaming=False)
    refuse_lone_comparison(config, int(verl_config.actor_rollout_ref.rollout.n))
    check_estimator(verl_config)
    check_turn_rewards(config, verl_config)


def check_streaming(path: str | Path, verl_config: Any) -> bool:
    """Raise a ConfigError if verl's own trainers cannot run a reward; returns if it has a shape.

    Args:
        path: of the reward configuration.
        verl_config: verl's whole configuration.

    Raises:
        ConfigError: the reward configuration is wrong, has a policy that needs the trainer mode
            ``zerowait``, groups are filtered by a number that it has not, the estimator cannot be
            run, or more rows would wait for each other than the reward workers can hold.
    """
    config = load_config(path)
    plan = compile_plan(config)
    check_verls_model(config, verl_config)
    check_filter_metric(config, verl_config.algorithm.get("filter_groups"), streaming=True)
    refuse_unstreamable(config, redraws=redraws(verl_config.trainer.v1))
    refuse_lone_comparison(config, int(verl_config.actor_rollout_ref.rollout.n))
    _refuse_ticket_keys(verl_config)
    check_estimator(verl_config)
    check_turn_rewards(config, verl_config)
    _refuse_neutral_alone(config, verl_config)
    workers, needed = int(verl_config.reward.num_workers), reward_workers(config, verl_config)
    if workers < needed:
        held = workers * _ROWS_OF_EACH if workers > 1 else _ROWS_OF_A_WORKER
        raise ConfigError(
            f"{_max_open_rows(verl_config)} rows may wait for their siblings, and {workers} reward "
            f"workers hold {held}: set reward.num_workers={needed}; a recipe without "
            "resources.reward_workers has as many as are needed"
        )
    return bool(plan.shapes)


def reward_workers(config: RewardConfig, verl_config: Any) -> int:
    """How many reward workers hold all rows that wait for their siblings at one time.

    In verl's own modes a row stays in its worker until its reward is known. A row that finds no
    room waits behind rows that wait for it. In the modes ``zerowait...`` rows are passed on.

    Args:
        config: the reward configuration.
        verl_config: verl's whole configuration.
    """
    if gives_tickets(verl_config) or not compile_plan(config).waits_for_siblings:
        return 1
    rows = _max_open_rows(verl_config)
    return 1 if rows <= _ROWS_OF_A_WORKER else math.ceil(rows / _ROWS_OF_EACH)


def _max_open_rows(verl_config: Any) -> int:
    """The most responses that verl has requested and not yet trained on."""
    step = int(verl_config.data.train_batch_size) * int(verl_config.actor_rollout_ref.rollout.n)
    modes = verl_config.trainer.v1
    ahead = (modes.get(str(modes.trainer_mode)) or {}).get("num_warmup_batches", 0)
    return math.ceil(step * (1 + float(ahead)))


def has_shape(config: str | Path | RewardConfig) -> bool:
    """Whether a reward has a component that depends on the whole group, such as a length penalty.

    Raises:
        ConfigError: the reward configuration is wrong.
    """
    components = load_config(config).components.values()
    return any(isinstance(component, ShapeComponent) for component in components)


def redraws(modes: Any) -> bool:
    """Whether verl replaces a prompt whose rewards raised; takes the section ``trainer.v1``."""
    sampler = modes.get("sampler") or {}
    refills = str(sampler.get("sync_refill_failed_groups", False)).lower() == "true"
    return str(modes.trainer_mode) != "sync" or refills


def refuse_unstreamable(config: RewardConfig, *, redraws: bool) -> None:
    """Raise a ConfigError for a failure policy that verl's own trainers cannot carry out.

    Args:
        config: the reward configuration.
        redraws: whether verl replaces a prompt whose rewards raised.
    """
    for path, policy in config.on_failure.listed():
        if policy == "raise" and redraws:
            config.fail(
                ("on_failure", *path),
                "is 'raise', which does not stop verl's own trainers where they draw another "
                "prompt for each that failed (asynchronous modes, sync_refill_failed_groups): they "
                "would draw for ever; trainer: {mode: zerowait_colocate_async} stops",
            )
        if policy in ("mask", "drop_group"):
            config.fail(
                ("on_failure", *path),
                f"is {policy!r}, which verl's own trainers cannot do; they can do "
                "neutral, raise and {value: x}; trainer: {mode: zerowait} can do it "
                "(trainer.v1.trainer_mode=zerowait)",
            )


def refuse_lone_comparison(config: RewardConfig, responses: int) -> None:
    """Raise a ConfigError for a judge that compares responses where a prompt has only one.

    Args:
        config: the reward configuration.
        responses: number of responses per prompt in training.
    """
    if responses > 1:
        return
    plan = compile_plan(config)
    counting = {term.name for term in plan.terms if term.factor != 0}
    for comparison in plan.comparisons:
        if comparison.name in counting:
            config.fail(
                ("components", comparison.name),
                "compares the responses to one prompt, and there is one response per prompt "
                "(rollout.n is 1), so that it would never be measured: sample at least 2, or let "
                "its judge look at one response at a time",
            )


def refuse_without_number(config: RewardConfig) -> None:
    """Raise a ConfigError for a failure policy that leaves a row without a number.

    verl's own reward managers pass on a score of None, and its trainer then fails on a row without
    a reward.
    """
    for term in compile_plan(config).terms:
        if term.factor == 0:
            continue
        for kind in FailureKind:
            policy = policy_for(config.on_failure, term.name, Abstain(kind))
            if policy != "raise" and isinstance(policy, str):
                config.fail(
                    ("on_failure",),
                    f"makes {kind.value} of {term.name!r} {policy}, and verl's own reward managers "
                    "need a number for every row: choose raise (verl drops the response) or "
                    "{value: x}, or the reward manager zerowait, which can do it",
                )


def _refuse_ticket_keys(verl_config: Any) -> None:
    """Raise a ConfigError for a limit that verl's own trainers would ignore."""
    own = verl_config.reward.get("zerowait") or {}
    for key in ("redeem_s", "max_abstained"):
        if key in own:
            raise ConfigError(
                f"reward.zerowait.{key} is read in the trainer modes {', '.join(BASE_MODES)} only: "
                "verl's own trainers cannot be stopped from a reward"
            )


def _refuse_neutral_alone(config: RewardConfig, verl_config: Any) -> None:
    """Raise a ConfigError for the policy ``neutral`` where every prompt has one response.

    A group of one has no baseline: verl takes the substituted reward itself for the advantage.
    """
    estimator = estimator_in(verl_config)
    alone = int(verl_config.actor_rollout_ref.rollout.n) == 1
    if not (alone and estimator in ESTIMATORS and has_group_baseline(estimator)):
        return
    for name, component in config.components.items():
        if not isinstance(component, JudgeComponent) or component.weight == 0:
            continue
        for kind in FailureKind:
            if policy_for(config.on_failure, name, Abstain(kind)) == "neutral":
                config.fail(
                    ("on_failure",),
                    f"makes {kind.value} of {name!r} neutral, and with one response per prompt "
                    f"(rollout.n is 1) {estimator} has no siblings to be neutral against: choose "
                    "raise or {value: x}, or at least 2 responses",
                )
