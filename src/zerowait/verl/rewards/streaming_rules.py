"""What verl's own trainers, which take one finite number per row, can and cannot do."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from zerowait.config import (
    FailurePolicy,
    JudgeComponent,
    Policy,
    RewardConfig,
    ShapeComponent,
    load_config,
)
from zerowait.engine.combine import policy_for
from zerowait.engine.plan import compile_plan
from zerowait.errors import ConfigError
from zerowait.types import Abstain, FailureKind
from zerowait.verl.estimators import ESTIMATORS, check_estimator, estimator_in, has_group_baseline
from zerowait.verl.modes import BUILT_ON
from zerowait.verl.rewards.filter_metric import check_filter_metric

_ROWS_PER_WORKER = 1000
"""Ray runs at most so many calls of one asynchronous actor at a time."""


def check_streaming(path: str | Path, verl_config: Any) -> bool:
    """Whether the configuration has a shape, after checking that verl's own trainers can run it.

    Raises:
        ConfigError: the reward configuration is wrong, has a policy that needs the trainer mode
            ``zerowait``, groups are filtered by a number that it has not, the estimator cannot be
            run, or more rows would wait for each other than the reward workers can hold.
    """
    config = load_config(path)
    plan = compile_plan(config)
    check_filter_metric(config, verl_config.algorithm.get("filter_groups"), streaming=True)
    refuse_unstreamable(config, redraws=redraws(verl_config.trainer.v1))
    refuse_lone_comparison(config, int(verl_config.actor_rollout_ref.rollout.n))
    _refuse_ticket_keys(verl_config)
    check_estimator(verl_config)
    _refuse_neutral_alone(config, verl_config)
    rows = _rows_under_way(verl_config)
    workers = int(verl_config.reward.num_workers)
    if plan.waits_for_siblings and rows > workers * _ROWS_PER_WORKER:
        needed = -(-rows // _ROWS_PER_WORKER)
        raise ConfigError(
            f"{rows} rows may wait for their siblings, and {workers} reward workers hold "
            f"{workers * _ROWS_PER_WORKER}: set reward.num_workers={needed}"
        )
    return bool(plan.shapes)


def _rows_under_way(verl_config: Any) -> int:
    """Responses that verl may have asked for and not trained on, at the most."""
    step = int(verl_config.data.train_batch_size) * int(verl_config.actor_rollout_ref.rollout.n)
    modes = verl_config.trainer.v1
    ahead = (modes.get(str(modes.trainer_mode)) or {}).get("num_warmup_batches", 0)
    return math.ceil(step * (1 + float(ahead)))


def has_shape(config: str | Path | RewardConfig) -> bool:
    """Whether a reward depends on the whole group.

    Raises:
        ConfigError: the reward configuration is wrong.
    """
    components = load_config(config).components.values()
    return any(isinstance(component, ShapeComponent) for component in components)


def redraws(modes: Any) -> bool:
    """Whether verl draws another prompt for one whose rewards raised: section ``trainer.v1``."""
    sampler = modes.get("sampler") or {}
    refills = str(sampler.get("sync_refill_failed_groups", False)).lower() == "true"
    return str(modes.trainer_mode) != "sync" or refills


def refuse_unstreamable(config: RewardConfig, *, redraws: bool) -> None:
    """Raise a ConfigError for a failure policy that verl's own trainers cannot carry out.

    Args:
        config: of the rewards.
        redraws: whether verl draws another prompt for one whose rewards raised.
    """
    for path, policy in _policies(config.on_failure):
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
    """Raise a ConfigError for a judge that compares siblings where a prompt has one response.

    Args:
        config: of the rewards.
        responses: to each prompt, in training.
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
    """Raise a ConfigError for a failure that leaves a row without a number.

    verl's own reward managers pass a score of None on, and its trainer then has a row without the
    column of rewards.
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
    """Raise a ConfigError for a limit that nobody keeps."""
    own = verl_config.reward.get("zerowait") or {}
    for key in ("redeem_s", "max_abstained"):
        if key in own:
            raise ConfigError(
                f"reward.zerowait.{key} is read in the trainer modes {', '.join(BUILT_ON)} only: "
                "verl's own trainers cannot be stopped from a reward"
            )


def _refuse_neutral_alone(config: RewardConfig, verl_config: Any) -> None:
    """In a group of one there is no sibling to be neutral against: verl's advantage is the reward.

    Raises:
        ConfigError: names the first failure of a judge that would be ``neutral`` there.
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


def _policies(on_failure: FailurePolicy) -> list[tuple[tuple[str, ...], Policy]]:
    found: list[tuple[tuple[str, ...], Policy]] = []
    if on_failure.default is not None:
        found.append((("default",), on_failure.default))
    found += [((kind.value,), policy) for kind, policy in on_failure.kinds.items()]
    for name, own in on_failure.components.items():
        found += [((name, *path), policy) for path, policy in _policies(own)]
    return found
