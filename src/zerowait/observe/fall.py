"""Why the reward of a step fell: what changed against the steps before, and its likely cause.

`FallReader` reads two windows of a run from its index, the step and up to five steps before it,
and compares them. `likely_causes` is a pure function of the two windows: each cause has evidence in
words and a strength in [0, 1], which says how well the evidence fits, and is no probability.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator
from typing import Final

import msgspec

from zerowait.observe.axis import Axis
from zerowait.rank_statistics import rank_correlation

STEPS_BEFORE: Final = 5
"""How many points the baseline has."""
_WEAKEST: Final = 0.15
_SURE_Z: Final = 3.0
_FEWEST_SCORED: Final = 4
_SAMPLED: Final = 500
_SOURCES_SHOWN: Final = 4


class ComponentFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A component in a window.

    Args:
        scored, abstained: number of rows; rows where it was skipped are in neither.
        mean, sd: of the scored rows.
        judged: whether a judge scores it. kinds: abstentions by kind.
        by_length: rank correlation of its value with the response's length; None if unknown.
    """

    scored: int = 0
    abstained: int = 0
    mean: float = 0.0
    sd: float = 0.0
    judged: bool = False
    kinds: dict[str, int] = {}
    by_length: float | None = None

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
        rows, scored: number of rows, and of those with a reward. mean, sd: of the reward.
        parts: by component. sources: by data source.
        length: mean length of the responses; None if unknown.
        groups, equal_groups: prompt groups of several scored rows, and those without variance.
        prompts_elsewhere: mean reward that the same prompts got in all steps outside the window;
            None where fewer than half of the rows have one.
        usual_elsewhere: mean reward of all prompts around those steps; None if unknown.
        events: ``(kind, judge or endpoint, why)`` of what happened to judges in the window.
        models: served model names by judge.
    """

    rows: int = 0
    scored: int = 0
    mean: float = 0.0
    sd: float = 0.0
    parts: dict[str, ComponentFigures] = {}
    sources: dict[str, DataSource] = {}
    length: float | None = None
    groups: int = 0
    equal_groups: int = 0
    prompts_elsewhere: float | None = None
    usual_elsewhere: float | None = None
    events: list[tuple[str, str, str]] = []
    models: dict[str, list[str]] = {}


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


class Fall(msgspec.Struct, frozen=True, kw_only=True):
    """How a step's reward compares with the steps before, and why.

    Args:
        point: the step. before: the first and the last point of the baseline; None without any.
        fell: whether the mean is lower than before by more than chance.
        words: the change in one sentence.
        changes: figures before and now, the most surprising first.
        causes: the strongest first; empty where nothing stands out, or nothing fell.
    """

    point: int
    before: tuple[int, int] | None
    fell: bool
    words: str
    changes: list[FigureChange]
    causes: list[LikelyCause]


def has_fallen(before: RewardWindow, now: RewardWindow) -> bool:
    """Whether the mean reward is lower now by more than two standard errors."""
    if not (before.scored and now.scored):
        return False
    return _z(_reward(before), _reward(now)) <= -2.0


def _reward(window: RewardWindow) -> ComponentFigures:
    return ComponentFigures(scored=window.scored, mean=window.mean, sd=window.sd)


def _z(before: ComponentFigures, now: ComponentFigures) -> float:
    """The change of a mean in standard errors; of no values 0."""
    if not (before.scored and now.scored):
        return 0.0
    # a step without any variance still has the baseline's
    spread = math.sqrt(
        max(before.sd, 1e-9) ** 2 / before.scored + max(now.sd, 0.5 * before.sd) ** 2 / now.scored
    )
    return max(-1e6, min(1e6, (now.mean - before.mean) / max(spread, 1e-9)))


def _in_words(before: RewardWindow, now: RewardWindow, steps: int) -> str:
    against = "the step before" if steps == 1 else f"the {steps} steps before"
    if not now.scored:
        return f"No row of {now.rows} has a value: every one abstained."
    if not before.scored:
        return f"The reward is {_number(now.mean)}; no row of {against} has a value."
    z = _z(_reward(before), _reward(now))
    moved = f"{_number(before.mean)} in {against} to {_number(now.mean)}"
    if abs(z) < 2.0:
        return (
            f"The reward went from {moved}, which is within chance ({abs(z):.1f} standard errors)."
        )
    verb = "fell" if z < 0 else "rose"
    return f"The reward {verb} from {moved} ({min(abs(z), 999):.1f} standard errors)."


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
    """The likely causes of a fall, the strongest first; [] where the reward did not fall.

    A step in which every row abstained counts as a fall too.
    """
    silent = bool(before.scored) and bool(now.rows) and not now.scored
    if not silent and not has_fallen(before, now):
        return []
    found = [
        _judge_outage(before, now),
        _judge_drift(before, now),
        _harder_prompts(before, now),
        _longer_responses(before, now),
        _shorter_responses(before, now),
        _worse_responses(before, now),
    ]
    causes = [cause for cause in found if cause.evidence and cause.strength >= _WEAKEST]
    return sorted(causes, key=lambda cause: (-cause.strength, cause.kind))


class _Evidence:
    """Collects what speaks for a cause; independent pieces of evidence add up towards 1."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._against = 1.0

    def add(self, strength: float, words: str) -> None:
        if strength > 0:
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
    for name in sorted(now.parts):
        part, was = now.parts[name], before.parts.get(name, ComponentFigures())
        more = part.abstained_share - was.abstained_share
        if more <= 0.02 or part.abstained < 2:
            continue
        kinds = ", ".join(
            f"{kind} {n}" for kind, n in sorted(part.kinds.items(), key=lambda i: (-i[1], i[0]))
        )
        evidence.add(
            1.0 - math.exp(-more / 0.15),
            f"{name} abstained in {_percent(part.abstained_share)} of the rows, "
            f"against {_percent(was.abstained_share)} before ({kinds})",
        )
    if evidence.words:  # an endpoint that fails costs nothing as long as another one answers
        for kind, what, why in now.events:
            if kind in _OUTAGE_EVENTS:
                evidence.add(0.3, f"{what}: {_OUTAGE_EVENTS[kind]}: {why}".rstrip(": "))
    return evidence.cause(
        "judge_outage",
        "Judgements failed: the reward is the mean of fewer, other rows or components",
        "Read the failures in the provider's words (Abstentions), then see "
        "docs/how-to/troubleshooting.md; the trainer should not learn from this step's mean.",
    )


