"""Samples from the rows of a data file, whatever its columns are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import compress, islice
from pathlib import Path
from typing import Any, Final

import msgspec

from zerowait.cli.row_files import RowFile, collect_error, file_name, read_rows
from zerowait.config.messages import locate, plain_words
from zerowait.config.source import path_text
from zerowait.errors import ConfigError, DataError
from zerowait.pictures import holds_pictures, own_pictures, with_urls
from zerowait.types import Reward, Sample

FIELDS: Final = tuple(Sample.__struct_fields__)

# Names of a column besides the field's own: those of verl's rollout dumps and of common data sets
_ALIASES: Final = {
    "prompt": ("prompt", "input", "question"),
    "response": ("response", "output", "completion"),
    "ground_truth": ("ground_truth", "gts", "answer"),
    "group": ("group", "uid"),
    "extra": ("extra", "extra_info"),
}
# Columns with the list of all responses to a row's prompt
_SEVERAL: Final = ("responses", "completions", "outputs", "generations")


class UsableRows(msgspec.Struct, frozen=True):
    """The rows of a file that can be scored, with their samples.

    Args:
        file: these rows.
        samples: of all rows, one after another.
        counts: the number of responses of each row; None where it is one that stands alone, not in
            a list.
    """

    file: RowFile
    samples: list[Sample]
    counts: list[int | None]

    def by_row(self, rewards: Sequence[Reward]) -> list[Reward | list[Reward]]:
        """The reward of each row; a list where the row has a list of responses.

        Args:
            rewards: of the samples.
        """
        left = iter(rewards)
        return [next(left) if n is None else list(islice(left, n)) for n in self.counts]


def samples_of(file: RowFile, columns: Mapping[str, str]) -> list[Sample]:
    """Each row as a `Sample`; columns that are no field of it go to ``extra``.

    Rows may have the fields of `Sample`, be lines of a run's ``rewards.jsonl``, be verl's rollout
    dumps (``input``, ``output``, ``gts``), or have any names that `columns` maps.

    Args:
        file: the rows.
        columns: the file's column for a field of `Sample`, as ``--column FIELD=COLUMN`` says.

    Raises:
        DataError: a row has no prompt or response, or a value of the wrong type; names the row.
        ConfigError: `columns` maps a field that does not exist.
    """
    _check_columns(columns)
    rows = zip(file.places, file.rows, strict=True)
    return [_sample(row, columns, where, file.path.parent) for where, row in rows]


def _check_columns(columns: Mapping[str, str]) -> None:
    for field in columns:
        if field not in FIELDS:
            raise ConfigError(f"--column {field}=...: a sample has the fields {', '.join(FIELDS)}")


def _sample(row: Mapping[str, Any], columns: Mapping[str, str], where: str, folder: Path) -> Sample:
    """The sample of a row; pictures may be files, whose paths start from `folder`."""
    return _convert(_sample_fields(row, columns, where, folder), where)


def _samples(
    row: Mapping[str, Any], columns: Mapping[str, str], where: str, folder: Path
) -> tuple[list[Sample], int | None]:
    """The samples of a row, and the number of its responses; None where it has no list of them.

    Unless the row names a group, its responses form one.
    """
    fields = _sample_fields(row, columns, where, folder)
    responses = fields["response"]
    if not _are_several(responses):
        return [_convert(fields, where)], None
    if fields.get("group") is None:
        fields |= {"group": where, "group_size": len(responses)}
    tokens = fields.get("response_tokens")
    if isinstance(tokens, list) and len(tokens) != len(responses):
        raise DataError(
            f"{where}: response_tokens has {len(tokens)} numbers for {len(responses)} responses"
        )
    samples = []
    for index, response in enumerate(responses):
        own: dict[str, Any] = {"response": response}
        if fields.get("id") is not None:
            own["id"] = f"{fields['id']}/{index}"
        if isinstance(tokens, list):
            own["response_tokens"] = tokens[index]
        samples.append(_convert(fields | own, f"{where}: response {index}"))
    return samples, len(responses)


def _are_several(response: Any) -> bool:
    """Whether it is a list of responses; one that is a conversation is a list of messages.

    >>> _are_several(["a", "b"]), _are_several([{"role": "assistant", "content": "a"}])
    (True, False)
    """
    if not isinstance(response, list) or not response:
        return False
    return all(isinstance(each, str | list) for each in response)


def _sample_fields(
    row: Mapping[str, Any], columns: Mapping[str, str], where: str, folder: Path
) -> dict[str, Any]:
    """The fields of a row's sample, with its pictures read."""
    given = row.get("sample")
    fields = dict(given) if isinstance(given, Mapping) else _fields(row, columns, where)
    if isinstance(fields.get("prompt"), list) and holds_pictures(fields["prompt"]):
        try:
            extra = fields.get("extra") or {}
            column = own_pictures(extra)
            fields["prompt"] = with_urls(fields["prompt"], column, folder=folder)
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
    return fields


def usable_samples(
    file: RowFile,
    columns: Mapping[str, str],
    check: Callable[[Sample], None],
    unusable: list[DataError],
) -> UsableRows:
    """The rows that can be scored, and their samples; a row may have a list of responses.

    Args:
        file: all rows.
        columns: the file's column for a field of `Sample`.
        check: raises a DataError for a sample that lacks what the configuration needs.
        unusable: collects the error of each other row.

    Raises:
        ConfigError: `columns` maps a field that does not exist.
    """
    _check_columns(columns)
    is_usable: list[bool] = []
    samples: list[Sample] = []
    counts: list[int | None] = []
    for where, row in zip(file.places, file.rows, strict=True):
        make = partial(_samples, row, columns, where, file.path.parent)
        read = collect_error(partial(_checked_samples, make, where, check), unusable)
        is_usable.append(read is not None)
        if read is not None:
            samples += read[0]
            counts.append(read[1])
    if not all(is_usable):
        rows = list(compress(file.rows, is_usable))
        places = list(compress(file.places, is_usable))
        table = None if file.table is None else file.table.filter(is_usable)
        file = RowFile(file.path, rows, places, table)
    return UsableRows(file, samples, counts)


