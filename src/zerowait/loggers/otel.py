"""OpenTelemetry: a span for each request to a judge, and metrics, by the GenAI conventions.

Reference: Semantic conventions for generative AI, inference spans and client metrics
(github.com/open-telemetry/semantic-conventions-genai). Their metrics are still being renamed;
``gen_ai.client.operation.duration`` and ``gen_ai.client.token.usage`` are the names that backends
draw today.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from zerowait.config import Judge, OtelLog
from zerowait.config.endpoint import Endpoint
from zerowait.events import JudgementSettled
from zerowait.types import Abstain, Score

_DURATIONS_S: Final = [0.01 * 2**power for power in range(14)]

_TOKENS: Final = [4.0**power for power in range(14)]
"""Bounds of the histograms, as the conventions give them."""
_NO_NAME: Final = re.compile(r"[^-_./a-zA-Z0-9]")
_LONGEST_NAME: Final = 255
_MOST_DETAIL_CHARS: Final = 1000
_PROVIDERS: Final = {
    "anthropic.com": "anthropic",
    "amazonaws.com": "aws.bedrock",
    "openai.azure.com": "azure.ai.openai",
    "azure.com": "azure.ai.inference",
    "cohere.ai": "cohere",
    "cohere.com": "cohere",
    "deepseek.com": "deepseek",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "groq.com": "groq",
    "mistral.ai": "mistral_ai",
    "moonshot.ai": "moonshot_ai",
    "moonshot.cn": "moonshot_ai",
    "perplexity.ai": "perplexity",
    "x.ai": "x_ai",
}
"""Well-known values of ``gen_ai.provider.name`` by the end of the host, the longer one first."""
_OPERATIONS: Final = {"chat": "chat", "responses": "chat", "completions": "text_completion"}
"""``gen_ai.operation.name`` by API; a reward model's API has its own name."""

_CLOSE_S: Final = 5.0
"""How long the last spans and metrics may take at the end of a run."""
_SDK_LOGGERS: Final = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.sdk.metrics._internal.export",
)
"""Python's loggers in which the SDK reports exports that fail."""


