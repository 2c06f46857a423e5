"""Everything zerowait raises on purpose.

    ZerowaitError
    ├── ConfigError          the configuration or the command line is wrong: change it, start again
    ├── DataError            a data file or a row is not what it has to be
    ├── MissingExtraError    an optional package is not installed
    ├── ClosedError          the engine, portal or hub was closed
    ├── HubLostError         the job's hub did not answer in time, through all its restarts
    ├── PortalMisuseError    a call from a thread or an event loop that cannot answer it
    ├── StoreError           the cache could not be read or written (zerowait.cache)
    ├── TransportError       one HTTP attempt brought no reply (zerowait.client)
    └── JudgementError       a judgement failed and the policy says ``raise``, or all failed

All of them survive pickling, because Ray and multiprocessing move them between processes.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


class ZerowaitError(Exception):
    """Base of every error that zerowait raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class ConfigError(ZerowaitError):
    """The configuration is wrong; the message names the file, the line, the key and what fits."""


class DataError(ZerowaitError):
    """A data file or row is not what it has to be; the message names it."""


class MissingExtraError(ZerowaitError):
    """An optional package is missing; the message is the line that installs it."""

    def __init__(self, what: str, *, extra: str) -> None:
        super().__init__(f"{what} needs an extra: pip install 'zerowait[{extra}]'")
        self.extra = extra


class ClosedError(ZerowaitError):
    """The engine, portal or hub was closed before or while it was used."""


class HubLostError(ZerowaitError):
    """The job's hub did not answer in time; what it had committed is in its cache."""


class PortalMisuseError(ZerowaitError):
    """A call from the thread that would have to answer it, or from another event loop."""


class JudgementError(ZerowaitError):
    """A judgement was not reached and its failure policy is ``raise``, or none ever was."""


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A half sentence that names the nearest known word, or all of them.

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
