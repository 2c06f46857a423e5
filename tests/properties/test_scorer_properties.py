"""What holds for every text."""

import re
import string
import unicodedata
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait.scorers import SCORERS, outcome_of
from zerowait.scorers.answers import last_answer, normalise
from zerowait.scorers.contains import contains_words
from zerowait.scorers.format import format_fault
from zerowait.scorers.gsm8k import final_number
from zerowait.scorers.qa_em import exact_match
from zerowait.scorers.qa_f1 import token_f1
from zerowait.scorers.qa_subem import substring_match
from zerowait.types import Abstain, Sample, Score

words = st.text(st.sampled_from("abthe AN.,!\n-'"), max_size=30)
tags = st.lists(
    st.sampled_from(["<answer>", "</answer>", "<think>", "</think>", "x", "Paris", " "]),
    max_size=12,
).map("".join)
anything = st.text(max_size=200)
options = {"regex": {"pattern": "a+"}, "column": {"key": "rm"}}


def slow_normalise(text):
    kept = "".join(char for char in text.lower() if char not in string.punctuation)
    return re.sub(r"\s+", " ", re.sub(r"\b(a|an|the)\b", " ", kept)).strip()


def slow_last_answer(text):
    """Every closed pair, by hand: the last opening tag that has a closing one before the next."""
    found = re.findall(r"<answer>((?:(?!<answer>)[\s\S])*?)</answer>", text)
    return found[-1].strip() if found else None


@given(words)
def test_normalisation_agrees_with_squad_s_four_steps(text):
    assert normalise(text) == slow_normalise(text)


@given(words)
def test_normalising_twice_changes_nothing_but_articles_that_met(text):
    once = normalise(text)
    assert len(normalise(once)) <= len(once)
    assert once == once.lower().strip()


@given(tags)
def test_the_last_answer_is_the_last_closed_pair(text):
    assert last_answer(text) == slow_last_answer(text)


@given(words, st.lists(words, min_size=1, max_size=4))
def test_a_match_is_contained_and_overlaps_fully(answer, golds):
    f1 = token_f1(answer, golds)
    assert 0 <= f1 <= 1
    if exact_match(answer, golds):
        assert substring_match(answer, golds)
        assert f1 == 1


@given(words, st.lists(words, min_size=1, max_size=4))
def test_containment_agrees_with_a_slow_reader_of_tokens(answer, golds):
    said = normalise(answer).split()
    wanted = [(gold, tokens) for gold in golds if (tokens := normalise(gold).split())]
    runs = [said[start : start + len(t)] == t for _, t in wanted for start in range(len(said))]
    assert substring_match(answer, [gold for gold, _ in wanted]) == any(runs)


@given(st.lists(words, min_size=1, max_size=4))
def test_nothing_matches_an_empty_answer_or_an_empty_gold(golds):
    blank = ["", " ", "\n"]
    for text in golds:
        assert not exact_match(text, blank)
        assert not substring_match(text, blank)
    for empty in blank:
        assert not exact_match(empty, golds)
        assert token_f1(empty, golds) == 0


@given(st.decimals(-10_000_000, 10_000_000, places=2), st.sampled_from(["strict", "flexible"]))
def test_a_number_is_read_back_however_it_was_written(number, method):
    for text in (f"{number}", f"{number:,}", f"{number}.", f"{number}".replace("-", "\u2212")):
        assert final_number(f"so it is\n#### {text}", method) == Fraction(number)


@given(anything)
def test_a_text_contains_its_own_words(text):
    for word in text.split():
        is_seen = any(unicodedata.category(char) != "Cf" for char in word)
        assert contains_words(text, word) == is_seen


@given(tags)
def test_a_well_formed_text_has_as_many_closing_tags_as_opening_ones(text):
    if not format_fault(text):
        for name in ("think", "answer"):
            assert text.count(f"<{name}>") == text.count(f"</{name}>") >= 1


@pytest.mark.parametrize("name", sorted(SCORERS))
@given(
    response=anything | tags,
    gold=st.none() | anything | st.lists(anything, max_size=3) | st.integers() | st.floats(),
)
def test_no_text_makes_a_scorer_raise_or_leave_the_range(name, response, gold):
    sample = Sample("prompt", response, gold, data_source="nq")
    outcome = SCORERS[name](sample, **options.get(name, {}))
    assert isinstance(outcome, Abstain) or (isinstance(outcome, Score) and 0 <= outcome.value <= 1)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
        max_leaves=5,
    )
)
def test_whatever_is_returned_becomes_a_finite_score_or_an_abstention(returned):
    outcome = outcome_of(returned, "my:f")
    assert isinstance(outcome, Score | Abstain)
    if isinstance(outcome, Score):
        plain = returned["score"] if isinstance(returned, dict) else returned
        assert outcome.value == float(plain)