class OtelLogger:
    """Writes spans and metrics to the program's providers if it has set some, else to its own.

    Args:
        settings: the address, the name, and whether prompts are shown.
        judges: by name, for what is constant in a judge's requests.
    """

    def __init__(self, settings: OtelLog, judges: Mapping[str, Judge]) -> None:
        from opentelemetry.context import get_current

        self._settings = settings
        self._judges = judges
        self._of_judge: dict[str, Mapping[str, Any]] = {}
        self._gauges: dict[str, Any] = {}
        self._closing: list[Callable[[], Any]] = []
        self._exporters: list[Any] = []
        self._failures = _ExportFailures()
        self._tracer: Any = None
        self._meter: Any = None
        self._durations: Any = None
        self._tokens: Any = None
        self.current_context: Callable[[], Any] = get_current
        """The context of the caller, whose span is the parent of the judgement's."""

    def prepare(self) -> None:
        """Nothing has to work at once."""

    def open(self) -> None:
        """Find the program's providers, or make some."""
        from opentelemetry import metrics, trace
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.trace import TracerProvider

        tracers: Any = trace.get_tracer_provider()
        meters: Any = metrics.get_meter_provider()
        chosen = self._settings.endpoint is not None
        if chosen or not isinstance(tracers, TracerProvider):
            tracers = self._own_tracers()
            self._closing.append(tracers.shutdown)
        else:
            self._closing.append(tracers.force_flush)
        if chosen or not isinstance(meters, MeterProvider):
            meters = self._own_meters()
            self._closing.append(meters.shutdown)
        else:
            self._closing.append(meters.force_flush)
        self._tracer = tracers.get_tracer("zerowait")
        self._meter = meters.get_meter("zerowait")
        self._durations = self._meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=_DURATIONS_S,
        )
        self._tokens = self._meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Set a gauge for each metric, and ``zerowait/step``."""
        for name, value in {**metrics, "zerowait/step": float(step)}.items():
            gauge = self._gauges.get(name)
            if gauge is None:
                gauge = self._meter.create_gauge(_NO_NAME.sub("_", name)[:_LONGEST_NAME])
                self._gauges[name] = gauge
            gauge.set(value)
        self._failures.check()

    def judgement(self, told: JudgementSettled, context: Any, ended_ns: int) -> None:
        """Write a judgement's span, and count its duration and tokens.

        Args:
            told: how it ended.
            context: of its caller.
            ended_ns: when it ended, in nanoseconds since 1970.
        """
        from opentelemetry.trace import SpanKind, Status, StatusCode

        common = self._common(told)
        span = self._tracer.start_span(
            f"{common['gen_ai.operation.name']} {common['gen_ai.request.model']}",
            context=context,
            kind=SpanKind.CLIENT,
            start_time=ended_ns - int(told.elapsed_s * 1e9),
            attributes={**common, **self._request(told), **_result(told)},
        )
        if self._settings.prompts:
            span.set_attributes(_messages(told))
        if isinstance(told.outcome, Abstain):
            span.set_status(Status(StatusCode.ERROR, told.outcome.detail[:_MOST_DETAIL_CHARS]))
        span.end(ended_ns)
        self._durations.record(max(0.0, told.elapsed_s - told.queue_s), common)
        usage = {"input": told.prompt_tokens, "output": told.completion_tokens}
        without_error = {key: value for key, value in common.items() if key != "error.type"}
        for kind, count in usage.items():
            if count:
                self._tokens.record(count, {**without_error, "gen_ai.token.type": kind})

    def close(self) -> None:
        """Send what is left, within 5 s; the program's own providers stay open."""
        give_up_at_s = time.monotonic() + _CLOSE_S
        # daemons: the SDK waits up to half a minute for a collector that is not there
        threads = [threading.Thread(target=close, daemon=True) for close in self._closing]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, give_up_at_s - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            for exporter in self._exporters:
                exporter.shutdown()  # ends its retries
            self._failures.add(f"the last were not sent within {_CLOSE_S:g} s")
        else:
            self._failures.close()
        self._failures.check()

    def _common(self, told: JudgementSettled) -> dict[str, Any]:
        """The attributes of both span and metrics."""
        endpoint = _endpoint(self._judges[told.judge], told.endpoint)
        where = urlsplit(told.endpoint or endpoint.base_url)
        host, secure = where.hostname or "", where.scheme == "https"
        common: dict[str, Any] = {
            "gen_ai.operation.name": _OPERATIONS.get(endpoint.speaks, endpoint.speaks),
            "gen_ai.provider.name": _provider(host),
            "gen_ai.request.model": endpoint.model,
            "server.address": host,
            "server.port": where.port or (443 if secure else 80),
        }
        if told.model:
            common["gen_ai.response.model"] = told.model
        if isinstance(told.outcome, Abstain):
            common["error.type"] = told.outcome.kind.value
        return common

    def _request(self, told: JudgementSettled) -> Mapping[str, Any]:
        """The attributes of a span that are the same for all requests of a judge."""
        known = self._of_judge.get(told.judge)
        if known is None:
            judge = self._judges[told.judge]
            wanted = {
                "gen_ai.request.max_tokens": judge.max_tokens,
                "gen_ai.request.temperature": judge.temperature,
                "gen_ai.request.seed": judge.parameters.get("seed"),
                "gen_ai.request.top_p": judge.parameters.get("top_p"),
                "gen_ai.prompt.name": judge.rubric,
                "zerowait.judge": told.judge,
            }
            known = {key: value for key, value in wanted.items() if value is not None}
            self._of_judge[told.judge] = known
        return known

    def _resource(self) -> Any:
        from opentelemetry.sdk.resources import Resource

        named = Resource.create()
        name = self._settings.service_name
        if name is None and not str(named.attributes["service.name"]).startswith("unknown_service"):
            return named
        return named.merge(Resource({"service.name": name or "zerowait"}))

    def _own_tracers(self) -> Any:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        provider = TracerProvider(resource=self._resource(), shutdown_on_exit=False)
        self._failures.open()
        exporter: Any = OTLPSpanExporter(endpoint=self._path("/v1/traces"))
        self._failures.watch(exporter, "export", "shutdown")
        self._exporters.append(exporter)
        processor: Any = BatchSpanProcessor(exporter)
        self._failures.watch(processor, "on_end")  # where its queue is full
        provider.add_span_processor(processor)
        return provider

    def _own_meters(self) -> Any:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        self._failures.open()
        exporter: Any = OTLPMetricExporter(endpoint=self._path("/v1/metrics"))
        self._failures.watch(exporter, "export", "shutdown")
        self._exporters.append(exporter)
        reader = PeriodicExportingMetricReader(exporter)
        return MeterProvider([reader], resource=self._resource(), shutdown_on_exit=False)

    def _path(self, path: str) -> str | None:
        endpoint = self._settings.endpoint
        return None if endpoint is None else endpoint.rstrip("/") + path


