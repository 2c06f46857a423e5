"""Golden vectors for `json_schema`: which JSON of a response counts, and what is wrong with it."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.config import load_config
from zerowait.engine.plan import compile_plan
from zerowait.errors import ConfigError
from zerowait.scorers import check_options
from zerowait.scorers.json_schema import json_schema
from zerowait.scorers.json_text import json_in
from zerowait.types import Abstain, FailureKind, Sample

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[A-Z]"}, "age": {"$ref": "#/$defs/age"}},
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"age": {"type": "integer", "minimum": 0}},
}

CASES = [
    # response, value, why
    ('{"name": "Ann"}', 1.0, ""),
    ('{"name": "Ann", "age": 3}', 1.0, ""),
    ('Sure! {"name": "Ann"} is it.', 1.0, ""),
    ('```json\n{"name": "Ann"}\n```', 1.0, ""),
    ('```\n{"name": "Ann"}\n```', 1.0, ""),
    ('```json\n{"name": "Ann"}\n```\nwhich has {"x": 1} left out', 1.0, ""),
    ('<answer>{"name": "Ann"}</answer> and not {"x": 1}', 1.0, ""),
    ('{"name": "ann"} no: {"name": "Ann"}', 1.0, ""),
    ('{"name": "Ann"} no: {"name": "ann"}', 0.1, "$.name: "),
    ('[{"name": "Ann"}]', 0.1, "$: "),
    ('{"name": "Ann", "age": -1}', 0.1, "$.age: "),
    ('{"name": "Ann", "age": 1.5}', 0.1, "$.age: "),
    ('{"name": "Ann", "agee": 1}', 0.1, "agee"),
    ("{}", 0.1, '"name" is a required property'),
    ('{"name": "Ann"', 0.0, "no JSON"),
    ("{'name': 'Ann'}", 0.0, "no JSON"),
    ('{"name": NaN}', 0.0, "no JSON"),
    ('{"name": "Ann",}', 0.0, "no JSON"),
    ("no braces", 0.0, "no JSON"),
    ("", 0.0, "no JSON"),
    ("[" * 5000, 0.0, "no JSON"),
    ('{"name": "Ann", "age": 1e400}', 0.1, "beyond a float"),
    ('{"name": "Ann", "age": 1e300}', 1.0, ""),
    ('{"name": "Ann", "agee": ' + "[" * 200 + "]" * 200 + "}", 0.1, "nested too deeply"),
]


@pytest.mark.parametrize(("response", "value", "why"), CASES)
def test_the_last_json_of_a_response_has_to_satisfy_the_schema(response, value, why):
    score = json_schema(Sample("", response), schema=SCHEMA, format_score=0.1)
    assert score.value == value
    assert why in score.why


TREE = {"$defs": {"t": {"properties": {"t": {"$ref": "#/$defs/t"}}}}, "$ref": "#/$defs/t"}
HOSTILE = [
    # schema, response, value, why
    ({"items": {"multipleOf": 0.01}}, "[1e400]", 0.1, "beyond a float"),
    ({"items": {"multipleOf": 0.01}}, "[1e308]", 1.0, ""),
    ({"items": {"multipleOf": 0.1}}, "[0.3]", 1.0, ""),
    ({"items": {"multipleOf": 0.1}}, "[0.35]", 0.1, "not a multiple"),
    ({"items": {"pattern": "^(a+)+$"}}, '["' + "a" * 5000 + '!"]', 0.1, "does not match"),
    (TREE, '{"t": ' * 60 + "1" + "}" * 60, 1.0, ""),
    (TREE, '{"t": ' * 400 + "1" + "}" * 400, 0.1, "nested too deeply"),
    ({"uniqueItems": True}, "[" + "1," * 5000 + "1]", 0.1, "non-unique"),
    ({"required": ["a"]}, "```" + " " * 50_000 + '{"a": 1}', 1.0, ""),
    ({"required": ["a"]}, "```json" + "\t" * 50_000 + '{"a": 1}', 1.0, ""),
    ({"required": ["a"]}, '{"a": 1' + "0" * 5000 + "}", 0.0, "no JSON"),
]


@pytest.mark.parametrize(("schema", "response", "value", "why"), HOSTILE)
def test_a_text_that_is_made_to_hang_or_crash_the_check_is_scored(schema, response, value, why):
    outcome = json_schema(Sample("", response), schema=schema, format_score=0.1)
    assert outcome.value == value
    assert why in outcome.why


def test_the_whole_response_may_have_to_be_json():
    for response, value in (
        ('{"name": "Ann"}', 1),
        (' {"name": "Ann"}\n', 1),
        ('so {"name": "Ann"}', 0),
    ):
        assert json_schema(Sample("", response), schema=SCHEMA, place="whole").value == value


def test_without_a_schema_the_gold_is_one():
    said = '{"name": "Ann"}'
    for gold in (SCHEMA, json.dumps(SCHEMA)):
        assert json_schema(Sample("", said, gold)).value == 1
        assert json_schema(Sample("", "{}", gold)).value == 0


@pytest.mark.parametrize(
    "gold", [None, "", "{", "5", [SCHEMA], {"type": "objekt"}, {"$ref": "http://x/y.json"}]
)
def test_a_gold_that_is_no_schema_abstains(gold):
    outcome = json_schema(Sample("", "{}", gold))
    assert isinstance(outcome, Abstain)
    assert outcome.kind is FailureKind.BAD_INPUT


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "objekt"}, 'schema: is no JSON schema: $.type: "objekt" is not valid'),
        (
            {"items": {"$ref": "other.json"}},
            "'other.json' is not present in a registry; nothing outside",
        ),
        ({"$ref": "#/$defs/none"}, "Pointer '/$defs/none' does not exist"),
        ({"pattern": "(?=a)"}, "without lookaround"),
        (5, "schema is 5"),
    ],
)
def test_a_wrong_schema_is_a_configuration_error(schema, message):
    with pytest.raises(ConfigError) as caught:
        check_options("json_schema", {"schema": schema})
    assert message in str(caught.value)


def config(tmp_path, text):
    (tmp_path / "person.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "reward.yaml").write_text(text)
    return load_config(tmp_path / "reward.yaml")


def test_a_schema_file_is_found_beside_the_configuration(tmp_path):
    text = """
