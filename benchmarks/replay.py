"""Replay of a recorded run: 0 requests, and rewards equal to those of asking the judge afresh.

A run of 10,000 rows is recorded with a deterministic judge that fails on some of them. Then four
other configurations (weights and gates; a shape; a verdict read otherwise; all of it) score the
record with the judge counting its requests, and the same rows are scored afresh by asking it.

    python benchmarks/replay.py [--rows 10000]

Exit code 1 where a request was sent, a reward differs, or a failure became a number.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from zerowait import Engine, Reward, Sample
from zerowait.config import load_config
from zerowait.hub import JobHub
from zerowait.observe import compare, replay
from zerowait.testing import FakeJudge, Garbage, Script, Status
from zerowait.types import Abstain

SCRIPT = Script(
    seed=11,
    faults=(Garbage(share=0.02, always=True), Status(status=400, share=0.02, always=True)),
)


def rows(count: int) -> list[Sample]:
    """Groups of eight, in steps of 1,024."""
    return [
        Sample(
            f"{at // 8}. Capital of France?",
            f"{'Paris' if at % 3 else 'Rome'}, {'I am sure, ' * (at % 7)}answer {at}.",
            "Paris",
            group=f"g{at // 8}",
            response_tokens=20 + 4 * (at % 7),
            id=str(at),
            step=at // 1024,
        )
        for at in range(count)
    ]


def config(
    url: str, *, quality: dict[str, Any], verdict: dict[str, Any], **shape: Any
) -> dict[str, Any]:
    """A rule and a judge, and perhaps a shape."""
    endpoint = {"base_url": url, "model": "m"}
    return {
        "components": {
            "answer": {"scorer": "contains"},
            "quality": {"judge": "q"} | quality,
            **shape,
        },
        "judges": {"q": {"endpoints": [endpoint], "verdict": verdict}},
        "traffic": {"hedge": "off", "timeout_s": 60, "concurrency": 128, "give_up_after": "off"},
        "cache": "off",
    }


def changes(url: str) -> dict[str, dict[str, Any]]:
    """The configurations by which the run is replayed."""
    words = {"integer": [1, 10], "structured": "off"}
    gated = {"weight": 0.5, "gate": "answer > 0", "normalize": True}
    length = {"length": {"shape": "median_band"}}
    plain = {"weight": 0.1}
    return {
        "weights and a gate": config(url, quality=gated, verdict={"integer": [1, 10]}),
        "a shape": config(url, quality=plain, verdict={"integer": [1, 10]}, **length),
        "another verdict": config(url, quality=plain, verdict=words),
        "all of it": config(url, quality=gated, verdict=words, **length),
    }


async def recorded(settings: dict[str, Any], samples: list[Sample], folder: Path) -> None:
    """Keep a record of the samples' rewards in `folder`."""
    async with JobHub(settings, record=folder) as hub:
        await hub.score_all(samples)


async def asked(settings: dict[str, Any], samples: list[Sample]) -> list[Reward]:
    """The samples' rewards from a judge that is asked."""
    async with Engine(settings) as engine:
        return await engine.score_all(samples)


def wrong(afresh: list[Reward], again: dict[str, Reward]) -> int:
    """How many rewards or outcomes differ; a failure has its kind in common with that of before."""
    return sum(
        reward.value != again[str(at)].value
        or [_said(each) for each in reward.components.values()]
        != [_said(each) for each in again[str(at)].components.values()]
        for at, reward in enumerate(afresh)
    )


def _said(outcome: Any) -> Any:
    return outcome.kind if isinstance(outcome, Abstain) else outcome


def main() -> None:
    """Print the table; exit code 1 where something is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000)
    given = parser.parse_args()
    samples = rows(given.rows)
    failures = 0
    with FakeJudge(SCRIPT) as judge, TemporaryDirectory() as temporary:
        folder = Path(temporary)
        base = config(judge.url, quality={"weight": 0.1}, verdict={"integer": [1, 10]})
        began = time.process_time()
        asyncio.run(recorded(base, samples, folder))
        print(f"recorded {given.rows} rows with {judge.seen.requests} requests", end="")
        print(f" ({time.process_time() - began:.1f} s of CPU, judge included)\n")
        header = ("replayed by", "requests", "wrong", "abstained", "sign flips", "CPU s")
        print("| " + " | ".join(header) + " |\n" + "| --- " * len(header) + "|")
        for name, settings in changes(judge.url).items():
            before, began = judge.seen.requests, time.process_time()
            found = asyncio.run(replay(folder, load_config(settings)))
            took = time.process_time() - began
            sent = judge.seen.requests - before
            # by the prompt that the run was asked with, a deterministic judge would say the same
            same_prompt = settings | {"judges": base["judges"]}
            afresh = asyncio.run(asked(same_prompt, samples))
            again = {then.id: Reward(now.value, now.components) for then, now in found.pairs}
            differing = wrong(afresh, again)
            flips = compare(found.pairs, worst=0).signs.flipped
            abstained = sum(reward.value is None for reward in again.values())
            failures += sent + differing
            row = (name, sent, differing, abstained, flips, f"{took:.1f}")
            print("| " + " | ".join(map(str, row)) + " |")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
