"""A policy, a tokenizer and questions small enough to train with verl in a minute on two cores.

The questions ask which number comes after another. The policy is a Qwen2 of about a hundred
thousand parameters that was taught, for a few seconds, to know the number, to wrap it in one of
three tags at random, and to go on with idle words. A rule that reads ``<answer>`` gives it one or
two points in ten at first, so there is something to learn from rewards at once: the form, and to be
brief.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

# fmt: off
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
           "eleven")
# fmt: on
IDLE_WORDS = ("well", "hmm", "so", "now", "okay", "right")
TAGS = ("answer", "reply", "result")
DATA_SOURCE = "tiny/neighbours"

_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_VOCABULARY = 384
_LESSONS = 500
_LESSON = 32
_ENOUGH = 0.9


class Tiny(msgspec.Struct, frozen=True):
    """Where the pieces are: a model folder and two data files, as text for verl."""

    model: str
    train: str
    validation: str


class Question(msgspec.Struct, frozen=True):
    """A question and its right answer."""

    text: str
    answer: str


def questions() -> list[Question]:
    """All questions there are.

    >>> questions()[0]
    Question(text='What comes after zero?', answer='one')
    """
    pairs = pairwise(NUMBERS)
    return [Question(f"What comes after {one}?", two) for one, two in pairs]


def response(answer: str, *, tag: str = TAGS[0], idle: Sequence[str] = ()) -> str:
    """The text of a response in one of the forms that the policy was taught.

    >>> response("one", idle=["well"])
    '<answer>one</answer> well'
    """
    return " ".join([f"<{tag}>{answer}</{tag}>", *idle])


def make_tiny(folder: str | Path, *, rows: int = 256, seed: int = 0) -> Tiny:
    """A half-taught tiny policy with data in `folder`: about ten seconds, most of it teaching.

    Args:
        folder: is made; what is in it under the same names is replaced.
        rows: of the training file; the validation file has each question once.
        seed: of the rows' order, of the weights and of the lessons.
    """
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    draw = random.Random(seed)
    asked = questions()
    train = _write_rows(home / "train.jsonl", [draw.choice(asked) for _ in range(rows)])
    validation = _write_rows(home / "validation.jsonl", asked)
    tokenizer = _tokenizer()
    model = _model(tokenizer, seed=seed)
    with _one_thread():
        _teach(model, tokenizer, asked, draw)
    target = home / "model"
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    return Tiny(model=str(target), train=train, validation=validation)


def _write_rows(path: Path, asked: Sequence[Question]) -> str:
    with path.open("w") as lines:
        for index, question in enumerate(asked):
            row = {
                "data_source": DATA_SOURCE,
                "prompt": [{"role": "user", "content": question.text}],
                "ability": "counting",
                "reward_model": {"style": "rule", "ground_truth": question.answer},
                "extra_info": {
                    "index": index,
                    "even": NUMBERS.index(question.answer) % 2 == 0,
                },
            }
            lines.write(json.dumps(row) + "\n")
    return str(path)


def _tokenizer() -> Any:
    from tokenizers import (  # type: ignore[import-untyped]
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
        trainers,
    )
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        special_tokens=list(_SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [question.text for question in questions()]
    texts += [response(number, tag=tag, idle=IDLE_WORDS) for number in NUMBERS for tag in TAGS]
    core.train_from_iterator([*texts, "user\n", "assistant\n"], trainer)
    pad, _, end = _SPECIAL
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token=end, pad_token=pad)
    tokenizer.chat_template = _TEMPLATE
    return tokenizer


def _model(tokenizer: Any, *, seed: int) -> Any:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=_VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen2ForCausalLM(config)


def _teach(model: Any, tokenizer: Any, asked: Sequence[Question], draw: random.Random) -> None:
    """Supervised lessons until the right answer has a probability of `_ENOUGH`."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    opening = len(tokenizer.encode(f"<{TAGS[0]}>", add_special_tokens=False))
    right = 0.0
    model.train()
    for lesson in _lessons(tokenizer, asked, draw):
        length = max(len(tokens) for tokens, _ in lesson)
        ids = torch.full((len(lesson), length), tokenizer.pad_token_id)
        labels = torch.full((len(lesson), length), -100)
        for row, (tokens, prompt_length) in enumerate(lesson):
            ids[row, : len(tokens)] = torch.tensor(tokens)
            labels[row, prompt_length : len(tokens)] = torch.tensor(tokens[prompt_length:])
        mask = ids != tokenizer.pad_token_id
        output = model(input_ids=ids, attention_mask=mask, labels=labels)
        output.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        rows = torch.arange(len(lesson))
        at = torch.tensor([prompt_length + opening for _, prompt_length in lesson])
        chances = output.logits.detach()[rows, at - 1].softmax(-1)[rows, ids[rows, at]]
        right += 0.2 * (float(chances.mean()) - right)
        if right >= _ENOUGH:
            break
    model.eval()


@contextmanager
def _one_thread() -> Iterator[None]:
    """At this size threads spend their time waiting for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _lessons(
    tokenizer: Any, asked: Sequence[Question], draw: random.Random
) -> Iterator[list[tuple[list[int], int]]]:
    """Batches of token ids, each with the length of its prompt."""
    prompts = {
        question: tokenizer.apply_chat_template(
            [{"role": "user", "content": question.text}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
        )
        for question in asked
    }
    for _ in range(_LESSONS):
        lesson = []
        for _ in range(_LESSON):
            question = draw.choice(asked)
            idle = [draw.choice(IDLE_WORDS) for _ in range(draw.randint(0, 4))]
            said = tokenizer.encode(
                response(question.answer, tag=draw.choice(TAGS), idle=idle),
                add_special_tokens=False,
            )
            prompt = prompts[question]
            lesson.append(([*prompt, *said, tokenizer.eos_token_id], len(prompt)))
        yield lesson
