"""How long the dashboard takes to open a large run, and to filter its samples.

    python benchmarks/dashboard.py [--judgements 1000000] [--folder DIR] [--opened 5] [--busy 0]

Writes a record of synthetic judgements through the record's own line types, starts the dashboard
on it, and asks it over HTTP as its page does. Prints the seconds of each request, and the
processor's seconds, which other work on the machine does not stretch; the goals are a page in under
2 s and a filter in under 0.3 s. The first reading of a record (its index is made) is told apart: it
happens once. Last, Chromium opens the page of a dashboard that was just started, until its charts
are drawn, and then a list with a filter; ``--busy N`` starts N busy processes beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from zerowait.observe.dashboard import DashboardSettings, serving_dashboard
from zerowait.observe.page.data import VIEWS
from zerowait.record import JUDGEMENTS, REWARDS, AppendOnlyFile, JudgementLine, RewardRecord
from zerowait.types import Abstain, FailureKind, Outcome, Reward, Sample, Score

GROUP = 8
GROUPS_A_STEP = 128
LINES_AT_ONCE = 1000
SOURCES = ("asked", "asked", "asked", "asked", "cache", "joined")
FILTERS = {
    "newest": "",
    "one step": "step={step}",
    "the split validation": "split=validation",
    "a data source": "data_source=code",
    "reward of at least 0.9": "least=0.9",
    "highest first": "order=highest",
    "a step, lowest first": "step={step}&order=lowest",
    "abstained": "outcome=abstain",
    "abstained: timeout": "outcome=timeout",
    "abstained: a rare kind": "outcome=refused",
    "a component's timeouts": "component=quality&outcome=timeout",
    "a component's scores below 0.1": "component=quality&most=0.1",
    "a component, highest first": "component=quality&order=highest",
    "a judge": "judge=quality",
    "a judge, from the cache": "judge=quality&source=cache",
    "refused without a request": "source=refused",
    "a step's rare kind": "step={step}&outcome=refused",
    "what no sample is": "split=validation&outcome=refused&least=0.99",
    "rated by people": "opinion=any",
    "text that is everywhere": "text=because",
    "text that is rare": "text=xylophone-{rare}",
    "text that is nowhere": "text=zzzz",
}


def main() -> None:
    """Make the record, where it is not there, and ask."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--judgements", type=int, default=1_000_000)
    options.add_argument("--folder", type=Path, default=None)
    options.add_argument("--opened", type=int, default=5, help="times that Chromium opens the page")
    options.add_argument("--busy", type=int, default=0, help="busy processes beside that")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = given.folder or Path(made) / "run"
        if not (folder / REWARDS).exists():
            began = time.perf_counter()
            write_record(folder, given.judgements)
            print(f"{given.judgements:,} judgements written in {time.perf_counter() - began:.0f} s")
        asyncio.run(measure(folder, given.judgements))
        if given.opened:
            with busy_processes(given.busy), chromium() as browser:
                for _ in range(given.opened):
                    asyncio.run(show_opening(browser, folder))


def write_record(folder: Path, judgements: int) -> None:
    """One judgement a sample, in groups of 8, 128 groups a step."""
    folder.mkdir(parents=True)
    encode = msgspec.json.encode
    files = AppendOnlyFile(folder / REWARDS), AppendOnlyFile(folder / JUDGEMENTS)
    pending: tuple[list[bytes], list[bytes]] = [], []
    for record in records(judgements):
        for lines, each in zip(pending, record, strict=True):
            lines.append(encode(each))
        if len(pending[0]) == LINES_AT_ONCE:
            flush(files, pending)
    flush(files, pending)
    for file in files:
        file.close()


def flush(files: tuple[AppendOnlyFile, ...], pending: tuple[list[bytes], ...]) -> None:
    """Write what is pending; a thousand lines at a time, or it takes an hour."""
    for file, lines in zip(files, pending, strict=True):
        if lines:
            file.write(b"\n".join(lines))
            lines.clear()


