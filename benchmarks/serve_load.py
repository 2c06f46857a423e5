"""``zerowait serve`` under many clients while its judge fails in every way: is anything lost?

    python benchmarks/serve_load.py [--clients 500] [--seconds 60]

CLIENTS programs ask a service in a process of its own for rewards, one sample, a list or lines at a
time, for SECONDS. Its judge refuses, breaks, hangs and lies by the script of ``chaos.py``. One
request in twenty is broken off by its client and sent again. Then the service gets SIGTERM, with
every client waiting for an answer. A reward is compared with what the script says is right. Any
wrong or lost reward, any request that was open at SIGTERM and got no answer, and any exit code but
0 is an exit code of 1.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import chaos
import msgspec
import uvloop
from serving import cpu_s, show_load

from zerowait import Reward, Sample
from zerowait.config import load_config
from zerowait.types import Outcome

NDJSON = "application/x-ndjson"
ROWS_OF = {"one": 1, "list": 4, "lines": 8}
BROKEN_OFF = 0.05
DRAIN_S = 120
_decode_one = msgspec.json.Decoder(Reward).decode
_decode_list = msgspec.json.Decoder(list[Reward]).decode
_decode_line = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass
class Answers:
    """What the clients got.

    Attributes:
        samples: those that were answered.
        outcomes: of each, what the judge's component came to.
        statuses: of the replies.
        unanswered: requests whose connection ended without a reply, and why.
        broken_off: requests that their client broke off and sent again.
        draining: set when the service got SIGTERM.
        drained: requests that were open then and got their rewards.
    """

    samples: list[Sample] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    unanswered: Counter[str] = field(default_factory=Counter)
    broken_off: int = 0
    draining: bool = False
    drained: int = 0


def main() -> int:
    """Print the table; 1 for anything that was wrong or lost."""
    options = argparse.ArgumentParser()
    options.add_argument("--clients", type=int, default=500)
    options.add_argument("--seconds", type=float, default=60.0)
    chosen = options.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        chaos.judge(Path(folder), chaos.SCRIPT) as url,
    ):
        config = chaos.written(Path(folder), [url], 1)
        with service(config) as (process, address):
            answers = Answers()
            memory = uvloop.run(load(process, address, answers, chosen.clients, chosen.seconds))
            drain_began = time.monotonic()
            code = process.wait(DRAIN_S + 30)
            drain_s = time.monotonic() - drain_began
        found = chaos.compared(load_config(str(config)), answers.samples, answers.outcomes)
    violations = {
        "wrong rewards": found["wrong"],
        "lost rewards": found["lost"],
        "replies with an error": sum(n for status, n in answers.statuses.items() if status != 200),
        "requests without a reply": answers.unanswered.total(),
        "exit code": code,
    }
    rows_per_s = len(answers.samples) / chosen.seconds
    show(
        {
            "clients, seconds": f"{chosen.clients}, {chosen.seconds:g}",
            "rewards": len(answers.samples),
            "rewards per second": f"{rows_per_s:.0f}",
            "right scores, abstained as it should": f"{found['right']}, {found['abstained']}",
            "broken off and sent again": answers.broken_off,
            "open at SIGTERM and answered": answers.drained,
            "seconds from the last answer to the end": f"{drain_s:.1f}",
            "CPU per reward": f"{1000 * memory.cpu_s / max(1, len(answers.samples)):.2f} ms",
            "MiB after each sixth; peak": memory.line(),
            **violations,
        }
    )
    for why, count in (answers.statuses | answers.unanswered).items():
        print(f"  {count} x {why}")
    show_load()
    return 1 if any(violations.values()) else 0


def show(table: dict[str, Any]) -> None:
    """Print names and values."""
    for name, value in table.items():
        print(f"{name:<40} {value:>32}")


@contextmanager
def service(config: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running ``zerowait serve``, and its address."""
    command = [*chaos.COMMAND, "serve", "-c", str(config), "--port", "0", "--drain-s", str(DRAIN_S)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, "" if process.stdout is None else process.stdout.readline().split()[-1]
        finally:
            process.kill()


@dataclass
class Memory:
    """Resident memory of a process in MiB after each sixth of the time, its peak, its CPU time."""

    by_sixth: list[float]
    peak: float
    cpu_s: float

    def line(self) -> str:
        """The memory, and its peak."""
        return f"{', '.join(f'{each:.0f}' for each in self.by_sixth)}; {self.peak:.0f}"


async def load(
    process: subprocess.Popen[str], url: str, answers: Answers, clients: int, seconds: float
) -> Memory:
    """Ask until the time is over, send SIGTERM, and wait for the answers to what is open."""
    numbers = itertools.count()
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=600)
    async with (
        aiohttp.ClientSession(url, connector=connector, timeout=timeout) as session,
        asyncio.TaskGroup() as tasks,
    ):
        for client in range(clients):
            tasks.create_task(ask_again_and_again(session, numbers, answers, random.Random(client)))
        by_sixth = []
        for _ in range(6):
            await asyncio.sleep(seconds / 6)
            by_sixth.append(resident(process.pid, "VmRSS"))
        memory = Memory(by_sixth, resident(process.pid, "VmHWM"), cpu_s(process.pid))
        answers.draining = True
        process.send_signal(signal.SIGTERM)
    return memory


