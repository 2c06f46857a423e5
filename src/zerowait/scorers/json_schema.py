"""The scorer ``json_schema``: JSON that has to satisfy a schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from zerowait.errors import ConfigError
from zerowait.json_schema import JsonSchema, read_json_schema
from zerowait.scorers.answers import no_gold
from zerowait.scorers.json_text import JsonPlace, json_in
from zerowait.scorers.thinking import spoken
from zerowait.types import Abstain, FailureKind, Sample, Score

_SHOWN_CHARS = 60


def json_schema(
    sample: Sample,
    *,
    schema: dict[str, Any] | None = None,
    place: JsonPlace = "last",
    score: float = 1.0,
    format_score: float = 0.0,
) -> Score | Abstain:
    """`score` when the response's JSON satisfies the schema, `format_score` for other JSON.

    A response without JSON outside of its thinking is worth 0. Needs the extra ``schema``.

    Args:
        sample: its response has the JSON.
        schema: what the JSON has to satisfy; a configuration may also give the path of a JSON file.
            None: the sample's ground truth is the schema, as a mapping or as JSON.
        place: where the JSON is looked for, see `json_in`.
        score: of JSON that satisfies the schema.
        format_score: of other JSON.

    No text can hang the check: see `zerowait.json_schema`.

    Reference:
        JSON Schema, by default draft 2020-12 (json-schema.org).

    >>> wants_a = {"type": "object", "required": ["a"]}
    >>> json_schema(Sample("", 'So: {"a": 1}.'), schema=wants_a).value
    1.0
    """
    wanted = _gold_schema(sample.ground_truth) if schema is None else _written(schema)
    if wanted is None:
        return no_gold(sample.ground_truth, wanted="a JSON schema")
    found = json_in(spoken(sample), place)
    if found is None:
        return Score(0.0, "no JSON in the response")
    try:
        faults = _checked(wanted).faults(found[0])
    except ConfigError as error:
        return Abstain(FailureKind.BAD_INPUT, str(error))
    return Score(format_score, _short(faults[0].text)) if faults else Score(score)


def read_schema(given: Any, base: Path) -> Any:
    """The schema that a configuration gives, read from its file where it is a path.

    Raises:
        ConfigError: the file does not exist, or is no JSON.
    """
    if not isinstance(given, str):
        return given
    return read_json_schema(base / Path(given).expanduser())


def check_json_schema(options: Mapping[str, Any]) -> None:
    """Raises a ConfigError unless the schema is valid and refers to nothing outside of itself."""
    schema = options.get("schema")
    _checked("{}" if schema is None else _written(schema))


def _gold_schema(ground_truth: Any) -> str | None:
    """The schema of a row as JSON; None when it has none."""
    try:
        schema = json.loads(ground_truth) if isinstance(ground_truth, str) else ground_truth
        return _written(dict(schema)) if isinstance(schema, Mapping) else None
    except (TypeError, ValueError, RecursionError):
        return None


def _written(schema: dict[str, Any]) -> str:
    return json.dumps(schema, sort_keys=True)


def _short(text: str) -> str:
    """A fault, short enough for one line; its beginning says where it is and its end says why."""
    return (
        text if len(text) <= 2 * _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}...{text[-_SHOWN_CHARS:]}"
    )


@lru_cache(maxsize=256)
def _checked(schema: str) -> JsonSchema:
    """The schema that is given as JSON.

    Raises:
        ConfigError: it is none.
    """
    return JsonSchema(json.loads(schema), where="schema", needed_by="the scorer json_schema")
