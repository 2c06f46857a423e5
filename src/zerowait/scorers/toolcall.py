"""The scorer ``toolcall``: the names and arguments of a response's tool calls."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any, Literal, TypeAlias

from zerowait.scorers.answers import no_gold, pairs
from zerowait.scorers.json_text import strict_json
from zerowait.scorers.thinking import spoken
from zerowait.types import Abstain, Sample, Score

Calls: TypeAlias = Counter[Hashable]
"""A multiset of (name, arguments)."""

_OPEN = "<tool_call>"
_CLOSE = "</tool_call>"


def calls_of(text: str) -> Calls:
    """The multiset of calls over all ``<tool_call>`` blocks of `text`.

    A block is the JSON of one call or of a list of calls.

    Raises:
        ValueError: a block is not closed, or is not JSON of calls.

    Reference:
        Zhang et al. 2025, Nemotron-Research-Tool-N1 (arXiv:2505.00024).

    >>> one = calls_of('<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>')
    >>> one == calls_of('<tool_call>[{"arguments": {"x": 1.0}, "name": "f"}]</tool_call>')
    True
    """
    calls: Calls = Counter()
    end = 0
    while (start := text.find(_OPEN, end)) >= 0:
        end = text.find(_CLOSE, start)
        if end < 0:
            raise ValueError("a <tool_call> is not closed")
        calls.update(read_calls(_parsed(text[start + len(_OPEN) : end])))
    if text.count(_OPEN) != text.count(_CLOSE):
        raise ValueError("a </tool_call> closes nothing")
    return calls


def read_calls(value: Any) -> Calls:
    """The multiset of a call, or of a list of calls; 1 and 1.0 are equal, true and 1 are not.

    Raises:
        ValueError: an item has no name or no arguments.
    """
    items = value if isinstance(value, list | tuple) else [value]
    return Counter(_call(item) for item in items)


def toolcall(
    sample: Sample,
    *,
    score: float = 1.0,
    format_score: float = 0.0,
    compat: Literal["tool_n1"] | None = None,
) -> Score | Abstain:
    """`score` when the response makes exactly the gold calls, in any order, else `format_score`.

    Calls inside thinking tags do not count. Malformed calls (with an argument given twice, say) are
    worth 0, and so is no call where some are wanted.

    Args:
        sample: its ground truth is a list of ``{"name", "arguments"}``, or its JSON; an empty list
            means that the right response makes no call.
        score: of the gold calls.
        format_score: of other calls in the right form.
        compat: score as this published code does.

    >>> said = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    >>> toolcall(Sample("", said, [{"name": "f", "arguments": {}}])).value
    1.0
    """
    gold = _gold_items(sample.ground_truth)
    if gold is None:
        return no_gold(sample.ground_truth, wanted="a list of {name, arguments}")
    items, wanted = gold
    if compat is not None:
        right = _published(sample.response, items)
        return Score(score if right else 0.0, "equal" if right else "not equal by Tool-N1's rule")
    try:
        said = calls_of(spoken(sample))
    except (ValueError, RecursionError) as error:
        return Score(0.0, f"malformed: {error}")
    if said == wanted:
        return Score(score, f"{said.total()} calls, all right")
    # Text without a call has no form that could be paid for.
    return Score(format_score if said else 0.0, f"{said.total()} calls, not the gold ones")


def _gold_items(ground_truth: Any) -> tuple[list[Any], Calls] | None:
    """The gold calls as they are and as a multiset; None when they cannot be read."""
    if ground_truth is None:
        return None
    try:
        value = _decoded(ground_truth)
        if hasattr(value, "tolist"):
            value = value.tolist()
        items = list(value) if isinstance(value, list | tuple) else [value]
        return items, read_calls(items)
    except (ValueError, RecursionError):
        return None


def _decoded(value: Any) -> Any:
    """`value`, read from JSON for as long as it is a text: some data sets encode it twice."""
    while isinstance(value, str):
        value = json.loads(value)
    return value


def _parsed(block: str) -> Any:
    try:
        return strict_json(block)
    except RecursionError:
        raise ValueError("a call is nested too deeply") from None


def _call(item: Any) -> Hashable:
    if not isinstance(item, Mapping):
        raise ValueError(f"a call is an object, not {type(item).__name__}")  # noqa: TRY004
    name, arguments = item.get("name"), item.get("arguments")
    if not isinstance(name, str):
        raise ValueError("a call has no name")  # noqa: TRY004 (what the text says, not what we passed)
    if isinstance(arguments, str):  # the wire format of chat completions
        arguments = _parsed(arguments)
    if not isinstance(arguments, Mapping):
        raise ValueError(f"the arguments of {name!r} are not an object")  # noqa: TRY004
    return name, _canonical(arguments)


def _canonical(value: Any) -> Hashable:
    """`value` as something to compare: equal numbers are equal, a truth value is no number."""
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, Mapping):
        return ("object", frozenset((str(key), _canonical(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return ("array", tuple(_canonical(item) for item in value))
    if hasattr(value, "tolist"):
        return _canonical(value.tolist())
    if value is None or isinstance(value, str | int | float):
        return value
    raise ValueError(f"an argument is {type(value).__name__}, which JSON has not")


def _published(response: str, gold: list[Any]) -> bool:
    """Tool-N1's rule: both think tags anywhere, only the last block, arguments as sorted JSON."""
    text = response.rpartition("<|im_start|>assistant")[2]
    blocks = pairs(text, _OPEN, _CLOSE)
    if not (blocks and "<think>" in text and "</think>" in text):
        return False
    try:
        value = json.loads(blocks[-1])
        items = [value] if isinstance(value, dict) else value
        return _as_published(items) == _as_published(gold)
    except (ValueError, TypeError, KeyError, RecursionError):
        return False


def _as_published(items: list[Any]) -> Counter[tuple[str, str]]:
    return Counter((item["name"], json.dumps(item["arguments"], sort_keys=True)) for item in items)
