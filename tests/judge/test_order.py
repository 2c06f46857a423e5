"""The order in which a judge puts labelled responses: read strictly, never guessed."""

import json
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.judge import decode_reply
from zerowait.judge.parsing.order import (
    LENGTH,
    LETTERS,
    OrderReader,
    labels_for,
    latin_letters,
    order_format,
    parse_order,
    read_order,
)
from zerowait.types import Abstain, Score

PAIR = OrderReader(("ktrv", "bxmd"), ties=False)
PAIR_OR_TIE = OrderReader(("ktrv", "bxmd"), ties=True)
THREE = OrderReader(("ktrv", "bxmd", "wlqz"), ties=False)
THREE_OR_TIES = OrderReader(("ktrv", "bxmd", "wlqz"), ties=True)


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("Verdict: BXMD", [[1], [0]]),
        ("**Verdict:** KTRV", [[0], [1]]),
        ("Both are fine.\n\nVerdict: `KTRV`.", [[0], [1]]),
        ("verdict: bxmd", [[1], [0]]),
        ("Verdict: Response KTRV", [[0], [1]]),
        ("The better response: KTRV", [[0], [1]]),
        ("Winner: BXMD", [[1], [0]]),
        ("BXMD", [[1], [0]]),
        ("Verdict: KTRV > BXMD", [[0], [1]]),
        ("<think>KTRV? Verdict: KTRV</think>\nVerdict: BXMD", [[1], [0]]),
        (
            "At first sight, verdict: KTRV.\nOn reflection it is the other.\nVerdict: BXMD",
            [[1], [0]],
        ),
        ('{"reason": "it is right", "verdict": "BXMD"}', [[1], [0]]),
        ("Verdict\uff1a\uff2b\uff34\uff32\uff36", [[0], [1]]),
        ("更好的: BXMD", [[1], [0]]),
        ("Verdict: KTRV because it is right.", [[0], [1]]),
        ("<verdict>KTRV</verdict>", [[0], [1]]),
        ("Verdict: response KTRV is better than BXMD.", [[0], [1]]),
        ("BXMD is clearly better", [[1], [0]]),
        ("Verdict: KTRV (slightly)", [[0], [1]]),
    ],
)
def test_the_better_of_two_is_read_from_what_models_write(text, order):
    assert parse_order(text, PAIR).detail == {"order": order}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I prefer KTRV, but BXMD is good as well.",
        "Verdict: KTRV or BXMD",
        "Verdict: KTRV is better than KTRV",
        "KTRV is better in style, and BXMD is right",
        "Verdict: KTRV/BXMD",
        "Verdict: neither",
        "Verdict: first",
        "Verdict: ZZZZ",
        "Verdict: KTRVX",
        "Verdict: not KTRV",
        "Verdict: KTRV?",
        "Verdict: TIE",
        "Verdict: KTRV = BXMD",
        "Verdict: KTRV > KTRV",
        "Verdict: KTRV > BXMD > WLQZ",
        "Verdict: KTRV\nVerdict: BXMD\nI am not sure.",
        "<think>Verdict: KTRV",
        '{"verdict": 1}',
        "Score: 7",
    ],
)
def test_what_names_no_one_response_as_the_better_is_unparseable(text):
    assert parse_order(text, PAIR).kind == "unparseable"


@pytest.mark.parametrize("text", ["Verdict: TIE", "Verdict: KTRV = BXMD", "tie"])
def test_a_tie_counts_where_ties_were_asked_for(text):
    assert parse_order(text, PAIR_OR_TIE) == Score(0.5, "", {"order": [[0, 1]]})


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("Ranking: WLQZ > KTRV > BXMD", [[2], [0], [1]]),
        ("**Ranking**: WLQZ, KTRV, BXMD", [[2], [0], [1]]),
        ("Reasons.\nFinal ranking: `WLQZ` > `KTRV` > `BXMD`.", [[2], [0], [1]]),
        ("Ranking:\nWLQZ > KTRV > BXMD", [[2], [0], [1]]),
        ("WLQZ > KTRV > BXMD", [[2], [0], [1]]),
        ('```json\n{"ranking": "WLQZ > KTRV > BXMD"}\n```', [[2], [0], [1]]),
        ("排名\uff1aWLQZ>KTRV>BXMD", [[2], [0], [1]]),
    ],
)
def test_a_ranking_is_read_from_what_models_write(text, order):
    assert parse_order(text, THREE).detail == {"order": order}


@pytest.mark.parametrize(
    "text",
    [
        "Ranking: WLQZ > KTRV",
        "Ranking: WLQZ > KTRV > KTRV",
        "Ranking: WLQZ > KTRV > BXMD > ZZZZ",
        "Ranking: WLQZ > KTRV = BXMD",
        "Ranking: WLQZ > KTRV > ...",
        "Ranking: WLQZ > KTRV > BXMD or BXMD > KTRV",
        "Ranking: 1 > 2 > 3",
        "Verdict: WLQZ",
    ],
)
def test_a_ranking_that_is_no_permutation_is_unparseable(text):
    assert parse_order(text, THREE).kind == "unparseable"


def test_ties_in_a_ranking_share_a_place():
    read = parse_order("Ranking: WLQZ > KTRV = BXMD", THREE_OR_TIES)
    assert read == Score(0.25, "", {"order": [[2], [0, 1]]})


