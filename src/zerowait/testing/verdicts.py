"""What the fake judge says: the right verdict of some messages, and everything but that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from zerowait.config import VerdictRule
from zerowait.testing.draws import Draws, content_draws, pick
from zerowait.testing.requested_format import AskedForm, asked_form, instance
from zerowait.testing.comparisons import compared, order_text, preferred
from zerowait.testing.script import AS_ASKED, Script

PROSE = (
    "Lorem ipsum dolor sit amet, consectetur adipiscing elit.",
    "Sed ut perspiciatis unde omnis iste natus error sit voluptatem (…)",
    "```\nquis autem vel eum iure\n```",
)
REFUSALS = (
    "I'm sorry, but I can't help with that.",
    "I cannot assist with evaluating this content.",
)
_ANY = AskedForm()
EMPTY = ("", " \n", None)


def verdict_for(script: Script, messages: Sequence[Mapping[str, Any]]) -> str:
    """The content with which a judge of this script answers `messages` when nothing goes wrong.

    >>> verdict_for(Script(seed=7), [{"role": "user", "content": "2+2=4"}])
    '6'
    """
    asked, form = as_asked(script, messages, {})
    return verdict_words_for(asked, messages, content_draws(script.seed, messages), form).right


def as_asked(
    script: Script, messages: Sequence[Mapping[str, Any]], body: Mapping[str, Any]
) -> tuple[Script, AskedForm]:
    """The script with the verdict that a request asks for, where it names none of its own."""
    if script.verdict is not AS_ASKED:
        return script, AskedForm()
    form = asked_form(messages, body)
    if form.rule is not None:
        script = msgspec.structs.replace(script, verdict=form.rule)
    if form.is_object and script.reply == "{verdict}":
        key, quote = ("score", "") if script.verdict.choice is None else ("verdict", '"')
        script = msgspec.structs.replace(script, reply=f'{{"{key}": {quote}{{verdict}}{quote}}}')
    return script, form


class VerdictWords(NamedTuple):
    """Contents of the form that a request asks for.

    Args:
        right: with the verdict of this judge.
        wrong: with another one.
        outside: with one that the request does not allow.
    """

    right: str
    wrong: str
    outside: str


def verdict_words_for(
    script: Script,
    messages: Sequence[Mapping[str, Any]],
    content: Draws,
    form: AskedForm = _ANY,
) -> VerdictWords:
    """What may be said to `messages`; a request that compares responses is answered with an order.

    Args:
        script: the judge's.
        messages: of the request.
        content: the draws of the messages' content.
        form: that the request asks for; a verdict that the script names counts before it.
    """
    shown = compared(messages)
    if shown:
        labels = preferred(shown, script.prefers)
        right, wrong = order_text(labels), order_text(labels[::-1])
        return VerdictWords(
            *(_around(script, text) for text in (right, wrong, "Verdict: all of them"))
        )
    if form.schema is not None:
        return _fitting(form.schema, content)
    if form.criteria:
        return VerdictWords(*(_lines(form.criteria, each) for each in _each(script, form, content)))
    return VerdictWords(
        content_for(script, content),
        wrong_content_for(script, content),
        outside_content_for(script, content),
    )


def _fitting(schema: Any, content: Draws) -> VerdictWords:
    """Objects that fit a schema, and one whose numbers are too great for it."""
    values = (
        instance(schema, content.first),
        instance(schema, (content.first + 0.5) % 1.0),
        instance(schema, content.first, outside=True),
    )
    return VerdictWords(*(msgspec.json.encode(value).decode() for value in values))


def _each(script: Script, form: AskedForm, content: Draws) -> Iterator[Iterator[str]]:
    """The verdicts of the criteria: right, wrong, and not allowed."""
    points = [(content.first + 0.3 * n) % 1.0 for n in range(len(form.criteria))]
    rule = script.verdict
    right = [verdict_text(rule, point) for point in points]
    yield iter(right)
    wrong = zip(points, right, strict=True)
    yield (verdict_text(rule, (point + 0.5) % 1.0, but=but) for point, but in wrong)
    yield (_outside(rule, point) for point in points)


def _lines(names: Sequence[str], verdicts: Iterator[str]) -> str:
    return "\n".join(f"{name}: {said}" for name, said in zip(names, verdicts, strict=True))


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
