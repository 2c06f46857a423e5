"""Samples of a record that fit a filter, each with its outcomes and the judgements behind them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from zerowait.errors import DataError, did_you_mean
from zerowait.judge import decode_reply, decoded_request
from zerowait.observe.recorded_samples import outcome_in
from zerowait.types import FailureKind, Outcome, content_text

_PICTURE: Final = "[picture]"
_MOST_NAMED: Final = 20


class SampleFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which samples of a record are wanted; None and False are no condition.

    Args:
        abstained: the reward or a component abstained.
        group, step, split, row, id: as recorded.
        judge: with a judgement of this judge.
        component: that has this component, and not skipped.
        kind: with an abstention of this kind.
        grep: with this text in prompt, response or a judge's reply, in any case.
        by: ``worst`` and ``best`` order by the reward, or by `component`; else as recorded.
        limit: the most samples.
    """

    abstained: bool = False
    group: str | None = None
    step: int | None = None
    split: str | None = None
    row: int | None = None
    id: str | None = None
    judge: str | None = None
    component: str | None = None
    kind: str | None = None
    grep: str | None = None
    by: Literal["row", "worst", "best"] = "row"
    limit: int = 10


class RecordedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that brought no answer, with the words of the provider."""

    number: int
    endpoint: str | None
    status: int | None
    latency_s: float | None
    why: str | None
    reply: str | None


class FoundJudgement(msgspec.Struct, frozen=True, kw_only=True):
    """A judgement of a sample.

    Args:
        shown: the messages that the judge read, as role and text; empty where they were not kept.
        said: the text of its reply; None where there was none, or it was not kept.
        reply: the raw body, likewise.
        outcome: the verdict or the failure.
        failed: the attempts that brought no answer.
    """

    judge: str
    component: str
    question: int | None
    vote: int | None
    source: str
    outcome: Outcome
    shown: list[tuple[str, str]]
    said: str | None
    reply: str | None
    attempts: int
    hedges: int
    status: int | None
    endpoint: str | None
    model: str | None
    form: str | None
    latency_s: float
    queue_s: float
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float
    key: str
    failed: list[RecordedAttempt]


class FoundSample(msgspec.Struct, frozen=True, kw_only=True):
    """A sample of a record; texts are None where they were not kept."""

    row: int
    uid: str | None
    id: str | None
    ticket: str | None
    split: str
    step: int | None
    group: str | None
    data_source: str | None
    value: float | None
    policy: str
    why: str
    trained_on: float | None
    response_tokens: int | None
    prompt: str | None
    response: str | None
    ground_truth: Any
    components: dict[str, Outcome]
    judgements: list[FoundJudgement]


def find_samples(
    connection: sqlite3.Connection, wanted: SampleFilter
) -> tuple[int, list[FoundSample]]:
    """How many samples fit, and the first of them.

    Args:
        connection: to the index of a record.
        wanted: which samples.

    Raises:
        DataError: the record has no such step, group, judge, component or row; names the nearest.
    """
    _check(connection, wanted)
    conditions, values = zip(*_conditions(wanted), strict=True)
    where = " AND ".join(conditions)
    given = [value for each in values for value in each]
    [count] = connection.execute(f"SELECT count(*) FROM rewards WHERE {where}", given).fetchone()
    order, first = _order(wanted)
    rows = connection.execute(
        f"SELECT * FROM rewards WHERE {where} ORDER BY {order} LIMIT ?",
        [*given, *first, wanted.limit],
    ).fetchall()
    return int(count), [_found(connection, row, wanted) for row in rows]


def _conditions(wanted: SampleFilter) -> Iterator[tuple[str, Sequence[Any]]]:
    """Conditions in SQL, each with its values."""
    yield "current = 1", ()
    plain = {"prompt_group": "group", "step": "step", "split": "split", "row": "row", "id": "id"}
    for column, name in plain.items():
        value = getattr(wanted, name)
        if value is not None:
            yield f"{column} = ?", (value,)
    of_row = "EXISTS (SELECT 1 FROM components WHERE components.row = rewards.row"
    named = "" if wanted.component is None else " AND component = ?"
    of = () if wanted.component is None else (wanted.component,)
    if wanted.component is not None:
        yield f"{of_row}{named} AND outcome <> 'skipped')", of
    if wanted.abstained:
        whole = "" if named else "value IS NULL OR "
        yield f"({whole}{of_row}{named} AND outcome = 'abstain'))", of
    if wanted.kind is not None:
        yield f"{of_row}{named} AND kind = ?)", (*of, wanted.kind)
    judged = "EXISTS (SELECT 1 FROM judgement_rows JOIN judgements USING (judgement)"
    if wanted.judge is not None:
        yield f"{judged} WHERE judgement_rows.uid = rewards.uid AND judge = ?)", (wanted.judge,)
    if wanted.grep is not None:
        said = f"{judged} JOIN texts ON text = reply WHERE judgement_rows.uid = rewards.uid AND "
        has = "instr(lower({}), lower(?)) > 0"
        columns = " OR ".join(
            has.format(f"coalesce({name}, '')") for name in ("prompt", "response")
        )
        yield f"({columns} OR {said}{has.format('body')}))", (wanted.grep,) * 3


def _order(wanted: SampleFilter) -> tuple[str, Sequence[Any]]:
    if wanted.by == "row":
        return "row", ()
    direction = "ASC" if wanted.by == "worst" else "DESC"
    if wanted.component is None:
        return f"value {direction} NULLS LAST, row", ()
    own = "SELECT components.value FROM components WHERE components.row = rewards.row"
    return f"({own} AND component = ?) {direction} NULLS LAST, row", (wanted.component,)


def _check(connection: sqlite3.Connection, wanted: SampleFilter) -> None:
    """Raise a DataError for a condition that no row of the record can fulfil."""
    in_record = {
        "step": "SELECT DISTINCT step FROM rewards WHERE step IS NOT NULL",
        "split": "SELECT DISTINCT split FROM rewards",
        "group": "SELECT DISTINCT prompt_group FROM rewards WHERE prompt_group IS NOT NULL",
        "id": "SELECT DISTINCT id FROM rewards WHERE id IS NOT NULL",
        "judge": "SELECT DISTINCT judge FROM judgements",
        "component": "SELECT DISTINCT component FROM components",
    }
    for name, query in in_record.items():
        value = getattr(wanted, name)
        if value is None:
            continue
        known = [row[0] for row in connection.execute(query)]
        if value not in known:
            raise DataError(_unknown(name, value, known))
    if wanted.kind is not None and wanted.kind not in set(FailureKind):
        kinds = [kind.value for kind in FailureKind]
        raise DataError(f"--kind {wanted.kind}: is no kind{did_you_mean(wanted.kind, kinds)}")
    if wanted.row is not None:
        found = "SELECT current FROM rewards WHERE row = ?"
        row = connection.execute(found, (wanted.row,)).fetchone()
        if row is None:
            [last] = connection.execute("SELECT max(row) FROM rewards").fetchone()
            raise DataError(f"--row {wanted.row}: the record has the rows 1 to {last}")
        if not row[0]:
            raise DataError(f"--row {wanted.row}: was judged again later, and does not count")


def _unknown(name: str, value: Any, known: Sequence[Any]) -> str:
    if not known:
        return f"--{name} {value}: the record has no {name}s"
    if name == "step":
        steps = sorted(known)
        return f"--step {value}: the record has the steps {steps[0]} to {steps[-1]}"
    hint = did_you_mean(value, known)
    if len(known) > _MOST_NAMED and "did you mean" not in hint:
        hint = f"; it has {len(known)} {name}s, such as {', '.join(known[:3])}"
    return f"--{name} {value}: is not in the record{hint}"


def _found(connection: sqlite3.Connection, row: sqlite3.Row, wanted: SampleFilter) -> FoundSample:
    components = connection.execute(
        "SELECT * FROM components WHERE row = ? ORDER BY rowid", (row["row"],)
    )
    truth = row["ground_truth"]
    return FoundSample(
        row=row["row"],
        uid=row["uid"],
        id=row["id"],
        ticket=row["ticket"],
        split=row["split"],
        step=row["step"],
        group=row["prompt_group"],
        data_source=row["data_source"],
        value=row["value"],
        policy=row["policy"],
        why=row["why"],
        trained_on=row["trained_on"],
        response_tokens=row["response_tokens"],
        prompt=row["prompt"],
        response=row["response"],
        ground_truth=None if truth is None else msgspec.json.decode(truth),
        components={each["component"]: outcome_in(each) for each in components},
        judgements=list(_judgements(connection, row["uid"], wanted)),
    )


def _judgements(
    connection: sqlite3.Connection, uid: str | None, wanted: SampleFilter
) -> Iterator[FoundJudgement]:
    """The judgements of a sample, of the wanted judge and component."""
    rows = connection.execute(
        "SELECT judgements.*, asked.body AS asked, said.body AS said FROM judgement_rows"
        " JOIN judgements USING (judgement) LEFT JOIN texts AS asked ON asked.text = request"
        " LEFT JOIN texts AS said ON said.text = reply WHERE uid = ?"
        " AND judge = coalesce(?, judge) AND component = coalesce(?, component)"
        " ORDER BY component, judge, question, vote, judgement",
        (uid, wanted.judge, wanted.component),
    ).fetchall()
    for row in rows:
        attempts = connection.execute(
            "SELECT attempts.*, body FROM attempts LEFT JOIN texts ON text = reply"
            " WHERE judgement = ? ORDER BY number",
            (row["judgement"],),
        )
        yield FoundJudgement(
            judge=row["judge"],
            component=row["component"] or "",
            question=row["question"],
            vote=row["vote"],
            source=row["source"],
            outcome=outcome_in(row),
            shown=_messages(row["asked"]),
            said=_text_of(row["said"]),
            reply=row["said"],
            attempts=row["attempts"],
            hedges=row["hedges"] or 0,
            status=row["status"],
            endpoint=row["endpoint"],
            model=row["model"],
            form=row["form"],
            latency_s=row["latency_s"] or 0.0,
            queue_s=row["queue_s"] or 0.0,
            prompt_tokens=row["prompt_tokens"] or 0,
            completion_tokens=row["completion_tokens"] or 0,
            cost_usd=row["cost_usd"] or 0.0,
            key=row["key"],
            failed=[
                RecordedAttempt(
                    number=each["number"],
                    endpoint=each["endpoint"],
                    status=each["status"],
                    latency_s=each["latency_s"],
                    why=each["why"],
                    reply=each["body"],
                )
                for each in attempts
            ],
        )


def _messages(body: str | None) -> list[tuple[str, str]]:
    """Role and text of each message of a request; pictures are marked."""
    if body is None:
        return []
    messages = decoded_request(body.encode("utf-8", "surrogatepass")).get("messages")
    if not isinstance(messages, list):
        return [("request", body)]
    return [
        (str(each.get("role", "?")), _content(each.get("content")))
        for each in messages
        if isinstance(each, dict)
    ]


def _content(content: Any) -> str:
    if not isinstance(content, list):
        return content_text(content)
    parts = [
        each.get("text", "") if isinstance(each, dict) and each.get("type") == "text" else _PICTURE
        for each in content
    ]
    return "\n".join(parts)


def _text_of(reply: str | None) -> str | None:
    """The text that a judge wrote; the raw reply where it is no completion."""
    if reply is None:
        return None
    completion = decode_reply(reply.encode("utf-8", "surrogatepass"))
    return reply if completion is None or completion.failure is not None else completion.text
