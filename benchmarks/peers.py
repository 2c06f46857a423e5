"""The same judge asked by zerowait and by what people use instead, as a Markdown table per case.

    python benchmarks/peers.py [--cases faulty gone] [--peers zerowait aiohttp] [--rows 0.5]

The judge is a process of its own. What it does with a row is decided by a hash of the row: its
score, whether its answer is useless (cut, empty, no verdict, out of range), and whether its first
request is refused (429 with Retry-After), fails (500) or stalls. So every way meets the same fates.
Each way runs in a process of its own, with as many requests at once as the judge bears; zerowait is
given that number in the clean cases only, and its default traffic elsewhere. The others retry eight
times with a timeout of 30 s, which is their best setting for these cases. A way that is not done
within 45 s from the start of its processes is ended, and left out of the cases that follow. It is
named under the tables, as is one whose package is not installed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import aiohttp
from aiohttp import web

Ask: TypeAlias = Callable[[str], Awaitable[float | None]]
"""The score of a prompt; None where the way shows that it has none. It may raise."""

RETRIES = 8
TIMEOUT_S = 30.0
LONGEST_S = 45.0
ROW = re.compile(r"ROW:(\d+):")
SCORE = re.compile(r'"score":\s*(\d+)')
HIGH = 10


class Case(NamedTuple):
    """What the judge does, and what is asked of it.

    Args:
        rows: how many; in each of the processes.
        at_once: requests that the judge bears; more get a 429.
        latency_s: of each answer.
        processes: that ask for the same rows.
        runs: one after the other, with the same cache; the last one is told.
        faults: whether rows have fates.
        stall_s: how long a stalled request takes; `straggler` is the only one without `faults`.
        straggler: the row whose first request stalls; -1 for none.
        gone_s: for how long the judge breaks off every connection, from a second after the start.
    """

    rows: int
    at_once: int
    latency_s: float = 0.2
    processes: int = 1
    runs: int = 1
    faults: bool = False
    stall_s: float = 20.0
    straggler: int = -1
    gone_s: float = 0.0

    @property
    def ideal_s(self) -> float:
        """The time in which nobody can do it faster."""
        if self.runs > 1:
            return self.latency_s
        waves = -(-self.rows // self.at_once)
        return waves * self.latency_s + self.gone_s


CASES = {
    "clean, 60 at once": Case(600, 60),
    "clean, 500 at once": Case(3000, 500),
    "faulty, 100 at once, default traffic": Case(1000, 100, faults=True),
    "four processes, the same rows": Case(500, 100, processes=4),
    "again after a restart": Case(500, 100, runs=2, faults=True, stall_s=5.0),
    "one straggler of 30 s": Case(200, 60, latency_s=1.0, straggler=150, stall_s=30.0),
    "judge gone for 10 s": Case(500, 60, gone_s=10.0),
}


# The fates of rows, which the judge and the count of right answers share.


def _share(row: int, what: str) -> float:
    return int.from_bytes(sha256(f"{what}:{row}".encode()).digest()[:6]) / 2**48


def score_of(row: int) -> int:
    """The score that the judge gives a row, from 1 to 10."""
    return 1 + int(_share(row, "score") * HIGH)


def useless(row: int, case: Case) -> str:
    """How the answer about a row is useless every time; empty for most rows."""
    drawn = _share(row, "useless") if case.faults else 1.0
    for bound, fate in ((0.05, "garbage"), (0.07, "out of range"), (0.08, "empty"), (0.09, "cut")):
        if drawn < bound:
            return fate
    return ""


def first_fate(row: int, case: Case) -> str:
    """What becomes of the first request about a row."""
    if row == case.straggler:
        return "stall"
    drawn = _share(row, "first") if case.faults else 1.0
    for bound, fate in ((0.10, "429"), (0.13, "500"), (0.14, "stall")):
        if drawn < bound:
            return fate
    return ""


def answer_of(row: int, case: Case) -> tuple[str, str]:
    """The text about a row, and how it ended."""
    right = json.dumps({"score": score_of(row), "reason": "as the hash says"})
    fate = useless(row, case)
    if fate == "garbage":
        return "Let me think about what the response says.", "stop"
    if fate == "out of range":
        return json.dumps({"score": HIGH + 4, "reason": "very good"}), "stop"
    if fate == "empty":
        return "", "stop"
    return (right[:9], "length") if fate == "cut" else (right, "stop")


class Judge:
    """An OpenAI-compatible server with the fates of one case at a time."""

    def __init__(self) -> None:
        self.case = Case(0, 1)
        self.asked: Counter[int] = Counter()
        self.requests = self.in_flight = 0
        self.gone_at = float("inf")

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application(client_max_size=1 << 24)
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_post("/case", self.begin)
        app.router.add_get("/seen", self.seen)
        return app

    async def begin(self, request: web.Request) -> web.Response:
        """Forget what was, and behave as the case in the body says."""
        self.case = Case(**await request.json())
        self.asked.clear()
        self.requests = 0
        self.gone_at = float("inf")
        return web.Response()

    async def seen(self, request: web.Request) -> web.Response:
        """How many requests came."""
        del request
        return web.json_response({"requests": self.requests})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Answer as the row's fate says."""
        case, now = self.case, time.monotonic()
        self.requests += 1
        self.gone_at = min(self.gone_at, now + 1.0)
        if self.gone_at <= now < self.gone_at + case.gone_s:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        found = ROW.search((await request.read()).decode())
        row = int(found[1]) if found else -1
        self.asked[row] += 1
        fate = first_fate(row, case) if self.asked[row] == 1 else ""
        if fate == "429" or self.in_flight >= case.at_once:
            return web.json_response({"error": {}}, status=429, headers={"Retry-After": "1"})
        self.in_flight += 1
        try:
            await asyncio.sleep(case.stall_s if fate == "stall" else case.latency_s)
        finally:
            self.in_flight -= 1
        if fate == "500":
            return web.json_response({"error": {"message": "boom"}}, status=500)
        text, end = answer_of(row, case)
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": end}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        head = {"id": "x", "object": "chat.completion", "created": 0, "model": "m"}
        return web.json_response(head | {"choices": [choice], "usage": usage})


