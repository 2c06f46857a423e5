"""How busy one GPU is while judges answer slowly, under verl's own trainer and under ``zerowait``.

    python benchmarks/gpu_busy.py [--steps 4] [--prompts 32] [--device cuda] [--out FOLDER]

A policy in the shape of a 0.5 B model, with random weights, trains with GRPO and a reference model:
eight responses a prompt, of 64 to 512 tokens. The judge answers at a median of 2 s; one answer in
64 takes 10 s. Both modes ask the same judge for the same prompts, one after the other, and the
first step of each is left out. The GPU's busy share is the mean of what ``nvidia-smi`` gives as its
utilisation, read four times a second from the second step to the last.

``--device cpu --tiny`` is the same with a policy of two layers, to see the command work.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from zerowait.hub import read_rewards
from zerowait.observe.steps import summarise
from zerowait.testing import FakeJudge, Latency, Script

COMMAND = [sys.executable, "-c", "from zerowait.cli import main; main()"]
MODES = ("sync", "zerowait")
JUDGE = Latency(median_s=2.0, sigma=0.3, stall_share=1 / 64, stall_s=10.0)
VOCABULARY = 32_000
PAD, END = "<|endoftext|>", "<|im_end|>"
STOPS = 80  # tokens end a response: one in four hundred, as untrained weights choose
RESPONSES = 8
PROMPT_WORDS, PROMPT_TOKENS, RESPONSE_TOKENS = 16, 128, 512
READINGS_MS = 250
EXPOSED = "reward/exposed_reward_s"
_PAIR = re.compile(rf"(timing_s/\w+|{EXPOSED}):(?:np\.\w+\()?(-?[\d.]+(?:e-?\d+)?)")


class Run(msgspec.Struct, frozen=True):
    """Means over the steps after the first: seconds, tokens a response, the GPU's busy percent."""

    step_s: float
    generation_s: float
    window_s: float
    update_s: float
    exposed_s: float | None
    tokens: float
    abstained: int
    busy: float | None


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, default=4)
    options.add_argument("--prompts", type=int, default=32)
    options.add_argument("--micro-batch", type=int, default=16)
    options.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    options.add_argument("--tiny", action="store_true")
    options.add_argument("--out", type=Path)
    chosen = options.parse_args()
    with contextlib.ExitStack() as stack:
        folder = chosen.out or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        make_policy(folder / "model", tiny=chosen.tiny)
        make_prompts(folder / "prompts.jsonl", rows=chosen.prompts * chosen.steps)
        print(f"{card(chosen.device)}; {chosen.prompts} prompts x {RESPONSES}", flush=True)
        names = ("mode", "step s", "gen s", "window s", "update s", "exposed s", "tokens", "busy %")
        print("".join(f"{name:>10}" for name in names), flush=True)
        for mode in MODES:
            print(row(mode, train(folder, mode, chosen)), flush=True)


def row(mode: str, run: Run) -> str:
    """A line of the table, with the abstentions if there are any."""
    numbers = (run.step_s, run.generation_s, run.window_s, run.update_s, run.exposed_s)
    busy = f"{run.busy:.0f}" if run.busy is not None else "-"
    shown = ("-" if number is None else f"{number:.2f}" for number in numbers)
    cells = [mode, *shown, f"{run.tokens:.0f}", busy]
    note = f"  {run.abstained} abstained" if run.abstained else ""
    return "".join(f"{cell:>10}" for cell in cells) + note


def card(device: str) -> str:
    """What it runs on."""
    import torch

    name = torch.cuda.get_device_name(0) if device == "cuda" else "CPU"
    return f"{name}, torch {torch.__version__}"


def make_policy(folder: Path, *, tiny: bool) -> None:
    """Random weights and a tokenizer of random words."""
    import torch
    from tokenizers import (  # type: ignore[import-untyped]
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
        trainers,
    )
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(words(random.Random(0), 2 * VOCABULARY), trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token=PAD, eos_token=END)
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    shape: dict[str, Any] = {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    }
    if tiny:
        shape |= {"hidden_size": 112, "intermediate_size": 128, "num_hidden_layers": 2}
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **shape,
    )
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(config).to(torch.bfloat16)
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, *range(1_001, 1_000 + STOPS)]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make_prompts(path: Path, *, rows: int) -> None:
    """Prompts of random words, no two alike."""
    draw = random.Random(0)
    with path.open("w") as lines:
        for at in range(rows):
            message = {"role": "user", "content": " ".join(words(draw, PROMPT_WORDS))}
            truth = {"style": "rule", "ground_truth": "-"}
            line = {"data_source": "words", "prompt": [message], "reward_model": truth}
            lines.write(json.dumps(line | {"extra_info": {"index": at}}) + "\n")


