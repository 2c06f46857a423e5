"""The likely causes of a fall of the reward, as a pure function of two windows of a run.

One window is a step, the other up to five steps before it; `zerowait.observe.fall` reads them. Each
cause has evidence in words and a strength in [0, 1], which says how well the evidence fits, and is
no probability.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import msgspec

FEWEST_SCORED: Final = 4
"""A component with fewer values than this is not compared."""
SURE_Z: Final = 3.0
"""From so many standard errors on a component or a share has changed by more than chance."""
_WEAKEST: Final = 0.15
_SOURCES_SHOWN: Final = 4
_CHANGES_SHOWN: Final = 4
_FEWEST_HELD_OUT: Final = 16
_OTHER_MIX: Final = 0.25
"""A share of rows that, when it moved to another data source, makes two windows hard to compare."""
_RISEN_Z: Final = 4.0
_RISEN_SDS: Final = 0.5
"""A judge that rises this far in one step is asked about: learning is slower."""


class ComponentFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A component in a window.

    Args:
        scored, abstained, skipped: number of rows, each row in one of them.
        mean, sd: of the scored rows.
        error: standard error of the mean, in which the responses to one prompt count together,
            because they are alike; None where it is not known.
        judged: whether a judge scores it. shape: whether it is a penalty on length or repetition.
        weight: what its value is multiplied with in the reward. gate: its condition; empty: none.
        kinds: abstentions by kind. of_sources: rows and abstentions by data source; read only where
            it abstained more often than before.
        by_length: rank correlation of its value with the response's length; None if unknown.
    """

    scored: int = 0
    abstained: int = 0
    skipped: int = 0
    mean: float = 0.0
    sd: float = 0.0
    error: float | None = None
    judged: bool = False
    shape: bool = False
    weight: float = 1.0
    gate: str = ""
    kinds: dict[str, int] = {}
    of_sources: dict[str, tuple[int, int]] = {}
    by_length: float | None = None

    @property
    def is_rule(self) -> bool:
        """Whether it looks at the response's content by a rule."""
        return not (self.judged or self.shape)

    @property
    def skipped_share(self) -> float:
        """Share of all rows for which it was not wanted, in [0, 1]."""
        rows = self.scored + self.abstained + self.skipped
        return self.skipped / rows if rows else 0.0

    @property
    def abstained_share(self) -> float:
        """Share of the rows that it should have scored, in [0, 1]."""
        rows = self.scored + self.abstained
        return self.abstained / rows if rows else 0.0


class DataSource(msgspec.Struct, frozen=True, kw_only=True):
    """A data source in a window: its rows, and the mean reward of those with a value."""

    rows: int
    mean: float | None