def serve(ready: Any) -> None:
    """Serve until the process is ended; the port goes through `ready`."""

    async def main() -> None:
        runner = web.AppRunner(Judge().app(), access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, backlog=4096)
        await site.start()
        ready.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(main())


# The ways. Each is what its documentation shows for many requests at once.


def prompt_of(row: int) -> str:
    """What is asked about a row; its number is all that matters."""
    text = "The quick brown fox jumps over the lazy dog. " * 20
    return f"Rate the response from 1 to {HIGH} as JSON with score and reason. ROW:{row}: {text}"


def read_score(text: str | None) -> float | None:
    """The score in an answer, as one would read it by hand."""
    found = SCORE.search(text or "")
    score = float(found[1]) if found else None
    return score if score is not None and 1 <= score <= HIGH else None


@contextlib.asynccontextmanager
async def by_aiohttp(url: str, at_once: int) -> AsyncIterator[Ask]:
    """Aiohttp with a semaphore and a loop that tries again, Retry-After honoured."""
    gate = asyncio.Semaphore(at_once)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

        async def once(prompt: str) -> tuple[int, float, str]:
            body = {"model": "m", "messages": [{"role": "user", "content": prompt}]}
            async with gate, session.post(f"{url}/chat/completions", json=body) as reply:
                after_s = float(reply.headers.get("Retry-After", 0))
                if reply.status != 200:
                    return reply.status, after_s, ""
                choice = (await reply.json())["choices"][0]
                text = choice["message"]["content"] if choice["finish_reason"] == "stop" else ""
                return 200, 0.0, text

        async def ask(prompt: str) -> float | None:
            for attempt in range(RETRIES + 1):
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    status, after_s, text = await once(prompt)
                    if status == 200:
                        return read_score(text)
                    await asyncio.sleep(after_s)
                await asyncio.sleep(min(0.5 * 2**attempt, 8.0))
            return None

        yield ask


