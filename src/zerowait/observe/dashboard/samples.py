"""The samples of a run as the sample browser asks for them: filtered, in pages, and one by one."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

import msgspec

from zerowait.errors import DataError

_HEAD_CHARS: Final = 240
_MOST_CHARS: Final = 200_000
_MOST_IN_GROUP: Final = 64
_MOST_COUNTED: Final = 10_000
_FEW: Final = 5_000
"""Up to so many matches of a condition on another table are looked up first, each by its row; of
more matches some are near wherever the reading begins, so rows are read and tested in order."""
_FEW_TO_SORT: Final = 100_000
"""Likewise where all that matches is sorted, and so all rows would be tested."""
_SETTLED: Final = frozenset({"score", "skipped"})
_CURRENT: Final = "r.current = 1"
_ROWS: Final = "rewards r INDEXED BY rewards_filters"
"""The table by the index that has the columns of filters alone: a row itself is twenty times as
long, because of its texts."""
_BUDGET_S: Final = 0.2
_COUNT_BUDGET_S: Final = 0.1
_SORT_BUDGET_S: Final = 5.0
_FIRST_WINDOW: Final = 4_096
_FAST_WINDOW_S: Final = 0.05
_STEPS_BETWEEN_CHECKS: Final = 2_000

Order = Literal["newest", "oldest", "highest", "lowest"]


class SampleQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which samples to show; a field that is None does not narrow them.

    Args:
        split, step, group, data_source: of the sample.
        component: samples that have this component; `outcome` and the values then mean its own.
        outcome: ``score``, ``abstain`` or ``skipped``, or a kind of failure such as ``timeout``.
            Without a component, ``abstain`` means samples without a reward, ``score`` those with
            one, and the others samples with any such component.
        least, most: bounds of the reward, or of the component's score.
        judge, source: samples with a judgement by this judge, or from there (``asked``, ``cache``,
            ``joined`` or ``refused``).
        opinion: ``up``, ``down``, ``any`` or ``none``: what people thought of it.
        text: words that the prompt or the response contains, upper and lower case alike in ASCII.
    """

    split: str | None = None
    step: int | None = None
    group: str | None = None
    data_source: str | None = None
    component: str | None = None
    outcome: str | None = None
    least: float | None = None
    most: float | None = None
    judge: str | None = None
    source: str | None = None
    opinion: Literal["up", "down", "any", "none"] | None = None
    text: str | None = None


class _Condition(msgspec.Struct, frozen=True):
    """A condition on a sample that stands in other tables.

    Args:
        found: a query that has a row for each match, without the way to the sample.
        rows: a query of the numbers of the rows that meet it.
        met: whether ``r`` meets it, as an expression.
        given: the parameters of each of them.
    """

    found: str
    rows: str
    met: str
    given: tuple[Any, ...]


def sample_page(
    index: sqlite3.Connection,
    wanted: SampleQuery,
    *,
    order: Order = "newest",
    after: str | None = None,
    limit: int = 50,
) -> dict[str, Any]:
    """A page of samples: ``samples``, ``next`` and ``matches``.

    A page takes about a quarter of a second at most: where few samples match in a large run, it may
    have fewer samples than `limit`, or none, and still a ``next``. ``next`` is None at the end.

    Args:
        index: of the run.
        wanted: the filter.
        order: newest and oldest by the order of recording; highest and lowest by reward, or by the
            score of the filter's component, samples without one left out; of a component that
            abstained or was skipped, by reward.
        after: ``next`` of the page before; None for the first.
        limit: the most samples in it.

    Raises:
        DataError: `after` is no ``next``, or sorting so many samples takes too long.
    """
    by_value = order in {"highest", "lowest"}
    where = _where(index, wanted, few=_FEW_TO_SORT if by_value else _FEW)
    if by_value:
        query = _by_value(where, wanted, order, after)
        rows, following = _sorted_rows(index, query, limit)
    else:
        rows, following = _recorded_rows(index, where, order, after, limit)
    matches = _count(index, where) if after is None and not wanted.text else None
    return {"samples": _summaries(index, rows), "next": following, "matches": matches}


class _Sql(msgspec.Struct, frozen=True):
    """A part of a query, and its parameters."""

    text: str
    given: list[Any]


