"""Users' functions as scorers, named ``module:function``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from zerowait.config.callables import LOCAL, local_function
from zerowait.errors import ConfigError, did_you_mean
from zerowait.scorers.calling_convention import Convention, convention_of, is_async
from zerowait.scorers.results import crash, outcome_of, outcomes_of, raised_at
from zerowait.types import Abstain, Outcome, Sample


@dataclass(frozen=True)
class UserScorer:
    """A user's function as a scorer.

    It runs in this process: use a pool where it may hang, block the loop or end the process.

    Args:
        target: ``module:function``, its name in every message.
        function: what was imported.
        convention: how it is called.
    """

    target: str
    function: Callable[..., Any]
    convention: Convention

    @property
    def is_local(self) -> bool:
        """Whether it lives in this process alone, and so can only be called here."""
        return self.target.startswith(LOCAL)

    @property
    def is_async(self) -> bool:
        """Whether the function is asynchronous, as far as that is known before a call."""
        return is_async(self.function)

    @property
    def overlaps(self) -> bool:
        """Whether its calls may overlap in one process: it is asynchronous and takes no lists."""
        return self.is_async and not self.takes_lists

    @property
    def takes_lists(self) -> bool:
        """Whether the function takes lists, of many samples at once."""
        return self.convention.signature == "lists"

    def start(self, *samples: Sample, **options: Any) -> Any:
        """Call the function; returns its result, or an awaitable of it.

        Only a function that takes lists takes more than one sample; its result is a list.
        """
        positional, keywords = self.convention.arguments(samples, options)
        return self.function(*positional, **keywords)

    def read(self, returned: Any, count: int) -> list[Outcome] | Abstain:
        """One outcome per sample from the function's result, or one abstention for all of them."""
        if self.takes_lists:
            return outcomes_of(returned, count, self.target)
        return [outcome_of(returned, self.target)]

    def __call__(self, sample: Sample, **options: Any) -> Outcome:
        """The outcome for `sample`; an abstention if the function turns out to be asynchronous."""
        try:
            returned = self.start(sample, **options)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (the boundary to foreign code)
            return crash(error, self.target)
        return self._outcome(returned)

    async def acall(self, sample: Sample, **options: Any) -> Outcome:
        """The outcome for `sample`, awaited on the running loop where that is needed."""
        try:
            returned = await awaited(self.start(sample, **options))
        except (Exception, SystemExit) as error:  # noqa: BLE001 (the boundary to foreign code)
            return crash(error, self.target)
        return self._outcome(returned)

    def _outcome(self, returned: Any) -> Outcome:
        outcomes = self.read(returned, 1)
        return outcomes if isinstance(outcomes, Abstain) else outcomes[0]


async def awaited(returned: Any) -> Any:
    """`returned`, awaited until it is no awaitable any more."""
    while inspect.isawaitable(returned):
        returned = await returned
    return returned


def import_scorer(target: str) -> UserScorer:
    """The user's scorer that ``module:function`` names.

    Raises:
        ConfigError: it cannot be imported, is not there, cannot be called, or takes neither a
            sample nor verl's columns.
    """
    function = _imported(target)
    if not callable(function):
        raise ConfigError(f"{target} is a {type(function).__name__}, which cannot be called")
    return UserScorer(target, function, convention_of(function, target))


def _imported(target: str) -> Any:
    if target.startswith(LOCAL):
        function = local_function(target)
        if function is None:
            raise ConfigError(
                f"{target} is a function of another process, which cannot be sent here: move it "
                "into a module, and write module:function"
            )
        return function
    module_name, _, path = target.partition(":")
    if not module_name or not path:
        raise ConfigError(f"{target!r} names no function; write module:function")
    if module_name == "__main__":
        raise ConfigError(
            f"{target}: worker processes do not run your script again; "
            "move the function into a module of its own"
        )
    found: Any = _module(module_name, target)
    for attribute in path.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError:
            words = [word for word in dir(found) if not word.startswith("_")]
            hint = did_you_mean(attribute, words) if words else ""
            raise ConfigError(f"{target}: there is no {attribute!r}{hint}") from None
    return found


def _module(name: str, target: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"{target}: there is no module {error.name!r}; is it installed, or on PYTHONPATH?"
            ) from None
        raise ConfigError(f"{target}: importing {name} needs {error.name!r}: {error}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{target}: importing {name} raised {type(error).__name__}: {error}{raised_at(error)}"
        ) from error
