"""Read one row of verl's batch: gold answer, extra columns, the model's own text, its episode.

Imports neither verl nor torch. The constants are the keys under which an agent loop tells us more
about its response, in ``AgentLoopOutput.extra_fields``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from zerowait.errors import ConfigError, DataError
from zerowait.verl.response_mask import RESPONSE_MASK, episode_messages, own_text

MODEL_TOKENS: Final = "model_tokens"
"""Key in ``extra_fields``: the number of the response's tokens that the model wrote."""
EPISODE: Final = "episode"
"""Key in ``extra_fields``: a summary of the episode; also its key in the sample's ``extra``."""
WHOLE: Final = "judged_whole"
"""Key in ``extra_fields``: true if the whole response is judged, because the text of tools in it
cannot be mistaken for the model's."""
TURN_REWARDS: Final = "turn_rewards"
"""Key in ``reward_extra_info``, and then in ``extra_fields``, of the rewards that belong on single
tokens: (index in the response, reward) pairs, each a part of the whole reward."""
TRANSCRIPT: Final = "transcript"
"""Key in a sample's ``extra``: the whole response, if a tool wrote a part of it."""
MANAGER: Final = "zerowait.verl.agent.manager.AgentLoopManager"
"""The agent loop manager whose workers pass the mask of every response on."""


def truth_in(columns: Mapping[str, Any], where: str) -> Any:
    """The row's ground truth in ``reward_model``; None in a batch without that column.

    Raises:
        DataError: the column is not a mapping; names `where`.
    """
    if "reward_model" not in columns:
        return None
    value = mapping_in(columns["reward_model"])
    if not isinstance(value, Mapping):
        raise DataError(_no_mapping(where, "reward_model", value, '{"ground_truth": ...}'))
    return value.get("ground_truth")


def extra_in(columns: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The row's ``extra_info``; empty if there is none.

    Raises:
        DataError: the column is not a mapping; names `where`.
    """
    value = mapping_in(columns.get("extra_info"))
    if value is None or value != value:  # noqa: PLR0124 - NaN, a data frame's missing value
        return {}
    if not isinstance(value, dict):
        raise DataError(_no_mapping(where, "extra_info", value, '{"index": 7}'))
    return value


def mapping_in(column: Any) -> Any:
    """The value of a column; a mapping stored as JSON text is decoded.

    >>> mapping_in('{"ground_truth": "4"}'), mapping_in("4")
    ({'ground_truth': '4'}, '4')
    """
    value = plain_values(column)  # numpy has a string type of its own
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
    """The part of a response that is judged.

    Args:
        text: written by the model.
        tokens: number of tokens written by the model.
        extra: ``transcript``, the whole response, if a tool wrote a part of it; else empty.
        messages: of the episode, if a tool wrote a part of it.
    """

    text: str
    tokens: int
    extra: dict[str, str]
    messages: list[dict[str, Any]] | None = None


def written_by_model(
    columns: Mapping[str, Any],
    tokens: Sequence[Any],
    decode: Callable[[Any], str],
    *,
    mask: Sequence[int] | None = None,
) -> Written:
    """The text of a response that the model itself wrote, by the response mask.

    Args:
        columns: the row; ``tool_extra_fields`` holds the agent loop's ``extra_fields``.
        tokens: the response without padding, of shape (response_length,).
        decode: from tokens to text.
        mask: of the response, if the batch has one; None uses the agent loop's.

    Raises:
        ConfigError: tools wrote a part of the response, and there is no mask.
    """
    fields = _extra_fields(columns)
    if mask is None:
        mask = fields.get(RESPONSE_MASK)
    count = fields.get(MODEL_TOKENS)
    if mask is None:
        count = len(tokens) if count is None else int(count)
        if not fields.get(WHOLE):
            _refuse_tool_text(columns, count, len(tokens))
        authors = _mask_of_authors(fields, len(tokens))
        return Written(decode(tokens), count, {}, _messages(tokens, authors, decode, verbatim=True))
    mask = [int(bit) for bit in mask[: len(tokens)]]
    count = sum(mask) if count is None else int(count)
    whole = decode(tokens)
    if all(mask):
        return Written(whole, count, {})
    messages = _messages(tokens, mask, decode, verbatim=bool(fields.get(WHOLE)))
    if fields.get(WHOLE):
        return Written(whole, count, {}, messages)
    return Written(own_text(tokens, mask, decode), count, {TRANSCRIPT: whole}, messages)


def _messages(
    tokens: Sequence[Any],
    mask: Sequence[int] | None,
    decode: Callable[[Any], str],
    *,
    verbatim: bool,
) -> list[dict[str, Any]] | None:
    """The messages of an episode; None where all tokens are the model's, or none are."""
    if mask is None or all(mask) or not any(mask):
        return None
    return episode_messages(tokens, mask, decode, verbatim=verbatim)


def _mask_of_authors(fields: Mapping[str, Any], tokens: int) -> list[int] | None:
    """The response's mask by the authors that our search loop lists; None without them."""
    authors = (fields.get(EPISODE) or {}).get("authors") or ()
    mask = [int(author == "model") for author, count in authors for _ in range(int(count))]
    return mask if mask and len(mask) == tokens else None


def _refuse_tool_text(columns: Mapping[str, Any], count: int, written: int) -> None:
    """Raise a ConfigError for a response of several turns in which a tool may have written."""
    turns = columns.get("__num_turns__")
    if (
        turns is None
        or int(turns) <= 2
        or (MODEL_TOKENS in _extra_fields(columns) and count == written)
    ):
        return
    raise ConfigError(
        f"a response has {int(turns)} turns, and nothing says which of its tokens the model wrote: "
        "what a tool wrote would be rewarded. Write +actor_rollout_ref.rollout.agent."
        f"agent_loop_manager_class={MANAGER}, or put the response's mask into "
        f"AgentLoopOutput.extra_fields[{RESPONSE_MASK!r}]"
    )


def _extra_fields(columns: Mapping[str, Any]) -> Mapping[str, Any]:
    """The agent loop's ``extra_fields``; empty without one."""
    fields = columns.get("tool_extra_fields")
    return fields if isinstance(fields, Mapping) else {}


def episode_in(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The agent loop's summary of the episode, as a part of a sample's ``extra``; may be empty."""
    value = _extra_fields(columns).get(EPISODE)
    return {} if value is None else {EPISODE: plain_values(value)}


def plain_values(value: Any) -> Any:
    """Plain Python values from a data frame's: numpy scalars, arrays and nested mappings."""
    if isinstance(value, Mapping):
        return {str(key): plain_values(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain_values(value.tolist())
    if isinstance(value, list | tuple):
        return [plain_values(item) for item in value]
    return value
