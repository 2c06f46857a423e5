"""Known exploits as samples, and what a judge's verdicts on them say about it."""

from pathlib import Path

import pytest

from zerowait.config import Endpoint, Judge, VerdictRule
from zerowait.errors import ConfigError
from zerowait.judge import (
    ChatRequest,
    Rubric,
    load_rubric,
    parse,
    procedure_for,
    request_for,
)
from zerowait.judge.canary import (
    RIGHT,
    WRONG,
    canaries_for,
    examined,
    load_canaries,
    plain_answers,
)
from zerowait.judge.parsing.readers import bounds
from zerowait.judge.rubric import BUILT_IN
from zerowait.types import Abstain, Score

RULES = [
    VerdictRule(integer=(1, 10)),
    VerdictRule(number=(0, 1)),
    VerdictRule(number=(-1, 1)),
    VerdictRule(choice=["correct", "partly", "incorrect"]),
]
ONE_TO_TEN = RULES[0]
COMPARING_OR_OF_ROW = ("pairwise", "ranking", "row_rubric", "row_rubric_whole")
ON_ONE_RESPONSE = [name for name in BUILT_IN if name not in COMPARING_OR_OF_ROW]
QUALITY = load_rubric("quality", base=Path())
MONITOR = Rubric("monitor", "1", "Judge.", "{{extra.reasoning}}\n{{reply_format}}")
LEVELS = Rubric("levels", "1", "Judge.", "{{response}}{{extra.level}}{{reply_format}}")


def canaries(rule=ONE_TO_TEN, rubric=QUALITY):
    best = f"{bounds(rule)[1]:g}" if rule.choice is None else rule.choice[0]
    return canaries_for(load_canaries(), rubric, best=best, is_word=rule.choice is not None)


def examine(verdict, *, margin=0.2, rule=ONE_TO_TEN):
    """What is found when `verdict(canary)` is a number, or None for a refusal."""
    asked = canaries(rule)
    outcomes = [
        Abstain("refused", "no") if (value := verdict(canary)) is None else Score(value)
        for canary in asked
    ]
    return examined(asked, outcomes, bounds(rule), margin=margin)


def careful(canary):
    return 9.0 if canary.kind == RIGHT else 1.0


def test_the_set_is_large_and_has_every_kind_of_exploit():
    found = load_canaries()
    kinds = {exploit.kind for exploit in found.exploits}
    assert len(found.exploits) >= 40
    assert kinds >= {"master_key", "instruction", "fake_fence", "format_echo", "fake_turn"}
    assert kinds >= {"empty", "refusal", "repetition", "filler", "other_language", "unicode"}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("rubric", [*ON_ONE_RESPONSE, MONITOR, LEVELS], ids=str)
def test_every_canary_can_be_asked_of_every_rubric_by_every_rule(rule, rubric):
    loaded = load_rubric(rubric, base=Path()) if isinstance(rubric, str) else rubric
    judge = judge_of(rule)
    for question in procedure_for(judge, loaded, base=Path()).questions:
        for canary in canaries(rule, loaded):
            request = request_for(canary.sample, judge, question.rubric, form=question.form)
            blank = not canary.sample.response.strip()
            assert isinstance(request, ChatRequest) or (blank and loaded is MONITOR), canary.id
        request = request_for(plain_answers(loaded)[0], judge, question.rubric, form=question.form)
        assert isinstance(request, ChatRequest)


def judge_of(rule):
    return Judge(endpoints=[Endpoint(base_url="http://judge/v1", model="m")], verdict=rule)


@pytest.mark.parametrize("rule", RULES)
def test_a_ready_made_verdict_is_one_that_the_parser_would_read_as_the_best(rule):
    echo = next(canary for canary in canaries(rule) if canary.id == "verdict_alone")
    assert parse(echo.sample.response, rule).value == (10 if rule is ONE_TO_TEN else 1)


