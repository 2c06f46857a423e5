"""Instruction following: each published id with a response that follows it and one that does not."""

import json
import sys

import numpy as np
import pytest

import zerowait
from zerowait import Abstain, Sample
from zerowait.errors import ConfigError, MissingExtraError
from zerowait.scorers import check_options, resolve
from zerowait.scorers.constraint_checks import CONSTRAINTS, language_detector, sentences
from zerowait.types import FailureKind

ENGLISH = "The quick brown fox jumps over the lazy dog and runs away through the forest."
GERMAN = "Der schnelle braune Fuchs springt über den faulen Hund und läuft durch den Wald davon."

CASES = [
    ("keywords:existence", {"keywords": ["Paris", "c++"]}, "paris uses C++", "Paris uses C"),
    (
        "keywords:frequency",
        {"keyword": "cat", "frequency": 2, "relation": "at least"},
        "Cat, cat.",
        "cat",
    ),
    (
        "keywords:frequency",
        {"keyword": "cat", "frequency": 2, "relation": "less than"},
        "Cat.",
        "cat cat",
    ),
    ("keywords:forbidden_words", {"forbidden_words": ["cat", "C++"]}, "concatenate C", "a Cat!"),
    (
        "keywords:letter_frequency",
        {"letter": "!", "let_frequency": 2, "let_relation": "at least"},
        "a!!",
        "a!",
    ),
    ("language:response_language", {"language": "de"}, GERMAN, ENGLISH),
    ("language:response_language", {"language": "zh"}, "这是一个用中文写的回答。", "123 456"),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "at least"},
        "One. Two",
        "Dr. Who",
    ),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\nb", "a\n***\n***\nb"),
    (
        "length_constraints:number_words",
        {"num_words": 3, "relation": "less than"},
        "one two",
        "one two three",
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Hello"},
        "a b\n\n'hello, c",
        "Hello a\n\nb",
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[a] [b c]", "[a]"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye\nP. S. more", "Bye ps"),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "P.P.S more", "P.S. more"),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n- b", "* a\n**b**"),
    ("detectable_format:constrained_response", {}, "My answer is maybe.", "Maybe."),
    (
        "detectable_format:number_highlighted_sections",
        {"num_highlights": 2},
        "*a* **b**",
        "*a* * *",
    ),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "SECTION", "num_sections": 2},
        "SECTION 1\na\nSECTION 2\nb",
        "SECTION 1\na\nSection 2",
    ),
    ("detectable_format:json_format", {}, '```json\n{"a": 1}\n```', '{"a": 1} done'),
    ("detectable_format:title", {}, "<<My title>>\ntext", "<< >> text"),
    ("combination:two_responses", {}, "a\n******\nb", "a\n******\na"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi."}, "say hi. Hi!", "Hi! Say hi."),
    (
        "startend:end_checker",
        {"end_phrase": "Is that all?"},
        'Yes. "is that all?"',
        "Is that all? Yes",
    ),
    ("startend:quotation", {}, ' "quoted" ', '"'),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "at least"},
        "WELL-KNOWN A b",
        "WELL-KNOWN b",
    ),
    ("change_case:english_capital", {}, ENGLISH.upper(), GERMAN.upper()),
    ("change_case:english_lowercase", {}, ENGLISH.lower(), ENGLISH),
    ("punctuation:no_comma", {}, "a; b", "a, b"),
    ("verify_keywords", {"keyword_list": ["a", "b"]}, "A b", "a"),
    ("verify_keyword_frequency", {"word": "cat", "N": 2}, "cat Cat", "cat cats"),
    ("validate_forbidden_words", {"forbidden_words": ["x"]}, "y", "an X"),
    ("verify_letter_frequency", {"letter": "a", "N": 2}, "banAa", "banana"),
    ("validate_response_language", {"language": "en"}, ENGLISH, GERMAN),
    ("verify_paragraph_count", {"N": 2}, "a\n* * *\nb", "a\n* * *\n"),
    ("validate_word_constraint", {"N": 10, "quantifier": "around"}, "w " * 11, "w " * 12),
    ("verify_sentence_constraint", {"N": 2, "quantifier": "at most"}, "A. B.", "A b. C d. E f."),
    ("validate_paragraphs", {"N": 2, "first_word": "Hi", "i": 2}, "a\n\nHi b", "Hi a\n\nb"),
    ("verify_postscript", {"postscript_marker": "P.S."}, "a P.S. b", "a P.S."),
    ("validate_placeholders", {"N": 1}, "[a]", "a"),
    ("verify_bullet_points", {"N": 1}, "- a", "- a\n- b"),
    ("validate_title", {}, "<<a>>", "a"),
    ("validate_choice", {"options": ["yes", "no"]}, " yes ", "y"),
    ("validate_highlighted_sections", {"N": 1}, "*a*", "a"),
    (
        "validate_sections",
        {"N": 2, "section_splitter": "SECTION"},
        "SECTION a SECTION b",
        "SECTION a",
    ),
    ("validate_json_format", {}, "[1]", "[1"),
    ("validate_repeat_prompt", {"original_prompt": "Say hi."}, "Say hi. Hi", "say hi. Hi"),
    ("validate_two_responses", {}, "a******b", "a"),
    ("validate_uppercase", {}, "ABC 1", "ABc"),
    ("validate_lowercase", {}, "abc 1", "aBc"),
    ("validate_frequency_capital_words", {"N": 1, "quantifier": "at most"}, "A b", "A B"),
    ("validate_end", {"end_phrase": "bye."}, "so bye.", "bye. so"),
    ("validate_quotation", {}, '"a"', "a"),
    ("validate_no_commas", {}, "a", "a,"),
]


