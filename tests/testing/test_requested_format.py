"""The fake judge answers in the form that the request asks for, and is read by our own readers."""

import json

import pytest

import zerowait
from zerowait import Sample, Score
from zerowait.json_schema import JsonSchema
from zerowait.testing import FakeJudge, OutOfRange, Script
from zerowait.testing.judge_request import parse_request
from zerowait.testing.requested_format import requested_format
from zerowait.testing.schema_instance import schema_instance
from zerowait.testing.verdicts import script_for_request

SCHEMA = {
    "type": "object",
    "properties": {
        "reason": {"type": "string"},
        "score": {"type": "integer", "minimum": 1, "maximum": 5},
    },
    "required": ["reason", "score"],
    "additionalProperties": False,
}
CRITERIA = "---\ncriteria: {clarity: 0.4, logic: 0.6}\n---\n## System\nJudge.\n{{criteria}}\n## User\n{{response}}\n{{reply_format}}\n"
FIRST = CRITERIA.replace("{{response}}", "{{response}}\n{{criteria}}").replace(
    "Judge.\n{{criteria}}", "Judge."
)
VERDICTS = {
    "1 to 10": ({"verdict": {"integer": [1, 10]}}, 1, 10),
    "1 to 5": ({"verdict": {"integer": [1, 5]}}, 1, 5),
    "0 to 1": ({"verdict": {"number": [0, 1]}}, 0, 1),
    "-1 to 1": ({"verdict": {"number": [-1, 1]}}, -1, 1),
    "a whole 0 or 1": ({"verdict": {"integer": [0, 1]}}, 0, 1),
    "0 to 100": ({"verdict": {"integer": [0, 100]}}, 0, 100),
    "yes or no": ({"verdict": {"choice": ["yes", "no"]}}, 0, 1),
    "of three": ({"verdict": {"choice": ["good", "so-so", "bad"]}}, 0, 1),
    "criteria": ({"verdict": {"integer": [1, 7]}, "rubric": "criteria.md"}, 1, 7),
    "criteria by words": ({"verdict": {"choice": ["yes", "no"]}, "rubric": "criteria.md"}, 0, 1),
    "criteria apart": ({"verdict": {"integer": [1, 7]}, "rubric": "first.md", "ask": "apart"}, 1, 7),
    "schema": ({"verdict": {"schema": "schema.json", "value": "/score"}}, 1, 5),
    "schema in words": ({"verdict": {"schema": "schema.json", "value": "/score", "structured": False}}, 1, 5),
    "reference pairs": ({"verdict": {"pairs": "reference"}}, 0, 1),
    "monitor": ({"verdict": {"choice": ["yes", "no"]}, "rubric": "monitor", "monitor": {}}, -1, 1),
}  # fmt: skip


def rewards_of(folder, judge, script, *, path="", rows=20):
    (folder / "criteria.md").write_text(CRITERIA)
    (folder / "first.md").write_text(FIRST)
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    with FakeJudge(script) as fake:
        config = {
            "components": {"q": {"judge": "q"}},
            "judges": {"q": {"endpoints": [{"base_url": fake.url + path, "model": "m"}], **judge}},
            "traffic": {"attempts": 1},
            "cache": "off",
        }
        (folder / "reward.yaml").write_text(json.dumps(config))
        samples = [
            Sample(
                "From 3 to 5?",
                f"<think>{n}, a whole number from 3 to 4</think>{n}",
                extra={"reference": "7", "is_correct": True},
            )
            for n in range(rows)
        ]
        with zerowait.open(folder / "reward.yaml") as rewards:
            return [reward.components["q"] for reward in rewards.score(samples)]


@pytest.mark.parametrize(("judge", "low", "high"), VERDICTS.values(), ids=VERDICTS.keys())
@pytest.mark.parametrize("path", ["", "/responses"])
def test_every_form_that_we_ask_for_is_answered(judge, low, high, path, tmp_path):
    outcomes = rewards_of(tmp_path, judge, Script(), path=path)
    assert all(isinstance(outcome, Score) for outcome in outcomes), outcomes[0]
    assert all(low <= outcome.value <= high for outcome in outcomes)
    assert len({outcome.value for outcome in outcomes}) > 1


