"""Everything that can go wrong at a judge goes wrong; nothing may come of it that is not true.

    python benchmarks/chaos.py [--rows 100000] [--first 0] [--shards 0]

ROWS distinct samples are judged by a fake judge in a process of its own that refuses, breaks,
hangs, stalls and lies by a seeded script; every fiftieth sample is handed in twice. Beside it
stands an endpoint whose account has no quota left, and which judgements have to leave for the
other. What comes out
is compared with what the script says is right, and what was asked with what the judge counted.
Any violation is an exit code of 1. ``--shards 4`` goes through a Ray hub of four actors.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

from zerowait import Engine, Sample, Score
from zerowait.config import RewardConfig, load_config
from zerowait.engine import Stats
from zerowait.judge import ChatRequest, load_rubric, procedure_for, request_for
from zerowait.testing import load_script, verdict_for
from zerowait.testing.draws import Draws, content_draws
from zerowait.testing.faults import choose_fault
from zerowait.types import Abstain, Outcome

COMMAND = [sys.executable, "-c", "from zerowait.cli import main; main()"]
LIMIT = 256
TWICE = 50
SCRIPT: dict[str, Any] = {
    "seed": 11,
    "latency": {"median_s": 0.03, "sigma": 0.8, "longest_s": 2.0},
    "capacity": {"concurrency": 240, "retry_after_s": 0.2},
    "faults": [
        {"status": {"status": 429, "share": 0.03, "retry_after_s": 0.1}},
        {"status": {"status": 500, "share": 0.02}},
        {"status": {"status": 502, "share": 0.02}},
        {"status": {"status": 503, "share": 0.02, "retry_after_s": 0.1}},
        {"status": {"status": 529, "share": 0.01}},
        {"reset": {"share": 0.01, "sent": "nothing"}},
        {"reset": {"share": 0.01, "sent": "headers"}},
        {"reset": {"share": 0.01, "sent": "half", "graceful": True}},
        {"hang": {"share": 0.001}},
        {"hang": {"share": 0.001, "sent": "half"}},
        {"truncated_json": {"share": 0.02}},
        {"wrong_types": {"share": 0.01}},
        {"empty": {"share": 0.005}},
        {"ending": {"share": 0.01, "word": "abort"}},
        {"ending": {"share": 0.005, "word": "error", "content": "verdict"}},
        {"ending": {"share": 0.005, "word": "insufficient_system_resource"}},
        {"error_in_body": {"share": 0.01, "code": 429}},
        {"error_in_body": {"share": 0.01, "code": 502}},
        {"error_in_body": {"share": 0.005, "code": "server_error"}},
        {"moderation": {"share": 0.02}},
        {"length": {"share": 0.05, "cured_at": 2048}},
        {"length": {"share": 0.01, "thinking": True}},
        {"refusal": {"share": 0.02}},
        {"garbage": {"share": 0.02}},
        {"out_of_range": {"share": 0.02}},
    ],
}
EMPTY_ACCOUNT: dict[str, Any] = {"seed": 12, "faults": [{"exhausted": {"share": 1.0}}]}
STUBBORN = {
    "length": "truncated",
    "moderation": "refused",
    "refusal": "refused",
    "garbage": "unparseable",
    "out_of_range": "out_of_range",
}
PROVIDER = {"timeout", "rate_limited", "unreachable", "http_error", "cancelled", "crashed"}


def main() -> int:
    """Print the table; 1 for any violation."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--first", type=int, default=0, help="number of the first row")
    options.add_argument("--shards", type=int, default=0, help="actors of a Ray hub; 0: no hub")
    chosen_ = options.parse_args()
    numbers = range(chosen_.first, chosen_.first + chosen_.rows)
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        judge(Path(folder), SCRIPT) as url,
        judge(Path(folder), EMPTY_ACCOUNT) as unpaid,
    ):
        config = written(Path(folder), [url, unpaid], max(1, chosen_.shards))
        score = scored_by_hub if chosen_.shards else scored_here
        outcomes, stats = uvloop.run(score(config, rows(numbers)))
        with urllib.request.urlopen(url.removesuffix("/v1") + "/stats") as reply:  # noqa: S310 - our own judge
            seen = json.load(reply)
        with urllib.request.urlopen(unpaid.removesuffix("/v1") + "/stats") as reply:  # noqa: S310 - likewise
            seen["unpaid"] = json.load(reply)["requests"]
        found = compared(load_config(str(config)), rows(numbers), outcomes)
    return report(found, stats, seen, time.monotonic() - began)


def rows(numbers: range) -> list[Sample]:
    """The samples, every fiftieth twice."""
    samples = [Sample("What is asked?", f"answer {number}") for number in numbers]
    return samples + samples[::TWICE]


async def scored_here(config: Path, samples: list[Sample]) -> tuple[list[Outcome], Stats]:
    """Through an engine in this process."""
    async with Engine(str(config)) as engine:
        rewards = await engine.score_all(samples)
        return [reward.components["quality"] for reward in rewards], engine.stats()


