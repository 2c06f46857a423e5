"""Verdicts by a JSON schema: what is read, and what is refused before anything runs."""

import json
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait.config import Endpoint, Judge, VerdictRule
from zerowait.errors import ConfigError
from zerowait.judge import decode_reply, load_rubric, procedure_for, read_completion, request_for
from zerowait.judge.parsing.schema import SchemaForm
from zerowait.types import FailureKind, Sample, Score

NUMBER = {"type": "number", "minimum": 0, "maximum": 10}
SCHEMA = {
    "type": "object",
    "properties": {
        "why": {"type": "string"},
        "scores": {
            "type": "object",
            "properties": {"logic": NUMBER, "style": {"$ref": "#/$defs/mark"}},
            "required": ["logic", "style"],
        },
        "sure": {"type": "boolean"},
        "level": {"enum": [1, 2, 4]},
        "free": {"type": "integer"},
        "note": {"type": "string"},
        "maybe": NUMBER,
    },
    "required": ["why", "scores", "sure", "level", "free", "note"],
    "$defs": {"mark": {"type": "integer", "minimum": -1, "maximum": 1}},
}
REPLY = {
    "why": "Step “2” is missing.",
    "scores": {"logic": 7.5, "style": 1},
    "sure": True,
    "level": 2,
    "free": 3,
    "note": "n",
}
BOTH = {"/scores/logic": 0.5, "scores/style": -2.0}


@pytest.fixture
def form(tmp_path):
    def make(value="/scores/logic", schema=SCHEMA, **options):
        (tmp_path / "s.json").write_text(json.dumps(schema))
        return SchemaForm(VerdictRule(schema="s.json", value=value, **options), base=tmp_path)

    return make


def change(path, value, reply=REPLY):
    """`reply` with another value at `path`."""
    head, *rest = path
    return reply | {head: change(rest, value, reply[head]) if rest else value}


@pytest.mark.parametrize(
    ("value", "score", "bounds"),
    [
        ("/scores/logic", 7.5, (0, 10)),
        ("scores/logic", 7.5, (0, 10)),
        ("/scores/style", 1, (-1, 1)),
        ("/sure", 1, (0, 1)),
        ("/level", 2, (1, 4)),
        ("/free", 3, None),
        (BOTH, 1.75, (-2, 7)),
        ({"/scores/logic": 1, "/free": 1}, 10.5, None),
    ],
)
def test_the_score_is_the_number_at_its_place_or_a_weighted_sum(form, value, score, bounds):
    made = form(value)
    assert made.read(json.dumps(REPLY)).value == score
    assert made.bounds == bounds


@pytest.mark.parametrize(
    "reply",
    [
        json.dumps(REPLY, ensure_ascii=False),
        f"Here it is.\n```json\n{json.dumps(REPLY, indent=2, ensure_ascii=False)}\n```",
        f"<think>{{}}\n</think>\n{json.dumps(REPLY, ensure_ascii=False)}",
        json.dumps(REPLY, ensure_ascii=False)[:-1] + ",} // done",
    ],
)
def test_an_object_is_found_as_it_was_written(form, reply):
    outcome = form().read(reply)
    assert outcome.detail["reply"] == REPLY
    assert outcome.why == "Step “2” is missing."


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("", "unparseable"),
        ("7.5", "unparseable"),
        ("[7.5]", "unparseable"),
        (json.dumps(REPLY) + " On second thought, it is a 5.", "unparseable"),
        ("<think>" + json.dumps(REPLY), "unparseable"),
        ('{"why": 1, ' + json.dumps(REPLY)[1:], "unparseable"),
        (json.dumps(change(["scores", "logic"], True)), "unparseable"),
        (json.dumps(change(["scores", "logic"], None)), "unparseable"),
        (json.dumps(change(["scores"], [7])), "unparseable"),
        (json.dumps(change(["level"], 3)), "unparseable"),
        (json.dumps(change(["scores", "logic"], 11)), "out_of_range"),
        (json.dumps(change(["scores", "logic"], -0.1)), "out_of_range"),
        (json.dumps(change(["scores", "style"], 2)), "unparseable"),
        (json.dumps(change(["level"], 3, change(["scores", "logic"], 11))), "unparseable"),
        (json.dumps(REPLY).replace("7.5", "1e999"), "out_of_range"),
        (json.dumps(REPLY).replace("7.5", "NaN"), "unparseable"),
    ],
)
def test_what_does_not_fit_is_no_verdict(form, reply, kind):
    assert form().read(reply).kind == kind