def judged(response, gold=None, extra=None, **options):
    return resolve("constraints")(Sample("p", response, gold, extra=extra or {}), **options)


def row(name, given):
    return {"instruction_id_list": [name], "kwargs": [given]}


@pytest.mark.parametrize(("name", "given", "follows", "fails"), CASES)
def test_a_response_follows_its_instruction_or_does_not(name, given, follows, fails):
    assert judged(follows, row(name, given)).value == 1.0
    assert judged(fails, row(name, given)).value == 0.0
    assert judged(" \n", row(name, given)).value == 0.0


def test_every_published_id_has_a_case():
    assert {name for name, *_ in CASES} == set(CONSTRAINTS)
    assert len(CONSTRAINTS) == 50


TWO = ["punctuation:no_comma", "length_constraints:number_words"]
KWARGS = [{}, {"num_words": 3.0, "relation": "at least", "keywords": None, "letter": None}]
NULLS = [dict.fromkeys(KWARGS[1]), KWARGS[1]]


@pytest.mark.parametrize(
    "gold",
    [
        {"instruction_id_list": TWO, "kwargs": KWARGS},
        {"instruction_id_list": TWO, "kwargs": NULLS, "key": 1000, "prompt": "p"},
        {
            "instruction_id_list": np.array(TWO, dtype=object),
            "kwargs": np.array(KWARGS, dtype=object),
        },
        {"instruction_id_list": TWO, "kwargs": [json.dumps(each) for each in KWARGS]},
        {"instruction_id_list": json.dumps(TWO), "kwargs": json.dumps(KWARGS)},
        json.dumps({"instruction_id_list": TWO, "kwargs": KWARGS}),
        str([{"instruction_id": TWO, "kwargs": [None, KWARGS[1]]}]),
        [{"instruction_id": TWO, "kwargs": KWARGS}],
        {
            "instruction_id_list": TWO,
            "kwargs": {"num_words": [None, 3], "relation": [None, "at least"]},
        },
        json.dumps(
            [
                {"func_name": "validate_no_commas", "N": None},
                {
                    "func_name": "validate_word_constraint",
                    "N": 3,
                    "quantifier": "at least",
                    "word": None,
                },
            ]
        ),
    ],
)
def test_rows_in_all_published_forms_mean_the_same(gold):
    assert judged("one two three", gold).value == 1.0
    assert judged("one two", gold).value == 0.0
    assert judged("one, two", gold, aggregate="share").value == 0.0
    assert judged("one two", gold, aggregate="share", score=2.0).value == 1.0
    assert judged("one, two, three", gold, aggregate="share").value == 0.5


