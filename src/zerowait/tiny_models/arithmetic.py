"""Tiny policy that answers which number comes next: RL with verl takes a minute on two cores.

The policy is a Qwen2 of about a hundred thousand parameters. Supervised training of a few seconds
makes it know the number, wrap it in one of three tags at random, most often a wrong one, and add
filler words. A rule that reads ``<answer>`` scores it 0.1 to 0.2 at first, so RL has something to
learn at once: the right tag, and to be brief.
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
FILLER_WORDS = ("well", "hmm", "so", "now", "okay", "right")
TAGS = ("answer", "reply", "result")
_TAG_SHARES = (3, 4, 3)  # the likeliest response has a tag that the rule does not read
ARITHMETIC_SOURCE = "tiny/neighbours"

_VOCABULARY = 384
_BATCHES = 500
_BATCH_SIZE = 32


class ArithmeticQuestion(msgspec.Struct, frozen=True):
    """A question and its right answer."""

    text: str
    answer: str


def arithmetic_questions() -> list[ArithmeticQuestion]:
    """All questions.

    >>> arithmetic_questions()[0]
    ArithmeticQuestion(text='What comes after zero?', answer='one')
    """
    pairs = pairwise(NUMBERS)
    return [ArithmeticQuestion(f"What comes after {one}?", two) for one, two in pairs]


def response(answer: str, *, tag: str = TAGS[0], filler: Sequence[str] = ()) -> str:
    """The text of a response in one of the forms of the supervised examples.

    >>> response("one", filler=["well"])
    '<answer>one</answer> well'
    """
    return " ".join([f"<{tag}>{answer}</{tag}>", *filler])


def make_arithmetic_policy(folder: str | Path, *, rows: int = 256, seed: int = 0) -> TinyFiles:
    """Make the policy and its data files in `folder`; takes about ten seconds.

    Args:
        folder: is created; files of the same names are replaced.
        rows: number of rows in the training file; the validation file has each question once.
        seed: of the rows' order, the weights and the supervised examples.
    """
    draw = random.Random(seed)
    questions = arithmetic_questions()
    chosen = [draw.choice(questions) for _ in range(rows)]
    tokenizer = _tokenizer()
    model = train_policy(tokenizer, _examples(tokenizer, questions, draw), seed=seed)
    return save_tiny(
        Path(folder),
        model,
        tokenizer,
        train=_rows(chosen),
        validation=_rows(questions),
    )


def _rows(questions: Sequence[ArithmeticQuestion]) -> list[dict[str, Any]]:
    rows = []
    for index, question in enumerate(questions):
        even = NUMBERS.index(question.answer) % 2 == 0
        row = question_row(question.text, question.answer, index=index, source=ARITHMETIC_SOURCE)
        rows.append(row | {"extra_info": {"index": index, "even": even}})
    return rows


def _tokenizer() -> Any:
    texts = [question.text for question in arithmetic_questions()]
    texts += [response(number, tag=tag, filler=FILLER_WORDS) for number in NUMBERS for tag in TAGS]
    return tokenizer_for(texts, vocabulary=_VOCABULARY)


def _examples(
    tokenizer: Any, questions: Sequence[ArithmeticQuestion], draw: random.Random
) -> Iterator[list[SftExample]]:
    """Batches of right answers in all forms; the number's first token is the decisive one."""
    opening = len(tokenizer.encode(f"<{TAGS[0]}>", add_special_tokens=False))
    prompts = {question: prompt_tokens(tokenizer, question.text) for question in questions}
    for _ in range(_BATCHES):
        batch = []
        for _ in range(_BATCH_SIZE):
            question = draw.choice(questions)
            filler = [draw.choice(FILLER_WORDS) for _ in range(draw.randint(0, 4))]
            (tag,) = draw.choices(TAGS, _TAG_SHARES)
            text = response(question.answer, tag=tag, filler=filler)
            prompt = prompts[question]
            tokens = (
                *prompt,
                *tokenizer.encode(text, add_special_tokens=False),
                tokenizer.eos_token_id,
            )
            labelled = tuple(range(len(prompt), len(tokens)))
            batch.append(SftExample(tokens, labelled, decisive=(len(prompt) + opening,)))
        yield batch
