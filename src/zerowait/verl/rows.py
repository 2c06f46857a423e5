"""Read one row of verl's batch: gold answer, extra columns, the model's own text, its episode.

Imports neither verl nor torch. The constants are the keys under which an agent loop tells us more
about its response, in ``AgentLoopOutput.extra_fields``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from zerowait.errors import ConfigError, DataError
from zerowait.verl.response_mask import RESPONSE_MASK, own_text

MODEL_TOKENS: Final = "model_tokens"
"""Where an agent loop says, in ``extra_fields``, how many tokens of a response the model wrote."""
EPISODE: Final = "episode"
"""Where an agent loop may say, in ``extra_fields``, how its episode went: scorers and rubrics find
it under the same name in the sample's ``extra``."""
WHOLE: Final = "judged_whole"
"""Where an agent loop says, in ``extra_fields``, that the whole response is judged, because what
others wrote in it cannot pass for the model's own."""
TRANSCRIPT: Final = "transcript"
"""Where a sample's ``extra`` has the whole response, when others wrote a part of it."""
MANAGER: Final = "zerowait.verl.agent.manager.AgentLoopManager"
"""The agent loop manager whose workers tell the mask of every response."""


def truth_in(columns: Mapping[str, Any], where: str) -> Any:
    """The row's gold answer in ``reward_model``; None in a batch that has no such column.

    Raises:
        DataError: names `where` and the column, which holds something else than a mapping.
    """
    if "reward_model" not in columns:
        return None
    told = mapping_in(columns["reward_model"])
    if not isinstance(told, Mapping):
        raise DataError(_no_mapping(where, "reward_model", told, '{"ground_truth": ...}'))
    return told.get("ground_truth")


def extra_in(columns: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The row's ``extra_info``; empty where there is none.

    Raises:
        DataError: names `where` and the column, which holds something else than a mapping.
    """
    told = mapping_in(columns.get("extra_info"))
    if told is None or told != told:  # noqa: PLR0124 - NaN, which data frames put for nothing
        return {}
    if not isinstance(told, dict):
        raise DataError(_no_mapping(where, "extra_info", told, '{"index": 7}'))
    return told


def mapping_in(told: Any) -> Any:
    """What a column holds; a mapping that was written down as JSON text is read.

    >>> mapping_in('{"ground_truth": "4"}'), mapping_in("4")
    ({'ground_truth': '4'}, '4')
    """
    value = plain_values(told)  # of numpy, text has a type of its own
    if not isinstance(value, str):
        return value
    try:
        read = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return value
    return read if isinstance(read, dict) else value


def _no_mapping(where: str, column: str, found: Any, example: str) -> str:
    shown = "None" if found is None else f"{type(found).__name__} {str(found)[:40]!r}"
    return f"{where}: column {column!r} has to be a mapping such as {example}, not {shown}"


class Written(NamedTuple):
    """What is judged of a response.

    Args:
        text: that the model wrote.
        tokens: how many of them the model wrote.
        extra: ``transcript``, the whole response, where others wrote a part of it.
    """

    text: str
    tokens: int
    extra: dict[str, str]


def written_by_model(
    columns: Mapping[str, Any],
    tokens: Sequence[Any],
    decode: Callable[[Any], str],
    *,
    mask: Sequence[int] | None = None,
) -> Written:
    """The model's own text of a response, by its mask; the whole where nobody else wrote in it.

    Args:
        columns: of the row; ``tool_extra_fields`` is what its agent loop said.
        tokens: of the response, without padding.
        decode: text of tokens.
        mask: of the response, where the batch has it; else the agent loop's.

    Raises:
        ConfigError: others wrote a part of the response, and there is no mask.
    """
    said = _said(columns)
    if mask is None:
        mask = said.get(RESPONSE_MASK)
    count = said.get(MODEL_TOKENS)
    if mask is None:
        count = len(tokens) if count is None else int(count)
        if not said.get(WHOLE):
            _refuse_turns_of_others(columns, count, len(tokens))
        return Written(decode(tokens), count, {})
    mask = [int(bit) for bit in mask[: len(tokens)]]
    count = sum(mask) if count is None else int(count)
    whole = decode(tokens)
    if said.get(WHOLE) or all(mask):
        return Written(whole, count, {})
    return Written(own_text(tokens, mask, decode), count, {TRANSCRIPT: whole})


def _refuse_turns_of_others(columns: Mapping[str, Any], count: int, written: int) -> None:
    turns = columns.get("__num_turns__")
    if turns is None or int(turns) <= 2 or (MODEL_TOKENS in _said(columns) and count == written):
        return
    raise ConfigError(
        f"a response has {int(turns)} turns, and nothing says which of its tokens the model wrote: "
        "what a tool wrote would be rewarded. Write +actor_rollout_ref.rollout.agent."
        f"agent_loop_manager_class={MANAGER}, or put the response's mask into "
        f"AgentLoopOutput.extra_fields[{RESPONSE_MASK!r}]"
    )


def _said(columns: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the agent loop put into its ``extra_fields``."""
    said = columns.get("tool_extra_fields")
    return said if isinstance(said, Mapping) else {}


def episode_in(columns: Mapping[str, Any]) -> dict[str, Any]:
    """What the agent loop says of its episode, as a part of a sample's ``extra``; or nothing."""
    told = _said(columns).get(EPISODE)
    return {} if told is None else {EPISODE: plain_values(told)}


def plain_values(value: Any) -> Any:
    """Python values from what data frames bring: numpy scalars, arrays and nested mappings."""
    if isinstance(value, Mapping):
        return {str(key): plain_values(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain_values(value.tolist())
    if isinstance(value, list | tuple):
        return [plain_values(item) for item in value]
    return value
