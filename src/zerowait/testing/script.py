"""The script of a fake judge: verdicts, latency, capacity and faults."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal, TypeAlias

import msgspec

from zerowait.config import Source, VerdictRule, build, read_yaml
from zerowait.errors import ConfigError, did_you_mean
from zerowait.testing.comparisons import Prefers
from zerowait.testing.draws import Draws
from zerowait.testing.faults import FAULTS, AnyFault, check_shares

_NORMAL = NormalDist()
_HALF_STEP = 2.0**-54  # keeps a draw of 0 from functions with a pole there


def _not_negative(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be at least 0, not {value}")


class Latency(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Distribution of the latency of replies, in seconds.

    Args:
        median_s: the median.
        sigma: of a log-normal distribution; 0 makes the latency constant.
        tail: exponent of a Pareto distribution instead; smaller is heavier.
        stall_share: share of replies that take `stall_s`.
        stall_s: latency of a stalled reply.
        longest_s: upper bound of every latency.
    """

    median_s: float = 0.0
    sigma: float = 0.0
    tail: float | None = None
    stall_share: float = 0.0
    stall_s: float = 30.0
    longest_s: float = 600.0

    def __post_init__(self) -> None:
        for name in ("median_s", "sigma", "stall_s", "longest_s"):
            _not_negative(name, getattr(self, name))
        if not 0 <= self.stall_share <= 1:
            raise ValueError(f"stall_share must be in [0, 1], not {self.stall_share}")
        if self.tail is not None and (self.tail <= 0 or self.sigma):
            raise ValueError("tail must be greater than 0 and excludes sigma")

    def of(self, attempt: Draws) -> float:
        """The latency of an attempt with these draws, in seconds.

        >>> Latency(0.2).of(Draws(0.0, 0.5, 0.5, 0.0))
        0.2
        """
        if attempt.second < self.stall_share:
            return min(self.stall_s, self.longest_s)
        if not self.median_s:
            return 0.0
        factor, point = 1.0, attempt.first + _HALF_STEP
        if self.sigma:
            factor = math.exp(self.sigma * _NORMAL.inv_cdf(point))
        elif self.tail is not None:
            factor = (2.0 * point) ** (-1.0 / self.tail)
        return min(self.median_s * factor, self.longest_s)


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of the capacity.

    Args:
        at_s: seconds after the first request.
        concurrency: new value; None keeps the current one.
        knee: likewise.
    """

    at_s: float
    concurrency: int | None = None
    knee: int | None = None


class Capacity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Capacity of the judge; None means no limit.

    Args:
        concurrency: maximal requests in flight; further ones get 429.
        rpm: requests per minute, in a token bucket; beyond it 429 with Retry-After.
        tpm: tokens per minute (prompt and ``max_tokens``), likewise.
        burst_s: seconds of `rpm` and `tpm` that the buckets hold.
        knee: requests in flight above which latency grows in proportion.
        retry_after_s: the ``Retry-After`` of a 429 for `concurrency`; None for none.
        changes: of `concurrency` and `knee` over time.
    """

    concurrency: int | None = None
    rpm: float | None = None
    tpm: float | None = None
    burst_s: float = 1.0
    knee: int | None = None
    retry_after_s: float | None = None
    changes: tuple[Change, ...] = ()

    def __post_init__(self) -> None:
        for name in ("concurrency", "rpm", "tpm", "burst_s", "knee"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be greater than 0, not {value}")
        times_s = [change.at_s for change in self.changes]
        if times_s != sorted(times_s):
            raise ValueError("changes must be in the order of at_s")


DEFAULT_VERDICT = VerdictRule(integer=(1, 10))
"""Default of ``Script.verdict``, compared by identity: the verdict has the requested format."""

Structured: TypeAlias = Literal[
    "enforced",
    "ignored",
    "deepseek",
    "gemini",
    "llama.cpp",
    "ollama",
    "openai",
    "sglang",
    "vllm",
    "xgrammar",
]
"""What becomes of a request for structured output: it is enforced, or ignored as by many proxies;
or refused, as by an endpoint of the named server that cannot do it."""


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Behaviour of a fake judge; two judges with one script give equal answers.

    Args:
        seed: of every random choice.
        verdict: the allowed verdicts; one is chosen by the messages' content. The default takes the
            format that the request asks for (a range, a choice, criteria, a JSON schema), and a
            whole number from 1 to 10 where it asks for none.
        prefers: the order of compared responses: ``better`` by the last number in each, ``first``
            and ``last`` by position alone.
        reply: the content around the verdict, such as ``{"score": {verdict}}``.
        obeys: follow prompt injections: the verdict that the judged response demands; without one
            the best for a response that contains the reference, else the worst.
        structured: what becomes of a ``response_format`` with a JSON schema: ``enforced`` with
            OpenAI's rules for strict schemas, ``ignored``, or refused in the words of a server that
            cannot do it (``openai``, ``vllm``, ``xgrammar``, ``sglang``, ``llama.cpp``, ``ollama``,
            ``gemini``, ``deepseek``).
        latency: of replies.
        capacity: limits, beyond which requests get 429 or slow down.
        faults: what goes wrong; see `zerowait.testing.faults`.
        model: the reported model; None reports the requested one.
        fingerprint: its ``system_fingerprint``.
        logprobs: whether it sends the log-probabilities that a request asks for.
    """

    seed: int = 0
    verdict: VerdictRule = DEFAULT_VERDICT
    prefers: Prefers = "better"
    reply: str = "{verdict}"
    obeys: bool = False
    structured: Structured = "enforced"
    latency: Latency = Latency()
    capacity: Capacity = Capacity()
    faults: tuple[AnyFault, ...] = ()
    model: str | None = None
    fingerprint: str = "fp_fake"
    logprobs: bool = True

    def __post_init__(self) -> None:
        if "{verdict}" not in self.reply:
            raise ValueError("reply must contain {verdict}")
        if self.verdict.schema is not None:
            raise ValueError(
                "a script has no verdict by a schema; give FakeJudge an answer instead"
            )
        if self.verdict.comparison is not None:
            raise ValueError("verdict is for single responses; comparisons are answered by prefers")
        check_shares(self.faults)


def load_script(script: str | Path | Mapping[str, Any]) -> Script:
    """The script in a YAML file or a mapping.

    Raises:
        ConfigError: a key or value is wrong; names the file, the line and the nearest right key.

    >>> load_script({"seed": 7, "faults": [{"status": {"status": 503, "share": 0.1}}]}).faults
    (Status(share=0.1, always=False, first=None, status=503, retry_after_s=None, message=''),)
    """
    if isinstance(script, Mapping):
        source = Source("script", deepcopy(dict(script)), {}, Path())
    else:
        source = read_yaml(Path(script).expanduser())
    if source.tree is None:
        return Script()
    if not isinstance(source.tree, dict):
        source.fail((), "must be a mapping")
    faults = _faults(source, source.tree.get("faults") or [])
    source.tree = {key: value for key, value in source.tree.items() if key != "faults"}
    try:
        return msgspec.structs.replace(build(source, (), Script), faults=faults)
    except ValueError as error:
        raise ConfigError(source.message(("faults",), str(error))) from None


def _faults(source: Source, tree: Any) -> tuple[AnyFault, ...]:
    if not isinstance(tree, list):
        source.fail(("faults",), "must be a list such as [{status: {status: 503, share: 0.1}}]")
    return tuple(_fault(source, index, item) for index, item in enumerate(tree))


def _fault(source: Source, index: int, item: Any) -> AnyFault:
    """A fault from its name alone, or from ``{name: {options}}``."""
    if isinstance(item, str):
        source.tree["faults"][index] = item = {item: {}}
    if not isinstance(item, dict) or len(item) != 1:
        source.fail(
            ("faults", index),
            "must be one fault's name with its options, such as {status: {status: 503, share: "
            f"0.1}}}}; known: {', '.join(FAULTS)}",
        )
    [(name, options)] = item.items()
    if name not in FAULTS:
        hint = did_you_mean(str(name), FAULTS)
        source.fail(("faults", index), f"names the fault {name!r}, which does not exist{hint}")
    if options is None:
        item[name] = {}
    return build(source, ("faults", index, name), FAULTS[name])