class _ExportFailures(logging.Filter):
    """Keeps the SDK's first message about a failed export of ours, and drops the others of ours.

    The SDK logs every attempt, some with a traceback. What it says of the program's own exporters
    is logged as ever: only what is said by a thread that is inside a watched call is ours. It is a
    filter while our exporters are open, and stays one where they could not be closed in time. An
    attempt that is repeated is no failure.
    """

    def __init__(self) -> None:
        super().__init__()
        self._first = self._retried = ""
        self._calls = threading.local()

    def watch(self, watched: Any, *names: str) -> None:
        """What the SDK logs inside these methods of `watched` is about us."""
        for name in names:
            setattr(watched, name, self._watching(getattr(watched, name)))

    def _watching(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            outer = self._is_ours
            self._calls.is_ours = True
            try:
                return method(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - the SDK only logs it, where it is nobody's
                self.add(f"{type(error).__name__}: {error}")
                return None
            finally:
                self._calls.is_ours = outer

        return wraps(method)(call)

    @property
    def _is_ours(self) -> bool:
        """Whether this thread is inside a call that is watched."""
        return getattr(self._calls, "is_ours", False)

    def open(self) -> None:
        for name in _SDK_LOGGERS:
            logging.getLogger(name).addFilter(self)  # of equal filters it keeps one

    def close(self) -> None:
        for name in _SDK_LOGGERS:
            logging.getLogger(name).removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or not self._is_ours:
            return True
        said = record.getMessage()
        if record.levelno >= logging.ERROR or "dropping" in said.lower():  # else it tries again
            self.add(said)
        else:
            self._retried = said
        return False

    def add(self, why: str) -> None:
        if not self._first:
            self._first = f"{why}; {self._retried}" if self._retried else why

    def check(self) -> None:
        """Raise a ConnectionError about the first export that failed."""
        if self._first:
            raise ConnectionError(f"spans and metrics do not reach the collector: {self._first}")


def _endpoint(judge: Judge, url: str) -> Endpoint:
    """The judge's endpoint to which requests to this URL went; the first one where none fits."""
    every = [replica for endpoint in judge.endpoints for replica in endpoint.replicas]
    plain = url.partition("?")[0]
    return next((each for each in every if each.url.partition("?")[0] == plain), every[0])


def _provider(host: str) -> str:
    """``gen_ai.provider.name`` of a host; what is not known speaks OpenAI's API.

    >>> [_provider(host) for host in ("api.x.ai", "me.openai.azure.com", "max.ai", "10.0.0.7")]
    ['x_ai', 'azure.ai.openai', 'openai', 'openai']
    """
    for name, provider in _PROVIDERS.items():
        if host == name or host.endswith(f".{name}"):
            return provider
    return "openai"


def _result(told: JudgementSettled) -> dict[str, Any]:
    """The attributes of a span that say how the judgement ended."""
    attributes: dict[str, Any] = {
        "gen_ai.evaluation.name": told.component,
        "zerowait.attempts": told.attempts,
        "zerowait.queue_s": told.queue_s,
    }
    if told.prompt_tokens:
        attributes["gen_ai.usage.input_tokens"] = told.prompt_tokens
    if told.completion_tokens:
        attributes["gen_ai.usage.output_tokens"] = told.completion_tokens
    if isinstance(told.outcome, Score):
        attributes["gen_ai.evaluation.score.value"] = told.outcome.value
    return attributes


def _messages(told: JudgementSettled) -> dict[str, str]:
    """What the judge was told and what it replied, in the form of the conventions."""
    attributes = {}
    asked = _decoded(told.request)
    if isinstance(asked, dict) and isinstance(messages := asked.get("messages"), list):
        parts = [
            {"role": each.get("role", "user"), "parts": _parts(each.get("content"))}
            for each in messages
            if isinstance(each, dict)
        ]
        attributes["gen_ai.input.messages"] = msgspec.json.encode(parts).decode()
    said = _decoded(told.reply)
    if isinstance(said, dict) and isinstance(choices := said.get("choices"), list):
        replies = [
            {
                "role": "assistant",
                "parts": _parts((each.get("message") or {}).get("content")),
                "finish_reason": str(each.get("finish_reason") or "stop"),
            }
            for each in choices
            if isinstance(each, dict)
        ]
        attributes["gen_ai.output.messages"] = msgspec.json.encode(replies).decode()
    return attributes


def _parts(content: Any) -> list[dict[str, Any]]:
    """A message's content as parts; of pictures only that there was one."""
    if isinstance(content, str):
        return [{"type": "text", "content": content}]
    given = content if isinstance(content, list) else []
    texts = (each.get("text") for each in given if isinstance(each, dict))
    return [
        {"type": "text", "content": text} if isinstance(text, str) else {"type": "image"}
        for text in texts
    ]


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
