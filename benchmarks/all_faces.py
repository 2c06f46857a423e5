"""The same samples through every way into zerowait: are the rewards the same, and each asked once?

    python benchmarks/all_faces.py [--rows 1000] [--only trl,verl]

ROWS samples with a rule and a judge go through the library, `zerowait score`, `zerowait serve` with
`zerowait.connect`, verl's reward manager on a Ray hub, TRL's reward function, a reward method of
verifiers' own task, and OpenRLHF's own rollout executor. One row in five repeats another, and one
in ten gets a reply that has no verdict. Each way has a judge and a cache file of its own, so that
the judge counts what that way asks. A reward that differs, or a judgement that was asked twice, is
an exit code of 1. What is not installed is left out, and said.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, TypeAlias

from serving import show_load

import zerowait
from zerowait import Sample
from zerowait.testing import FakeJudge, Garbage, Script

COMMAND = [sys.executable, "-c", "from zerowait.cli import main; main()"]
GROUP = 4
ON_ABSTAIN = -1000.0
"""What OpenRLHF, which needs a number, gets for a row without a reward."""

Values: TypeAlias = "list[float | None]"
Face: TypeAlias = Callable[[Path, "list[Sample]"], Values]


def main() -> int:
    """Print the table; 1 where rewards differ or a judgement was asked twice."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=1000)
    options.add_argument("--only", default="", help="names of ways, with commas between")
    chosen = options.parse_args()
    rows = samples(chosen.rows)
    distinct = len({(row.prompt, row.response) for row in rows})
    wanted = chosen.only.split(",") if chosen.only else list(FACES)
    expected: Values | None = None
    wrong = 0
    print(f"{len(rows)} rows, {distinct} distinct")
    print(
        f"{'way':<12} {'rewards':>8} {'none':>6} {'differ':>7} {'asked':>6} {'twice':>6} {'s':>6}"
    )
    for name in dict.fromkeys(["library", *wanted]):
        needs, face = FACES[name]
        if needs and importlib.util.find_spec(needs) is None:
            print(f"{name:<12} {needs} is not installed")
            continue
        with tempfile.TemporaryDirectory() as folder, judged(Path(folder)) as (config, judge):
            began = time.monotonic()
            got = face(config, rows)
            took_s = time.monotonic() - began
            seen = judge.seen
        expected = got if expected is None else expected
        differ = sum(a != b for a, b in zip(expected, got, strict=True))
        twice = seen.requests - seen.distinct_bodies
        wrong += differ + twice + abs(seen.distinct_bodies - distinct)
        none = got.count(None)
        print(
            f"{name:<12} {len(got) - none:>8} {none:>6} {differ:>7} "
            f"{seen.distinct_bodies:>6} {twice:>6} {took_s:>6.1f}"
        )
    show_load()
    return 1 if wrong else 0


def samples(count: int) -> list[Sample]:
    """Groups of four responses, of which one in five rows repeats the response before it."""
    rows = []
    for number in range(count):
        prompt, which = f"Question {number // GROUP}?", number % GROUP
        said = which - 1 if which and number % 5 == 0 else which
        answer = "Paris" if number % 3 else "Rome"
        response = f"Answer {said}: <answer>{'Paris' if said % 2 else answer}</answer>"
        if which and number % 5 == 0:
            response = rows[-1].response
        rows.append(Sample(prompt, response, "Paris", group=f"g{number // GROUP}"))
    return rows


@contextmanager
def judged(folder: Path) -> Iterator[tuple[Path, FakeJudge]]:
    """A configuration, and the judge that it asks, which has no verdict for one row in ten."""
    with FakeJudge(Script(seed=5, faults=(Garbage(share=0.1, always=True),))) as judge:
        config = {
            "components": {
                "answer": {"scorer": "qa_em"},
                "quality": {"judge": "q", "weight": 0.1},
            },
            "judges": {
                "q": {
                    "endpoints": [{"base_url": judge.url, "model": "m"}],
                    "verdict": {"integer": [1, 10]},
                }
            },
            # a reply without a verdict is not asked for again, so that the judge counts rows
            "traffic": {"attempts": 1, "hedge": "off", "give_up_after": 10**6},
            "on_failure": {"default": "neutral"},
            "cache": {"path": str(folder / "judgements.db")},
        }
        path = folder / "reward.yaml"
        path.write_text(json.dumps(config))
        yield path, judge