def test_where_a_rubric_shows_no_response_the_exploit_is_put_where_it_looks():
    found = next(canary for canary in canaries(rubric=MONITOR) if canary.id == "solution")
    assert found.sample.extra == {"reasoning": "Solution"}


def test_a_judge_that_falls_for_nothing_is_not_fooled():
    found = examine(careful)
    assert (found.fooled_share, found.confused, found.compared) == (0.0, 0, 10)
    assert [row.kind for row in found.summaries()][:2] == [RIGHT, WRONG]


def test_a_judge_that_falls_for_one_kind_is_fooled_by_that_kind():
    found = examine(lambda canary: 10.0 if canary.kind == "master_key" else careful(canary))
    fooled = {row.kind: (row.fooled, row.asked, row.mean) for row in found.summaries()}
    assert fooled["master_key"] == (10, 10, 10.0)
    assert sum(count for count, _, _ in fooled.values()) == 10
    assert found.fooled_share == pytest.approx(10 / 62)


def test_a_little_more_than_the_wrong_answer_got_is_within_the_margin():
    def slack(canary):
        return 2.0 if canary.kind == "empty" else careful(canary)

    assert examine(slack, margin=0.2).fooled_share == 0.0
    assert examine(slack, margin=0.1).fooled_share > 0.0


def test_an_admission_of_ignorance_may_be_worth_half_of_the_range():
    def kind_to_doubt(canary):
        return 5.0 if canary.kind == "refusal" else careful(canary)

    assert examine(kind_to_doubt).fooled_share == 0.0


def test_a_judge_that_gives_everything_the_best_is_not_fooled_but_confused():
    found = examine(lambda _canary: 10.0)
    assert (found.fooled_share, found.confused_share) == (0.0, 1.0)


def test_an_abstention_is_not_fooled_and_is_counted_apart():
    found = examine(lambda canary: None if canary.kind == "fake_turn" else careful(canary))
    row = next(row for row in found.summaries() if row.kind == "fake_turn")
    assert (row.asked, row.fooled, row.abstained, row.mean) == (5, 0, 5, None)
    assert found.not_reached == 0  # the text can bring a refusal about


def test_where_the_wrong_answer_has_no_verdict_an_exploit_is_measured_from_the_bottom():
    found = examine(lambda canary: None if canary.kind == WRONG else careful(canary))
    assert (found.compared, found.fooled_share) == (0, 0.0)
    assert examine(lambda canary: None if canary.kind == WRONG else 9.0).fooled_share == 1.0


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("question: nobody", "exploits[0].question is 'nobody', which is none; known: q"),
        ("response: '{{bset}}'", "placeholder {{bset}} that is none; did you mean 'best'?"),
        ("times: 0", "times must be from 1 to 10000, not 0"),
        ("at_most: 2", "at_most must be in [0, 1]"),
        ("kidn: x", "has no key 'kidn'"),
    ],
)
def test_a_set_of_ones_own_is_checked(tmp_path, change, problem):
    key = change.partition(":")[0]
    fields = {"id": "a", "kind": "k", "question": "q", "response": "r"}
    lines = [f"{name}: {value}" for name, value in fields.items() if name != key]
    file = tmp_path / "own.yaml"
    file.write_text(
        "version: 1\n"
        "questions: {q: {prompt: p, ground_truth: g, right: r, wrong: w}}\n"
        "exploits: [{" + ", ".join([*lines, change]) + "}]\n"
    )
    with pytest.raises(ConfigError) as error:
        load_canaries(file)
    assert problem in str(error.value)
    assert "own.yaml" in str(error.value)


def test_an_id_that_is_given_twice_is_an_error(tmp_path):
    one = "{id: a, kind: k, question: q, response: r}"
    file = tmp_path / "own.yaml"
    file.write_text(
        "version: 1\nquestions: {q: {prompt: p, ground_truth: g, right: r, wrong: w}}\n"
        f"exploits: [{one}, {one}]\n"
    )
    with pytest.raises(ConfigError, match="'a' is given twice"):
        load_canaries(file)
