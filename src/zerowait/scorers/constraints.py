"""The scorer ``constraints``: instructions that a program can verify, as in IFEval."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from zerowait.errors import did_you_mean
from zerowait.scorers.answers import no_gold
from zerowait.scorers.constraint_checks import CONSTRAINTS, language_detector
from zerowait.scorers.thinking import spoken
from zerowait.types import Abstain, FailureKind, Sample, Score

_IDS: Final = ("instruction_id_list", "instruction_id")
_FUNCTION: Final = "func_name"
_WANTED: Final = "instruction_id_list and kwargs, or func_name"
_KNOWN: Final = {name for constraint in CONSTRAINTS.values() for name in constraint.needs}


class _Instruction(NamedTuple):
    name: str
    given: dict[str, Any]


def constraints(
    sample: Sample,
    *,
    mode: Literal["strict", "loose"] = "strict",
    aggregate: Literal["all", "share"] = "all",
    score: float = 1.0,
) -> Score | Abstain:
    """`score` for a response that follows all of its row's instructions, else 0.

    The row has them in its ground truth or in its extra columns: ``instruction_id_list`` and
    ``kwargs`` as in IFEval, lists of such mappings as in Tulu 3's sets, or ``func_name`` with its
    parameters as in RLVR-IFeval; as mappings or as JSON text. Parameters that are null count as not
    given. Thinking is no part of the response; one without a letter or a digit follows nothing.

    It abstains with ``bad_input`` on an instruction that it does not know, or whose parameters are
    missing: nothing is drawn at random, and no instruction is left out.

    Args:
        sample: its response is checked.
        mode: ``loose`` also accepts the response without its first line, its last line, or the
            stars of Markdown.
        aggregate: ``share`` is the share of the instructions that are followed, times `score`.
        score: of a response that follows all of them.

    >>> row = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    >>> constraints(Sample("", "Yes.", row)).value, constraints(Sample("", "Yes, I do.", row)).value
    (1.0, 0.0)
    """
    found = _instructions(sample)
    if isinstance(found, Abstain):
        return found
    followed: dict[str, bool] = {}
    texts = [text for text in _variants(spoken(sample), mode) if any(map(str.isalnum, text))]
    for number, (name, given) in enumerate(found):
        check = CONSTRAINTS[name].check
        try:
            passes = [check(text, *given.values()) for text in texts or [""]]
        except ValueError as error:
            return Abstain(FailureKind.BAD_INPUT, f"{name}: {error}")
        is_followed = bool(texts) and any(passes)
        followed[name if name not in followed else f"{name} {number + 1}"] = is_followed
    share = sum(followed.values()) / len(followed)
    missed = [name for name, is_followed in followed.items() if not is_followed]
    value = share if aggregate == "share" else float(not missed)
    why = f"not followed: {', '.join(missed)}" if missed else ""
    return Score(value * score, why, {"followed": followed})


def load_constraints() -> None:
    """Load what detects languages.

    Raises:
        MissingExtraError: it is not installed.
    """
    language_detector()


def _variants(text: str, mode: str) -> Iterator[str]:
    """The texts of which one has to follow an instruction."""
    yield text
    if mode == "strict":
        return
    lines = text.split("\n")
    cuts = [text, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    yield from cuts[1:]
    yield from (cut.replace("*", "") for cut in cuts)


def _instructions(sample: Sample) -> list[_Instruction] | Abstain:
    """The instructions of a row, all of them known and with the parameters that they need."""
    gold = sample.ground_truth
    in_extra = any(not _is_missing(sample.extra.get(name)) for name in (*_IDS, _FUNCTION))
    if in_extra and not isinstance(_read(gold), Mapping | list | tuple):
        gold = sample.extra  # the ground truth is blank, or the answer to compare with
    elif gold is None or (isinstance(gold, str) and not gold.strip()):
        return no_gold(None, wanted=_WANTED)
    try:
        read = [pair for entry in _entries(gold) for pair in _pairs(entry)]
        if not read:
            return no_gold(gold, wanted=_WANTED)
        return [_checked(name, given) for name, given in read]
    except (ValueError, TypeError) as error:
        return Abstain(FailureKind.BAD_INPUT, str(error))


def _entries(gold: Any) -> list[Any]:
    """The mappings in a ground truth: one, or those in a list, written as text or not."""
    gold = _read(gold)
    if isinstance(gold, Mapping):
        return [gold]
    if isinstance(gold, list | tuple):
        return [each for entry in gold for each in _entries(entry)]
    raise ValueError(f"the row's instructions are {_shown(gold)}; expected {_WANTED}")


def _pairs(entry: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The name and the parameters of each instruction in one mapping."""
    if not _is_missing(entry.get(_FUNCTION)):
        yield entry[_FUNCTION], {name: v for name, v in entry.items() if name in _KNOWN}
        return
    names = next((_listed(entry[k]) for k in _IDS if not _is_missing(entry.get(k))), None)
    if names is None:
        raise ValueError(f"the row's instructions are {_shown(entry)}; expected {_WANTED}")
    parameters = _parameters(entry.get("kwargs"), len(names))
    if len(parameters) != len(names):
        raise ValueError(f"{len(names)} instructions have {len(parameters)} kwargs")
    yield from zip(names, parameters, strict=True)