@pytest.mark.parametrize("kind", ["1 to 5", "0 to 1", "criteria", "schema", "of three"])
def test_a_verdict_that_is_not_allowed_is_one_of_the_form_asked_for(kind, tmp_path):
    outcomes = rewards_of(
        tmp_path, VERDICTS[kind][0], Script(faults=(OutOfRange(always=True),)), rows=5
    )
    expected = "unparseable" if kind == "of three" else "out_of_range"
    assert {outcome.kind for outcome in outcomes} == {expected}


def test_a_verdict_that_the_script_names_comes_whatever_is_asked_for(tmp_path):
    script = Script(verdict=zerowait.config.VerdictRule(integer=(6, 7)))
    outcomes = rewards_of(tmp_path, VERDICTS["1 to 10"][0], script, rows=10)
    assert {outcome.value for outcome in outcomes} == {6, 7}


def format_of(content, **body):
    return requested_format([{"role": "user", "content": content}], body)


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("Rate it on a scale from 1 to 5.", {"integer": (1, 5)}),
        ("Give a score between 0 and 1.", {"number": (0, 1)}),
        ("Your rating is a number from 0.5 to 2.5", {"number": (0.5, 2.5)}),
        ("Answer with one of: A, B or C.", {"choice": ["A", "B", "C"]}),
        ("Trains run from 3 to 5.", None),
        ("What is 2+2?", None),
        ("<<<BEGIN RESPONSE 0f>>>\nScore from 1 to 3\n<<<END RESPONSE 0f>>>", None),
    ],
)
def test_other_peoples_words_are_understood_and_the_material_is_not(content, rule):
    found = format_of(content).rule
    ((name, value),) = (rule or {"": None}).items()
    assert found is None if rule is None else getattr(found, name) == value


@pytest.mark.parametrize(
    "body",
    [
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "v", "schema": SCHEMA},
            }
        },
        {"text": {"format": {"type": "json_schema", "name": "v", "schema": SCHEMA}}},
        {"guided_json": SCHEMA},
        {"guided_json": json.dumps(SCHEMA)},
        {"structured_outputs": {"json": SCHEMA}},
    ],
)
def test_a_schema_is_found_wherever_it_is_enforced(body):
    assert format_of("?", **body).schema == SCHEMA


def test_a_choice_that_is_enforced_and_an_object_that_is_wanted_are_answered():
    assert format_of("?", guided_choice=["a", "b"]).rule.choice == ["a", "b"]
    assert format_of("?", structured_outputs={"choice": ["a", "b"]}).rule.choice == ["a", "b"]
    ask = parse_request(
        b'{"model":"m","messages":[{"role":"user","content":"?"}],"response_format":{"type":"json_object"}}'
    )
    script, _ = script_for_request(Script(), ask.messages, ask.body)
    assert json.loads(script.reply.replace("{verdict}", "7")) == {"score": 7}


SCHEMAS = [
    SCHEMA,
    {"type": "object", "properties": {"a": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}}},
    {"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 5, "minimum": 3, "maximum": 22}}},
    {"type": "object", "properties": {"a": {"enum": ["x", "y"]}, "b": {"const": 7}, "c": {"type": "boolean"}}},
    {"type": "object", "properties": {"a": {"type": ["null", "integer"], "maximum": -3}}},
    {"type": "object", "properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}},
    {"type": "object", "properties": {"a": {"$ref": "#/$defs/s"}}, "$defs": {"s": {"type": "integer", "minimum": 4, "maximum": 6}}},
    {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 3}}},
    {"type": "object", "properties": {"a": {"type": "string", "minLength": 40}, "b": {"type": "string", "maxLength": 3}}},
    {"type": "object", "allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"b": {"type": "string"}}}], "required": ["a", "b"]},
    {"type": "object", "required": ["unknown"]},
]  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("point", [0.0, 0.3, 0.999])
def test_what_is_written_fits_the_schema(schema, point):
    assert not list(
        JsonSchema(schema, where="s", needed_by="tests").faults(schema_instance(schema, point))
    )
