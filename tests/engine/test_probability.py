"""Verdicts from token probabilities through the engine and a real HTTP judge."""

import asyncio
import math

import pytest

import zerowait
from zerowait import Abstain, Engine, Sample
from zerowait.cli.app import run
from zerowait.errors import ConfigError, JudgementError
from zerowait.testing import AssistantMessage, FakeJudge, Script, Status

pytestmark = pytest.mark.wire

PLAIN = "---\nreason: none\n---\n## System\nJudge.\n## User\n{{response}}\n{{reply_format}}\n"
YES_NO = {"choice": ["yes", "no"], "by": "probability"}
ONE_TO_TEN = {"integer": [1, 10], "by": "expectation"}


@pytest.fixture
def rubric(tmp_path):
    path = tmp_path / "plain.md"
    path.write_text(PLAIN)
    return str(path)


def config(url, rubric, *, api="chat", verdict=YES_NO, cache="off", traffic=None, **judge):
    endpoint = {"base_url": url, "model": "m", "api": api}
    judge = {"endpoints": [endpoint], "rubric": rubric, "verdict": verdict} | judge
    return {
        "components": {"q": {"judge": "j"}},
        "judges": {"j": judge},
        "traffic": {"concurrency": 4, "hedge": "off", "attempts": 1} | (traffic or {}),
        "cache": cache,
    }


def scored(settings, count=1):
    async def scenario():
        async with Engine(settings) as engine:
            return await engine.score_all([Sample("p", f"answer {n}") for n in range(count)])

    rewards = asyncio.run(asyncio.wait_for(scenario(), 60))
    return [reward.components["q"] for reward in rewards]


class Asked:
    """Answers with one word and its logprobs; keeps the bodies."""

    def __init__(self, content="yes", logprobs=None, **message):
        self.message = AssistantMessage(content=content, logprobs=logprobs, **message)
        self.bodies = []

    def __call__(self, body):
        self.bodies.append(body)
        return self.message


def chances(written, **probabilities):
    top = [{"token": t, "logprob": math.log(p)} for t, p in probabilities.items()]
    return {"content": [{"token": written, "logprob": -0.1, "top_logprobs": top}]}


@pytest.mark.parametrize("api", ["chat", "completions", "responses"])
def test_every_api_of_writers_gives_probabilities(api, rubric):
    with FakeJudge(Script()) as judge:
        [outcome] = scored(config(judge.url, rubric, api=api))
    written = {"yes": 0.7 / 0.95, "no": 0.25 / 0.95}[outcome.detail["written"]]
    assert outcome.value == pytest.approx(written)
    assert outcome.detail["measured"]["outside"] == pytest.approx(0.05)


def test_the_request_asks_for_twenty_alternatives_or_for_as_many_as_the_user_says(rubric):
    for parameters, top in (({}, 20), ({"top_logprobs": 5}, 5)):
        with FakeJudge(answer=(asked := Asked())) as judge:
            scored(config(judge.url, rubric, parameters=parameters))
        assert (asked.bodies[0]["logprobs"], asked.bodies[0]["top_logprobs"]) == (True, top)
        assert "exactly one word, yes or no" in asked.bodies[0]["messages"][1]["content"]


def test_one_token_is_enough(rubric):
    """A reply that ends at max_tokens is cut, and its first word is there all the same."""
    logprobs = chances("no", no=0.6, yes=0.3, The=0.1)
    with FakeJudge(answer=(asked := Asked("no", logprobs, finish_reason="length"))) as judge:
        [outcome] = scored(config(judge.url, rubric, max_tokens=1))
    assert outcome.value == pytest.approx(1 / 3)
    assert len(asked.bodies) == 1


def test_a_reply_cut_before_its_verdict_is_asked_for_once_more(rubric):
    with FakeJudge(answer=(asked := Asked("<think>hm", None, finish_reason="length"))) as judge:
        [outcome] = scored(config(judge.url, rubric))
    assert isinstance(outcome, Abstain)
    assert outcome.kind == "truncated"
    assert [body["max_tokens"] for body in asked.bodies] == [1024, 2048]


def test_the_verdict_behind_reasons_is_read_where_it_stands(rubric):
    """The built-in rubric asks for reasons; yes and no occur in them."""
    content = "There is no error: yes, it holds.\nVerdict: no"
    with FakeJudge(answer=lambda _: content) as judge:
        [outcome] = scored(config(judge.url, "quality"))
    assert outcome.detail["written"] == "no"
    assert outcome.value == pytest.approx(0.25 / 0.95)
    assert outcome.why == "There is no error: yes, it holds."


