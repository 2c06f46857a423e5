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
from zerowait.config.group_verdict import BY_TOKENS
from zerowait.config.judgement import Monitor, Panel, Votes
from zerowait.config.log_to import LogTo
from zerowait.config.obfuscated_pickle import obfuscated
from zerowait.config.row_rubric import Batches, RowRubricVerdict
from zerowait.config.source import KeyPath, Source
from zerowait.config.traffic import Price, Sharding, Traffic
from zerowait.types import FailureKind

_SMALLEST_CACHE_BYTES = 2**20
_FORMS = ("integer", "number", "choice", "schema", "rubric", "reward", "pairs", "rank")
_BY_TOKENS_OF: dict[str | None, str] = {"probability": "choice", "expectation": "integer"}
REDIS = ("redis://", "rediss://", "unix://")


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The failure policy ``{value: x}``: an abstained component counts as `value`."""

    value: float

    def __post_init__(self) -> None:
        finite("value", self.value)


Aggregate: TypeAlias = Literal["mean", "sum", "last", "min"]
"""How the verdicts on the turns of an episode become one number."""

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

    def listed(self) -> list[tuple[tuple[str, ...], Policy]]:
        """Every policy that the user chose, with its key path below ``on_failure``."""
        chosen: list[tuple[tuple[str, ...], Policy]] = []
        if self.default is not None:
            chosen.append((("default",), self.default))
        chosen += [((kind.value,), policy) for kind, policy in self.kinds.items()]
        for name, own in self.components.items():
            chosen += [((name, *path), policy) for path, policy in own.listed()]
        return chosen


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
    """A judge's verdict times `weight`.

    Args:
        judge: name of a judge or panel.
        weight: factor in the sum; 0 makes it a shadow component.
        gate: a condition over other components.
        sources: the data sources this component is for; empty means all.
        normalize: whether the verdict's range is mapped to [0, 1] first.
        per: whether the judge is asked about the ``response`` or about each assistant ``turn``.
        aggregate: the number that the turns' verdicts become; None: their sum, of which verl pays
            each turn's share on that turn's last token.
    """

    judge: str
    weight: float = 1.0
    gate: str | None = None
    sources: list[str] = []
    normalize: bool = False
    per: Literal["response", "turn"] = "response"
    aggregate: Aggregate | None = None

    def __post_init__(self) -> None:
        finite("weight", self.weight)
        if self.aggregate is not None and self.per != "turn":
            raise ValueError("aggregate is for components that are per: turn")

    @property
    def pays_by_turn(self) -> bool:
        """Whether each turn's share of the reward belongs on that turn's tokens."""
        return self.per == "turn" and self.aggregate is None and self.weight != 0


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


class VerdictRule(RowRubricVerdict, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The form in which a judge has to answer: exactly one of the kinds, and its options.

    Args:
        integer: inclusive range of a whole number, such as ``[1, 10]``.
        number: inclusive range of a decimal number, such as ``[0, 1]``.
        choice: the words it may answer; the first is worth 1, the last 0, those between evenly.
        schema: a JSON schema's file, relative to the configuration; the answer is a JSON object.
        value: JSON pointer of the verdict in that object, such as ``/score``; or a mapping of such
            pointers to weights, whose weighted sum is the verdict.
        structured: whether the verdict is asked for as JSON that the endpoint enforces
            (``response_format``): ``auto`` does so until an endpoint refuses it, and falls back to
            the prompt there; ``on`` never falls back; ``off`` leaves it to the prompt.
        rubric: the row's own criteria; see `RowRubricVerdict`.
        reward: a reward model's number as it is (``raw``), or in an inclusive range.
        by: ``probability`` of a choice's words, or ``expectation`` of a whole number: read from the
            probabilities of the verdict's tokens, instead of the verdict that was written.
        max_outside: the most probability, in [0, 1), that tokens which are no verdict may have
            under `by`; above it the judge abstains. None: 0.2.
        pairs, rank: responses are compared with each other; see `GroupVerdict`.
    """

    integer: tuple[int, int] | None = None
    number: tuple[float, float] | None = None
    choice: list[str] | None = None
    schema: str | None = None
    value: str | dict[str, float] | None = None
    structured: Literal["auto", "on", "off"] | bool = "auto"
    reward: Literal["raw"] | tuple[float, float] | None = None
    max_outside: float | None = None

    @property
    def by_tokens(self) -> bool:
        """Whether the verdict is read from the probabilities of its tokens."""
        return self.by in BY_TOKENS

    def __post_init__(self) -> None:
        given = [name for name in _FORMS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"a verdict has exactly one of {', '.join(_FORMS)}; got {given}")
        if self.schema is None and self.value is not None:
            raise ValueError("value belongs to a schema verdict")
        if self.schema is not None and not self.value:
            raise ValueError("a schema verdict needs value: where its number is, such as /score")
        compared = next((n for n in ("reward", "pairs", "rank") if getattr(self, n)), None)
        if compared is not None and self.enforced == "on":
            raise ValueError(
                f"structured: on is for numbers, words and objects, not for {compared}"
            )
        self._check_by_tokens(given[0])
        self.check_rubric()
        reward = None if self.reward == "raw" else self.reward
        bounds = self.integer or self.number or reward
        if bounds is not None and not bounds[0] < bounds[1]:
            raise ValueError(f"the verdict's range {list(bounds)} is empty: give [low, high]")
        if self.choice is not None and len(set(self.choice)) < 2:
            raise ValueError("a choice verdict needs at least two different words")

    @property
    def enforced(self) -> Literal["auto", "on", "off"]:
        """`structured` as a word: YAML reads ``on`` and ``off`` as true and false."""
        if isinstance(self.structured, bool):
            return "on" if self.structured else "off"
        return self.structured

    def _check_by_tokens(self, form: str) -> None:
        if not self.by_tokens:
            if self.max_outside is not None:
                raise ValueError("max_outside goes with by: probability or by: expectation only")
            return
        if form != _BY_TOKENS_OF[self.by]:
            hint = next((f": say by: {by}" for by, of in _BY_TOKENS_OF.items() if of == form), "")
            raise ValueError(f"by: {self.by} goes with {_BY_TOKENS_OF[self.by]}, not {form}{hint}")
        if self.enforced == "on":
            raise ValueError(f"structured: on does not go with by: {self.by}: it reads one token")
        if self.max_outside is not None and not 0 <= self.max_outside < 1:
            raise ValueError(f"max_outside must be in [0, 1), not {self.max_outside}")