async def scored_by_hub(config: Path, samples: list[Sample]) -> tuple[list[Outcome], Stats]:
    """Through a Ray hub."""
    import ray

    from zerowait.hub.ray import RayHub

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        hub = RayHub(str(config), record=None)
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(hub.reward(sample)) for sample in samples]
        outcomes = [task.result().reward.components["quality"] for task in asked]
        return outcomes, await hub.stats()
    finally:
        ray.shutdown()


def compared(
    config: RewardConfig, samples: Sequence[Sample], outcomes: Sequence[Outcome]
) -> Counter[str]:
    """How many scores are right, how many wrong, how many judgements were lost, and the rest."""
    script, judge_ = load_script(SCRIPT), config.judges["q"]
    rubric = load_rubric(judge_.rubric, base=config.base)
    form = procedure_for(judge_, rubric, base=config.base).questions[0].form
    stubborn = [fault for fault in script.faults if fault.always]
    found: Counter[str] = Counter()
    for sample, outcome in zip(samples, outcomes, strict=True):
        request = request_for(sample, judge_, rubric, form=form)
        assert isinstance(request, ChatRequest)  # noqa: S101 - every sample has what is needed
        fault = choose_fault(
            stubborn,
            content=content_draws(script.seed, request.messages),
            attempt=Draws(1.0, 1.0, 1.0, 1.0),
            nth=1,
            tokens=2 * judge_.max_tokens,
        )
        right = verdict_for(script, request.messages)
        found[_found(outcome, right, None if fault is None else STUBBORN[fault.name])] += 1
    return found


def _found(outcome: Outcome, right: str, kind: str | None) -> str:
    """What an outcome is, where `right` is the verdict and `kind` why there can be none."""
    if isinstance(outcome, Score):
        return "right" if kind is None and outcome.value == float(right) else "wrong"
    if not isinstance(outcome, Abstain) or outcome.kind.value in PROVIDER:
        return "lost"
    # a reply of the wrong form, by the chance of its attempt, is a reply without a verdict
    return "abstained" if outcome.kind.value == (kind or "unparseable") else "wrong"


def report(found: Counter[str], stats: Stats, seen: dict[str, Any], took_s: float) -> int:
    """Print what happened and what must not have happened."""
    faults = sum(seen["by_fault"].values())
    for name, value in (
        ("judgements", found.total()),
        ("right scores", found["right"]),
        ("abstained as they should", found["abstained"]),
        ("asked, joined", f"{stats.asked}, {stats.joined + stats.cached}"),
        ("requests, retries, hedges", f"{seen['requests']}, {stats.retries}, {stats.hedges}"),
        ("asked of the empty account", seen["unpaid"]),
        ("replies with a fault", f"{faults} of {len(seen['by_fault'])} kinds"),
        ("seconds", f"{took_s:.0f}"),
    ):
        print(f"{name:<32} {value:>22}")
    violations = {
        "wrong scores": found["wrong"],
        "lost judgements": found["lost"],
        "repeated after success": seen["repeats"],
        f"in flight above {LIMIT}": max(0, seen["peak_in_flight"] - LIMIT),
        "still in flight or in line": stats.in_flight + stats.waiting,
    }
    for name, count in violations.items():
        print(f"{name:<32} {count:>22}")
    print(f"{'peak in flight':<32} {seen['peak_in_flight']:>22}")
    return 1 if any(violations.values()) else 0


def written(folder: Path, urls: Sequence[str], shards: int) -> Path:
    """A configuration with the judges, a limit, and a cache of its own."""
    path = folder / "reward.yaml"
    settings = {
        "components": {"quality": {"judge": "q"}},
        "judges": {
            "q": {
                "endpoints": [{"base_url": url, "model": "m"} for url in urls],
                "verdict": {"integer": [1, 10]},
            }
        },
        # a copy is sent only of what hangs: one that leaves while its answer is under way would
        # look like a repetition from the judge's side
        "traffic": {
            "concurrency": LIMIT,
            "timeout_s": 20,
            "attempts": 40,
            "hedge": {"after": 8.0, "extra": 0.05},
        },
        "hub": {"shards": shards},
        "cache": {"path": str(folder / "judgements.db")},
    }
    path.write_text(json.dumps(settings))
    return path


@contextmanager
def judge(folder: Path, script: dict[str, Any]) -> Iterator[str]:
    """The URL of a fake judge in a process of its own."""
    path = folder / f"script-{script['seed']}.yaml"
    path.write_text(json.dumps(script))
    command = [*COMMAND, "judge", "--fake", "--port", "0", "--script", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield "" if process.stdout is None else process.stdout.readline().split()[-1]
        finally:
            process.terminate()


if __name__ == "__main__":
    sys.exit(main())
