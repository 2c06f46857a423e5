"""The plan of a configuration: its steps in order, every name resolved and every option checked."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

import msgspec

from zerowait.config import (
    Aggregate,
    JudgeComponent,
    RewardConfig,
    ScorerComponent,
    ShapeComponent,
)
from zerowait.config.sandbox import RemoteSandboxSettings
from zerowait.config.traffic import BUDGETS
from zerowait.engine.combine import Term
from zerowait.engine.gate import Gate, evaluation_order
from zerowait.engine.judging.anchors import AnchorSet
from zerowait.engine.judging.plan import JudgePlan, compares_siblings, compile_judges
from zerowait.engine.pool.scorer_pool import CONCURRENCY, WORKERS, CallLimits
from zerowait.engine.turns import JUDGED_TURNS
from zerowait.errors import ConfigError, did_you_mean
from zerowait.judge.anchors import load_anchors
from zerowait.scorers import (
    UserScorer,
    check_options,
    needs_pool,
    remote_sandboxes,
    resolve,
    user_functions,
    with_files,
)
from zerowait.shaping import Shape, resolve_shape
from zerowait.types import Outcome, Sample

_NEAR = 0.8


class RuleStep(msgspec.Struct, frozen=True, kw_only=True):
    """A rule, in this process or, where it may hang, in the worker pool.

    Args:
        name: of the component.
        gate: under which condition it is wanted; None: always.
        sources: the data sources it is for; empty means all.
        call: the scorer, to be called in this process; None: `target` runs in the worker pool.
        target: name of the scorer.
        options: keyword arguments of the scorer.
        timeout_s: of one call in the pool.
        factor: weight in the reward.
        limits: how many calls run at once in the pool.
        programs: how many programs of responses run at once, for the scorer ``code``.
    """

    name: str
    gate: Gate | None
    sources: frozenset[str]
    call: Callable[[Sample], Outcome] | None
    target: str
    options: dict[str, object]
    timeout_s: float
    factor: float
    limits: CallLimits
    programs: int = 1


class JudgeStep(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's verdict on one response, or on each of its turns.

    Args:
        name: of the component.
        gate: under which condition it is wanted; None: always.
        sources: the data sources it is for; empty means all.
        judge: its name.
        range: from which the verdict is mapped to [0, 1]; None: it is not.
        turns: how the verdicts on the turns become one number; None: the response is judged.
    """

    name: str
    gate: Gate | None
    sources: frozenset[str]
    judge: str
    range: tuple[float, float] | None
    turns: Aggregate | None = None


