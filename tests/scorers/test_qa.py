"""Short answers: exact match, containment, word overlap."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait.scorers.answers import canonical, gold_texts, last_answer, normalise
from zerowait.scorers.contains import contains
from zerowait.scorers.qa_em import qa_em
from zerowait.scorers.qa_em_format import qa_em_format
from zerowait.scorers.qa_f1 import qa_f1, token_f1
from zerowait.scorers.qa_subem import qa_subem
from zerowait.types import Abstain, FailureKind, Sample, Score


def sample(response, gold, prompt="Q?"):
    return Sample(prompt, response, gold)


@pytest.mark.parametrize(
    ("response", "gold", "value"),
    [
        ("<answer>Paris</answer>", "Paris", 1.0),
        ("<answer> the PARIS! </answer>", ["London", "Paris"], 1.0),
        ("<answer>Paris, France</answer>", ["Paris"], 0.0),
        ("Paris", ["Paris"], 0.0),
        ("<answer>Rome</answer> no, <answer>Paris</answer>", ["Paris"], 1.0),
        ("<answer>Paris</answer> or <answer>Rome</answer>", ["Paris"], 0.0),
        ("<answer>Paris</answer> as <answer>I said", ["Paris"], 1.0),
        ("<answer>one <answer>Paris</answer></answer>", ["Paris"], 1.0),
        ("<answer></answer>", ["Paris"], 0.0),
        ("<answer>!!</answer>", ["The"], 0.0),
        ("<answer></answer>", ["An"], 0.0),
        ("<answer>42</answer>", 42, 1.0),
        ("<answer>42</answer>", [42.0], 1.0),
        ("<answer>a b</answer>", {"target": np.array(["b"], dtype=object)}, 1.0),
    ],
)
def test_exact_match_has_these_values(response, gold, value):
    assert qa_em(sample(response, gold)).value == value


EMPTIED = [
    ("A", "A", True),
    ("a", "A", True),
    ("A.", "A", True),
    ("(a)", "A", True),
    ("The", "The", True),
    ("the!", "The", True),
    ("An", ["An"], True),
    ("++", "++", True),
    ("%", "%", True),
    ("?", ["!", "?"], True),
    ("\uff21", "A", True),
    ("...", "...", True),
    ("B", "A", False),
    ("The", "A", False),
    ("Paris", "The", False),
    ("", "A", False),
    ("!", "?", False),
    ("--", "++", False),
    ("!!", "The", False),
]


@pytest.mark.parametrize(("answer", "gold", "right"), EMPTIED)
def test_a_gold_that_normalises_to_nothing_is_compared_as_it_is_written(answer, gold, right):
    """The blood group A was 0 for every response, the right one included."""
    said = sample(f"<answer>{answer}</answer>", gold)
    for scorer in (qa_em, qa_subem, qa_f1, qa_em_format):
        assert (scorer(said).value >= 0.8) is right, scorer.__name__  # 0.8: without <think>


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("the blood type is A", "A", True),
        ("type A blood", "A", True),
        ("A, since it is rare", "A", True),
        ("it is a dog", "A", False),
        ("A dog", "A", False),
        ("It is so. A dog", "A", False),
        ("use the ++ operator", "++", True),
        ("the band is called The The", "The", True),
    ],
)
def test_an_article_before_a_word_is_not_the_gold_that_is_spelt_like_it(answer, gold, right):
    assert qa_subem(sample(f"<answer>{answer}</answer>", gold)).value == right


@pytest.mark.parametrize("scorer", [qa_em, qa_subem, qa_f1, qa_em_format])
def test_an_answer_in_thinking_is_no_answer(scorer):
    for response in (
        "<think><answer>Paris</answer></think>",
        "<answer>Paris</answer></think> Rome",
        "<think>or <answer>Paris</answer>",
    ):
        assert scorer(sample(response, "Paris")).value == 0
    said = "<think><answer>Rome</answer></think><answer>Paris</answer>"
    assert scorer(sample(said, "Paris")).value > 0.5


def test_published_modes_pay_for_an_answer_in_thinking():
    thought = sample("<think><answer>Paris</answer></think>", "Paris")
    assert qa_em(thought, compat="verl").value == qa_subem(thought, compat="verl").value == 1


def test_an_answer_in_the_prompt_is_never_the_response_s_answer():
    """Search-R1's prompt shows <answer> Beijing </answer>; a silent response must not earn it."""
    prompt = "Write it inside <answer> and </answer>, as in <answer> Beijing </answer>."
    assert qa_em(sample("I do not know.", "Beijing", prompt)).value == 0
    assert qa_em(sample("<answer>Rome</answer>", "Beijing", prompt)).value == 0
    assert qa_subem(sample("", "Beijing", prompt)).value == 0
    assert qa_f1(sample("", "Beijing", prompt)).value == 0


def test_a_format_score_is_paid_for_a_wrong_answer_and_not_for_none():
    assert qa_em(sample("<answer>Rome</answer>", "Paris"), format_score=0.1).value == 0.1
    assert qa_em(sample("Rome", "Paris"), format_score=0.1).value == 0
    assert qa_em(sample("<answer>Paris</answer>", "Paris"), score=2.0).value == 2.0


@pytest.mark.parametrize("scorer", [qa_em, qa_subem, qa_f1])
@pytest.mark.parametrize(
    "gold", [None, "", " \n", [], [None], {}, {"target": []}, [{"a": 1}], True, float("nan"), b"x"]
)
def test_a_gold_that_cannot_be_read_is_an_abstention_and_not_a_zero(scorer, gold):
    outcome = scorer(sample("<answer>Paris</answer>", gold))
    assert isinstance(outcome, Abstain)
    assert outcome.kind is FailureKind.BAD_INPUT


