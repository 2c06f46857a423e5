"""What the fake judge says: the right verdict of some messages, and everything but that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from zerowait.config import VerdictRule
from zerowait.testing.draws import Draws, content_draws, pick
from zerowait.testing.orders import compared, order_text, preferred
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
    return words_for(script, messages, content_draws(script.seed, messages)).right


class Words(NamedTuple):
    """Contents of the form that a request asks for.

    Args:
        right: with the verdict of this judge.
        wrong: with another one.
        outside: with one that the request does not allow.
    """

    right: str
    wrong: str
    outside: str


def words_for(script: Script, messages: Sequence[Mapping[str, Any]], content: Draws) -> Words:
    """What may be said to `messages`; a request that compares responses is answered with an order.

    Args:
        script: the judge's.
        messages: of the request.
        content: the draws of the messages' content.
    """
    shown = compared(messages)
    if shown:
        labels = preferred(shown, script.prefers)
        right, wrong = order_text(labels), order_text(labels[::-1])
        return Words(*(_around(script, text) for text in (right, wrong, "Verdict: all of them")))
    return Words(
        content_for(script, content),
        wrong_content_for(script, content),
        outside_content_for(script, content),
    )


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
