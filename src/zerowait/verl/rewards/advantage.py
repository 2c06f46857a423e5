"""Advantages from verl's own estimator, computed over the rows that have a value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta

from zerowait.verl.response_mask import last_written
from zerowait.verl.rewards.row_treatment import RowTreatment

_DEFAULTS = {"token_level_rewards": 0.0, "rollout_is_weights": 1.0}
"""The values that rows without a value get in fields that verl writes under some settings."""


def advantages(
    batch: KVBatchMeta,
    treatments: Mapping[str, RowTreatment],
    compute: Callable[[KVBatchMeta], KVBatchMeta],
    *,
    optional: Collection[str],
    whitened: bool = False,
    paired: bool = False,
) -> KVBatchMeta:
    """The batch, with the fields ``advantages`` and ``returns`` for every row.

    verl's own `compute` gets the trained rows only, so that baselines, whitening and the KL
    controller are verl's own; when all rows are trained it gets the very batch. All other rows get
    advantage 0, and as returns the critic's values if there are any, so that they do not move the
    critic either. Masked rows lose their response and loss masks first. A NaN that verl computes
    for padding (0/0 under opo) becomes 0, because one NaN makes the whole gradient NaN.

    Args:
        batch: a step's rows, padding included.
        treatments: by key; a key that is absent, such as that of padding, counts as trained.
        compute: verl's own computation, which writes to the queue.
        optional: further fields that verl may write (see `optional_fields`).
        whitened: whether the estimator divides by a deviation over all tokens. verl raises for
            fewer than two tokens: then every row of the step gets advantage 0.
        paired: whether verl raises for a group of one, as a lone padding row is; such a row is kept
            from verl.
    """
    padding = {k for k, tag in zip(batch.keys, batch.tags, strict=True) if tag.get("is_padding")}
    hidden = padding if paired and len(padding) == 1 else set()
    treatment_of = {key: treatments.get(key, RowTreatment.TRAINED) for key in batch.keys}
    rest = [
        key
        for key, treatment in treatment_of.items()
        if treatment is not RowTreatment.TRAINED or key in hidden
    ]
    if not rest:
        done = compute(batch)
        _zero_nans(batch.partition_id, sorted(padding))
        return done
    _zero_masks(
        batch.partition_id, [key for key in rest if treatment_of[key] is RowTreatment.MASKED]
    )
    left_out = set(rest)
    trained = [key for key in batch.keys if key not in left_out]
    if padding.issuperset(trained):
        trained = []  # padding alone has no mean and no variance
    elif whitened and round(sum(row_sums(batch.partition_id, trained, "response_mask"))) < 2:
        trained = []
    if trained:
        written = compute(batch.select_keys(trained)).fields or ()
        optional = [name for name in optional if name in written]
        _zero_nans(batch.partition_id, sorted(padding - hidden))
    else:
        rest = list(batch.keys)
    done = _write_zero_advantages(batch.partition_id, rest, optional)
    return KVBatchMeta(
        keys=batch.keys,
        tags=batch.tags,
        partition_id=batch.partition_id,
        fields=done.fields,
        extra_info=done.extra_info,
    )


def optional_fields(config: Any) -> list[str]:
    """The fields that verl may write beside advantages and returns.

    Args:
        config: verl's whole configuration.
    """
    algorithm, rollout = config.algorithm, config.actor_rollout_ref.rollout
    fields = ["token_level_rewards"] if algorithm.use_kl_in_reward else []
    correction = algorithm.get("rollout_correction", None)
    if correction and not correction.get("bypass_mode", False) and correction.get("rollout_is"):
        # verl corrects nothing where the rollout tells no probabilities
        fields += ["rollout_is_weights"] if rollout.calculate_log_probs else []
    return fields


def write_scores(
    partition_id: str,
    values: Mapping[str, float],
    turns: Mapping[str, Sequence[tuple[int, float]]] = MappingProxyType({}),
) -> None:
    """Write each row's reward to the last token that the model wrote, and 0 to all others.

    What `turns` says of a row stands on the turns' own tokens, and the rest on the last one.

    ``rm_scores`` and ``response_mask`` have shape (response_length,) in each row. A row in which
    the model wrote no token, as one of several outputs may be, gets it at its end: there it counts
    in sums over the row and pushes nothing.

    Args:
        partition_id: verl's partition of the rows.
        values: rewards by row key.
        turns: by row key, (index in the response, reward) pairs, each a part of its reward.
    """
    if not values:
        return
    keys = list(values)
    fields = ["rm_scores", "response_mask"]
    old = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=fields)
    rows = []
    masks = old["response_mask"].unbind()
    for row, mask, (key, value) in zip(
        old["rm_scores"].unbind(), masks, values.items(), strict=True
    ):
        scores = torch.zeros_like(row)
        position = last_written(mask.tolist())
        places = () if position is None else turns.get(key, ())
        scores[-1 if position is None else position] = value - sum(part for _, part in places)
        for token, part in places:
            scores[token] += part
        rows.append(scores)
    _put(partition_id, keys, {"rm_scores": rows})


def row_sums(partition_id: str, keys: Sequence[str], field: str) -> list[float]:
    """The sum over each row's tokens in `field`, in the order of `keys`."""
    if not keys:
        return []
    data = tq.kv_batch_get(keys=list(keys), partition_id=partition_id, select_fields=[field])
    return [float(row.sum()) for row in data[field].unbind()]


