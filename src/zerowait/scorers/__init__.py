"""Scorers (rules): pure functions from a sample to a Score or an Abstain, listed in `table`."""

from __future__ import annotations

from zerowait.scorers.by_data_source import DEFAULT_RULES, SourceRule, rule_for
from zerowait.scorers.calling_convention import is_async
from zerowait.scorers.options import option_names
from zerowait.scorers.results import is_not_finite, outcome_of
from zerowait.scorers.table import (
    SCORERS,
    Credit,
    Scorer,
    check_options,
    credit_of,
    is_user_function,
    needs_pool,
    remote_sandboxes,
    resolve,
    selected,
    user_functions,
    warmed_up,
    with_files,
)
from zerowait.scorers.user import UserScorer, import_scorer

__all__ = [
    "DEFAULT_RULES",
    "SCORERS",
    "Credit",
    "Scorer",
    "SourceRule",
    "UserScorer",
    "check_options",
    "credit_of",
    "import_scorer",
    "is_async",
    "is_not_finite",
    "is_user_function",
    "needs_pool",
    "option_names",
    "outcome_of",
    "remote_sandboxes",
    "resolve",
    "rule_for",
    "selected",
    "user_functions",
    "warmed_up",
    "with_files",
]
