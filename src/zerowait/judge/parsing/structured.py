"""Structured verdicts: JSON that the endpoint enforces, token by token, while the judge writes.

The request carries a JSON schema as ``response_format``, which OpenAI, vLLM, SGLang, llama.cpp,
Ollama and most providers enforce. The prompt asks for the same object in words, so that a server
which ignores the field is answered by the model all the same; whatever comes back instead is read
as prose. A server that refuses the field is asked by the prompt alone: see
`zerowait.engine.judging.cached_judge`.

The schemas keep to what strict modes allow: every object names all its properties, requires them
and allows no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import msgspec

from zerowait.config.schema import VerdictRule
from zerowait.judge.parsing.criteria import CriteriaForm, weighted
from zerowait.judge.parsing.loose_json import decode_whole
from zerowait.judge.parsing.readers import bounds
from zerowait.judge.parsing.verdict import expected_form, one_line, parse
from zerowait.types import Abstain, Outcome, Score

_MOST_LISTED: Final = 101
"""So many whole numbers are listed one by one, which more servers enforce than a range."""


def json_schema_format(schema: Mapping[str, Any], *, strict: bool) -> msgspec.Raw:
    """OpenAI's ``response_format`` for `schema`, its properties in the order given.

    Args:
        schema: of the whole answer.
        strict: whether the model is held to it; OpenAI then refuses schemas with open objects.
    """
    form = {"name": "verdict", "schema": schema, "strict": strict}
    return msgspec.Raw(msgspec.json.encode({"type": "json_schema", "json_schema": form}))


def closed_object(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


class _Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The object that a judge was asked for; another key may name another verdict, or a scale."""

    score: int | float | None = None
    verdict: str | None = None
    reason: str = ""


_decode: Final = msgspec.json.Decoder(_Written).decode


class StructuredVerdict:
    """One number or one word in a JSON object, behind the reasons where they come first.

    Args:
        rule: which numbers or words.
        reason_first: whether the object begins with the judge's reasons.
    """

    def __init__(self, rule: VerdictRule, *, reason_first: bool) -> None:
        self.rule = rule
        self.bounds = bounds(rule)
        self.enforced = next(n for n in ("integer", "number", "choice") if getattr(rule, n))
        self._reason_first = reason_first
        self._key = "score" if rule.choice is None else "verdict"

    @cached_property
    def response_format(self) -> msgspec.Raw:
        """The schema of the object."""
        reason = {"reason": {"type": "string"}} if self._reason_first else {}
        schema = closed_object({**reason, self._key: value_schema(self.rule)})
        return json_schema_format(schema, strict=True)

    @cached_property
    def _instruction(self) -> str:
        sign = "N" if self.rule.choice is None else '"WORD"'
        reason = '"reason": "...", ' if self._reason_first else ""
        where = '"reason" gives your reasons in a few sentences and ' if reason else ""
        if self.rule.choice is not None:
            form = f"WORD is one of: {', '.join(self.rule.choice)}."
        else:
            low, high = self.bounds
            kind = "a whole number" if self.rule.integer else "a decimal number"
            form = f"N is {kind} from {low:.15g} (lowest) to {high:.15g} (highest)."
        return (
            f"Reply with one JSON object of this form and nothing else:\n"
            f'{{{reason}"{self._key}": {sign}}}\nwhere {where}{form}'
        )

    def asked(self, *, reason_first: bool) -> str:
        """The instruction in which form to answer, with or without reasons as it was made.

        >>> form = StructuredVerdict(VerdictRule(integer=(1, 10)), reason_first=False)
        >>> print(form.asked(reason_first=False))
        Reply with one JSON object of this form and nothing else:
        {"score": N}
        where N is a whole number from 1 (lowest) to 10 (highest).
        """
        del reason_first
        return self._instruction

    def read(self, text: str) -> Score | Abstain:
        """The verdict in a reply's text, which is the object, or whatever else a judge writes."""
        try:
            written = _decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return parse(text, self.rule)
        said, other = (written.score, written.verdict)[:: 1 if self._key == "score" else -1]
        score = None if other is not None else allowed(said, self.rule, self.bounds)
        said_twice = text.count(f'"{self._key}"') > 1  # which one counts?
        is_first = bool(written.reason) and text.rfind('"reason"') > text.find(f'"{self._key}"')
        if score is None or said_twice or is_first:  # a reason behind it may take it back
            return parse(text, self.rule)
        return Score(score.value, one_line(written.reason), score.detail)