class RewardWindow(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about one step, or about the steps before it.

    Args:
        rows, scored: number of rows, and of those with a reward. mean, sd, error: of the reward.
        parts: by component. sources: by data source.
        length: mean length of the responses; None if unknown.
        groups, equal_groups: prompt groups of several scored rows, and those without variance.
        prompts_elsewhere: mean reward that the same prompts got in all steps outside the window;
            None where fewer than half of the rows have one.
        usual_elsewhere: mean reward of all prompts around those steps; None if unknown.
        events: ``(kind, judge or endpoint, why)`` of what happened to judges in the window.
        models: served model names by judge.
        endpoints: verdicts by judge and endpoint; read only where a judge has several.
        form_rules: the components that look at the form of a response alone.
        well_formed: reward of the rows that each of these gave its best value, by component.
        held_out: each rule on held-out rows, at the last validation before the window's end or, for
            a step, at the first one since.
        later: each rule in the points after the step.
        same_source: each component on the rows of the data source that both windows have most of;
            empty where there is one alone.
        distinct: share of distinct sequences of four words in responses to different prompts; None
            where responses were not kept, or nothing got worse.
        reconfigured: what changed in the configuration since the first row of the steps before.
        reweighed: by how much the new weights alone move the mean reward; None without any.
    """

    rows: int = 0
    scored: int = 0
    mean: float = 0.0
    sd: float = 0.0
    error: float | None = None
    parts: dict[str, ComponentFigures] = {}
    sources: dict[str, DataSource] = {}
    length: float | None = None
    groups: int = 0
    equal_groups: int = 0
    prompts_elsewhere: float | None = None
    usual_elsewhere: float | None = None
    events: list[tuple[str, str, str]] = []
    models: dict[str, list[str]] = {}
    endpoints: dict[str, dict[str, ComponentFigures]] = {}
    form_rules: list[str] = []
    well_formed: dict[str, ComponentFigures] = {}
    held_out: dict[str, ComponentFigures] = {}
    later: dict[str, ComponentFigures] = {}
    same_source: dict[str, ComponentFigures] = {}
    distinct: float | None = None
    reconfigured: list[str] = []
    reweighed: float | None = None


class FigureChange(msgspec.Struct, frozen=True, kw_only=True):
    """One figure before and now; `z`: the change in standard errors, None where it has none."""

    name: str
    before: float | None
    now: float | None
    z: float | None = None
    unit: str = ""


class LikelyCause(msgspec.Struct, frozen=True, kw_only=True):
    """A likely cause: `evidence` in words, and how well it fits, in [0, 1]."""

    kind: str
    title: str
    strength: float
    evidence: list[str]
    advice: str


def has_fallen(before: RewardWindow, now: RewardWindow, *, z: float = 2.0) -> bool:
    """Whether the mean reward is lower now by more than `z` standard errors."""
    if not (before.scored and now.scored):
        return False
    return _z(_reward(before), _reward(now)) <= -z


def has_clearly_fallen(before: ComponentFigures, now: ComponentFigures) -> bool:
    """Whether a mean is lower now by more than chance."""
    return _z(before, now) <= -SURE_Z


def _reward(window: RewardWindow) -> ComponentFigures:
    return ComponentFigures(
        scored=window.scored, mean=window.mean, sd=window.sd, error=window.error
    )


def _z(before: ComponentFigures, now: ComponentFigures) -> float:
    """The change of a mean in standard errors; of no values 0."""
    if not (before.scored and now.scored):
        return 0.0
    # one step's own variance is of few prompts, and too small by chance; nothing fell unless the
    # change is unusual for a step with the variance of those before
    usual = _error(before) * math.sqrt(before.scored / now.scored)
    spread = math.hypot(_error(before), max(_error(now), 0.75 * usual))
    return max(-1e6, min(1e6, (now.mean - before.mean) / max(spread, 1e-9)))


def _error(figures: ComponentFigures) -> float:
    if figures.error is not None:
        return figures.error
    return max(figures.sd, 1e-9) / math.sqrt(figures.scored)


def fall_z(was: ComponentFigures, part: ComponentFigures) -> float:
    """How much worse a component is, in standard errors: by its mean, or by its abstentions.

    It is 0 or less.
    """
    z = _z(was, part) if min(was.scored, part.scored) >= FEWEST_SCORED else 0.0
    return min(z, -_abstentions_z(was, part) if part.abstained >= 2 else 0.0, 0.0)


def worse_parts(before: RewardWindow, now: RewardWindow) -> list[str]:
    """The components that fell, or abstained more often, by more than chance; in words."""
    found = []
    for name, part in sorted(now.parts.items()):
        was = before.parts.get(name, ComponentFigures())
        if min(was.scored, part.scored) >= FEWEST_SCORED and _z(was, part) <= -SURE_Z:
            found.append(f"{name} fell from {number(was.mean)} to {number(part.mean)}")
        if part.abstained >= 2 and _abstentions_z(was, part) >= SURE_Z:
            found.append(f"{name} abstained in {percent(part.abstained_share)} of the rows")
    return found


def _abstentions_z(was: ComponentFigures, part: ComponentFigures) -> float:
    z = _share_z(
        (was.abstained, was.scored + was.abstained), (part.abstained, part.scored + part.abstained)
    )
    return z or 0.0


def rise_z(was: ComponentFigures, part: ComponentFigures) -> float:
    """By how many standard errors a component rose at once; 0 where it is not far."""
    if min(was.scored, part.scored) < FEWEST_SCORED or part.mean - was.mean < _RISEN_SDS * was.sd:
        return 0.0
    z = _z(was, part)
    return z if z >= _RISEN_Z else 0.0


def suddenly_risen(before: RewardWindow, now: RewardWindow) -> list[str]:
    """The judged components that rose at once and far, while no rule rose; empty without a rule."""
    rules = _z_of(before, now, judged=False)
    if not rules or max(rules.values()) >= 1.0:
        return []
    return [
        name
        for name in sorted(_z_of(before, now, judged=True))
        if rise_z(before.parts[name], now.parts[name])
    ]


def is_silent(before: RewardWindow, now: RewardWindow) -> bool:
    """Whether every row abstained, where rows of the steps before have a value."""
    return bool(before.scored) and bool(now.rows) and not now.scored


def change_in_words(before: RewardWindow, now: RewardWindow, against: str) -> str:
    """How the reward changed, and which components got worse, in one sentence.

    Args:
        before: the steps before.
        now: the step.
        against: what `before` is called, such as ``the 5 steps before``.
    """
    if not now.scored:
        return f"No row of {now.rows} has a value: every one abstained."
    if not before.scored:
        return f"The reward is {number(now.mean)}; no row of {against} has a value."
    z = _z(_reward(before), _reward(now))
    moved = f"{number(before.mean)} in {against} to {number(now.mean)}"
    errors = f"({min(abs(z), 999):.1f} standard errors)"
    if z <= -2.0:
        return f"The reward fell from {moved} {errors}."
    words = (
        f"The reward rose from {moved} {errors}"
        if z >= 2.0
        else f"The reward went from {moved}, which is within chance {errors}"
    )
    worse = worse_parts(before, now)
    worse += [
        f"{name}, which a judge scores, rose from {number(before.parts[name].mean)} to "
        f"{number(now.parts[name].mean)} while no rule did"
        for name in suddenly_risen(before, now)
    ]
    return f"{words}, but {'; '.join(worse)}." if worse else f"{words}."


def changes(before: RewardWindow, now: RewardWindow) -> Iterator[FigureChange]:
    """The figures of both windows, in no order that means anything."""
    yield _mean_change("reward", _reward(before), _reward(now))
    yield FigureChange(
        name="rows without a value",
        before=_share(before.rows - before.scored, before.rows),
        now=_share(now.rows - now.scored, now.rows),
        z=_share_z((before.rows - before.scored, before.rows), (now.rows - now.scored, now.rows)),
        unit="%",
    )
    for name in sorted(before.parts.keys() | now.parts.keys()):
        was, part = (
            before.parts.get(name, ComponentFigures()),
            now.parts.get(name, ComponentFigures()),
        )
        yield _mean_change(name, was, part)
        if was.abstained or part.abstained:
            yield FigureChange(
                name=f"{name} abstained",
                before=was.abstained_share if was.scored + was.abstained else None,
                now=part.abstained_share if part.scored + part.abstained else None,
                z=_share_z(
                    (was.abstained, was.scored + was.abstained),
                    (part.abstained, part.scored + part.abstained),
                ),
                unit="%",
            )
        if was.gate or part.gate:
            yield FigureChange(
                name=f"{name} skipped", before=was.skipped_share, now=part.skipped_share, unit="%"
            )
    if before.distinct is not None or now.distinct is not None:
        yield FigureChange(
            name="distinct sequences of four words",
            before=before.distinct,
            now=now.distinct,
            unit="%",
        )
    yield FigureChange(name="response length", before=before.length, now=now.length)
    yield FigureChange(
        name="groups whose rewards are all the same",
        before=_share(before.equal_groups, before.groups),
        now=_share(now.equal_groups, now.groups),
        z=_share_z((before.equal_groups, before.groups), (now.equal_groups, now.groups)),
        unit="%",
    )
    yield FigureChange(
        name="what these prompts got in other steps",
        before=before.prompts_elsewhere,
        now=now.prompts_elsewhere,
    )
    if len(before.sources.keys() | now.sources.keys()) > 1:
        yield from _source_changes(before, now)


def _source_changes(before: RewardWindow, now: RewardWindow) -> Iterator[FigureChange]:
    names = sorted(
        before.sources.keys() | now.sources.keys(),
        key=lambda name: -abs(_source_share(now, name) - _source_share(before, name)),
    )
    for name in names[:_SOURCES_SHOWN]:
        yield FigureChange(
            name=f"rows of {name or 'no data source'}",
            before=_source_share(before, name) if before.rows else None,
            now=_source_share(now, name) if now.rows else None,
            unit="%",
        )


def _mean_change(name: str, before: ComponentFigures, now: ComponentFigures) -> FigureChange:
    return FigureChange(
        name=name,
        before=before.mean if before.scored else None,
        now=now.mean if now.scored else None,
        z=_z(before, now) if before.scored and now.scored else None,
    )


def _share(count: int, of: int) -> float | None:
    return count / of if of else None


def _share_z(before: tuple[int, int], now: tuple[int, int]) -> float | None:
    """The change of a share in standard errors of the pooled share."""
    if not (before[1] and now[1]):
        return None
    pooled = (before[0] + now[0]) / (before[1] + now[1])
    error = math.sqrt(max(pooled * (1 - pooled), 1e-9) * (1 / before[1] + 1 / now[1]))
    return (now[0] / now[1] - before[0] / before[1]) / error


def likely_causes(before: RewardWindow, now: RewardWindow) -> list[LikelyCause]:
    """The likely causes of a fall, the strongest first; [] where nothing fell.

    The reward itself need not have fallen: a component that fell is as well worth knowing where
    others rose, and so is one that abstained, another configuration, or another mix of data sources
    where the reward is lower, if by no more than chance. A step in which every row abstained counts
    as a fall too.
    """
    fell = is_silent(before, now) or has_fallen(before, now) or worse_parts(before, now)
    if not fell and not now.reconfigured:
        found = [_harder_prompts(before, now), _lenient_judge(before, now)]
        return [cause for cause in found if cause.evidence and cause.strength >= _WEAKEST]
    found = [
        _reconfigured(before, now),
        _lenient_judge(before, now),
        _grown_penalty(before, now),
        _closed_gate(before, now),
        _collapse(before, now),
        _judge_outage(before, now),
        _endpoint_differs(before, now),
        _judge_drift(before, now),
        _broken_form(before, now),
        _harder_prompts(before, now),
        _longer_responses(before, now),
        _shorter_responses(before, now),
        _passing(before, now),
        _worse_responses(before, now),
    ]
    causes = [cause for cause in found if cause.evidence and cause.strength >= _WEAKEST]
    if any(cause.kind == "length_hacking" for cause in causes):  # which says the same, and more
        causes = [cause for cause in causes if cause.kind != "lenient_judge"]
    return sorted(causes, key=lambda cause: (-cause.strength, cause.kind))


class _Evidence:
    """Collects what speaks for a cause; independent pieces of evidence add up towards 1."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._against = 1.0

    def add(self, strength: float, words: str) -> None:
        if strength > 0 and words:
            self.words.append(words)
            self._against *= 1.0 - min(strength, 0.97)

    def cause(self, kind: str, title: str, advice: str) -> LikelyCause:
        return LikelyCause(
            kind=kind,
            title=title,
            strength=round(1.0 - self._against, 3),
            evidence=self.words,
            advice=advice,
        )


_OUTAGE_EVENTS: Final = {
    "endpoint_ejected": "its circuit breaker opened",
    "account_exhausted": "its account is exhausted",
}
_DRIFT_EVENTS: Final = {
    "judge_drifted": (0.9, "its verdicts on the anchors drifted"),
    "model_changed": (0.75, "it serves another model"),
}


def _judge_outage(before: RewardWindow, now: RewardWindow) -> LikelyCause:
    evidence = _Evidence()
    budget = failed = 0
    for name in sorted(now.parts):
        part, was = now.parts[name], before.parts.get(name, ComponentFigures())
        more = part.abstained_share - was.abstained_share
        if more <= 0.02 or part.abstained < 2:
            continue
        budget += part.kinds.get("budget", 0)
        failed += part.abstained
        kinds = ", ".join(
            f"{kind} {n}" for kind, n in sorted(part.kinds.items(), key=lambda i: (-i[1], i[0]))
        )
        evidence.add(
            1.0 - math.exp(-more / 0.15),
            f"{name} abstained in {percent(part.abstained_share)} of the rows, "
            f"against {percent(was.abstained_share)} before ({kinds})",
        )
        evidence.add(0.1, _failing_source(part))
    if evidence.words:  # an endpoint that fails costs nothing as long as another one answers
        for kind, what, why in now.events:
            if kind in _OUTAGE_EVENTS:
                evidence.add(0.3, f"{what}: {_OUTAGE_EVENTS[kind]}: {why}".rstrip(": "))
        for judge, name in _failing_endpoints(now):
            evidence.add(
                0.2, f"nearly all failures of judge {judge} are of {name}; its others answer"
            )
    if 2 * budget > failed:
        return evidence.cause(
            "budget_spent",
            "The budget is spent: judges are no longer asked",
            "Raise traffic.budget_usd, or spend less per step (docs/how-to/cost.md); decide by "
            "on_failure what such a row is worth, for nothing of it was judged.",
        )
    return evidence.cause(
        "judge_outage",
        "Judgements failed: the reward is made of fewer rows, or of what on_failure says",
        "Read the failures in the provider's words (Abstentions), then see "
        "docs/how-to/troubleshooting.md; the trainer should not learn from this step's mean.",
    )


def _failing_source(part: ComponentFigures) -> str:
    """Which data source nearly all failures are of, where there are others; empty for none."""
    for name, (rows, failed) in sorted(part.of_sources.items()):
        others = sum(n for n, _ in part.of_sources.values()) - rows
        if others >= FEWEST_SCORED and failed >= 0.9 * part.abstained:
            beside = percent((part.abstained - failed) / others)
            return (
                f"{failed} of these {part.abstained} are of {name or 'no data source'}: "
                f"{percent(failed / rows)} of its rows, and {beside} of the others"
            )
    return ""


def _failing_endpoints(now: RewardWindow) -> Iterator[tuple[str, str]]:
    """``(judge, endpoint)`` where one of a judge's endpoints fails, and the others do not."""
    for judge, endpoints in sorted(now.endpoints.items()):
        failed = sum(each.abstained for each in endpoints.values())
        for name, each in sorted(endpoints.items()):
            others = sum(other.scored for other in endpoints.values()) - each.scored
            if failed >= 2 and each.abstained >= 0.9 * failed and others:
                yield judge, name


def _endpoint_differs(before: RewardWindow, now: RewardWindow) -> LikelyCause:
    """One of several endpoints of a judge gives lower verdicts than before, and the others do not.

    All endpoints get samples of the same kind, so that neither prompts nor policy explain it.
    """
    evidence = _Evidence()
    for judge, endpoints in sorted(now.endpoints.items()):
        known = before.endpoints.get(judge, {})
        moved = {
            name: _z(known[name], each)
            for name, each in endpoints.items()
            if name in known and min(each.scored, known[name].scored) >= FEWEST_SCORED
        }
        worst = min(moved, key=lambda name: (moved[name], name), default="")
        others = [z for name, z in moved.items() if name != worst]
        if others and moved[worst] <= -SURE_Z and min(others) > -2.0:
            beside = ", ".join(
                f"{number(known[name].mean)} to {number(endpoints[name].mean)}"
                for name in sorted(moved)
                if name != worst
            )
            evidence.add(
                0.9,
                f"judge {judge}: verdicts of {worst} fell from {number(known[worst].mean)} to "
                f"{number(endpoints[worst].mean)}, those of the others went from {beside}",
            )
    return evidence.cause(
        "endpoint_differs",
        "One endpoint of a judge answers unlike the others",
        "Take it out of the judge's endpoints and look at its server: another model, another chat "
        "template, a broken quantisation? Ask it with: zerowait doctor config --ask.",
    )


def _reconfigured(before: RewardWindow, now: RewardWindow) -> LikelyCause:
    evidence = _Evidence()
    if now.reconfigured:
        fall = before.mean - now.mean if before.scored and now.scored else 0.0
        shown = now.reconfigured[:_CHANGES_SHOWN]
        more = len(now.reconfigured) - len(shown)
        words = "; ".join(shown) + (f"; and {more} more" if more else "")
        if now.reweighed is None:
            evidence.add(0.6, words)
        elif fall > 0 and has_fallen(before, now):
            explained = max(0.0, min(-now.reweighed / fall, 1.0))
            beside = f"the new weights alone explain {percent(explained)} of the fall"
            evidence.add(0.2 + 0.75 * explained, f"{words}; {beside}")
        else:
            moved = f"{'+' if now.reweighed >= 0 else ''}{number(now.reweighed)}"
            evidence.add(0.6, f"{words}; the new weights alone move the mean by {moved}")
    return evidence.cause(
        "reconfigured",
        "The reward is made by another configuration than before",
        "Rewards before and after are not comparable. zerowait replay scores the earlier steps by "
        "the new configuration (docs/how-to/replay.md).",
    )


def _broken_form(before: RewardWindow, now: RewardWindow) -> LikelyCause:
    """A rule about the form fell, and responses in the right form earn what they earned before."""
    evidence = _Evidence()
    moved = _z_of(before, now, judged=False)
    fall = before.mean - now.mean if before.scored and now.scored else 0.0
    for name in now.form_rules:
        if moved.get(name, 0.0) > -SURE_Z:
            continue
        was, part = before.parts[name].mean, now.parts[name].mean
        words = f"{name}, which looks at the form alone, fell from {number(was)} to "
        words += number(part)
        good, known = now.well_formed.get(name), before.well_formed.get(name)
        if good is None or known is None or fall <= 0 or not (good.scored and known.scored):
            evidence.add(0.35, words)
            continue
        explained = max(0.0, min(1.0 - (known.mean - good.mean) / fall, 1.0))
        evidence.add(
            0.1 + 0.8 * explained,
            f"{words}; responses in the right form earn {number(good.mean)}, before "
            f"{number(known.mean)}, so that the form explains {percent(explained)} of the fall",
        )
    return evidence.cause(
        "broken_form",
        "The responses break the format, so that their answers are not found",
        "Read the worst group: a tag that is never closed, or an end that the limit of tokens cut "
        "off? Raise that limit, or give the format more weight.",
    )


def _grown_penalty(before: RewardWindow, now: RewardWindow) -> LikelyCause:
    """A shape takes more off than before."""
    evidence = _Evidence()
    fall = before.mean - now.mean if before.scored and now.scored else 0.0
    for name, part in sorted(now.parts.items()):
        was = before.parts.get(name, ComponentFigures())
        if not part.shape or min(was.scored, part.scored) < FEWEST_SCORED:
            continue
        if _z(was, part) > -SURE_Z:
            continue
        words = f"{name}, a penalty, went from {number(was.mean)} to {number(part.mean)}"
        taken = part.weight * (was.mean - part.mean)
        if fall <= 0:
            evidence.add(0.35, words)
            continue
        explained = max(0.0, min(taken / fall, 1.0))
        evidence.add(
            0.2 + 0.75 * explained, f"{words}, which explains {percent(explained)} of the fall"
        )
    if evidence.words and _grew(before, now):
        evidence.add(0.1, _grown(before, now))
    return evidence.cause(
        "grown_penalty",
        "A penalty on length or repetition grew",
        "Read the worst group. Where its responses ramble or repeat themselves, the penalty does "
        "its work: see whether it shrinks in the next steps. Where they need their length, raise "
        "the shape's limit or lower its scale (docs/reference/shapes.md).",
    )


def _closed_gate(before: RewardWindow, now: RewardWindow) -> LikelyCause:
    """A component is wanted for fewer rows, whose reward lacks what it gave before."""
    evidence = _Evidence()
    fall = before.mean - now.mean if before.scored and now.scored else 0.0
    for name, part in sorted(now.parts.items()):
        was = before.parts.get(name, ComponentFigures())
        rows = (
            (was.skipped, was.scored + was.abstained + was.skipped),
            (part.skipped, part.scored + part.abstained + part.skipped),
        )
        more = part.skipped_share - was.skipped_share
        if not part.gate or more < 0.05 or (_share_z(*rows) or 0.0) < SURE_Z:
            continue
        words = (
            f"{name} was skipped in {percent(part.skipped_share)} of the rows, against "
            f"{percent(was.skipped_share)} before: its gate is {part.gate}"
        )
        lost = part.weight * was.mean * more
        if fall <= 0 or lost <= 0:
            evidence.add(0.2, words)
            continue
        explained = min(lost / fall, 1.0)
        evidence.add(0.85 * explained, f"{words}; that explains {percent(explained)} of the fall")
    return evidence.cause(
        "closed_gate",
        "A gate closed for more responses, which now lack what the gated component gave",
        "Look at what the gate asks for: it got worse first, and the gate makes more of it. Read a "
        "response of the worst group for which the component was skipped.",
    )


def _collapse(before: RewardWindow, now: RewardWindow) -> LikelyCause:
    """Responses to different prompts became alike.

    Reference:
        Li et al. 2016, A diversity-promoting objective function, distinct-n (arXiv:1510.03055).
    """
    evidence = _Evidence()
    names = before.sources.keys() | now.sources.keys()
    moved = max((_source_share(now, n) - _source_share(before, n) for n in names), default=0.0)
    # another kind of prompts may want shorter or simpler answers
    if before.distinct is not None and now.distinct is not None and moved < _OTHER_MIX:
        lost = 1.0 - now.distinct / max(before.distinct, 1e-9)
        if lost > 0.5:
            evidence.add(
                0.95 * lost,
                f"of the sequences of four words in responses to different prompts "
                f"{percent(now.distinct)} are distinct, against {percent(before.distinct)} before",
            )
    return evidence.cause(
        "collapse",
        "The policy collapsed: it writes nearly the same to every prompt",
        "Read the best group for what that answer earns. Go back to the checkpoint before; a lower "
        "learning rate, or a larger KL or entropy coefficient, keeps responses apart.",
    )


def _lenient_judge(before: RewardWindow, now: RewardWindow) -> LikelyCause:
    evidence = _Evidence()
    for name in suddenly_risen(before, now):
        evidence.add(
            0.55,
            f"{name}, which a judge scores, rose from {number(before.parts[name].mean)} to "
            f"{number(now.parts[name].mean)} at once, while no rule rose",
        )
        rho = now.parts[name].by_length or 0.0
        if rho >= 0.2 and _grew(before, now):
            evidence.add(
                0.5 * rho,
                f"it prefers long ones (rank correlation {rho:.2f}), and {_grown(before, now)}",
            )
    if evidence.words:
        _weigh_drift_events(evidence, now)
        _weigh_models(evidence, before, now)
    return evidence.cause(
        "lenient_judge",
        "The judge gives more for the same, or the responses please it by something else",
        "This rise may be no progress. Read the best group with the judge's replies, measure the "
        "judge's anchors (docs/how-to/audit-a-judge.md), and trust the rules and held-out scores.",
    )


def _weigh_drift_events(evidence: _Evidence, now: RewardWindow) -> set[tuple[str, str]]:
    """What was told about judges that drifted, once for each; returns which."""
    told: set[tuple[str, str]] = set()
    for kind, what, why in now.events:
        if kind in _DRIFT_EVENTS and (kind, what) not in told:
            told.add((kind, what))
            strength, words = _DRIFT_EVENTS[kind]
            evidence.add(strength, f"judge {what}: {words}: {why}".rstrip(": "))
    return told


def _weigh_models(evidence: _Evidence, before: RewardWindow, now: RewardWindow) -> None:
    for judge, models in now.models.items():
        new = [name for name in models if name not in before.models.get(judge, models)]
        if new:
            evidence.add(0.4, f"judge {judge} answered as {', '.join(new)}, which is new")


def _judge_drift(before: RewardWindow, now: RewardWindow) -> LikelyCause:
    evidence = _Evidence()
    told = _weigh_drift_events(evidence, now)
    judged = _z_of(before, now, judged=True)
    rules = _z_of(before, now, judged=False)
    fell = {name: z for name, z in judged.items() if z <= -SURE_Z}
    clear = rules and min(rules.values()) > -2.0
    within = _fell_within_a_source(before, now) if fell and rules and not clear else ""
    if within:
        evidence.add(0.5, within)
    elif fell and rules and min(rules.values()) > -SURE_Z:
        worst = min(fell, key=lambda name: (fell[name], name))
        # between two and three standard errors a rule may have fallen by chance, or not
        strength, clearly = (0.55, "") if min(rules.values()) > -2.0 else (0.3, " as clearly")
        evidence.add(
            strength,
            f"{worst}, which a judge scores, fell from {number(before.parts[worst].mean)} to "
            f"{number(now.parts[worst].mean)} while no rule did{clearly}",
        )
    elif not fell and not told:
        return LikelyCause(kind="judge_drift", title="", strength=0.0, evidence=[], advice="")
    elif not fell:
        # a judge that answers as before is no cause, whatever is told about its model
        evidence = _Evidence()
    if evidence.words:
        _weigh_models(evidence, before, now)
    return evidence.cause(
        "judge_drift",
        "The judge's scale moved: the same responses get other verdicts",
        "Pin the judge's model or snapshot, and measure its anchors "
        "(docs/how-to/audit-a-judge.md); compare a reply of this step with an earlier one.",
    )


def _fell_within_a_source(before: RewardWindow, now: RewardWindow) -> str:
    """A judged component that fell on prompts of one data source while no rule did; in words.

    Harder prompts of another data source lower rules and judges alike, and hide it.
    """
    old = msgspec.structs.replace(before, parts=before.same_source)
    new = msgspec.structs.replace(now, parts=now.same_source)
    judged = {n: z for n, z in _z_of(old, new, judged=True).items() if z <= -SURE_Z}
    rules = _z_of(old, new, judged=False)
    if not judged or not rules or min(rules.values()) <= -2.0:
        return ""
    return (
        "on the data source that both have most of, "
        f"{_moved_from(old, new, min(judged, key=lambda name: (judged[name], name)))} "
        "by its judge, while no rule fell"
    )


def _z_of(before: RewardWindow, now: RewardWindow, *, judged: bool) -> dict[str, float]:
    """The change of each component of that sort that has enough values, in standard errors."""
    return {
        name: _z(before.parts[name], part)
        for name, part in now.parts.items()
        if (part.judged if judged else part.is_rule)
        and name in before.parts
        and min(part.scored, before.parts[name].scored) >= FEWEST_SCORED
    }


def _harder_prompts(before: RewardWindow, now: RewardWindow) -> LikelyCause:
    evidence = _Evidence()
    fall = before.mean - now.mean if before.scored and now.scored else 0.0
    if has_fallen(before, now):
        _weigh_mix(evidence, before, now, fall, least=0.05)
        _weigh_past(evidence, before, now, fall)
        _weigh_other_rows(evidence, before, now)
    elif fall > 0 and _z(_reward(before), _reward(now)) <= -1.0:
        _weigh_mix(evidence, before, now, fall, least=_OTHER_MIX)
    return evidence.cause(
        "harder_prompts",
        "The prompts are harder, or other ones, than before",
        "Nothing is broken. Compare rewards within a data source, shuffle the data, or make the "
        "order a curriculum on purpose; the held-out score says whether the policy got worse.",
    )


def _weigh_mix(
    evidence: _Evidence, before: RewardWindow, now: RewardWindow, fall: float, *, least: float
) -> None:
    """How much of the fall the mix of data sources explains, at the steps' before mean of each."""
    expected, moved = 0.0, ("", 0.0)
    for name in sorted(now.sources):
        share, was = _source_share(now, name), _source_share(before, name)
        known = before.sources.get(name)
        mean = known.mean if known is not None and known.rows >= FEWEST_SCORED else None
        if mean is None:  # a new source has only what it got now
            mean = now.sources[name].mean
        if mean is None:
            mean = before.mean
        expected += share * mean
        if share - was > moved[1]:
            moved = name, share - was
    if moved[1] < least:
        return
    explained = min((before.mean - expected) / fall, 1.0)
    if explained <= 0.1:
        return
    name = moved[0]
    evidence.add(
        0.95 * explained,
        f"{percent(_source_share(now, name))} of the rows are of {name or 'no data source'}, "
        f"against {percent(_source_share(before, name))} before; the mix alone explains "
        f"{percent(explained)} of the fall",
    )


def _weigh_past(evidence: _Evidence, before: RewardWindow, now: RewardWindow, fall: float) -> None:
    """How much lower these prompts are in other steps, beside what was usual around those.

    Without what was usual, prompts last seen when the policy was young would seem hard.
    """
    if before.prompts_elsewhere is None or now.prompts_elsewhere is None:
        return
    harder, beside = before.prompts_elsewhere - now.prompts_elsewhere, ""
    if before.usual_elsewhere is not None and now.usual_elsewhere is not None:
        harder -= before.usual_elsewhere - now.usual_elsewhere
        beside = (
            f" (usual around there: {number(now.usual_elsewhere)} and "
            f"{number(before.usual_elsewhere)})"
        )
    if harder > 0.1 * fall:
        evidence.add(
            0.85 * min(harder / fall, 1.0),
            f"the same prompts got {number(now.prompts_elsewhere)} in other steps, those "
            f"of the steps before {number(before.prompts_elsewhere)}{beside}",
        )


def _weigh_other_rows(evidence: _Evidence, before: RewardWindow, now: RewardWindow) -> None:
    """A rule that fell on these prompts, and not on held-out ones."""
    name = _worst_rule(before, now)
    known, tested = _held_out(before, now, name)
    if known and tested and _z(known, tested) > -1.0:
        evidence.add(
            0.5,
            f"on held-out prompts {name} did not fall: {number(known.mean)} before, "
            f"{number(tested.mean)} since",
        )


def _worst_rule(before: RewardWindow, now: RewardWindow) -> str:
    """The rule that fell most, by more than chance; empty for none."""
    fallen = {n: z for n, z in _z_of(before, now, judged=False).items() if z <= -SURE_Z}
    return min(fallen, key=lambda name: (fallen[name], name), default="")


def _passing(before: RewardWindow, now: RewardWindow) -> LikelyCause:
    """A rule that fell, and is back in the steps after."""
    evidence = _Evidence()
    name = _worst_rule(before, now)
    later = now.later.get(name)
    if later is not None:
        was, part = before.parts[name].mean, now.parts[name].mean
        if later.mean > was - 0.25 * (was - part):
            evidence.add(
                0.45,
                f"{name} fell to {number(part)}, and is {number(later.mean)} in the steps after",
            )
    return evidence.cause(
        "passing",
        "It passed: the policy did not stay worse",
        "There is nothing to go back for. Read the worst group: prompts that were hard by chance, "
        "or responses that were sampled wrongly in this step.",
    )


def _held_out(
    before: RewardWindow, now: RewardWindow, name: str
) -> tuple[ComponentFigures | None, ComponentFigures | None]:
    """A rule on held-out rows, before and since; None for both where they are too few."""
    known, tested = before.held_out.get(name), now.held_out.get(name)
    if known is None or tested is None or min(known.scored, tested.scored) < _FEWEST_HELD_OUT:
        return None, None
    return known, tested


def _source_share(window: RewardWindow, name: str) -> float:
    source = window.sources.get(name)
    return source.rows / window.rows if source is not None and window.rows else 0.0


def _longer_responses(before: RewardWindow, now: RewardWindow) -> LikelyCause:
    evidence = _Evidence()
    judged = _z_of(before, now, judged=True)
    rising = [name for name, z in sorted(judged.items()) if z >= -1.0]
    pleased = {
        name: rho
        for name, part in sorted(now.parts.items())
        if judged.get(name, -SURE_Z) > -SURE_Z and (rho := part.by_length or 0.0) >= 0.2
    }
    falling = [name for name, z in sorted(_z_of(before, now, judged=False).items()) if z <= -SURE_Z]
    # a judge that likes the longer responses no better is not what they are written for
    if _grew(before, now) and (pleased or (rising and falling)):
        growth = (now.length or 0.0) / (before.length or 1.0)
        evidence.add(0.6 * (1.0 - math.exp(-(growth - 1.0) / 0.4)), _grown(before, now))
        for name, rho in pleased.items():
            evidence.add(0.5 * rho, f"{name} prefers long responses (rank correlation {rho:.2f})")
        if falling and rising:
            evidence.add(
                0.7,
                f"{', '.join(falling)} fell while {', '.join(rising)}, which a judge scores, "
                "did not",
            )
    return evidence.cause(
        "length_hacking",
        "The policy writes longer to please the judge (reward hacking by length)",
        "Read the best group: is the length worth anything? Add a length penalty, tell the rubric "
        "to ignore length, or gate the judge by the rule (docs/reference/shapes.md).",
    )


def _grew(before: RewardWindow, now: RewardWindow) -> bool:
    return bool(before.length and now.length and now.length > 1.15 * before.length)


def _grown(before: RewardWindow, now: RewardWindow) -> str:
    was, length = before.length or 1.0, now.length or 0.0
    times = f"{length / was:.1f}"
    return f"the responses are {times} times as long as before ({was:.0f} to {length:.0f})"


def _shorter_responses(before: RewardWindow, now: RewardWindow) -> LikelyCause:
    evidence = _Evidence()
    if before.length and now.length is not None and now.length < 0.6 * before.length:
        evidence.add(
            0.6 * (1.0 - max(now.length, 0.0) / before.length),
            f"the responses are {percent(now.length / before.length)} as long as before "
            f"({before.length:.0f} to {now.length:.0f})",
        )
    return evidence.cause(
        "shorter_responses",
        "The responses got much shorter",
        "Read the worst group: refusals, empty or cut-off responses? A length penalty that is too "
        "strong, or a lower limit of tokens, does this.",
    )


def _worse_responses(before: RewardWindow, now: RewardWindow) -> LikelyCause:
    evidence = _Evidence()
    rules = {n: z for n, z in _z_of(before, now, judged=False).items() if z <= -SURE_Z}
    if rules:
        judged = {n: z for n, z in _z_of(before, now, judged=True).items() if z <= -2.0}
        worst = sorted(rules, key=lambda name: (rules[name], name))
        fell = ", ".join(_moved_from(before, now, name) for name in worst[:3])
        judges = "; by judges, " + ", ".join(
            _moved_from(before, now, name) for name in sorted(judged)
        )
        evidence.add(0.35 if judged else 0.25, fell + (judges if judged else ""))
        known, tested = _held_out(before, now, worst[0])
        if known and tested and _z(known, tested) <= -2.0:
            evidence.add(
                0.5,
                f"on held-out prompts {worst[0]} fell too, from {number(known.mean)} to "
                f"{number(tested.mean)}",
            )
        if judged and _grew(before, now):
            evidence.add(0.1, _grown(before, now))
    return evidence.cause(
        "worse_responses",
        "The responses themselves got worse",
        "Look at the held-out score at this step. If it fell too, go back to the checkpoint before "
        "and try a lower learning rate; read the worst group for what broke.",
    )


def _moved_from(before: RewardWindow, now: RewardWindow, name: str) -> str:
    """A component that fell, with its figures."""
    return f"{name} fell from {number(before.parts[name].mean)} to {number(now.parts[name].mean)}"


def number(value: float) -> str:
    """A figure as it is written in evidence."""
    return f"{value:.3g}"


def percent(share: float) -> str:
    """A share of 1, likewise."""
    return f"{100 * share:.0f} %"
