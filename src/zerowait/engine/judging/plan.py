"""The judges and panels of a configuration: every rubric read, every combination checked."""

from __future__ import annotations

import msgspec

from zerowait.config import JudgeComponent, Panel, RewardConfig, VerdictRule
from zerowait.errors import ConfigError, did_you_mean
from zerowait.judge import (
    CONVERSATION_ALONE,
    Procedure,
    RowCriterion,
    Rubric,
    check_majority,
    load_rubric,
    measure,
    procedure_for,
    row_rubric,
)
from zerowait.types import Sample

Bounds = tuple[float, float]


class JudgePlan(msgspec.Struct, frozen=True, kw_only=True):
    """How each judge and panel comes to its verdict.

    Args:
        rubrics: of the judges.
        procedures: of the judges.
        bounds: the least and the greatest verdict of judges and panels; None where unknown.
        measures: what is measured beside the verdict, by judge and panel.
    """

    rubrics: dict[str, Rubric]
    procedures: dict[str, Procedure]
    bounds: dict[str, Bounds | None]
    measures: dict[str, tuple[str, ...]]


def compile_judges(config: RewardConfig) -> JudgePlan:
    """The plan of a configuration's judges and panels.

    Raises:
        ConfigError: a rubric, a schema, a member or a combination of settings does not fit.
    """
    _check_use(config)
    rubrics = {name: _rubric(config, name) for name in config.judges}
    procedures = {name: _procedure(config, name, rubrics[name]) for name in config.judges}
    bounds = {name: procedure.bounds for name, procedure in procedures.items()}
    measures = {name: procedure.measures for name, procedure in procedures.items()}
    for name, panel in config.panels.items():
        _check_panel(config, name, panel, procedures, rubrics)
        bounds[name] = (0.0, 1.0) if panel.normalize else procedures[panel.members[0]].bounds
        measures[name] = (*panel.members, measure(panel.by))
    plan = JudgePlan(rubrics=rubrics, procedures=procedures, bounds=bounds, measures=measures)
    _check_normalised(config, plan)
    return plan


def check_row_rubrics(config: RewardConfig, sample: Sample) -> list[tuple[RowCriterion, ...]]:
    """The rubrics by which judges of `config` would judge `sample`, one for each.

    Raises:
        DataError: the sample has none, or one that is malformed; names the column and criterion.
    """
    rules: dict[str, VerdictRule] = {}
    for component in config.components.values():
        if not isinstance(component, JudgeComponent):
            continue
        if component.sources and sample.data_source not in component.sources:
            continue
        panel = config.panels.get(component.judge)
        for name in [component.judge] if panel is None else panel.members:
            rule = config.judges[name].verdict
            if rule.rubric is not None:
                rules[name] = rule
    return [row_rubric(sample, rule) for rule in rules.values()]


def compares_siblings(procedure: Procedure | None) -> bool:
    """Whether a judge's verdicts compare the responses of a prompt group."""
    comparison = None if procedure is None else procedure.comparison
    return comparison is not None and comparison.against == "group"


def _check_use(config: RewardConfig) -> None:
    known = [*config.judges, *config.panels]
    used = set()
    for name, component in config.components.items():
        if not isinstance(component, JudgeComponent):
            continue
        if component.judge not in known:
            config.fail(
                ("components", name, "judge"),
                f"names {component.judge!r}; judges: {', '.join(known) or 'none'}",
            )
        used.add(component.judge)
    for name, panel in config.panels.items():
        if name not in used:
            config.fail(("judges", name), "is used by no component")
        used.update(panel.members)
    for name in config.judges:
        if name not in used:
            config.fail(("judges", name), "is used by no component")


def _rubric(config: RewardConfig, judge: str) -> Rubric:
    if config.judges[judge].verdict.reward is not None:
        return CONVERSATION_ALONE
    try:
        return load_rubric(config.judges[judge].rubric, base=config.base)
    except ConfigError as error:
        config.fail(("judges", judge, "rubric"), error)


def _procedure(config: RewardConfig, judge: str, rubric: Rubric) -> Procedure:
    try:
        return procedure_for(config.judges[judge], rubric, base=config.base)
    except ConfigError as error:
        config.fail(("judges", judge), error)


def _check_panel(
    config: RewardConfig,
    name: str,
    panel: Panel,
    procedures: dict[str, Procedure],
    rubrics: dict[str, Rubric],
) -> None:
    at = ("judges", name, "panel")
    for index, member in enumerate(panel.members):
        if member in config.panels:
            config.fail((*at, "members", index), f"names {member!r}, which is a panel itself")
        if member not in config.judges:
            hint = did_you_mean(member, config.judges)
            config.fail((*at, "members", index), f"names {member!r}, which is no judge{hint}")
        if compares_siblings(procedures[member]):
            config.fail((*at, "members", index), f"names {member!r}, which compares siblings")
        if procedures[member].monitor is not None:
            config.fail((*at, "members", index), f"names {member!r}, a monitor; it judges alone")
        if member in ("scored", "abstained", measure(panel.by)):
            config.fail((*at, "members", index), f"names {member!r}, a metric's name: rename it")
        if panel.by == "majority":
            try:
                check_majority(config.judges[member], rubrics[member], f"by, for {member!r}")
            except ConfigError as error:
                config.fail((*at, "by"), str(error).removeprefix("by, "))
    _check_ranges(config, name, panel, procedures)
    _check_distinct(config, name, panel)


def _check_distinct(config: RewardConfig, name: str, panel: Panel) -> None:
    """Members that send the same request to the same model would share one answer."""
    seen: dict[str, str] = {}
    for index, member in enumerate(panel.members):
        judge = config.judges[member]
        parts = {field: getattr(judge, field) for field in judge.__struct_fields__}
        parts["endpoints"] = judge.endpoints[0].model
        same = seen.setdefault(repr(parts), member)
        if same != member:
            config.fail(
                ("judges", name, "panel", "members", index),
                f"names {member!r}, which asks the same model the same as {same!r} and would "
                "share its answer: for several answers of one judge give it 'votes'",
            )


def _check_ranges(
    config: RewardConfig, name: str, panel: Panel, procedures: dict[str, Procedure]
) -> None:
    at = ("judges", name, "panel")
    ranges = {member: procedures[member].bounds for member in panel.members}
    unknown = next((member for member, bounds in ranges.items() if bounds is None), None)
    if unknown is not None:
        config.fail(
            (*at, "members", panel.members.index(unknown)),
            f"names {unknown!r}, whose verdict has no minimum and maximum",
        )
    if not panel.normalize and len(set(ranges.values())) > 1:
        spelled = ", ".join(f"{m} {b[0]:g} to {b[1]:g}" for m, b in ranges.items() if b)
        config.fail(at, f"has members with different ranges ({spelled}): say normalize: true")


def _check_normalised(config: RewardConfig, plan: JudgePlan) -> None:
    for name, component in config.components.items():
        if not isinstance(component, JudgeComponent) or not component.normalize:
            continue
        if component.judge in plan.bounds and plan.bounds[component.judge] is None:
            config.fail(
                ("components", name, "normalize"),
                f"needs a range, and the verdict of {component.judge!r} has no minimum and maximum",
            )