def allowed(said: Any, rule: VerdictRule, within: tuple[float, float]) -> Score | None:
    """The score of a number or word that `rule` allows; None for any other value.

    Args:
        said: what the judge wrote, of whatever type.
        rule: the allowed verdicts.
        within: their least and greatest number, by `rule`.
    """
    if rule.choice is not None:
        if not isinstance(said, str) or said not in rule.choice:
            return None
        return Score(1.0 - rule.choice.index(said) / (len(rule.choice) - 1), "", {"verdict": said})
    if isinstance(said, bool) or not isinstance(said, int | float):
        return None
    low, high = within
    if not low <= said <= high:  # NaN and infinity are in no range
        return None
    if rule.integer is None:
        return Score(float(said), "", {"verdict": float(said)})
    return Score(float(said), "", {"verdict": int(said)}) if said == int(said) else None


def value_schema(rule: VerdictRule) -> dict[str, Any]:
    """The schema of one number or word under `rule`.

    >>> value_schema(VerdictRule(integer=(1, 3)))
    {'type': 'integer', 'enum': [1, 2, 3]}
    """
    if rule.choice is not None:
        return {"type": "string", "enum": rule.choice}
    if rule.integer is None:
        low, high = bounds(rule)
        return {"type": "number", "minimum": low, "maximum": high}
    first, last = rule.integer
    if last - first < _MOST_LISTED:
        return {"type": "integer", "enum": list(range(first, last + 1))}
    return {"type": "integer", "minimum": first, "maximum": last}


class StructuredCriteria(msgspec.Struct, frozen=True):
    """One verdict for each named criterion, in one JSON object.

    Args:
        form: the same in the prompt's words; it reads whatever is no such object.
        reason_first: whether the object begins with the judge's reasons.
    """

    form: CriteriaForm
    reason_first: bool

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest score."""
        return self.form.bounds

    @property
    def enforced(self) -> str:
        """A form of its own, beside those of single verdicts."""
        return "criteria"

    @property
    def response_format(self) -> msgspec.Raw:
        """The schema of the object."""
        verdict = value_schema(self.form.rule)
        properties: dict[str, Any] = {"reason": {"type": "string"}} if self.reason_first else {}
        properties |= {criterion.name: verdict for criterion in self.form.criteria}
        return json_schema_format(closed_object(properties), strict=True)

    def asked(self, *, reason_first: bool) -> str:
        """The instruction in which form to answer."""
        del reason_first
        sign = '"WORD"' if self.form.rule.choice else "N"
        parts = ['"reason": "..."'] if self.reason_first else []
        parts += [f'"{criterion.name}": {sign}' for criterion in self.form.criteria]
        reason = '"reason" gives your reasons in a few sentences and ' if self.reason_first else ""
        best = "" if self.form.rule.choice else "; the highest number is the best"
        return (
            f"Reply with one JSON object of this form and nothing else:\n{{{', '.join(parts)}}}\n"
            f"where {reason}each {sign.strip(chr(34))} is {expected_form(self.form.rule)}{best}."
        )

    def read(self, text: str) -> Score | Abstain:
        """The weighted mean of the verdicts in an answer."""
        try:
            written = decode_whole(text)
        except (ValueError, RecursionError):
            return self.form.read(text)
        names = [criterion.name for criterion in self.form.criteria]
        if written is None or written.keys() - {"reason"} != set(names):
            return self.form.read(text)
        outcomes: dict[str, Outcome] = {}
        for name in names:
            verdict = allowed(written[name], self.form.rule, self.bounds)
            if verdict is None:
                return self.form.read(text)
            outcomes[name] = verdict
        score = weighted(self.form.criteria, outcomes)
        reason = written.get("reason")
        if isinstance(score, Abstain) or not isinstance(reason, str):
            return score
        return msgspec.structs.replace(score, why=one_line(reason))
