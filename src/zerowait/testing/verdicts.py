"""Verdict texts of the fake judge: right, wrong and outside the allowed range."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from zerowait.config import VerdictRule
from zerowait.testing.comparisons import compared_responses, preference_order, ranking_text
from zerowait.testing.draws import Draws, content_draws, pick
from zerowait.testing.requested_format import RequestedFormat, requested_format
from zerowait.testing.schema_instance import schema_instance
from zerowait.testing.script import DEFAULT_VERDICT, Script

PROSE = (
    "Lorem ipsum dolor sit amet, consectetur adipiscing elit.",
    "Sed ut perspiciatis unde omnis iste natus error sit voluptatem (…)",
    "```\nquis autem vel eum iure\n```",
)
REFUSALS = (
    "I'm sorry, but I can't help with that.",
    "I cannot assist with evaluating this content.",
)
_UNSPECIFIED = RequestedFormat()
EMPTY = ("", " \n", None)


def verdict_for(script: Script, messages: Sequence[Mapping[str, Any]]) -> str:
    """The content of the fault-free reply of a judge with this script to `messages`.

    >>> verdict_for(Script(seed=7), [{"role": "user", "content": "2+2=4"}])
    '6'
    """
    asked, form = script_for_request(script, messages, {})
    return verdict_texts(asked, messages, content_draws(script.seed, messages), form).right()


def script_for_request(
    script: Script, messages: Sequence[Mapping[str, Any]], body: Mapping[str, Any]
) -> tuple[Script, RequestedFormat]:
    """The script with the verdict format of the request, where the script has none of its own.

    Args:
        script: of the judge.
        messages: of the request.
        body: the decoded request.
    """
    if script.verdict is not DEFAULT_VERDICT:
        return script, RequestedFormat()
    if script.structured == "ignored":
        body = {name: value for name, value in body.items() if name != "response_format"}
    form = requested_format(messages, body)
    if form.rule is not None:
        script = msgspec.structs.replace(script, verdict=form.rule)
    if form.is_object and script.reply == "{verdict}":
        key, quote = ("score", "") if script.verdict.choice is None else ("verdict", '"')
        script = msgspec.structs.replace(script, reply=f'{{"{key}": {quote}{{verdict}}{quote}}}')
    return script, form


class VerdictTexts(NamedTuple):
    """Contents in the format that a request asks for; a reply has one of them.

    Args:
        right: with the right verdict.
        wrong: with a wrong one.
        outside: with one that the request does not allow.
    """

    right: Callable[[], str]
    wrong: Callable[[], str]
    outside: Callable[[], str]


def verdict_texts(
    script: Script,
    messages: Sequence[Mapping[str, Any]],
    content: Draws,
    form: RequestedFormat = _UNSPECIFIED,
) -> VerdictTexts:
    """The verdict texts for a request; an order of labels where it compares responses.

    Args:
        script: of the judge.
        messages: of the request.
        content: the draws of the messages' content.
        form: the format that the request asks for; the script's own verdict has priority.
    """
    responses = compared_responses(messages)
    if responses:
        return _order_texts(script, preference_order(responses, script.prefers))
    if form.schema is not None:
        return _schema_texts(form.schema, content.first)
    if form.criteria:
        return _criteria_texts(script.verdict, form.criteria, content.first)
    return VerdictTexts(
        lambda: content_for(script, content),
        lambda: wrong_content_for(script, content),
        lambda: outside_content_for(script, content),
    )


def _order_texts(script: Script, labels: Sequence[str]) -> VerdictTexts:
    return VerdictTexts(
        lambda: _in_reply_format(script, ranking_text(labels)),
        lambda: _in_reply_format(script, ranking_text(labels[::-1])),
        lambda: _in_reply_format(script, "Verdict: all of them"),
    )


def _schema_texts(schema: Any, point: float) -> VerdictTexts:
    """Two objects that fit a schema, and one whose numbers are too great for it."""
    return VerdictTexts(
        lambda: _json(schema_instance(schema, point)),
        lambda: _json(schema_instance(schema, (point + 0.5) % 1.0)),
        lambda: _json(schema_instance(schema, point, outside=True)),
    )


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _criteria_texts(rule: VerdictRule, names: Sequence[str], first: float) -> VerdictTexts:
    """A line for each criterion."""
    points = [(first + 0.3 * n) % 1.0 for n in range(len(names))]

    def wrong(point: float) -> str:
        return verdict_text(rule, (point + 0.5) % 1.0, but=verdict_text(rule, point))

    return VerdictTexts(
        lambda: _lines(names, (verdict_text(rule, point) for point in points)),
        lambda: _lines(names, map(wrong, points)),
        lambda: _lines(names, (_outside(rule, point) for point in points)),
    )


def _lines(names: Sequence[str], verdicts: Iterator[str]) -> str:
    return "\n".join(f"{name}: {verdict}" for name, verdict in zip(names, verdicts, strict=True))


def content_for(script: Script, content: Draws) -> str:
    """The content with the right verdict, chosen by the draws of the messages' content."""
    return _in_reply_format(script, verdict_text(script.verdict, content.first))


def wrong_content_for(script: Script, content: Draws) -> str:
    """The content with a wrong verdict in the right format."""
    right = verdict_text(script.verdict, content.first)
    # Half the range away, which is another value in every range with at least two
    return _in_reply_format(
        script, verdict_text(script.verdict, (content.first + 0.5) % 1.0, but=right)
    )


def outside_content_for(script: Script, content: Draws) -> str:
    """The content with a verdict in the right format that the rule does not allow."""
    return _in_reply_format(script, _outside(script.verdict, content.second))


def verdict_text(rule: VerdictRule, point: float, *, but: str | None = None) -> str:
    """The verdict at a position in the rule's values.

    Args:
        rule: the allowed verdicts.
        point: the position, in [0, 1).
        but: a choice that is left out.

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


def _in_reply_format(script: Script, verdict: str) -> str:
    return script.reply.replace("{verdict}", verdict)
