"""Verdicts that the endpoint enforces, and what happens where it does not."""

import asyncio
import json
from itertools import cycle

import pytest

from zerowait import Abstain, Engine, Sample, Score
from zerowait.client.limits.adaptive import START
from zerowait.events import FormRefused, JudgementSettled
from zerowait.testing import FakeJudge, Latency, Script, Status

SAMPLES = [Sample(f"{number}?", f"{number}!") for number in range(100)]
REFUSING = ["deepseek", "gemini", "llama.cpp", "ollama", "openai", "sglang", "vllm", "xgrammar"]
VERDICTS = {
    "integer": ({"integer": [1, 5]}, {"score": 4}, "Score: 4"),
    "number": ({"number": [0, 1]}, {"score": 0.25}, "Score: 0.25"),
    "choice": ({"choice": ["yes", "perhaps", "no"]}, {"verdict": "perhaps"}, "Verdict: perhaps"),
}


class Run:
    """The rewards of some samples, the events, and the bodies that the judge got."""

    def __init__(self, judges, *, samples=SAMPLES[:1], script=None, answer=None, components=None):
        self.events, self.bodies = [], []
        with FakeJudge(script or Script(), answer=self.answering(answer)) as fake:
            endpoint = {"base_url": fake.url, "model": "m"}
            self.config = {
                "components": {name: {"judge": name} for name in judges},
                "judges": {n: {"endpoints": [endpoint]} | each for n, each in judges.items()},
                "traffic": {"hedge": "off", "timeout_s": 60},
                "cache": "off",
                "on_failure": "neutral",
            }
            self.rewards = asyncio.run(self.score(samples))
            self.seen = fake.seen

    def answering(self, answer):
        def keep(body):
            self.bodies.append(body)
            return answer(body)

        return None if answer is None else keep

    async def score(self, samples):
        async with Engine(self.config, listener=self.events.append) as engine:
            return await engine.score_all(samples)

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


def as_asked(schema_reply, line):
    return lambda body: json.dumps(schema_reply) if "response_format" in body else line


@pytest.mark.parametrize("name", list(VERDICTS))
def test_a_verdict_is_asked_for_as_json_that_the_endpoint_enforces(name):
    verdict, written, line = VERDICTS[name]
    run = Run({"q": {"verdict": verdict}}, answer=as_asked({"reason": "So.", **written}, line))
    outcome = run.rewards[0].components["q"]
    assert isinstance(outcome, Score)
    assert outcome.detail["verdict"] == next(iter(written.values()))
    assert outcome.why == "So."
    (form,) = [body["response_format"]["json_schema"] for body in run.bodies]
    assert form["strict"] is True
    assert list(form["schema"]["properties"]) == ["reason", *written]
    assert form["schema"]["required"] == ["reason", *written]
    assert form["schema"]["additionalProperties"] is False


def test_without_reasons_the_object_has_the_verdict_alone(tmp_path):
    rubric = tmp_path / "r.md"
    rubric.write_text(
        "---\nreason: none\n---\n## System\n{{reply_format}}\n## User\n{{response}}\n"
    )
    judge = {"verdict": {"integer": [1, 3]}, "rubric": str(rubric)}
    run = Run({"q": judge}, answer=lambda _: '{"score": 2}')
    (body,) = run.bodies
    assert body["response_format"]["json_schema"]["schema"]["properties"] == {
        "score": {"type": "integer", "enum": [1, 2, 3]}
    }
    assert '{"score": N}' in body["messages"][0]["content"]


@pytest.mark.parametrize(("server", "name"), list(zip(REFUSING, cycle(VERDICTS))))
def test_an_endpoint_that_refuses_is_asked_by_the_prompt_and_learned_from_once(server, name):
    verdict, written, line = VERDICTS[name]
    script = Script(structured=server, latency=Latency(0.002))
    run = Run(
        {"q": {"verdict": verdict}},
        samples=SAMPLES,
        script=script,
        answer=as_asked(written, line),
    )
    values = {outcome.detail["verdict"] for r in run.rewards for outcome in r.components.values()}
    assert values == {next(iter(written.values()))}
    assert not any("response_format" in body for body in run.bodies)
    assert len(run.bodies) == len(SAMPLES)
    assert len(run.of(FormRefused)) == 1
    assert len(run.of(JudgementSettled)) == len(SAMPLES)
    refused = run.seen.requests - len(SAMPLES)
    assert 1 <= refused <= START, "only those that were under way are refused"


def test_what_an_endpoint_refuses_is_not_asked_of_it_by_another_judge():
    verdict = {"verdict": {"integer": [1, 5]}}
    script = Script(structured="openai")
    judges = {"a": verdict, "b": verdict | {"max_tokens": 99}}
    run = Run(judges, script=script, samples=SAMPLES[:1], answer=lambda _: "Score: 3")
    assert [o.value for o in run.rewards[0].components.values()] == [3.0, 3.0]
    assert len(run.of(FormRefused)) == 1


def test_structured_on_never_falls_back_and_says_the_servers_words():
    judge = {"verdict": {"integer": [1, 5], "structured": "on"}}
    run = Run({"q": judge}, script=Script(structured="deepseek"), answer=lambda _: "Score: 3")
    outcome = run.rewards[0].components["q"]
    assert isinstance(outcome, Abstain)
    assert outcome.kind == "http_error"
    assert "This response_format type is unavailable now" in outcome.detail
    assert run.bodies == []
    assert len(run.of(JudgementSettled)) == 1


