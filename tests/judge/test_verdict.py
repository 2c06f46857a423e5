"""What a judge's text means: the corpus of shapes, and what must hold for any text."""

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from zerowait.config.schema import VerdictRule
from zerowait.errors import ConfigError
from zerowait.judge import parse, reply_format, to_unit_range
from zerowait.judge.parsing.answer import visible_answer
from zerowait.judge.parsing.verdict import check_rule, read_any_form, read_asked_form
from zerowait.types import Abstain, FailureKind, Score

ONE_TO_TEN = VerdictRule(integer=(1, 10))
UNIT = VerdictRule(number=(0, 1))
YES_NO = VerdictRule(choice=["yes", "no"])
RANGES = {
    "1-10": ONE_TO_TEN,
    "0-1": UNIT,
    "-1..1": VerdictRule(number=(-1, 1)),
    "0-100": VerdictRule(integer=(0, 100)),
}
RULES = [*RANGES.values(), YES_NO, VerdictRule(choice=["A", "B", "tie"])]
CORPUS = [
    json.loads(line)
    for line in Path(__file__).with_name("corpus.jsonl").read_text("utf-8").splitlines()
]

# Forms in which a judge that understood gives its verdict.
TEMPLATES = [
    "{}",
    " {}\n",
    "**{}**",
    "[[{}]]",
    "\\boxed{{{}}}",
    "Score: {}",
    "**Score:** {}",
    "### Rating = {}",
    "My final verdict is {}.",
    "Step 2 of 3 is missing.\n\nScore: {}",
    "Step 2 of 3 is missing. Score: {}",
    "Step 2 of 3 is missing.\n\n**{}**\n",
    "Score: {}\nReason: 2 of 3 steps are right.",
    "<think>\nScore: 3, no, 4\n</think>\n\nScore: {}",
    "<score>{}</score>",
    "评分\uff1a{}",
    '{{"score": "{}", "reason": "2 of 3"}}',
    '```json\n{{\n  "verdict": "{}", // final\n}}\n```',
    "Score: 2\nOn second thought:\nScore: {}",
]


def said(outcome):
    return outcome.detail["verdict"] if isinstance(outcome, Score) else outcome.kind.value


@pytest.mark.parametrize("name", dict.fromkeys(shape["rule"] for shape in CORPUS))
def test_each_known_shape_of_a_reply_means_what_the_corpus_says(name):
    rule = RANGES.get(name) or VerdictRule(choice=name.split("/"))
    wrong = [
        f"{shape['reply']!r} means {shape['expect']!r}, not {meaning!r}"
        for shape in CORPUS
        if shape["rule"] == name
        and (meaning := said(parse(shape["reply"], rule))) != shape["expect"]
    ]
    assert not wrong, "\n".join(wrong)


def test_the_corpus_is_large_and_has_every_outcome():
    outcomes = [shape["expect"] for shape in CORPUS]
    assert len(CORPUS) >= 1500
    assert outcomes.count("unparseable") >= 600
    assert outcomes.count("out_of_range") >= 10
    assert len({(shape["rule"], shape["reply"]) for shape in CORPUS}) == len(CORPUS)


def agrees(text, rule):
    """Whether the reader of the asked form has no answer for `text`, or gives what the other one gives."""
    answer = visible_answer(text)
    quickly = read_asked_form(answer or "", rule)
    return quickly is None or quickly == read_any_form(answer, rule)


def test_the_reader_of_the_asked_form_agrees_with_the_general_one_on_the_corpus():
    for shape in CORPUS:
        rule = RANGES.get(shape["rule"]) or VerdictRule(choice=shape["rule"].split("/"))
        for text in (
            shape["reply"],
            f"{shape['reply']}.\nScore: 7",
            f"{shape['reply']}.\nVerdict: yes",
        ):
            assert agrees(text, rule), text


