"""What slow judges cost a training step on a GPU, in verl's trainer modes and in zerowait's.

    python benchmarks/gpu_modes.py --out FOLDER [--shape 0.5b] [--runs zerowait sync] [--steps 5]

A policy with random weights in the shape of a 0.5 B, 1.5 B or 7 B model trains with GRPO and a
reference model, eight responses a prompt, on one GPU or on several (``--devices``). The judge
answers at a median of 2 s, and one answer in 64 takes 10 s; after so many steps it answers at once,
so that each run is its own comparison. The first step of each half is left out. Every run is kept
in FOLDER and not made again; the table has all that are there: means, with the least and the most,
over the steps of each half. The modes in which rollouts have a GPU of their own are run where there
are two.

Columns in seconds: ``step``; its parts ``gen`` (rollout), ``log-probs`` (old and reference) and
``update``; ``exposed``, what the trainer measured of waiting for rewards (verl's own modes measure
none); ``at once``, the step with a judge that answers at once. ``tok/s`` are prompt and response
tokens by step; ``busy`` is the mean of the utilisation that ``nvidia-smi`` reads four times a
second, over all GPUs of a run; ``dp`` is the mean difference between the probabilities of rollout
and actor, by verl.
The exit code is 1 if a reward in the record is another one than verl trained on.

``--device cpu --shape tiny`` shows the command at work.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from zerowait.hub import read_rewards
from zerowait.testing import FakeJudge, Latency, Script
from zerowait.testing.draws import draws

COMMAND = [sys.executable, "-c", "from zerowait.cli import main; main()"]
JUDGE = Latency(median_s=2.0, sigma=0.3, stall_share=1 / 64, stall_s=10.0)
_NO_EARLY = {"early_gradients": "off"}
_OWN_DEVICES = {"devices": 1, "rollout_devices": 1}
_HEDGE_OFF = {"hedge": "off"}
RUNS: dict[str, dict[str, Any]] = {
    "sync": {"trainer": {"mode": "sync"}},
    "sync, hedging off": {"trainer": {"mode": "sync"}, "traffic": _HEDGE_OFF},
    "zerowait": {"trainer": {"mode": "zerowait"}},
    "zerowait, hedging off": {"trainer": {"mode": "zerowait"}, "traffic": _HEDGE_OFF},
    "zerowait, no early gradients": {"trainer": {"mode": "zerowait", **_NO_EARLY}},
    "zerowait, no early gradients, hedging off": {
        "trainer": {"mode": "zerowait", **_NO_EARLY},
        "traffic": _HEDGE_OFF,
    },
    "colocate_async": {"trainer": {"mode": "colocate_async"}},
    "colocate_async, hedging off": {"trainer": {"mode": "colocate_async"}, "traffic": _HEDGE_OFF},
    "zerowait_colocate_async": {"trainer": {"mode": "zerowait_colocate_async"}},
    "zerowait_colocate_async, hedging off": {
        "trainer": {"mode": "zerowait_colocate_async"},
        "traffic": _HEDGE_OFF,
    },
    "separate_async": {"trainer": {"mode": "separate_async"}, "resources": _OWN_DEVICES},
    "zerowait_separate_async": {
        "trainer": {"mode": "zerowait_separate_async"},
        "resources": _OWN_DEVICES,
    },
    "separate_async, gloo": {
        "trainer": {"mode": "separate_async"},
        "resources": _OWN_DEVICES | {"weight_transfer": "gloo"},
    },
    "zerowait_separate_async, gloo": {
        "trainer": {"mode": "zerowait_separate_async"},
        "resources": _OWN_DEVICES | {"weight_transfer": "gloo"},
    },
}
"""By name: the recipe's sections ``trainer`` and ``resources``, and the reward's ``traffic``.