def test_the_instructions_may_be_columns_of_their_own():
    columns = {"instruction_id_list": TWO, "kwargs": KWARGS, "key": 7}
    assert judged("one two three", extra=columns).value == 1.0
    assert judged("one two three", gold="", extra=columns).value == 1.0


@pytest.mark.parametrize(
    ("gold", "problem"),
    [
        (None, "ground_truth is missing; expected instruction_id_list and kwargs, or func_name"),
        (row("punctuation:no_coma", {}), "did you mean 'punctuation:no_comma'"),
        (
            row("count:word_count_range", {"min_words": 3}),
            "there is no instruction 'count:word_count_range'",
        ),
        (
            row("length_constraints:number_words", {"num_words": 3}),
            "needs 'relation', which the row does not have",
        ),
        (
            row("length_constraints:number_words", {"num_words": 3, "relation": "over"}),
            "relation is 'over'",
        ),
        (
            row("length_constraints:number_words", {"num_words": "3", "relation": "at least"}),
            "expected a whole number",
        ),
        (row("length_constraints:number_words", {"num_word": 3}), "did you mean 'num_words'"),
        (row("keywords:existence", {"keywords": []}), "expected a list of words"),
        ({"instruction_id_list": TWO, "kwargs": [{}]}, "2 instructions have 1 kwargs"),
        ({"instruction_id_list": [], "kwargs": []}, "expected instruction_id_list"),
        ("Paris", "the row's instructions are 'Paris'"),
        ("{'instruction_id_list': [", "the row's instructions are"),
        (
            row(
                "keywords:letter_frequency",
                {"letter": "ab", "let_frequency": 1, "let_relation": "at least"},
            ),
            "expected one character",
        ),
    ],
)
def test_a_row_that_cannot_be_checked_abstains_and_is_never_a_zero(gold, problem):
    outcome = judged("one two three", gold)
    assert isinstance(outcome, Abstain)
    assert outcome.kind is FailureKind.BAD_INPUT
    assert problem in outcome.detail


def test_loose_forgives_an_opening_a_closing_and_stars():
    gold = row("detectable_format:json_format", {})
    framed = 'Here it is:\n{"a": 1}\nHope it helps!'
    assert judged(framed, gold).value == 0.0
    assert judged(framed, gold, mode="loose").value == 1.0
    quoted = row("startend:quotation", {})
    assert judged('**"bold"**', quoted, mode="loose").value == 1.0
    assert judged("no quotes", quoted, mode="loose").value == 0.0


def test_thinking_is_no_part_of_the_response():
    gold = row("punctuation:no_comma", {})
    assert judged("<think>well, well</think>done", gold).value == 1.0
    assert judged("<think>never ends", gold).value == 0.0


def test_a_response_without_a_letter_follows_nothing():
    row = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    for said in ("", " .", "\u200b", "*"):
        assert resolve("constraints")(Sample("", said, row)).value == 0.0


def test_the_outcome_names_what_was_not_followed():
    outcome = judged("one, two", {"instruction_id_list": TWO, "kwargs": KWARGS})
    assert outcome.why == "not followed: punctuation:no_comma, length_constraints:number_words"
    assert outcome.detail == {"followed": dict.fromkeys(TWO, False)}
    twice = {
        "instruction_id_list": [TWO[1]] * 2,
        "kwargs": [KWARGS[1], KWARGS[1] | {"num_words": 1}],
    }
    assert list(judged("one two", twice).detail["followed"].values()) == [False, True]


