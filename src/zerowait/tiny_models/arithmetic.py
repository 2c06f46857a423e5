"""A policy, a tokenizer and questions small enough to train with verl in a minute on two cores.

The questions ask which number comes after another. The policy is a Qwen2 of about a hundred
thousand parameters that was taught, for a few seconds, to know the number, to wrap it in one of
three tags at random, most often a wrong one, and to go on with idle words. A rule that reads
``<answer>`` gives it one or two points in ten at first, so there is something to learn from rewards
at once: the form, and to be brief.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from zerowait.tiny_models.policy import (
    SftExample,
    TinyFiles,
    prompt_tokens,
    question_row,
    save_tiny,
    tokenizer_for,
    train_policy,
)

# fmt: off
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
           "eleven")
# fmt: on
IDLE_WORDS = ("well", "hmm", "so", "now", "okay", "right")
TAGS = ("answer", "reply", "result")
_TAG_SHARES = (3, 4, 3)  # so that the likeliest response is one that no rule reads
ARITHMETIC_SOURCE = "tiny/neighbours"

_VOCABULARY = 384
_LESSONS = 500
_LESSON = 32


class ArithmeticQuestion(msgspec.Struct, frozen=True):
    """A question and its right answer."""

    text: str
    answer: str


def arithmetic_questions() -> list[ArithmeticQuestion]:
    """All questions there are.

    >>> questions()[0]
    Question(text='What comes after zero?', answer='one')
    """
    pairs = pairwise(NUMBERS)
    return [ArithmeticQuestion(f"What comes after {one}?", two) for one, two in pairs]


def response(answer: str, *, tag: str = TAGS[0], idle: Sequence[str] = ()) -> str:
    """The text of a response in one of the forms that the policy was taught.

    >>> response("one", idle=["well"])
    '<answer>one</answer> well'
    """
    return " ".join([f"<{tag}>{answer}</{tag}>", *idle])


def make_arithmetic_policy(folder: str | Path, *, rows: int = 256, seed: int = 0) -> TinyFiles:
    """A half-taught tiny policy with data in `folder`: about ten seconds, most of it teaching.

    Args:
        folder: is made; what is in it under the same names is replaced.
        rows: of the training file; the validation file has each question once.
        seed: of the rows' order, of the weights and of the lessons.
    """
    draw = random.Random(seed)
    asked = arithmetic_questions()
    chosen = [draw.choice(asked) for _ in range(rows)]
    tokenizer = _tokenizer()
    model = train_policy(tokenizer, _lessons(tokenizer, asked, draw), seed=seed)
    return save_tiny(
        Path(folder),
        model,
        tokenizer,
        train=_rows(chosen),
        validation=_rows(asked),
    )


def _rows(asked: Sequence[ArithmeticQuestion]) -> list[dict[str, Any]]:
    rows = []
    for index, question in enumerate(asked):
        even = NUMBERS.index(question.answer) % 2 == 0
        row = question_row(question.text, question.answer, index=index, source=ARITHMETIC_SOURCE)
        rows.append(row | {"extra_info": {"index": index, "even": even}})
    return rows


def _tokenizer() -> Any:
    texts = [question.text for question in arithmetic_questions()]
    texts += [response(number, tag=tag, idle=IDLE_WORDS) for number in NUMBERS for tag in TAGS]
    return tokenizer_for(texts, vocabulary=_VOCABULARY)


def _lessons(
    tokenizer: Any, asked: Sequence[ArithmeticQuestion], draw: random.Random
) -> Iterator[list[SftExample]]:
    """Right answers in each of the forms; the first token of the number has to be known."""
    opening = len(tokenizer.encode(f"<{TAGS[0]}>", add_special_tokens=False))
    prompts = {question: prompt_tokens(tokenizer, question.text) for question in asked}
    for _ in range(_LESSONS):
        lesson = []
        for _ in range(_LESSON):
            question = draw.choice(asked)
            idle = [draw.choice(IDLE_WORDS) for _ in range(draw.randint(0, 4))]
            (tag,) = draw.choices(TAGS, _TAG_SHARES)
            said = response(question.answer, tag=tag, idle=idle)
            prompt = prompts[question]
            tokens = (
                *prompt,
                *tokenizer.encode(said, add_special_tokens=False),
                tokenizer.eos_token_id,
            )
            taught = tuple(range(len(prompt), len(tokens)))
            lesson.append(SftExample(tokens, taught, crux=(len(prompt) + opening,)))
        yield lesson
