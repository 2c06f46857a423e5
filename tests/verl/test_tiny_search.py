"""The world of the tiny search agent: what its policy is labelled, token by token."""

import random

import pytest

from zerowait.search.documents import documents_in
from zerowait.tiny_models.search import (
    _FORMS,
    ANIMALS,
    HELD_OUT,
    NAMES,
    _examples,
    document,
    search_tokenizer,
)
from zerowait.verl.policy_tokens import PolicyTokens


@pytest.fixture(scope="module")
def tokenizer():
    return search_tokenizer()


@pytest.fixture(scope="module")
def examples(tokenizer):
    return next(_examples(tokenizer, random.Random(0)))


def test_a_name_is_one_token_in_a_question_and_one_in_a_search(tokenizer):
    tokens = PolicyTokens(tokenizer)
    for word in (*NAMES, *ANIMALS):
        assert len(tokens.encode(word)) == len(tokens.encode(f" {word}")) == 1


def test_a_lesson_teaches_the_models_own_tokens_only(tokenizer, examples):
    for example in examples:
        labelled = PolicyTokens(tokenizer).decode(
            [example.tokens[place] for place in example.labelled]
        )
        assert "information" not in labelled
        assert "keeps" not in labelled
        assert "<answer>" in labelled


def test_an_animal_that_was_read_is_the_one_to_answer_with(tokenizer, examples):
    texts = [PolicyTokens(tokenizer).decode(example.tokens) for example in examples]
    read = [text for text in texts if "<information>" in text]
    assert len(read) == _FORMS["search"] + _FORMS["given"]
    for text in read:
        animal = text.rpartition("<answer>")[2].removesuffix("</answer>")
        assert f"keeps a {animal}." in text


def test_the_choice_to_search_is_taught_in_a_fourth_of_the_episodes_that_choose(
    tokenizer, examples
):
    search = PolicyTokens(tokenizer).encode("search")[0]
    openings = [
        example.tokens[example.labelled[1]]
        for example in examples
        if example.labelled[1] == example.labelled[0] + 1
    ]
    assert openings.count(search) / len(openings) == 0.25


def test_what_is_asked_of_held_out_keepers_is_in_the_corpus_only():
    assert 0 < HELD_OUT < len(NAMES) / 2
    row = {"contents": document("Ada", "crow").contents}
    assert next(documents_in(row, where="")).text == "Ada keeps a crow."
