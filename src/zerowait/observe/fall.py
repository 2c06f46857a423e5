"""Why the reward of a step fell: what changed against the steps before, and its likely cause.

`explain_fall` reads two windows of a run from its index, the step and up to five steps before it,
and compares them. `likely_causes` is a pure function of the two windows: each cause has evidence in
words and a strength in [0, 1], which says how well the evidence fits, and is no probability.
"""

from __future__ import annotations

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
_SAMPLED: Final = 2000
_SOURCES_SHOWN: Final = 4


class Part(msgspec.Struct, frozen=True, kw_only=True):
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


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A data source in a window: its rows, and the mean reward of those with a value."""

    rows: int
    mean: float | None


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about one step, or about the steps before it.

    Args:
        rows, scored: number of rows, and of those with a reward. mean, sd: of the reward.
        parts: by component. sources: by data source.
        length: mean length of the responses; None if unknown.
        groups, equal_groups: prompt groups of several scored rows, and those without variance.
        prompts_elsewhere: mean reward that the same prompts got in all other steps; None where
            fewer than half of the rows have one.
        events: ``(kind, judge or endpoint, why)`` of what happened to judges in the window.
        models: served model names by judge.
    """

    rows: int = 0
    scored: int = 0
    mean: float = 0.0
    sd: float = 0.0
    parts: dict[str, Part] = {}
    sources: dict[str, Source] = {}
    length: float | None = None
    groups: int = 0
    equal_groups: int = 0
    prompts_elsewhere: float | None = None
    events: list[tuple[str, str, str]] = []
    models: dict[str, list[str]] = {}


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One figure before and now; `z`: the change in standard errors, None where it has none."""

    name: str
    before: float | None
    now: float | None
    z: float | None = None
    unit: str = ""


class Cause(msgspec.Struct, frozen=True, kw_only=True):
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
    changes: list[Change]
    causes: list[Cause]


def explain_fall(connection: sqlite3.Connection, axis: Axis, point: int) -> Fall:
    """Why the reward of `point` differs from that of the points before it.

    Args:
        connection: from `zerowait.record.open_index`.
        axis: of the run's charts.
        point: one of its points.
    """
    earlier = [
        row["point"]
        for row in connection.execute(
            f"SELECT DISTINCT {axis.sql} AS point FROM rewards r WHERE current = 1 AND split = ? "
            f"AND {axis.column} < ? ORDER BY point DESC LIMIT ?",
            (axis.split, point, STEPS_BEFORE),
        )
    ]
    reader = _WindowReader(connection, axis, min(earlier, default=point), point + axis.width)
    now = reader.read(point, point + axis.width)
    if not earlier:
        words = f"The reward is {_number(now.mean)}." if now.scored else "No row has a value."
        return Fall(
            point=point,
            before=None,
            fell=False,
            words=f"{words} It is the first point, so that there is nothing to compare it with.",
            changes=list(changes(Window(), now)),
            causes=[],
        )
    before = reader.read(min(earlier), point)
    fell = has_fallen(before, now)
    return Fall(
        point=point,
        before=(min(earlier), max(earlier)),
        fell=fell,
        words=_in_words(before, now, len(earlier)),
        changes=sorted(
            changes(before, now), key=lambda c: (c.name != "reward", -abs(c.z or 0.0), c.name)
        ),
        causes=likely_causes(before, now),
    )


def has_fallen(before: Window, now: Window) -> bool:
    """Whether the mean reward is lower now by more than two standard errors."""
    if not (before.scored and now.scored):
        return False
    return _z(_reward(before), _reward(now)) <= -2.0


def _reward(window: Window) -> Part:
    return Part(scored=window.scored, mean=window.mean, sd=window.sd)


def _z(before: Part, now: Part) -> float:
    """The change of a mean in standard errors; of no values 0."""
    if not (before.scored and now.scored):
        return 0.0
    # a step without any variance still has the baseline's
    spread = math.sqrt(
        max(before.sd, 1e-9) ** 2 / before.scored + max(now.sd, 0.5 * before.sd) ** 2 / now.scored
    )
    return max(-1e6, min(1e6, (now.mean - before.mean) / max(spread, 1e-9)))


def _in_words(before: Window, now: Window, steps: int) -> str:
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


def changes(before: Window, now: Window) -> Iterator[Change]:
    """The figures of both windows, in no order that means anything."""
    yield _mean_change("reward", _reward(before), _reward(now))
    yield Change(
        name="rows without a value",
        before=_share(before.rows - before.scored, before.rows),
        now=_share(now.rows - now.scored, now.rows),
        z=_share_z((before.rows - before.scored, before.rows), (now.rows - now.scored, now.rows)),
        unit="%",
    )
    for name in sorted(before.parts.keys() | now.parts.keys()):
        was, part = before.parts.get(name, Part()), now.parts.get(name, Part())
        yield _mean_change(name, was, part)
        if was.abstained or part.abstained:
            yield Change(
                name=f"{name} abstained",
                before=was.abstained_share if was.scored + was.abstained else None,
                now=part.abstained_share if part.scored + part.abstained else None,
                z=_share_z(
                    (was.abstained, was.scored + was.abstained),
                    (part.abstained, part.scored + part.abstained),
                ),
                unit="%",
            )
    yield Change(name="response length", before=before.length, now=now.length)
    yield Change(
        name="groups whose rewards are all the same",
        before=_share(before.equal_groups, before.groups),
        now=_share(now.equal_groups, now.groups),
        z=_share_z((before.equal_groups, before.groups), (now.equal_groups, now.groups)),
        unit="%",
    )
    yield Change(
        name="what these prompts got in other steps",
        before=before.prompts_elsewhere,
        now=now.prompts_elsewhere,
    )
    if len(before.sources.keys() | now.sources.keys()) > 1:
        yield from _source_changes(before, now)


def _source_changes(before: Window, now: Window) -> Iterator[Change]:
    names = sorted(
        before.sources.keys() | now.sources.keys(),
        key=lambda name: -abs(_source_share(now, name) - _source_share(before, name)),
    )
    for name in names[:_SOURCES_SHOWN]:
        yield Change(
            name=f"rows of {name or 'no data source'}",
            before=_source_share(before, name) if before.rows else None,
            now=_source_share(now, name) if now.rows else None,
            unit="%",
        )


def _mean_change(name: str, before: Part, now: Part) -> Change:
    return Change(
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


def likely_causes(before: Window, now: Window) -> list[Cause]:
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

    def cause(self, kind: str, title: str, advice: str) -> Cause:
        return Cause(
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


def _judge_outage(before: Window, now: Window) -> Cause:
    evidence = _Evidence()
    for name in sorted(now.parts):
        part, was = now.parts[name], before.parts.get(name, Part())
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


def _judge_drift(before: Window, now: Window) -> Cause:
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
    if fell and rules and min(rules.values()) > -2.0:
        worst = min(fell, key=lambda name: (fell[name], name))
        evidence.add(
            0.55,
            f"{worst}, which a judge scores, fell from {_number(before.parts[worst].mean)} to "
            f"{_number(now.parts[worst].mean)} while no rule did",
        )
    elif not fell and not told:
        return Cause(kind="judge_drift", title="", strength=0.0, evidence=[], advice="")
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
        "(docs/how-to/audit-a-judge.md); compare a reply of this step with one of the steps before.",
    )


def _z_of(before: Window, now: Window, *, judged: bool) -> dict[str, float]:
    """The change of each component of that sort that has enough values, in standard errors."""
    return {
        name: _z(before.parts[name], part)
        for name, part in now.parts.items()
        if part.judged is judged
        and name in before.parts
        and min(part.scored, before.parts[name].scored) >= _FEWEST_SCORED
    }


def _harder_prompts(before: Window, now: Window) -> Cause:
    evidence = _Evidence()
    fall = before.mean - now.mean if now.scored and before.scored else 0.0
    if fall > 0:
        _weigh_mix(evidence, before, now, fall)
        if before.prompts_elsewhere is not None and now.prompts_elsewhere is not None:
            harder = before.prompts_elsewhere - now.prompts_elsewhere
            if harder > 0.1 * fall:
                evidence.add(
                    0.85 * min(harder / fall, 1.0),
                    f"the same prompts got {_number(now.prompts_elsewhere)} in other steps, those "
                    f"of the steps before {_number(before.prompts_elsewhere)}",
                )
    return evidence.cause(
        "harder_prompts",
        "The prompts are harder, or other ones, than before",
        "Nothing is broken. Compare rewards within a data source, shuffle the data, or make the "
        "order a curriculum on purpose; the held-out score says whether the policy got worse.",
    )


def _weigh_mix(evidence: _Evidence, before: Window, now: Window, fall: float) -> None:
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


def _source_share(window: Window, name: str) -> float:
    source = window.sources.get(name)
    return source.rows / window.rows if source is not None and window.rows else 0.0


def _longer_responses(before: Window, now: Window) -> Cause:
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
        "to ignore length, or gate the judge by the rule (docs/how-to/lengths.md).",
    )


def _shorter_responses(before: Window, now: Window) -> Cause:
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


def _worse_responses(before: Window, now: Window) -> Cause:
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


class _WindowReader:
    """Reads windows of one run; `first` to `end` are the points that both windows are in."""

    def __init__(self, connection: sqlite3.Connection, axis: Axis, first: int, end: int) -> None:
        self._connection = connection
        self._axis = axis
        self._both = axis.between(first, end)

    def read(self, first: int, end: int) -> Window:
        """The window of the points from `first` to before `end`."""
        inside = f"r.current = 1 AND r.split = :split AND {self._axis.between(first, end)}"
        whole = self._rows(
            "SELECT COUNT(*) AS rows, COUNT(value) AS scored, AVG(value) AS mean, "
            "AVG(value * value) AS square, "
            "AVG(COALESCE(response_tokens, response_chars)) AS length "
            f"FROM rewards r WHERE {inside}"
        )[0]
        equal = self._rows(
            "SELECT COUNT(*) AS groups, SUM(highest = lowest) AS equal FROM (SELECT "
            "MAX(value) AS highest, MIN(value) AS lowest FROM rewards r "
            f"WHERE {inside} AND prompt_group IS NOT NULL GROUP BY step, prompt_group "
            "HAVING COUNT(value) > 1)"
        )[0]
        events, models = self._judges(inside)
        return Window(
            rows=whole["rows"],
            scored=whole["scored"],
            mean=whole["mean"] or 0.0,
            sd=_sd(whole),
            parts=self._parts(inside),
            sources={
                row["data_source"] or "": Source(rows=row["n"], mean=row["mean"])
                for row in self._rows(
                    "SELECT data_source, COUNT(*) AS n, AVG(value) AS mean FROM rewards r "
                    f"WHERE {inside} GROUP BY data_source"
                )
            },
            length=whole["length"],
            groups=equal["groups"],
            equal_groups=equal["equal"] or 0,
            prompts_elsewhere=self._prompts_elsewhere(inside),
            events=events,
            models=models,
        )

    def _rows(self, sql: str, **parameters: float | str) -> list[sqlite3.Row]:
        return self._connection.execute(sql, {"split": self._axis.split, **parameters}).fetchall()

    def _parts(self, inside: str) -> dict[str, Part]:
        judged = {
            row["component"] for row in self._rows("SELECT DISTINCT component FROM judgements")
        }
        found = self._rows(
            "SELECT c.component AS component, c.outcome AS outcome, c.kind AS kind, COUNT(*) AS n, "
            "AVG(c.value) AS mean, AVG(c.value * c.value) AS square FROM components c "
            f"JOIN rewards r ON r.row = c.row WHERE {inside} AND c.outcome <> 'skipped' "
            "GROUP BY c.component, c.outcome, c.kind ORDER BY c.component"
        )
        parts: dict[str, Part] = {}
        for row in found:
            name = row["component"]
            part = parts.get(name)
            if part is None:
                part = Part(judged=name in judged, by_length=self._by_length(inside, name))
            if row["outcome"] == "score":
                part = msgspec.structs.replace(part, scored=row["n"], mean=row["mean"], sd=_sd(row))
            else:
                part = msgspec.structs.replace(
                    part,
                    abstained=part.abstained + row["n"],
                    kinds=part.kinds | {row["kind"] or "": row["n"]},
                )
            parts[name] = part
        return parts

    def _by_length(self, inside: str, name: str) -> float | None:
        pairs = self._rows(
            "SELECT c.value AS value, COALESCE(r.response_tokens, r.response_chars) AS length "
            f"FROM components c JOIN rewards r ON r.row = c.row WHERE {inside} "
            "AND c.component = :name AND c.outcome = 'score' ORDER BY r.row LIMIT :limit",
            name=name,
            limit=_SAMPLED,
        )
        if len(pairs) < 2 * _FEWEST_SCORED:
            return None
        return rank_correlation([p["value"] for p in pairs], [p["length"] for p in pairs])

    def _prompts_elsewhere(self, inside: str) -> float | None:
        """Mean reward of these rows' prompts in the steps that are in neither window."""
        found = self._rows(
            "WITH mine AS (SELECT prompt_hash, COUNT(*) AS n FROM rewards r "
            f"WHERE {inside} AND prompt_hash IS NOT NULL GROUP BY prompt_hash), "
            "others AS (SELECT prompt_hash, AVG(value) AS mean FROM rewards r WHERE r.current = 1 "
            f"AND r.split = :split AND NOT {self._both} AND value IS NOT NULL "
            "AND prompt_hash IN (SELECT prompt_hash FROM mine) GROUP BY prompt_hash) "
            "SELECT SUM(n) AS rows, SUM(CASE WHEN mean IS NOT NULL THEN n END) AS known, "
            "SUM(n * mean) AS total FROM mine LEFT JOIN others USING (prompt_hash)"
        )[0]
        if not found["known"] or 2 * found["known"] < found["rows"]:
            return None
        return float(found["total"] / found["known"])

    def _judges(self, inside: str) -> tuple[list[tuple[str, str, str]], dict[str, list[str]]]:
        """The events about judges in the time of these rows, and the models that answered them."""
        span = self._rows(
            "SELECT MIN(NULLIF(submitted_at, 0)) AS began, MAX(settled_at) AS ended "
            f"FROM rewards r WHERE {inside}"
        )[0]
        if span["began"] is None:
            return [], {}
        events = self._rows(
            "SELECT kind, COALESCE(NULLIF(judge, ''), NULLIF(endpoint, ''), '') AS what, why "
            "FROM events WHERE at BETWEEN :began AND :ended ORDER BY at LIMIT 100",
            began=span["began"],
            ended=span["ended"],
        )
        models = self._rows(
            "SELECT judge, model FROM judgements WHERE at BETWEEN :began AND :ended "
            "AND model <> '' GROUP BY judge, model ORDER BY judge, model",
            began=span["began"],
            ended=span["ended"],
        )
        by_judge: dict[str, list[str]] = {}
        for row in models:
            by_judge.setdefault(row["judge"], []).append(row["model"])
        return [(row["kind"], row["what"], row["why"] or "") for row in events], by_judge


def _sd(row: sqlite3.Row) -> float:
    """The standard deviation from the means of the values and of their squares."""
    if row["mean"] is None:
        return 0.0
    return math.sqrt(max(row["square"] - row["mean"] ** 2, 0.0))
