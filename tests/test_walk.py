"""How far one sample walks through the code: the counts may only fall."""

import asyncio
import sys
from pathlib import Path
from types import FrameType

import pytest

import zerowait
from zerowait.testing import FakeJudge, Latency, Script

SOURCE = Path(zerowait.__file__).parent

MOST_FILES_OF_A_RULE = 10
MOST_FILES_OF_A_JUDGEMENT = 34
MOST_FUNCTIONS_OF_A_JUDGEMENT = 142
# Due now and then, whichever sample comes, and with each one where the machine is slow
TIMERS = {
    ("client/limits/adaptive.py", "Window.restart"),
    ("engine/engine.py", "Engine._on_lag_probe"),
    ("engine/monitor/loop_lag.py", "LoopLagMonitor._probe"),
    ("engine/monitor/loop_lag.py", "LoopLagMonitor._probe.<locals>.<genexpr>"),
    ("engine/monitor/loop_lag.py", "_outwards"),
    ("engine/monitor/stall_watchdog.py", "PendingWork.__len__"),
    ("engine/monitor/stall_watchdog.py", "StallWatchdog.check"),
}


class Walk:
    """A profiler that keeps every distinct function of zerowait that this thread enters."""

    def __init__(self) -> None:
        self.functions: dict[tuple[str, str], None] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(SOURCE):
            name = str(file.relative_to(SOURCE))
            function = name, frame.f_code.co_qualname
            if not name.startswith("testing") and function not in TIMERS:
                self.functions[function] = None

    @property
    def files(self) -> list[str]:
        """The files of those functions, in the order in which they were entered."""
        return list(dict.fromkeys(file for file, _ in self.functions))

    def __str__(self) -> str:
        lines = [f"{len(self.files)} files, {len(self.functions)} functions"]
        lines += [
            f"{file}: {', '.join(name for at, name in self.functions if at == file)}"
            for file in self.files
        ]
        return "\n".join(lines)


async def walk(config: dict) -> Walk:
    """The shortest walk of several samples through an engine that has judged another one before."""
    async with zerowait.Engine(config) as engine:
        await engine.score(zerowait.Sample("Capital of Italy?", "<answer>Rome</answer>", "Rome"))
        walks = []
        for number in range(5):
            prompt = f"{number}. Capital of France?"
            sample = zerowait.Sample(prompt, "<answer>Paris</answer>", "Paris")
            walked = Walk()
            sys.setprofile(walked)
            try:
                reward = await engine.score(sample)
            finally:
                sys.setprofile(None)
            assert reward.value is not None
            walks.append(walked)
    return min(walks, key=lambda each: len(each.functions))


@pytest.fixture(scope="module")
def of_a_rule() -> Walk:
    return asyncio.run(walk({"components": {"answer": {"scorer": "qa_em"}}}))


@pytest.fixture(scope="module")
def of_a_judgement(tmp_path_factory: pytest.TempPathFactory) -> Walk:
    """One judged sample with default traffic: a warm connection, and nothing in the cache."""
    # Its latency is far longer than the pauses between samples, which the limiter takes note of
    with FakeJudge(Script(latency=Latency(median_s=0.1, sigma=0.0))) as judge:
        endpoint = {"base_url": judge.url, "model": "m"}
        config = {
            "components": {"quality": {"judge": "quality"}},
            "judges": {"quality": {"endpoints": [endpoint], "verdict": {"integer": [1, 10]}}},
            "cache": {"path": str(tmp_path_factory.mktemp("walk") / "judgements.db")},
        }
        return asyncio.run(walk(config))


def test_a_rule_passes_few_files(of_a_rule: Walk):
    assert len(of_a_rule.files) <= MOST_FILES_OF_A_RULE, str(of_a_rule)


def test_a_judgement_passes_few_files(of_a_judgement: Walk):
    assert len(of_a_judgement.files) <= MOST_FILES_OF_A_JUDGEMENT, str(of_a_judgement)


def test_a_judgement_passes_few_functions(of_a_judgement: Walk):
    assert len(of_a_judgement.functions) <= MOST_FUNCTIONS_OF_A_JUDGEMENT, str(of_a_judgement)
