"""`LengthPenaltyConfig`: rule, quality judge and length penalty as one set of settings."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from zerowait.config import Source
from zerowait.config.checks import finite, positive
from zerowait.config.messages import locate, plain_words
from zerowait.config.urls import check_url
from zerowait.shaping.median_band import MedianBand

KEY_VARIABLE: Final = "OPENAI_API_KEY"
URL_VARIABLE: Final = "OPENAI_BASE_URL"
ENDPOINT: Final = "https://qianfan.baidubce.com/v2/chat/completions"
RULE, JUDGE, SHAPE = "score", "quality", "length"
_SHAPE = "median_band"


@dataclass(frozen=True, init=False)
class LengthPenaltyConfig:
    """``reward = score + quality - penalty_scale * penalty``, with the penalty of `median_band`.

    Made of keyword arguments, of a mapping, or of an OmegaConf mapping; keywords win.

    Args:
        enable: whether the length penalty counts; without it lengths and medians are still
            recorded.
        penalty_scale, max_penalty: factor of the penalty, and its largest value.
        peak_ratio, outer_ratio: half the width of the band around the group's median that has no
            penalty, and where the full penalty begins, both relative to the median.
        enable_openai_reward: whether a judge is asked for the quality of a response.
        api_key: of the judge, never shown; None: the variable ``OPENAI_API_KEY``.
        model_name: what the judge's endpoint calls its model.
        api_endpoint: a base URL, or a full one that ends with ``/chat/completions``; None: the
            variable ``OPENAI_BASE_URL``, else Qianfan's endpoint, if `api_key` is given.
        reward_coefficient: factor of the judge's score of 1 to 10.
        use_async_io: judge a batch's responses at the same time; False: one call at a time, in
            the calling thread.
        max_concurrent_requests: calls in flight; ``auto`` adapts to the endpoint.
        num_async_workers: deprecated, without effect: there are no worker processes.
        gate: the condition under which a response is judged.
        rubric: a built-in rubric's name, or a path to one.
        deadline_s: seconds that a batch may take; after that its open judgements abstain with
            ``timeout``.
        on_failure: the failure policy, as in a ``reward.yaml``.
        cache: the cache of judgements, as in a ``reward.yaml``; None for its default, or ``off``.

    Raises:
        ConfigError: a key does not exist (names the nearest) or a value does not fit.

    >>> LengthPenaltyConfig({"penalty_scale": 0.5}, peak_ratio=0.2).outer_ratio
    0.5
    >>> LengthPenaltyConfig(penalty_scal=0.5)
    Traceback (most recent call last):
    zerowait.errors.ConfigError: LengthPenaltyConfig: it has no key 'penalty_scal'; \
did you mean 'penalty_scale'?
    """

    enable: bool = True
    penalty_scale: float = 1.0
    max_penalty: float = 1.0
    peak_ratio: float = 0.3
    outer_ratio: float = 0.5
    enable_openai_reward: bool = False
    api_key: str | None = field(default=None, repr=False)
    model_name: str = "deepseek-v3"
    api_endpoint: str | None = field(default=None, repr=False)
    reward_coefficient: float = 0.1
    use_async_io: bool = True
    max_concurrent_requests: int | Literal["auto"] = "auto"
    num_async_workers: int | None = field(default=None, repr=False)
    gate: str = f"{RULE} > 0"
    rubric: str = "tool_reasoning"
    deadline_s: float = 300.0
    on_failure: Any = "neutral"
    cache: Any = None

    def __init__(self, given: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        tree = {str(key): given[key] for key in given} if given is not None else {}
        for name, value in vars(_checked(tree | settings, type(self))).items():
            object.__setattr__(self, name, value)
        if self.num_async_workers is not None:
            warnings.warn(
                "num_async_workers has no effect: judges are asked from one event loop, as many "
                "at a time as max_concurrent_requests says",
                DeprecationWarning,
                stacklevel=2,
            )

    def __post_init__(self) -> None:
        for name in ("penalty_scale", "reward_coefficient"):
            finite(name, getattr(self, name))
        positive("deadline_s", self.deadline_s)
        if self.max_concurrent_requests != "auto":
            positive("max_concurrent_requests", self.max_concurrent_requests)
        if self.api_endpoint is not None:
            check_url("api_endpoint", self.api_endpoint)
        MedianBand(**self._band())

    @classmethod
    def of(cls, given: LengthPenaltyConfig | Mapping[str, Any] | None) -> LengthPenaltyConfig:
        """`given` itself, or the settings that it holds."""
        return given if isinstance(given, LengthPenaltyConfig) else cls(given)

    def reward(self, rule: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The content of the equivalent ``reward.yaml``, for `zerowait.open` or a trainer.

        Args:
            rule: the component that scores a response; None uses the rule for its data source.

        Raises:
            ConfigError: the API key from the environment would go to the default endpoint.
        """
        scale = self.penalty_scale if self.enable else 0.0
        components: dict[str, Any] = {RULE: dict(rule or {"scorer": "by_data_source"})}
        if self.enable_openai_reward:
            components[JUDGE] = self._judged() | {"gate": self.gate}
        components[SHAPE] = {"shape": _SHAPE, "scale": scale} | self._band()
        return self._with_judge(components, judged=self.enable_openai_reward)

    def quality(self) -> dict[str, Any]:
        """As `reward`, with the judge alone, which judges every response."""
        return self._with_judge({JUDGE: self._judged()}, judged=True)

    def _band(self) -> dict[str, float]:
        return {
            "peak_ratio": self.peak_ratio,
            "outer_ratio": self.outer_ratio,
            "max_penalty": self.max_penalty,
        }

    def _judged(self) -> dict[str, Any]:
        return {"judge": JUDGE, "weight": self.reward_coefficient}

    def _with_judge(self, components: dict[str, Any], *, judged: bool) -> dict[str, Any]:
        one_by_one = {"concurrency": 1, "hedge": "off"}
        many = {"concurrency": self.max_concurrent_requests}
        tree: dict[str, Any] = {
            "components": components,
            "traffic": many if self.use_async_io else one_by_one,
            "on_failure": self.on_failure,
        }
        if judged:
            tree["judges"] = {
                JUDGE: {
                    "endpoints": [self._endpoint()],
                    "rubric": self.rubric,
                    "verdict": {"integer": [1, 10]},
                    "temperature": 0.0,
                }
            }
        return tree if self.cache is None else tree | {"cache": self.cache}

    def _endpoint(self) -> dict[str, str]:
        url = self.api_endpoint or os.environ.get(URL_VARIABLE)
        if url is None and self.api_key is None and os.environ.get(KEY_VARIABLE):
            problem = (
                f"is needed: {KEY_VARIABLE} goes only where you say, for example to {ENDPOINT}"
            )
            _source({}).fail(("api_endpoint",), problem)
        where = {"base_url": url or ENDPOINT, "model": self.model_name}
        if self.api_key is None:
            return where | {"api_key_env": KEY_VARIABLE}
        return where | {"api_key": self.api_key}


def _checked(tree: dict[str, Any], kind: type[LengthPenaltyConfig]) -> LengthPenaltyConfig:
    source = _source(tree)
    names = [each.name for each in dataclasses.fields(kind)]
    for key in tree:
        if key not in names:
            source.unknown_key((), key, names)
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError as error:
        path, problem = locate(str(error))
        source.fail(path, plain_words(problem))


def _source(tree: dict[str, Any]) -> Source:
    return Source(LengthPenaltyConfig.__name__, tree, {}, Path())