@contextlib.asynccontextmanager
async def by_openai(url: str, at_once: int) -> AsyncIterator[Ask]:
    """The openai SDK under a semaphore."""
    from openai import AsyncOpenAI

    gate = asyncio.Semaphore(at_once)
    async with AsyncOpenAI(
        base_url=url, api_key="none", max_retries=RETRIES, timeout=TIMEOUT_S
    ) as client:

        async def ask(prompt: str) -> float | None:
            async with gate:
                messages: Any = [{"role": "user", "content": prompt}]
                reply = await client.chat.completions.create(model="m", messages=messages)
            return read_score(reply.choices[0].message.content)

        yield ask


@contextlib.asynccontextmanager
async def by_litellm(url: str, at_once: int) -> AsyncIterator[Ask]:
    """litellm.acompletion under a semaphore."""
    import litellm

    gate = asyncio.Semaphore(at_once)
    litellm.suppress_debug_info = True

    async def ask(prompt: str) -> float | None:
        async with gate:
            reply = await litellm.acompletion(
                model="openai/m",
                api_base=url,
                api_key="none",
                messages=[{"role": "user", "content": prompt}],
                max_retries=RETRIES,
                timeout=TIMEOUT_S,
            )
        return read_score(reply.choices[0].message.content)

    yield ask


@contextlib.asynccontextmanager
async def by_inspect(url: str, at_once: int) -> AsyncIterator[Ask]:
    """A model of inspect_ai with its own limit of connections."""
    from inspect_ai.model import GenerateConfig, get_model

    config = GenerateConfig(max_connections=at_once, max_retries=RETRIES, timeout=int(TIMEOUT_S))
    model = get_model("openai/m", base_url=url, api_key="none", config=config, responses_api=False)

    async def ask(prompt: str) -> float | None:
        return read_score((await model.generate(prompt)).completion)

    yield ask


@contextlib.asynccontextmanager
async def by_verifiers(url: str, at_once: int) -> AsyncIterator[Ask]:
    """A judge of verifiers under a semaphore; its client retries as often as it likes."""
    import verifiers.v1 as vf

    os.environ["PEER_KEY"] = "none"
    gate = asyncio.Semaphore(at_once)
    judge: Any = vf.Judge(vf.JudgeConfig(model="m", base_url=url, api_key_var="PEER_KEY"))

    async def ask(prompt: str) -> float | None:
        async with gate:
            return read_score((await judge.complete(prompt)).text)

    yield ask


@contextlib.asynccontextmanager
async def by_openjudge(url: str, at_once: int) -> AsyncIterator[Ask]:
    """A grader of OpenJudge under a semaphore."""
    from openjudge.graders.llm_grader import LLMGrader
    from openjudge.models.openai_chat_model import OpenAIChatModel

    gate = asyncio.Semaphore(at_once)
    model = OpenAIChatModel(
        model="m", api_key="none", base_url=url, max_retries=RETRIES, timeout=TIMEOUT_S
    )
    grader = LLMGrader(model=model, name="quality", template="{response}")

    async def ask(prompt: str) -> float | None:
        async with gate:
            result = await grader.aevaluate(response=prompt)
        score = getattr(result, "score", None)
        return None if score is None else float(score)

    yield ask


@contextlib.asynccontextmanager
async def by_verl(url: str, at_once: int) -> AsyncIterator[Ask]:
    """The reward manager rate_limited of verl over a function that asks with aiohttp."""
    import numpy as np
    import torch
    from omegaconf import OmegaConf
    from tensordict import TensorDict
    from verl import DataProto
    from verl.experimental.reward_loop.reward_manager.limited import RateLimitedRewardManager

    class Tokens:
        """A tokenizer that gives the row back that the tokens name."""

        def decode(self, ids: Any, **_: Any) -> str:
            return prompt_of(int(ids[0]))

    async with by_aiohttp(url, at_once) as by_hand:

        async def compute_score(solution_str: str, **_: Any) -> float:
            score = await by_hand(solution_str)
            if score is None:
                raise ValueError("the judge gave no score")
            return score

        config = OmegaConf.create({"reward": {"max_concurrent": at_once, "timeout": 120.0}})
        tokens: Any = Tokens()
        RateLimitedRewardManager.init_class(config, tokens)
        manager = RateLimitedRewardManager(config, tokens, compute_score)

        async def ask(prompt: str) -> float | None:
            ids = torch.tensor([[int(prompt.partition("ROW:")[2].partition(":")[0])]])
            batch = TensorDict(
                {"responses": ids, "attention_mask": torch.ones_like(ids)}, batch_size=1
            )
            columns = {
                "data_source": np.array(["s"], dtype=object),
                "reward_model": np.array([{"ground_truth": ""}], dtype=object),
                "extra_info": np.array([{}], dtype=object),
            }
            data = DataProto(batch=batch, non_tensor_batch=columns)
            return float((await manager.run_single(data))["reward_score"])

        yield ask


