"""A JSON schema that no text can hang, crash or lead astray."""

import json
import math
import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema.validators import validator_for

from zerowait.errors import ConfigError
from zerowait.json_schema import DEEPEST, JsonSchema, read_json_schema

DRAFTS = [
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
]


def checked(schema):
    return JsonSchema(schema, where="s.json", needed_by="a test")


def fits(schema, value):
    return checked(schema).faults(value) == []


def nested(levels, inner=0):
    for _ in range(levels):
        inner = [inner]
    return inner


@pytest.mark.parametrize(
    ("schema", "fitting", "unfitting"),
    [
        ({"multipleOf": 0.1}, [0.3, 0, -1.1, 10**400, 1e300, 4.3], [0.35, 1e-9]),
        ({"multipleOf": 1e-300}, [1e300, 3e-300], []),
        ({"multipleOf": 3}, [9, 9.0, "x", True], [10, 9.5]),
        ({"minimum": 0}, [10**400, 0.0], [-(10**400)]),
        ({"maximum": 1.5}, [1.5], [10**400]),
        ({"uniqueItems": True}, [[1, True], [[1], ["1"]], [{}, []], [{"a": 1}, {"a": 2}], [1, 2.5]],
         [[1, 1.0], [[1], [1.0]], [{"a": 1, "b": 2}, {"b": 2, "a": 1.0}], [None, None]]),
        ({"pattern": r"^\d{4}$"}, ["2024", 5], ["in 2024", "2024\n", "٢٠٢٤"]),
        ({"pattern": r"^\p{L}+$"}, ["Zoë"], ["a1"]),
        ({"pattern": r"^\u00e9\/\\u$"}, ["é/\\u"], ["e/"]),
        ({"pattern": "^.$"}, ["\ud800"], ["\ud800a"]),
        ({"patternProperties": {"^x": {"type": "integer"}}, "properties": {"y": True}, "additionalProperties": False},
         [{"x1": 1, "y": "z"}], [{"x1": "1"}, {"z": 1}]),
        ({"patternProperties": {"^x": True}, "additionalProperties": {"type": "integer"}}, [{"x": "", "z": 1}], [{"z": ""}]),
        ({"properties": {"c": {"$ref": "#"}}, "type": "object"}, [{"c": {"c": {}}}], [{"c": {"c": 1}}]),
        ({"$defs": {"n": {"$anchor": "here", "type": "null"}}, "$ref": "#here"}, [None], [1]),
        ({"enum": [{"$ref": "http://x/y"}]}, [{"$ref": "http://x/y"}], [1]),
        ({"properties": {"default": {"$ref": "#/$defs/$ref"}}, "$defs": {"$ref": {"type": "null"}}}, [{"default": None}], [{"default": 1}]),
        ({"items": {"$id": "https://example.com/x", "type": "null"}}, [[None]], [[1]]),
        ({"patternProperties": {"^a": True}, "unevaluatedProperties": False}, [{"ab": 1}], [{"b": 1}]),
        ({"$id": "https://example.com/s.json", "$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, [None], [1]),
    ],
)  # fmt: skip
def test_what_fits_and_what_does_not(schema, fitting, unfitting):
    for value in fitting:
        assert checked(schema).faults(value) == []
    for value in unfitting:
        assert checked(schema).faults(value)


@pytest.mark.parametrize("draft", DRAFTS)
def test_every_draft_is_checked_by_the_same_safe_keywords_inside_of_references_too(draft):
    schema = {
        "$schema": draft,
        "properties": {
            "a": {"type": "string", "pattern": r"^\p{L}"},  # not a pattern of Python's
            "b": {"$ref": "#"},
            "c": {"multipleOf": 0.1},
        },
    }
    assert fits(schema, {"b": {"b": {"a": "é", "c": 0.3}}})
    assert not fits(schema, {"b": {"b": {"a": "1"}}})
    assert not fits(schema, {"b": {"b": {"c": 0.35}}})


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ([], "s.json: a JSON schema is an object, not []"),
        ({"type": "objekt"}, 's.json: is no JSON schema: $.type: "objekt" is not valid'),
        ({"$schema": "https://example.com/other"}, "'https://example.com/other'; known drafts are 4, 6,"),
        ({"$schema": "http://json-schema.org/draft-03/schema#"}, "known drafts are 4, 6,"),
        ({"$schema": "http://["}, "Invalid URI reference 'http://['"),
        ({"$schema": []}, '$.$schema: [] is not of type "string"'),
        ({"items": {"$ref": "other.json"}}, "'other.json' is not present in a registry; nothing outside"),
        ({"items": {"$ref": "http://127.0.0.1:1/s.json"}}, "nothing outside of the schema is read"),
        ({"$dynamicRef": "https://example.com/s#x"}, "'https://example.com/s' is not present in a registry"),
        ({"properties": {"default": {"$ref": "#/$defs/gone"}}}, "Pointer '/$defs/gone' does not exist"),
        ({"$ref": "#/x", "x": {"$ref": "#gone"}}, "Anchor 'gone' does not exist"),
        ({"$ref": "#"}, "s.json: the references go around in a circle"),
        ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#"}}}}, "around in a circle"),
        ({"properties": {"x": {"if": {"$ref": "#/properties/x"}}}}, "around in a circle"),
        ({"pattern": "(a"}, '$.pattern: "(a" is not a "regex"'),
        ({"pattern": "^(?!x)"}, "without lookaround"),
        ({"patternProperties": {r"(a)\1": True}}, "without lookaround and back references"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_checked_safely_is_refused_before_any_text_is_seen(schema, message):
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        checked(schema)
    assert str(caught.value).startswith("s.json: ")


def test_a_schema_that_is_nested_too_deeply_is_refused():
    schema = {}
    for _ in range(5000):
        schema = {"not": schema}
    with pytest.raises(ConfigError, match="nested too deeply"):
        checked(schema)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": "^(a+)+$"}, "a" * 50_000 + "!"),
        ({"pattern": r"^(\w+\s?)*$"}, "a " * 25_000 + "!"),
        ({"patternProperties": {"^(a|a)*$": True}}, {"a" * 10_000 + "!": 1}),
        ({"patternProperties": {"^(a+)+$": True}, "additionalProperties": False}, {"a" * 10_000 + "!": 1}),
        ({"uniqueItems": True}, [[i] if i % 2 else {"a": i} for i in range(20_000)] + [[1]]),
    ],
)  # fmt: skip
def test_no_text_takes_more_time_than_its_length(schema, value):
    """Each of these takes minutes or for ever where a text can make the check backtrack."""
    assert isinstance(checked(schema).faults(value), list)


TREE = {"$ref": "#/$defs/t"}
AGAIN = {"properties": {"t": TREE}}
# Ways in which a part of a schema leads to itself more than once at each level of a value.
BRANCHES = [
    {"anyOf": [{"type": "string"}, {**AGAIN, "required": ["x"]}, AGAIN]},
    {"anyOf": [{"type": "string"}, {**AGAIN, "required": ["x"]}, {**AGAIN, "required": ["y"]}]},
    {"oneOf": [{"type": "null"}, {**AGAIN, "required": ["t"]}, {**AGAIN, "required": ["x"]}]},
    {"oneOf": [{"type": "object", **AGAIN}, {"type": "object", **AGAIN, "maxProperties": 9}]},
    {"allOf": [AGAIN, AGAIN], "type": ["object", "null"]},
    {"allOf": [AGAIN, AGAIN], "type": ["object", "string"]},
    {"not": {"required": ["x"], **AGAIN}, **AGAIN},
    {"not": AGAIN, **AGAIN},
    {"if": AGAIN, "then": AGAIN, "else": AGAIN},
    {"if": AGAIN, "then": False, "else": AGAIN},
    {**AGAIN, "patternProperties": {"^t": TREE}},
    {**AGAIN, "additionalProperties": TREE, "allOf": [{"additionalProperties": TREE}]},
    {**AGAIN, "unevaluatedProperties": TREE, "anyOf": [AGAIN, {"unevaluatedProperties": TREE}]},
    {**AGAIN, "$ref": "#/$defs/u"},
    {**AGAIN, "dependentSchemas": {"t": AGAIN}},
    {"properties": {"t": {"anyOf": [TREE, TREE]}}},
]


def chain(levels, end):
    for _ in range(levels):
        end = {"t": end}
    return end


def tree(branches):
    return {**TREE, "$defs": {"t": branches, "u": AGAIN}}


@pytest.mark.parametrize("branches", BRANCHES)
@pytest.mark.parametrize("end", [None, "x", {}, 1])
def test_branches_that_lead_back_to_themselves_double_no_time(branches, end):
    """Looking again for each way that leads to a value takes 2 to the power of its depth."""
    schema = checked(tree(branches))
    faults = schema.faults(chain(30, end))
    assert all(fault.place == ("t",) * len(fault.place) for fault in faults)
    assert "depth" not in {fault.keyword for fault in faults}


@pytest.mark.parametrize("branches", BRANCHES)
@pytest.mark.parametrize("end", [None, "x", {}, 1])
def test_what_is_remembered_is_what_looking_again_would_say(branches, end):
    schema = {"contains": TREE, "$defs": tree(branches)["$defs"]}
    value = [chain(levels, end) for levels in (0, 1, 2, 3) for _ in range(2)]
    for fewest in (2, 4, 6, 8):
        few = {**schema, "minContains": fewest}
        assert fits(few, value) == validator_for(few)(few).is_valid(value)


def test_lists_that_lead_back_to_themselves_double_no_time_either():
    items = {"$defs": {"t": {"items": TREE, "contains": TREE, "type": ["array", "null"]}}, **TREE}
    assert fits(items, nested(60, None))
    assert not fits(items, nested(60, 1))


def test_a_long_list_of_faults_is_told_to_its_end():
    faults = checked({"items": {"minimum": 0}}).faults([-1] * 5_000)
    assert sorted(fault.place for fault in faults) == [(index,) for index in range(5_000)]
    assert {fault.keyword for fault in faults} == {"minimum"}


@pytest.mark.parametrize(
    "schema", [{}, {"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#"}}}}]
)
def test_a_value_may_be_nested_as_deeply_as_it_says_and_no_deeper(schema):
    assert fits(schema, nested(DEEPEST))
    for levels in (DEEPEST + 1, 900, 100_000):
        [fault] = checked(schema).faults(nested(levels))
        assert fault.keyword == "depth"
        assert "nested too deeply" in fault.text


