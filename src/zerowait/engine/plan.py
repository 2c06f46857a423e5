"""A configuration, made ready to run: every name resolved and every option checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from zerowait.config import (
    JudgeComponent,
    RewardConfig,
    ScorerComponent,
    ShapeComponent,
)
from zerowait.engine.anchors import AnchorSet
from zerowait.engine.bench_plan import BenchPlan, compile_judges
from zerowait.engine.combine import Term
from zerowait.engine.gate import Gate, order
from zerowait.errors import ConfigError, did_you_mean
from zerowait.judge.anchors import load_anchors
from zerowait.scorers import check_options, needs_pool, resolve
from zerowait.shaping import Shape, resolve_shape
from zerowait.types import Outcome, Sample


class RuleStep(msgspec.Struct, frozen=True, kw_only=True):
    """A rule; `call` is pure and runs in place, `target` is a user's function for the pool."""

    name: str
    gate: Gate | None
    sources: frozenset[str]
    call: Callable[[Sample], Outcome] | None
    target: str
    options: dict[str, object]
    timeout_s: float
    factor: float


class JudgeStep(msgspec.Struct, frozen=True, kw_only=True):
    """A judge's verdict; with a `range` it is mapped from there to [0, 1]."""

    name: str
    gate: Gate | None
    sources: frozenset[str]
    judge: str
    range: tuple[float, float] | None


class ShapeStep(msgspec.Struct, frozen=True, kw_only=True):
    """A term over the whole group."""

    name: str
    sources: frozenset[str]
    shape: Shape


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is done for each sample, in an order in which gates find what they need."""

    rules: list[RuleStep | JudgeStep]
    shapes: list[ShapeStep]
    terms: list[Term]
    judges: BenchPlan
    anchors: dict[str, AnchorSet]


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
        ordered = order(gates)
    except ValueError as error:
        config.fail(("components",), str(error))
    judges = compile_judges(config)
    steps = [_step(config, name, gates[name], judges) for name in ordered]
    shapes = [
        ShapeStep(name=name, sources=frozenset(c.sources), shape=_shape(config, name, c))
        for name, c in config.components.items()
        if isinstance(c, ShapeComponent)
    ]
    _check_prices(config)
    return Plan(
        rules=steps,
        shapes=shapes,
        terms=[
            Term(name, _factor(c), _measures(c, judges)) for name, c in config.components.items()
        ],
        judges=judges,
        anchors=_anchors(config, judges),
    )


def credentials(config: RewardConfig, environ: Mapping[str, str]) -> dict[str, list[str | None]]:
    """The API key of each judge's endpoints, in their order; None where none is configured.

    Raises:
        ConfigError: a variable that should hold a key is not set; the message names it.
    """
    keys: dict[str, list[str | None]] = {}
    for name, judge in config.judges.items():
        keys[name] = []
        for index, endpoint in enumerate(judge.endpoints):
            key = endpoint.api_key
            if key is None and endpoint.api_key_env is not None:
                key = environ.get(endpoint.api_key_env)
                if not key:
                    config.fail(
                        ("judges", name, "endpoints", index, "api_key_env"),
                        f"names the environment variable {endpoint.api_key_env}, which is not set",
                    )
            keys[name].append(key)
    return keys


def _gate(
    config: RewardConfig, name: str, component: ScorerComponent | JudgeComponent
) -> Gate | None:
    if component.gate is None:
        return None
    at = ("components", name, "gate")
    try:
        gate = Gate(component.gate)
    except ValueError as error:
        config.fail(at, str(error))
    for needed in sorted(gate.names):
        other = config.components.get(needed)
        if other is None:
            config.fail(at, f"names {needed!r}; components: {', '.join(config.components)}")
        if isinstance(other, ShapeComponent):
            config.fail(at, f"names {needed!r}, a shape: gates see per-sample components only")
    return gate


def _step(
    config: RewardConfig, name: str, gate: Gate | None, judges: BenchPlan
) -> RuleStep | JudgeStep:
    component = config.components[name]
    sources = frozenset(getattr(component, "sources", ()))
    if isinstance(component, JudgeComponent):
        return JudgeStep(
            name=name,
            gate=gate,
            sources=sources,
            judge=component.judge,
            range=judges.bounds[component.judge] if component.normalize else None,
        )
    assert isinstance(component, ScorerComponent)  # noqa: S101 - shapes have no step
    try:
        scorer = resolve(component.scorer)
        check_options(component.scorer, component.options)
    except ConfigError as error:
        config.fail(("components", name), str(error))
    in_place = None if needs_pool(component.scorer, component.options) else scorer
    return RuleStep(
        name=name,
        gate=gate,
        sources=sources,
        call=in_place,
        target=component.scorer,
        options=component.options,
        timeout_s=component.timeout_s,
        factor=component.weight,
    )


def _shape(config: RewardConfig, name: str, component: ShapeComponent) -> Shape:
    try:
        return resolve_shape(component.shape, component.options)
    except (ConfigError, ValueError) as error:
        config.fail(("components", name), str(error))


def _anchors(config: RewardConfig, plan: BenchPlan) -> dict[str, AnchorSet]:
    found = {}
    for name, judge in config.judges.items():
        if judge.anchors is None:
            continue
        at, bounds = ("judges", name, "anchors"), plan.bounds[name]
        if bounds is None:
            config.fail(
                at, "needs a range, and the schema gives the verdict no minimum and maximum"
            )
        path = config.base / Path(judge.anchors).expanduser()
        try:
            anchors = load_anchors(path, judge, plan.procedures[name])
        except ConfigError as error:
            config.fail(at, str(error))
        found[name] = AnchorSet(judge=judge, anchors=anchors, bounds=bounds)
    return found


def _factor(component: ScorerComponent | JudgeComponent | ShapeComponent) -> float:
    return component.scale if isinstance(component, ShapeComponent) else component.weight


def _measures(
    component: ScorerComponent | JudgeComponent | ShapeComponent, judges: BenchPlan
) -> tuple[str, ...]:
    return judges.measures[component.judge] if isinstance(component, JudgeComponent) else ()


def _check_prices(config: RewardConfig) -> None:
    if config.traffic.budget_usd is None:
        return
    for name, judge in config.judges.items():
        for index, endpoint in enumerate(judge.endpoints):
            if endpoint.model in config.prices:
                continue
            near = did_you_mean(endpoint.model, config.prices) if config.prices else ""
            config.fail(
                ("judges", name, "endpoints", index, "model"),
                f"is {endpoint.model!r}, which has no price, and traffic.budget_usd needs one: "
                f"prices: {{{endpoint.model}: {{input: usd, output: usd}}}}, per million tokens"
                f"{near}",
            )