PEERS = {
    "aiohttp by hand": by_aiohttp,
    "openai": by_openai,
    "litellm": by_litellm,
    "inspect_ai": by_inspect,
    "verifiers": by_verifiers,
    "OpenJudge": by_openjudge,
    "verl rate_limited": by_verl,
}
OURS = "zerowait"


# One run, in a process of its own.


class Run(NamedTuple):
    """What one process took and got; the times are those of the clock that processes share."""

    began_s: float
    ended_s: float
    cpu_s: float
    values: list[float | None]


async def by_peer(name: str, url: str, case: Case, limit: int) -> Run:
    """All rows at once through one of `PEERS`."""
    values: list[float | None] = [None] * case.rows

    async with PEERS[name](url, limit) as ask:
        began, cpu = time.monotonic(), time.process_time()

        async def one(row: int) -> None:
            try:
                values[row] = await ask(prompt_of(row))
            except Exception:  # noqa: BLE001 - however it shows that it failed
                values[row] = None

        async with asyncio.TaskGroup() as tasks:
            for row in range(case.rows):
                tasks.create_task(one(row))
        return Run(began, time.monotonic(), time.process_time() - cpu, values)


async def by_zerowait(url: str, case: Case, limit: int, cache: str) -> Run:
    """All rows through the engine; without a limit of ours where the judge is not clean."""
    from zerowait import Engine, Sample

    clean = not case.faults and not case.gone_s
    endpoint = {"base_url": url, "model": "m"}
    config = {
        "components": {"quality": {"judge": "quality"}},
        "judges": {"quality": {"endpoints": [endpoint], "verdict": {"integer": [1, HIGH]}}},
        "traffic": {"concurrency": limit} if clean else {},
        "cache": {"path": cache} if case.runs > 1 or case.processes > 1 else "off",
    }
    samples = [Sample("Rate it.", prompt_of(row)) for row in range(case.rows)]
    async with Engine(config) as engine:
        began, cpu = time.monotonic(), time.process_time()
        rewards = await engine.score_all(samples)
        ended, spent = time.monotonic(), time.process_time() - cpu
    return Run(began, ended, spent, [reward.value for reward in rewards])


