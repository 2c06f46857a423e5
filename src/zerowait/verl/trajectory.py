"""One trajectory of verl's, as its reward loop sends it, as the sample that is rewarded."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from zerowait.errors import ConfigError
from zerowait.types import Sample
from zerowait.verl.rows import episode_in, extra_in, plain, truth_in, written_by_model

SPLIT: Final = "split"
GROUP_SIZE: Final = "group_size"


def sample_of(outputs: Any, tokenizer: Any) -> Sample:
    """What is rewarded of a trajectory: what the model wrote in its last output.

    Every output of the trajectory gets this reward.

    Args:
        outputs: verl's `DataProto` of the trajectory, a row for each output.
        tokenizer: of the policy.

    Raises:
        ConfigError: the rows carry no stamps, or as `written_by_model`.
        DataError: as `truth_in` and `extra_in`.
    """
    row = outputs[-1]
    columns = row.non_tensor_batch
    name = f"{columns['uid']}_{columns.get('session_id', 0)}"
    where = f"response {name}"
    extra = extra_in(columns, where)
    if SPLIT not in extra or GROUP_SIZE not in extra:
        raise ConfigError(
            "rows carry no split and group size: set data.custom_cls.path="
            "pkg://zerowait.verl.dataset data.custom_cls.name=RewardDataset"
        )
    tokens = row.batch["responses"][: _length(row)]
    written = written_by_model(columns, tokens, partial(tokenizer.decode, skip_special_tokens=True))
    return Sample(
        prompt=plain(columns["raw_prompt"]),
        response=written.text,
        ground_truth=truth_in(columns, where),
        data_source=str(columns.get("data_source", "")),
        group=str(columns["uid"]),
        response_tokens=written.tokens,
        extra=written.extra | _without_stamps(extra) | episode_in(columns),
        id=name,
        group_size=int(extra[GROUP_SIZE]),
        split=str(extra[SPLIT]),
        step=int(columns["global_steps"]) if "global_steps" in columns else None,
    )


def _length(row: Any) -> int:
    """How many tokens the response has.

    verl sends several outputs padded on the right, prompts too, and its mask begins at each row's
    prompt: the end of the mask belongs to the response in the widest row alone.
    """
    told = row.non_tensor_batch.get("response_len")
    if told is not None:
        return int(told)
    return int(row.batch["attention_mask"][-row.batch["responses"].shape[-1] :].sum())


def _without_stamps(extra: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in extra.items() if key not in (SPLIT, GROUP_SIZE)}