def test_references_that_lead_on_to_references_are_followed_at_each_level():
    links = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}]} for i in range(40)}
    schema = {"$ref": "#/$defs/d0", "$defs": links | {"d40": {"items": {"$ref": "#"}}}}
    assert fits(schema, nested(60))


def test_a_fault_of_a_schema_that_refers_to_itself_names_no_part():
    """Collecting errors takes twice the time for each level of such a value."""
    expression = {"oneOf": [{"type": "number"}, *({"type": "object", "properties": {"op": {"const": op}, "x": {"$ref": "#"}}, "required": ["x"]} for op in ("neg", "not"))]}  # fmt: skip
    value = "bad"
    for _ in range(60):
        value = {"op": "neg", "x": value}
    [fault] = checked(expression).faults(value)
    assert (fault.keyword, fault.place) == ("$ref", ())
    assert "refers to itself" in fault.text


@pytest.mark.parametrize("text", ["1e400", "-1e400", '{"a": [0, 1e999]}'])
@pytest.mark.parametrize("schema", [{}, {"multipleOf": 0.5}, {"type": "integer"}, {"maximum": 1}])
def test_a_number_beyond_a_float_fits_nothing(schema, text):
    [fault] = checked(schema).faults(json.loads(text))
    assert fault.keyword == "finite"
    assert fault.place == (("a", 1) if "a" in text else ())