def _where(index: sqlite3.Connection, wanted: SampleQuery, *, few: int) -> _Sql:
    """The condition on ``rewards r``."""
    terms, given = [_CURRENT], list[Any]()
    for term, value in _own_terms(wanted):
        terms.append(term)
        given.append(value)
    if wanted.component is None and wanted.outcome in {"abstain", "score"}:
        terms.append(f"r.value IS {'NULL' if wanted.outcome == 'abstain' else 'NOT NULL'}")
    for condition in _conditions(wanted):
        count = f"SELECT count(*) FROM ({condition.found} LIMIT {few + 1})"
        if index.execute(count, condition.given).fetchone()[0] <= few:
            terms.append(f"r.row IN ({condition.rows})")
        else:
            terms.append(condition.met)
        given += condition.given
    match wanted.opinion:  # people rate few samples: SQLite looks them up once
        case "none":
            terms.append("r.row NOT IN (SELECT row FROM opinions)")
        case "any":
            terms.append("r.row IN (SELECT row FROM opinions)")
        case "up" | "down":
            terms.append("r.row IN (SELECT row FROM opinions WHERE up = ?)")
            given.append(int(wanted.opinion == "up"))
    if wanted.text:  # instr, because LIKE reads no further than the character 0
        has = "instr(lower(coalesce({}, '')), lower(?)) > 0"
        terms.append(f"({has.format('r.response')} OR {has.format('r.prompt')})")
        given += [wanted.text, wanted.text]
    return _Sql(" AND ".join(terms), given)


def _own_terms(wanted: SampleQuery) -> Iterator[tuple[str, Any]]:
    """The conditions on columns of ``rewards`` with one parameter each."""
    columns: dict[str, Any] = {
        "r.split = ?": wanted.split,
        "r.step = ?": wanted.step,
        "r.prompt_group = ?": wanted.group,
        "r.data_source = ?": wanted.data_source,
    }
    if wanted.component is None:
        columns |= {"r.value >= ?": wanted.least, "r.value <= ?": wanted.most}
    yield from ((term, value) for term, value in columns.items() if value is not None)


def _conditions(wanted: SampleQuery) -> Iterator[_Condition]:
    """The conditions of the filter on components, judgements and opinions."""
    own_outcome = wanted.component is None and wanted.outcome in {"abstain", "score"}
    if wanted.component is not None or (wanted.outcome is not None and not own_outcome):
        yield _of_components(wanted)
    judged = {"j.judge = ?": wanted.judge, "j.source = ?": wanted.source}
    given = {term: value for term, value in judged.items() if value is not None}
    if given:
        terms = " AND ".join(given)
        yield _Condition(
            f"SELECT 1 FROM judgements j WHERE {terms}",
            "SELECT s.row FROM judgements j JOIN judgement_rows b USING (judgement) "
            f"JOIN rewards s ON s.uid = b.uid WHERE {terms}",
            "EXISTS (SELECT 1 FROM judgement_rows b JOIN judgements j USING (judgement) "
            f"WHERE b.uid = r.uid AND {terms})",
            tuple(given.values()),
        )


def _of_components(wanted: SampleQuery) -> _Condition:
    terms, given = list[str](), list[Any]()
    if wanted.component is not None:
        terms.append("c.component = ?")
        given.append(wanted.component)
        for term, value in (("c.value >= ?", wanted.least), ("c.value <= ?", wanted.most)):
            if value is not None:
                terms.append(term)
                given.append(value)
    if wanted.outcome is not None:
        if wanted.outcome == "abstain":
            terms.append("c.kind > ''")  # only an abstention has a kind, and kinds have an index
        elif wanted.outcome in _SETTLED:  # as the partial index has it
            terms.append(f"c.outcome = '{wanted.outcome}'")
        else:
            terms.append("c.kind = ?")
            given.append(wanted.outcome)
    both = " AND ".join(terms)
    table = "components c"
    if wanted.outcome == "skipped":
        table += " INDEXED BY components_skipped"
    return _Condition(
        f"SELECT 1 FROM {table} WHERE {both}",
        f"SELECT c.row FROM {table} WHERE {both}",
        "EXISTS (SELECT 1 FROM components c INDEXED BY components_row "
        f"WHERE c.row = r.row AND {both})",
        tuple(given),
    )