class EverySteps(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``anchors_every: {steps: N}``: every N training steps, by the ``step`` of the samples."""

    steps: int

    def __post_init__(self) -> None:
        positive("steps", self.steps)


class Judge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A judge: its endpoints, its rubric, and the form of its answers.

    Args:
        endpoints: its addresses; all serve the same model, and share the requests.
        rubric: a built-in name, or a path to a Markdown rubric; by default ``quality``, for
            comparisons ``pairwise`` or ``ranking``, and for a row's own criteria ``row_rubric``
            or, for ``aggregate: implicit``, ``row_rubric_whole``.
        verdict: the form of its answer.
        max_tokens: the longest answer; a truncated one is retried once with twice as many.
        temperature: sampling temperature of the judge.
        parameters: further fields of the request body, such as ``top_p`` or ``seed``; with
            ``{temperature: null, max_completion_tokens: null}`` no temperature is sent, and
            `max_tokens` under the newer name.
        ask: criteria ``together`` in one call, ``apart`` in one call each, or, those of a row's
            own rubric, ``{batch: k}``: k in one call.
        votes: how often it is asked the same question, and how the answers are pooled.
        monitor: it sees the reasoning alone and predicts a property of the sample.
        anchors: a JSONL file of samples with reference verdicts, by which its drift is measured.
        anchors_every: anchors are judged at the start and again after this many judgements, or
            every ``{steps: N}`` training steps.
        anchors_alarm: the mean difference, as a share of the range, above which it has drifted.
        images: whether its model sees pictures; without it samples whose pictures it would be
            shown abstain.
        max_image_bytes: a larger picture abstains its sample.
        max_conversation_chars: of the messages in ``{{conversation}}`` and ``{{turns}}``; longer
            ones are cut, which is reported.
    """

    endpoints: list[Endpoint]
    verdict: VerdictRule
    rubric: str = ""
    max_tokens: int = 1024
    temperature: float = 0.0
    parameters: dict[str, Any] = {}
    ask: Literal["together", "apart"] | Batches | None = None
    votes: Votes | None = None
    monitor: Monitor | None = None
    anchors: str | None = None
    anchors_every: EverySteps | int = 5000
    anchors_alarm: float = 0.1
    images: bool = False
    max_image_bytes: int = 10_000_000
    max_conversation_chars: int = 400_000

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise ValueError("a judge needs at least one endpoint")
        if not isinstance(self.anchors_every, EverySteps):
            positive("anchors_every", self.anchors_every)
        positive("anchors_alarm", self.anchors_alarm)
        positive("max_tokens", self.max_tokens)
        positive("max_image_bytes", self.max_image_bytes)
        positive("max_conversation_chars", self.max_conversation_chars)
        not_negative("temperature", self.temperature)
        json_only("parameters", self.parameters)
        self._check_reward_model()
        if not self.rubric:
            msgspec.structs.force_setattr(self, "rubric", self._default_rubric())

    def _default_rubric(self) -> str:
        """The built-in prompt for the kind of verdict."""
        verdict = self.verdict
        if verdict.comparison is not None:
            return verdict.comparison.rubric
        if verdict.rubric is not None:
            return "row_rubric_whole" if verdict.aggregation == "implicit" else "row_rubric"
        return "quality"

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
        given = [n for n in ("rubric", "votes", "ask", "monitor", "images") if getattr(self, n)]
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


class Recording(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the record of a run holds, where one is kept; its folder is named by the caller.

    Args:
        texts: whether prompts, responses, requests and replies are kept as they are (``keep``), as
            hashes (``hash``) or not at all (``drop``).
        max_bytes: of the record's files. At nine tenths of it texts are no longer kept, and at all
            of it judgements are no longer recorded; rewards always are.
        judgements: whether each judgement is recorded, with its request and reply.
    """

    texts: Literal["keep", "hash", "drop"] = "keep"
    max_bytes: int = 20_000_000_000
    judgements: Literal["on", "off"] | bool = "on"

    def __post_init__(self) -> None:
        if self.max_bytes < _SMALLEST_CACHE_BYTES:
            raise ValueError(f"max_bytes must be at least {_SMALLEST_CACHE_BYTES}")

    @property
    def has_judgements(self) -> bool:
        """`judgements` as a truth value: YAML reads ``on`` and ``off`` as true and false."""
        return self.judgements in ("on", True)


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
        record: what a record of the run holds.
        prices: of models, by name.
        on_failure: what becomes of a component that abstained.
        log_to: the loggers that get the metrics.
        source: the document that it was read from, for errors that are found later.
        at: key path of the configuration in that document.
    """

    components: dict[str, Component]
    judges: dict[str, Judge] = {}
    panels: dict[str, Panel] = {}
    traffic: Traffic = Traffic()
    hub: Sharding = Sharding()
    cache: Cache = Cache()
    record: Recording = Recording()
    prices: dict[str, Price] = {}
    on_failure: FailurePolicy = FailurePolicy()
    log_to: LogTo = LogTo()
    source: Source = Source("reward", None, {}, Path())
    at: KeyPath = ()

    @property
    def base(self) -> Path:
        """The folder that relative paths in the configuration start from."""
        return self.source.base

    def fail(self, path: KeyPath, problem: str | Exception) -> NoReturn:
        """Raise a ConfigError about the key path `path` here; the rest is as in `Source.fail`."""
        self.source.fail((*self.at, *path), problem)
