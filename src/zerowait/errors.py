"""Exceptions of zerowait, by what the reader can do about them.

    ZerowaitError
    ├── ConfigError          the configuration or the command line is wrong: change it, start again
    ├── DataError            a data file or a row is wrong: correct it
    ├── MissingExtraError    an optional package is not installed
    ├── ClosedError          the engine, portal or hub was closed
    ├── HubLostError         the job's hub did not answer in time, restarts included
    ├── PortalMisuseError    a call from a thread or an event loop that would wait for itself
    ├── StoreError           the cache could not be read or written (zerowait.cache)
    ├── TransportError       one HTTP attempt brought no reply (zerowait.client)
    └── JudgementError       a judgement failed under the policy ``raise``, or all of them did

All of them survive pickling, because Ray and multiprocessing move them between processes.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


class ZerowaitError(Exception):
    """Base class of all exceptions of zerowait."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class ConfigError(ZerowaitError):
    """The configuration is wrong; the message names file, line, key and what is valid."""


class DataError(ZerowaitError):
    """A data file or a row is wrong; the message names it and says what is expected."""


class MissingExtraError(ZerowaitError):
    """An optional package is missing; the message is the line that installs it."""

    def __init__(self, what: str, *, extra: str) -> None:
        super().__init__(f"{what} needs an extra: pip install 'zerowait[{extra}]'")
        self.extra = extra


class ClosedError(ZerowaitError):
    """The engine, portal or hub was closed before or while it was used."""


class HubLostError(ZerowaitError):
    """The job's hub did not answer in time; judgements that it had committed are in its cache."""


class PortalMisuseError(ZerowaitError):
    """A call from the portal's own thread, which would wait for itself, or from a foreign loop."""


class JudgementError(ZerowaitError):
    """A judgement failed and its failure policy is ``raise``, or no judgement succeeded yet."""


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """The end of an error message: the nearest known word, or all known ones.

    Args:
        given: the unknown word.
        known: the words that are valid.

    >>> did_you_mean("wieght", ["weight", "gate"])
    "; did you mean 'weight'?"
    >>> did_you_mean("zzz", ["weight", "gate"])
    '; known: weight, gate'
    """
    words = list(known)
    near = get_close_matches(given, words, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(words)}"


def _rebuild(kind: type[ZerowaitError], args: tuple[Any, ...], state: dict[str, Any]) -> Any:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error
