"""The form of a judge's answer: how it is asked for, and how it is read."""

from __future__ import annotations

from typing import Protocol

import msgspec

from zerowait.config.schema import VerdictRule
from zerowait.judge.parsing.verdict import bounds, parse, reply_format
from zerowait.types import Abstain, Score


class VerdictForm(Protocol):
    """Two sides of one thing, so that the prompt never asks for a form that is not read."""

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The least and the greatest score; None where the form does not say."""

    @property
    def response_format(self) -> msgspec.Raw | None:
        """The request's ``response_format`` as JSON; None for none."""

    def asked(self, *, reason_first: bool) -> str:
        """What the judge is told about the form."""

    def read(self, text: str) -> Score | Abstain:
        """The verdict in an answer, or why it has none; raises nothing for any text."""


class SingleVerdict(msgspec.Struct, frozen=True):
    """A number or a word, as `rule` says."""

    rule: VerdictRule

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest score."""
        return bounds(self.rule)

    @property
    def response_format(self) -> None:
        """Nothing: the prompt says it."""
        return None

    def asked(self, *, reason_first: bool) -> str:
        """What the judge is told about the form."""
        return reply_format(self.rule, reason_first=reason_first)

    def read(self, text: str) -> Score | Abstain:
        """The verdict in an answer, or why it has none."""
        return parse(text, self.rule)
