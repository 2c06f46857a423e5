"""Convert a verl `DataProto` to samples, and rewards back to a tensor and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from zerowait.errors import DataError
from zerowait.types import FailureKind, Reward, Sample, Score
from zerowait.verl.batch.settings import RULE
from zerowait.verl.response_mask import NOTHING_WRITTEN, last_written
from zerowait.verl.rewards.reward_info import extra_info
from zerowait.verl.rows import (
    extra_in,
    plain_values,
    truth_in,
    written_by_model,
)


def samples_of_batch(data: Any, tokenizer: Any, *, source_key: str, shaped: bool) -> list[Sample]:
    """The rows of a `DataProto` as samples; rows with the same ``uid`` are a group.

    Texts and lengths are those that the model wrote, by ``response_mask`` if the batch has one.

    Args:
        data: ``responses`` has shape (batch, response_length), ``attention_mask`` (batch, prompt +
            response_length).
        tokenizer: the policy's.
        source_key: the column that names the data source.
        shaped: whether the reward compares lengths within a group.

    Raises:
        DataError: there is no ``uid`` and the rewards are `shaped`; or as `truth_in`, `extra_in`.
        ConfigError: as `written_by_model`.
    """
    written, columns = response_lengths(data), data.non_tensor_batch
    if shaped and "uid" not in columns:
        raise DataError(
            "the batch has no column 'uid', which says what responses belong to one prompt; "
            "without it no length can be compared with the others of its group"
        )
    rows = []
    for index, length in enumerate(written):
        row = {name: column[index] for name, column in columns.items()}
        rows.append(_sample(data, index, row, tokenizer, (source_key, length)))
    return rows


def response_lengths(data: Any) -> list[int]:
    """Number of valid tokens in each response, tool output included."""
    response = data.batch["responses"]
    return [int(n) for n in data.batch["attention_mask"][:, -response.shape[-1] :].sum(-1)]


def abstain_without_tokens(data: Any, rewards: Sequence[Reward]) -> list[Reward]:
    """The rewards; one becomes an abstention when the model wrote no token that could carry it."""
    why = f"reward: {FailureKind.BAD_INPUT}: {NOTHING_WRITTEN}"
    masks = (_mask(data, index) for index in range(len(rewards)))
    return [
        msgspec.structs.replace(reward, value=None, policy="neutral", why=why)
        if mask is not None and reward.value is not None and last_written(mask) is None
        else reward
        for mask, reward in zip(masks, rewards, strict=True)
    ]


def as_tensor(data: Any, rewards: Sequence[Reward]) -> Any:
    """The rewards as a float32 tensor of shape (batch, response_length).

    Each reward is at the last token that the model wrote (by ``response_mask``, else the last valid
    token; the first if there is none), NaN for a row without a value. All else is 0.
    """
    import torch

    scores = torch.zeros_like(data.batch["responses"], dtype=torch.float32)
    for index, (length, reward) in enumerate(zip(response_lengths(data), rewards, strict=True)):
        mask = _mask(data, index)
        position = length - 1 if mask is None else last_written(mask)
        scores[index, max(position or 0, 0)] = torch.nan if reward.value is None else reward.value
    return scores


def _mask(data: Any, index: int) -> list[int] | None:
    if "response_mask" not in data.batch.keys():  # noqa: SIM118 - a TensorDict iterates over rows
        return None
    mask: list[int] = data.batch["response_mask"][index].tolist()
    return mask


def as_columns(rewards: Sequence[Reward]) -> dict[str, list[Any]]:
    """The logged columns of the rewards, each a list with one entry per row.

    Beside `logged` they have the further keys that a user's function returned.
    """
    rows = [_details(reward) | logged(reward) for reward in rewards]
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def logged(reward: Reward) -> dict[str, Any]:
    """A reward's parts and metrics, with the same keys for every row of a run."""
    info = extra_info(reward)
    del info["stand_in"]
    return info


def _sample(
    data: Any, index: int, row: Mapping[str, Any], tokenizer: Any, how: tuple[str, int]
) -> Sample:
    source_key, length = how
    tokens = data.batch["responses"][index][:length]
    decode = partial(tokenizer.decode, skip_special_tokens=True)
    written = written_by_model(row, tokens, decode, mask=_mask(data, index))
    return Sample(
        prompt=_prompt(data, index, row, tokenizer),
        response=written.text,
        ground_truth=truth_in(row, f"row {index} of the batch"),
        data_source=str(row.get(source_key, "")),
        group=str(row["uid"]) if "uid" in row else f"#{index}",
        response_tokens=written.tokens,
        extra=written.extra | extra_in(row, f"row {index} of the batch"),
        id=f"{row.get('uid', '')}_{index}",
        split="validation" if data.meta_info.get("validate") else "train",
    )


def _prompt(data: Any, index: int, row: Mapping[str, Any], tokenizer: Any) -> Any:
    if row.get("raw_prompt") is not None:
        return plain_values(row["raw_prompt"])
    tokens = data.batch["prompts"][index]
    mask = data.batch["attention_mask"][index][: tokens.shape[-1]]
    return tokenizer.decode(tokens[mask.bool()], skip_special_tokens=True)


def _details(reward: Reward) -> dict[str, Any]:
    rule = reward.components[RULE]
    return dict(rule.detail) if isinstance(rule, Score) else {}