def _judge_drift(before: RewardWindow, now: RewardWindow) -> LikelyCause:
    evidence = _Evidence()
    told: set[tuple[str, str]] = set()
    for kind, what, why in now.events:
        if kind in _DRIFT_EVENTS and (kind, what) not in told:
            told.add((kind, what))
            strength, words = _DRIFT_EVENTS[kind]
            evidence.add(strength, f"judge {what}: {words}: {why}".rstrip(": "))
    judged = _z_of(before, now, judged=True)
    rules = _z_of(before, now, judged=False)
    fell = {name: z for name, z in judged.items() if z <= -_SURE_Z}
    if fell and rules and min(rules.values()) > -_SURE_Z:
        worst = min(fell, key=lambda name: (fell[name], name))
        # between two and three standard errors a rule may have fallen by chance, or not
        strength, clearly = (0.55, "") if min(rules.values()) > -2.0 else (0.3, " as clearly")
        evidence.add(
            strength,
            f"{worst}, which a judge scores, fell from {_number(before.parts[worst].mean)} to "
            f"{_number(now.parts[worst].mean)} while no rule did{clearly}",
        )
    elif not fell and not told:
        return LikelyCause(kind="judge_drift", title="", strength=0.0, evidence=[], advice="")
    elif not fell:
        # a judge that answers as before is no cause, whatever is told about its model
        evidence = _Evidence()
    for judge, models in now.models.items():
        new = [name for name in models if name not in before.models.get(judge, models)]
        if new and evidence.words:
            evidence.add(0.4, f"judge {judge} answered as {', '.join(new)}, which is new")
    return evidence.cause(
        "judge_drift",
        "The judge's scale moved: the same responses get other verdicts",
        "Pin the judge's model or snapshot, and measure its anchors "
        "(docs/how-to/audit-a-judge.md); compare a reply of this step with an earlier one.",
    )


def _z_of(before: RewardWindow, now: RewardWindow, *, judged: bool) -> dict[str, float]:
    """The change of each component of that sort that has enough values, in standard errors."""
    return {
        name: _z(before.parts[name], part)
        for name, part in now.parts.items()
        if part.judged is judged
        and name in before.parts
        and min(part.scored, before.parts[name].scored) >= _FEWEST_SCORED
    }


