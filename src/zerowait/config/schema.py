"""The schema of a reward configuration: frozen values that are valid or do not exist.

The reader in `zerowait.config.load` turns YAML or a mapping into these, and turns every problem
into a `ConfigError` that names the file, the line and the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias

import msgspec

from zerowait.config.checks import finite, json_only, not_negative, positive
from zerowait.config.endpoint import REWARD_APIS, Endpoint
from zerowait.config.group_verdict import GroupVerdict
from zerowait.config.judgement import Monitor, Panel, Votes
from zerowait.config.obfuscated_pickle import obfuscated
from zerowait.config.source import KeyPath, Source
from zerowait.config.traffic import Price, Sharding, Traffic
from zerowait.types import FailureKind

_SMALLEST_CACHE_BYTES = 2**20
_FORMS = ("integer", "number", "choice", "schema", "reward", "pairs", "rank")
REDIS = ("redis://", "rediss://", "unix://")


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The failure policy ``{value: x}``: an abstained component counts as `value`."""

    value: float

    def __post_init__(self) -> None:
        finite("value", self.value)


PolicyName: TypeAlias = Literal["neutral", "mask", "drop_group", "raise"]
Policy: TypeAlias = PolicyName | Value


class FailurePolicy(msgspec.Struct, frozen=True):
    """Which policy applies to which kind of failure of which component.

    Args:
        default: for every kind that is not listed; None where the user chose none.
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

    @property
    def can_drop(self) -> bool:
        """Whether a failure may cost a whole group its rewards."""
        own = (self.default, *self.kinds.values())
        return "drop_group" in own or any(each.can_drop for each in self.components.values())


class ScorerComponent(msgspec.Struct, frozen=True, kw_only=True):
    """A rule: a built-in name or ``module:function``.

    Args:
        scorer: name in the scorer table, ``by_data_source``, or ``module:function``.
        weight: factor in the sum; 0 makes it a shadow component: recorded, never in the reward.
        gate: a condition over other components, such as ``answer > 0``.
        sources: the data sources this component is for; empty means all.
        options: keyword arguments of the scorer.
        timeout_s: how long a user's function may take before it abstains with ``timeout``.
        workers: processes of a synchronous function, each with one call at a time; None: 2.
        concurrency: overlapping calls of an asynchronous function, in one process; None: 64. Of the
            scorer ``code``: programs at once; None: one per core.
    """

    scorer: str
    weight: float = 1.0
    gate: str | None = None
    sources: list[str] = []
    options: dict[str, Any] = {}
    timeout_s: float = 30.0
    workers: int | None = None
    concurrency: int | None = None

    def __post_init__(self) -> None:
        finite("weight", self.weight)
        positive("timeout_s", self.timeout_s)
        for name in ("workers", "concurrency"):
            if (value := getattr(self, name)) is not None:
                positive(name, value)


class JudgeComponent(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's verdict times `weight`; `normalize` maps the verdict's range to [0, 1] first."""

    judge: str
    weight: float = 1.0
    gate: str | None = None
    sources: list[str] = []
    normalize: bool = False

    def __post_init__(self) -> None:
        finite("weight", self.weight)


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
        finite("scale", self.scale)


Component: TypeAlias = ScorerComponent | JudgeComponent | ShapeComponent