@given(
    reasons=st.lists(
        st.sampled_from([*(shape["reply"] for shape in CORPUS), "for example", "here", "Wait, no.", ">", "---", "\n"])
        | st.text(max_size=20),
        max_size=4,
    ),
    between=st.sampled_from([".\n", "!\n\n", "\n", ".\n***\n", ": ", ". \t\n"]),
    line=st.sampled_from(["Score: 7", "Score: 07.5", "Score: -1", "7", "Verdict: yes", "Verdict: tie", "no"]),
    rule=st.sampled_from(RULES),
)  # fmt: skip
@example(reasons=[], between=": ", line="7", rule=ONE_TO_TEN)
@settings(deadline=None, max_examples=300)
def test_the_reader_of_the_asked_form_agrees_with_the_general_one(reasons, between, line, rule):
    assert agrees(" ".join(reasons) + between + line, rule)
    assert agrees(line, rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("reasons", ["", "Step 2 is missing.\n", "It says: Score: 3.\n\n"])
def test_an_answer_in_the_asked_form_needs_no_general_reader(rule, reasons):
    words = rule.choice or ["1"]
    label = "Verdict" if rule.choice else "Score"
    for word in words:
        assert said(read_asked_form(f"{reasons}{label}: {word}", rule)) == (
            word if rule.choice else 1
        )


@pytest.mark.parametrize("template", TEMPLATES)
@given(value=st.integers(1, 10))
@settings(deadline=None, max_examples=10)
def test_every_whole_number_in_range_comes_back_from_every_form(template, value):
    assert said(parse(template.format(value), ONE_TO_TEN)) == value


@pytest.mark.parametrize("template", TEMPLATES[:-1])
@given(value=st.integers(-1000, 1000))
@settings(deadline=None, max_examples=20)
def test_every_decimal_number_in_range_comes_back_from_every_form(template, value):
    outcome = parse(template.format(f"{value / 1000:.3f}"), VerdictRule(number=(-1, 1)))
    assert said(outcome) == value / 1000


@pytest.mark.parametrize("template", TEMPLATES[:-1])
@pytest.mark.parametrize("word", ["yes", "no", "Yes", "NO"])
def test_every_word_of_a_choice_comes_back_from_every_form(template, word):
    assert said(parse(template.format(word), YES_NO)) == word.lower()


@given(value=st.integers(-(10**6), 10**6).filter(lambda value: not 1 <= value <= 10))
@settings(deadline=None)
def test_a_number_outside_the_range_is_never_a_score(value):
    """Scores of 7, 10 and 15 once went into a field for 0 to 1."""
    assert said(parse(f"Score: {value}", ONE_TO_TEN)) == "out_of_range"
    assert said(parse(json.dumps({"score": value}), ONE_TO_TEN)) == "out_of_range"


@pytest.mark.parametrize("rule", RULES)
@given(
    text=st.one_of(
        st.text(),
        st.text(st.characters()),  # surrogates included
        st.lists(st.sampled_from([*'{}[]()"\n*:.,/-<>0179', "score", "yes", "no", "<think>"])).map(
            "".join
        ),
    )
)
@settings(deadline=None, max_examples=150)
def test_no_text_raises_and_no_score_leaves_its_range(rule, text):
    outcome = parse(text, rule)
    if isinstance(outcome, Score):
        assert 0 <= to_unit_range(outcome.value, rule) <= 1
    else:
        assert isinstance(outcome, Abstain)
        assert outcome.kind in {FailureKind.UNPARSEABLE, FailureKind.OUT_OF_RANGE}
        outcome.detail.encode()  # whatever the text, records can be written


@given(text=st.text().filter(lambda text: not any(map(str.isnumeric, text))))
@settings(deadline=None)
def test_a_text_without_digits_never_gives_a_number(text):
    for template in ("{}", "Score: {}", '{{"score": "{}"}}'):
        assert isinstance(parse(template.format(text), ONE_TO_TEN), Abstain)


@given(before=st.text(), value=st.integers(1, 10))
@settings(deadline=None)
def test_a_reason_before_the_last_line_never_changes_its_verdict(before, value):
    """Reasons may quote the policy, numbers and labels of its own included."""
    outcome = parse(f"It says: {before}\nScore: {value}", ONE_TO_TEN)
    assert said(outcome) in (value, "unparseable")


@pytest.mark.timeout(60)  # a reader that is not linear takes minutes
@pytest.mark.parametrize(
    "piece",
    [
        *("a", " ", "\n", "Score: 7\n", "Score: 7, ", "score:", "the ", ". ", "*", "{", "{}"),
        *('\\"', "/*", ", ", "1", "1 ", "<think>", "</think> x", "\\boxed{", "Score (", "\n1. "),
        *("Score:\n\n", "评分\uff1a", "\uff17", "\ud800", "<|", '{"a":', "yes, ", "final overall "),
    ],
)
@pytest.mark.parametrize("rule", [ONE_TO_TEN, YES_NO])
def test_no_piece_repeated_many_times_makes_the_reader_slow(piece, rule):
    parse(piece * 20_000, rule)
    parse("{" + piece * 20_000 + "}", rule)


def test_a_verdict_after_a_megabyte_of_reasons_is_found():
    assert said(parse("Step 1 holds. " * 70_000 + "\nScore: 7", ONE_TO_TEN)) == 7


@pytest.mark.parametrize("number", ["9" * 5000, "-" + "9" * 5000, "1" + "0" * 400])
def test_a_number_too_large_for_a_float_is_out_of_range(number):
    assert said(parse(f"Score: {number}", ONE_TO_TEN)) == "out_of_range"
    assert said(parse(f'{{"score": {number}}}', ONE_TO_TEN)) == "out_of_range"


def test_deeply_nested_json_is_unparseable():
    assert said(parse('{"a":' * 50_000 + "7" + "}" * 50_000, ONE_TO_TEN)) == "unparseable"


@pytest.mark.parametrize("reason_first", [True, False])
@pytest.mark.parametrize("rule", RULES)
def test_an_answer_in_the_form_that_was_asked_for_is_always_read(rule, reason_first):
    """The prompt and the parser come from one rule; they once did not (SPEC section 1)."""
    asked = reply_format(rule, reason_first=reason_first)
    form = next(line for line in asked.splitlines() if line.endswith((": N", ": WORD")))
    values = rule.choice or [*(rule.integer or rule.number)]
    for value in values:
        reply = form.replace("WORD", str(value)).replace(": N", f": {value}")
        assert said(parse(reply, rule)) == value
        assert said(parse(f"Two of 3 steps are right.\n{reply}", rule)) == value


@pytest.mark.parametrize("rule", RULES)
def test_repeating_the_instructions_is_not_a_verdict(rule):
    assert said(parse(reply_format(rule), rule)) == "unparseable"


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("Clear,  but\nstep 2 is missing.\nScore: 7", "Clear, but step 2 is missing."),
        ("Score: 7\n\nClear, but step 2 is missing.", "Clear, but step 2 is missing."),
        ('{"score": 7, "reason": "Clear."}', "Clear."),
        ("Score: 7", ""),
        ("Clear.\nScore:\n7", "Clear."),
    ],
)
def test_the_reason_is_kept_with_the_score(reply, why):
    assert parse(reply, ONE_TO_TEN).why == why


