"""``zerowait diff``: the rewards of two records or files compared."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from zerowait.cli.app import app
from zerowait.cli.json_output import JsonOption, print_json
from zerowait.cli.reward_tables import show_changes, show_comparison
from zerowait.cli.row_files import STANDARD_STREAM, read_rows
from zerowait.cli.run_folder import opened_record, run_folder
from zerowait.cli.samples import problems_of_rows, usable_samples
from zerowait.cli.tables import counted
from zerowait.errors import DataError
from zerowait.observe import (
    SHOWN_CHARS,
    RewardedSample,
    UsedConfiguration,
    compare,
    config_differences,
    joined,
    notes_on_earlier_rows,
    rows_in,
    steps_in,
    text_name,
    used_configurations,
)
from zerowait.record import REWARDS, open_index
from zerowait.types import Outcome, Sample, prompt_text

_JOINED_BY: Final = {
    "ticket": "their tickets",
    "id": "their ids",
    "uid": "their names in the record (uid)",
    "text": "prompt and response",
    None: "nothing",
}
_SHOWN_NAME: Final = 24


@app.command("diff")
def diff_rewards(
    a: Annotated[
        Path, typer.Argument(help="A run's folder, or the output of score or replay (--out).")
    ],
    b: Annotated[Path, typer.Argument(help="Another one, with the same samples.")],
    worst: Annotated[int, typer.Option(min=0, help="Disagreements to show.")] = 5,
    as_json: JsonOption = False,
) -> int:
    """Compare the rewards of the samples that A and B have in common.

    Samples are joined by ticket, id, name in the record, or prompt and response: by whichever finds
    most of them.
    """
    found = joined(_rewarded(a), _rewarded(b))
    if not found.pairs:
        raise DataError(
            f"{a} and {b} have no sample in common, by ticket, id, uid, or prompt and response"
        )
    comparison = compare(found.pairs, worst=worst)
    before, after = _used(a), _used(b)
    changes, notes = None, []
    for source, used in ((a, before), (b, after)):
        if used:
            last = used[-1].reward
            earlier = notes_on_earlier_rows(used, last, named="its last one")
            notes += [f"{source}: {note}" for note in earlier]
    if before and after:
        changes = config_differences(before[-1].reward, after[-1].reward)
    if as_json:
        sides = {"a": str(a), "b": str(b), "joined_by": found.by}
        counts = {"only_a": found.only_a, "only_b": found.only_b}
        counts["other_response"] = found.other_response
        print_json(
            {
                **sides,
                **counts,
                "changes": changes,
                "notes": notes,
                **msgspec.structs.asdict(comparison),
            }
        )
        return 0
    print(f"{counted(len(found.pairs), 'sample')} in both, joined by {_JOINED_BY[found.by]}")
    print(f"only in A ({a}): {found.only_a}; only in B ({b}): {found.only_b}")
    if found.other_response:
        print(
            f"note: in {found.other_response} of them the responses differ: these are two samples, "
            "and not two rewards of one"
        )
    for note in notes:
        print(f"note: {note}")
    show_changes(changes)
    print()
    show_comparison(comparison, _short(a), _short(b))
    return 0


def _used(source: Path) -> list[UsedConfiguration]:
    """The configurations of a record's rows; [] where none is known, as for a file of rewards."""
    folder = source.parent if source.name == REWARDS else source
    if source == STANDARD_STREAM or not folder.is_dir():
        return []
    with closing(open_index(folder)) as connection:
        return used_configurations(connection, folder)


def _short(path: Path) -> str:
    name = path.name or str(path)
    return name if len(name) <= _SHOWN_NAME else f"...{name[3 - _SHOWN_NAME :]}"


def _rewarded(source: Path) -> list[RewardedSample]:
    """The samples of a record or a file, with their rewards.

    Raises:
        DataError: there is none, or a row has no reward.
    """
    if source == STANDARD_STREAM or (source.is_file() and source.name != REWARDS):
        return _in_file(source)
    if not source.exists() and source.suffix:
        raise DataError(f"{source} does not exist")
    folder = run_folder(source)
    with opened_record(folder) as connection:
        return [
            row.then
            for split, step in steps_in(connection)
            for row in rows_in(connection, folder, split, step)
        ]


def _in_file(path: Path) -> list[RewardedSample]:
    """The samples of a file's rows; a row may have a list of responses, each with its reward."""
    unusable: list[DataError] = []
    rows = read_rows(path)
    usable = usable_samples(rows, {}, lambda _: None, unusable)
    if unusable:
        raise DataError(problems_of_rows(rows, unusable))
    samples = iter(usable.samples)
    return [
        _rewarded_row(one, next(samples), where)
        for row, where, count in zip(rows.rows, rows.places, usable.counts, strict=True)
        for one in _by_response(row, count, where)
    ]


def _by_response(
    row: Mapping[str, Any], count: int | None, where: str
) -> Iterator[Mapping[str, Any]]:
    """The row once for each of its responses, with the reward of that response."""
    if count is None:
        yield row
        return
    columns: dict[str, list[Any]] = {}
    for name in ("reward", "reward_components", "reward_why"):
        found = row.get(name)
        given = msgspec.json.decode(found) if isinstance(found, str) and found else found
        columns[name] = given if isinstance(given, list) else [None] * count
    if "reward" not in row or any(len(each) != count for each in columns.values()):
        raise DataError(f"{where}: has no list of {count} rewards, one for each response")
    for index in range(count):
        yield {**row, **{name: each[index] for name, each in columns.items()}}


class _Reward(msgspec.Struct):
    """The reward in a row: of a score's or a replay's output, or of a record's line."""

    value: float | None
    components: dict[str, Outcome] = {}
    why: str = ""


def _rewarded_row(row: Mapping[str, Any], sample: Sample, where: str) -> RewardedSample:
    reward = _reward_in(row, where)
    group = None if sample.group is None else (sample.split, sample.step, str(sample.group))
    return RewardedSample(
        value=reward.value,
        components=reward.components,
        why=reward.why,
        group=group,
        ticket=str(row.get("ticket") or ""),
        id="" if sample.id is None else str(sample.id),
        uid=str(row.get("uid") or "") if "sample" in row else "",
        text=text_name(sample.prompt, sample.response),
        step=sample.step,
        prompt=prompt_text(sample.prompt)[:SHOWN_CHARS],
        response=sample.response[:SHOWN_CHARS],
    )


def _reward_in(row: Mapping[str, Any], where: str) -> _Reward:
    if "reward" not in row:
        raise DataError(
            f"{where}: has no 'reward'; compare the outputs of zerowait score or replay, or runs"
        )
    given = row["reward"]
    components = row.get("reward_components") or {}
    if not isinstance(given, Mapping):
        if isinstance(components, str):  # of Parquet
            components = msgspec.json.decode(components)
        given = {"value": given, "components": components, "why": row.get("reward_why") or ""}
    try:
        found = msgspec.convert(given, _Reward)
    except msgspec.ValidationError as error:
        raise DataError(f"{where}: its reward cannot be read: {error}") from None
    if found.value is not None and not math.isfinite(found.value):
        raise DataError(f"{where}: its reward is {found.value}, and no number")
    return found