def resident(pid: int, which: str) -> float:
    """``VmRSS`` or ``VmHWM`` of a process in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(which)).split()[1]) / 1024


async def ask_again_and_again(
    session: aiohttp.ClientSession, numbers: Iterator[int], answers: Answers, draw: random.Random
) -> None:
    """One client, until the service ends."""
    while not answers.draining:
        way = draw.choice(list(ROWS_OF))
        rows = [Sample("What is asked?", f"answer {next(numbers)}") for _ in range(ROWS_OF[way])]
        if draw.random() < BROKEN_OFF:
            answers.broken_off += 1
            try:
                async with asyncio.timeout(draw.uniform(0.0, 0.05)):
                    await ask(session, way, rows)
            except (TimeoutError, aiohttp.ClientError):
                pass
            if answers.draining:
                return
        try:
            status, rewards = await ask(session, way, rows)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if not refused(error) or not answers.draining:
                answers.unanswered[type(error).__name__] += 1
            return
        if status == 503 and answers.draining:
            return  # it came after SIGTERM
        answers.statuses[status] += 1
        answers.samples += rows[: len(rewards)]
        answers.outcomes += [reward.components["quality"] for reward in rewards]
        answers.drained += answers.draining
        if status == 200 and len(rewards) < len(rows):
            answers.unanswered["lines are missing"] += 1


def refused(error: BaseException) -> bool:
    """Whether the request never reached the service."""
    return isinstance(error, aiohttp.ClientConnectorError | ConnectionRefusedError)


async def ask(
    session: aiohttp.ClientSession, way: str, rows: list[Sample]
) -> tuple[int, list[Reward]]:
    """The status and the rewards of one request."""
    if way == "lines":
        body, kind = b"\n".join(map(msgspec.json.encode, rows)), NDJSON
    else:
        body = msgspec.json.encode(rows[0] if way == "one" else rows)
        kind = "application/json"
    async with session.post("/v1/score", data=body, headers={"Content-Type": kind}) as reply:
        text = await reply.read()
    if reply.status != 200:
        return reply.status, []
    if way == "one":
        return 200, [_decode_one(text)]
    if way == "list":
        return 200, _decode_list(text)
    found: dict[int, Reward] = {}
    for line in map(_decode_line, text.splitlines()):
        if "error" in line:
            break
        found[msgspec.json.decode(line["index"])] = _decode_one(line["reward"])
    return 200, [found[index] for index in sorted(found)]


if __name__ == "__main__":
    sys.exit(main())