def _harder_prompts(before: RewardWindow, now: RewardWindow) -> LikelyCause:
    evidence = _Evidence()
    fall = before.mean - now.mean if now.scored and before.scored else 0.0
    if fall > 0:
        _weigh_mix(evidence, before, now, fall)
        _weigh_past(evidence, before, now, fall)
    return evidence.cause(
        "harder_prompts",
        "The prompts are harder, or other ones, than before",
        "Nothing is broken. Compare rewards within a data source, shuffle the data, or make the "
        "order a curriculum on purpose; the held-out score says whether the policy got worse.",
    )


def _weigh_mix(evidence: _Evidence, before: RewardWindow, now: RewardWindow, fall: float) -> None:
    """How much of the fall the mix of data sources explains, at the steps' before mean of each."""
    expected, moved = 0.0, ("", 0.0)
    for name in sorted(now.sources):
        share, was = _source_share(now, name), _source_share(before, name)
        known = before.sources.get(name)
        mean = known.mean if known is not None and known.rows >= _FEWEST_SCORED else None
        if mean is None:  # a new source has only what it got now
            mean = now.sources[name].mean
        if mean is None:
            mean = before.mean
        expected += share * mean
        if share - was > moved[1]:
            moved = name, share - was
    if moved[1] < 0.05:
        return
    explained = min((before.mean - expected) / fall, 1.0)
    if explained <= 0.1:
        return
    name = moved[0]
    evidence.add(
        0.95 * explained,
        f"{_percent(_source_share(now, name))} of the rows are of {name or 'no data source'}, "
        f"against {_percent(_source_share(before, name))} before; the mix alone explains "
        f"{_percent(explained)} of the fall",
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
            f" (usual around there: {_number(now.usual_elsewhere)} and "
            f"{_number(before.usual_elsewhere)})"
        )
    if harder > 0.1 * fall:
        evidence.add(
            0.85 * min(harder / fall, 1.0),
            f"the same prompts got {_number(now.prompts_elsewhere)} in other steps, those "
            f"of the steps before {_number(before.prompts_elsewhere)}{beside}",
        )


def _source_share(window: RewardWindow, name: str) -> float:
    source = window.sources.get(name)
    return source.rows / window.rows if source is not None and window.rows else 0.0


def _longer_responses(before: RewardWindow, now: RewardWindow) -> LikelyCause:
    evidence = _Evidence()
    if before.length and now.length and now.length > 1.15 * before.length:
        falling = [
            name for name, z in sorted((_z_of(before, now, judged=False)).items()) if z <= -_SURE_Z
        ]
        rising = [name for name, z in sorted(_z_of(before, now, judged=True).items()) if z >= -1.0]
        pleased = {
            name: part.by_length
            for name, part in sorted(now.parts.items())
            if part.judged and part.by_length is not None and part.by_length >= 0.2
        }
        grown = f"{now.length / before.length:.1f} times as long as before"
        evidence.add(
            0.6 * (1.0 - math.exp(-(now.length / before.length - 1.0) / 0.4)),
            f"the responses are {grown} ({before.length:.0f} to {now.length:.0f})",
        )
        for name, rho in pleased.items():
            evidence.add(
                0.5 * (rho or 0.0), f"{name} prefers long responses (rank correlation {rho:.2f})"
            )
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


