"""The providers' words reach the user, and a run in which nothing was ever judged ends early."""

import asyncio
import json
import logging

import pytest

import zerowait
from zerowait import Engine, Sample
from zerowait.cli.app import run
from zerowait.engine.monitor.failure_reasons import failure_reason
from zerowait.engine.monitor.give_up import RETRY_AFTER_S, GiveUpCheck, JudgementCounts
from zerowait.errors import ConfigError, JudgementError
from zerowait.events import AccountExhausted, EndingUnknown, JudgementSettled
from zerowait.testing import (
    Empty,
    Ending,
    ErrorInBody,
    Exhausted,
    FakeJudge,
    Garbage,
    Moderation,
    Script,
    Status,
)
from zerowait.types import Abstain, Score

pytestmark = pytest.mark.wire


def configuration(*urls, on_failure="neutral", endings=(), **traffic):
    endpoints = [{"base_url": url, "model": "m", "endings": list(endings)} for url in urls]
    return {
        "components": {"quality": {"judge": "q"}},
        "judges": {"q": {"endpoints": endpoints, "verdict": {"integer": [1, 10]}}},
        "traffic": {"concurrency": 16, "hedge": "off", "attempts": 6} | traffic,
        "cache": "off",
        "on_failure": on_failure,
    }


def rows(count):
    return [Sample("q", f"answer {n}") for n in range(count)]


def scored(settings, samples, events=None):
    async def scenario():
        listener = (lambda event: None) if events is None else events.append
        async with Engine(settings, listener=listener) as engine:
            return await engine.score_all(samples), engine.stats()

    return asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize(
    "fault",
    [
        Ending(first=1),
        Ending(first=1, word="error", content="verdict"),
        Ending(first=1, word="insufficient_system_resource", content="none"),
        Empty(first=1),
        ErrorInBody(first=1, code=429),
        ErrorInBody(first=1, code=502),
        ErrorInBody(first=1, code="server_error"),
    ],
)
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_the_providers_failures_are_asked_again_and_are_never_a_verdict(fault, api):
    with FakeJudge(Script(faults=(fault,))) as judge:
        settings = configuration(judge.url)
        settings["judges"]["q"]["endpoints"][0]["api"] = api
        rewards, stats = scored(settings, rows(8))
        seen = judge.seen
    with FakeJudge() as sound:
        right, _ = scored(configuration(sound.url), rows(8))
    blank = isinstance(fault, Empty)
    expected = [reward.value for reward in right]
    for reward, value in zip(rewards, expected, strict=True):
        assert reward.value == value or (blank and reward.value is None)
    assert stats.retries > 0
    assert seen.repeats == 0


@pytest.mark.parametrize("word", ["abort", "error", "paused"])
def test_an_ending_that_never_changes_is_an_http_error_that_names_it(word):
    events = []
    with FakeJudge(Script(faults=(Ending(word=word),))) as judge:
        rewards, _ = scored(configuration(judge.url, attempts=2), rows(1), events)
    for reward in rewards:
        outcome = reward.components["quality"]
        assert outcome.kind == "http_error"
        assert word in outcome.detail
    told = [e.ending for e in events if isinstance(e, EndingUnknown)]
    assert told == ([word] if word == "paused" else [])  # the others are known endings


def test_an_ending_that_the_endpoint_names_is_read():
    with FakeJudge(Script(faults=(Ending(word="natural", content="verdict"),))) as judge:
        rewards, stats = scored(configuration(judge.url, endings=["natural"]), rows(4))
    assert all(isinstance(reward.components["quality"], Score) for reward in rewards)
    assert stats.retries == 0


@pytest.mark.parametrize("word", ["length", "content_filter", " "])
def test_an_ending_that_says_otherwise_cannot_be_named(word):
    with pytest.raises(ConfigError, match="endings must be words"):
        Engine(configuration("http://127.0.0.1:1/v1", endings=[word]))


@pytest.mark.parametrize("form", ["azure", "deepseek", "dashscope", "openrouter"])
def test_text_that_trips_moderation_is_refused_and_earns_no_neutral_reward(form):
    with FakeJudge(Script(faults=(Moderation(form=form),))) as judge:
        settings = configuration(
            judge.url, on_failure={"default": "neutral", "refused": {"value": 0.0}}
        )
        rewards, _ = scored(settings, rows(4))
        assert judge.seen.requests == 4
    assert [reward.value for reward in rewards] == [0.0] * 4
    assert {reward.components["quality"].kind for reward in rewards} == {"refused"}