Hedging has its defaults unless it is off. The modes ``separate_async`` need two GPUs.
"""
SHAPES: dict[str, dict[str, int]] = {
    "tiny": {
        "vocab_size": 2_000,
        "hidden_size": 112,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
    "0.5b": {
        "vocab_size": 32_000,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
    "1.5b": {
        "vocab_size": 151_936,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
    },
    "7b": {
        "vocab_size": 151_936,
        "hidden_size": 3584,
        "intermediate_size": 18_944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
    },
}
TRAINED_WORDS = 32_000
PAD, END = "<|endoftext|>", "<|im_end|>"
RESPONSES = 8
PROMPT_WORDS, PROMPT_TOKENS = 16, 128
SHARE_AT_LIMIT = 2.5  # e**-2.5, 8 % of the responses, are as long as is allowed
READINGS_MS = 250
EXPOSED, DIFFERENCE = "reward/exposed_reward_s", "training/rollout_probs_diff_mean"
DONE = "run.json"
_PAIR = re.compile(r"([\w/@]+):(?:np\.\w+\()?(-?[\d.]+(?:e[-+]?\d+)?)")


class Run(msgspec.Struct, frozen=True):
    """What was read while a run went on.

    Args:
        name: of the run. shape, prompts, tokens, steps, hardware: what was run, and where.
        ends: Unix times at which verl logged its steps.
        busy: Unix times and the GPU's utilisation in percent.
        requests: that the judge got.
    """

    name: str
    shape: str
    prompts: int
    tokens: int
    steps: int
    hardware: str
    ends: list[float]
    busy: list[tuple[float, float]]
    requests: int


class StepJudge:
    """A judge that is slow while `slow` is True; latencies depend on request and attempt."""

    def __init__(self) -> None:
        self.slow = True
        self._attempts: Counter[bytes] = Counter()

    async def hold(self, body: Mapping[str, Any]) -> None:
        """Wait as long as this request takes to answer."""
        key = hashlib.sha256(json.dumps(body.get("messages"), sort_keys=True).encode()).digest()
        self._attempts[key] += 1
        again = self._attempts[key].to_bytes(4, "big")
        if self.slow:
            await asyncio.sleep(JUDGE.of(draws(hashlib.sha256(key + again).digest())))


def main() -> None:
    """Make the runs and print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--runs", nargs="*", choices=list(RUNS), metavar="RUN")
    options.add_argument("--shape", default="0.5b", choices=list(SHAPES))
    options.add_argument("--steps", type=int, default=5, help="that count, in each half")
    options.add_argument("--prompts", type=int, default=32)
    options.add_argument("--tokens", type=int, default=512, help="of the longest response")
    options.add_argument("--micro-batch", type=int, default=16)
    options.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    options.add_argument("--engine", default="vllm")
    options.add_argument(
        "--devices", type=int, default=1, help="on which a run trains and rolls out"
    )
    options.add_argument("--at-once", type=int, help="steps of the second half; 0 leaves it out")
    options.add_argument("--verl", default="{}", help="overrides of verl's, as JSON")
    chosen = options.parse_args()
    chosen.at_once = chosen.steps if chosen.at_once is None else chosen.at_once
    chosen.out.mkdir(parents=True, exist_ok=True)
    for name in chosen.runs or runnable(chosen.device, chosen.devices):
        folder = chosen.out / slug(chosen.shape, name, chosen.devices)
        if not (folder / DONE).exists():
            train(folder, name, chosen)
    sys.exit(table(chosen.out))


def runnable(device: str, shared: int) -> list[str]:
    """The runs that the machine has devices for; on the CPU devices are logical ones."""
    import torch

    have = torch.cuda.device_count() if device == "cuda" else max(shared, len(_OWN_DEVICES))
    return [name for name in RUNS if sum(resources(name, shared).values()) <= have]


def resources(name: str, shared: int) -> dict[str, int]:
    """The devices of a run, by the recipe's keys.

    Args:
        name: of the run.
        shared: how many it has where training and rollouts share them.
    """
    own = RUNS[name].get("resources", {"devices": shared})
    return {key: own[key] for key in _OWN_DEVICES if key in own}


def slug(shape: str, name: str, shared: int) -> str:
    """The folder of a run."""
    on_all = f"-on-{shared}" if shared > 1 and "resources" not in RUNS[name] else ""
    return f"{shape}-{name.replace(', ', '-').replace(' ', '-')}{on_all}"


def train(folder: Path, name: str, chosen: argparse.Namespace) -> None:
    """One run of verl's trainer, kept in `folder`."""
    judge = StepJudge()
    devices = sum(resources(name, chosen.devices).values())
    first, second = chosen.steps + 1, chosen.at_once + bool(chosen.at_once)
    clear_logs(folder)
    policy = chosen.out / f"policy-{chosen.shape}-{chosen.tokens}"
    make_policy(policy, SHAPES[chosen.shape], tokens=chosen.tokens, device=chosen.device)
    prompts = chosen.out / "prompts.jsonl"
    make_prompts(prompts, rows=chosen.prompts * (first + second + 4))
    ends: list[float] = []
    with (
        FakeJudge(Script(seed=5), hold=judge.hold) as server,
        readings(chosen.device, devices) as busy,
    ):
        path = folder / "recipe.json"
        made = recipe(name, chosen, policy=policy, prompts=prompts, judge_url=server.url)
        path.write_text(json.dumps(made | {"algorithm": algorithm(chosen, first + second)}))
        with subprocess.Popen(
            [*COMMAND, "train", str(path), f"--output={folder}"],
            stdout=(folder / "terminal.log").open("w"),
            stderr=subprocess.STDOUT,
        ) as process:
            while process.poll() is None:
                time.sleep(0.05)
                while len(logged_steps(folder)) > len(ends):
                    ends.append(time.time())
                judge.slow = len(ends) < first
            while len(logged_steps(folder)) > len(ends):
                ends.append(time.time())
        requests = server.seen.requests
    if process.returncode:
        sys.exit(f"{name} failed:\n{(folder / 'terminal.log').read_text()[-3000:]}")
    run = Run(
        name=name,
        shape=chosen.shape,
        prompts=chosen.prompts,
        tokens=chosen.tokens,
        steps=chosen.steps,
        hardware=hardware(chosen, devices),
        ends=ends,
        busy=busy,
        requests=requests,
    )
    (folder / DONE).write_bytes(msgspec.json.encode(run))