def test_a_fault_says_where_and_what():
    schema = {
        "properties": {
            "age": {"minimum": 0},
            "name": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        }
    }
    [fault] = checked(schema).faults({"age": -1})
    assert (fault.keyword, fault.place) == ("minimum", ("age",))
    assert fault.text == "$.age: -1 is less than the minimum of 0"
    [fault] = checked(schema).faults({"name": 5})
    assert (fault.keyword, fault.place) == ("anyOf", ("name",))
    assert "$.name: 5 is not" in fault.text


numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip
schemas = st.recursive(
    st.sampled_from([True, {}, {"type": "object"}, {"type": "number"}, {"minimum": 0}, {"pattern": "a"}, {"uniqueItems": True}, {"multipleOf": 2}]),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "items": inner, "not": inner, "anyOf": st.lists(inner, min_size=1, max_size=2),
            "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), inner, max_size=2),
            "additionalProperties": inner,
        },
    ),
    max_leaves=6,
)  # fmt: skip


@given(schemas.filter(lambda schema: schema is not True), values)
@settings(deadline=None, max_examples=30)
def test_on_ordinary_schemas_the_verdict_is_that_of_jsonschema_alone(schema, value):
    assert fits(schema, value) == validator_for(schema)(schema).is_valid(value)


@given(numbers, st.integers(1, 1000), st.integers(0, 6))
def test_a_multiple_is_one_of_the_numbers_as_they_are_written(value, digits, places):
    unit = digits / 10**places
    whole = (Fraction(repr(value)) / Fraction(repr(unit))).denominator == 1
    assert fits({"multipleOf": unit}, value) is whole
    if abs(value) < 1e6 and math.isfinite(value):
        assert fits({"multipleOf": 0.001}, round(value, 3))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        (b"{\n,", "s.json:2: is not JSON"),
        (b"\xe9", "is not UTF-8"),
        (b"9" * 5000, "is not JSON that can be read"),
        (b"[" * 100_000, "is not JSON that can be read"),
    ],
)
def test_a_file_that_holds_no_json_is_named(tmp_path, content, message):
    if content is not None:
        (tmp_path / "s.json").write_bytes(content)
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_json_schema(tmp_path / "s.json")