def _zero_masks(partition_id: str, keys: Sequence[str]) -> None:
    """Take rows out of the loss: their response and loss masks become 0."""
    if not keys:
        return
    fields = ["response_mask", "loss_mask"]
    old = tq.kv_batch_get(keys=list(keys), partition_id=partition_id, select_fields=fields)
    new = {name: [torch.zeros_like(row) for row in old[name].unbind()] for name in fields}
    _put(partition_id, keys, new)


def _zero_nans(partition_id: str, padding: Sequence[str]) -> None:
    """Replace NaN by 0 in the padding's advantages and returns; writes only where there is one."""
    if not padding:
        return
    fields = ["advantages", "returns"]
    data = tq.kv_batch_get(keys=list(padding), partition_id=partition_id, select_fields=fields)
    rows = {name: list(data[name].unbind()) for name in fields}
    if any(row.isnan().any() for column in rows.values() for row in column):
        finite = {name: [row.nan_to_num() for row in column] for name, column in rows.items()}
        _put(partition_id, padding, finite)


def _write_zero_advantages(
    partition_id: str, keys: Sequence[str], optional: Collection[str]
) -> KVBatchMeta:
    """Advantage 0 for these rows; returns are the critic's values, or 0 without a critic."""
    fields = ["response_mask", "values"]
    old = tq.kv_batch_get(keys=list(keys), partition_id=partition_id, select_fields=fields)
    zeros = [torch.zeros(len(row)) for row in old["response_mask"].unbind()]
    new = {"advantages": zeros, "returns": zeros}
    if "values" in old.keys():  # noqa: SIM118 - a TensorDict iterates over its rows
        new["returns"] = list(old["values"].unbind())
    for name in optional:
        new[name] = [torch.full_like(row, _DEFAULTS[name]) for row in zeros]
    return _put(partition_id, keys, new)


def _put(
    partition_id: str, keys: Sequence[str], rows: Mapping[str, list[torch.Tensor]]
) -> KVBatchMeta:
    """Write fields of rows to verl's queue; each row's tensor has shape (response_length,)."""
    columns = {
        name: torch.nested.as_nested_tensor(column, layout=torch.jagged)
        for name, column in rows.items()
    }
    fields = TensorDict(columns, batch_size=len(keys))
    return tq.kv_batch_put(keys=list(keys), partition_id=partition_id, fields=fields)
