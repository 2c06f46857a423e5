"""The form of a judge's answer: the instruction that asks for it, and the parser that reads it."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import msgspec

from zerowait.config.schema import VerdictRule
from zerowait.judge.parsing.readers import bounds
from zerowait.judge.parsing.verdict import parse, reply_format
from zerowait.types import Abstain, Score


class VerdictForm(Protocol):
    """Instruction and parser in one value, so that a prompt never asks for an unreadable form."""

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The least and the greatest score; None where the form does not declare them."""

    @property
    def response_format(self) -> msgspec.Raw | None:
        """The request's ``response_format`` as JSON; None for a request without one."""

    @property
    def enforced(self) -> str:
        """What the endpoint is asked to enforce, by name; empty where the prompt alone says it.

        An endpoint that refuses the form of one verdict may know that of another, so each kind has
        a name of its own.
        """

    def asked(self, *, reason_first: bool) -> str:
        """The instruction in which form to answer, with reasons before the verdict or without."""

    def read(self, text: str) -> Score | Abstain:
        """The verdict in a reply's text, or why it has none; raises nothing for any text."""


class SingleVerdict:
    """One number or one word.

    Args:
        rule: which numbers or words.
    """

    response_format: None = None  # the prompt says it
    enforced: str = ""

    def __init__(self, rule: VerdictRule) -> None:
        self.rule = rule
        self.bounds = bounds(rule)

    @cached_property
    def _instructions(self) -> tuple[str, str]:
        return reply_format(self.rule, reason_first=False), reply_format(self.rule)

    def asked(self, *, reason_first: bool) -> str:
        """The instruction in which form to answer."""
        return self._instructions[reason_first]

    def read(self, text: str) -> Score | Abstain:
        """The verdict in a reply's text, or why it has none."""
        return parse(text, self.rule)