def clear_logs(folder: Path) -> None:
    """An empty folder for the run; what a run left unfinished is a record of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    for log in folder.glob("*.log"):
        log.unlink()


def hardware(chosen: argparse.Namespace, devices: int) -> str:
    """What it runs on."""
    import torch

    name = torch.cuda.get_device_name(0) if chosen.device == "cuda" else "CPU"
    return f"{devices} x {name}, torch {torch.__version__}, {chosen.engine}"


def make_policy(folder: Path, shape: Mapping[str, int], *, tokens: int, device: str) -> None:
    """Random weights, and a tokenizer of random words; some tokens end a response."""
    if (folder / "config.json").exists():
        return
    import torch
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    core = make_tokenizer(shape["vocab_size"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token=PAD, eos_token=END)
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    config = Qwen2Config(
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **shape,
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = Qwen2ForCausalLM(config).to(torch.bfloat16)
    stops = round(shape["vocab_size"] * SHARE_AT_LIMIT / tokens)
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, *range(1_000, 1_000 + stops)]
    model.cpu().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make_tokenizer(size: int) -> Any:
    """Byte-pair encoding learned from random words; beyond those, tokens that no text has."""
    from tokenizers import (  # type: ignore[import-untyped]
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
        trainers,
    )

    def blank(model: Any) -> Any:
        made = Tokenizer(model)
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        return made

    trained = blank(models.BPE())
    learned = min(size, TRAINED_WORDS)
    trainer = trainers.BpeTrainer(
        vocab_size=learned,
        special_tokens=[PAD, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    trained.train_from_iterator(words(random.Random(0), 2 * learned), trainer)
    model = json.loads(trained.to_str())["model"]
    vocabulary = dict(model["vocab"])
    for at in range(len(vocabulary), size):
        vocabulary[f"unused{at}"] = at
    merges = [tuple(pair) for pair in model["merges"]]
    return blank(models.BPE(vocab=vocabulary, merges=merges))


def make_prompts(path: Path, *, rows: int) -> None:
    """Prompts of random words, no two alike."""
    if path.exists():
        return
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


def recipe(
    name: str, chosen: argparse.Namespace, *, policy: Path, prompts: Path, judge_url: str
) -> dict[str, Any]:
    """The recipes differ in the trainer and in hedging alone."""
    run = RUNS[name]
    reward = {
        "components": {"quality": {"judge": "q"}, "length": {"shape": "median_band"}},
        "judges": {
            "q": {
                "endpoints": [{"base_url": judge_url, "model": "fake"}],
                "verdict": {"integer": [1, 10]},
                "max_tokens": 64,
            }
        },
        "traffic": {"concurrency": 512, **run.get("traffic", {})},
        "cache": "off",
        "on_failure": "neutral",
    }
    return {
        "name": slug(chosen.shape, name, chosen.devices),
        "seed": 1,
        "model": {"path": str(policy)},
        "data": {
            "train": [str(prompts)],
            "validation": [str(prompts)],
            "batch": chosen.prompts,
            "max_prompt_tokens": PROMPT_TOKENS,
            "max_response_tokens": chosen.tokens,
        },
        "rollout": {"n": RESPONSES, "engine": chosen.engine},
        "reward": reward,
        "resources": {
            "device": chosen.device,
            **resources(name, chosen.devices),
            **run.get("resources", {}),
        },
        "trainer": run["trainer"],
        "verl": {"trainer": {"val_before_train": False, "test_freq": -1}} | json.loads(chosen.verl),
    }


def algorithm(chosen: argparse.Namespace, steps: int) -> dict[str, Any]:
    """With a reference model."""
    return {"steps": steps, "micro_batch": chosen.micro_batch, "kl_loss": 0.001}


@contextlib.contextmanager
def readings(device: str, devices: int) -> Iterator[list[tuple[float, float]]]:
    """Unix times and the GPUs' utilisation in percent, while the block runs."""
    busy: list[tuple[float, float]] = []
    if device != "cuda":
        yield busy
        return
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(devices)))
    ids = ",".join(visible.split(",")[:devices])
    query = [
        "nvidia-smi",
        "--query-gpu=utilization.gpu",
        "--format=csv,noheader,nounits",
        f"--id={ids}",
    ]
    with subprocess.Popen(
        [*query, f"--loop-ms={READINGS_MS}"], stdout=subprocess.PIPE, text=True
    ) as smi:
        lines = smi.stdout
        reader = threading.Thread(
            target=lambda: busy.extend((time.time(), float(line)) for line in lines or ())
        )
        reader.start()
        try:
            yield busy
        finally:
            smi.terminate()
            reader.join()


