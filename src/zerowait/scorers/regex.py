"""The scorer ``regex``: a pattern of the user's own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from zerowait.errors import ConfigError
from zerowait.scorers.answers import gold_texts, no_gold, shown
from zerowait.scorers.thinking import mentions_thinking, spoken
from zerowait.types import Abstain, Sample, Score


def last_match(text: str, pattern: str, *, ignore_case: bool = False) -> str | None:
    r"""What the last match of `pattern` captured: its group, or all of it; None without a match.

    >>> last_match("x=1, x=2", r"x=(\d)"), last_match("x=1", r"y")
    ('2', None)
    """
    matches = _compiled(pattern, ignore_case=ignore_case).findall(text)
    return str(matches[-1]) if matches else None


def regex(
    sample: Sample,
    *,
    pattern: str,
    equals_gold: bool = False,
    ignore_case: bool = False,
    score: float = 1.0,
    format_score: float = 0.0,
) -> Score | Abstain:
    r"""`score` when `pattern` is found in the response, else 0.

    Thinking is searched only where the pattern mentions a tag of thinking.

    Args:
        sample: its response is searched.
        pattern: a regular expression with at most one group.
        equals_gold: the last match (its group, if it has one) has to be a gold answer.
        ignore_case: for the pattern, and for the comparison with the gold answer.
        score: of a match.
        format_score: with `equals_gold`, of a match that is no gold answer.

    >>> regex(Sample("", "Answer: B", "B"), pattern=r"Answer: (\w)", equals_gold=True).value
    1.0
    """
    golds = gold_texts(sample.ground_truth) if equals_gold else []
    if equals_gold and not golds:
        return no_gold(sample.ground_truth)
    text = sample.response if mentions_thinking(pattern) else spoken(sample)
    said = last_match(text, pattern, ignore_case=ignore_case)
    if said is None:
        return Score(0.0, "the pattern is not in the response")
    if not equals_gold:
        return Score(score, f"found {shown(said)}")
    right = _said_of(said, golds, ignore_case=ignore_case)
    return Score(score if right else format_score, f"answered {shown(said)}")


def check_regex(options: Mapping[str, Any]) -> None:
    """Raises a ConfigError unless the pattern compiles and has at most one group."""
    pattern = options["pattern"]
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ConfigError(f"pattern: {pattern!r} is no regular expression: {error}") from None
    if groups > 1:
        raise ConfigError(f"pattern: {pattern!r} has {groups} groups; write all but one as (?:…)")


def _said_of(said: str, golds: Sequence[str], *, ignore_case: bool) -> bool:
    """Whether the captured text is one of the gold answers."""
    if ignore_case:
        return said.strip().casefold() in {gold.strip().casefold() for gold in golds}
    return said.strip() in {gold.strip() for gold in golds}


@lru_cache(maxsize=64)
def _compiled(pattern: str, *, ignore_case: bool) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE if ignore_case else 0)