def by_library(config: Path, rows: list[Sample]) -> Values:
    """`zerowait.open`."""
    with zerowait.open(config) as rewards:
        return [reward.value for reward in rewards.score(rows)]


def by_score(config: Path, rows: list[Sample]) -> Values:
    """The command ``zerowait score``."""
    data = config.parent / "rows.jsonl"
    data.write_text(
        "".join(
            json.dumps(
                {
                    "prompt": row.prompt,
                    "response": row.response,
                    "ground_truth": row.ground_truth,
                    "group": row.group,
                }
            )
            + "\n"
            for row in rows
        )
    )
    command = [*COMMAND, "score", str(data), "-c", str(config), "-q"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise RuntimeError(done.stderr)
    scored = (config.parent / "rows.rewards.jsonl").read_text().splitlines()
    return [json.loads(line)["reward"] for line in scored]


@contextmanager
def service(config: Path, *options: str) -> Iterator[str]:
    """The address of a running ``zerowait serve``."""
    command = [*COMMAND, "serve", "-c", str(config), "--port", "0", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield "" if process.stdout is None else process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def by_connect(config: Path, rows: list[Sample]) -> Values:
    """`zerowait.connect` to a service."""
    with service(config) as url, zerowait.connect(url) as rewards:
        return [reward.value for reward in rewards.score(rows)]


def by_trl(config: Path, rows: list[Sample]) -> Values:
    """TRL's reward function, called with its keyword arguments, a batch of groups at a time."""
    import zerowait.trl

    function = zerowait.trl.reward(config, num_generations=GROUP)

    async def batches() -> Values:
        values: Values = []
        for first in range(0, len(rows), 8 * GROUP):
            batch = rows[first : first + 8 * GROUP]
            values += await function(
                prompts=[row.prompt for row in batch],
                completions=[row.response for row in batch],
                solution=[row.ground_truth for row in batch],
            )
        return values

    try:
        return asyncio.run(batches())
    finally:
        function.close()


def by_verifiers(config: Path, rows: list[Sample]) -> Values:
    """A task of verifiers, which scores traces of its own."""
    from verifiers import v1 as vf

    import zerowait.verifiers

    class Question(vf.TaskData):
        answer: str = ""

    class Asked(vf.Task[Question]):
        judged = zerowait.verifiers.reward(config)

    async def one(row: Sample) -> float | None:
        task = Asked(Question(prompt=row.prompt, answer=row.ground_truth))
        message = vf.MessageNode(message=vf.AssistantMessage(content=row.response), sampled=True)
        trace = vf.Trace(
            task=vf.TraceTask(type="asked", data=task.data),
            agent=vf.AgentInfo(config=vf.AgentConfig()),
            nodes=[message],
        )
        try:
            await task.score(trace)
        except vf.TaskError as error:
            if "no reward was reached" not in str(error):
                raise
            return None
        return float(trace.reward)

    return asyncio.run(_side_by_side([one(row) for row in rows]))


def by_openrlhf(config: Path, rows: list[Sample]) -> Values:
    """OpenRLHF's executor of single turns, which asks ``/get_reward`` for each sample."""
    executor_of = _openrlhf_executor()

    class Engine:
        def __init__(self, response: str) -> None:
            ids = [ord(letter) for letter in response]
            self.output = SimpleNamespace(token_ids=ids, finish_reason="stop", logprobs=None)

        async def generate(self, *_: Any, **__: Any) -> Any:
            return SimpleNamespace(outputs=[self.output])

    async def all_of_them(url: str) -> Values:
        executor = executor_of(f"{url}/get_reward?group_size={GROUP}")
        sampling = SimpleNamespace(max_tokens=64, logprobs=None)
        at_once = asyncio.Semaphore(64)

        async def one(row: Sample) -> float | None:
            async with at_once:
                done = await executor.execute(
                    row.prompt, row.ground_truth, sampling, 4096, Letters(), Engine(row.response)
                )
            [value] = done["reward"]
            return None if value == ON_ABSTAIN else float(value)

        return await _side_by_side([one(row) for row in rows])

    with service(config, "--on-abstain", str(ON_ABSTAIN)) as url:
        return asyncio.run(all_of_them(url))


def _openrlhf_executor() -> Any:
    """OpenRLHF's class; its package's other modules need CUDA libraries, and are not imported."""
    found = importlib.util.find_spec("openrlhf")
    utils = ModuleType("openrlhf.utils")
    utils.__path__ = [str(Path(str(found and found.origin)).with_name("utils"))]
    sys.modules["openrlhf.utils"] = utils
    from openrlhf.utils.agent import SingleTurnAgentExecutor

    return SingleTurnAgentExecutor


class Letters:
    """A tokenizer whose tokens are characters."""

    def __call__(self, text: str, **_: Any) -> dict[str, Any]:
        """The token ids of a text."""
        import torch

        return {"input_ids": torch.tensor([[ord(letter) for letter in text]])}

    def decode(self, ids: Any, **_: Any) -> str:
        """The text of token ids."""
        return "".join(chr(int(token)) for token in ids)


def by_verl(config: Path, rows: list[Sample]) -> Values:
    """The reward manager ``zerowait`` of verl, with the job's hub as a Ray actor."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from omegaconf import OmegaConf

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from zerowait.verl.rewards.manager import RewardManager

    settings = OmegaConf.create(
        {
            "trainer": {"v1": {"trainer_mode": "sync", "sampler": {}}},
            "data": {"train_batch_size": len(rows)},
            "actor_rollout_ref": {"rollout": {"n": GROUP}},
            "reward": {"num_workers": 1, "zerowait": {"config": str(config), "record": None}},
            "algorithm": {"adv_estimator": "grpo"},
        }
    )
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)

    async def all_of_them() -> Values:
        manager = RewardManager(settings, Letters())

        async def one(number: int, row: Sample) -> float | None:
            got = await manager.run_single(_trajectory(number, row))
            return None if got["reward_extra_info"]["abstained"] else float(got["reward_score"])

        return await _side_by_side([one(number, row) for number, row in enumerate(rows)])

    try:
        return asyncio.run(all_of_them())
    finally:
        ray.shutdown()


def _trajectory(number: int, row: Sample) -> Any:
    """One finished trajectory, as verl hands it to a reward manager."""
    import numpy as np
    import torch
    from verl import DataProto

    columns = {
        "uid": row.group,
        "session_id": number,
        "global_steps": 1,
        "raw_prompt": [{"role": "user", "content": row.prompt}],
        "data_source": "",
        "reward_model": {"ground_truth": row.ground_truth},
        "extra_info": {"split": "train", "group_size": GROUP},
        "tool_extra_fields": {"response_mask": [1] * len(row.response)},
    }
    arrays = {}
    for column, value in columns.items():
        arrays[column] = np.empty(1, dtype=object)
        arrays[column][0] = value
    tokens = torch.tensor([[ord(letter) for letter in row.response]])
    mask = torch.ones(1, 2 + tokens.shape[1])
    return DataProto.from_dict(
        tensors={"responses": tokens, "attention_mask": mask}, non_tensors=arrays
    )


async def _side_by_side(calls: Sequence[Any]) -> Values:
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(call) for call in calls]
    return [task.result() for task in running]


FACES: dict[str, tuple[str, Face]] = {
    "library": ("", by_library),
    "score": ("", by_score),
    "connect": ("", by_connect),
    "trl": ("trl", by_trl),
    "verifiers": ("verifiers", by_verifiers),
    "openrlhf": ("openrlhf", by_openrlhf),
    "verl": ("verl", by_verl),
}


if __name__ == "__main__":
    sys.exit(main())