components:
  form: {scorer: json_schema, schema: person.json}
  row: {scorer: by_data_source, table: {people: {scorer: json_schema, schema: person.json}}}
"""
    form, row = compile_plan(config(tmp_path, text)).steps
    assert form.options["schema"] == SCHEMA
    assert row.options["table"]["people"] == {"scorer": "json_schema", "schema": SCHEMA}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.json", "missing.json cannot be read"),
        ("broken.json", "broken.json:1: is not JSON"),
    ],
)
def test_a_schema_file_that_cannot_be_read_names_its_place(tmp_path, name, message):
    text = f"components:\n  form: {{scorer: json_schema, schema: {name}}}\n"
    with pytest.raises(ConfigError) as caught:
        compile_plan(config(tmp_path, text))
    assert message in str(caught.value)
    assert "reward.yaml" in str(caught.value)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
objects = st.dictionaries(st.text(max_size=3), values, max_size=3)


@settings(max_examples=40)
@given(objects, st.text("ab \n.,:'", max_size=20), st.text("ab \n.,:'", max_size=20))
def test_an_object_is_found_whatever_prose_stands_around_it(value, before, after):
    assert json_in(f"{before}{json.dumps(value)}{after}") == (value,)


@given(st.text(max_size=100) | st.text('[]{}",:1 \n`', max_size=60))
def test_what_is_found_is_json_and_nothing_raises(text):
    for place in ("last", "whole"):
        found = json_in(text, place)
        assert found is None or json.loads(json.dumps(found[0])) == found[0]