def _recorded_rows(
    index: sqlite3.Connection,
    where: _Sql,
    order: str,
    after: str | None,
    limit: int,
) -> tuple[list[int], str | None]:
    """Numbers of matching rows in the order of recording, and where to go on.

    Rows are read in windows that grow while they are fast, so that a condition that nearly no row
    meets costs many short queries instead of a long one.
    """
    first, last = index.execute(
        "SELECT (SELECT min(row) FROM rewards), (SELECT max(row) FROM rewards)"
    ).fetchone()
    if first is None:
        return [], None
    newest = order == "newest"
    direction = -1 if newest else 1
    edge = _whole(after) if after is not None else (last + 1 if newest else first - 1)
    found: list[int] = []
    window, give_up_at = _FIRST_WINDOW, time.monotonic() + _BUDGET_S
    while (edge > first if newest else edge < last) and time.monotonic() < give_up_at:
        began = time.monotonic()
        reach = edge + direction * window
        low, high = (reach, edge - 1) if newest else (edge + 1, reach)
        query = (
            f"SELECT r.row FROM {_ROWS} WHERE r.row BETWEEN ? AND ? AND {where.text} "
            f"ORDER BY r.row {'DESC' if newest else ''} LIMIT ?"
        )
        rows = index.execute(query, (low, high, *where.given, limit - len(found)))
        found += [row[0] for row in rows]
        if len(found) >= limit:
            return found, str(found[-1])
        edge = reach
        if time.monotonic() - began < _FAST_WINDOW_S:
            window *= 4
    ended = edge <= first if newest else edge >= last
    return found, None if ended else str(edge)


def _by_value(where: _Sql, wanted: SampleQuery, order: str, after: str | None) -> _Sql:
    """The query of matching rows with their values, by reward or by the component's score.

    With nothing else to meet, values are read from the best on until the page is full. Otherwise
    all that is found is sorted: far from every index's order, a match may be anywhere in it.
    """
    descends = order == "highest"
    value, given = "r.value", list(where.given)
    terms = f"{where.text} AND r.value IS NOT NULL"
    source = "rewards r" if where.text == _CURRENT else _ROWS
    if _sorts_by_score(wanted):
        value = "k.value"
        bounds = {"k.value >= ?": wanted.least, "k.value <= ?": wanted.most}
        scores = {"k.component = ?": wanted.component} | {
            term: bound for term, bound in bounds.items() if bound is not None
        }
        terms = " AND ".join(["k.value IS NOT NULL", *scores, where.text])
        given = [*scores.values(), *where.given]
        source = f"{_ROWS} CROSS JOIN components k INDEXED BY components_row ON k.row = r.row"
        if _is_of_component_alone(wanted):
            source = "components k INDEXED BY components_value CROSS JOIN rewards r USING (row)"
    if after is not None:
        at, _, row = after.partition("@")
        terms += f" AND ({value}, r.row) {'<' if descends else '>'} (?, ?)"
        given += [_finite(at), _whole(row)]
    way = "DESC" if descends else "ASC"
    return _Sql(
        f"SELECT r.row, {value} FROM {source} WHERE {terms} ORDER BY {value} {way}, r.row {way}",
        given,
    )


def _sorts_by_score(wanted: SampleQuery) -> bool:
    """Whether the component's score is what samples are sorted by; abstained ones have none."""
    return wanted.component is not None and wanted.outcome in {None, "score"}


def _is_of_component_alone(wanted: SampleQuery) -> bool:
    """Whether the filter narrows nothing but the component and its score."""
    others = msgspec.structs.replace(wanted, component=None, least=None, most=None)
    if wanted.outcome == "score":  # only a score has a value
        others = msgspec.structs.replace(others, outcome=None)
    return others == SampleQuery()


