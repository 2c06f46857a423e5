"""The table of scorers by name: every built-in rule, its options and where it may run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from zerowait.config.sandbox import RemoteSandboxSettings
from zerowait.errors import ConfigError, did_you_mean
from zerowait.scorers.by_data_source import (
    SourceRule,
    check_by_data_source,
    read_rule,
    rule_for,
    unknown_source,
)
from zerowait.scorers.code.rule import check_code, code, code_options
from zerowait.scorers.column import column
from zerowait.scorers.constraints import constraints, load_constraints
from zerowait.scorers.contains import contains
from zerowait.scorers.format import check_format, tag_format
from zerowait.scorers.gsm8k import gsm8k
from zerowait.scorers.json_schema import check_json_schema, json_schema, read_schema
from zerowait.scorers.math.answer import math_answer
from zerowait.scorers.math.formula import require_math, warm_up
from zerowait.scorers.multiple_choice import multiple_choice
from zerowait.scorers.options import check_signature
from zerowait.scorers.qa_em import qa_em
from zerowait.scorers.qa_em_format import qa_em_format
from zerowait.scorers.qa_f1 import qa_f1
from zerowait.scorers.qa_subem import qa_subem
from zerowait.scorers.regex import check_regex, regex
from zerowait.scorers.toolcall import toolcall
from zerowait.scorers.user import UserScorer, import_scorer
from zerowait.types import Abstain, Outcome, Sample

Scorer: TypeAlias = Callable[..., Outcome]
"""``(sample, **options) -> Score | Abstain``."""


def by_data_source(sample: Sample, *, table: Mapping[str, Any] | None = None) -> Outcome:
    """The outcome of the scorer for the sample's `data_source`; an abstention without one.

    `table` extends the built-in rules: an exact source, or a prefix that ends in ``*``, to the
    name of a scorer or to ``{scorer: name, option: value}``.

    >>> by_data_source(Sample("", "#### 4", "4", data_source="openai/gsm8k")).value
    1.0
    """
    rule = selected("by_data_source", sample, {"table": table})
    if isinstance(rule, Abstain):
        return rule
    return resolve(rule.scorer)(sample, **rule.options)


SCORERS: Final[dict[str, Scorer]] = {
    "by_data_source": by_data_source,
    "code": code,
    "column": column,
    "constraints": constraints,
    "contains": contains,
    "format": tag_format,
    "gsm8k": gsm8k,
    "json_schema": json_schema,
    "math": math_answer,
    "multiple_choice": multiple_choice,
    "qa_em": qa_em,
    "qa_em_format": qa_em_format,
    "qa_f1": qa_f1,
    "qa_subem": qa_subem,
    "regex": regex,
    "toolcall": toolcall,
}

_CHECKS: Final[dict[str, Callable[[Mapping[str, Any]], None]]] = {
    "by_data_source": lambda options: check_by_data_source(options, check_options),
    "code": check_code,
    "constraints": lambda _: load_constraints(),
    "format": check_format,
    "json_schema": check_json_schema,
    "math": lambda _: require_math(),
    "regex": check_regex,
}

_MAY_HANG: Final = frozenset(
    {"by_data_source", "code", "constraints", "json_schema", "math", "regex"}
)
_FORMS: Final = frozenset({"constraints", "format", "json_schema"})
_WARM_UPS: Final[dict[str, Callable[[], None]]] = {
    "constraints": load_constraints,
    "math": warm_up,
}


def resolve(name: str) -> Scorer:
    """The scorer called `name`: a built-in one, or the user's ``module:function``.

    Raises:
        ConfigError: there is none; the message names the nearest.

    >>> resolve("qa_emm")
    Traceback (most recent call last):
    zerowait.errors.ConfigError: there is no scorer 'qa_emm'; did you mean 'qa_em'?
    """
    found = SCORERS.get(name)
    if found is not None:
        return found
    if ":" in name:
        return import_scorer(name)
    raise ConfigError(f"there is no scorer {name!r}{did_you_mean(name, SCORERS)}")


def warmed_up(name: str) -> Scorer:
    """The scorer called `name`, with the packages loaded that its first call would load.

    Raises:
        ConfigError: there is no such scorer.
        MissingExtraError: a package that it needs is not installed.
    """
    warm = _WARM_UPS.get(name)
    if warm is not None:
        warm()
    return resolve(name)


def selected(name: str, sample: Sample, options: Mapping[str, Any]) -> SourceRule | Abstain:
    """The scorer that is called for `sample`, and its options.

    It is `name` itself, unless that is ``by_data_source``, which selects another scorer.

    >>> selected("by_data_source", Sample("", "", data_source="nq"), {}).scorer
    'qa_em'
    """
    if name != "by_data_source":
        return SourceRule(name, dict(options))
    table = options.get("table")
    return rule_for(sample.data_source, table) or unknown_source(sample.data_source, table)


class Credit(NamedTuple):
    """The full score of a rule, and what earning it means.

    Args:
        full: the score of a right answer.
        shows: ``answer``: the response gives the gold answer. ``number``: a user's function or a
            column of the row says so. ``form``: the response is written in the right form.
    """

    full: float
    shows: Literal["answer", "number", "form"]


def credit_of(name: str, sample: Sample, options: Mapping[str, Any]) -> Credit | None:
    """The full score of the rule called `name` for `sample`; None where no rule is for it.

    The full score of a user's function, or of a column, is 1.

    >>> credit_of("math", Sample("", ""), {"score": 2.0, "format_score": 0.1})
    Credit(full=2.0, shows='answer')
    """
    rule = selected(name, sample, options)
    if isinstance(rule, Abstain):
        return None
    if rule.scorer == "column" or is_user_function(rule.scorer):
        return Credit(1.0, "number")
    is_form = rule.scorer in _FORMS or (
        rule.scorer == "regex" and not rule.options.get("equals_gold")
    )
    return Credit(float(rule.options.get("score", 1.0)), "form" if is_form else "answer")


def is_user_function(name: str) -> bool:
    """Whether `name` is a user's ``module:function`` and no built-in scorer.

    >>> is_user_function("my_rewards:score"), is_user_function("gsm8k")
    (True, False)
    """
    return ":" in name


def needs_pool(name: str) -> bool:
    """Whether the scorer may hang, so that it has to run in a worker process.

    These are users' functions, users' patterns (schemas have some, too), comparing mathematics, and
    `by_data_source`, which may select one of them: ask again with the scorer that it `selected`.

    >>> needs_pool("my_rewards:score"), needs_pool("regex"), needs_pool("gsm8k")
    (True, True, False)
    """
    return is_user_function(name) or name in _MAY_HANG


def user_functions(name: str, options: Mapping[str, Any]) -> dict[str, UserScorer]:
    """The users' functions that the scorer may call, by ``module:function``."""
    if name == "by_data_source":
        rules = map(read_rule, (options.get("table") or {}).values())
        tables = [user_functions(rule.scorer, rule.options) for rule in rules]
        return {target: each for found in tables for target, each in found.items()}
    scorer = resolve(name)
    return {name: scorer} if isinstance(scorer, UserScorer) else {}


