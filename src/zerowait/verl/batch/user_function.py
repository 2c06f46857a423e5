"""Score samples with a reward function that the user passed as an object, not by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from zerowait.engine.concurrent_tasks import side_by_side
from zerowait.engine.portal import Portal
from zerowait.errors import ConfigError
from zerowait.scorers.calling_convention import convention_of
from zerowait.scorers.results import crash
from zerowait.scorers.user import UserScorer
from zerowait.types import Abstain, Outcome, Sample

LARGEST_BATCH: Final = 32
"""Samples in one list, at most, for a function that takes lists."""
_KEY: Final = "compute_score"


class UserFunction:
    """A reward function that is called in the calling thread.

    It has no deadline and no process of its own; named as ``module:function`` in a ``reward.yaml``
    it would have both. When it raises, that sample's component abstains.

    Args:
        function: takes verl's columns for one response, or lists of them, or a `Sample`; may be
            async.

    Raises:
        ConfigError: the function has another signature.
    """

    component: Final[Mapping[str, Any]] = {"scorer": "column", "key": _KEY}
    """The component of a ``reward.yaml`` that reads the outcomes that `scored` has stored."""

    def __init__(self, function: Callable[..., Any]) -> None:
        function, self._options = _unwrapped(function)
        name = getattr(function, "__qualname__", type(function).__name__)
        self._scorer = UserScorer(name, function, convention_of(function, name))
        self._scorer.convention.check(self._options, where=name)

    def scored(self, samples: Sequence[Sample]) -> list[Sample]:
        """The samples, each with its outcome in ``extra``."""
        return [
            msgspec.structs.replace(sample, extra=sample.extra | {_KEY: outcome})
            for sample, outcome in zip(samples, self._outcomes(samples), strict=True)
        ]

    def _outcomes(self, samples: Sequence[Sample]) -> list[Outcome]:
        if self._scorer.takes_lists:
            starts = range(0, len(samples), LARGEST_BATCH)
            lists = [self._listed(samples[start : start + LARGEST_BATCH]) for start in starts]
            return [outcome for outcomes in lists for outcome in outcomes]
        if self._scorer.is_async:
            works = [partial(self._scorer.acall, sample, **self._options) for sample in samples]
            with Portal() as portal:
                return portal.call(lambda: side_by_side([work() for work in works]))
        return [self._scorer(sample, **self._options) for sample in samples]

    def _listed(self, samples: Sequence[Sample]) -> list[Outcome]:
        """The outcomes of a list; if it fails, each half is tried again to isolate bad samples."""
        outcomes: list[Outcome] | Abstain
        try:
            returned = self._scorer.start(*samples, **self._options)
            outcomes = self._scorer.read(returned, len(samples))
        except (Exception, SystemExit) as error:  # noqa: BLE001 (the boundary to foreign code)
            outcomes = crash(error, self._scorer.target)
        if not isinstance(outcomes, Abstain):
            return outcomes
        if len(samples) == 1:
            return [outcomes]
        half = len(samples) // 2
        return [*self._listed(samples[:half]), *self._listed(samples[half:])]


def _unwrapped(function: Callable[..., Any]) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The user's function and its options, unwrapped from the partial that verl's loader makes."""
    match function:
        case partial(args=(inner, options)) if callable(inner) and isinstance(options, Mapping):
            return inner, dict(options)
        case _ if callable(function):
            return function, {}
    raise ConfigError(f"compute_score is a {type(function).__name__}, which cannot be called")