def test_a_short_text_is_in_the_same_language_every_time():
    gold = row("language:response_language", {"language": "en"})
    assert len({judged("ok no", gold).value for _ in range(10)}) == 1


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("One. Two! Three?", 3),
        ("He paid $3.50 to Dr. Smith of the U.S. army, e.g. twice.", 1),
        ('"Stop!" he said. Then he left...', 2),
        ("What? no! Yes.", 3),
        ("no mark at the end", 1),
        ("第一句。第二句。", 2),
        ("", 0),
    ],
)
def test_sentences_are_counted_without_a_download(text, count):
    assert sentences(text) == count


def test_options_are_checked():
    with pytest.raises(ConfigError, match="constraints: mode is 'lose'; did you mean 'loose'"):
        check_options("constraints", {"mode": "lose"})


def test_by_data_source_knows_the_published_sets():
    gold = json.dumps({"func_name": "validate_no_commas"})
    sample = Sample("p", "a b", gold, data_source="allenai/RLVR-IFeval")
    assert resolve("by_data_source")(sample).value == 1.0


def test_a_missing_language_detector_is_an_error_before_anything_runs(monkeypatch):
    monkeypatch.setitem(sys.modules, "langdetect", None)
    language_detector.cache_clear()
    with pytest.raises(MissingExtraError, match=r"pip install 'zerowait\[constraints\]'"):
        check_options("constraints", {})
    language_detector.cache_clear()


@pytest.mark.parametrize(
    "text", ["Dr. " * 20_000, "<<" * 20_000, "A. " * 20_000, "[*" * 20_000, '."' * 20_000]
)
def test_a_hostile_response_takes_no_longer_than_its_length(text):
    """A pattern that backtracks would take hours on a longer one of these."""
    for name, given, *_ in CASES:
        if "language" not in name and "english" not in name:
            judged(text, row(name, given), mode="loose")


def test_rows_are_checked_in_the_workers_of_the_engine():
    config = {"components": {"follows": {"scorer": "constraints", "aggregate": "share"}}}
    gold = {"instruction_id_list": ["language:response_language"], "kwargs": [{"language": "de"}]}
    with zerowait.open(config) as rewards:
        found = rewards.score([Sample("p", text, gold) for text in (GERMAN, ENGLISH)])
    assert [reward.value for reward in found] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("name", "given", "problem"),
    [
        ("length_constraints:number_words", {"num_words": float("inf"), "relation": "at least"}, "expected a whole number"),
        ("length_constraints:number_words", {"num_words": float("nan"), "relation": "at least"}, "needs 'num_words'"),
        ("keywords:existence", {"keywords": float("nan")}, "needs 'keywords'"),
        ("language:response_language", {"language": "English"}, "expected a code: af, ar"),
        ("validate_response_language", {"language": "german"}, "expected a code"),
    ],
)  # fmt: skip
def test_a_parameter_that_nothing_can_follow_is_the_rows_error(name, given, problem):
    row = {"instruction_id_list": [name], "kwargs": [given]}
    outcome = resolve("constraints")(Sample("", ENGLISH, row))
    assert isinstance(outcome, Abstain)
    assert outcome.kind is FailureKind.BAD_INPUT
    assert problem in outcome.detail


def test_parameters_that_a_data_frame_has_as_nan_are_not_given():
    row = {
        "instruction_id_list": ["punctuation:no_comma", "keywords:existence"],
        "kwargs": [float("nan"), {"keywords": ["fox"], "num_words": float("nan"), "more": None}],
    }
    assert resolve("constraints")(Sample("", ENGLISH, row)).value == 1.0


@pytest.mark.parametrize("gold", ["a reference answer", float("nan"), "null"])
def test_instructions_in_extra_count_beside_another_ground_truth(gold):
    row = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    assert resolve("constraints")(Sample("", ENGLISH, gold, extra=row)).value == 1.0