@pytest.mark.parametrize("off", ["off", False])
def test_structured_off_leaves_the_form_to_the_prompt(off):
    judge = {"verdict": {"integer": [1, 5], "structured": off}}
    run = Run({"q": judge}, answer=lambda _: "Score: 3")
    assert "response_format" not in run.bodies[0]
    assert (
        "Score: N"
        in run.bodies[0]["messages"][0]["content"] + run.bodies[0]["messages"][1]["content"]
    )


def test_a_judge_with_a_constraint_of_its_own_keeps_it():
    judge = {"verdict": {"choice": ["yes", "no"]}, "parameters": {"guided_choice": ["yes", "no"]}}
    run = Run({"q": judge}, answer=lambda _: "yes")
    assert "response_format" not in run.bodies[0]
    assert run.rewards[0].components["q"].value == 1.0


@pytest.mark.parametrize(
    "status", [Status(status=401), Status(status=429), Status(status=503, message="grammar")]
)
def test_another_failure_is_no_refusal(status):
    judge = {"verdict": {"integer": [1, 5]}}
    run = Run(
        {"q": judge},
        script=Script(
            faults=(type(status)(status=status.status, message="response_format busy", first=1),)
        ),
        answer=lambda _: '{"reason": "", "score": 3}',
    )
    assert run.of(FormRefused) == []
    assert all("response_format" in body for body in run.bodies)


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ('```json\n{"reason": "a", "score": 4}\n```', 4.0),
        ('<think>maybe {"score": 1}</think>{"reason": "a", "score": 4}', 4.0),
        ("It is fine.\nScore: 4", 4.0),
        ('{"reason": "He says \\"score\\": 5", "score": 4}', 4.0),
        ('{"score": 4.0}', 4.0),
        ('{"score": 9}', "out_of_range"),
        ('{"score": 2.5}', "unparseable"),
        ('{"score": true}', "unparseable"),
        ('{"score": 4, "score": 5}', "unparseable"),
        ('{"score": 4, "Score": 5}', "unparseable"),
        ('{"score": 4, "final_score": 2}', "unparseable"),
        ('{"score": 4, "max_score": 100}', "unparseable"),
        ('{"score": 4, "confidence": 0.9, "id": 3}', 4.0),
        ('{"reason": "\\ud83d", "score": 4}', 4.0),
        ('{"reason": "no number"}', "unparseable"),
        ("[4]", 4.0),
        ('{"score": NaN}', "unparseable"),
        ('{"score": 4', None),
    ],
)
def test_whatever_comes_back_is_read_or_abstains(reply, value):
    run = Run({"q": {"verdict": {"integer": [1, 5]}}}, answer=lambda _: reply)
    outcome = run.rewards[0].components["q"]
    if isinstance(outcome, Score):
        assert outcome.value == (4.0 if value is None else value)
    else:
        assert value is None or outcome.kind == value


def test_criteria_of_which_one_is_given_twice_abstain():
    reply = '{"reason": "r", "follows": 10, "clarity": 1, "valid": 10, "follows": 1}'
    judge = {"verdict": {"integer": [1, 10]}, "rubric": "tool_criteria"}
    outcome = Run({"q": judge}, answer=lambda _: reply).rewards[0].components["q"]
    assert isinstance(outcome, Abstain)
    assert outcome.kind == "unparseable"


def test_criteria_of_a_rubric_are_one_object():
    def answer(body):
        assert list(body["response_format"]["json_schema"]["schema"]["properties"]) == [
            "reason",
            "follows",
            "clarity",
            "valid",
        ]
        return '{"reason": "r", "follows": 10, "clarity": 1, "valid": 10}'

    run = Run({"q": {"verdict": {"integer": [1, 10]}, "rubric": "tool_criteria"}}, answer=answer)
    outcome = run.rewards[0].components["q"]
    assert outcome.value == pytest.approx(0.4 * 10 + 0.6)
    assert outcome.detail["criteria"] == {"follows": 10, "clarity": 1, "valid": 10}
    assert outcome.why == "r"


def test_a_reply_by_the_prompt_is_stored_under_a_key_of_its_own(tmp_path):
    """An endpoint that learns the form later is asked for it: the request is another one."""

    async def score(config):
        async with Engine(config) as engine:
            return (await engine.score(SAMPLES[0])).value

    answer = as_asked({"reason": "", "score": 5}, "Score: 2")
    values, requests = [], []
    for structured in ("openai", "openai", "enforced", "enforced"):
        with FakeJudge(Script(structured=structured), answer=answer) as fake:
            config = {
                "components": {"q": {"judge": "q"}},
                "judges": {
                    "q": {
                        "endpoints": [{"base_url": fake.url, "model": "m"}],
                        "verdict": {"integer": [1, 5]},
                    }
                },
                "cache": {"path": str(tmp_path / "c.db")},
            }
            values.append(asyncio.run(score(config)))
            requests.append(fake.seen.requests)
    assert values == [2.0, 2.0, 5.0, 5.0]
    assert requests == [2, 1, 1, 0]  # refused and asked; refused; asked; from the cache