def _parameters(given: Any, count: int) -> list[Any]:
    """The parameters of each instruction; some readers turn a list of mappings inside out."""
    given = _read(given)
    if _is_missing(given):
        return [None] * count
    if not isinstance(given, Mapping):
        return _listed(given)
    columns = {name: _listed(v) for name, v in given.items() if not _is_missing(v)}
    if any(len(values) != count for values in columns.values()):
        return [given]
    return [{name: values[row] for name, values in columns.items()} for row in range(count)]


def _checked(name: Any, given: Any) -> _Instruction:
    constraint = CONSTRAINTS.get(name) if isinstance(name, str) else None
    if constraint is None:
        hint = did_you_mean(str(name), CONSTRAINTS)
        raise ValueError(f"there is no instruction {name!r}{hint}")
    given = None if _is_missing(given) else _read(given)
    known = given if isinstance(given, Mapping) else {}
    if given is not None and known is not given:
        raise ValueError(f"{name}: kwargs is {_shown(given)}; expected a mapping")
    for key, value in known.items():
        if not _is_missing(value) and key not in _KNOWN:
            raise ValueError(
                f"{name} has no parameter {key!r}{did_you_mean(key, constraint.needs)}"
            )
    values = {
        key: _value(name, key, known.get(key), kind) for key, kind in constraint.needs.items()
    }
    return _Instruction(name, values)


def _value(name: str, key: str, value: Any, kind: type) -> Any:
    """A parameter of the type that the instruction needs."""
    if _is_missing(value):
        raise ValueError(f"{name} needs {key!r}, which the row does not have")
    if kind is list:
        words = _listed(value)
        if words and all(isinstance(word, str) and word.strip() for word in words):
            return words
    elif kind is int:
        whole = None if isinstance(value, bool | str) else _whole(value)
        if whole is not None:
            return whole
    elif isinstance(value, str) and value.strip():
        return str(value)
    wanted = {list: "a list of words", int: "a whole number"}.get(kind, "a text")
    raise ValueError(f"{name}: {key} is {_shown(value)}; expected {wanted}")


def _is_missing(value: Any) -> bool:
    """Whether a value is null, which data frames write as NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _whole(value: Any) -> int | None:
    """The whole number that a value is; 3.0 is one, as Parquet files have it."""
    try:
        return int(value) if value == int(value) else None
    except (ValueError, TypeError, OverflowError):
        return None


def _listed(value: Any) -> list[Any]:
    """A list, an array of another library, or the list that a text is."""
    value = _read(value)
    if isinstance(value, str):
        return [value]
    tolist = getattr(value, "tolist", None)
    return list(value if tolist is None else tolist())


def _read(value: Any) -> Any:
    """What a text means as JSON, or as Python writes it; other values and texts as they are."""
    if not isinstance(value, str) or value.strip()[:1] not in ("{", "["):
        return value.tolist() if hasattr(value, "tolist") else value
    for reader in (json.loads, ast.literal_eval):
        try:
            return reader(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