def _shorter_responses(before: RewardWindow, now: RewardWindow) -> LikelyCause:
    evidence = _Evidence()
    if before.length and now.length is not None and now.length < 0.6 * before.length:
        evidence.add(
            0.6 * (1.0 - max(now.length, 0.0) / before.length),
            f"the responses are {_percent(now.length / before.length)} as long as before "
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
    rules = {n: z for n, z in _z_of(before, now, judged=False).items() if z <= -_SURE_Z}
    if rules:
        judged = {n: z for n, z in _z_of(before, now, judged=True).items() if z <= -2.0}
        worst = sorted(rules, key=lambda name: (rules[name], name))
        beside = f", and so did {', '.join(sorted(judged))}" if judged else ""
        evidence.add(0.35 if judged else 0.25, f"{', '.join(worst[:3])} fell{beside}")
    return evidence.cause(
        "worse_responses",
        "The responses themselves got worse",
        "Look at the held-out score at this step. If it fell too, go back to the checkpoint before "
        "and try a lower learning rate; read the worst group for what broke.",
    )


def _number(value: float) -> str:
    return f"{value:.3g}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def event_words(event: sqlite3.Row) -> str:
    """What an event of table ``events`` says, in words: its reason, or its figures."""
    if event["why"]:
        return str(event["why"])
    fields = json.loads(event["fields"] or "{}")
    match event["kind"]:
        case "judge_drifted":
            moved = fields.get("drift", {}).get("mean_abs", 0.0)
            return (
                f"by {_percent(moved)} of the range, against the {fields.get('against', 'first')}"
            )
        case "model_changed":
            return f"{fields.get('before', '?')} before, now {fields.get('after', '?')}"
        case "limit_changed":
            return f"{fields.get('before', '?')} to {fields.get('after', '?')} requests in flight"
        case _:
            return ""


class _Sums:
    """Adds up counts, sums and sums of squares of values."""

    __slots__ = ("count", "square", "total")

    def __init__(self) -> None:
        self.count, self.total, self.square = 0, 0.0, 0.0

    def add(self, count: int, total: float | None, square: float | None = None) -> None:
        self.count += count
        self.total += total or 0.0
        self.square += square or 0.0

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    @property
    def sd(self) -> float:
        mean = self.mean
        return 0.0 if mean is None else math.sqrt(max(self.square / self.count - mean**2, 0.0))


class FallReader:
    """Explains the falls of a run; it reads sums by point once, and adds them up for each window.

    Args:
        connection: from `zerowait.record.open_index`.
        axis: of the run's charts.
        judged: the components that a judge scores.
        only: the one point that will be explained; without it any of them.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        axis: Axis,
        judged: frozenset[str],
        *,
        only: int | None = None,
    ) -> None:
        self._connection = connection
        self._axis = axis
        self._judged = judged
        self._of_run = f"r.current = 1 AND r.split = :split AND {axis.column} IS NOT NULL"
        if only is None:
            wanted = self._of_run
        else:
            before = self._rows(
                f"SELECT DISTINCT {axis.sql} AS point FROM rewards r WHERE {self._of_run} "
                f"AND {axis.column} < :only ORDER BY point DESC LIMIT :most",
                only=only,
                most=STEPS_BEFORE,
            )
            first = min((row["point"] for row in before), default=only)
            wanted = f"{self._of_run} AND {axis.between(first, only + 2 * axis.width)}"
        self._whole = self._by_point(
            "SELECT {point}, COUNT(*) AS rows, COUNT(value) AS scored, SUM(value) AS total, "
            "SUM(value * value) AS square, "
            "SUM(COALESCE(response_tokens, response_chars)) AS length, "
            "MIN(NULLIF(submitted_at, 0)) AS began, MAX(settled_at) AS ended "
            "FROM rewards r WHERE {wanted} GROUP BY point",
            wanted,
        )
        # CROSS JOIN: SQLite finds the window's rows first, and not every row of a component
        self._parts = self._by_point(
            "SELECT {point}, c.component AS component, c.outcome AS outcome, c.kind AS kind, "
            "COUNT(*) AS n, SUM(c.value) AS total, SUM(c.value * c.value) AS square "
            "FROM rewards r CROSS JOIN components c ON c.row = r.row "
            "WHERE {wanted} AND c.outcome <> 'skipped' "
            "GROUP BY point, c.component, c.outcome, c.kind",
            wanted,
        )
        self._sources = self._by_point(
            "SELECT {point}, COALESCE(data_source, '') AS source, COUNT(*) AS n, "
            "COUNT(value) AS scored, SUM(value) AS total FROM rewards r WHERE {wanted} "
            "GROUP BY point, source",
            wanted,
        )
        self._groups = self._by_point(
            "SELECT point, COUNT(*) AS groups, SUM(highest = lowest) AS equal FROM ("
            "SELECT {point}, MAX(value) AS highest, MIN(value) AS lowest FROM rewards r "
            "WHERE {wanted} AND prompt_group IS NOT NULL GROUP BY point, step, prompt_group "
            "HAVING COUNT(value) > 1) GROUP BY point",
            wanted,
        )
        self._prompts = self._by_point(
            "SELECT {point}, prompt_hash, COUNT(*) AS n, COUNT(value) AS scored, "
            "SUM(value) AS total FROM rewards r WHERE {wanted} AND prompt_hash IS NOT NULL "
            "GROUP BY point, prompt_hash",
            wanted,
        )
        self._seen = self._points_of_prompts(only)
        self._step_sums = self._sums_of_points()

    def _by_point(self, sql: str, wanted: str) -> dict[int, list[sqlite3.Row]]:
        found: dict[int, list[sqlite3.Row]] = {}
        for row in self._rows(sql.format(point=f"{self._axis.sql} AS point", wanted=wanted)):
            found.setdefault(row["point"], []).append(row)
        return found

    def _rows(self, sql: str, **parameters: float | str) -> list[sqlite3.Row]:
        return self._connection.execute(sql, {"split": self._axis.split, **parameters}).fetchall()

    def _points_of_prompts(self, only: int | None) -> dict[str, list[tuple[int, int, float]]]:
        """Each prompt's points in the whole run, with the number and the sum of its rewards."""
        seen: dict[str, list[tuple[int, int, float]]] = {}
        if only is None:
            for at, rows in self._prompts.items():
                for row in rows:
                    of_prompt = seen.setdefault(row["prompt_hash"], [])
                    of_prompt.append((at, row["scored"], row["total"] or 0.0))
            return seen
        for name in {row["prompt_hash"] for rows in self._prompts.values() for row in rows}:
            found = self._rows(
                f"SELECT {self._axis.sql} AS point, COUNT(value) AS n, SUM(value) AS total "
                f"FROM rewards r WHERE prompt_hash = :name AND {self._of_run} GROUP BY point",
                name=name,
            )
            seen[name] = [(row["point"], row["n"], row["total"] or 0.0) for row in found]
        return seen

    def _sums_of_points(self) -> list[tuple[int, int, float]]:
        """Number and sum of the rewards of every step's point; rows without steps have no trend."""
        if self._axis.kind != "step":
            return []
        found = self._rows(
            f"SELECT {self._axis.of('step')} AS point, SUM(scored) AS n, "
            "SUM(scored * mean_value) AS total FROM steps "
            "WHERE split = :split AND step IS NOT NULL GROUP BY point ORDER BY point"
        )
        return [(row["point"], row["n"], row["total"] or 0.0) for row in found]

    def _usual_around(self, fallen: int) -> dict[int, float]:
        """Mean reward of all prompts around each point, as far to one side of it as to the other.

        Args:
            fallen: the point whose own rewards are left out, because they are to be explained.
        """
        usual: dict[int, float] = {}
        last = len(self._step_sums) - 1
        for index, (at, _, _) in enumerate(self._step_sums):
            far = min(STEPS_BEFORE, index, last - index)
            near = [
                (n, total)
                for other, n, total in self._step_sums[index - far : index + far + 1]
                if other != fallen
            ]
            count = sum(n for n, _ in near)
            if count:
                usual[at] = sum(total for _, total in near) / count
        return usual

    def explain(self, point: int) -> Fall:
        """Why the reward of `point` differs from that of the points before it."""
        earlier = sorted(at for at in self._whole if at < point)[-STEPS_BEFORE:]
        usual = self._usual_around(point)
        now = self._window([point], usual, with_lengths=True)
        if not earlier:
            words = f"The reward is {_number(now.mean)}." if now.scored else "No row has a value."
            return Fall(
                point=point,
                before=None,
                fell=False,
                words=f"{words} It is the first point: there is nothing to compare it with.",
                changes=list(changes(RewardWindow(), now)),
                causes=[],
            )
        before = self._window(earlier, usual, with_lengths=False)
        causes = likely_causes(before, now)
        return Fall(
            point=point,
            before=(min(earlier), max(earlier)),
            fell=has_fallen(before, now),
            words=_in_words(before, now, len(earlier)),
            changes=sorted(
                changes(before, now), key=lambda c: (c.name != "reward", -abs(c.z or 0.0), c.name)
            ),
            causes=causes,
        )

    def _window(
        self, points: list[int], usual: dict[int, float], *, with_lengths: bool
    ) -> RewardWindow:
        whole = [row for at in points for row in self._whole.get(at, [])]
        reward = _Sums()
        for row in whole:
            reward.add(row["scored"], row["total"], row["square"])
        rows = sum(row["rows"] for row in whole)
        groups = [row for at in points for row in self._groups.get(at, [])]
        elsewhere, usual_elsewhere = self._prompts_elsewhere(points, usual)
        events, models = self._judges(whole, self._began_after(max(points)))
        return RewardWindow(
            rows=rows,
            scored=reward.count,
            mean=reward.mean or 0.0,
            sd=reward.sd,
            parts=self._parts_of(points, with_lengths=with_lengths),
            sources=self._sources_of(points),
            length=sum(row["length"] for row in whole) / rows if rows else None,
            groups=sum(row["groups"] for row in groups),
            equal_groups=sum(row["equal"] for row in groups),
            prompts_elsewhere=elsewhere,
            usual_elsewhere=usual_elsewhere,
            events=events,
            models=models,
        )

    def _parts_of(self, points: list[int], *, with_lengths: bool) -> dict[str, ComponentFigures]:
        scores: dict[str, _Sums] = {}
        kinds: dict[str, dict[str, int]] = {}
        for row in (row for at in points for row in self._parts.get(at, [])):
            name = row["component"]
            sums = scores.setdefault(name, _Sums())
            if row["outcome"] == "score":
                sums.add(row["n"], row["total"], row["square"])
            else:
                its, kind = kinds.setdefault(name, {}), row["kind"] or ""
                its[kind] = its.get(kind, 0) + row["n"]
        return {
            name: ComponentFigures(
                scored=sums.count,
                abstained=sum(kinds.get(name, {}).values()),
                mean=sums.mean or 0.0,
                sd=sums.sd,
                judged=name in self._judged,
                kinds=kinds.get(name, {}),
                by_length=self._by_length(points[0], name)
                if with_lengths and name in self._judged
                else None,
            )
            for name, sums in sorted(scores.items())
        }

    def _by_length(self, point: int, name: str) -> float | None:
        pairs = self._rows(
            "SELECT c.value AS value, COALESCE(r.response_tokens, r.response_chars) AS length "
            f"FROM rewards r CROSS JOIN components c ON c.row = r.row WHERE {self._of_run} "
            f"AND {self._axis.inside(point)} AND c.component = :name AND c.outcome = 'score' "
            "LIMIT :most",
            name=name,
            most=_SAMPLED,
        )
        if len(pairs) < 2 * _FEWEST_SCORED:
            return None
        return rank_correlation([p["value"] for p in pairs], [p["length"] for p in pairs])

    def _sources_of(self, points: list[int]) -> dict[str, DataSource]:
        rows: dict[str, int] = {}
        rewards: dict[str, _Sums] = {}
        for row in (row for at in points for row in self._sources.get(at, [])):
            rows[row["source"]] = rows.get(row["source"], 0) + row["n"]
            rewards.setdefault(row["source"], _Sums()).add(row["scored"], row["total"])
        return {
            name: DataSource(rows=n, mean=rewards[name].mean) for name, n in sorted(rows.items())
        }

    def _prompts_elsewhere(
        self, points: list[int], usual: dict[int, float]
    ) -> tuple[float | None, float | None]:
        """Mean reward of these points' prompts in all other points, and what was usual there."""
        rows, known, beside = 0, _Sums(), _Sums()
        for row in (row for at in points for row in self._prompts.get(at, [])):
            rows += row["n"]
            others = [found for found in self._seen[row["prompt_hash"]] if found[0] not in points]
            count = sum(n for _, n, _ in others)
            if count:
                known.add(row["n"], row["n"] * sum(total for _, _, total in others) / count)
                around = sum(n * usual[at] if at in usual else total for at, n, total in others)
                beside.add(row["n"], row["n"] * around / count)
        if not known.count or 2 * known.count < rows:
            return None, None
        return known.mean, beside.mean if usual else None

    def _began_after(self, point: int) -> float:
        """When the first reward of the next point was asked for; 0 without one."""
        later = min((at for at in self._whole if at > point), default=point)
        return max((row["began"] or 0.0 for row in self._whole.get(later, [])), default=0.0)

    def _judges(
        self, whole: list[sqlite3.Row], next_began: float
    ) -> tuple[list[tuple[str, str, str]], dict[str, list[str]]]:
        """The events about judges in the time of these rows, and the models that answered them."""
        began = [row["began"] for row in whole if row["began"] is not None]
        if not began:
            return [], {}
        # anchors are measured behind a step's own judgements, and so may end after its rewards
        ended = max(next_began, *(row["ended"] or 0.0 for row in whole))
        span = {"began": min(began), "ended": ended}
        events = self._rows(
            "SELECT kind, COALESCE(NULLIF(judge, ''), NULLIF(endpoint, ''), '') AS what, "
            "why, fields FROM events WHERE at BETWEEN :began AND :ended ORDER BY at LIMIT 100",
            **span,
        )
        models = self._rows(
            "SELECT judge, model FROM judgements WHERE at BETWEEN :began AND :ended "
            "AND model <> '' GROUP BY judge, model ORDER BY judge, model",
            **span,
        )
        by_judge: dict[str, list[str]] = {}
        for row in models:
            by_judge.setdefault(row["judge"], []).append(row["model"])
        return [(row["kind"], row["what"], event_words(row)) for row in events], by_judge
