"""Why the reward of a step fell: what changed against the steps before, and its likely causes.

`FallReader` reads two windows of a run from its index, the step and up to five steps before it;
`zerowait.observe.causes` compares them. `find_falls` finds the steps that are worth asking about.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from statistics import median
from typing import Any, Final, TypeAlias

import msgspec

from zerowait.observe.axis import Axis
from zerowait.observe.causes import (
    FEWEST_SCORED,
    SURE_Z,
    ComponentFigures,
    DataSource,
    FigureChange,
    LikelyCause,
    RewardWindow,
    change_in_words,
    changes,
    fall_z,
    has_clearly_fallen,
    has_fallen,
    is_silent,
    likely_causes,
    number,
    percent,
    rise_z,
    suddenly_risen,
    worse_parts,
)
from zerowait.observe.config_differences import UsedConfiguration, config_differences
from zerowait.rank_statistics import rank_correlation

STEPS_BEFORE: Final = 5
"""How many points the baseline has."""
_STEPS_LATER: Final = 3
_FALLS_SHOWN: Final = 3
_FALLS_TRIED: Final = 8
_FORM_RULES: Final = ("format", "json_schema")
_SAMPLED: Final = 500
_FEWEST_VALIDATIONS: Final = 3
_SLOW_Z: Final = 6.0
_SLOW_SPLIT: Final = 3
_SLOW_SHARE: Final = 0.6
"""A fall is slow where no six points around one step have so much of it."""
_ALIKE_SAMPLED: Final = 64
_ALIKE_WORDS: Final = 64
_ALIKE_CHARS: Final = 1024
_ALIKE_FEWEST: Final = 8


class Fall(msgspec.Struct, frozen=True, kw_only=True):
    """How a step's reward compares with the steps before, and why.

    Args:
        point: the step. before: the first and the last point of the baseline; None without any.
        since: where a slow fall began, whose end `point` is; None for that of one step.
        fell: whether the mean is lower than before by more than chance, or no row has a value.
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
    since: int | None = None


def event_words(event: sqlite3.Row) -> str:
    """What an event of table ``events`` says, in words: its reason, or its figures."""
    if event["why"]:
        return str(event["why"])
    fields = json.loads(event["fields"] or "{}")
    match event["kind"]:
        case "judge_drifted":
            moved = fields.get("drift", {}).get("mean_abs", 0.0)
            return f"by {percent(moved)} of the range, against the {fields.get('against', 'first')}"
        case "model_changed":
            return f"{fields.get('before', '?')} before, now {fields.get('after', '?')}"
        case "limit_changed":
            return f"{fields.get('before', '?')} to {fields.get('after', '?')} requests in flight"
        case _:
            return ""


def distinct_share(responses: Sequence[Sequence[str]], n: int = 4) -> float | None:
    """Share of the sequences of `n` words that differ from all others; None with fewer than 8.

    A response of fewer words is one sequence.

    >>> distinct_share([["yes"]] * 8)
    0.125
    """
    if len(responses) < _ALIKE_FEWEST:
        return None
    sequences = [
        tuple(words[at : at + n]) for words in responses for at in range(max(len(words) - n, 0) + 1)
    ]
    return len(set(sequences)) / len(sequences)


class _Sums:
    """Adds up counts, sums and sums of squares of values, and those of whole prompt groups."""

    __slots__ = ("count", "groups", "of_counts", "of_products", "of_totals", "square", "total")

    def __init__(self) -> None:
        self.count, self.total, self.square = 0, 0.0, 0.0
        self.groups, self.of_totals, self.of_products, self.of_counts = 0, 0.0, 0.0, 0.0

    def add(self, count: int, total: float | None, square: float | None = None) -> None:
        self.count += count
        self.total += total or 0.0
        self.square += square or 0.0

    def add_row(self, row: sqlite3.Row) -> None:
        """Add a row of a query with the columns of `_GROUPED`."""
        self.add(row["n"], row["total"], row["square"])
        self.groups += row["groups"]
        self.of_totals += row["of_totals"] or 0.0
        self.of_products += row["of_products"] or 0.0
        self.of_counts += row["of_counts"] or 0.0

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    @property
    def sd(self) -> float:
        mean = self.mean
        return 0.0 if mean is None else _root(self.square / self.count - mean * mean)

    @property
    def error(self) -> float | None:
        """Standard error of the mean, clustered by prompt: its responses are not independent.

        Reference:
            Miller 2024, Adding error bars to evals, (arXiv:2411.00640).
        """
        mean = self.mean
        if mean is None or self.groups < _FEWEST_GROUPS:
            return None
        spread = self.of_totals - 2.0 * mean * self.of_products + mean * mean * self.of_counts
        clusters = self.groups / (self.groups - 1)
        return _root(spread * clusters) / self.count