def _sorted_rows(
    index: sqlite3.Connection, query: _Sql, limit: int
) -> tuple[list[int], str | None]:
    """The first rows of a query by value, and where to go on."""
    with _within(index, _SORT_BUDGET_S):
        try:
            rows = index.execute(f"{query.text} LIMIT ?", (*query.given, limit)).fetchall()
        except sqlite3.OperationalError as error:
            if "interrupted" not in str(error):
                raise
            raise DataError(
                "sorting so many samples takes too long: narrow the filter, or sort by newest"
            ) from None
    following = f"{rows[-1][1]!r}@{rows[-1][0]}" if len(rows) == limit else None
    return [row[0] for row in rows], following


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise DataError(f"no page begins after {text[:40]!r}") from None


def _finite(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise DataError(f"no page begins after {text[:40]!r}") from None


def _count(index: sqlite3.Connection, where: _Sql) -> int | None:
    """How many samples match, one more than 10,000 standing for more; None if it takes long."""
    query = f"SELECT count(*) FROM (SELECT 1 FROM {_ROWS} WHERE {where.text} LIMIT ?)"
    with _within(index, _COUNT_BUDGET_S):
        try:
            found: int = index.execute(query, (*where.given, _MOST_COUNTED + 1)).fetchone()[0]
        except sqlite3.OperationalError as error:
            if "interrupted" not in str(error):
                raise
            return None
    return found


@contextmanager
def _within(index: sqlite3.Connection, budget_s: float) -> Iterator[None]:
    """Interrupt the queries of the block when it takes longer."""
    give_up_at = time.monotonic() + budget_s
    late: Callable[[], bool] = lambda: time.monotonic() > give_up_at  # noqa: E731 - a callback
    index.set_progress_handler(late, _STEPS_BETWEEN_CHECKS)
    try:
        yield
    finally:
        index.set_progress_handler(None, 0)


def _summaries(index: sqlite3.Connection, rows: Sequence[int]) -> list[dict[str, Any]]:
    """What a list shows of the samples in these rows, in their order."""
    marks = ",".join("?" * len(rows))
    found = index.execute(
        "SELECT row, uid, id, split, step, prompt_group AS 'group', data_source, value, policy, "
        f"why, response_tokens, response_chars, substr(prompt, 1, {_HEAD_CHARS}) AS prompt, "
        f"substr(response, 1, {_HEAD_CHARS}) AS response FROM rewards WHERE row IN ({marks})",
        rows,
    )
    samples = {each["row"]: dict(each) | {"components": []} for each in found}
    for each in _components(index, rows):
        samples[each.pop("row")]["components"].append(each)
    for row, opinions in opinions_of(index, rows).items():
        samples[row]["opinions"] = opinions
    return [samples[row] for row in rows if row in samples]


def _components(index: sqlite3.Connection, rows: Sequence[int]) -> Iterator[dict[str, Any]]:
    marks = ",".join("?" * len(rows))
    found = index.execute(
        "SELECT row, component, outcome, value, kind, why FROM components "
        f"WHERE row IN ({marks}) ORDER BY rowid",
        rows,
    )
    return (dict(each) for each in found)


def opinions_of(index: sqlite3.Connection, rows: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    """What people think of the samples in these rows, by row."""
    marks = ",".join("?" * len(rows))
    found = index.execute(
        f"SELECT row, up, note, who, at FROM opinions WHERE row IN ({marks}) ORDER BY at", rows
    )
    opinions: dict[int, list[dict[str, Any]]] = {}
    for each in map(dict, found):
        opinions.setdefault(each.pop("row"), []).append(each | {"up": bool(each["up"])})
    return opinions


def group_of(index: sqlite3.Connection, row: int) -> dict[str, Any]:
    """The responses to one prompt, with everything known of each: ``samples`` and ``left_out``.

    Args:
        index: of the run.
        row: any of the group's rows; a sample without a group stands alone.

    Raises:
        DataError: there is no such row.
    """
    one = index.execute("SELECT * FROM rewards WHERE row = ?", (row,)).fetchone()
    if one is None:
        raise DataError(f"the run has no row {row}")
    rows = [row]
    if one["prompt_group"] is not None:
        found = index.execute(
            "SELECT row FROM rewards WHERE prompt_group = ? AND split = ? AND step IS ? "
            "AND current = 1 ORDER BY row",
            (one["prompt_group"], one["split"], one["step"]),
        )
        rows = [each[0] for each in found]
    at = rows.index(row) if row in rows else 0
    begin = max(0, min(at - _MOST_IN_GROUP // 2, len(rows) - _MOST_IN_GROUP))
    shown = rows[begin : begin + _MOST_IN_GROUP] if rows else [row]
    return {
        "samples": [whole_sample(index, each) for each in shown],
        "left_out": max(0, len(rows) - len(shown)),
    }


def whole_sample(index: sqlite3.Connection, row: int) -> dict[str, Any]:
    """Everything known of one sample: its texts, outcomes, judgements with prompt and reply.

    Texts of more than 200,000 characters are cut, and say so.

    Raises:
        DataError: there is no such row.
    """
    found = index.execute("SELECT * FROM rewards WHERE row = ?", (row,)).fetchone()
    if found is None:
        raise DataError(f"the run has no row {row}")
    sample = {name: _cut(value) for name, value in dict(found).items()}
    sample["group"] = sample.pop("prompt_group")
    components = "SELECT component, outcome, value, kind, why, detail FROM components WHERE row = ?"
    sample["components"] = _dicts(index, components + " ORDER BY rowid", row)
    sample["metrics"] = _dicts(index, "SELECT name, value FROM metrics WHERE row = ?", row)
    sample["judgements"] = _judgements(index, found["uid"])
    sample["opinions"] = opinions_of(index, [row]).get(row, [])
    return sample


def _judgements(index: sqlite3.Connection, uid: str) -> list[dict[str, Any]]:
    judgements = _dicts(
        index,
        "SELECT j.*, q.body AS request_text, a.body AS reply_text FROM judgement_rows b "
        "JOIN judgements j USING (judgement) LEFT JOIN texts q ON q.text = j.request "
        "LEFT JOIN texts a ON a.text = j.reply WHERE b.uid = ? ORDER BY j.judgement",
        uid,
    )
    for each in judgements:
        each["attempts_failed"] = _dicts(
            index,
            "SELECT f.*, t.body AS reply_text FROM attempts f LEFT JOIN texts t ON t.text = f.reply"
            " WHERE f.judgement = ? ORDER BY f.number",
            each["judgement"],
        )
    return judgements


def _dicts(index: sqlite3.Connection, query: str, given: Any) -> list[dict[str, Any]]:
    return [
        {name: _cut(value) for name, value in dict(each).items()}
        for each in index.execute(query, (given,))
    ]


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _MOST_CHARS:
        return f"{value[:_MOST_CHARS]}\n[{len(value) - _MOST_CHARS} more characters]"
    return value


def choices(index: sqlite3.Connection) -> Mapping[str, Any]:
    """What the filters offer: the names and counts that the run has of each kind."""

    def names(query: str) -> list[str]:
        return [each[0] for each in index.execute(query) if each[0] not in {None, ""}]

    splits = names(_distinct("rewards", "split"))
    ends = [
        index.execute(f"SELECT {end}(step) FROM rewards WHERE split = ?", (split,)).fetchone()[0]
        for split in splits
        for end in ("min", "max")  # one aggregate a query, which an index answers at once
    ]
    steps = [step for step in ends if step is not None]
    return {
        "splits": splits,
        "data_sources": names(_distinct("rewards", "data_source")),
        "components": names(_distinct("components", "component")),
        "kinds": names(_distinct("components", "kind")),
        "judges": names(_distinct("judgements", "judge")),
        "sources": names(_distinct("judgements", "source")),
        "skipped": index.execute(
            "SELECT EXISTS (SELECT 1 FROM components INDEXED BY components_skipped "
            "WHERE outcome = 'skipped')"
        ).fetchone()[0],
        "steps": {"first": min(steps, default=None), "last": max(steps, default=None)},
    }


def _distinct(table: str, column: str) -> str:
    """A query of a column's values that goes from one to the next in its index.

    SQLite itself reads the whole index for DISTINCT.
    """
    return (
        f"WITH RECURSIVE v(x) AS (SELECT min({column}) FROM {table} UNION ALL "
        f"SELECT (SELECT min({column}) FROM {table} WHERE {column} > v.x) FROM v "
        "WHERE v.x IS NOT NULL) SELECT x FROM v WHERE x IS NOT NULL LIMIT 1000"
    )
