"""The remote sandbox: programs are sent to a server that speaks SandboxFusion's HTTP API.

Its requests have what judges' requests have: limits, retries, a circuit breaker, single flight, and
the cache. A program's failure is an answer, and cached; the server's own failure abstains.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any, Final

import msgspec

from zerowait.attribution import Attribution
from zerowait.cache import Entry, SingleFlight, Store, StoreError
from zerowait.client import EndpointStates, JudgeClient, Secret, Transport
from zerowait.completion import Completion
from zerowait.config import Traffic
from zerowait.config.sandbox import RemoteSandboxSettings
from zerowait.events import Listener
from zerowait.scorers.code.program import Program, Run, RunEnding
from zerowait.types import Abstain, FailureKind

_CANONICAL: Final = msgspec.json.Encoder(order="sorted")
_COMPILE_S: Final = 30
_OVERHEAD_S: Final = 30.0
_PATIENCE: Final = 2
"""Factor on a program's time limit: the server counts seconds by the clock, not CPU time, and on a
busy machine a program needs more of them."""


class _CommandResult(msgspec.Struct, frozen=True):
    status: str = ""
    return_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None
    execution_time: float | None = None


class _Answer(msgspec.Struct, frozen=True):
    status: str
    message: str | None = None
    compile_result: _CommandResult | None = None
    run_result: _CommandResult | None = None


_decode: Final = msgspec.json.Decoder(_Answer).decode


def run_code_request(program: Program) -> bytes:
    """The body of the request that runs `program`."""
    body: dict[str, Any] = {
        "code": program.source,
        "stdin": program.stdin.decode(errors="replace"),
        "language": program.language,
        "compile_timeout": _COMPILE_S,
        "run_timeout": _PATIENCE * program.cpu_s,
        "memory_limit_MB": program.memory_bytes >> 20,
        "files": {},
        "fetch_files": [],
    }
    return _CANONICAL.encode(body)


def decode_run_code(body: bytes) -> Completion | None:
    """The reply as a completion: its text is the body; a failure of the sandbox's own is one.

    None for bytes that are no such reply.
    """
    try:
        answer = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    results = [each for each in (answer.compile_result, answer.run_result) if each is not None]
    is_broken = answer.status not in ("Success", "Failed") or not results
    if is_broken or any(each.status == "Error" for each in results):
        errors = [each.stderr for each in results if each.status == "Error" and each.stderr]
        words = (answer.message or " ".join(errors) or f"status {answer.status}")[:300]
        failure = Attribution(
            kind=FailureKind.HTTP_ERROR,
            cause="provider",
            again="later",
            status=500,
            words=f"the sandbox failed: {words}",
        )
        return Completion(failure=failure)
    return Completion(text=body.decode())


def run_in_reply(text: str, program: Program) -> Run:
    """What became of `program`, as an answer tells it."""
    answer = _decode(text.encode())
    compiled, ran = answer.compile_result, answer.run_result
    result = ran if ran is not None else compiled
    assert result is not None  # noqa: S101 - `decode_run_code` has looked
    stdout = (result.stdout or "").encode(errors="replace")
    if result.status == "TimeLimitExceeded":
        ending = RunEnding.OUT_OF_TIME
    elif len(stdout) > program.output_bytes:
        ending = RunEnding.TOO_MUCH_OUTPUT
    elif ran is None or result.return_code != 0:
        ending = RunEnding.FAILED
    else:
        ending = RunEnding.FINISHED
    code = result.return_code if result.return_code is not None else 1
    return Run(ending, stdout, result.stderr or "", code, result.execution_time or 0.0)


class RemoteSandbox:
    """Runs programs on a server; belongs to one loop.

    Args:
        settings: where it is.
        key: sent as a bearer token.
        traffic: limits, retries and deadlines; an attempt has time for the program's own limit.
        transport: sends requests; closed by its owner.
        endpoint_states: limiter and circuit breaker, shared by all components.
        store: the cache.
        listener: receives an event for every attempt.
    """

    def __init__(  # noqa: PLR0913 - a port each
        self,
        settings: RemoteSandboxSettings,
        key: Secret | None,
        *,
        traffic: Traffic,
        transport: Transport,
        endpoint_states: EndpointStates,
        store: Store,
        listener: Listener,
    ) -> None:
        self._endpoint = settings.endpoint
        self._key = key
        self._traffic = traffic
        self._transport = transport
        self._endpoint_states = endpoint_states
        self._store = store
        self._listener = listener
        self._clients: dict[float, JudgeClient] = {}
        self._flights: SingleFlight[Completion | Abstain] = SingleFlight()

    async def run(self, program: Program) -> Run | Abstain:
        """What became of `program`; an abstention where the server could not run it."""
        body = run_code_request(program)
        key = "sandbox:" + sha256(self._endpoint.url.encode() + b"\0" + body).hexdigest()
        client = self._client(_PATIENCE * program.cpu_s + _COMPILE_S + _OVERHEAD_S)
        work = partial(self._cached_or_asked, key, body, client)
        result, _ = await self._flights.run(key, work)
        return result if isinstance(result, Abstain) else run_in_reply(result.text, program)

    async def aclose(self) -> None:
        """Cancel what is not answered. Idempotent."""
        await self._flights.aclose()

    def _client(self, timeout_s: float) -> JudgeClient:
        """The client whose attempts may take so long."""
        timeout_s = max(timeout_s, self._traffic.timeout_s)
        if timeout_s not in self._clients:
            traffic = msgspec.structs.replace(
                self._traffic,
                timeout_s=timeout_s,
                deadline_s=max(self._traffic.deadline_s, 2 * timeout_s),
                hedge="off",  # a program that takes long would only be run twice
            )
            self._clients[timeout_s] = JudgeClient(
                endpoints=[self._endpoint],
                keys=[self._key],
                traffic=traffic,
                transport=self._transport,
                endpoint_states=self._endpoint_states,
                decode=decode_run_code,
                listener=self._listener,
            )
        return self._clients[timeout_s]

    async def _cached_or_asked(
        self, key: str, body: bytes, client: JudgeClient, sent: Callable[[], None]
    ) -> Completion | Abstain:
        kept = False
        try:
            stored = await self._stored(key, client.traffic.deadline_s)
            if stored is not None:
                return stored
            reply = await client.ask(body, sent=sent)
            if isinstance(reply, Abstain):
                return reply
            if b'"TimeLimitExceeded"' not in reply.reply.body:  # it may only have been busy
                kept = await self._keep(key, reply.reply.body)
            return reply.completion
        finally:
            if not kept:
                self._store.release(key)

    async def _stored(self, key: str, wait_s: float) -> Completion | None:
        try:
            entry = await self._store.claim(key, wait_s=wait_s)
        except StoreError:  # a cache that fails costs a second run, and no verdict
            return None
        return None if entry is None else decode_run_code(entry.reply)

    async def _keep(self, key: str, reply: bytes) -> bool:
        entry = Entry(
            reply=reply,
            verdict=b"null",
            judge="sandbox",
            model="run_code",
            fingerprint="",
            created=time.time(),
        )
        try:
            await self._store.put(key, entry)
        except StoreError:
            return False
        return True