def logged_steps(folder: Path) -> list[dict[str, float]]:
    """What verl logged for each step so far."""
    log = folder / "train.log"
    if not log.exists():
        return []
    lines = log.read_text(errors="replace").splitlines()
    return [
        {name: float(value) for name, value in _PAIR.findall(line)}
        for line in lines
        if "timing_s/step:" in line
    ]


def table(out: Path) -> int:
    """Print the table of all runs in `out`; 1 if a reward differs from what was trained on."""
    files = sorted(out.glob(f"*/{DONE}"), key=lambda file: file.stat().st_mtime)
    runs = [(file.parent, msgspec.json.decode(file.read_bytes(), type=Run)) for file in files]
    wrong = 0
    for shape in SHAPES:
        of_shape = [(folder, run) for folder, run in runs if run.shape == shape]
        if not of_shape:
            continue
        one = of_shape[0][1]
        print(f"\n{shape}, {one.prompts} x {RESPONSES}, <= {one.tokens} tokens")
        heads = ("step", "gen", "log-probs", "update", "exposed", "at once", "tok/s", "busy", "dp")
        print("| run | " + " | ".join(heads) + " |\n|" + " --- |" * (len(heads) + 1))
        for folder, run in sorted(of_shape, key=lambda pair: list(RUNS).index(pair[1].name)):
            print(f"| {label(run)} | " + " | ".join(cells(folder, run)) + " |")
        for name in sorted({run.hardware for _, run in of_shape}):
            print(name)
        for folder, run in of_shape:
            rows, differing = compared(folder)
            wrong += differing
            print(f"{label(run)}: {rows} rows trained on, {differing} with another reward")
    return int(wrong > 0)


def label(run: Run) -> str:
    """The name of a run, and on how many devices it was."""
    return f"{run.name}, {run.hardware.partition(',')[0]}"


def cells(folder: Path, run: Run) -> list[str]:
    """The numbers of a line."""
    steps = logged_steps(folder)
    slow, quick = steps[1 : run.steps + 1], steps[run.steps + 2 :]

    def parts(step: Mapping[str, float], *names: str) -> float:
        return sum(step.get(f"timing_s/{name}", 0.0) for name in names)

    def mean(*names: str) -> str:
        return f"{fmean(parts(step, *names) for step in slow):.2f}"

    whole = [parts(step, "step") for step in slow]
    at_once = [parts(step, "step") for step in quick]
    tokens = fmean(step.get("perf/total_num_tokens", 0.0) for step in slow)
    waited = [step[EXPOSED] for step in slow if EXPOSED in step]
    between = run.ends[0], run.ends[min(run.steps, len(run.ends) - 1)]
    busy = [share for at, share in run.busy if between[0] <= at <= between[1]]
    return [
        spread(whole),
        mean("gen"),
        mean("old_log_prob", "ref"),
        mean("update_actor"),
        spread(waited),
        spread(at_once),
        f"{tokens / fmean(whole):.0f}",
        f"{fmean(busy):.0f} %" if busy else "-",
        f"{fmean(step.get(DIFFERENCE, 0.0) for step in slow):.1e}",
    ]


def spread(values: list[float]) -> str:
    """Mean, least and most."""
    if not values:
        return "-"
    return f"{fmean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def compared(folder: Path) -> tuple[int, int]:
    """Rows that verl trained on, and how many of them have another reward in the record."""
    recorded = {
        record.sample.id: record.reward.value if record.trained_on is None else record.trained_on
        for record in read_rewards(folder)
    }
    rows = differing = 0
    for file in (folder / "rollouts").glob("*.jsonl"):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            rows += 1
            known = recorded.get(row["uid"].rsplit("_", 1)[0])
            score = row["score"]
            if known is None or score is None:
                differing += known is not score
            else:
                differing += abs(known - score) > 1e-5 * max(1.0, abs(known))
    return rows, differing


if __name__ == "__main__":
    main()
