"""``zerowait doctor data``: whether the rows of data files have what a configuration needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from zerowait.cli.doctor import doctor
from zerowait.cli.json_output import JsonOption, print_json
from zerowait.cli.preflight import check_rubrics_of, has_row_rubrics
from zerowait.cli.row_files import RowFile, file_name, read_rows
from zerowait.cli.samples import problems_of_rows
from zerowait.config import RewardConfig, load_config
from zerowait.errors import ConfigError, DataError
from zerowait.judge import RowCriterion

_MOST_TAGS = 20


class _RubricCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What the rubrics of one file hold.

    Args:
        file: its path.
        rows: how many rows it has.
        rubrics: how many rubrics are in them.
        criteria: how many criteria are in these: in all, the fewest and the most of one rubric.
        points: the least and the greatest of a criterion.
        negative: criteria with negative points.
        tags: criteria by tag, the most frequent first.
    """

    file: str
    rows: int
    rubrics: int
    criteria: tuple[int, int, int]
    points: tuple[float, float]
    negative: int
    tags: dict[str, int]


@doctor.command("data")
def check_data(
    files: Annotated[
        list[Path], typer.Argument(help="Rows to train on or to score: .jsonl, .json or .parquet.")
    ],
    config: Annotated[
        str, typer.Option("--config", "-c", help="reward.yaml, or recipe.yaml#reward.")
    ],
    *,
    as_json: JsonOption = False,
) -> int:
    """Check that each row has a well-formed rubric for the judges that read the row's own.

    Exit code 0 when all rows are fine, 2 when one is not: the message names row and criterion.
    """
    loaded = load_config(config)
    if not has_row_rubrics(loaded):
        raise ConfigError(f"{config}: no judge has a verdict {{rubric: extra.NAME}} to check for")
    counts = [_checked(loaded, read_rows(file)) for file in files]
    if as_json:
        print_json({"files": counts})
        return 0
    for count in counts:
        _show(count)
    return 0


def _checked(config: RewardConfig, file: RowFile) -> _RubricCounts:
    """What the rubrics of `file` hold.

    Raises:
        DataError: a row has no rubric, or a malformed one; names all such rows.
    """
    problems: list[DataError] = []
    rubrics: list[tuple[RowCriterion, ...]] = []
    for where, row in zip(file.places, file.rows, strict=True):
        try:
            rubrics.extend(check_rubrics_of(config, row))
        except DataError as error:
            problems.append(DataError(f"{where}: {error}"))
    if problems:
        raise DataError(problems_of_rows(file, problems))
    return _counted(file, rubrics)


def _counted(file: RowFile, rubrics: Sequence[tuple[RowCriterion, ...]]) -> _RubricCounts:
    criteria = [criterion for rubric in rubrics for criterion in rubric]
    sizes = [len(rubric) for rubric in rubrics] or [0]
    points = [criterion.points for criterion in criteria] or [0.0]
    tags = Counter(tag for criterion in criteria for tag in criterion.tags)
    return _RubricCounts(
        file=file_name(file.path),
        rows=len(file.rows),
        rubrics=len(rubrics),
        criteria=(len(criteria), min(sizes), max(sizes)),
        points=(min(points), max(points)),
        negative=sum(each < 0 for each in points),
        tags=dict(tags.most_common()),
    )


def _show(count: _RubricCounts) -> None:
    """Print one line about a file, and one about its tags."""
    total, fewest, most = count.criteria
    low, high = count.points
    print(
        f"{count.file}: {count.rows} rows, {count.rubrics} rubrics: {total} criteria, "
        f"{fewest} to {most} each, {low:g} to {high:g} points, {count.negative} of them negative"
    )
    if count.tags:
        shown = list(count.tags.items())[:_MOST_TAGS]
        more = len(count.tags) - len(shown)
        names = ", ".join(f"{tag} {number}" for tag, number in shown)
        print(f"tags: {names}{f', and {more} more' if more else ''}")
