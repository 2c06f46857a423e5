"""The judges of a configuration: their names, one line about each, a configuration of one."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from zerowait.config import (
    Cache,
    Comparison,
    FailurePolicy,
    Judge,
    JudgeComponent,
    Panel,
    RewardConfig,
    VerdictRule,
)
from zerowait.config.row_rubric import Batches
from zerowait.engine.plan import Plan
from zerowait.errors import did_you_mean
from zerowait.judge import Procedure

COMPONENT = "verdict"


def judge_names(config: RewardConfig, wanted: str | None) -> list[str]:
    """The name `wanted`, checked, or the names of all judges for None.

    Raises:
        ConfigError: there is no such judge, or none at all.
    """
    if not config.judges:
        config.fail(("judges",), "names none, so there is none to ask")
    if wanted is None:
        return list(config.judges)
    if wanted in config.panels:
        members = ", ".join(config.panels[wanted].members)
        config.fail(("judges", wanted), f"is a panel: ask its members, {members}")
    if wanted not in config.judges:
        config.fail(("judges",), f"has no {wanted!r}{did_you_mean(wanted, config.judges)}")
    return [wanted]


def single_judge_config(
    config: RewardConfig, name: str, *, endpoint: int | None = None
) -> RewardConfig:
    """A configuration whose only component, `COMPONENT`, is the verdict of the judge `name`.

    It has no cache and no gates, and a failure is an abstention. Traffic limits, prices and the
    budget are unchanged.

    Args:
        config: the whole configuration.
        name: of the judge.
        endpoint: index of the only endpoint to use; None uses all.
    """
    judge = msgspec.structs.replace(config.judges[name], anchors=None)
    if endpoint is not None:
        judge = msgspec.structs.replace(judge, endpoints=[judge.endpoints[endpoint]])
    return msgspec.structs.replace(
        config,
        components={COMPONENT: JudgeComponent(judge=name)},
        judges={name: judge},
        panels={},
        cache=Cache(path=None),
        on_failure=FailurePolicy(),
    )


def describe_judges(config: RewardConfig, plan: Plan) -> Iterator[str]:
    """One line for each judge and panel: rubric, range of the verdict, votes, calls a sample."""
    calls: dict[str, int] = {}
    for name, judge in config.judges.items():
        procedure = plan.judges.procedures[name]
        calls[name] = procedure.calls
        rubric = plan.judges.rubrics[name].name
        parts = [f"rubric {rubric}", _verdict(judge.verdict), *_steps(judge, procedure)]
        yield f"judge {name}: {'; '.join(parts)}; {_cost(procedure)}"
    for name, panel in config.panels.items():
        total = sum(calls[member] for member in panel.members)
        yield f"panel {name}: {_members(panel)}; {_times(total)} a sample"


def _verdict(rule: VerdictRule) -> str:
    if rule.schema is not None:
        places = rule.value if isinstance(rule.value, str) else ", ".join(rule.value or ())
        return f"{places} of an object by {rule.schema}"
    if rule.rubric is not None:
        return f"{rule.aggregation} by the criteria in {rule.rubric}"
    if rule.reward is not None:
        low_high = () if rule.reward == "raw" else rule.reward
        return " to ".join([f"{end:g}" for end in low_high] or ["its number as it is"])
    if rule.comparison is not None:
        return _compared(rule.comparison)
    by = f", by {rule.by}" if rule.by_tokens else ""
    if rule.choice is not None:
        return f"one of {', '.join(rule.choice)}{by}"
    low, high = rule.integer or rule.number or (0, 1)
    return f"{'integer' if rule.integer else 'number'} {low:g} to {high:g}{by}"


def _steps(judge: Judge, procedure: Procedure) -> Iterator[str]:
    if procedure.criteria:
        weights = ", ".join(f"{c.name} {c.weight:g}" for c in procedure.criteria)
        yield f"criteria {weights} {'apart' if procedure.apart else 'together'}"
    if procedure.of_row and judge.verdict.aggregation != "implicit":
        size = judge.ask.batch if isinstance(judge.ask, Batches) else None
        yield f"{size} criteria in one call" if size else f"criteria {judge.ask or 'together'}"
    if judge.votes is not None:
        yield f"{judge.votes.n} votes by {judge.votes.by}, {judge.votes.needed} needed"
    if judge.monitor is not None:
        low, high = procedure.bounds or (0, 0)
        yield f"predicts extra.{judge.monitor.truth} for a reward from {low:g} to {high:g}"


def _members(panel: Panel) -> str:
    form = " in [0, 1]" if panel.normalize else ""
    return f"{panel.by} of {', '.join(panel.members)}{form}, {panel.needed} needed"


def _compared(comparison: Comparison) -> str:
    if comparison.kind == "rank":
        return f"siblings ranked, at most {comparison.max_members} at a time"
    if comparison.against == "reference":
        return f"compared with extra.{comparison.reference_key} in both orders"
    met = "all" if comparison.rounds is None else comparison.rounds
    return f"compared with {met} siblings in both orders, by {comparison.by}"


def _cost(procedure: Procedure) -> str:
    """The number of calls; n is the number of distinct responses in a group."""
    comparison = procedure.comparison
    if procedure.of_row and not procedure.calls:
        return "calls by the number of a row's criteria"
    if comparison is None or comparison.against == "reference":
        return f"{_times(procedure.calls)} a sample"
    if comparison.kind == "rank":
        return "1 call a group, more beyond that many"
    return f"n x {comparison.rounds or '(n - 1)'} calls for a group of n"


def _times(calls: int) -> str:
    return "1 call" if calls == 1 else f"{calls} calls"
