"""What a slow judge costs a step of TRL's GRPOTrainer, with and without judging beside generation.

Completions end one after another (``--completion-s``), as they do on a server; the judge takes
``--judge-s`` and answers ``--concurrency`` requests at a time. Three runs of the same trainer: a
judge that answers at once, the reward function as it is, and `rollout`, which begins to judge each
completion when it ends. Prints seconds a step and the ratio to the judge that answers at once. What
`rollout` cannot hide is the judgement of the last completion. Run it where trl is installed:
``make adapters`` has an environment with it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from collections.abc import Iterator
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer

import zerowait.trl
from zerowait.testing import FakeJudge, Latency, Script


def policy(folder: str) -> str:
    """A tiny Qwen2 with a tokenizer of letters."""
    letters = ["<pad>", "<eos>", *"abcdefghijklmnopqrstuvwxyz 0123456789?"]
    table = Tokenizer(models.WordLevel({c: i for i, c in enumerate(letters)}, unk_token=" "))  # noqa: S106
    table.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(
        tokenizer_object=table,
        pad_token="<pad>",  # noqa: S106
        eos_token="<eos>",  # noqa: S106
        padding_side="left",
    ).save_pretrained(folder)
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    config = Qwen2Config(vocab_size=len(letters), **shape, **heads, pad_token_id=0, eos_token_id=1)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


def step_times(model: str, *, judge_s: float, overlap: bool, given: argparse.Namespace) -> float:
    """The median seconds of a step, the first left out."""
    with (
        FakeJudge(Script(latency=Latency(median_s=judge_s))) as judge,
        tempfile.TemporaryDirectory() as out,
    ):
        rewards = zerowait.trl.reward(
            {
                "components": {"quality": {"judge": "q"}},
                "judges": {
                    "q": {
                        "endpoints": [{"base_url": judge.url, "model": "m"}],
                        "verdict": {"integer": [1, 10]},
                    }
                },
                "traffic": {"concurrency": given.concurrency},
                "cache": "off",
            }
        )
        ends: list[float] = []

        def generate(prompts: list[str], trainer: Any) -> Iterator[tuple[int, dict[str, Any]]]:
            for row, prompt in enumerate(prompts):
                time.sleep(given.completion_s)
                ids = trainer.processing_class(f"{prompt} {trainer.state.global_step} {row}")
                ids = ids["input_ids"]
                yield row, {"prompt_ids": [5], "completion_ids": ids, "logprobs": [0.0] * len(ids)}

        def at_the_end(prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
            done = [generated for _, generated in generate(prompts, trainer)]
            return {key: [each[key] for each in done] for key in done[0]}

        rows = [{"prompt": f"question {number}?"} for number in range(64)]
        config = GRPOConfig(
            output_dir=out, max_steps=given.steps + 1, per_device_train_batch_size=given.rows,
            num_generations=4, report_to=[], use_cpu=True, bf16=False, save_strategy="no",
            disable_tqdm=True, logging_strategy="no", seed=1,
        )  # fmt: skip
        trainer = GRPOTrainer(
            model,
            reward_funcs=rewards,
            args=config,
            train_dataset=Dataset.from_list(rows),
            rollout_func=rewards.rollout(generate) if overlap else at_the_end,
        )
        step = trainer.training_step

        def timed(*arguments: Any, **keywords: Any) -> Any:
            started = time.perf_counter()
            loss = step(*arguments, **keywords)
            ends.append(time.perf_counter() - started)
            return loss

        trainer.training_step = timed
        trainer.train()
        rewards.close()
    return statistics.median(ends[1:])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--judge-s", type=float, default=0.5)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--completion-s", type=float, default=0.1)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--steps", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = policy(str(Path(folder)))
        ideal = step_times(model, judge_s=0.0, overlap=False, given=given)
        print(f"{'judge answers at once':<36} {ideal:5.2f} s")
        for name, overlap in (("judged after the last completion", False), ("rollout()", True)):
            took = step_times(model, judge_s=given.judge_s, overlap=overlap, given=given)
            print(f"{name:<36} {took:5.2f} s  {took / ideal:.2f} of it")


if __name__ == "__main__":
    main()
