"""The action in a turn of the model: a search, an answer, or an invalid one.

Reference:
    Jin et al. 2025, Search-R1 (arXiv:2503.09516), section 3.2.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

Decode: TypeAlias = Callable[[Sequence[int]], str]

SEARCH_END: Final = "</search>"
ANSWER_END: Final = "</answer>"
STOP_TEXTS: Final = (SEARCH_END, ANSWER_END)
_ACTION = re.compile(r"<(search|answer)>(.*?)</\1>", re.DOTALL)


class Action(msgspec.Struct, frozen=True):
    """The action of one turn.

    Args:
        kind: ``invalid`` where the turn has neither a whole search nor a whole answer.
        text: the query or the answer, without surrounding white space.
    """

    kind: Literal["search", "answer", "invalid"]
    text: str = ""


def cut(text: str) -> str:
    """`text` up to the end of its first ``</search>``, else of its first ``</answer>``, else whole.

    >>> cut("<search>who</search> I guess <answer>Bo</answer>")
    '<search>who</search>'
    >>> cut("<answer>Bo</answer> bye")
    '<answer>Bo</answer>'
    """
    for end in (SEARCH_END, ANSWER_END):
        before, found, _ = text.partition(end)
        if found:
            return before + found
    return text


def action_in(text: str) -> Action:
    """The first complete search or answer in `text`; an empty search is invalid.

    >>> action_in("<think>hm</think><search> capital of Peru </search>")
    Action(kind='search', text='capital of Peru')
    >>> action_in("<search> </search>").kind, action_in("<answer>Lima").kind
    ('invalid', 'invalid')
    """
    match = _ACTION.search(text)
    if match is None:
        return Action("invalid")
    inner = match[2].strip()
    if match[1] == "answer":
        return Action("answer", inner)
    return Action("search", inner) if inner else Action("invalid")


def queries_in(text: str, most: int) -> tuple[str, ...]:
    r"""The queries of one search, one per line, without repeats, at most `most`.

    With ``most=1`` the whole text is one query; line breaks become spaces.

    >>> queries_in("capital of Peru\n\ncapital of Chile\ncapital of Peru", most=3)
    ('capital of Peru', 'capital of Chile')
    """
    if most == 1:
        return (" ".join(text.split()),)
    lines = dict.fromkeys(" ".join(line.split()) for line in text.splitlines())
    lines.pop("", None)
    return tuple(lines)[:most]


def kept_tokens(tokens: Sequence[int], decode: Decode) -> int:
    """Number of the sampled `tokens` that belong to the turn: the fewest that contain all of `cut`.

    The last of them may contain characters behind the closing tag. It is kept whole, since the
    policy is trained on the tokens that were sampled and text is never encoded again.

    Args:
        tokens: of one turn, as sampled.
        decode: the tokenizer's, special tokens included.
    """
    text = decode(tokens)
    kept = cut(text)
    if kept == text:
        return len(tokens)
    end = SEARCH_END if kept.endswith(SEARCH_END) else ANSWER_END
    return bisect_left(range(len(tokens)), 1, key=lambda count: end in decode(tokens[:count]))