@pytest.mark.parametrize("form", ["openai", "deepseek", "anthropic"])
def test_an_exhausted_account_costs_no_time_and_is_told_once(form, caplog):
    events = []
    with FakeJudge(Script(faults=(Exhausted(form=form),))) as judge:
        rewards, stats = scored(configuration(judge.url, give_up_after="off"), rows(300), events)
        assert judge.seen.requests <= 40
    assert {reward.components["quality"].kind for reward in rewards} == {"http_error"}
    assert len([e for e in events if isinstance(e, AccountExhausted)]) == 1
    loud = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert len(loud) == 1
    assert "quota" in loud[0].message or "alance" in loud[0].message
    assert sum(stats.reasons.values()) == 300


def test_an_account_with_credit_takes_over_from_one_without():
    with FakeJudge(Script(faults=(Exhausted(),))) as poor, FakeJudge() as rich:
        rewards, _ = scored(configuration(poor.url, rich.url), rows(200))
    assert all(isinstance(reward.components["quality"], Score) for reward in rewards)


WRONG = [
    (Status(status=404), "404"),
    (Status(status=401), "401"),
    (Status(status=400), "400"),
    (Exhausted(), "current quota"),
    (Ending(word="abort"), "abort"),
    (Garbage(), "unparseable"),
    (ErrorInBody(code=400, message="no such model: m"), "no such model: m"),
]


@pytest.mark.parametrize(("fault", "words"), WRONG)
def test_a_run_in_which_nothing_was_ever_reached_ends_and_says_why(fault, words):
    with FakeJudge(Script(faults=(fault,))) as judge:
        settings = configuration(judge.url, attempts=1, give_up_after=20)
        with pytest.raises(JudgementError) as raised:
            scored(settings, rows(996))
        assert judge.seen.requests < 80
    assert words in str(raised.value)
    assert "give_up_after: off" in str(raised.value)


@pytest.mark.parametrize("off", ["off", None, False])
def test_it_can_be_told_to_go_on(off):
    with FakeJudge(Script(faults=(Status(status=404),))) as judge:
        rewards, stats = scored(configuration(judge.url, give_up_after=off), rows(150))
    assert all(reward.value is None for reward in rewards)
    [(reason, count)] = stats.reasons.items()
    assert count == 150
    assert reason.startswith("http_error: ")
    assert "status 404" in reason


def test_it_is_on_unless_told_otherwise():
    with FakeJudge(Script(faults=(Status(status=404),))) as judge:
        with pytest.raises(JudgementError, match=r"the first 1\d\d judgements all failed"):
            scored(configuration(judge.url), rows(996))
        with (
            zerowait.open(configuration(judge.url)) as rewards,
            pytest.raises(JudgementError, match="status 404"),
        ):
            rewards.score(rows(996))


def test_one_verdict_is_enough_to_go_on():
    with FakeJudge(Script(faults=(Status(status=404, share=0.9, always=True),))) as judge:
        rewards, _ = scored(configuration(judge.url, give_up_after=60), rows(300))
    assert any(reward.value is not None for reward in rewards)


def test_the_message_of_the_command_line_is_the_providers(tmp_path, capsys):
    words = "Country, region, or territory not supported"
    with FakeJudge(Script(faults=(ErrorInBody(code=403, message=words),))) as judge:
        (tmp_path / "reward.yaml").write_text(json.dumps(configuration(judge.url)))
        data = tmp_path / "rows.jsonl"
        data.write_text(
            "".join(json.dumps({"prompt": "q", "response": f"{n}"}) + "\n" for n in range(300))
        )
        with pytest.raises(SystemExit) as ended:
            run(["score", str(data), "-c", str(tmp_path / "reward.yaml"), "--quiet"])
    assert ended.value.code == 1
    assert words in capsys.readouterr().err


def test_the_summary_counts_the_reasons(tmp_path, capsys):
    with FakeJudge(Script(faults=(Moderation(share=0.5, form="deepseek"),))) as judge:
        (tmp_path / "reward.yaml").write_text(json.dumps(configuration(judge.url)))
        data = tmp_path / "rows.jsonl"
        data.write_text(
            "".join(json.dumps({"prompt": "q", "response": f"{n}"}) + "\n" for n in range(40))
        )
        with pytest.raises(SystemExit):
            run(["score", str(data), "-c", str(tmp_path / "reward.yaml"), "--quiet"])
    told = capsys.readouterr().out
    assert "x refused: " in told
    assert "Content Exists Risk" in told