def test_a_cached_reply_has_its_probabilities(rubric, tmp_path):
    with FakeJudge(answer=(asked := Asked("yes", chances("yes", yes=0.5, no=0.4)))) as judge:
        settings = config(judge.url, rubric, cache={"path": str(tmp_path / "c.db")})
        first, again = scored(settings), scored(settings)
        plain = config(judge.url, rubric, verdict={"choice": ["yes", "no"]})
        scored(plain | {"cache": settings["cache"]})
    assert first == again
    assert len(asked.bodies) == 2  # a verdict without probabilities is another request


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (
            Script(logprobs=False),
            "judge 'j': the reply has no logprobs, and 'by: probability' reads",
        ),
        (
            Script(
                faults=(Status(status=400, message="logprobs is not supported with this model"),)
            ),
            "status 400: logprobs is not supported with this model",
        ),
    ],
)
def test_an_endpoint_without_logprobs_ends_the_run_at_its_first_reply(script, problem, rubric):
    with FakeJudge(script) as judge, pytest.raises(JudgementError, match=problem):
        scored(config(judge.url, rubric), count=3)


def test_a_reply_without_logprobs_after_good_ones_only_abstains(rubric):
    good = AssistantMessage(content="yes", logprobs=chances("yes", yes=0.5, no=0.4))
    replies = iter([good, AssistantMessage(content="yes", logprobs={"content": []}), good])
    with FakeJudge(answer=lambda _: next(replies)) as judge:
        outcomes = scored(config(judge.url, rubric, traffic={"concurrency": 1}), count=3)
    assert sorted(str(getattr(outcome, "kind", "scored")) for outcome in outcomes) == [
        "http_error",
        "scored",
        "scored",
    ]


def test_doctor_shows_that_an_endpoint_has_no_logprobs(rubric, tmp_path, capsys):
    with FakeJudge(Script(logprobs=False)) as judge:
        file = tmp_path / "reward.yaml"
        file.write_text(
            "components: {q: {judge: j}}\njudges:\n  j:\n"
            f"    endpoints: [{{base_url: '{judge.url}', model: m}}]\n    rubric: plain.md\n"
            "    verdict: {choice: [yes, no], by: probability}\n"
        )
        with pytest.raises(SystemExit, match="1"):
            run(["doctor", "config", "--ask", str(file)])
    said = capsys.readouterr().out
    assert "one of yes, no, by probability" in said
    assert "http_error: the reply has no logprobs" in said


def test_votes_average_the_probabilities_behind_different_reasons():
    contents = iter(["It holds.\nVerdict: yes", "It does not.\nVerdict: no"])
    with FakeJudge(answer=lambda _: next(contents)) as judge:
        votes = {"votes": {"n": 2}, "temperature": 1.0}
        [outcome] = scored(config(judge.url, "quality", **votes))
    assert outcome.value == pytest.approx(0.5)


def test_the_outside_share_is_a_metric(rubric):
    with FakeJudge(Script()) as judge, zerowait.open(config(judge.url, rubric)) as rewards:
        [reward] = rewards.score([Sample("p", "a")])
    assert reward.metrics["q/outside"] == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {"verdict": {"number": [0, 1], "by": "expectation"}},
            "by: expectation goes with integer, not number",
        ),
        ({"verdict": {"integer": [1, 5], "by": "probability"}}, "not integer: say by: expectation"),
        (
            {"verdict": {"choice": ["a", "b"], "by": "expectation"}},
            "not choice: say by: probability",
        ),
        (
            {"verdict": {"pairs": "group", "by": "probability"}},
            "by: probability goes with choice, not pairs",
        ),
        (
            {"verdict": {"choice": ["a", "b"], "max_outside": 0.1}},
            "max_outside goes with by: probability",
        ),
        ({"verdict": YES_NO | {"max_outside": 1}}, r"max_outside must be in \[0, 1\), not 1"),
        (
            {"verdict": {"integer": [0, 5000], "by": "expectation"}},
            "at most 1001 different verdicts",
        ),
        ({"temperature": 0.7}, "needs temperature 0, or 1 for votes"),
        ({"temperature": 1.0, "votes": {"n": 3}}, "reads the same probabilities from each vote"),
        ({"parameters": {"logprobs": 3}}, "parameters cannot set 'logprobs'"),
    ],
)
def test_settings_that_do_not_go_together_are_errors_at_the_start(change, problem, rubric):
    with pytest.raises(ConfigError, match=problem):
        scored(config("http://127.0.0.1:1/v1", rubric, **change))