def problems_of_rows(file: RowFile, unusable: Sequence[DataError]) -> str:
    """The errors as text for people: each problem once, with the numbers of its rows.

    Args:
        file: the rows' file.
        unusable: the errors, at least one.
    """
    if len(unusable) == 1:
        return str(unusable[0])
    rows: dict[str, list[str]] = {}
    for error in unusable:
        place, _, problem = str(error).removeprefix(file_name(file.path)).partition(": ")
        if not place:  # "FILE: item 3: is no JSON object"
            place, _, problem = problem.partition(": ")
        rows.setdefault(problem, []).append(place.removeprefix(":"))
    ordered = sorted(rows.items(), key=lambda item: _number(item[1][0]))
    lines = [f"  {_ranges(places)}: {problem}" for problem, places in ordered]
    return "\n".join([f"{file_name(file.path)}: {len(unusable)} rows cannot be scored", *lines])


def _number(place: str) -> int:
    """The row number in a place such as ``7`` or ``item 7``; 0 without one."""
    digits = place.rpartition(" ")[2]
    return int(digits) if digits.isdecimal() else 0


def _ranges(places: Sequence[str]) -> str:
    """The row numbers, runs of neighbours as ranges.

    >>> _ranges(["7", "9", "10", "11"])
    '7, 9-11'
    """
    spans: list[list[str]] = []
    for place in places:
        follows = spans and place.isdigit() and spans[-1][-1].isdigit()
        if follows and int(place) == int(spans[-1][-1]) + 1:
            spans[-1] = [spans[-1][0], place]
        else:
            spans.append([place])
    return ", ".join("-".join(span) for span in spans)


def _checked_samples(
    make: Callable[[], tuple[list[Sample], int | None]],
    where: str,
    check: Callable[[Sample], None],
) -> tuple[list[Sample], int | None]:
    samples, count = make()
    for index, sample in enumerate(samples):
        try:
            check(sample)
        except DataError as error:
            which = "" if count is None else f" response {index}:"
            raise DataError(f"{where}:{which} {error}") from None
    return samples, count


def first_group(path: Path) -> list[Sample]:
    """The sample of a file's first row, with the others of its ``group`` if it has one."""
    samples = samples_of(read_rows(path), {})
    if not samples or samples[0].group is None:
        return samples[:1]
    return [sample for sample in samples if sample.group == samples[0].group]


def _column_of(field: str, row: Mapping[str, Any], columns: Mapping[str, str]) -> str | None:
    """The row's column of a field of `Sample`; None where it has none."""
    names = (columns[field],) if field in columns else _ALIASES.get(field, (field,))
    if field != "response" or field in columns:
        return next((name for name in names if name in row), None)
    found = [name for name in (*names, *_SEVERAL) if name in row]
    # a table has null in each row's unused one of response and responses
    return next((name for name in found if row[name] is not None), found[0] if found else None)


def _fields(row: Mapping[str, Any], columns: Mapping[str, str], where: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    used: set[str] = set()
    for field in FIELDS:
        name = _column_of(field, row, columns)
        if name is not None:
            if name in _SEVERAL and field not in columns:
                _check_several(row[name], f"{where}: {name}")
            fields[field] = row[name]
            used.add(name)
        elif field in columns:
            have = ", ".join(row)
            raise DataError(f"{where}: has no column {columns[field]!r}; it has {have}")
    reward_model = row.get("reward_model")
    if "ground_truth" not in fields and isinstance(reward_model, Mapping):
        fields["ground_truth"] = reward_model.get("ground_truth")
        used.add("reward_model")
    for field in ("prompt", "response"):
        if field not in fields:
            raise DataError(
                f"{where}: has no {field!r} (nor {', '.join(_ALIASES[field][1:])}); it has "
                f"{', '.join(row)}. Name its column with --column {field}=NAME"
            )
    given = fields.get("extra")
    if given is not None and not isinstance(given, Mapping):
        name = next(name for name in (columns.get("extra"), *_ALIASES["extra"]) if name in row)
        raise DataError(f"{where}: {name} must be a mapping, not {type(given).__name__}")
    extra = dict(given or {})
    extra.update({k: v for k, v in row.items() if k not in used and k not in FIELDS})
    fields["extra"] = extra
    return fields


def _check_several(responses: Any, where: str) -> None:
    """Raise a DataError unless `responses` is a list with at least one response."""
    if not isinstance(responses, list) or not responses:
        raise DataError(f"{where} must be a list with at least one response")
    if not _are_several(responses):
        raise DataError(f"{where} must hold texts, or a list of messages for each response")


def _convert(fields: dict[str, Any], where: str) -> Sample:
    for name in ("group", "id"):
        if isinstance(fields.get(name), int):
            fields[name] = str(fields[name])
    if fields.get("data_source") is None:
        fields.pop("data_source", None)
    try:
        return msgspec.convert(fields, Sample)
    except DataError as error:  # a sample's own check
        raise DataError(f"{where}: {error}") from None
    except msgspec.ValidationError as error:
        path, problem = locate(str(error))
        raise DataError(f"{where}: {path_text(path)} {plain_words(problem)}".strip()) from None
