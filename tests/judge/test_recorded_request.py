"""When a recorded request asked the same as a new one, apart from the form of the answer."""

import msgspec
import pytest

from zerowait import Sample
from zerowait.config import Endpoint, Judge, VerdictRule
from zerowait.judge import (
    RequestPattern,
    decoded_request,
    load_rubric,
    procedure_for,
    request_of,
    texts_for,
)

SAMPLE = Sample("Capital of France?", "Paris.", "Paris", extra={"rubric": ["says a city"]})
SCHEMA = {
    "type": "object",
    "properties": {"reason": {"type": "string"}, "score": {"type": "integer"}},
    "required": ["reason", "score"],
}
RUBRIC = """## System
You judge.

## User
{{response}}

{{reply_format}}
"""
CRITERIA = """---
criteria:
  logic: {weight: 1, ask: "Does each step follow?"}
  style: {weight: 1, ask: "Is it clear?"}
---
## System
You judge.

## User
{{response}}

{{criteria}}

{{reply_format}}
"""
FORMS = {
    "integer": {"integer": (1, 10)},
    "unstructured": {"integer": (1, 10), "structured": "off"},
    "number": {"number": (0, 1)},
    "choice": {"choice": ["good", "bad"]},
    "probability": {"choice": ["good", "bad"], "by": "probability"},
    "expectation": {"integer": (1, 5), "by": "expectation"},
    "schema": {"schema": "schema.json", "value": "/score"},
}


def judge(folder, verdict, *, rubric=RUBRIC, **fields):
    (folder / "schema.json").write_bytes(msgspec.json.encode(SCHEMA))
    (folder / "rubric.md").write_text(rubric)
    endpoint = Endpoint(base_url="http://judge/v1", model=fields.pop("model", "m"))
    return Judge(
        endpoints=[endpoint], verdict=VerdictRule(**verdict), rubric="./rubric.md", **fields
    )


def questions(settings, folder):
    rubric = load_rubric(settings.rubric, base=folder)
    found = procedure_for(settings, rubric, base=folder).questions
    return [*found, *(each.fallback for each in found if each.fallback is not None)]


def asked(settings, question, sample=SAMPLE, vote=0):
    texts = texts_for(sample, question.rubric, settings)
    request = request_of(texts, settings, question.rubric, form=question.form, vote=vote)
    return decoded_request(request.body())


def pattern(settings, question, sample=SAMPLE, vote=0):
    texts = texts_for(sample, question.rubric, settings)
    return RequestPattern(texts, settings, question.rubric, question.form, vote=vote)


@pytest.mark.parametrize("reason", ["first", "none"])
@pytest.mark.parametrize("new", FORMS)
def test_every_form_of_an_answer_is_recognised_from_every_other(tmp_path, new, reason):
    rubric = f"---\nreason: {reason}\n---\n{RUBRIC}"
    wanted = judge(tmp_path, FORMS[new], rubric=rubric)
    for old, verdict in FORMS.items():
        was = judge(tmp_path, verdict, rubric=rubric)
        for question in questions(was, tmp_path):
            for other in questions(wanted, tmp_path):
                assert pattern(wanted, other).difference(asked(was, question)) == "", (old, new)


DIFFERENT = {
    "another model": ({"model": "n"}, SAMPLE),
    "another temperature": ({"temperature": 1.0}, SAMPLE),
    "another seed, top_p": ({"parameters": {"seed": 1, "top_p": 0.5}}, SAMPLE),
    "another prompt": ({}, Sample("Capital of France?", "Paris!", "Paris")),
}


@pytest.mark.parametrize("why", DIFFERENT)
def test_what_is_asked_otherwise_is_said(tmp_path, why):
    changes, sample = DIFFERENT[why]
    was, now = judge(tmp_path, FORMS["integer"]), judge(tmp_path, FORMS["number"], **changes)
    [question, *_], [other, *_] = questions(was, tmp_path), questions(now, tmp_path)
    assert why in pattern(now, other, sample).difference(asked(was, question))


def test_more_tokens_for_the_answer_are_no_other_question(tmp_path):
    was, now = judge(tmp_path, FORMS["integer"]), judge(tmp_path, FORMS["number"], max_tokens=9)
    [question, *_], [other, *_] = questions(was, tmp_path), questions(now, tmp_path)
    assert pattern(now, other).difference(asked(was, question)) == ""


def test_criteria_asked_together_do_not_answer_one_that_is_asked_apart(tmp_path):
    """The texts of the other criteria are no form of an answer."""
    verdict = FORMS["integer"]
    together = judge(tmp_path, verdict, rubric=CRITERIA)
    apart = judge(tmp_path, verdict, rubric=CRITERIA, ask="apart")
    [whole, *_] = questions(together, tmp_path)
    for question in questions(apart, tmp_path):
        assert pattern(apart, question).difference(asked(together, whole))
        assert pattern(together, whole).difference(asked(apart, question))


def test_a_vote_is_recognised_by_its_seed(tmp_path):
    settings = judge(tmp_path, FORMS["integer"], parameters={"seed": 7}, temperature=1.0)
    [question, *_] = questions(settings, tmp_path)
    second = pattern(settings, question, vote=1)
    assert second.difference(asked(settings, question, vote=1)) == ""
    assert "seed" in second.difference(asked(settings, question, vote=0))


def test_the_mark_of_the_form_in_a_sample_is_no_way_to_be_recognised(tmp_path):
    """A response cannot stand for the form of the answer, whatever it holds."""
    settings = judge(tmp_path, FORMS["integer"])
    [question, *_] = questions(settings, tmp_path)
    marked = Sample("Q?", "\ue000the form of the answer\ue001", "Paris")
    other = Sample("Q?", "Reply with exactly one line", "Paris")
    assert pattern(settings, question, marked).difference(asked(settings, question, other))


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"model":"m"}', b'{"model":"m","messages":[1]}']
)
def test_what_is_no_request_is_another_one(tmp_path, body):
    settings = judge(tmp_path, FORMS["integer"])
    [question, *_] = questions(settings, tmp_path)
    assert pattern(settings, question).difference(decoded_request(body))
