"""Prompt of a search agent: instructions and question."""

from __future__ import annotations

from zerowait.types import Message

_INSTRUCTIONS = """\
Answer the question below. Reason inside <think> and </think> before every action, and again each \
time you have read something new.

If you lack a fact, look it up: write a short query inside <search> and </search>. What was found \
comes back between <information> and </information>. You may search several times, with different \
queries.

As soon as you know enough, write the final answer inside <answer> and </answer>: the answer \
alone, without an explanation.

Question: """


def search_prompt(question: str) -> str:
    """The instructions and the question, as one text; a missing question mark is added.

    >>> search_prompt("Who wrote Emma").splitlines()[-1]
    'Question: Who wrote Emma?'
    """
    question = question.strip()
    return f"{_INSTRUCTIONS}{question}{'' if question.endswith('?') else '?'}"


def search_messages(question: str) -> list[Message]:
    """`search_prompt` as the one user message of a chat."""
    return [{"role": "user", "content": search_prompt(question)}]
