"""Build a tiny policy: tokenizer, a Qwen2 of 100,000 parameters, and its supervised training."""

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
_TARGET = 0.9
_SMOOTHING = 0.2


class TinyFiles(msgspec.Struct, frozen=True):
    """Paths of a policy's model folder and its two data files, as text for verl."""

    model: str
    train: str
    validation: str


class SftExample(msgspec.Struct, frozen=True):
    """One supervised example.

    Args:
        tokens: prompt and response.
        labelled: positions of the tokens with a label, which the policy is to write itself.
        decisive: positions of the tokens whose probability ends the training.
    """

    tokens: tuple[int, ...]
    labelled: tuple[int, ...]
    decisive: tuple[int, ...]


def train_policy(
    tokenizer: Any, batches: Iterable[Sequence[SftExample]], *, seed: int, spread: float = 0.02
) -> Any:
    """A Qwen2 after supervised training until its decisive tokens are likely.

    Args:
        tokenizer: from `tokenizer_for`.
        batches: of examples; only as many are taken as are needed.
        seed: of the weights.
        spread: standard deviation of the initial weights; at this width, 0.1 learns to copy from
            the prompt several times faster than the usual 0.02.
    """
    model = _model(tokenizer, seed=seed, spread=spread)
    with _one_thread():
        _train(model, batches)
    return model


def save_tiny(
    folder: Path,
    model: Any,
    tokenizer: Any,
    *,
    train: Sequence[dict[str, Any]],
    validation: Sequence[dict[str, Any]],
) -> TinyFiles:
    """Write a policy and its two data files into a folder.

    Args:
        folder: is created.
        model: of transformers.
        tokenizer: of transformers.
        train: rows to train on, in verl's columns.
        validation: rows to validate on.
    """
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
    """A row in verl's columns.

    Args:
        text: the question.
        answer: the ground truth.
        index: of the row.
        source: the data source, such as ``tiny/neighbours``.
    """
    return {
        "data_source": source,
        "prompt": [{"role": "user", "content": text}],
        "ability": source.partition("/")[2],
        "reward_model": {"style": "rule", "ground_truth": answer},
        "extra_info": {"index": index},
    }


def tokenizer_for(texts: Iterable[str], *, vocabulary: int) -> Any:
    """A byte-level BPE tokenizer with a chat template; it can encode any text.

    Args:
        texts: to train it on; they become short in tokens.
        vocabulary: largest number of tokens.
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
    """The tokens of a question in the chat template, with the generation prompt."""
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


def _train(model: Any, batches: Iterable[Sequence[SftExample]]) -> None:
    """Train until the moving average of the decisive tokens' probability reaches `_TARGET`.

    Each batch is padded to tensors of shape (examples, longest).
    """
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    average = 0.0
    model.train()
    for batch in batches:
        length = max(len(example.tokens) for example in batch)
        ids = torch.full((len(batch), length), model.config.pad_token_id)
        mask = torch.zeros_like(ids)
        labels = torch.full_like(ids, -100)
        for row, example in enumerate(batch):
            tokens = torch.tensor(example.tokens)
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
            labels[row, list(example.labelled)] = tokens[list(example.labelled)]
        output = model(input_ids=ids, attention_mask=mask, labels=labels)
        output.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        decisive = [(row, place) for row, example in enumerate(batch) for place in example.decisive]
        rows, places = torch.tensor(decisive).T
        probabilities = output.logits.detach()[rows, places - 1].softmax(-1)
        share = probabilities[torch.arange(len(decisive)), ids[rows, places]].mean()
        average += _SMOOTHING * (float(share) - average)
        if average >= _TARGET:
            break
    model.eval()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one torch thread: at this size several threads mostly wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