class VerdictRule(GroupVerdict, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The form in which a judge has to answer: exactly one of the kinds, and its options.

    Args:
        integer: inclusive range of a whole number, such as ``[1, 10]``.
        number: inclusive range of a decimal number, such as ``[0, 1]``.
        choice: the words it may answer; the first is worth 1, the last 0, those between evenly.
        schema: a JSON schema's file, relative to the configuration; the answer is a JSON object.
        value: JSON pointer of the verdict in that object, such as ``/score``; or a mapping of such
            pointers to weights, whose weighted sum is the verdict.
        structured: whether the schema is also sent as ``response_format``; None: it is.
        reward: a reward model's number as it is (``raw``), or in an inclusive range.
        pairs, rank: responses are compared with each other; see `GroupVerdict`.
    """

    integer: tuple[int, int] | None = None
    number: tuple[float, float] | None = None
    choice: list[str] | None = None
    schema: str | None = None
    value: str | dict[str, float] | None = None
    structured: bool | None = None
    reward: Literal["raw"] | tuple[float, float] | None = None

    def __post_init__(self) -> None:
        given = [name for name in _FORMS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"a verdict has exactly one of {', '.join(_FORMS)}; got {given}")
        if self.schema is None and (self.value is not None or self.structured is not None):
            raise ValueError("value and structured belong to a schema verdict")
        if self.schema is not None and not self.value:
            raise ValueError("a schema verdict needs value: where its number is, such as /score")
        self.check_comparison()
        reward = None if self.reward == "raw" else self.reward
        bounds = self.integer or self.number or reward
        if bounds is not None and not bounds[0] < bounds[1]:
            raise ValueError(f"the verdict's range {list(bounds)} is empty: give [low, high]")
        if self.choice is not None and len(set(self.choice)) < 2:
            raise ValueError("a choice verdict needs at least two different words")


class EverySteps(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``anchors_every: {steps: N}``: every N training steps, by the ``step`` of the samples."""

    steps: int

    def __post_init__(self) -> None:
        positive("steps", self.steps)


class Judge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A judge: its endpoints, its rubric, and the form of its answers.

    Args:
        endpoints: its addresses; all serve the same model, and share the requests.
        rubric: a built-in name, or a path to a Markdown rubric; by default ``quality``, and for
            comparisons ``pairwise`` or ``ranking``.
        verdict: the form of its answer.
        max_tokens: the longest answer; a truncated one is retried once with twice as many.
        temperature: sampling temperature of the judge.
        parameters: further fields of the request body, such as ``top_p`` or ``seed``.
        ask: a rubric's criteria ``together`` in one call, or ``apart`` in one call each.
        votes: how often it is asked the same question, and how the answers are pooled.
        monitor: it sees the reasoning alone and predicts a property of the sample.
        anchors: a JSONL file of samples with reference verdicts, by which its drift is measured.
        anchors_every: anchors are judged at the start and again after this many judgements, or
            every ``{steps: N}`` training steps.
        anchors_alarm: the mean difference, as a share of the range, above which it has drifted.
    """

    endpoints: list[Endpoint]
    verdict: VerdictRule
    rubric: str = ""
    max_tokens: int = 1024
    temperature: float = 0.0
    parameters: dict[str, Any] = {}
    ask: Literal["together", "apart"] | None = None
    votes: Votes | None = None
    monitor: Monitor | None = None
    anchors: str | None = None
    anchors_every: EverySteps | int = 5000
    anchors_alarm: float = 0.1

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise ValueError("a judge needs at least one endpoint")
        if not isinstance(self.anchors_every, EverySteps):
            positive("anchors_every", self.anchors_every)
        positive("anchors_alarm", self.anchors_alarm)
        positive("max_tokens", self.max_tokens)
        not_negative("temperature", self.temperature)
        json_only("parameters", self.parameters)
        self._check_reward_model()
        if not self.rubric:
            comparison = self.verdict.comparison
            rubric = "quality" if comparison is None else comparison.rubric
            msgspec.structs.force_setattr(self, "rubric", rubric)

    @property
    def endings(self) -> tuple[str, ...]:
        """Words in ``finish_reason`` that mean a complete reply at one of its endpoints."""
        return tuple(word for endpoint in self.endpoints for word in endpoint.endings)

    def _check_reward_model(self) -> None:
        wanted = self.verdict.reward is not None
        for endpoint in self.endpoints:
            if (endpoint.speaks in REWARD_APIS) is not wanted:
                raise ValueError(
                    f"verdict: {{reward: raw}} or {{reward: [low, high]}} and a reward model's "
                    f"api ({', '.join(REWARD_APIS)}) go together, and the endpoint {endpoint} "
                    f"speaks {endpoint.speaks}"
                )
        given = [name for name in ("rubric", "votes", "ask", "monitor") if getattr(self, name)]
        if wanted and given:
            raise ValueError(f"{given[0]} is for judges that read and write, not for reward models")


class Cache(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cache of judged replies; off where `path` and `url` are None.

    Args:
        path: an SQLite file on a local disk.
        url: a Redis instead of a file, such as ``redis://host:6379/0``; a password in it is never
            shown.
        max_bytes: of the file; beyond it the oldest entries are dropped. None is no limit.
        max_age_days: an older entry is dropped, and its request sent again. None is no limit.
    """

    path: str | None = "~/.cache/zerowait/judgements.db"
    url: str | None = None
    max_bytes: int | None = None
    max_age_days: float | None = None

    @property
    def is_off(self) -> bool:
        """Whether there is no cache."""
        return self.path is None and self.url is None

    def __repr__(self) -> str:  # a password in the URL must not reach a log through a repr
        where = f"path={self.path!r}" if self.url is None else "url=<hidden>"
        return f"Cache({where}, max_bytes={self.max_bytes}, max_age_days={self.max_age_days})"

    __str__ = __repr__

    def __rich_repr__(self) -> Any:
        yield repr(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return obfuscated(_cache, msgspec.structs.asdict(self))

    def __post_init__(self) -> None:
        if self.path is not None and ("\0" in self.path or not self.path.strip()):
            raise ValueError("path must be the path of a file")
        if self.path is not None and (self.path == ":memory:" or self.path.startswith("file:")):
            raise ValueError("path must be a file on a disk; for no cache say off")
        if self.path is not None and self.path.startswith(REDIS):
            raise ValueError("path must be a file; write the address of a Redis as url:")
        if self.url is not None and not self.url.startswith(REDIS):
            raise ValueError(f"url must start with one of {', '.join(REDIS)}")
        if self.url is not None and self.max_bytes is not None:
            raise ValueError("max_bytes is for a file; for Redis set its own maxmemory")
        if self.max_bytes is not None and self.max_bytes < _SMALLEST_CACHE_BYTES:
            raise ValueError(f"max_bytes must be at least {_SMALLEST_CACHE_BYTES}")
        if self.max_age_days is not None:
            positive("max_age_days", self.max_age_days)


def _cache(settings: Mapping[str, Any]) -> Cache:
    return Cache(**settings)


class RewardConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A whole reward configuration, valid by construction.

    Args:
        components: the terms of the reward, by name.
        judges: the judges that ask a model, by name.
        panels: the entries of ``judges`` that ask other judges, by name.
        traffic: limits on requests.
        hub: how the hub of a job is spread over processes.
        cache: of judged replies.
        prices: of models, by name.
        on_failure: what becomes of a component that abstained.
        source: the document that it was read from, for errors that are found later.
        at: key path of the configuration in that document.
    """

    components: dict[str, Component]
    judges: dict[str, Judge] = {}
    panels: dict[str, Panel] = {}
    traffic: Traffic = Traffic()
    hub: Sharding = Sharding()
    cache: Cache = Cache()
    prices: dict[str, Price] = {}
    on_failure: FailurePolicy = FailurePolicy()
    source: Source = Source("reward", None, {}, Path())
    at: KeyPath = ()

    @property
    def base(self) -> Path:
        """The folder that relative paths in the configuration start from."""
        return self.source.base

    def fail(self, path: KeyPath, problem: str) -> NoReturn:
        """Raise a ConfigError about the key path `path` inside this configuration."""
        self.source.fail((*self.at, *path), problem)