def test_a_number_too_large_for_a_float_is_out_of_range(form):
    reply = json.dumps(REPLY).replace('"free": 3', f'"free": {"9" * 400}')
    assert form("/free").read(reply).kind is FailureKind.OUT_OF_RANGE


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from([*REPLY, "logic", "style"]), inner, max_size=4),
    ),
    max_leaves=9,
)


@given(st.one_of(st.text(), VALUES.map(json.dumps)), st.data())
def test_any_text_is_read_without_an_error_and_a_score_is_in_range(text, data):
    made = MADE[data.draw(st.sampled_from(sorted(MADE)))]
    outcome = made.read(text)
    if isinstance(outcome, Score):
        assert made.bounds[0] <= outcome.value <= made.bounds[1]


@given(st.floats(-20, 20), st.integers(-3, 3))
def test_a_sum_is_what_the_weights_say_exactly_where_all_parts_are_in_range(logic, style):
    reply = json.dumps(change(["scores"], {"logic": logic, "style": style}))
    outcome = MADE["both"].read(reply)
    fits = 0 <= logic <= 10 and -1 <= style <= 1
    assert isinstance(outcome, Score) is fits
    if fits:
        assert outcome.value == pytest.approx(0.5 * logic - 2 * style)
    else:
        assert outcome.kind is FailureKind.OUT_OF_RANGE


@pytest.fixture(autouse=True, scope="module")
def _made(tmp_path_factory):
    """Two forms for the properties, which may not use a fixture of one test."""
    folder = tmp_path_factory.mktemp("schema")
    (folder / "s.json").write_text(json.dumps(SCHEMA))
    for name, value in {"one": "/scores/logic", "both": BOTH}.items():
        MADE[name] = SchemaForm(VerdictRule(schema="s.json", value=value), base=folder)


MADE = {}


@pytest.mark.parametrize(
    ("value", "schema", "error"),
    [
        ("/scors/logic", SCHEMA, "value /scors is not in PATH; did you mean 'scores'?"),
        ("/scores/logik", SCHEMA, "value /scores/logik is not in PATH; did you mean 'logic'?"),
        ("/scores", SCHEMA, "value /scores in PATH is object, and a verdict is a number"),
        ("/note", SCHEMA, "value /note in PATH is string, and a verdict is a number"),
        ("/maybe", SCHEMA, "value /maybe is not required by PATH"),
        ("/free/x", SCHEMA, "value /free/x lies in what is no object in PATH"),
        ({"/free": 0}, SCHEMA, "value /free needs a weight that is not 0"),
        ({"/free": 1, "free": 1}, SCHEMA, "value names one place twice"),
        ("/a", {"type": "array"}, "PATH: must describe an object"),
        ("/a", [], "PATH: a JSON schema is an object, not []"),
        ("/a", {"type": "object", "required": "a"}, "PATH: is no JSON schema: $.required"),
        ("/free", SCHEMA | {"allOf": [{"$ref": "http://x/y"}]}, "PATH: $: Resource 'http://x/y' is not present in a registry"),
        ("/free", SCHEMA | {"allOf": [{"$ref": "#/$defs/gone"}]}, "PATH: $: Pointer '/$defs/gone' does not exist"),
        ("/free", SCHEMA | {"$defs": SCHEMA["$defs"] | {"a": {"$ref": "#/$defs/a"}}}, "PATH: the references go around in a circle"),
        ("/a", {"type": "object", "properties": {"a": NUMBER | {"maximum": 0}}, "required": ["a"]}, "has an empty range"),
    ],
)  # fmt: skip
def test_a_schema_that_gives_no_verdict_is_refused_before_any_work(
    form, tmp_path, value, schema, error
):
    with pytest.raises(ConfigError) as caught:
        form(value, schema)
    assert error.replace("PATH", str(tmp_path / "s.json")) in str(caught.value)


