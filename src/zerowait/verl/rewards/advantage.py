"""Advantages by verl's own code, over the rows that have a value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta

from zerowait.verl.rewards.response_mask import last_written
from zerowait.verl.rewards.settlement import RowTreatment

_FILLED = {"token_level_rewards": 0.0, "rollout_is_weights": 1.0}
"""What verl writes beside advantages under some settings, and what rows without a value get."""


def advantages(
    batch: KVBatchMeta,
    fates: Mapping[str, RowTreatment],
    verls: Callable[[KVBatchMeta], KVBatchMeta],
    *,
    optional: Collection[str],
    whitened: bool = False,
    paired: bool = False,
) -> KVBatchMeta:
    """The batch with advantages and returns for every row.

    verl's own computation sees the rows that are trained on and nothing else, so that baselines,
    whitening and the KL controller are its own; without any other row it sees the very batch.
    Padding has advantage 0 whatever verl makes of it: for opo that is 0/0, and one NaN in a batch
    makes its whole gradient NaN.
    Rows that have no value get advantage 0, and the critic's values for returns where there is one,
    so that the critic is not pushed either. Masked rows lose their response and loss masks first.

    Args:
        batch: a step's rows, padding included.
        fates: of the rows by key; a key that is absent, such as that of padding, is trained on.
        verls: verl's own computation, which writes to the queue.
        optional: what verl may write beside advantages and returns.
        whitened: whether advantages are divided by their deviation over all tokens. Of less than
            two there is none, and verl raises: what is left of the step then gets advantage 0 too.
        paired: whether verl raises for a group of one, as a lone padding row is: verl then does not
            see it.
    """
    padding = {k for k, tag in zip(batch.keys, batch.tags, strict=True) if tag.get("is_padding")}
    unseen = padding if paired and len(padding) == 1 else set()
    fate_of = {key: fates.get(key, RowTreatment.TRAINED) for key in batch.keys}
    rest = [k for k, fate in fate_of.items() if fate is not RowTreatment.TRAINED or k in unseen]
    if not rest:
        done = verls(batch)
        _quiet(batch.partition_id, sorted(padding))
        return done
    _mask(batch.partition_id, [key for key in rest if fate_of[key] is RowTreatment.MASKED])
    left_out = set(rest)
    trained = [key for key in batch.keys if key not in left_out]
    if padding.issuperset(trained):
        trained = []  # padding alone has no mean and no variance
    elif whitened and _tokens(batch.partition_id, trained) < 2:
        trained = []
    if trained:
        written = verls(batch.select_keys(trained)).fields or ()
        optional = [name for name in optional if name in written]
        _quiet(batch.partition_id, sorted(padding - unseen))
    else:
        rest = list(batch.keys)
    done = _fill(batch.partition_id, rest, optional)
    return KVBatchMeta(
        keys=batch.keys,
        tags=batch.tags,
        partition_id=batch.partition_id,
        fields=done.fields,
        extra_info=done.extra_info,
    )


def optional_fields(algorithm: Any) -> list[str]:
    """What verl may write beside advantages and returns under this ``algorithm`` section."""
    fields = ["token_level_rewards"] if algorithm.use_kl_in_reward else []
    correction = algorithm.get("rollout_correction", None)
    if correction and not correction.get("bypass_mode", False) and correction.get("rollout_is"):
        fields.append("rollout_is_weights")
    return fields


def write_scores(partition_id: str, values: Mapping[str, float]) -> None:
    """Write each row's reward to the last token that the model wrote, and 0 to all others.

    Without such a token, as one output of several may be, it stands at the end, where it counts in
    the sums of a row and pushes nothing.
    """
    if not values:
        return
    keys = list(values)
    fields = ["rm_scores", "response_mask"]
    old = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=fields)
    rows = []
    masks = old["response_mask"].unbind()
    for row, mask, value in zip(old["rm_scores"].unbind(), masks, values.values(), strict=True):
        scores = torch.zeros_like(row)
        place = last_written(mask.tolist())
        scores[-1 if place is None else place] = value
        rows.append(scores)
    _put(partition_id, keys, {"rm_scores": rows})


def row_sums(partition_id: str, keys: Sequence[str], field: str) -> list[float]:
    """The sum of each row's tokens in `field`, in the order of `keys`."""
    if not keys:
        return []
    data = tq.kv_batch_get(keys=list(keys), partition_id=partition_id, select_fields=[field])
    return [float(row.sum()) for row in data[field].unbind()]


def _mask(partition_id: str, keys: Sequence[str]) -> None:
    if not keys:
        return
    fields = ["response_mask", "loss_mask"]
    old = tq.kv_batch_get(keys=list(keys), partition_id=partition_id, select_fields=fields)
    new = {name: [torch.zeros_like(row) for row in old[name].unbind()] for name in fields}
    _put(partition_id, keys, new)


def _quiet(partition_id: str, padding: Sequence[str]) -> None:
    """Padding without NaN; where there is none, nothing is written."""
    if not padding:
        return
    fields = ["advantages", "returns"]
    data = tq.kv_batch_get(keys=list(padding), partition_id=partition_id, select_fields=fields)
    rows = {name: list(data[name].unbind()) for name in fields}
    if any(row.isnan().any() for column in rows.values() for row in column):
        quiet = {name: [row.nan_to_num() for row in column] for name, column in rows.items()}
        _put(partition_id, padding, quiet)


def _tokens(partition_id: str, keys: Sequence[str]) -> int:
    """How many tokens of these rows an advantage is computed for."""
    return round(sum(row_sums(partition_id, keys, "response_mask")))


def _fill(partition_id: str, keys: Sequence[str], optional: Collection[str]) -> KVBatchMeta:
    fields = ["response_mask", "values"]
    old = tq.kv_batch_get(keys=list(keys), partition_id=partition_id, select_fields=fields)
    nothing = [torch.zeros(len(row)) for row in old["response_mask"].unbind()]
    new = {"advantages": nothing, "returns": nothing}
    if "values" in old.keys():  # noqa: SIM118 - a TensorDict iterates over its rows
        new["returns"] = list(old["values"].unbind())
    for name in optional:
        new[name] = [torch.full_like(row, _FILLED[name]) for row in nothing]
    return _put(partition_id, keys, new)


def _put(
    partition_id: str, keys: Sequence[str], rows: Mapping[str, list[torch.Tensor]]
) -> KVBatchMeta:
    columns = {
        name: torch.nested.as_nested_tensor(column, layout=torch.jagged)
        for name, column in rows.items()
    }
    fields = TensorDict(columns, batch_size=len(keys))
    return tq.kv_batch_put(keys=list(keys), partition_id=partition_id, fields=fields)