class ComparisonStep(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's comparison of the siblings of a prompt group."""

    name: str
    gate: Gate | None
    sources: frozenset[str]
    judge: str


class ShapeStep(msgspec.Struct, frozen=True, kw_only=True):
    """A shape: a penalty per response that depends on the whole prompt group."""

    name: str
    sources: frozenset[str]
    shape: Shape


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is computed for each sample.

    Args:
        steps: the per-sample components, each after those that its gate names.
        shapes: the components over a prompt group, which run last.
        terms: what enters the reward, one per component.
        judges: how each judge is asked.
        anchors: of the judges that have some, by name.
        functions: users' functions among the rules, by target.
        sandboxes: the remote sandboxes of the rules, with the component that names each.
    """

    steps: list[RuleStep | JudgeStep | ComparisonStep]
    shapes: list[ShapeStep]
    terms: list[Term]
    judges: JudgePlan
    anchors: dict[str, AnchorSet]
    functions: dict[str, UserScorer]
    sandboxes: dict[RemoteSandboxSettings, str]

    @property
    def comparisons(self) -> list[ComparisonStep]:
        """The steps that compare siblings."""
        return [step for step in self.steps if isinstance(step, ComparisonStep)]

    @property
    def turn_terms(self) -> list[Term]:
        """What enters the rewards of turns: the components that judge each of them."""
        by_turn = {s.name for s in self.steps if isinstance(s, JudgeStep) and s.turns is not None}
        return [term for term in self.terms if term.name in by_turn]

    @property
    def waits_for_siblings(self) -> str:
        """The first component that needs the whole prompt group; empty for none."""
        names = [step.name for step in self.comparisons] + [step.name for step in self.shapes]
        return names[0] if names else ""


def compile_plan(config: RewardConfig) -> Plan:
    """The plan of a configuration.

    Raises:
        ConfigError: a scorer, judge, shape, rubric, gate or option does not exist or does not fit.
    """
    gates = {
        name: _gate(config, name, component)
        for name, component in config.components.items()
        if not isinstance(component, ShapeComponent)
    }
    try:
        ordered = evaluation_order(gates)
    except ValueError as error:
        config.fail(("components",), error)
    judges = compile_judges(config)
    steps = [_step(config, name, gates[name], judges) for name in ordered]
    _check_gates(config, steps)
    shapes = [
        ShapeStep(name=name, sources=frozenset(c.sources), shape=_shape(config, name, c))
        for name, c in config.components.items()
        if isinstance(c, ShapeComponent)
    ]
    _check_prices(config)
    _check_aggregates(config)
    return Plan(
        steps=steps,
        shapes=shapes,
        terms=[
            Term(name, _factor(c), _measures(c, judges), _role(c))
            for name, c in config.components.items()
        ],
        judges=judges,
        functions={
            target: function
            for step in steps
            if isinstance(step, RuleStep)
            for target, function in user_functions(step.target, step.options).items()
        },
        anchors=_anchors(config, judges),
        sandboxes={
            sandbox: step.name
            for step in steps
            if isinstance(step, RuleStep)
            for sandbox in remote_sandboxes(step.target, step.options)
        },
    )


def _gate(
    config: RewardConfig, name: str, component: ScorerComponent | JudgeComponent
) -> Gate | None:
    if component.gate is None:
        return None
    at = ("components", name, "gate")
    try:
        gate = Gate(component.gate)
    except ValueError as error:
        config.fail(at, error)
    for needed in sorted(gate.names):
        other = config.components.get(needed)
        if other is None:
            config.fail(at, f"names {needed!r}; components: {', '.join(config.components)}")
        if isinstance(other, ShapeComponent):
            config.fail(at, f"names {needed!r}, a shape: gates see per-sample components only")
    return gate


def _check_gates(config: RewardConfig, steps: list[RuleStep | JudgeStep | ComparisonStep]) -> None:
    comparisons = {step.name for step in steps if isinstance(step, ComparisonStep)}
    for step in steps:
        for needed in sorted(comparisons & step.gate.names) if step.gate else ():
            config.fail(
                ("components", step.name, "gate"),
                f"names {needed!r}, which compares siblings: gates see per-sample components only",
            )


def _step(
    config: RewardConfig, name: str, gate: Gate | None, judges: JudgePlan
) -> RuleStep | JudgeStep | ComparisonStep:
    component = config.components[name]
    sources = frozenset(getattr(component, "sources", ()))
    if isinstance(component, JudgeComponent):
        if compares_siblings(judges.procedures.get(component.judge)):
            if component.per == "turn":
                why = "is turn, and its judge compares the responses of a group with each other"
                config.fail(("components", name, "per"), why)
            return ComparisonStep(name=name, gate=gate, sources=sources, judge=component.judge)
        return JudgeStep(
            name=name,
            gate=gate,
            sources=sources,
            judge=component.judge,
            range=judges.bounds[component.judge] if component.normalize else None,
            turns=(component.aggregate or "sum") if component.per == "turn" else None,
        )
    assert isinstance(component, ScorerComponent)  # noqa: S101 - shapes have no step
    try:
        _find_beside(config.base, component.scorer)
        scorer = resolve(component.scorer)
        options = with_files(component.scorer, component.options, config.base)
        check_options(component.scorer, options)
    except ConfigError as error:
        _refuse_misspelt(config, name, component, str(error))
        config.fail(("components", name), error)
    in_place = None if needs_pool(component.scorer) else scorer
    return RuleStep(
        name=name,
        gate=gate,
        sources=sources,
        call=in_place,
        target=component.scorer,
        options=options,
        timeout_s=component.timeout_s,
        factor=component.weight,
        limits=_call_limits(config, name, component, options),
        programs=component.concurrency or os.cpu_count() or 1,
    )


def _find_beside(base: Path, target: str) -> None:
    """Let a function's module be found in the folder of the configuration, after all others."""
    name = target.partition(":")[0].partition(".")[0]
    if ":" not in target or not name.isidentifier() or name in sys.modules:
        return
    beside = (base / f"{name}.py").is_file() or (base / name / "__init__.py").is_file()
    if beside and importlib.util.find_spec(name) is None:
        sys.path.append(str(base.resolve()))


def _call_limits(
    config: RewardConfig, name: str, component: ScorerComponent, options: Mapping[str, object]
) -> CallLimits:
    """How many calls of the component's own functions may run at once."""
    functions = user_functions(component.scorer, options)
    any_async = any(function.overlaps for function in functions.values())
    any_sync = not all(function.overlaps for function in functions.values())
    whose = "such as " + next(iter(functions)) if functions else "and no built-in rule"
    if component.workers is not None and not any_sync:
        why = f"is for synchronous functions of your own, {whose}"
        if functions:
            why = f"is for synchronous functions, and {next(iter(functions))} is asynchronous"
            why += ": give concurrency instead"
        config.fail(("components", name, "workers"), why)
    runs_programs = component.scorer in ("code", "by_data_source")
    if component.concurrency is not None and not any_async and not runs_programs:
        why = f"is for asynchronous functions of your own, {whose}"
        if functions:
            first, function = next(iter(functions.items()))
            kind = "takes lists" if function.takes_lists else "is synchronous"
            why = f"is for asynchronous functions, and {first} {kind}: give workers instead"
        config.fail(("components", name, "concurrency"), why)
    return CallLimits(name, component.workers or WORKERS, component.concurrency or CONCURRENCY)


def _shape(config: RewardConfig, name: str, component: ShapeComponent) -> Shape:
    try:
        shape = resolve_shape(component.shape, component.options)
    except (ConfigError, ValueError) as error:
        _refuse_misspelt(config, name, component, str(error))
        config.fail(("components", name), error)
    rules = [c for c in config.components.values() if isinstance(c, ScorerComponent)]
    if shape.needs_scores and not any(rule.weight for rule in rules):
        problem = "needs the rules' scores, and no rule has a weight other than 0"
        config.fail(("components", name), f"{component.shape} {problem}")
    _check_correct(config, name, component, rules)
    return shape


def _check_correct(
    config: RewardConfig, name: str, shape: ShapeComponent, rules: list[ScorerComponent]
) -> None:
    """Refuse a shape's option `correct` that no response can reach."""
    correct = shape.options.get("correct")
    open_ended = ("by_data_source", "column")  # these, and users' functions, may give any number
    if correct is None or any(r.scorer in open_ended or ":" in r.scorer for r in rules):
        return
    most = sum(max(0.0, rule.weight * float(rule.options.get("score", 1.0))) for rule in rules)
    if correct > most * (1 + 1e-9):
        config.fail(
            ("components", name, "correct"),
            f"is {correct:g}, and the rules give at most {most:g} (score times weight): no "
            "response could be correct",
        )


def _anchors(config: RewardConfig, plan: JudgePlan) -> dict[str, AnchorSet]:
    found = {}
    for name, judge in config.judges.items():
        if judge.anchors is None:
            continue
        at, bounds = ("judges", name, "anchors"), plan.bounds[name]
        if plan.procedures[name].comparison is not None:
            config.fail(at, "are for verdicts on single responses, and this judge compares")
        if bounds is None:
            config.fail(
                at, "needs a range, and the schema gives the verdict no minimum and maximum"
            )
        path = config.base / Path(judge.anchors).expanduser()
        try:
            anchors = load_anchors(path, judge, plan.procedures[name])
        except ConfigError as error:
            config.fail(at, error)
        found[name] = AnchorSet(judge=judge, anchors=anchors, bounds=bounds)
    return found


def _refuse_misspelt(
    config: RewardConfig, name: str, component: ScorerComponent | ShapeComponent, problem: str
) -> None:
    """Refuse an unknown option that looks like a misspelt key of every component."""
    fields = [field for field in component.__struct_fields__ if field != "options"]
    for option in component.options:
        if f"has no option {option!r}" not in problem and (
            f"has no parameter {option!r}" not in problem
        ):
            continue
        if option.isdecimal() and component.options[option] is None:  # {weight: 0,5}
            config.fail(
                ("components", name),
                f"has no key {option!r}; if it is the end of a number: that is written with a "
                f"point, 0.{option}",
            )
        near = get_close_matches(option, fields, n=1, cutoff=_NEAR)
        if near:
            config.fail(("components", name), f"has no key {option!r}; did you mean {near[0]!r}?")


def _factor(component: ScorerComponent | JudgeComponent | ShapeComponent) -> float:
    return component.scale if isinstance(component, ShapeComponent) else component.weight


def _role(
    component: ScorerComponent | JudgeComponent | ShapeComponent,
) -> Literal["rule", "judge", "shape"]:
    if isinstance(component, JudgeComponent):
        return "judge"
    return "shape" if isinstance(component, ShapeComponent) else "rule"


def _measures(
    component: ScorerComponent | JudgeComponent | ShapeComponent, judges: JudgePlan
) -> tuple[str, ...]:
    if not isinstance(component, JudgeComponent):
        return ()
    of_turns = (JUDGED_TURNS,) if component.per == "turn" else ()
    return (*judges.measures[component.judge], *of_turns)


def _check_aggregates(config: RewardConfig) -> None:
    """Refuse a reward of which some turns' shares are paid by turn, and others at the end."""
    counting = {
        name: component.pays_by_turn
        for name, component in config.components.items()
        if isinstance(component, JudgeComponent) and component.per == "turn" and component.weight
    }
    if len(set(counting.values())) > 1:
        without = next(name for name, by_turn in counting.items() if by_turn)
        config.fail(
            ("components", without),
            "is paid turn by turn, and another component that is per: turn has an aggregate: give "
            "all of them one, or none",
        )


def _check_prices(config: RewardConfig) -> None:
    keys = [key for key in BUDGETS if getattr(config.traffic, key) is not None]
    if not keys:
        return
    for name, judge in config.judges.items():
        for index, endpoint in enumerate(judge.endpoints):
            if endpoint.model in config.prices:
                continue
            near = did_you_mean(endpoint.model, config.prices) if config.prices else ""
            config.fail(
                ("judges", name, "endpoints", index, "model"),
                f"is {endpoint.model!r}, which has no price, and traffic.{keys[0]} needs one: "
                f"prices: {{{endpoint.model}: {{input: usd, output: usd}}}}, per million tokens"
                f"{near}",
            )
