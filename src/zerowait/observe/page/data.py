"""What a page about a run shows, one JSON document for each view, from the index of its record.

Every document is made of aggregates that SQLite computes, so that its size depends on what is
drawn, never on the number of rows. `view_document` gives one view; `point` gives what the panel of
one step shows. ``charts.js`` draws each from its JSON. In the JSON a value that was not measured is
null, never 0.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, Literal

import msgspec

from zerowait.engine import ALARMS, failure_words
from zerowait.errors import DataError
from zerowait.judge.reply import decode_reply
from zerowait.observe.axis import Axis, find_axis
from zerowait.observe.config_differences import UsedConfiguration, used_configurations
from zerowait.observe.fall import (
    Fall,
    FallReader,
    SlowFall,
    event_words,
    find_falls,
    find_slow_fall,
    held_out_falls,
)
from zerowait.observe.timeline import StepTimes, step_times
from zerowait.rank_statistics import rank_correlation
from zerowait.record import RecordIndex, damage_in

QUANTILES: Final = (0.1, 0.25, 0.5, 0.75, 0.9)
MAX_DOTS: Final = 600
"""The most responses that a scatter plot shows."""
SAMPLED_ROWS: Final = 50_000
"""Components and relations of larger runs are computed from a sample of about so many rows."""
MAX_TIMES: Final = 160
"""The most points of a chart over time."""
TEXT_CHARS: Final = 1200
"""Characters of a prompt, response or reply that a page shows."""
_GROUPS_SHOWN: Final = 3
_REASONS_SHOWN: Final = 8
_REASONS_READ: Final = 10_000
_ALARMS_SHOWN: Final = 100
_PAIRS_SHOWN: Final = 6
_COMPONENTS_SHOWN: Final = 24
_ROWS_OF_COMPONENTS: Final = 5000
_ROWS_OF_TIMES: Final = 5000
_BINS: Final = 12
_CELLS: Final = 1000


class RecordedRun(msgspec.Struct, frozen=True):
    """An open index and the axis of its charts.

    Args:
        connection: from `zerowait.record.open_index`.
        axis: of the charts by step.
        judged: the components that a judge scores, as far as judgements were recorded.
        every: components and relations are computed from every so many rows.
        name: of the run, for headings.
        configurations: by which its rows were scored, oldest first.
    """

    connection: sqlite3.Connection
    axis: Axis
    judged: frozenset[str]
    every: int = 1
    name: str = ""
    configurations: tuple[UsedConfiguration, ...] = ()

    def rows(self, sql: str, **parameters: Any) -> list[sqlite3.Row]:
        """The result of a query, in which ``:main`` is the axis's split."""
        return self.connection.execute(sql, {"main": self.axis.split, **parameters}).fetchall()

    def falls(self) -> tuple[list[int], list[int]]:
        """The points worth asking about; see `find_falls`."""
        return find_falls(self.connection, self.axis, self.judged, self.configurations)

    def slow_fall(self) -> SlowFall | None:
        """The deepest fall that no single step explains; see `find_slow_fall`."""
        return find_slow_fall(self.connection, self.axis)

    def explain_slow(self, slow: SlowFall) -> Fall:
        """Why the reward fell there."""
        reader = FallReader(
            self.connection,
            self.axis,
            self.judged,
            slow=slow,
            configurations=self.configurations,
        )
        return reader.explain_slow(slow)

    def fall_reader(self, *, only: int | None = None) -> FallReader:
        """What explains the falls of this run, or that of one point."""
        return FallReader(
            self.connection,
            self.axis,
            self.judged,
            only=only,
            configurations=self.configurations,
        )