@pytest.mark.parametrize(
    ("content", "error"),
    [(None, "cannot be read: No such file"), (b"{\n,", "s.json:2: is not JSON"), (b"\xe9", "is not UTF-8")],
)  # fmt: skip
def test_a_schema_file_that_cannot_be_read_is_named(tmp_path, content, error):
    if content is not None:
        (tmp_path / "s.json").write_bytes(content)
    with pytest.raises(ConfigError, match=re.escape(error)):
        SchemaForm(VerdictRule(schema="s.json", value="/a"), base=tmp_path)


def procedure(folder, schema, rubric="quality", **options):
    (folder / "s.json").write_text(json.dumps(schema))
    endpoint = Endpoint(base_url="http://127.0.0.1:1/v1", model="m")
    verdict = VerdictRule(schema="s.json", value="/a", **options)
    judge = Judge(endpoints=[endpoint], verdict=verdict)
    return judge, procedure_for(judge, load_rubric(rubric, base=folder), base=folder)


def test_reasons_before_the_verdict_need_a_place_before_it(tmp_path):
    """A structured reply is its object, so that a reason after the number would be an excuse."""
    text, number = {"type": "string"}, {"type": "integer"}
    late = {"type": "object", "properties": {"a": number, "why": text}, "required": ["a", "why"]}
    early = late | {"properties": {"why": text, "a": number}}
    with pytest.raises(ConfigError, match="no text property before it"):
        procedure(tmp_path, late)
    procedure(tmp_path, late, structured=False)
    procedure(tmp_path, early)


@pytest.mark.parametrize("closed", [True, False])
def test_a_schema_is_strict_only_where_every_object_is_closed(tmp_path, closed):
    inner = {"type": "object", "properties": {}, "additionalProperties": False}
    schema = {
        "type": "object",
        "properties": {"z": {"type": "string"}, "a": {"type": "integer"}, "b": inner},
        "required": ["z", "a", "b"] if closed else ["z", "a"],
        "additionalProperties": False,
    }
    judge, made = procedure(tmp_path, schema)
    question = made.questions[0]
    body = request_for(Sample("p", "r"), judge, question.rubric, form=question.form).body()
    sent = json.loads(body)["response_format"]["json_schema"]
    assert sent["strict"] is closed
    assert list(sent["schema"]["properties"]) == ["z", "a", "b"]


def test_an_object_that_was_cut_is_truncated_and_not_misread(form):
    content = json.dumps(REPLY)[:-3]
    choice = {"message": {"content": content}, "finish_reason": "length"}
    body = json.dumps({"choices": [choice]}).encode()
    assert read_completion(decode_reply(body), form().read).kind is FailureKind.TRUNCATED


def test_an_object_in_a_tool_call_is_no_answer(form):
    call = {"function": {"name": "verdict", "arguments": json.dumps(REPLY)}}
    body = json.dumps({"choices": [{"message": {"content": None, "tool_calls": [call]}}]}).encode()
    assert read_completion(decode_reply(body), form().read).kind is FailureKind.UNPARSEABLE


def test_half_a_character_in_a_text_can_be_kept(form):
    """A judge may write one; caches and records are UTF-8, which has none."""
    outcome = form().read(json.dumps(change(("note",), "\ud83d")))
    assert outcome.detail["reply"]["note"] == "?"
    assert msgspec.json.encode(outcome)