def records(count: int) -> Iterator[tuple[RewardRecord, JudgementLine]]:
    """Rewards with their judgements; the same for the same count."""
    draw = random.Random(7)
    words = [f"word{n}" for n in range(2000)] + ["because"] * 40
    for number in range(count):
        step, place = divmod(number, GROUP * GROUPS_A_STEP)
        uid = f"{number:08x}"
        outcome = drawn_outcome(draw)
        text = " ".join(draw.choices(words, k=60))
        if number % (count // 10) == 0:
            text += f" xylophone-{number}"
        rule = Score(float(draw.random() < 0.5))
        value = None if isinstance(outcome, Abstain) else 0.5 * (rule.value + outcome.value)
        yield (
            RewardRecord(
                sample=Sample(
                    f"Question {place // GROUP} of step {step}: what is {step} + {place}? Say why.",
                    text,
                    str(step + place),
                    draw.choice(("math", "math", "math", "code")),
                    f"{step}-{place // GROUP}",
                    60,
                    split="validation" if step % 20 == 0 else "train",
                    step=step,
                ),
                reward=Reward(
                    value,
                    {"answer": rule, "quality": outcome},
                    policy="neutral" if value is None else "",
                    why="quality abstained" if value is None else "",
                ),
                trained_on=value or 0.5,
                uid=uid,
                submitted_at=1.7e9 + number / 100,
                settled_at=1.7e9 + number / 100 + 1,
            ),
            JudgementLine(
                at=1.7e9 + number / 100,
                judge="quality",
                component="quality",
                uids=(uid,),
                question=0,
                key=uid * 8,
                source="refused" if number % 50_000 == 77 else draw.choice(SOURCES),
                outcome=outcome,
                attempts=1,
                status=200,
                endpoint="http://judge",
                model="judge-1",
                latency_s=draw.random(),
                request=raw({"messages": [{"role": "user", "content": f"Judge: {text[:200]}"}]}),
                reply=raw(f"It is fine. Score: {draw.random():.3f}"),
                replied=True,
            ),
        )


def raw(body: object) -> msgspec.Raw:
    """A body as a line holds it."""
    return msgspec.Raw(msgspec.json.encode(body))


def drawn_outcome(draw: random.Random) -> Outcome:
    """A score, mostly; one sample in a hundred timed out, one in 100,000 was refused."""
    fate = draw.random()
    if fate < 0.00001:
        return Abstain(FailureKind.REFUSED, "content policy")
    if fate < 0.01:
        return Abstain(FailureKind.TIMEOUT, "no answer in 60 s")
    return Score(round(draw.random(), 3))


async def measure(folder: Path, count: int) -> None:
    """Ask as the page does: what it opens with, then each filter three times."""
    settings = DashboardSettings(port=0)
    async with (
        serving_dashboard([folder], settings) as url,
        aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=3600)) as http,
    ):
        began = time.perf_counter()
        status = await until_ready(http)
        print(
            f"{status['samples']:,} samples; index ready after {time.perf_counter() - began:.1f} s"
        )
        worked = time.process_time()
        for view in VIEWS:
            await got(http, f"/api/runs/0/views/{view}")
        print(f"all views made in {time.process_time() - worked:.1f} s of the processor")
    async with (
        serving_dashboard([folder], settings) as url,
        aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=3600)) as http,
    ):
        began = time.perf_counter()
        await until_ready(http)
        print(f"{time.perf_counter() - began:7.3f} s  opened again, from the command's start")
        print("   time     CPU")
        for path in ("views", "choices", "agreement"):
            await timed(http, f"the page's {path}", path)
        rare = 3 * (count // 10)
        for name, query in FILTERS.items():
            asked = query.format(step=count // (GROUP * GROUPS_A_STEP) // 2, rare=rare)
            await timed(http, name, f"samples?limit=50&{asked}")
        await timed(http, "a group, side by side", f"samples/{count // 2}/group")


async def until_ready(http: aiohttp.ClientSession) -> dict:
    """The run's status as soon as it can be read."""
    while (status := (await got(http, "/api/runs"))[0])["state"] != "ready":
        if status["state"] == "failed":
            raise SystemExit(status["why"])
        await asyncio.sleep(0.01)
    return status


async def timed(http: aiohttp.ClientSession, name: str, path: str) -> None:
    """Ask three times; print the median, and a page's time read on to its end."""
    times, cpu = [], []
    for _ in range(3):
        began, worked = time.perf_counter(), time.process_time()
        reply = await got(http, f"/api/runs/0/{path}")
        times.append(time.perf_counter() - began)
        cpu.append(time.process_time() - worked)
    note = ""
    if "samples?" in path:
        found, pieces, began = len(reply["samples"]), 1, time.perf_counter()
        while reply["next"] is not None and found < 50:
            more = f"/api/runs/0/{path}&after={reply['next']}"
            reply = await got(http, more)
            found, pieces = found + len(reply["samples"]), pieces + 1
        rest = time.perf_counter() - began
        note = f"{found} samples"
        if pieces > 1:
            note += f"; in {pieces} pieces, all after {times[-1] + rest:.2f} s"
    print(f"{statistics.median(times):7.3f} s {statistics.median(cpu):7.3f} s  {name:34} {note}")


async def show_opening(browser: Any, folder: Path) -> None:
    """How long it takes from the address to the charts, and to a filtered list."""
    async with serving_dashboard([folder], DashboardSettings(port=0)) as url:
        drawn_s = await asyncio.to_thread(
            seconds_until,
            browser,
            f"{url}/",
            "document.querySelectorAll('.canvas canvas').length > 8",
        )
    async with serving_dashboard([folder], DashboardSettings(port=0)) as url:
        listed_s = await asyncio.to_thread(
            seconds_until,
            browser,
            f"{url}/#/samples?outcome=timeout&run=0",
            "document.querySelectorAll('.samples a').length > 40",
        )
    print(f"{drawn_s:7.3f} s  charts in Chromium; a filtered list {listed_s:.3f} s")


def seconds_until(browser: Any, address: str, condition: str) -> float:
    """From the opening of an address until a JavaScript condition holds."""
    browser.get("about:blank")
    began = time.perf_counter()
    browser.get(address)
    while not browser.execute_script(f"return {condition}"):
        time.sleep(0.02)
    return time.perf_counter() - began


@contextmanager
def chromium() -> Iterator[Any]:
    """The system's Chromium, without a window."""
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

    options = ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1300,900"):
        options.add_argument(argument)
    browser = Chrome(options=options, service=ChromeService(shutil.which("chromedriver")))
    try:
        yield browser
    finally:
        browser.quit()


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Run `count` processes that keep the processor busy, as long as the block runs."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()


async def got(http: aiohttp.ClientSession, path: str) -> list | dict:
    """The JSON at a path."""
    async with http.get(path) as reply:
        reply.raise_for_status()
        return await reply.json()


if __name__ == "__main__":
    main()
