"""What a reward configuration may say: frozen values that are valid or do not exist.

The reader in `zerowait.config.load` turns YAML or a mapping into these, and turns every problem
into a `ConfigError` that names the file, the line and the key.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias

import msgspec

from zerowait.config.source import KeyPath, Source
from zerowait.types import FailureKind

_SMALLEST_CACHE_BYTES = 2**20
_REDIS = ("redis://", "rediss://", "unix://")


def _finite(name: str, value: float) -> None:
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, not {value}")


def _positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be greater than 0, not {value}")


def _not_negative(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must not be negative, and not {value}")


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The failure policy ``{value: x}``: an abstained component counts as `value`, as you said."""

    value: float

    def __post_init__(self) -> None:
        _finite("value", self.value)


PolicyName: TypeAlias = Literal["neutral", "mask", "drop_group", "raise"]
Policy: TypeAlias = PolicyName | Value


class FailurePolicy(msgspec.Struct, frozen=True):
    """Which policy applies to which kind of failure of which component.

    Args:
        default: for every kind that is not listed; None when the user did not say.
        kinds: policy per failure kind.
        components: a policy of its own for a component.
        quorum: under ``drop_group``, the share of a group that must have a value; below it the
            whole group is dropped, at or above it the failure is ``neutral``.
    """

    default: Policy | None = None
    kinds: dict[FailureKind, Policy] = {}
    components: dict[str, FailurePolicy] = {}
    quorum: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.quorum <= 1:
            raise ValueError(f"quorum must be in (0, 1], not {self.quorum}")


class ScorerComponent(msgspec.Struct, frozen=True, kw_only=True):
    """A rule: a built-in name or ``module:function``.

    Args:
        scorer: name in the scorer table, ``by_data_source``, or ``module:function``.
        weight: factor in the sum; 0 makes it a shadow component: recorded, never in the reward.
        gate: a condition over other components, such as ``answer > 0``.
        sources: the data sources this component is for; empty means all.
        options: keyword arguments of the scorer.
        timeout_s: how long a user's function may take before it abstains with ``timeout``.
    """

    scorer: str
    weight: float = 1.0
    gate: str | None = None
    sources: list[str] = []
    options: dict[str, Any] = {}
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        _finite("weight", self.weight)
        _positive("timeout_s", self.timeout_s)