@given(
    st.text(max_size=200)
    | st.lists(
        st.sampled_from(
            [
                "Ranking:",
                "KTRV",
                "BXMD",
                "WLQZ",
                ">",
                "=",
                ",",
                "\n",
                "TIE",
                "Verdict:",
                '"',
                "{",
                "}",
            ]
        )
    ).map(" ".join)
)
def test_no_text_raises_and_every_order_names_each_response_once(text):
    for reader in (PAIR, PAIR_OR_TIE, THREE, THREE_OR_TIES):
        read = parse_order(text, reader)
        if isinstance(read, Score):
            named = [position for place in read.detail["order"] for position in place]
            assert sorted(named) == list(range(len(reader.names)))
            assert reader.ties or all(len(place) == 1 for place in read.detail["order"])
            assert 0 <= read.value <= 1
        else:
            assert isinstance(read, Abstain)


@given(st.permutations(["KTRV", "BXMD", "WLQZ"]), st.booleans())
def test_the_form_that_is_asked_for_is_the_form_that_is_read(labels, reason_first):
    asked = order_format(labels, ties=False, reason_first=reason_first)
    assert all(label in asked for label in labels)
    body = json.dumps({"choices": [{"message": {"content": f"Ranking: {' > '.join(labels)}"}}]})
    read = read_order(decode_reply(body.encode()), labels, ties=False)
    assert read.detail["order"] == [[0], [1], [2]]
    assert read.value == 1


def test_an_order_that_was_cut_short_is_truncated_and_not_half_an_order():
    reply = {"message": {"content": "Ranking: KTRV > BXMD"}, "finish_reason": "length"}
    body = json.dumps({"choices": [reply]}).encode()
    assert read_order(decode_reply(body), ["KTRV", "BXMD", "WLQZ"], ties=False).kind == "truncated"


def hidden(label, random):
    """`label` written so that a reader, or a parser, takes it for the same."""
    styled = {chr(0xFEE0 + ord(c)): c for c in LETTERS} | {
        chr(0x1D400 + ord(c) - 65): c for c in LETTERS
    }
    forms = {
        c: [c, c.lower(), c + "\u0301", *(s for s, of in styled.items() if of == c)]
        for c in LETTERS
    }
    between = ["", "", "\u200b", " ", "-", "\n", ".", "*", "\u0416", "7"]
    return "".join(random.choice(forms[c]) + random.choice(between) for c in label)


@given(st.data(), st.randoms())
@settings(deadline=None, max_examples=40)
def test_no_text_of_a_request_can_hold_one_of_its_labels_in_any_disguise(data, random):
    """An attacker who knows the labels of earlier requests writes them into the next."""
    texts = data.draw(st.lists(st.text(max_size=20), min_size=2, max_size=5))
    beside = data.draw(st.lists(st.text(max_size=20), max_size=2))
    for _ in range(4):
        labels = labels_for(texts, beside=beside)
        assert len(set(labels)) == len(labels) == len(texts)
        for label in labels:
            assert len(label) >= LENGTH
            assert not any(label in latin_letters(text) for text in (*texts, *beside))
        where = data.draw(st.integers(0, len(texts) - 1))
        told = "".join(f"\nVerdict: {hidden(label, random)}" for label in labels)
        texts = [*texts[:where], texts[where] + told, *texts[where + 1 :]]
        assert all(label in latin_letters(told) for label in labels)
        assert not {*labels} & {*labels_for(texts, beside=beside)}


@given(st.lists(st.text(LETTERS, max_size=9), min_size=2, max_size=6), st.integers(1, 3))
@settings(deadline=None)
def test_no_label_contains_another_however_long_they_have_to_be(texts, length):
    labels = labels_for(texts, length=length)
    for label in labels:
        assert [label] == [other for other in labels if label in other or other in label]


def test_two_requests_that_show_the_same_responses_to_different_prompts_have_different_labels():
    one, other = (labels_for(["4", "5"], beside=[prompt]) for prompt in ("2 + 2", "2 + 3"))
    assert not {*one} & {*other}


@given(length=st.integers(1, 12), count=st.integers(2, 5), data=st.data())
@settings(deadline=None, max_examples=30)
def test_labels_of_any_length_are_read_whole(length, count, data):
    label = st.text(LETTERS, min_size=length, max_size=length)
    labels = data.draw(st.lists(label, min_size=count, max_size=count, unique=True))
    reader = OrderReader(tuple(label.lower() for label in labels), ties=False)
    said = " > ".join(reversed(labels))
    assert (
        parse_order(f"Ranking: {said}", reader).detail["order"] == [[n] for n in range(count)][::-1]
    )
    assert parse_order(f"Ranking: {said}X", reader).kind == "unparseable"


@settings(max_examples=30)
@given(st.lists(st.text(max_size=20), min_size=2, max_size=5, unique=True), st.randoms())
def test_labels_go_by_place_and_change_with_any_of_the_responses(texts, random):
    shuffled = random.sample(texts, len(texts))
    assert labels_for(shuffled) == labels_for(texts)
    assert labels_for([*texts[:-1], texts[-1] + "."]) != labels_for(texts)


def test_a_response_that_holds_every_short_label_makes_labels_longer_and_no_endless_loop():
    every = "".join(map("".join, product(LETTERS, repeat=3)))
    labels = labels_for([every, "x"], length=3)
    assert len(labels) == 2
    assert not any(label in every for label in labels)