def work(name: str, url: str, case: Case, cache: str) -> None:
    """Run one way and print what it took as JSON."""
    logging.disable(logging.CRITICAL)
    limit = max(1, case.at_once // case.processes)
    if name == OURS:
        run = asyncio.run(by_zerowait(url, case, limit, cache))
    else:
        run = asyncio.run(by_peer(name, url, case, limit))
    sys.stdout.write(f"\nRUN {json.dumps(run)}\n")


def started(name: str, url: str, case: Case, cache: str) -> subprocess.Popen[str]:
    """A process that runs one way."""
    command = [sys.executable, __file__, "--work", name, url, json.dumps(case), cache]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result_of(process: subprocess.Popen[str]) -> Run | str:
    """What the process told, or why it told nothing."""
    try:
        out, errors = process.communicate(timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return f"not done in {LONGEST_S:.0f} s"
    for line in reversed(out.splitlines()):
        if line.startswith("RUN "):
            return Run(*json.loads(line[4:]))
    last = [line for line in errors.splitlines() if line.strip()][-1:] or ["it printed nothing"]
    return last[0][:160]


def measured(name: str, url: str, case: Case) -> list[str] | str:
    """The row of a table for one way; or why there is none."""
    post(url, case)
    with tempfile.TemporaryDirectory() as folder:
        cache = str(Path(folder) / "judgements.db")
        runs: list[Run] = []
        before = 0
        for _ in range(case.runs):
            before = seen(url)
            processes = [started(name, url, case, cache) for _ in range(case.processes)]
            results = [result_of(process) for process in processes]
            failed = [result for result in results if isinstance(result, str)]
            if failed:
                return failed[0]
            runs = [result for result in results if isinstance(result, Run)]
    took_s = max(run.ended_s for run in runs) - min(run.began_s for run in runs)
    cpu_ms = sum(run.cpu_s for run in runs) / sum(len(run.values) for run in runs) * 1000
    right = shown = wrong = reachable = 0
    for run in runs:
        for row, value in enumerate(run.values):
            can_be_known = not useless(row, case)
            reachable += can_be_known
            right += can_be_known and value == score_of(row)
            shown += value is None
            wrong += value is not None and not (can_be_known and value == score_of(row))
    return [
        name,
        f"{took_s:.1f}",
        f"{took_s / case.ideal_s:.2f}",
        f"{cpu_ms:.2f}",
        f"{seen(url) - before:,}",
        f"{right:,} of {reachable:,}",
        f"{shown:,}",
        f"{wrong:,}",
    ]


def post(url: str, case: Case) -> None:
    """Tell the judge how to behave."""
    _fetch(url.removesuffix("/v1") + "/case", json.dumps(case._asdict()).encode())


def seen(url: str) -> int:
    """How many requests the judge has seen in this case."""
    return int(json.loads(_fetch(url.removesuffix("/v1") + "/seen") or b"{}").get("requests", 0))


def _fetch(url: str, body: bytes | None = None) -> bytes:
    import urllib.request

    with urllib.request.urlopen(url, body, timeout=10) as reply:  # noqa: S310 - our own server
        read: bytes = reply.read()
        return read


@contextlib.contextmanager
def judge_process() -> Any:
    """The URL of a judge in a process of its own."""
    context = multiprocessing.get_context("spawn")
    mine, its = context.Pipe()
    process = context.Process(target=serve, args=(its,), daemon=True)
    process.start()
    try:
        if not mine.poll(30):
            raise SystemExit("the judge did not start within 30 s")
        yield f"http://127.0.0.1:{mine.recv()}/v1"
    finally:
        process.terminate()
        process.join()


HEAD = ["way", "seconds", "/ ideal", "CPU ms per row", "requests", "right", "shown as failed"]
HEAD.append("failures as wrong numbers")


def main() -> int:
    """Print one Markdown table for each case."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--cases", nargs="*", default=[], help="parts of their names; else all")
    options.add_argument("--peers", nargs="*", default=[], help="parts of their names; else all")
    options.add_argument("--rows", type=float, default=1.0, help="factor of the number of rows")
    options.add_argument("--latency", type=float, default=1.0, help="factor of the latency")
    options.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.work:
        name, url, case, cache = given.work
        work(name, url, Case(*json.loads(case)), cache)
        return 0
    left_out: dict[str, str] = {}
    with judge_process() as url:
        for title, case in CASES.items():
            if given.cases and not any(part in title for part in given.cases):
                continue
            rows = max(1, round(case.rows * given.rows))
            latency_s = case.latency_s * given.latency
            straggler = min(case.straggler, rows - 1)
            sized = case._replace(rows=rows, latency_s=latency_s, straggler=straggler)
            table(title, sized, url, given.peers, left_out)
    for name, why in left_out.items():
        print(f"- {name}: {why}")
    return 0


def table(title: str, case: Case, url: str, only: list[str], left_out: dict[str, str]) -> None:
    """Print the table of one case; a way that cannot run at all is tried once."""
    print(f"\n### {title}\n\n{case.rows:,} rows, {case.latency_s:g} s an answer\n")
    print(f"| {' | '.join(HEAD)} |\n| {' | '.join(['---'] * len(HEAD))} |", flush=True)
    for name in (OURS, *PEERS):
        if name in left_out or (only and not any(part in name for part in only)):
            continue
        row = measured(name, url, case)
        if isinstance(row, str) and "not done" not in row:
            left_out[name] = row
            continue
        if isinstance(row, str) and name != OURS:
            left_out[name] = f"{row}: {title}"
        cells = row if isinstance(row, list) else [name, row, *[""] * (len(HEAD) - 2)]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
