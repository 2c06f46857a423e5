"""What tiny policies are made of: a tokenizer, a Qwen2 of a hundred thousand weights, lessons."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_ENOUGH = 0.9
_FORGET = 0.2


class TinyFiles(msgspec.Struct, frozen=True):
    """Where the pieces are: a model folder and two data files, as text for verl."""

    model: str
    train: str
    validation: str


class SftExample(msgspec.Struct, frozen=True):
    """One text to learn from.

    Args:
        tokens: prompt and response.
        taught: the places of the tokens that the policy is to write itself.
        crux: the places of those that it has to know before the lessons are over.
    """

    tokens: tuple[int, ...]
    taught: tuple[int, ...]
    crux: tuple[int, ...]


def train_policy(
    tokenizer: Any, lessons: Iterable[Sequence[SftExample]], *, seed: int, spread: float = 0.02
) -> Any:
    """A Qwen2 that has learned from `lessons`, batch by batch, until it knew what matters in them.

    Args:
        tokenizer: of `tokenizer_for`.
        lessons: batches; no more of them are asked for than are needed.
        seed: of the weights.
        spread: standard deviation of the weights at first; at so small a width, 0.1 learns to copy
            from a prompt several times faster than the usual 0.02.
    """
    model = _model(tokenizer, seed=seed, spread=spread)
    with _one_thread():
        _teach(model, lessons)
    return model


def save_tiny(
    folder: Path,
    model: Any,
    tokenizer: Any,
    *,
    train: Sequence[dict[str, Any]],
    validation: Sequence[dict[str, Any]],
) -> TinyFiles:
    """Write a policy and the rows of its two data files into `folder`, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / "model"
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    return TinyFiles(
        model=str(target),
        train=_write_rows(folder / "train.jsonl", train),
        validation=_write_rows(folder / "validation.jsonl", validation),
    )


def question_row(text: str, answer: str, *, index: int, source: str) -> dict[str, Any]:
    """A row in verl's columns."""
    return {
        "data_source": source,
        "prompt": [{"role": "user", "content": text}],
        "ability": source.partition("/")[2],
        "reward_model": {"style": "rule", "ground_truth": answer},
        "extra_info": {"index": index},
    }


def tokenizer_for(texts: Iterable[str], *, vocabulary: int) -> Any:
    """A byte-level BPE with a chat template, trained on `texts`: it can write any other text too.

    Args:
        texts: what is to be short in tokens.
        vocabulary: most tokens.
    """
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
        vocab_size=vocabulary,
        special_tokens=list(_SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator([*texts, "user\n", "assistant\n"], trainer)
    pad, _, end = _SPECIAL
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token=end, pad_token=pad)
    tokenizer.chat_template = _TEMPLATE
    return tokenizer


def prompt_tokens(tokenizer: Any, text: str) -> list[int]:
    """The tokens of a question in the chat template, up to where the answer begins."""
    tokens: list[int] = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
    )
    return tokens


def _write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def _model(tokenizer: Any, *, seed: int, spread: float) -> Any:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=spread,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen2ForCausalLM(config)


def _teach(model: Any, lessons: Iterable[Sequence[SftExample]]) -> None:
    """Supervised lessons until the tokens that matter have a probability of `_ENOUGH`."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    known = 0.0
    model.train()
    for lesson in lessons:
        length = max(len(text.tokens) for text in lesson)
        ids = torch.full((len(lesson), length), model.config.pad_token_id)
        mask = torch.zeros_like(ids)
        labels = torch.full_like(ids, -100)
        for row, text in enumerate(lesson):
            tokens = torch.tensor(text.tokens)
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
            labels[row, list(text.taught)] = tokens[list(text.taught)]
        output = model(input_ids=ids, attention_mask=mask, labels=labels)
        output.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        crux = [(row, place) for row, text in enumerate(lesson) for place in text.crux]
        rows, places = torch.tensor(crux).T
        chances = output.logits.detach()[rows, places - 1].softmax(-1)
        share = chances[torch.arange(len(crux)), ids[rows, places]].mean()
        known += _FORGET * (float(share) - known)
        if known >= _ENOUGH:
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
