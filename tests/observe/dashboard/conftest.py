"""Records as a run leaves them, and a dashboard that serves them in a thread."""

import asyncio
import json
import random
import threading
from contextlib import contextmanager

import msgspec
import pytest

from zerowait.engine.portal import Portal
from zerowait.observe.dashboard import DashboardSettings, serving_dashboard
from zerowait.record import JUDGEMENTS, REWARDS, AppendOnlyFile, JudgementLine, RewardRecord
from zerowait.types import Abstain, Reward, Sample, Score

HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>'


def reward_line(number, *, response="It is Lima.", value=1.0, outcome=None, **sample):
    outcome = outcome or (
        Score(value) if value is not None else Abstain("timeout", "no answer in 60 s")
    )
    return RewardRecord(
        sample=Sample(sample.pop("prompt", "What is the capital of Peru?"), response, **sample),
        reward=Reward(value, {"quality": outcome}, policy="" if value is not None else "neutral"),
        uid=f"u{number}",
        submitted_at=float(number),
        settled_at=number + 1.0,
    )


def judgement_line(number, **more):
    given = {
        "at": float(number),
        "judge": "quality",
        "component": "quality",
        "uids": (f"u{number}",),
        "question": 0,
        "key": f"k{number}",
        "source": "asked",
        "outcome": Score(1.0),
        "model": "judge-1",
        "request": {"messages": [{"role": "user", "content": f"Judge answer {number}."}]},
        "reply": f"Score: 1 for answer {number}",
        "replied": True,
    }
    given |= more
    bodies = {name: msgspec.Raw(json.dumps(given[name]).encode()) for name in ("request", "reply")}
    return JudgementLine(**(given | bodies))


def append(folder, rewards=(), judgements=()):
    folder.mkdir(exist_ok=True, parents=True)
    for name, lines in ((REWARDS, rewards), (JUDGEMENTS, judgements)):
        if lines:
            file = AppendOnlyFile(folder / name)
            file.write(b"\n".join(map(msgspec.json.encode, lines)))
            file.close()


@pytest.fixture
def recorded(tmp_path):
    """``recorded(rewards, judgements)``: a folder with these lines, or with more of them."""

    def write(rewards=(), judgements=(), name="run"):
        append(tmp_path / name, rewards, judgements)
        return tmp_path / name

    return write


@pytest.fixture
def reward():
    return reward_line


@pytest.fixture
def judgement():
    return judgement_line


@pytest.fixture(scope="session")
def hostile():
    return HOSTILE


@pytest.fixture(scope="session")
def serve_runs():
    """``with serve_runs([folder]) as url``: the dashboard, on a loop of its own thread."""

    @contextmanager
    def serving(folders, **settings):
        with Portal("dashboard") as portal:
            stop, ready = asyncio.Event(), threading.Event()
            urls = []

            async def run():
                async with serving_dashboard(folders, DashboardSettings(port=0, **settings)) as url:
                    urls.append(url)
                    ready.set()
                    await stop.wait()

            async def end():
                stop.set()

            running = portal.submit(run)
            running.add_done_callback(lambda _: ready.set())
            ready.wait()
            if not urls:
                running.result()
            try:
                yield urls[0]
            finally:
                portal.call(end)
                running.result()

    return serving


class Many:
    """A record's folder and its lines."""

    def __init__(self, folder, rewards, judgements):
        self.folder, self.rewards, self.judgements = folder, rewards, judgements


@pytest.fixture(scope="session")
def many(tmp_path_factory):
    """A run of 6,000 samples, which is more than are looked up one by one, and its rewards."""
    draw = random.Random(3)
    rewards, judgements = [], []
    for number in range(1, 6001):
        value = round(draw.random(), 2) if draw.random() < 0.9 else None
        kind = draw.choice(("timeout", "unparseable"))
        rewards.append(
            reward_line(
                number,
                value=value,
                outcome=None if value is not None else Abstain(kind, "why"),
                response=draw.choice(("alpha", "beta 100%", "gamma_ray", "Alpha\\beta")) * 3,
                step=number // 100,
                split="train" if draw.random() < 0.8 else "validation",
                data_source=draw.choice(("math", "code")),
                group=f"g{number // 4}",
            )
        )
        source = draw.choice(("asked", "asked", "cache"))
        judgements.append(
            judgement_line(number, source=source, outcome=rewards[-1].reward.components["quality"])
        )
    folder = tmp_path_factory.mktemp("many")
    append(folder, rewards, judgements)
    return Many(folder, rewards, judgements)