class JudgeComponent(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's verdict times `weight`; `normalize` maps the verdict's range to [0, 1] first."""

    judge: str
    weight: float = 1.0
    gate: str | None = None
    sources: list[str] = []
    normalize: bool = False

    def __post_init__(self) -> None:
        _finite("weight", self.weight)


class ShapeComponent(msgspec.Struct, frozen=True, kw_only=True):
    """A term that depends on the whole prompt group; the penalty counts ``-scale`` times.

    Args:
        shape: name in the shape table, such as ``median_band``.
        scale: factor of the penalty; 0 makes it a shadow component.
        sources: the data sources this component is for; empty means all.
        options: the shape's own parameters, such as ``peak_ratio``.
    """

    shape: str
    scale: float = 1.0
    sources: list[str] = []
    options: dict[str, Any] = {}

    def __post_init__(self) -> None:
        _finite("scale", self.scale)


Component: TypeAlias = ScorerComponent | JudgeComponent | ShapeComponent


class VerdictRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The form in which a judge has to answer: exactly one of the fields.

    Args:
        integer: inclusive range of a whole number, such as ``[1, 10]``.
        number: inclusive range of a decimal number, such as ``[0, 1]``.
        choice: the words it may answer; the first is worth 1, the last 0, those between evenly.
    """

    integer: tuple[int, int] | None = None
    number: tuple[float, float] | None = None
    choice: list[str] | None = None

    def __post_init__(self) -> None:
        given = [
            name for name in ("integer", "number", "choice") if getattr(self, name) is not None
        ]
        if len(given) != 1:
            raise ValueError(f"a verdict has exactly one of integer, number, choice; got {given}")
        bounds = self.integer or self.number
        if bounds is not None and not bounds[0] < bounds[1]:
            raise ValueError(f"the verdict's range {list(bounds)} is empty: give [low, high]")
        if self.choice is not None and len(set(self.choice)) < 2:
            raise ValueError("a choice verdict needs at least two different words")


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a judge answers.

    Args:
        base_url: a base such as ``http://127.0.0.1:8001/v1``, or a full ``/chat/completions`` URL.
        model: the name sent as ``model``.
        api_key_env: the environment variable that holds the key.
        api_key: the key itself; accepted, never shown.
        headers: sent with every request.
        weight: share of the judgements among the endpoints of the same priority.
        priority: the lowest is asked first; others only while all of a lower one are left alone.
    """

    base_url: str
    model: str
    api_key_env: str | None = None
    api_key: str | None = None
    headers: dict[str, str] = {}
    weight: float = 1.0
    priority: int = 0

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("http://", "https://")):
            raise ValueError(f"base_url must start with http:// or https://, not {self.base_url!r}")
        _positive("weight", self.weight)

    def __repr__(self) -> str:  # a literal key must not reach a log through a repr
        return f"Endpoint(base_url={self.base_url!r}, model={self.model!r})"

    __str__ = __repr__

    def __rich_repr__(self) -> Any:
        yield "base_url", self.base_url
        yield "model", self.model

    @property
    def url(self) -> str:
        """The full URL of the chat completions endpoint."""
        base = self.base_url.rstrip("/")
        return base if base.endswith("/completions") else f"{base}/chat/completions"


class Judge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A judge: who is asked, by which rubric, and how it has to answer.

    Args:
        endpoints: where it answers; all serve the same model, and share the work.
        rubric: a built-in name, or a path to a Markdown rubric.
        verdict: the form of its answer.
        max_tokens: the longest answer; a truncated one is asked once more with twice as many.
        temperature: sampling temperature of the judge.
        parameters: further fields of the request body, such as ``top_p`` or ``seed``.
    """

    endpoints: list[Endpoint]
    verdict: VerdictRule
    rubric: str = "quality"
    max_tokens: int = 1024
    temperature: float = 0.0
    parameters: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise ValueError("a judge needs at least one endpoint")
        _positive("max_tokens", self.max_tokens)


class Hedge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Late requests are sent once more, and the first answer counts.

    Args:
        after: how late: ``p95`` is later than 95 % of the endpoint's answers; or seconds.
        extra: copies per request, at most.
    """

    after: str | float = "p95"
    extra: float = 0.05

    def __post_init__(self) -> None:
        if not 0 < self.extra <= 1:
            raise ValueError(f"extra must be in (0, 1], not {self.extra}")
        if isinstance(self.after, str):
            match = re.fullmatch(r"p(\d+(?:\.\d+)?)", self.after)
            if match is None or not 0 < float(match[1]) < 100:
                raise ValueError(f"after must be p50 to p99.9 or seconds, not {self.after!r}")
        else:
            _positive("after", self.after)

    @property
    def share(self) -> float | None:
        """The quantile of `after`, in (0, 1), or None when it is seconds."""
        return float(self.after[1:]) / 100 if isinstance(self.after, str) else None

    @property
    def after_s(self) -> float | None:
        """The seconds of `after`, or None when it is a quantile."""
        return None if isinstance(self.after, str) else self.after


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a model costs, in dollars per million tokens; 0 for one of your own."""

    input: float
    output: float

    def __post_init__(self) -> None:
        for name in ("input", "output"):
            _not_negative(name, getattr(self, name))


class Traffic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How hard the judges may be asked, and how long an answer may take.

    Args:
        concurrency: requests in flight: a number for the whole job, or ``auto``: for each endpoint
            and model what it turns out to bear.
        max_concurrency: with ``auto``, at most so many for each endpoint and model.
        rpm: requests per minute to each endpoint and model; None: what its ``x-ratelimit``
            headers say; ``off``: no matter what they say.
        tpm: tokens per minute, prompt and answer, likewise.
        hedge: when late requests are sent once more, or ``off``.
        timeout_s: of one attempt, from the moment it is sent.
        deadline_s: of one judgement, from its first send, over all attempts.
        attempts: how often one judgement is sent at most.
        group_deadline_s: how long a group's shape waits for a sibling that was not submitted yet.
        budget_usd: what the judges may cost; needs ``prices``. None is no budget.
        budget_name: whose spend counts; default: the configuration file, or, for a configuration
            that is no file, this engine alone.
    """

    concurrency: int | Literal["auto"] = "auto"
    max_concurrency: int = 1024
    rpm: float | Literal["off"] | None = None
    tpm: float | Literal["off"] | None = None
    hedge: Hedge | Literal["off"] = Hedge()
    timeout_s: float = 60.0
    deadline_s: float = 300.0
    attempts: int = 6
    group_deadline_s: float = 600.0
    budget_usd: float | None = None
    budget_name: str | None = None

    def __post_init__(self) -> None:
        if self.budget_usd is not None:
            _not_negative("budget_usd", self.budget_usd)
        for name in ("concurrency", "rpm", "tpm"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                _positive(name, value)
        for name in ("max_concurrency", "timeout_s", "deadline_s", "attempts", "group_deadline_s"):
            _positive(name, getattr(self, name))


class Cache(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where judged replies are kept; None means nowhere.

    Args:
        path: an SQLite file on a local disk.
        url: a Redis instead of a file, such as ``redis://host:6379/0``; a password in it is never
            shown.
        max_bytes: of the file; beyond it the oldest entries are dropped. None is no limit.
        max_age_days: an older entry is asked for again, and dropped. None is no limit.
    """

    path: str | None = "~/.cache/zerowait/judgements.db"
    url: str | None = None
    max_bytes: int | None = None
    max_age_days: float | None = None

    def __repr__(self) -> str:  # a password in the URL must not reach a log through a repr
        where = f"path={self.path!r}" if self.url is None else "url=<hidden>"
        return f"Cache({where}, max_bytes={self.max_bytes}, max_age_days={self.max_age_days})"

    __str__ = __repr__

    def __rich_repr__(self) -> Any:
        yield repr(self)

    def __post_init__(self) -> None:
        if self.url is not None and not self.url.startswith(_REDIS):
            raise ValueError(f"url must start with one of {', '.join(_REDIS)}")
        if self.url is not None and self.max_bytes is not None:
            raise ValueError("max_bytes is for a file; for Redis set its own maxmemory")
        if self.max_bytes is not None and self.max_bytes < _SMALLEST_CACHE_BYTES:
            raise ValueError(f"max_bytes must be at least {_SMALLEST_CACHE_BYTES}")
        if self.max_age_days is not None:
            _positive("max_age_days", self.max_age_days)


class RewardConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A whole reward configuration, valid by construction.

    `source` and `at` say where it was written, for errors that are found later.
    """

    components: dict[str, Component]
    judges: dict[str, Judge] = {}
    traffic: Traffic = Traffic()
    cache: Cache = Cache()
    prices: dict[str, Price] = {}
    on_failure: FailurePolicy = FailurePolicy()
    source: Source = Source("reward", None, {}, Path())
    at: KeyPath = ()

    @property
    def base(self) -> Path:
        """The folder that relative paths start from."""
        return self.source.base

    def fail(self, path: KeyPath, problem: str) -> NoReturn:
        """Raise a ConfigError about the key path `path` inside this configuration."""
        self.source.fail((*self.at, *path), problem)