def remote_sandboxes(name: str, options: Mapping[str, Any]) -> list[RemoteSandboxSettings]:
    """The remote sandboxes to which the scorer may send programs."""
    if name == "by_data_source":
        rules = map(read_rule, (options.get("table") or {}).values())
        return [each for rule in rules for each in remote_sandboxes(rule.scorer, rule.options)]
    sandbox = code_options(options).sandbox if name == "code" else None
    return [] if sandbox is None else [sandbox]


def with_files(name: str, options: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """The options, with the content of each file in the place of its path.

    Args:
        name: of the scorer.
        options: as configured.
        base: the folder that relative paths start from.

    Raises:
        ConfigError: a file does not exist, or cannot be read as what it should be.
    """
    if name == "json_schema" and "schema" in options:
        return {**options, "schema": read_schema(options["schema"], base)}
    table = options.get("table")
    if name != "by_data_source" or not isinstance(table, Mapping):
        return dict(options)
    rules = {
        source: {**entry, **with_files(str(entry.get("scorer")), entry, base)}
        if isinstance(entry, Mapping)
        else entry
        for source, entry in table.items()
    }
    return {**options, "table": rules}


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Raises a ConfigError unless the scorer called `name` takes these `options`.

    >>> check_options("gsm8k", {"metod": "strict"})
    Traceback (most recent call last):
    zerowait.errors.ConfigError: gsm8k has no option 'metod'; did you mean 'method'?
    """
    scorer = resolve(name)
    if isinstance(scorer, UserScorer):
        scorer.convention.check(options, where=name)
        return
    check_signature(scorer, options, where=name)
    check = _CHECKS.get(name)
    if check is not None:
        check(options)
