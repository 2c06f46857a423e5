"""The order in which a judge puts labelled responses: read strictly, never guessed."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.judge.labels import LETTERS, labels_for
from zerowait.judge.order import OrderReader, order_format, parse_order, read_order
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
    read = read_order(body.encode(), labels, ties=False)
    assert read.detail["order"] == [[0], [1], [2]]
    assert read.value == 1


def test_an_order_that_was_cut_short_is_truncated_and_not_half_an_order():
    reply = {"message": {"content": "Ranking: KTRV > BXMD"}, "finish_reason": "length"}
    body = json.dumps({"choices": [reply]}).encode()
    assert read_order(body, ["KTRV", "BXMD", "WLQZ"], ties=False).kind == "truncated"


@given(
    st.lists(st.text(alphabet=LETTERS + LETTERS.lower() + " ", max_size=60), min_size=2, max_size=6)
)
def test_labels_are_different_and_occur_in_no_response(texts):
    labels = labels_for(texts)
    assert len(set(labels)) == len(texts)
    assert not any(label.casefold() in text.casefold() for label in labels for text in texts)


@settings(max_examples=30)
@given(st.lists(st.text(max_size=20), min_size=2, max_size=5, unique=True), st.randoms())
def test_labels_go_by_place_and_change_with_any_of_the_responses(texts, random):
    shuffled = random.sample(texts, len(texts))
    assert labels_for(shuffled) == labels_for(texts)
    assert labels_for([*texts[:-1], texts[-1] + "."]) != labels_for(texts)


def test_a_response_that_holds_every_short_label_makes_labels_longer_and_no_endless_loop():
    from itertools import product

    from zerowait.judge.labels import LENGTH, LETTERS, labels_for

    every = "".join(map("".join, product(LETTERS, repeat=LENGTH)))
    labels = labels_for([every, "x"])
    assert len(labels) == 2
    assert not any(label in every for label in labels)
