"""Which scorer is used for the rows of which data source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from zerowait.errors import ConfigError
from zerowait.types import Abstain, FailureKind

DEFAULT_RULES: Final[dict[str, str]] = {
    "openai/gsm8k": "gsm8k",
    "lighteval/MATH": "math",
    "DigitalLearningGmbH/MATH-lighteval": "math",
    "HuggingFaceH4/MATH-500": "math",
    "math_dapo*": "math",
    "aime*": "math",
    "searchR1_*": "qa_em",
    "nq": "qa_em",
    "triviaqa": "qa_em",
    "popqa": "qa_em",
    "web_questions": "qa_em",
    "hotpotqa": "qa_em",
    "2wikimultihopqa": "qa_em",
    "musique": "qa_em",
    "bamboogle": "qa_em",
    "google/IFEval": "constraints",
    "allenai/RLVR-IFeval": "constraints",
    "ifeval": "constraints",
    "codecontests": "code",
    "deepmind/code_contests": "code",
    "apps": "code",
    "codeparrot/apps": "code",
    "taco": "code",
    "BAAI/TACO": "code",
    "codeforces": "code",
    "open-r1/codeforces*": "code",
    "livecodebench*": "code",
    "mbpp*": "code",
    "google-research-datasets/mbpp": "code",
    "evalplus/*": "code",
    "humaneval*": "code",
    "openai_humaneval": "code",
    "openai/openai_humaneval": "code",
}
"""Data source to scorer; a key that ends in ``*`` is a prefix."""


class SourceRule(msgspec.Struct, frozen=True):
    """A scorer by name, and the options it gets."""

    scorer: str
    options: dict[str, Any] = {}


def rule_for(data_source: str, table: Mapping[str, Any] | None = None) -> SourceRule | None:
    """The rule for `data_source`; None when there is none.

    An exact key wins over a prefix, a longer prefix over a shorter one, and the user's `table`
    over the built-in rule of the same key.

    >>> rule_for("searchR1_nq").scorer, rule_for("searchR1_nq", {"searchR1_nq": "qa_f1"}).scorer
    ('qa_em', 'qa_f1')
    >>> rule_for("other") is None
    True
    """
    rules = DEFAULT_RULES if not table else DEFAULT_RULES | dict(table)
    exact = rules.get(data_source)
    if exact is not None:
        return read_rule(exact)
    fitting = [key for key in rules if key.endswith("*") and data_source.startswith(key[:-1])]
    return read_rule(rules[max(fitting, key=len)]) if fitting else None


def unknown_source(data_source: str, table: Mapping[str, Any] | None) -> Abstain:
    """The abstention for a data source without a rule; it names the rules there are."""
    keys = ", ".join([*DEFAULT_RULES, *(key for key in table or () if key not in DEFAULT_RULES)])
    return Abstain(
        FailureKind.BAD_INPUT,
        f"no scorer for data_source {data_source!r}; add it to by_data_source's table, "
        f"which has: {keys}",
    )


def check_by_data_source(
    options: Mapping[str, Any], check_options: Callable[[str, Mapping[str, Any]], None]
) -> None:
    """Raises a ConfigError unless every scorer in the table exists and takes its options."""
    for source, entry in (options.get("table") or {}).items():
        try:
            rule = read_rule(entry)
            check_options(rule.scorer, rule.options)
        except ConfigError as error:
            raise ConfigError(f"table: {source}: {error}") from None


def read_rule(entry: Any) -> SourceRule:
    """A table entry as a rule: a name, or ``{scorer: name, option: value, …}``."""
    name = entry.get("scorer") if isinstance(entry, Mapping) else entry
    if not isinstance(name, str):
        raise ConfigError(f"{entry!r} is neither a scorer nor {{scorer: name, option: value}}")
    if name == "by_data_source":
        raise ConfigError("by_data_source cannot select itself")
    if entry is name:
        return SourceRule(name)
    return SourceRule(name, {key: value for key, value in entry.items() if key != "scorer"})
