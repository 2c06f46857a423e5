"""What the fake judge says: the right verdict of some messages, and everything but that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zerowait.config import VerdictRule
from zerowait.testing.draws import Draws, content_draws, pick
from zerowait.testing.script import Script

PROSE = (
    "Lorem ipsum dolor sit amet, consectetur adipiscing elit.",
    "Sed ut perspiciatis unde omnis iste natus error sit voluptatem (…)",
    "```\nquis autem vel eum iure\n```",
)
REFUSALS = (
    "I'm sorry, but I can't help with that.",
    "I cannot assist with evaluating this content.",
)
EMPTY = ("", " \n", None)


def verdict_for(script: Script, messages: Sequence[Mapping[str, Any]]) -> str:
    """The content with which a judge of this script answers `messages` when nothing goes wrong.

    >>> verdict_for(Script(seed=7), [{"role": "user", "content": "2+2=4"}])
    '6'
    """
    return content_for(script, content_draws(script.seed, messages))


def content_for(script: Script, content: Draws) -> str:
    """The right content, from the draws of the messages' content."""
    return _around(script, verdict_text(script.verdict, content.first))


def wrong_content_for(script: Script, content: Draws) -> str:
    """Content of the right form with another verdict than the right one."""
    right = verdict_text(script.verdict, content.first)
    # half a turn away: another value in every range that has two
    return _around(script, verdict_text(script.verdict, (content.first + 0.5) % 1.0, but=right))


def outside_content_for(script: Script, content: Draws) -> str:
    """Content of the right form with a verdict that the rule does not allow."""
    return _around(script, _outside(script.verdict, content.second))


def verdict_text(rule: VerdictRule, point: float, *, but: str | None = None) -> str:
    """The verdict at `point` in [0, 1) of the rule's values, never `but`.

    >>> verdict_text(VerdictRule(integer=(1, 10)), 0.99)
    '10'
    """
    if rule.choice is not None:
        words = [word for word in rule.choice if word != but]
        return str(pick(point, words))
    if rule.integer is not None:
        low, high = rule.integer
        return str(low + int(point * (high - low + 1)))
    assert rule.number is not None  # noqa: S101 - a rule has exactly one of the three
    low_x, high_x = rule.number
    return repr(min(max(round(low_x + point * (high_x - low_x), 4), low_x), high_x))


def _outside(rule: VerdictRule, point: float) -> str:
    if rule.choice is not None:
        return "perhaps" if "perhaps" not in rule.choice else "undecided"
    low, high = rule.integer or rule.number or (0, 0)
    by = 1 + int(point * 90)
    return str(high + by) if point < 0.75 else str(low - by)


def _around(script: Script, verdict: str) -> str:
    return script.reply.replace("{verdict}", verdict)
