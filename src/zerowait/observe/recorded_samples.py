"""The samples of a record, one step after another, with their rewards of then."""

from __future__ import annotations

import sqlite3
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from zerowait.observe.reward_comparison import SHOWN_CHARS, RewardedSample
from zerowait.pictures import holds_pictures, own_pictures, with_urls
from zerowait.types import (
    Abstain,
    FailureKind,
    Message,
    Outcome,
    Sample,
    Score,
    Skipped,
    prompt_text,
)


class RecordedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a record.

    Args:
        row: its number.
        sample: what was rewarded; None where its texts were not kept.
        then: with its reward in the record.
    """

    row: int
    sample: Sample | None
    then: RewardedSample


def steps_in(connection: sqlite3.Connection) -> list[tuple[str, int | None]]:
    """Every split and step of a record, in the order in which they began."""
    found = connection.execute(
        "SELECT split, step FROM rewards WHERE current = 1 GROUP BY split, step ORDER BY min(row)"
    )
    return [(row["split"], row["step"]) for row in found]


def rows_in(
    connection: sqlite3.Connection,
    folder: Path,
    split: str,
    step: int | None,
    *,
    without_texts: bool = False,
) -> list[RecordedRow]:
    """The rows of one step.

    Args:
        connection: to the index of the record.
        folder: of the record, which holds the pictures.
        split: ``train`` or another part of the data.
        step: of the training; None for rows without one.
        without_texts: give rows whose texts were not kept a sample with empty texts, too.
    """
    where = "WHERE split = ? AND step IS ? AND current = 1"
    rows = connection.execute(f"SELECT * FROM rewards {where} ORDER BY row", (split, step))
    outcomes: dict[int, dict[str, Outcome]] = {}
    for each in connection.execute(
        "SELECT components.* FROM components JOIN rewards USING (row) "
        f"{where} ORDER BY components.rowid",
        (split, step),
    ):
        outcomes.setdefault(each["row"], {})[each["component"]] = outcome_in(each)
    return [
        _row(each, outcomes.get(each["row"], {}), folder, without_texts=without_texts)
        for each in rows
    ]


def outcome_in(row: sqlite3.Row) -> Outcome:
    """The outcome in a row of ``components`` or ``judgements``."""
    match row["outcome"]:
        case "score":
            detail = row["detail"] if "detail" in row.keys() else None  # noqa: SIM118 - a Row iterates over values
            return Score(row["value"], row["why"] or "", _json(detail, {}))
        case "abstain":
            return Abstain(FailureKind(row["kind"]), row["why"] or "")
        case _:
            return Skipped(row["why"] or "")


def text_name(prompt: str | list[dict[str, Any]] | list[Message], response: str) -> str:
    """A hash of prompt and response, by which equal samples are found."""
    said = f"{prompt_text(prompt)}\0{response}".encode("utf-8", "surrogatepass")
    return sha256(said).hexdigest()


def _row(
    row: sqlite3.Row, components: dict[str, Outcome], folder: Path, *, without_texts: bool
) -> RecordedRow:
    kept = row["response"] is not None
    sample = _sample(row, folder) if kept or without_texts else None
    group = row["prompt_group"]
    then = RewardedSample(
        value=row["value"],
        components=components,
        why=row["why"],
        group=None if group is None else (row["split"], row["step"], group),
        ticket=row["ticket"] or "",
        id=row["id"] or "",
        uid=row["uid"] or "",
        text="" if sample is None or not kept else text_name(sample.prompt, sample.response),
        step=row["step"],
        prompt=(row["prompt"] or "")[:SHOWN_CHARS],
        response=(row["response"] or "")[:SHOWN_CHARS],
    )
    return RecordedRow(row=row["row"], sample=sample, then=then)


def _sample(row: sqlite3.Row, folder: Path) -> Sample:
    messages = _json(row["messages"], {})
    extra = _json(row["extra"], {})
    prompt = messages.get("prompt") or row["prompt"] or ""
    if not isinstance(prompt, str) and holds_pictures(prompt):
        prompt = with_urls(prompt, own_pictures(extra), folder=folder)
    return Sample(
        prompt=prompt,
        response=row["response"] or "",
        ground_truth=_json(row["ground_truth"], None),
        data_source=row["data_source"] or "",
        group=row["prompt_group"],
        response_tokens=row["response_tokens"],
        extra=extra,
        id=row["id"],
        split=row["split"],
        step=row["step"],
        response_messages=messages.get("response"),
    )


def _json(text: str | None, absent: Any) -> Any:
    return absent if text is None else msgspec.json.decode(text)