def settled(outcome, source="asked"):
    return JudgementSettled(judge="q", key="k", outcome=outcome, source=source)


def test_what_is_no_failure_of_the_judge_does_not_count():
    check = GiveUpCheck(2)
    for kind in ("budget", "cancelled", "bad_input"):
        for _ in range(9):
            check(settled(Abstain(kind, "?")))
    for _ in range(9):
        check(settled(Abstain("timeout", "?"), source="joined"))
    check.check(0.0)
    check(settled(Abstain("timeout", "?")))
    check.check(0.0)
    check(settled(Abstain("timeout", "?")))
    with pytest.raises(JudgementError, match="2 x timeout"):
        check.check(0.0)


def test_a_judge_that_cannot_give_token_probabilities_ends_the_run_at_once_and_is_named():
    check = GiveUpCheck(100)
    check(settled(Abstain("http_error", "status 400: logprobs are not supported")))
    with pytest.raises(JudgementError, match=r"judge .*logprobs are not supported.*give_up_after"):
        check.check(0.0)
    working = GiveUpCheck(100)
    working(settled(Score(1.0)))
    working(settled(Abstain("http_error", "status 400: logprobs are not supported")))
    working.check(0.0)


def test_a_service_that_is_asked_later_tries_again():
    check = GiveUpCheck(1)
    check(settled(Abstain("unreachable", "?")))
    with pytest.raises(JudgementError):
        check.check(100.0)
    with pytest.raises(JudgementError):
        check.check(100.0 + RETRY_AFTER_S - 1)
    check.check(100.0 + RETRY_AFTER_S)
    check(settled(Score(1.0)))
    check(settled(Abstain("unreachable", "?")))
    check.check(200.0)


def test_engines_that_share_a_job_count_together():
    check = GiveUpCheck(10)
    check.set_others(JudgementCounts(30))
    check.check(0.0)  # it could not say why
    check(settled(Abstain("unreachable", "no route")))
    with pytest.raises(JudgementError, match=r"the first 31 judgements .* no route"):
        check.check(0.0)
    check.check(RETRY_AFTER_S)  # counts anew, also those of the others
    check(settled(Abstain("unreachable", "no route")))
    check.set_others(JudgementCounts(36))
    check.check(100.0)
    check.set_others(JudgementCounts(39))
    with pytest.raises(JudgementError, match="the first 10 judgements"):
        check.check(100.0)


def test_a_verdict_that_another_engine_of_the_job_reached_is_enough():
    check = GiveUpCheck(2)
    check.set_others(JudgementCounts(50, reached=True))
    for _ in range(9):
        check(settled(Abstain("timeout", "?")))
    check.check(0.0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("status 400: it has 5210 tokens (after 1 attempt)", "status 400: it has 770 tokens"),
        ("no more, request id 7f3a2b1c-99aa-4b01", "no more, request id 00aa2b1c-11bb-4c77"),
        ("try again in 1.5 s (after 3 attempts)", "try again in 20.5 s (after 6 attempts)"),
    ],
)
def test_the_same_reason_in_other_numbers_is_the_same(one, other):
    assert failure_reason(Abstain("http_error", one)) == failure_reason(
        Abstain("http_error", other)
    )


def test_other_statuses_models_and_ports_are_other_reasons():
    words = ("status 404: m-1", "status 400: m-1", "status 404: m-2", "http://h:81: gone")
    assert (
        len({failure_reason(Abstain("http_error", word)) for word in (*words, "http://h:82: gone")})
        == 5
    )


def test_the_numbers_that_grouped_reasons_leave_out_are_in_the_message_once():
    check = GiveUpCheck(2)
    for tokens in (5210, 5300):
        check(settled(Abstain("too_long", f"at most 2048 tokens, not {tokens} (after 1 attempt)")))
    with pytest.raises(JudgementError) as caught:
        check.check(0.0)
    assert (
        "2 x too_long: at most \u2026 tokens, not \u2026; the last one in full: at most 2048 tokens, "
        "not 5300 (to go on, set traffic:"
    ) in str(caught.value)