def test_a_long_reason_is_shortened():
    assert len(parse("Clear. " * 500 + "\nScore: 7", ONE_TO_TEN).why) == 240


def test_the_words_of_a_choice_are_worth_evenly_spaced_values():
    rule = VerdictRule(choice=["good", "fair", "poor"])
    assert [parse(word, rule).value for word in rule.choice] == [1.0, 0.5, 0.0]


def test_a_whole_verdict_is_recorded_as_a_whole_number():
    outcome = parse("7.0", ONE_TO_TEN)
    assert (outcome.value, outcome.detail) == (7.0, {"verdict": 7})
    assert isinstance(outcome.detail["verdict"], int)


def test_words_that_json_numbers_stand_for_are_read():
    assert said(parse('{"verdict": 1}', VerdictRule(choice=["0", "1"]))) == "1"


def test_a_word_with_typographic_marks_is_read():
    rule = VerdictRule(choice=["c\u2019est bon", "I\u0307yi"])
    assert parse("Verdict: C'EST BON", rule).value == 1.0
    assert parse("I\u0307yi", rule).value == 0.0


@given(low=st.integers(-100, 100), width=st.integers(1, 100), step=st.integers(0, 100))
@settings(deadline=None)
def test_normalising_maps_the_range_onto_zero_to_one_in_order(low, width, step):
    rule = VerdictRule(integer=(low, low + width))
    value = low + min(step, width)
    assert 0 <= to_unit_range(value, rule) <= 1
    assert to_unit_range(low, rule) == 0
    assert to_unit_range(low + width, rule) == 1
    assert value == low or to_unit_range(value - 1, rule) < to_unit_range(value, rule)


def test_a_choice_is_normal_already():
    assert to_unit_range(0.5, VerdictRule(choice=["good", "fair", "poor"])) == 0.5


@pytest.mark.parametrize("value", [0.0, 11.0, float("nan")])
def test_normalising_a_value_outside_the_range_is_an_error(value):
    with pytest.raises(ValueError, match=r"not in the verdict's range \[1, 10\]"):
        to_unit_range(value, ONE_TO_TEN)


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (VerdictRule(choice=["yes", " "]), "blank"),
        (VerdictRule(choice=["yes", "YES"]), "'yes' and 'YES' cannot be told apart"),
        (VerdictRule(choice=["yes", "no", "yes"]), "cannot be told apart"),
        (VerdictRule(number=(0, float("inf"))), "finite"),
    ],
)
def test_a_rule_whose_verdicts_cannot_be_told_apart_is_an_error(rule, problem):
    with pytest.raises(ConfigError, match=problem):
        check_rule(rule)
    for text in ("", "yes", "Score: 1e999", '{"score": 1e999}', "9" * 400):
        parse(text, rule)  # and even then nothing raises


@pytest.mark.parametrize("rule", RULES)
def test_an_ordinary_rule_passes(rule):
    check_rule(rule)
