"""Rows and tokens that a device computes at a time, and sizes on which verl would stop.

verl compares these numbers where it uses them: when the workers are built, or at the first
log-probabilities or the first update, after a whole batch was rolled out and judged. Read in verl
0.9.1. Imports no verl.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from zerowait.verl.estimators import estimator_in, needs_two_responses

_ACTOR: Final = "actor_rollout_ref.actor"
_ROLLOUT: Final = "actor_rollout_ref.rollout"
_REF: Final = "actor_rollout_ref.ref"
PROMPTS_OF_UPDATE: Final = f"{_ACTOR}.ppo_mini_batch_size"
RESPONSES_TO_PROMPT: Final = f"{_ROLLOUT}.n"
_FSDP: Final = ("fsdp", "fsdp2")


def data_parallel_ranks(config: Any) -> int | None:
    """The shares that a batch is split into; None where verl's backend is another than FSDP.

    Args:
        config: verl's whole configuration.
    """
    actor = config.actor_rollout_ref.actor
    if actor.strategy not in _FSDP:
        return None
    devices = int(config.trainer.n_gpus_per_node) * int(config.trainer.nnodes)
    fsdp = actor.get("fsdp_config") or {}
    return max(1, devices // int(fsdp.get("ulysses_sequence_parallel_size") or 1))


def rows_of_update(config: Any) -> int:
    """Rows that verl trains on in one update, padding included."""
    actor = config.actor_rollout_ref
    return int(actor.actor.ppo_mini_batch_size) * int(actor.rollout.n)


def unfit_size(config: Any) -> tuple[str, str] | None:
    """The first size on which verl would stop: its key, and what is wrong with it.

    Args:
        config: verl's whole configuration.
    """
    return next(_unfit_sizes(config), None)


def _unfit_sizes(config: Any) -> Iterator[tuple[str, str]]:
    estimator, responses = estimator_in(config), int(config.actor_rollout_ref.rollout.n)
    if needs_two_responses(estimator) and responses < 2:
        yield RESPONSES_TO_PROMPT, f"is {responses}, and the estimator {estimator} needs at least 2"
    ranks = data_parallel_ranks(config)
    if ranks is None:
        return
    worker = config.actor_rollout_ref
    if worker.rollout.log_prob_use_dynamic_bsz != worker.actor.use_dynamic_bsz:
        yield (
            f"{_ROLLOUT}.log_prob_use_dynamic_bsz",
            f"is not as {_ACTOR}.use_dynamic_bsz, and verl needs the same in both: leave it out",
        )
    rows = rows_of_update(config)
    if rows % ranks:
        step = ranks // math.gcd(ranks, responses)
        mini = worker.actor.ppo_mini_batch_size
        yield (
            PROMPTS_OF_UPDATE,
            (
                f"is {mini}, and an update has {rows} rows ({mini} prompts x {responses}), which "
                f"{ranks} devices cannot share out evenly: write a multiple of {step}"
            ),
        )
    elif worker.actor.use_dynamic_bsz:
        yield from _too_few_tokens(config)
    else:
        yield from _unfit_passes(config, ranks)


def _too_few_tokens(config: Any) -> Iterator[tuple[str, str]]:
    """Limits on tokens of a pass, below the length that one row may have."""
    data = config.data
    longest = int(data.max_prompt_length) + int(data.max_response_length)
    worker = config.actor_rollout_ref
    parallel = int((worker.actor.get("fsdp_config") or {}).get("ulysses_sequence_parallel_size", 1))
    for key, tokens in (
        (f"{_ACTOR}.ppo_max_token_len_per_gpu", worker.actor.ppo_max_token_len_per_gpu),
        (
            f"{_ROLLOUT}.log_prob_max_token_len_per_gpu",
            worker.rollout.log_prob_max_token_len_per_gpu,
        ),
    ):
        if tokens is not None and int(tokens) * parallel < longest:
            yield (
                key,
                (
                    f"is {tokens}, and a row may have {longest} tokens (data.max_prompt_length + "
                    "data.max_response_length): verl stops at the first that is longer; write "
                    f"{math.ceil(longest / parallel)} or more"
                ),
            )


def _unfit_passes(config: Any, ranks: int) -> Iterator[tuple[str, str]]:
    """Passes of a fixed number of rows (``use_dynamic_bsz`` is off) that do not fill a batch."""
    worker = config.actor_rollout_ref
    update = rows_of_update(config) // ranks
    yield from _unfit_pass(
        f"{_ACTOR}.ppo_micro_batch_size_per_gpu",
        worker.actor.ppo_micro_batch_size_per_gpu,
        update,
        "in one update",
    )
    if config.trainer.critic_warmup or config.critic.get("enable"):
        return  # a step is then padded to multiples of the critic's mini-batches too
    step = update * math.ceil(_rows_of_step(config) / (update * ranks))
    sections = [(_ROLLOUT, worker.rollout)]
    has_reference = worker.actor.use_kl_loss or config.algorithm.use_kl_in_reward
    if has_reference and not worker.ref.log_prob_use_dynamic_bsz:
        sections.append((_REF, worker.ref))
    for name, section in sections:
        micro = section.log_prob_micro_batch_size_per_gpu
        key = f"{name}.log_prob_micro_batch_size_per_gpu"
        yield from _unfit_pass(key, micro, step, "in one step")


def _rows_of_step(config: Any) -> int:
    """Rows that the trainer takes at a time, without padding."""
    modes = config.trainer.v1
    updates = (modes.get("separate_async") or {}).get("parameter_sync_step") or 1
    separate = str(modes.trainer_mode).endswith("separate_async")
    prompts = int(config.data.train_batch_size) // (int(updates) if separate else 1)
    return prompts * int(config.actor_rollout_ref.rollout.n)


def _unfit_pass(key: str, micro: Any, rows: int, when: str) -> Iterator[tuple[str, str]]:
    if micro is None:
        yield (
            key,
            (
                f"is not set, and {_ACTOR}.use_dynamic_bsz is false: give the rows of one pass "
                f"on a device, a divisor of {rows}"
            ),
        )
    elif rows % int(micro):
        near = max(n for n in range(1, min(int(micro), rows) + 1) if rows % n == 0)
        yield (
            key,
            (
                f"is {micro}, and does not divide the {rows} rows that a device computes {when}: "
                f"write {near}, or {_ACTOR}.use_dynamic_bsz: true"
            ),
        )