@pytest.mark.parametrize(
    ("response", "gold", "value"),
    [
        ("<answer>It is Paris, France.</answer>", ["Paris"], 1.0),
        ("<answer>Paris</answer>", ["Paris France"], 0.0),
        ("<answer>Paris</answer>", ["The"], 0.0),
        ("<answer></answer>", ["A"], 0.0),
        ("<answer>a party</answer>", ["art"], 0.0),
        ("<answer>2012</answer>", ["20"], 0.0),
        ("<answer>Parisian life</answer>", ["Paris"], 0.0),
        ("<answer>art and a party</answer>", ["art"], 1.0),
        ("<answer>在北京市</answer>", ["北京"], 1.0),
        ("It is Paris", ["Paris"], 0.0),
    ],
)
def test_containment_has_these_values(response, gold, value):
    assert qa_subem(sample(response, gold)).value == value


@pytest.mark.parametrize(
    ("answer", "golds", "value"),
    [
        ("Paris", ["Paris"], 1.0),
        ("Paris France", ["Paris"], 2 / 3),
        ("x x y", ["x y y"], 2 / 3),
        ("Rome", ["Paris", "Rome Italy"], 2 / 3),
        ("Rome", ["Paris"], 0.0),
        ("the", ["the"], 1.0),
        ("", ["Paris"], 0.0),
    ],
)
def test_word_overlap_has_these_values(answer, golds, value):
    assert token_f1(answer, golds) == pytest.approx(value)


def test_a_long_answer_is_shortened_in_the_explanation():
    outcome = qa_em(sample(f"<answer>{'x' * 10_000}</answer>", "Paris"))
    assert isinstance(outcome, Score)
    assert len(outcome.why) < 120


def test_a_million_unclosed_tags_are_read_in_one_pass():
    """A search from the end for each opening tag over the same text would take hours."""
    assert last_answer("<answer>Paris</answer>" + "<answer>" * 200_000) == "Paris"


def test_normalisation_keeps_words_that_only_begin_like_an_article():
    assert normalise("A theatre, an anthem") == "theatre anthem"


@pytest.mark.parametrize(
    ("ground_truth", "texts"),
    [
        (np.array(["a", "b"]), ["a", "b"]),
        (np.float64(3.0), ["3"]),
        (("a", "", None), ["a"]),
        ({"target": "a"}, ["a"]),
        ({"target": {"target": ["a"]}}, ["a"]),
        ({"answer": "a"}, []),
        (3.5, ["3.5"]),
    ],
)
def test_gold_answers_are_read_from_the_forms_data_sets_use(ground_truth, texts):
    assert gold_texts(ground_truth) == texts


SPELT = [
    ("Paris", "\uff30\uff41\uff52\uff49\uff53"),
    ("2012", "\uff12\uff10\uff11\uff12"),
    ("Par\xeds", "Pari\u0301s"),
    ("Pari\u0301s", "Par\xeds"),
    ("Paris", "\u200bParis\ufeff"),
    ("Paris", "\u201cParis\u201d"),
    ("\u5317\u4eac", "\u5317\u4eac\u3002"),
    ("\u0628\u0627\u0631\u064a\u0633", "\u202b\u0628\u0627\u0631\u064a\u0633\u202c"),
    ("fine", "\ufb01ne"),
]


@pytest.mark.parametrize(("gold", "answer"), SPELT)
def test_the_same_answer_in_other_characters_is_the_same(gold, answer):
    said = f"<answer>{answer}</answer>"
    assert qa_em(sample(said, gold)).value == 1
    assert qa_subem(sample(said, gold)).value == 1
    assert qa_f1(sample(said, gold)).value == 1
    assert contains(sample(f"It is {answer} I think", gold)).value == 1


@pytest.mark.parametrize(
    ("gold", "answer"),
    [("Paris", "Par\xeds"), ("\u5317\u4eac", "\u4e1c\u4eac"), ("r\xe9sum\xe9", "resume")],
)
def test_an_accent_or_another_character_makes_another_answer(gold, answer):
    assert qa_em(sample(f"<answer>{answer}</answer>", gold)).value == 0


@given(st.text(min_size=1, max_size=12), st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]))
def test_no_normal_form_of_unicode_changes_an_answer(text, form):
    other = unicodedata.normalize(form, text)
    assert canonical(other) == canonical(text)
    assert canonical(f"\u200e{text}\u200b") == canonical(text)


@pytest.mark.parametrize(
    "gold",
    [
        {"text": ["Lima", "Lima"], "answer_start": [0, 9]},  # SQuAD on the hub
        {"text": np.array(["Lima"], dtype=object), "answer_start": np.array([0])},  # in Parquet
        [{"text": "Lima", "answer_start": 0}, {"text": "lima", "answer_start": 9}],  # its own files
        {"answers": {"text": ["Lima"]}},
        {"target": {"text": ["Lima"]}},
        {"value": "Lima", "aliases": ["Lima, Peru"], "matched_wiki_entity_name": ""},  # TriviaQA
        [["Lima"], [None, "Lima, Peru"]],
        {"text": ["Lima"], "answers": []},
    ],
)
def test_nested_golds_of_published_data_sets_are_read(gold):
    scored = qa_em(Sample("q", "<answer>Lima</answer>", gold))
    assert scored.value == 1.0
    assert qa_em(Sample("q", "<answer>Cusco</answer>", gold)).value == 0.0


@pytest.mark.parametrize(
    "gold", [{"a": 1}, [{"a": 1}], {"text": []}, [["x"], {"a": 1}], {"text": [True]}]
)
def test_what_is_no_gold_abstains(gold):
    assert isinstance(qa_em(Sample("q", "<answer>x</answer>", gold)), Abstain)