_FEWEST_GROUPS: Final = 4
_GROUPED: Final = (
    "SUM(n) AS n, SUM(total) AS total, SUM(square) AS square, SUM(n > 0) AS groups, "
    "SUM(total * total) AS of_totals, SUM(total * n) AS of_products, SUM(n * n) AS of_counts"
)
_CLUSTER: Final = "COALESCE(r.prompt_group, r.prompt_hash, r.row)"


class SlowFall(msgspec.Struct, frozen=True, kw_only=True):
    """A fall over many points: `high` and `low` are the points before it and at its end."""

    high: list[int]
    low: list[int]


class FallReader:
    """Explains the falls of a run; it reads sums by point once, and adds them up for each window.

    Args:
        connection: from `zerowait.record.open_index`.
        axis: of the run's charts.
        judged: the components that a judge scores.
        only: the one point that will be explained; without it any of them.
        slow: the slow fall that will be explained instead.
        configurations: by which the rows were scored, oldest first.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        axis: Axis,
        judged: frozenset[str],
        *,
        only: int | None = None,
        slow: SlowFall | None = None,
        configurations: Sequence[UsedConfiguration] = (),
    ) -> None:
        self._connection = connection
        self._axis = axis
        self._judged = judged
        self._only = only
        self._configurations = configurations
        self._of_run = f"r.current = 1 AND r.split = :split AND {axis.column} IS NOT NULL"
        if slow is not None:
            high, low = (
                axis.between(points[0], points[-1] + axis.width) for points in (slow.high, slow.low)
            )
            wanted = f"{self._of_run} AND ({high} OR {low})"
        elif only is None:
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
        self._wanted = wanted
        self._whole = self._by_point(
            f"SELECT point, SUM(rows) AS rows, {_GROUPED}, SUM(length) AS length, "
            "MIN(began) AS began, MAX(ended) AS ended, MIN(first_row) AS first_row, "
            "MAX(last_row) AS last_row FROM ("
            "SELECT {point}, COUNT(*) AS rows, COUNT(value) AS n, SUM(value) AS total, "
            "SUM(value * value) AS square, "
            "SUM(COALESCE(response_tokens, response_chars)) AS length, "
            "MIN(NULLIF(submitted_at, 0)) AS began, MAX(settled_at) AS ended, "
            "MIN(r.row) AS first_row, MAX(r.row) AS last_row "
            f"FROM rewards r WHERE {{wanted}} GROUP BY point, r.step, {_CLUSTER}) GROUP BY point",
            wanted,
        )
        # CROSS JOIN: SQLite finds the window's rows first, and not every row of a component
        self._parts = self._by_point(
            f"SELECT point, component, outcome, kind, {_GROUPED} FROM ("
            "SELECT {point}, c.component AS component, c.outcome AS outcome, c.kind AS kind, "
            "COUNT(*) AS n, SUM(c.value) AS total, SUM(c.value * c.value) AS square "
            "FROM rewards r CROSS JOIN components c ON c.row = r.row "
            "WHERE {wanted} "
            f"GROUP BY point, c.component, c.outcome, c.kind, r.step, {_CLUSTER}) "
            "GROUP BY point, component, outcome, kind",
            wanted,
        )
        self._step_sums = self._sums_of_points()

    @cached_property
    def _sources(self) -> dict[int, list[sqlite3.Row]]:
        return self._by_point(
            "SELECT {point}, COALESCE(data_source, '') AS source, COUNT(*) AS n, "
            "COUNT(value) AS scored, SUM(value) AS total FROM rewards r WHERE {wanted} "
            "GROUP BY point, source",
            self._wanted,
        )

    @cached_property
    def _groups(self) -> dict[int, list[sqlite3.Row]]:
        return self._by_point(
            "SELECT point, COUNT(*) AS groups, SUM(highest = lowest) AS equal FROM ("
            "SELECT {point}, MAX(value) AS highest, MIN(value) AS lowest FROM rewards r "
            "WHERE {wanted} AND prompt_group IS NOT NULL GROUP BY point, step, prompt_group "
            "HAVING COUNT(value) > 1) GROUP BY point",
            self._wanted,
        )

    @cached_property
    def _prompts(self) -> dict[int, list[sqlite3.Row]]:
        return self._by_point(
            "SELECT {point}, prompt_hash, COUNT(*) AS n, COUNT(value) AS scored, "
            "SUM(value) AS total FROM rewards r WHERE {wanted} AND prompt_hash IS NOT NULL "
            "GROUP BY point, prompt_hash",
            self._wanted,
        )

    def _by_point(self, sql: str, wanted: str) -> dict[int, list[sqlite3.Row]]:
        found: dict[int, list[sqlite3.Row]] = {}
        for row in self._rows(sql.format(point=f"{self._axis.sql} AS point", wanted=wanted)):
            found.setdefault(row["point"], []).append(row)
        return found

    def _rows(self, sql: str, **parameters: float | str) -> list[sqlite3.Row]:
        return self._connection.execute(sql, {"split": self._axis.split, **parameters}).fetchall()

    @cached_property
    def _seen(self) -> dict[str, list[tuple[int, int, float]]]:
        """Each prompt's points in the whole run, with the number and the sum of its rewards."""
        seen: dict[str, list[tuple[int, int, float]]] = {}
        if self._only is None:
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

    def worsened(self, point: int, *, z: float) -> str:
        """``fell`` or ``changed``: whether the reward fell, or only components; else empty.

        Args:
            point: the point.
            z: by how many standard errors a fall is worth asking about.
        """
        earlier = self._earlier(point)
        before, now = self._figures(earlier), self._figures([point])
        if is_silent(before, now) or has_fallen(before, now, z=z):
            return "fell"
        reconfigured, _ = self._reconfigured(earlier, point, before, now)
        changed = reconfigured or worse_parts(before, now) or suddenly_risen(before, now)
        return "changed" if changed else ""

    def _earlier(self, point: int) -> list[int]:
        return sorted(at for at in self._whole if at < point)[-STEPS_BEFORE:]

    def explain(self, point: int) -> Fall:
        """Why the reward of `point` differs from that of the points before it."""
        earlier = self._earlier(point)
        usual = self._usual_around(point)
        now = self._window([point], usual, with_lengths=True)
        if not earlier:
            words = f"The reward is {number(now.mean)}." if now.scored else "No row has a value."
            return Fall(
                point=point,
                before=None,
                fell=False,
                words=f"{words} It is the first point: there is nothing to compare it with.",
                changes=list(changes(RewardWindow(), now)),
                causes=[],
            )
        before = self._window(earlier, usual, with_lengths=False)
        before, now = self._with_evidence(before, now, earlier, [point])
        causes = likely_causes(before, now)
        return Fall(
            point=point,
            before=(min(earlier), max(earlier)),
            fell=has_fallen(before, now) or is_silent(before, now),
            words=change_in_words(before, now, _named(earlier)),
            changes=sorted(
                changes(before, now), key=lambda c: (c.name != "reward", -abs(c.z or 0.0), c.name)
            ),
            causes=causes,
        )

    def explain_slow(self, slow: SlowFall) -> Fall:
        """Why the reward of a slow fall's last points is lower than that of its highest."""
        usual: dict[int, float] = {}  # prompts are others at either end of a long time
        before = self._window(slow.high, usual, with_lengths=False)
        now = self._window(slow.low, usual, with_lengths=True)
        before, now = self._with_evidence(before, now, slow.high, slow.low)
        high = f"steps {slow.high[0]} to {slow.high[-1]}"
        low = f"steps {slow.low[0]} to {slow.low[-1]}"
        return Fall(
            point=slow.low[-1],
            before=(slow.high[0], slow.high[-1]),
            since=slow.high[-1],
            fell=True,
            words=f"It was slow: no single step between {high} and {low} is to blame. "
            + change_in_words(before, now, high),
            changes=sorted(
                changes(before, now), key=lambda c: (c.name != "reward", -abs(c.z or 0.0), c.name)
            ),
            causes=likely_causes(before, now),
        )

    def _with_evidence(
        self, before: RewardWindow, now: RewardWindow, earlier: list[int], points: list[int]
    ) -> tuple[RewardWindow, RewardWindow]:
        """Both windows, with what is worth reading only where something got worse."""
        point = points[-1]
        reconfigured, reweighed = self._reconfigured(earlier, point, before, now)
        now = msgspec.structs.replace(now, reconfigured=reconfigured, reweighed=reweighed)
        if not (is_silent(before, now) or has_fallen(before, now) or worse_parts(before, now)):
            return before, now
        forms = [name for name in self._form_rules() if name in now.parts]
        rules = [name for name, part in now.parts.items() if part.is_rule]
        held_before, held_now = self._held_out(point)
        source = _shared_source(before, now)
        return msgspec.structs.replace(
            before,
            endpoints=self._endpoints(earlier),
            well_formed={name: self._well_formed(name, earlier, earlier) for name in forms},
            held_out={name: held_before[name] for name in rules if name in held_before},
            distinct=self._distinct(earlier),
            same_source={} if source is None else self._of_source(source, earlier),
        ), msgspec.structs.replace(
            now,
            endpoints=self._endpoints(points),
            form_rules=forms,
            well_formed={name: self._well_formed(name, points, earlier) for name in forms},
            held_out={name: held_now[name] for name in rules if name in held_now},
            later=self._later(point),
            parts=self._with_sources(before, now, points),
            distinct=self._distinct(points),
            same_source={} if source is None else self._of_source(source, points),
        )

    def _of_source(self, source: str, points: list[int]) -> dict[str, ComponentFigures]:
        """Each component on the rows of one data source."""
        inside = self._axis.between(points[0], points[-1] + self._axis.width)
        found = self._rows(
            "SELECT c.component AS component, COUNT(*) AS n, AVG(c.value) AS mean, "
            "AVG(c.value * c.value) AS square FROM rewards r CROSS JOIN components c "
            f"ON c.row = r.row WHERE {self._of_run} AND {inside} "
            "AND COALESCE(r.data_source, '') = :source AND c.outcome = 'score' GROUP BY component",
            source=source,
        )
        return {
            row["component"]: msgspec.structs.replace(
                _figures_of(row["n"], row["mean"], row["square"]),
                judged=row["component"] in self._judged,
                shape="shape" in self._settings.get(row["component"], {}),
            )
            for row in found
        }

    def _with_sources(
        self, before: RewardWindow, now: RewardWindow, points: list[int]
    ) -> dict[str, ComponentFigures]:
        """The components of `now`, with the data sources of those that abstain more often."""
        parts = dict(now.parts)
        inside = self._axis.between(points[0], points[-1] + self._axis.width)
        for name, part in parts.items():
            was = before.parts.get(name, ComponentFigures())
            if part.abstained < 2 or part.abstained_share <= was.abstained_share:
                continue
            found = self._rows(
                "SELECT COALESCE(r.data_source, '') AS source, COUNT(*) AS n, "
                "SUM(c.outcome = 'abstain') AS failed "
                "FROM rewards r CROSS JOIN components c ON c.row = r.row "
                f"WHERE {self._of_run} AND {inside} AND c.component = :name "
                "AND c.outcome <> 'skipped' GROUP BY source",
                name=name,
            )
            sources = {row["source"]: (row["n"], row["failed"]) for row in found}
            parts[name] = msgspec.structs.replace(part, of_sources=sources)
        return parts

    def _distinct(self, points: list[int]) -> float | None:
        """Share of distinct sequences of words in responses to different prompts.

        As many responses of the same length are read of any points, because more text repeats more.
        """
        words: list[list[str]] = []
        each = -(-_ALIKE_SAMPLED // len(points))
        for at in points:
            found = self._rows(
                "SELECT MIN(r.row), SUBSTR(r.response, 1, :chars) AS text FROM rewards r "
                f"WHERE {self._of_run} AND {self._axis.inside(at)} AND r.response <> '' "
                f"GROUP BY r.step, {_CLUSTER} LIMIT :most",
                chars=_ALIKE_CHARS,
                most=each,
            )
            words.extend(row["text"].split()[:_ALIKE_WORDS] for row in found)
        return distinct_share(words[:_ALIKE_SAMPLED])

    @property
    def _settings(self) -> Mapping[str, Mapping[str, Any]]:
        """The components of the last configuration; none where it is not known."""
        return self._configurations[-1].components if self._configurations else {}

    def _form_rules(self) -> list[str]:
        """The components that look at the form of a response alone, by the last configuration."""
        if not self._configurations:
            return []
        parts = self._configurations[-1].components
        return [name for name, part in parts.items() if part.get("scorer") in _FORM_RULES]

    def _reconfigured(
        self, earlier: list[int], point: int, before: RewardWindow, now: RewardWindow
    ) -> tuple[list[str], float | None]:
        """What the configuration changed since the steps before, and how far weights alone move.

        A part of the steps before may have the new configuration already, and so moves nothing.
        """
        used = self._configurations
        firsts = [row["first_row"] for at in earlier for row in self._whole[at]]
        lasts = [row["last_row"] for row in self._whole.get(point, [])]
        if len(used) < 2 or not firsts or not lasts:
            return [], None
        old, new = _used_at(used, min(firsts)), _used_at(used, max(lasts))
        if old.reward == new.reward:
            return [], None
        differences = config_differences(old.reward, new.reward)
        if not old.reward:
            differences = ["the configuration of the steps before cannot be read any more"]
        moved = list(_moved_by_weights(old.components, new.components, before, now))
        if not moved:
            return differences, None
        of_old = sum(
            row["rows"]
            for at in earlier
            for row in self._whole[at]
            if row["first_row"] <= old.last_row
        )
        return differences, sum(moved) * of_old / max(before.rows, 1)

    def _well_formed(self, name: str, points: list[int], earlier: list[int]) -> ComponentFigures:
        """Reward of the rows to which a rule gave the best value that it gave in `earlier`."""
        whole = self._axis.between(min(earlier), max(earlier) + self._axis.width)
        these = self._axis.between(min(points), max(points) + self._axis.width)
        parts = "FROM rewards r CROSS JOIN components c ON c.row = r.row WHERE "
        parts += f"{self._of_run} AND c.component = :name AND c.outcome = 'score' AND "
        row = self._rows(
            "SELECT COUNT(r.value) AS n, AVG(r.value) AS mean, AVG(r.value * r.value) AS square "
            f"{parts}{these} AND c.value >= (SELECT MAX(c.value) {parts}{whole})",
            name=name,
        )[0]
        return _figures_of(row["n"], row["mean"], row["square"])

    def _held_out(
        self, point: int
    ) -> tuple[dict[str, ComponentFigures], dict[str, ComponentFigures]]:
        """Each component on held-out rows, at the last validation before and the first one since.

        A validation right before the step may be of the policy before or after an update; it is
        neither.
        """
        if self._axis.kind != "step":
            return {}, {}
        last = point + self._axis.width - 1
        found = self._rows(
            "SELECT MAX(CASE WHEN step < :before THEN step END) AS known, "
            "MIN(CASE WHEN step >= :last THEN step END) AS tested FROM step_components "
            "WHERE split <> :split AND outcome = 'score'",
            before=point - 1,
            last=last,
        )[0]
        return self._at_step(found["known"]), self._at_step(found["tested"])

    def _at_step(self, step: int | None) -> dict[str, ComponentFigures]:
        if step is None:
            return {}
        return self._step_figures("split <> :split AND step = :first", first=step, end=step)

    def _later(self, point: int) -> dict[str, ComponentFigures]:
        """Each component in the steps after `point`, where there are enough of them."""
        first, width = point + self._axis.width, self._axis.width
        if self._axis.kind != "step":
            return {}
        return self._step_figures(
            "split = :split AND step >= :first AND step < :end AND (SELECT COUNT(DISTINCT step) "
            "FROM steps WHERE split = :split AND step >= :first AND step < :end) > 1",
            first=first,
            end=first + _STEPS_LATER * width,
        )

    def _step_figures(self, where: str, *, first: int, end: int) -> dict[str, ComponentFigures]:
        found = self._rows(
            "SELECT component, SUM(rows) AS n, SUM(rows * mean_value) / SUM(rows) AS mean, "
            "SUM(rows * mean_square) / SUM(rows) AS square FROM step_components "
            f"WHERE outcome = 'score' AND {where} GROUP BY component",
            first=first,
            end=end,
        )
        return {
            row["component"]: _figures_of(row["n"], row["mean"], row["square"]) for row in found
        }

    def _endpoints(self, points: list[int]) -> dict[str, dict[str, ComponentFigures]]:
        """The verdicts of judges with several endpoints, by judge and endpoint."""
        span = self._span([row for at in points for row in self._whole.get(at, [])])
        if span is None:
            return {}
        found = self._rows(
            "SELECT judge, endpoint, COUNT(value) AS n, AVG(value) AS mean, "
            "AVG(value * value) AS square, SUM(outcome = 'abstain') AS abstained FROM judgements "
            "WHERE at BETWEEN :began AND :ended AND endpoint <> '' AND source = 'asked' "
            "GROUP BY judge, endpoint",
            began=span[0],
            ended=span[1],
        )
        by_judge: dict[str, dict[str, ComponentFigures]] = {}
        for row in found:
            figures = _figures_of(row["n"], row["mean"], row["square"])
            by_judge.setdefault(row["judge"], {})[row["endpoint"]] = msgspec.structs.replace(
                figures, abstained=row["abstained"]
            )
        return {judge: those for judge, those in by_judge.items() if len(those) > 1}

    def _figures(self, points: list[int]) -> RewardWindow:
        """The sums of these points, without what other rows and tables say of them."""
        whole = [row for at in points for row in self._whole.get(at, [])]
        reward = _Sums()
        for row in whole:
            reward.add_row(row)
        rows = sum(row["rows"] for row in whole)
        return RewardWindow(
            rows=rows,
            scored=reward.count,
            mean=reward.mean or 0.0,
            sd=reward.sd,
            error=reward.error,
            parts=self._parts_of(points, with_lengths=False),
            length=sum(row["length"] for row in whole) / rows if rows else None,
        )

    def _window(
        self, points: list[int], usual: dict[int, float], *, with_lengths: bool
    ) -> RewardWindow:
        whole = [row for at in points for row in self._whole.get(at, [])]
        groups = [row for at in points for row in self._groups.get(at, [])]
        elsewhere, usual_elsewhere = self._prompts_elsewhere(points, usual)
        events, models = self._judges(whole, self._began_after(max(points)))
        return msgspec.structs.replace(
            self._figures(points),
            parts=self._parts_of(points, with_lengths=with_lengths),
            sources=self._sources_of(points),
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
        skipped: dict[str, int] = {}
        settings = self._settings
        for row in (row for at in points for row in self._parts.get(at, [])):
            name = row["component"]
            sums = scores.setdefault(name, _Sums())
            if row["outcome"] == "score":
                sums.add_row(row)
            elif row["outcome"] == "skipped":
                skipped[name] = skipped.get(name, 0) + row["n"]
            else:
                its, kind = kinds.setdefault(name, {}), row["kind"] or ""
                its[kind] = its.get(kind, 0) + row["n"]
        return {
            name: ComponentFigures(
                scored=sums.count,
                abstained=sum(kinds.get(name, {}).values()),
                mean=sums.mean or 0.0,
                sd=sums.sd,
                error=sums.error,
                skipped=skipped.get(name, 0),
                judged=name in self._judged,
                shape="shape" in settings.get(name, {}),
                weight=_weight(settings.get(name, {})),
                gate=str(settings.get(name, {}).get("gate") or ""),
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
        if len(pairs) < 2 * FEWEST_SCORED:
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

    @staticmethod
    def _span(whole: list[sqlite3.Row]) -> tuple[float, float] | None:
        """When the first of these rows was asked for, and when the last was known."""
        began = [row["began"] for row in whole if row["began"] is not None]
        return (min(began), max(row["ended"] or 0.0 for row in whole)) if began else None

    def _judges(
        self, whole: list[sqlite3.Row], next_began: float
    ) -> tuple[list[tuple[str, str, str]], dict[str, list[str]]]:
        """The events about judges in the time of these rows, and the models that answered them."""
        times = self._span(whole)
        if times is None:
            return [], {}
        # anchors are measured behind a step's own judgements, and so may end after its rewards
        span = {"began": times[0], "ended": max(next_began, times[1])}
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


def _shared_source(before: RewardWindow, now: RewardWindow) -> str | None:
    """The data source of which both windows have most rows; None where there is one alone."""
    both = before.sources.keys() & now.sources.keys()
    if len(before.sources.keys() | now.sources.keys()) < 2 or not both:
        return None
    return max(
        both, key=lambda name: (min(before.sources[name].rows, now.sources[name].rows), name)
    )


def _named(earlier: Sequence[int]) -> str:
    return "the step before" if len(earlier) == 1 else f"the {len(earlier)} steps before"


def _mean_of(values: Iterable[float]) -> float:
    """The mean, also of values whose sum is beyond the range of floats."""
    every = list(values)
    return math.fsum(value / len(every) for value in every)


def _figures_of(count: int, mean: float | None, square: float | None) -> ComponentFigures:
    mean, square = mean or 0.0, square or 0.0
    return ComponentFigures(scored=count, mean=mean, sd=_root(square - mean * mean))


def _root(variance: float) -> float:
    """0 for what rounding made negative, and for squares beyond the range of floats."""
    return math.sqrt(variance) if 0.0 < variance < math.inf else 0.0


def _used_at(used: Sequence[UsedConfiguration], row: int) -> UsedConfiguration:
    return next((each for each in used if row <= each.last_row), used[-1])


def _moved_by_weights(
    old: Mapping[str, Mapping[str, Any]],
    new: Mapping[str, Mapping[str, Any]],
    before: RewardWindow,
    now: RewardWindow,
) -> Iterator[float]:
    """What each change of a weight, or a component's coming or going, adds to the mean reward."""
    for name in old.keys() | new.keys():
        was, weight = _weight(old.get(name)), _weight(new.get(name))
        part = before.parts.get(name) or now.parts.get(name)
        if part is not None and was != weight:
            yield (weight - was) * part.mean * part.scored / max(part.scored + part.abstained, 1)


def _weight(component: Mapping[str, Any] | None) -> float:
    if component is None:
        return 0.0
    weight = component.get("weight", component.get("scale", 1.0))
    return float(weight) if isinstance(weight, int | float) else 1.0


def find_falls(
    connection: sqlite3.Connection,
    axis: Axis,
    judged: frozenset[str],
    configurations: Sequence[UsedConfiguration] = (),
) -> tuple[list[int], list[int]]:
    """The steps worth asking about: where the reward fell, and where only components got worse.

    Of steps in a row that are all worse than those before them only the first is named, the
    clearest falls first. Empty where rows have no steps.

    Args:
        connection: from `zerowait.record.open_index`.
        axis: of the run's charts.
        judged: the components that a judge scores.
        configurations: by which the rows were scored, oldest first.
    """
    found: dict[str, list[int]] = {"fell": [], "changed": []}
    if axis.kind == "step":
        suspects, unusual = _suspects(connection, axis, judged, configurations)
        for at in suspects:
            reader = FallReader(connection, axis, judged, only=at, configurations=configurations)
            how = reader.worsened(at, z=unusual)
            if how:
                found[how].append(at)
    return found["fell"][:_FALLS_SHOWN], found["changed"][:_FALLS_SHOWN]


def find_slow_fall(connection: sqlite3.Connection, axis: Axis) -> SlowFall | None:
    """The deepest fall of the mean reward that no single step explains; None without any.

    Five points in a row are compared with the best five before them. The noise is that of means
    from point to point, so that responses that are alike, or prompts that differ, count as it.
    """
    if axis.kind != "step":
        return None
    found = connection.execute(
        f"SELECT {axis.of('step')} AS point, SUM(scored * mean_value) / SUM(scored) AS mean "
        "FROM steps WHERE split = ? AND step IS NOT NULL AND scored > 0 "
        "GROUP BY point ORDER BY point",
        (axis.split,),
    ).fetchall()
    points, means = [row["point"] for row in found], [row["mean"] for row in found]
    if len(means) < 2 * STEPS_BEFORE:
        return None
    smooth = [
        _mean_of(means[at : at + STEPS_BEFORE]) for at in range(len(means) - STEPS_BEFORE + 1)
    ]
    # of a difference of two points; the slope itself adds hardly anything to it
    noise = 1.4826 * median(abs(b - a) for a, b in pairwise(means)) / math.sqrt(2.0)
    depth, high, low = 0.0, 0, 0
    best = 0
    for at in range(STEPS_BEFORE, len(smooth)):
        best = max(best, at - STEPS_BEFORE, key=lambda each: smooth[each])
        if smooth[best] - smooth[at] > depth:
            depth, high, low = smooth[best] - smooth[at], best, at
    error = noise * math.sqrt(2.0 / STEPS_BEFORE)
    if not 1e-9 * max(map(abs, means)) < depth > _SLOW_Z * error:
        return None
    steepest = max(
        _mean_of(means[at - _SLOW_SPLIT : at]) - _mean_of(means[at : at + _SLOW_SPLIT])
        for at in range(high + _SLOW_SPLIT, low + _SLOW_SPLIT)
    )
    if steepest > _SLOW_SHARE * depth:
        return None
    return SlowFall(high=points[high : high + STEPS_BEFORE], low=points[low : low + STEPS_BEFORE])


def held_out_falls(connection: sqlite3.Connection, axis: Axis) -> Iterator[str]:
    """Where a held-out split fell from its best while training did not, in words."""
    if axis.kind != "step":
        return
    by_split: dict[str, list[tuple[int, ComponentFigures]]] = {}
    for row in connection.execute(
        "SELECT split, step, scored, mean_value, mean_square FROM steps "
        "WHERE step IS NOT NULL AND scored > 0 ORDER BY split, step"
    ):
        figures = _figures_of(row["scored"], row["mean_value"], row["mean_square"])
        by_split.setdefault(row["split"], []).append((row["step"], figures))
    trained = by_split.pop(axis.split, [])
    for split, known in by_split.items():
        if len(known) < _FEWEST_VALIDATIONS:
            continue
        (high, best), (low, last) = max(known[:-1], key=lambda each: each[1].mean), known[-1]
        then, now = _mean_around(trained, high), _mean_around(trained, low)
        if then is None or now is None or now < then or not has_clearly_fallen(best, last):
            continue
        yield (
            f"{split} fell from {number(best.mean)} at step {high} to {number(last.mean)} at step "
            f"{low}, while {axis.split} went from {number(then)} to {number(now)}: the policy "
            "learns the training prompts by heart, or pleases a judge that can be fooled. The "
            f"checkpoint of step {high} is the better one."
        )


def _mean_around(trained: list[tuple[int, ComponentFigures]], step: int) -> float | None:
    """The mean of up to five steps around this one; None without any."""
    near = sorted(trained, key=lambda each: abs(each[0] - step))[:STEPS_BEFORE]
    return _mean_of(figures.mean for _, figures in near) if near else None


def _suspects(
    connection: sqlite3.Connection,
    axis: Axis,
    judged: frozenset[str],
    configurations: Sequence[UsedConfiguration],
) -> tuple[list[int], float]:
    """Points that seem worse than those before, the clearest first, by the sums of steps alone.

    A judge that gives much more at once is as suspect as one that gives less. Also by how many
    standard errors a fall has to be one; of many points some are low by chance.
    """
    figures = _figures_by_point(connection, axis)
    points = sorted({at for of in figures.values() for at in of})
    # near the universal threshold, below which the lowest of n normal draws seldom is: a little
    # above it, for one fall by chance costs a reader less than one that is not named
    unusual = max(2.0, math.sqrt(2.0 * math.log(max(len(points), 1))) - 0.5)
    worst: dict[int, float] = {}
    risen: dict[int, float] = {}
    for name, of in figures.items():
        for index, at in enumerate(points):
            before = points[max(index - STEPS_BEFORE, 0) : index]
            was = _figures_in([_NO_ROWS, *(of[each] for each in before if each in of)])
            now = _figures_in([of.get(at, _NO_ROWS)])
            z = fall_z(was, now)
            if z <= -max(unusual, 0.0 if name is None else SURE_Z):
                worst[at] = min(worst.get(at, 0.0), z)
            elif name in judged and (rise := rise_z(was, now)):
                risen[at] = max(risen.get(at, 0.0), rise)
    for used in configurations[1:]:
        row = connection.execute(
            f"SELECT {axis.sql} AS point FROM rewards r WHERE row >= ? AND split = ? "
            "AND current = 1 AND step IS NOT NULL LIMIT 1",
            (used.first_row, axis.split),
        ).fetchone()
        if row is not None:
            worst[row["point"]] = -math.inf
    fallen = sorted(_first_of_each_row(points, worst), key=lambda at: (worst[at], at))
    rising = sorted(_first_of_each_row(points, risen), key=lambda at: (-risen[at], at))
    return list(dict.fromkeys([*fallen[:_FALLS_TRIED], *rising[:_FALLS_SHOWN]])), unusual


def _first_of_each_row(points: list[int], found: Mapping[int, float]) -> list[int]:
    """Of points in a row only the first."""
    return [
        at
        for before, at in zip([None, *points], points, strict=False)
        if at in found and before not in found
    ]


Counts: TypeAlias = tuple[int, int, float, float]
"""Rows, rows with a value, and the sums of the values and of their squares."""
_NO_ROWS: Final[Counts] = (0, 0, 0.0, 0.0)


def _figures_by_point(
    connection: sqlite3.Connection, axis: Axis
) -> dict[str | None, dict[int, Counts]]:
    """Counts by component, whose rows are those with a verdict or an abstention, and by point.

    None stands for the reward.
    """
    found = connection.execute(
        f"SELECT NULL AS component, {axis.of('step')} AS point, SUM(rows) AS n, "
        "SUM(scored) AS scored, SUM(scored * mean_value) AS total, "
        "SUM(scored * mean_square) AS square FROM steps "
        "WHERE split = :split AND step IS NOT NULL GROUP BY point UNION ALL "
        f"SELECT component, {axis.of('step')} AS point, SUM(rows) AS n, "
        "SUM(CASE WHEN outcome = 'score' THEN rows ELSE 0 END) AS scored, "
        "SUM(CASE WHEN outcome = 'score' THEN rows * mean_value END) AS total, "
        "SUM(CASE WHEN outcome = 'score' THEN rows * mean_square END) AS square "
        "FROM step_components WHERE split = :split AND step IS NOT NULL AND outcome <> 'skipped' "
        "GROUP BY component, point",
        {"split": axis.split},
    )
    figures: dict[str | None, dict[int, Counts]] = {}
    for row in found:
        counts = row["n"], row["scored"] or 0, row["total"] or 0.0, row["square"] or 0.0
        figures.setdefault(row["component"], {})[row["point"]] = counts
    return figures


def _figures_in(points: list[Counts]) -> ComponentFigures:
    rows, scored = sum(each[0] for each in points), sum(each[1] for each in points)
    total, square = sum(each[2] for each in points), sum(each[3] for each in points)
    figures = _figures_of(scored, total / max(scored, 1), square / max(scored, 1))
    return msgspec.structs.replace(figures, abstained=rows - scored)