def open_run(connection: RecordIndex, name: str = "") -> RecordedRun:
    """The run whose index this is; call it again when the index has grown."""
    # from one to the next in the index, which SQLite itself reads as a whole for DISTINCT
    found = connection.execute(
        "WITH RECURSIVE names(name) AS (SELECT MIN(component) FROM judgements WHERE component > '' "
        "UNION ALL SELECT (SELECT MIN(component) FROM judgements WHERE component > name) "
        "FROM names WHERE name IS NOT NULL) SELECT name FROM names WHERE name IS NOT NULL"
    )
    judged = {row["name"] for row in found}
    configurations = tuple(used_configurations(connection, connection.folder))
    for used in configurations:  # judgements need not be recorded
        judged |= {name for name, part in used.components.items() if part.get("judge")}
    last = connection.execute("SELECT MAX(row) FROM rewards").fetchone()[0] or 0
    # odd, so that of a group of 2, 4, 8 ... responses each has its turn
    every = (last // SAMPLED_ROWS) | 1
    return RecordedRun(
        connection, find_axis(connection), frozenset(judged), every, name, configurations
    )


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """Values by point: each list has one entry per entry of `points`.

    Args:
        points: steps, or the first row's number of each bin.
        rows: how many rows there are; scored: how many of them have a value.
        mean: over the scored rows. quantiles: p10, p25, p50, p75 and p90 over them, by point, exact
            to a thousandth of the range.
    """

    points: list[int]
    rows: list[int]
    scored: list[int]
    mean: list[float | None]
    quantiles: list[list[float] | None]


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """View ``overview``: what the run is, in numbers.

    Args:
        axis: ``kind`` step or rows, ``width`` steps or rows for each point, the ``split`` drawn.
        splits: rows by split. rows: current ones. abstained: rows without a value.
        abstentions: abstained components, some of which a failure policy may have given a value.
        superseded: rows that were judged again, of which only the last counts.
        without_step: rows of the split that the charts by step leave out.
        components: names in order; judged: those that a judge scores.
        began_at, ended_at: Unix times of the first submission and the last reward.
        first, last: mean reward of the first and the last point.
        asked, cached, joined: judgements. requests, retries, hedges, spent_usd, prompt_tokens,
            completion_tokens: of the judges, as counted by the hubs. exposed_s: in all steps.
        failures: the commonest reasons, in the providers' words, with how often.
    """

    run: str
    axis: dict[str, str | int]
    splits: dict[str, int]
    rows: int
    abstained: int
    abstentions: int
    superseded: int
    without_step: int
    components: list[str]
    judged: list[str]
    began_at: float | None
    ended_at: float | None
    first: float | None
    last: float | None
    counters: dict[str, float]
    exposed_s: float | None
    failures: list[Failure]
    notes: list[str]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One reason for which judgements were not reached: `why` is in the provider's words."""

    kind: str
    why: str
    count: int


class RewardCurves(msgspec.Struct, frozen=True, kw_only=True):
    """View ``rewards``: the reward by point, and on each other split (`held_out`, by its name).

    Args:
        falls: where the reward fell, or no row has one, the clearest first.
        changed: where only components got worse, a judge gave much more at once, or the
            configuration is another one, the clearest first.
        slow: where a slow fall began and ended; None without one.
        notes: what goes wrong over a longer time, in words.
    """

    train: Band
    held_out: dict[str, Band]
    falls: list[int]
    changed: list[int]
    slow: tuple[int, int] | None
    notes: list[str]


class Components(msgspec.Struct, frozen=True, kw_only=True):
    """View ``components``: each component's value by point, by its name."""

    components: dict[str, Band]


class Abstentions(msgspec.Struct, frozen=True, kw_only=True):
    """View ``abstentions``: abstained components by point, by ``component/kind``."""

    points: list[int]
    rows: list[int]
    kinds: dict[str, list[int]]


class Judges(msgspec.Struct, frozen=True, kw_only=True):
    """View ``judges``: the judges over time.

    Args:
        at: Unix times, the same for all lists.
        limit, in_flight: requests in flight, allowed and actual.
        p50_s, p95_s, p99_s: latency of answered requests.
        hit_rate: share of judgements so far that needed no request. spent_usd: so far.
        judges: one row per judge: its counts.
        events: what happened to endpoints, models and limits, oldest first.
    """

    at: list[float]
    limit: list[float | None]
    in_flight: list[float | None]
    p50_s: list[float | None]
    p95_s: list[float | None]
    p99_s: list[float | None]
    hit_rate: list[float | None]
    spent_usd: list[float | None]
    judges: list[dict[str, Any]]
    events: list[dict[str, Any]]


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """View ``waits``: seconds that the trainer waited for rewards, by step; empty if unmeasured."""

    points: list[int]
    exposed_s: list[float]
    timelines: list[int]


class Groups(msgspec.Struct, frozen=True, kw_only=True):
    """View ``groups``: prompt groups by point, and those whose rewards are all the same."""

    points: list[int]
    groups: list[int]
    equal: list[int]


class Scatter(msgspec.Struct, frozen=True, kw_only=True):
    """How one number goes with another over rows of the run.

    Args:
        x, y: their names. dots: a sample of the rows.
        means: mean `y` in bins of `x`, ``[x, y, n]``.
        rho: Spearman's rank correlation over the dots; None where one of them has one value.
    """

    x: str
    y: str
    dots: list[tuple[float, float]]
    means: list[tuple[float, float, int]]
    rho: float | None
    rows: int


class Relations(msgspec.Struct, frozen=True, kw_only=True):
    """Views ``length`` (reward and components against length) and ``agreement`` (judge, rule)."""

    relations: list[Scatter]


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """One health alarm: what it means in words, its figures, and what to do."""

    step: int | None
    kind: str
    component: str
    meaning: str
    why: str
    advice: str


class Alarms(msgspec.Struct, frozen=True, kw_only=True):
    """View ``alarms``: the health alarms of the run, oldest first."""

    alarms: list[Alarm]


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A judgement of a response: the judge's reply (shortened), and its verdict or failure."""

    judge: str
    component: str
    outcome: str
    value: float | None
    kind: str
    why: str
    model: str
    reply: str | None


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """A response in a group; texts are shortened, None where they were not kept."""

    row: int
    value: float | None
    why: str
    text: str | None
    tokens: int | None
    components: list[dict[str, Any]]
    judgements: list[Judged]


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt's responses in one step: its best and its worst."""

    group: str
    data_source: str
    prompt: str | None
    rows: int
    scored: int
    mean: float | None
    lowest: float | None
    highest: float | None
    responses: list[Response]


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """A step's phases, ``[name, began_s, ended_s]`` from its start, and its groups' rewards."""

    lasted_s: float
    waited_s: float
    phases: list[tuple[str, float, float]]
    groups: list[tuple[float, float]]


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """What the panel of one step shows: why its reward changed, its groups, its times.

    `slow` is the slow fall that ends at this point; None without one.
    """

    point: int
    fall: Fall
    slow: Fall | None = None
    worst: list[Group] = []
    best: list[Group] = []
    timeline: Timeline | None = None


ADVICE: Final[dict[str, str]] = {
    "all_equal": "No gradient comes of this step. Look at one group: are the responses right, or "
    "is the rule blind? Use harder prompts, or a finer rule or rubric.",
    "saturated": "If responses are right, use harder prompts. If they are not, the rule or judge "
    "is too easy to please: read the best group's replies.",
    "not_finite": "A function of yours divides by zero or takes the logarithm of nothing: its "
    "reply is in the abstentions. Return a finite number, or raise an exception.",
    "bimodal_length": "Read a short and a long response of this step: refusals, or cut-off ones, "
    "often make the second peak.",
    "judge_disagrees": "Read the worst groups with the judge's replies: does the rubric reward "
    "style over the right answer? Give the judge the reference, or gate it by the rule.",
    "mean_jump": "Select the step on the curve: the panel says what changed.",
    "judge_fails": "Read the commonest failure in the provider's words. No answer, or 5xx: look at "
    "the provider's status page or your server. 401, 402, 429 or budget: the key, the account, "
    "the quota or traffic.budget_usd. Unparseable or truncated: the rubric, or max_tokens. Until "
    "it is mended these rows are worth what on_failure says.",
    "abstains_by_length": "Raise max_tokens and the timeout of the judge, or its prompt's limit, "
    "so that long responses are judged as often as short ones.",
    "abstains_by_score": "Read the failed replies: responses that make the judge fail must not be "
    "worth more than a bad verdict. Set on_failure for this kind.",
}
"""What to do about each alarm, by its kind; docs/reference/alarms.md has the same."""


def view_document(run: RecordedRun, view: str) -> msgspec.Struct:
    """The document of one view; `VIEWS` has their names.

    Raises:
        DataError: there is no such view.
    """
    if view not in VIEWS:
        raise DataError(f"there is no view {view!r}: the views are {', '.join(VIEWS)}")
    return VIEWS[view](run)


def overview(run: RecordedRun) -> Overview:
    """The document of view ``overview``."""
    counts = run.rows(
        "SELECT COUNT(*) AS all_rows, SUM(current) AS rows, "
        "SUM(current = 1 AND value IS NULL) AS abstained, "
        "SUM(current = 1 AND split = :main AND step IS NULL) AS without_step "
        "FROM rewards INDEXED BY rewards_filters"
    )[0]
    # rows are recorded as they settle, and times are in no index of a large record
    times = run.rows(
        "SELECT (SELECT MIN(NULLIF(submitted_at, 0)) FROM rewards WHERE row <= :rows) AS began_at, "
        "(SELECT MAX(NULLIF(settled_at, 0)) FROM rewards "
        "WHERE row > (SELECT MAX(row) FROM rewards) - :rows) AS ended_at",
        rows=_ROWS_OF_TIMES,
    )[0]
    splits = run.rows(
        "SELECT split, COUNT(*) AS n FROM rewards WHERE current = 1 GROUP BY split ORDER BY n DESC"
    )
    exposed_s = run.rows("SELECT SUM(exposed_s) AS s FROM waits")[0]["s"]
    rows = counts["rows"] or 0
    without_step = (counts["without_step"] or 0) if run.axis.kind == "step" else 0
    return Overview(
        run=run.name,
        axis={"kind": run.axis.kind, "width": run.axis.width, "split": run.axis.split},
        splits={each["split"]: each["n"] for each in splits},
        rows=rows,
        abstained=counts["abstained"] or 0,
        abstentions=run.rows(f"SELECT COUNT(*) AS n FROM components c WHERE {_ABSTAINED}")[0]["n"],
        superseded=(counts["all_rows"] or 0) - rows,
        without_step=without_step,
        components=component_names(run),
        judged=judged_components(run),
        began_at=times["began_at"],
        ended_at=times["ended_at"],
        first=_mean_at(run, "MIN"),
        last=_mean_at(run, "MAX"),
        counters=_counters(run),
        exposed_s=exposed_s,
        failures=_failures(run),
        notes=list(_notes(run, without_step)),
    )


def _mean_at(run: RecordedRun, end: Literal["MIN", "MAX"]) -> float | None:
    """The mean reward of the first or the last point that has any; None without."""
    found = run.rows(
        f"SELECT {end}({run.axis.sql}) AS point FROM rewards r "
        "WHERE current = 1 AND split = :main AND value IS NOT NULL"
    )[0]["point"]
    if found is None:
        return None
    mean: float = run.rows(
        "SELECT AVG(value) AS mean FROM rewards r "
        f"WHERE current = 1 AND split = :main AND {run.axis.inside(found)}"
    )[0]["mean"]
    return mean


def _notes(run: RecordedRun, without_step: int) -> Iterator[str]:
    """What the charts leave out or sum up, in words."""
    damage = damage_in(run.connection)
    if damage:
        yield f"{damage}."
    unit = "steps" if run.axis.kind == "step" else "rows"
    if run.axis.width > 1:
        yield f"Each point of a chart is {run.axis.width} {unit}."
    if run.axis.kind == "rows":
        yield "No row has a step, so that the charts go by rows in the order of recording."
    if run.every > 1:
        yield (
            f"Components, lengths and agreement are drawn from every {run.every}th row; rewards, "
            "abstentions and groups from all."
        )
    if without_step:
        yield f"{without_step} rows have no step and are not in the charts by step."
    for row in run.rows(
        "SELECT why, MIN(at) FROM events WHERE kind IN ('record_cut', 'record_lost') "
        "GROUP BY why ORDER BY MIN(at)"
    ):
        yield f"Later rows lack something: {row['why']}."
    names = len(component_names(run, limit=10_000))
    if names > _COMPONENTS_SHOWN:
        yield f"Of {names} components the first {_COMPONENTS_SHOWN} are drawn."
    if not run.rows("SELECT 1 FROM judgements LIMIT 1"):
        yield (
            "This record has no judgements (judgements.jsonl): judges' replies and models are not "
            "shown."
        )


def component_names(run: RecordedRun, limit: int = _COMPONENTS_SHOWN) -> list[str]:
    """The components in the order in which they were recorded, at most `limit`."""
    # every row has all of them, and a resumed run may have others at its end
    found = run.rows(
        "WITH ends AS (SELECT rowid AS place, component FROM components WHERE rowid <= :rows "
        "UNION ALL SELECT rowid AS place, component FROM components "
        "WHERE rowid > (SELECT MAX(rowid) FROM components) - :rows) "
        "SELECT component FROM ends GROUP BY component ORDER BY MIN(place) LIMIT :limit",
        limit=limit,
        rows=_ROWS_OF_COMPONENTS,
    )
    return [row["component"] for row in found]


def judged_components(run: RecordedRun) -> list[str]:
    """The components that a judge scores, in the order in which they were recorded."""
    return [name for name in component_names(run) if name in run.judged]


_COUNTERS: Final = (
    *("asked", "cached", "joined", "requests", "retries", "hedges", "hedge_wins"),
    *("prompt_tokens", "completion_tokens", "spent_usd", "model_changes", "store_failures"),
)


def _last_stats(run: RecordedRun) -> list[dict[str, Any]]:
    """The last counters of each hub, oldest hub first."""
    found = run.rows("SELECT stats, MAX(at) AS at FROM stats GROUP BY hub ORDER BY at")
    return [json.loads(row["stats"]) for row in found]


def _counters(run: RecordedRun) -> dict[str, float]:
    """The counters of all hubs added up; where none can be read, what the judgements add up to."""
    hubs = _last_stats(run)
    if not hubs:
        names = ("asked", "cached", "joined", "prompt_tokens", "completion_tokens", "spent_usd")
        found = _by_judge(run)
        return {name: sum(each[name] or 0 for each in found) for name in names} if found else {}
    total = {name: sum(hub.get(name, 0) for hub in hubs) for name in _COUNTERS}
    total["peak_in_flight"] = max(hub.get("peak_in_flight", 0) for hub in hubs)
    return total


# by the index of components and kinds: of a million rows only the abstained ones are read
_ABSTAINED: Final = (
    "c.component IN (WITH RECURSIVE names(name) AS (SELECT MIN(component) FROM components "
    "UNION ALL SELECT (SELECT MIN(component) FROM components WHERE component > name) FROM names "
    "WHERE name IS NOT NULL) SELECT name FROM names) AND c.kind > ''"
)


def _failures(run: RecordedRun) -> list[Failure]:
    """Why components abstained, the commonest first; requests' own numbers are not told apart."""
    counts: Counter[tuple[str, str]] = Counter()
    for row in run.rows(
        "SELECT c.kind AS kind, c.why AS why, COUNT(*) AS n FROM components c "
        f"JOIN rewards r ON r.row = c.row WHERE {_ABSTAINED} AND r.current = 1 "
        "GROUP BY c.kind, c.why ORDER BY n DESC, c.kind LIMIT :limit",
        limit=_REASONS_READ,
    ):
        counts[row["kind"] or "", failure_words(row["why"] or "")] += row["n"]
    return [
        Failure(kind=kind, why=cut_in_the_middle(words, 300) or "", count=count)
        for (kind, words), count in counts.most_common(_REASONS_SHOWN)
    ]


def rewards(run: RecordedRun) -> RewardCurves:
    """The document of view ``rewards``."""
    train = _band(run, "split = :main")
    others = run.rows(
        "SELECT DISTINCT split FROM rewards WHERE split <> :main AND current = 1 ORDER BY split"
    )
    held_out = {row["split"]: _band(run, "split = :split", split=row["split"]) for row in others}
    falls, changed = run.falls()
    slow = run.slow_fall()
    return RewardCurves(
        train=train,
        held_out=held_out,
        falls=[at for at in falls if slow is None or not slow.high[-1] < at <= slow.low[-1]],
        changed=changed,
        slow=None if slow is None else (slow.high[-1], slow.low[-1]),
        notes=list(held_out_falls(run.connection, run.axis)),
    )


def _drops(band: Band) -> list[int]:
    """The points where the mean fell against the point before, the largest fall first."""
    drops: list[tuple[float, int]] = []
    before: float | None = None
    for at, mean in zip(band.points, band.mean, strict=True):
        if mean is None:
            continue
        if before is not None and mean < before:
            drops.append((mean - before, at))
        before = mean
    return [at for _, at in sorted(drops)]


def components(run: RecordedRun) -> Components:
    """The document of view ``components``."""
    return Components(
        components={name: _component_band(run, name) for name in component_names(run)}
    )


def _band(run: RecordedRun, where: str, **parameters: Any) -> Band:
    source = f"SELECT {run.axis.sql} AS point, value FROM rewards r WHERE current = 1 AND {where}"
    return _band_of(run, source, parameters)


def _sampled(run: RecordedRun) -> str:
    """SQL condition: whether a row of ``rewards r`` is in the run's even sample."""
    if run.every == 1:
        return "1"
    return (
        "r.row IN (WITH RECURSIVE sampled(row) AS (VALUES (1) UNION ALL "
        f"SELECT row + {run.every} FROM sampled "
        "WHERE row < (SELECT MAX(row) FROM rewards)) SELECT row FROM sampled)"
    )


def _component_band(run: RecordedRun, name: str) -> Band:
    source = (
        f"SELECT {run.axis.sql} AS point, CASE c.outcome WHEN 'score' THEN c.value END AS value "
        "FROM rewards r CROSS JOIN components c ON c.row = r.row "
        "WHERE r.current = 1 AND r.split = :main AND c.component = :component "
        f"AND c.outcome <> 'skipped' AND {_sampled(run)}"
    )
    return _band_of(run, source, {"component": name})


def _band_of(run: RecordedRun, source: str, parameters: Mapping[str, Any]) -> Band:
    """Counts, means and quantiles by point of a query with columns ``point`` and ``value``."""
    found = run.rows(
        f"WITH source AS ({source}), "
        "range AS (SELECT MAX(1e-12, (MAX(value) - MIN(value)) / :cells) AS unit FROM source) "
        "SELECT point, COUNT(*) AS rows, COUNT(value) AS scored, SUM(value) AS total, "
        "MIN(value) AS value FROM source, range WHERE point IS NOT NULL "
        "GROUP BY point, CAST(value / unit AS INTEGER), value IS NULL ORDER BY point, value",
        cells=_CELLS,
        **parameters,
    )
    band = Band(points=[], rows=[], scored=[], mean=[], quantiles=[])
    cells: dict[int, list[sqlite3.Row]] = {}
    for row in found:
        cells.setdefault(row["point"], []).append(row)
    for at, its in cells.items():
        scored = sum(row["scored"] for row in its)
        band.points.append(at)
        band.rows.append(sum(row["rows"] for row in its))
        band.scored.append(scored)
        total = sum(row["total"] for row in its if row["scored"])
        band.mean.append(total / scored if scored else None)
        band.quantiles.append(_quantiles([row for row in its if row["scored"]], scored))
    return band


def _quantiles(cells: Sequence[sqlite3.Row], count: int) -> list[float] | None:
    """`QUANTILES` of the values in these cells, which are in order; None without a value."""
    if not count:
        return None
    found: list[float] = []
    for share in QUANTILES:
        left = share * (count - 1)
        for cell in cells:
            left -= cell["scored"]
            if left < 0:
                found.append(cell["value"])
                break
        else:
            found.append(cells[-1]["value"])
    return found


def abstentions(run: RecordedRun) -> Abstentions:
    """The document of view ``abstentions``."""
    points = run.rows(
        f"SELECT {run.axis.of('step')} AS point, SUM(rows) AS n FROM steps "
        "WHERE split = :main AND step IS NOT NULL GROUP BY point ORDER BY point"
        if run.axis.kind == "step"
        else f"SELECT {run.axis.sql} AS point, COUNT(*) AS n FROM rewards r "
        "WHERE current = 1 AND split = :main GROUP BY point ORDER BY point"
    )
    place = {row["point"]: index for index, row in enumerate(points)}
    found = run.rows(
        f"SELECT {run.axis.sql} AS point, c.component AS component, c.kind AS kind, COUNT(*) AS n "
        f"FROM components c JOIN rewards r ON r.row = c.row WHERE {_ABSTAINED} "
        "AND r.current = 1 AND r.split = :main GROUP BY point, component, kind"
    )
    kinds: dict[str, list[int]] = {}
    for row in found:
        if row["point"] is None:
            continue
        counts = kinds.setdefault(f"{row['component']}/{row['kind']}", [0] * len(points))
        counts[place[row["point"]]] = row["n"]
    return Abstentions(
        points=list(place), rows=[row["n"] for row in points], kinds=dict(sorted(kinds.items()))
    )


def judges(run: RecordedRun) -> Judges:
    """The document of view ``judges``."""
    span = run.rows("SELECT MIN(at) AS began, MAX(at) AS ended, COUNT(*) AS n FROM stats")[0]
    width = max((span["ended"] - span["began"]) / MAX_TIMES, 1e-3) if span["n"] else 1.0
    found = run.rows(
        "SELECT MAX(at) AS at, CAST((at - :began) / :width AS INTEGER) AS bucket, hub, "
        "json_extract(stats, '$.limit') AS max_in_flight, "
        "json_extract(stats, '$.in_flight') AS in_flight, "
        "json_extract(stats, '$.latency_p50_s') AS p50_s, "
        "json_extract(stats, '$.latency_p95_s') AS p95_s, "
        "json_extract(stats, '$.latency_p99_s') AS p99_s, "
        "json_extract(stats, '$.asked') AS asked, json_extract(stats, '$.cached') AS cached, "
        "json_extract(stats, '$.joined') AS joined, json_extract(stats, '$.spent_usd') AS usd "
        "FROM stats GROUP BY bucket, hub ORDER BY at",
        began=span["began"] or 0.0,
        width=width,
    )
    # each hub counts from 0: one that resumes the run, and each of several that record at once
    counted: dict[str, sqlite3.Row] = {}
    samples: list[sqlite3.Row] = []
    hits: list[float | None] = []
    spent: list[float | None] = []
    for _, group in groupby(found, key=itemgetter("bucket")):
        rows = list(group)
        counted.update({row["hub"]: row for row in rows})
        samples.append(rows[-1])
        total: Counter[str] = Counter()
        for each in counted.values():
            total.update({key: each[key] or 0 for key in ("asked", "cached", "joined", "usd")})
        free = total["cached"] + total["joined"]
        hits.append(free / (free + total["asked"]) if free + total["asked"] else None)
        spent.append(total["usd"])
    return Judges(
        at=[row["at"] for row in samples],
        limit=[row["max_in_flight"] or None for row in samples],
        in_flight=[row["in_flight"] for row in samples],
        # 0 is what an engine says before the first answer
        p50_s=[row["p50_s"] or None for row in samples],
        p95_s=[row["p95_s"] or None for row in samples],
        p99_s=[row["p99_s"] or None for row in samples],
        hit_rate=hits,
        spent_usd=spent,
        judges=_by_judge(run),
        events=_events(run),
    )


def _by_judge(run: RecordedRun) -> list[dict[str, Any]]:
    found = run.rows(
        "SELECT judge, COUNT(*) AS judgements, SUM(source = 'asked') AS asked, "
        "SUM(source = 'cache') AS cached, SUM(source = 'joined') AS joined, "
        "SUM(outcome = 'abstain') AS abstained, "
        # earlier versions recorded the tokens and the cost of a call for those that joined it, too
        "SUM(cost_usd) FILTER (WHERE source = 'asked') AS spent_usd, "
        "SUM(prompt_tokens) FILTER (WHERE source = 'asked') AS prompt_tokens, "
        "SUM(completion_tokens) FILTER (WHERE source = 'asked') AS completion_tokens, "
        "GROUP_CONCAT(DISTINCT NULLIF(model, '')) AS models FROM judgements "
        "GROUP BY judge ORDER BY judgements DESC LIMIT 50"
    )
    return [dict(row) for row in found]


_EVENTS_SHOWN: Final = 60


def _events(run: RecordedRun) -> list[dict[str, Any]]:
    """The latest events about endpoints, models, limits and drift, without health alarms."""
    found = run.rows(
        "SELECT at, kind, judge, endpoint, step, why, fields FROM events "
        "WHERE kind <> 'health_alarm' ORDER BY at DESC LIMIT :limit",
        limit=_EVENTS_SHOWN,
    )
    return [
        {
            **{name: row[name] for name in ("at", "kind", "judge", "endpoint", "step")},
            "why": cut_in_the_middle(event_words(row), 300),
        }
        for row in reversed(found)
    ]


def waits(run: RecordedRun) -> Waits:
    """The document of view ``waits``."""
    by_step = run.axis.kind == "step"
    points = run.rows(
        f"SELECT {run.axis.of('step')} AS point, AVG(exposed_s) AS exposed_s FROM waits "
        "GROUP BY point ORDER BY point"
        if by_step
        else "SELECT step AS point, exposed_s FROM waits ORDER BY step LIMIT 1000"
    )
    steps = run.rows("SELECT DISTINCT step FROM phases ORDER BY step")
    return Waits(
        points=[row["point"] for row in points],
        exposed_s=[row["exposed_s"] for row in points],
        timelines=[row["step"] for row in steps],
    )


def groups(run: RecordedRun) -> Groups:
    """The document of view ``groups``."""
    found = run.rows(
        "SELECT point, COUNT(*) AS groups, SUM(highest = lowest) AS equal FROM ("
        f"SELECT {run.axis.sql} AS point, step, MAX(value) AS highest, MIN(value) AS lowest "
        "FROM rewards r WHERE current = 1 AND split = :main AND prompt_group IS NOT NULL "
        "GROUP BY point, step, prompt_group HAVING COUNT(value) > 1) "
        "WHERE point IS NOT NULL GROUP BY point ORDER BY point"
    )
    return Groups(
        points=[row["point"] for row in found],
        groups=[row["groups"] for row in found],
        equal=[row["equal"] for row in found],
    )


def length(run: RecordedRun) -> Relations:
    """The document of view ``length``: reward and components against the response's length."""
    has_tokens = bool(run.rows("SELECT 1 FROM rewards WHERE response_tokens IS NOT NULL LIMIT 1"))
    column = "response_tokens" if has_tokens else "response_chars"
    name = "response tokens" if has_tokens else "response characters"
    whole = _relation(
        run,
        f"SELECT {column} AS x, value AS y FROM rewards r "
        f"WHERE current = 1 AND split = :main AND value IS NOT NULL AND {_sampled(run)}",
        (name, "reward"),
        {},
    )
    parts = [
        _relation(
            run,
            f"SELECT r.{column} AS x, c.value AS y FROM rewards r "
            "CROSS JOIN components c ON c.row = r.row WHERE r.current = 1 AND r.split = :main "
            f"AND c.component = :component AND c.outcome = 'score' AND {_sampled(run)}",
            (name, component),
            {"component": component},
        )
        for component in component_names(run, limit=_PAIRS_SHOWN)
    ]
    return Relations(relations=[each for each in (whole, *parts) if each.rows])


def judge_agreement(run: RecordedRun) -> Relations:
    """The document of view ``agreement``: each judged component against each rule."""
    judged = judged_components(run)
    rules = [name for name in component_names(run) if name not in judged]
    pairs = [(rule, judge) for judge in judged for rule in rules][:_PAIRS_SHOWN]
    found = [
        _relation(
            run,
            "SELECT a.value AS x, b.value AS y FROM rewards r "
            "CROSS JOIN components a ON a.row = r.row CROSS JOIN components b ON b.row = r.row "
            "WHERE r.current = 1 AND r.split = :main AND a.component = :rule "
            "AND b.component = :judge AND a.outcome = 'score' AND b.outcome = 'score' "
            f"AND {_sampled(run)}",
            pair,
            {"rule": pair[0], "judge": pair[1]},
        )
        for pair in pairs
    ]
    return Relations(relations=[each for each in found if each.rows])


def _relation(
    run: RecordedRun, source: str, names: tuple[str, str], parameters: Mapping[str, Any]
) -> Scatter:
    """A sample of the query's ``x`` and ``y``, evenly over its rows, and means in bins of x."""
    pairs = [
        (row["x"], row["y"])
        for row in run.rows(f"{source} ORDER BY r.row", **parameters)
        if row["x"] is not None
    ]
    if not pairs:
        return Scatter(x=names[0], y=names[1], dots=[], means=[], rho=None, rows=0)
    every = -(-len(pairs) // MAX_DOTS)
    dots = sorted(pairs[every - 1 :: every])
    return Scatter(
        x=names[0],
        y=names[1],
        dots=dots,
        means=list(_means_in_bins(pairs)),
        rho=rank_correlation([x for x, _ in dots], [y for _, y in dots]) if len(dots) > 1 else None,
        rows=len(pairs),
    )


def _means_in_bins(pairs: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float, int]]:
    """``(mean x, mean y, n)`` of each part of the range of x that has any."""
    low, high = min(x for x, _ in pairs), max(x for x, _ in pairs)
    width = max(high / _BINS - low / _BINS, 1e-12)  # of the two alone each is in range
    bins: dict[int, list[tuple[float, float]]] = {}
    for pair in pairs:
        bins.setdefault(min(int(pair[0] / width - low / width), _BINS - 1), []).append(pair)
    for _, inside in sorted(bins.items()):
        xs, ys = zip(*inside, strict=True)
        yield _mean_of(xs), _mean_of(ys), len(inside)


def _mean_of(values: Sequence[float]) -> float:
    """The mean, also of values whose sum is beyond the range of floats."""
    return math.fsum(value / len(values) for value in values)


def alarm_list(run: RecordedRun) -> Alarms:
    """The document of view ``alarms``."""
    raised = [alarm for hub in _last_stats(run) for alarm in hub.get("alarms", [])]
    return Alarms(
        alarms=[
            Alarm(
                step=each["step"],
                kind=each["kind"],
                component=each["component"],
                meaning=ALARMS.get(each["kind"], ""),
                why=each["why"],
                advice=ADVICE.get(each["kind"], ""),
            )
            for each in raised[-_ALARMS_SHOWN:]
        ]
    )


VIEWS: Final[dict[str, Callable[[RecordedRun], msgspec.Struct]]] = {
    "overview": overview,
    "rewards": rewards,
    "components": components,
    "abstentions": abstentions,
    "judges": judges,
    "waits": waits,
    "groups": groups,
    "length": length,
    "agreement": judge_agreement,
    "alarms": alarm_list,
}
"""The function that makes each view's document, by the view's name."""


def points_by_interest(run: RecordedRun) -> list[int]:
    """All points, those that a reader asks about first: falls, alarms, the last and the first."""
    curves = rewards(run)
    train = curves.train
    alarmed = [each.step for each in alarm_list(run).alarms if each.step in set(train.points)]
    ends = [train.points[-1], train.points[0]] if train.points else []
    drops = _drops(train)
    slow = [curves.slow[1]] if curves.slow else []
    asked = [*curves.falls, *slow, *curves.changed, *drops]
    chosen = [*asked, *(at for at in alarmed if at is not None), *ends, *reversed(train.points)]
    return list(dict.fromkeys(chosen))


def point(
    run: RecordedRun, at: int, *, groups_shown: int = _GROUPS_SHOWN, falls: FallReader | None = None
) -> Point:
    """What one step's panel shows: its document is fetched, or inlined, step by step.

    Args:
        run: the run.
        at: one of the points of view ``rewards``.
        groups_shown: how many of its best and of its worst groups.
        falls: explains its fall; one reader serves many points. Without it only this one is read.

    Raises:
        DataError: the run has no such point.
    """
    inside = run.axis.inside(at)
    if not run.rows(f"SELECT 1 FROM rewards r WHERE split = :main AND {inside} LIMIT 1"):
        raise DataError(f"there is no {run.axis.kind} {at} in this run")
    falls = falls or run.fall_reader(only=at)
    worst = _ranked_groups(run, at, "ASC", groups_shown)
    best = _ranked_groups(run, at, "DESC", groups_shown)
    named = {group.group for group in worst}
    slow = run.slow_fall()
    return Point(
        point=at,
        fall=falls.explain(at),
        slow=run.explain_slow(slow) if slow is not None and slow.low[-1] == at else None,
        worst=worst,
        best=[group for group in best if group.group not in named],
        timeline=_timeline(run, at),
    )


def _ranked_groups(run: RecordedRun, at: int, order: str, limit: int) -> list[Group]:
    found = run.rows(
        "SELECT COALESCE(prompt_group, prompt_hash, 'row ' || row) AS name, COUNT(*) AS rows, "
        "COUNT(value) AS scored, AVG(value) AS mean, MIN(value) AS lowest, MAX(value) AS highest, "
        "MIN(data_source) AS data_source, MIN(row) AS first FROM rewards r "
        f"WHERE current = 1 AND split = :main AND {run.axis.inside(at)} GROUP BY name "
        f"ORDER BY mean IS NULL, mean {order}, first LIMIT :limit",
        limit=limit,
    )
    return [_group(run, at, row) for row in found]


def _group(run: RecordedRun, at: int, found: sqlite3.Row) -> Group:
    members = run.rows(
        "SELECT row, uid, value, why, response, response_tokens, prompt FROM rewards r "
        f"WHERE current = 1 AND split = :main AND {run.axis.inside(at)} "
        "AND COALESCE(prompt_group, prompt_hash, 'row ' || row) = :name "
        "ORDER BY value IS NULL, value DESC, row",
        name=found["name"],
    )
    shown = members if len(members) <= 2 else [members[0], members[-1]]
    return Group(
        group=found["name"],
        data_source=found["data_source"] or "",
        prompt=cut_in_the_middle(members[0]["prompt"]),
        rows=found["rows"],
        scored=found["scored"],
        mean=found["mean"],
        lowest=found["lowest"],
        highest=found["highest"],
        responses=[_response(run, row) for row in shown],
    )


def _response(run: RecordedRun, row: sqlite3.Row) -> Response:
    outcomes = run.rows(
        "SELECT component, outcome, value, kind, why FROM components WHERE row = :row LIMIT :limit",
        row=row["row"],
        limit=_COMPONENTS_SHOWN,
    )
    judged = run.rows(
        "SELECT j.judge, j.component, j.outcome, j.value, j.kind, j.why, j.model, t.body AS reply "
        "FROM judgement_rows m JOIN judgements j ON j.judgement = m.judgement "
        "LEFT JOIN texts t ON t.text = j.reply WHERE m.uid = :uid ORDER BY j.judgement LIMIT 6",
        uid=row["uid"],
    )
    return Response(
        row=row["row"],
        value=row["value"],
        why=cut_in_the_middle(row["why"], 300) or "",
        text=cut_in_the_middle(row["response"]),
        tokens=row["response_tokens"],
        components=[
            {**dict(each), "why": cut_in_the_middle(each["why"], 300)} for each in outcomes
        ],
        judgements=[
            Judged(
                judge=each["judge"] or "",
                component=each["component"] or "",
                outcome=each["outcome"] or "",
                value=each["value"],
                kind=each["kind"] or "",
                why=cut_in_the_middle(each["why"], 300) or "",
                model=each["model"] or "",
                reply=cut_in_the_middle(reply_words(each["reply"])),
            )
            for each in judged
        ],
    )


def reply_words(body: str | None) -> str | None:
    """What a judge wrote, of the body of its reply; the body itself where it is no completion."""
    if body is None:
        return None
    completion = decode_reply(body.encode("utf-8", "surrogatepass"))
    return body if completion is None or not completion.text else completion.text


def _timeline(run: RecordedRun, at: int) -> Timeline | None:
    """The times of the last step in this point that has any."""
    if run.axis.kind != "step":
        return None
    found = run.rows(f"SELECT MAX(step) AS step FROM phases r WHERE {run.axis.inside(at)}")[0][
        "step"
    ]
    if found is None:
        return None
    times: StepTimes = step_times(run.connection, found)
    began = times.began_at
    return Timeline(
        lasted_s=times.ended_at - began,
        waited_s=times.waited_s,
        phases=[(p.name, p.began_at - began, p.ended_at - began) for p in times.phases],
        groups=[(asked - began, known - began) for asked, known in times.groups[:_LINES_SHOWN]],
    )


_LINES_SHOWN: Final = 64


def cut_in_the_middle(text: str | None, chars: int = TEXT_CHARS) -> str | None:
    """The text, or its beginning and end with the number of characters left out between them."""
    if text is None or len(text) <= chars:
        return text
    head, tail = chars * 2 // 3, chars // 3
    return f"{text[:head]} [… {len(text) - head - tail} characters …] {text[-tail:]}"