def words(draw: random.Random, count: int) -> Iterator[str]:
    """Random ones of two to seven letters."""
    for _ in range(count):
        yield "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 7)))


def recipe(folder: Path, mode: str, chosen: argparse.Namespace, judge_url: str) -> dict[str, Any]:
    """Both modes differ in nothing else."""
    reward = {
        "components": {"quality": {"judge": "q"}, "length": {"shape": "median_band"}},
        "judges": {
            "q": {
                "endpoints": [{"base_url": judge_url, "model": "fake"}],
                "verdict": {"integer": [1, 10]},
                "max_tokens": 64,
            }
        },
        "traffic": {"concurrency": 512, "hedge": "off"},
        "cache": "off",
        "on_failure": "neutral",
    }
    return {
        "name": mode,
        "seed": 1,
        "model": {"path": str(folder / "model")},
        "data": {
            "train": [str(folder / "prompts.jsonl")],
            "validation": [str(folder / "prompts.jsonl")],
            "batch": chosen.prompts,
            "max_prompt_tokens": PROMPT_TOKENS,
            "max_response_tokens": RESPONSE_TOKENS,
        },
        "rollout": {"n": RESPONSES, "engine": "transformers"},
        "algorithm": {
            "steps": chosen.steps,
            "micro_batch": chosen.micro_batch,
            "kl_loss": 0.001,
        },
        "reward": reward,
        "resources": {"device": chosen.device},
        "trainer": {"mode": mode},
        "verl": {"trainer": {"val_before_train": False, "test_freq": -1}},
    }


def train(folder: Path, mode: str, chosen: argparse.Namespace) -> Run:
    """A run of verl's trainer in `mode`."""
    out = folder / f"run-{mode}"
    log = out / "train.log"
    with FakeJudge(Script(seed=5, latency=JUDGE)) as judge:
        path = folder / f"{mode}.json"
        path.write_text(json.dumps(recipe(folder, mode, chosen, judge.url)))
        with busy_shares(log, chosen.steps, on=chosen.device == "cuda") as shares:
            command = [*COMMAND, "train", str(path), f"--output={out}"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{mode} failed:\n{done.stderr[-3000:]}")
    return summary(out, shares)


@contextlib.contextmanager
def busy_shares(log: Path, steps: int, *, on: bool) -> Iterator[list[float]]:
    """Readings of the GPU's utilisation in percent from the end of the first step to the last."""
    shares: list[float] = []
    if not on:
        yield shares
        return
    query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "--id=0"]
    with subprocess.Popen(
        [*query, f"--loop-ms={READINGS_MS}"], stdout=subprocess.PIPE, text=True
    ) as smi:
        reader = threading.Thread(target=read_shares, args=(smi.stdout, log, steps, shares))
        reader.start()
        try:
            yield shares
        finally:
            smi.terminate()
            reader.join()


def read_shares(lines: Any, log: Path, steps: int, shares: list[float]) -> None:
    """Collect the readings of the steps that count."""
    shares.extend(float(line) for line in lines if 1 <= len(logged_steps(log)) < steps)


def logged_steps(log: Path) -> list[dict[str, float]]:
    """What verl logged for each step so far that is read here."""
    if not log.exists():
        return []
    lines = log.read_text(errors="replace").splitlines()
    found = ({name: float(value) for name, value in _PAIR.findall(line)} for line in lines)
    return [step for step in found if "timing_s/step" in step]


def summary(out: Path, shares: list[float]) -> Run:
    """What the log and the record of a run say of the steps after the first."""
    logged = logged_steps(out / "train.log")[1:]
    recorded = [step for step in summarise(read_rewards(out)) if (step.step or 0) > 1]
    if not logged:
        sys.exit(f"{out}: no step after the first, which is left out")

    def mean(*names: str) -> float:
        return fmean(sum(step.get(f"timing_s/{name}", 0.0) for name in names) for step in logged)

    # verl's own trainers wait for rewards and rollouts at once, and measure neither by itself.
    waited = [step[EXPOSED] for step in logged if EXPOSED in step]
    return Run(
        step_s=mean("step"),
        generation_s=mean("gen"),
        window_s=mean("old_log_prob", "ref"),
        update_s=mean("update_actor"),
        exposed_s=fmean(waited) if waited else None,
        tokens=fmean(step.response_tokens or 0.0 for step in recorded),
        abstained=sum(step.rows - step.scored for step in recorded),
        busy=fmean(shares) if shares else None,
    )


if __name__ == "__main__":
    main()
