"""What a scorer's return value or exception means: a Score, or an Abstain that says why."""

from __future__ import annotations

import inspect
import math
import sysconfig
import traceback
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from zerowait.scorers.real import real
from zerowait.types import Abstain, FailureKind, Outcome, Score, Skipped

_LONGEST_MESSAGE_CHARS = 300
_PACKAGE: Final = Path(__file__).resolve().parents[1]
_STDLIB: Final = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_NOT_FINITE = "expected a finite number"


def outcome_of(returned: Any, name: str) -> Outcome:
    """The outcome that the return value of the scorer called `name` means.

    A finite number is a Score; an outcome is itself; None is an Abstain (``bad_input``); a mapping
    is the outcome of its ``score``, the other keys become the detail. Anything else, NaN and
    infinity included, is an Abstain (``crashed``), never a substitute number.

    >>> outcome_of({"score": True, "acc": 1}, "my:f")
    Score(value=1.0, why='', detail={'acc': 1})
    >>> outcome_of(float("nan"), "my:f").detail
    'my:f returned nan; expected a finite number'
    """
    try:
        return _outcome_of(returned, name)
    except Exception as error:  # noqa: BLE001 - the methods of what was returned may do anything
        why = f"which cannot be read: {_type(error)}: {_text(error)}"
        return _crashed(f"{name} returned a {_type(returned)}, {why}")


def outcomes_of(returned: Any, count: int, name: str) -> list[Outcome] | Abstain:
    """The outcomes that the return value of a function which takes lists means.

    One abstention for all samples where it is no list of `count` items: then it is unknown which
    sample an item belongs to.

    Args:
        returned: the return value.
        count: number of samples that the function got.
        name: of the function, for messages.

    >>> outcomes_of([1.0, {"score": 0.5}], 2, "my:f")[1].value
    0.5
    >>> outcomes_of([1.0], 2, "my:f").detail
    'my:f returned 1 results for 2 samples'
    """
    if getattr(returned, "shape", ()) and hasattr(returned, "tolist"):
        returned = returned.tolist()
    if inspect.isawaitable(returned):
        _discard(returned)
    if not isinstance(returned, list | tuple):
        return _crashed(f"{name} takes lists but returned a {_type(returned)}; expected a list")
    if len(returned) != count:
        return _crashed(f"{name} returned {len(returned)} results for {count} samples")
    return [outcome_of(each, name) for each in returned]


def crash(error: BaseException, name: str) -> Abstain:
    """The abstention of a scorer called `name` that raised `error`.

    It names the file and line where the user's code raised it or let it through.

    >>> crash(ValueError("no digits"), "my:f").detail
    'my:f raised ValueError: no digits'
    """
    message = _text(error)
    at = raised_at(error)
    return _crashed(f"{name} raised {_type(error)}{message and f': {message}'}", at)


def raised_at(error: BaseException) -> str:
    """File, line and function of the user's code that raised `error` or let it through.

    The innermost such frame, as ``" (file:line, in function)"``; empty without one. Frames of
    zerowait and of the standard library do not count; those of installed packages do where the
    user's own code is not involved.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}:{error.lineno})"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_absolute() and not _is_zerowait_or_stdlib(Path(frame.filename))
    ]
    own = [frame for frame in frames if not _INSTALLED & set(Path(frame.filename).parts)]
    found = own[-1] if own else frames[0] if frames else None
    return "" if found is None else f" ({found.filename}:{found.lineno}, in {found.name})"


def _is_zerowait_or_stdlib(file: Path) -> bool:
    if _INSTALLED & set(file.parts):
        return file.is_relative_to(_PACKAGE)
    return any(file.is_relative_to(root) for root in (_PACKAGE, *_STDLIB))


def is_not_finite(outcome: Outcome) -> bool:
    """Whether `outcome` is the abstention for a NaN or an infinity.

    >>> is_not_finite(outcome_of(float("nan"), "my:f")), is_not_finite(outcome_of("1", "my:f"))
    (True, False)
    """
    return isinstance(outcome, Abstain) and outcome.detail.endswith(_NOT_FINITE)


def _outcome_of(returned: Any, name: str) -> Outcome:
    if isinstance(returned, Score | Abstain | Skipped):
        return returned
    if isinstance(returned, Mapping):
        return _outcome_of_mapping(returned, name)
    if returned is None:
        return Abstain(FailureKind.BAD_INPUT, f"{name} returned None")
    if inspect.isawaitable(returned):
        _discard(returned)
        return _crashed(f"{name} returned a {_type(returned)} that was not awaited")
    return _outcome_of_number(returned, name)


def _outcome_of_mapping(returned: Mapping[Any, Any], name: str) -> Outcome:
    if "score" not in returned:
        keys = ", ".join(map(str, returned)) or "none"
        return _crashed(f"{name} returned a {_type(returned)} without 'score'; its keys: {keys}")
    if isinstance(returned["score"], Mapping):
        return _crashed(f"{name} returned a {_type(returned['score'])} as 'score'")
    outcome = outcome_of(returned["score"], name)
    if not isinstance(outcome, Score):
        return outcome
    rest = {str(key): _plain(value) for key, value in returned.items() if key != "score"}
    return Score(outcome.value, outcome.why, outcome.detail | rest)


def _plain(value: Any) -> Any:
    """A `Decimal` as a float; serialised as it is, it would become a text."""
    return float(value) if isinstance(value, Decimal) else value


def _outcome_of_number(returned: Any, name: str) -> Outcome:
    value = real(returned)
    if value is None:
        shown = f" {returned[:40]!r}" if isinstance(returned, str | bytes) else ""
        return _crashed(f"{name} returned a {_type(returned)}{shown}; expected a number")
    if not math.isfinite(value):
        return _crashed(f"{name} returned {value}; {_NOT_FINITE}")
    return Score(value)


def _crashed(message: str, at: str = "") -> Abstain:
    longest = max(_LONGEST_MESSAGE_CHARS - len(at), _LONGEST_MESSAGE_CHARS // 2)
    if len(message) > longest:
        message = f"{message[: longest - 1]}…"
    return Abstain(FailureKind.CRASHED, message + at)


def _text(error: BaseException) -> str:
    """The message of an error; the ``__str__`` of a user's error may raise."""
    try:
        return str(error)
    except Exception as again:  # noqa: BLE001 - another one of the user's
        return f"(its message cannot be read: {_type(again)})"


def _discard(awaitable: Any) -> None:
    """Close a coroutine that will not be awaited, so that Python does not warn about it later."""
    if inspect.iscoroutine(awaitable):
        awaitable.close()


def _type(value: Any) -> str:
    return type(value).__name__
