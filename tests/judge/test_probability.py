"""Verdicts from token probabilities, with the tokens of real tokenizers (golden/tokens.json).

A judge is a mixture of replies: each has its probability, and the tokens that a real tokenizer
splits it into. From these follow the logprobs of a real server, token by token, along the most
probable reply. The verdict has to be the mixture's expectation, up to the probability that it calls
outside; or an abstention.
"""

import json
import math
import re
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from zerowait.config import VerdictRule
from zerowait.judge.parsing.probability import ProbabilityForm
from zerowait.judge.parsing.verdict import parse
from zerowait.judge.reply import decode_reply
from zerowait.types import Abstain, FailureKind, Score

TOKENS = json.loads((Path(__file__).parent / "golden" / "tokens.json").read_text())
TOKENIZERS = sorted(TOKENS)


def choice(*words, **options):
    return VerdictRule(choice=list(words), by="probability", **options)


def number(low, high, **options):
    return VerdictRule(integer=(low, high), by="expectation", **options)


def tokens_of(tokenizer, reply):
    return [bytes.fromhex(token) for token in TOKENS[tokenizer][reply]]


def entry(token, probability):
    text = token.decode("utf-8", "replace")
    logprob = math.log(probability) if probability else -9999.0
    return {"token": text, "bytes": list(token), "logprob": logprob}


def completion(content, logprobs, *, finish="stop"):
    choice = {"message": {"content": content}, "finish_reason": finish, "logprobs": logprobs}
    return decode_reply(json.dumps({"choices": [choice]}).encode())


def greedy(mixture, tokenizer, *, top=20, shows_end=False):
    """The reply of a judge that writes the most probable token, with OpenAI's logprobs.

    Args:
        mixture: the probability of each reply.
        tokenizer: splits the replies.
        top: the number of alternatives.
        shows_end: whether the end of the reply is a token of its own in the logprobs.
    """
    left = {reply: (tokens_of(tokenizer, reply), p) for reply, p in mixture.items()}
    written, content = [], []
    while True:
        chances = defaultdict(float)
        for tokens, p in left.values():
            chances[tokens[len(written)] if len(tokens) > len(written) else b""] += p
        total = sum(chances.values())
        ranked = sorted(chances, key=lambda token: (-chances[token], token))
        best = ranked[0]
        if best or shows_end:
            alternatives = [entry(token, chances[token] / total) for token in ranked[:top]]
            content.append(entry(best, chances[best] / total) | {"top_logprobs": alternatives})
        if not best:
            break
        written.append(best)
        left = {r: (t, p) for r, (t, p) in left.items() if t[: len(written)] == written}
    text = b"".join(written).decode("utf-8", "replace")
    return completion(text, {"content": content})


def read(mixture, rule, tokenizer="qwen-max", **options):
    form = ProbabilityForm(rule, reason_first=False)
    return form.read_reply(greedy(mixture, tokenizer, **options))


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_all_spellings_of_a_word_are_added_up(tokenizer):
    mixture = {
        "yes": 0.3,
        " Yes": 0.2,
        "Yes": 0.1,
        "YES": 0.05,
        "yes.": 0.05,
        "no": 0.2,
        " No": 0.1,
    }
    outcome = read(mixture, choice("yes", "no"), tokenizer)
    assert outcome.detail["written"] == "yes"
    outside = outcome.detail["measured"]["outside"]
    if tokenizer == "smollm2":  # YES is Y and ES, and Y begins other words, too
        assert (outcome.value, outside) == pytest.approx((0.65 / 0.95, 0.05))
    else:
        assert (outcome.value, outside) == pytest.approx((0.7, 0.0), abs=1e-9)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_a_word_in_quotes_or_stars_is_read_where_it_stands(tokenizer):
    mixture = {"**Yes**": 0.7, "**No**": 0.1, '"yes"': 0.15, "no": 0.05}
    outcome = read(mixture, choice("yes", "no", max_outside=0.5), tokenizer)
    assert outcome.value == pytest.approx(0.875)  # given the stars, of which there were most


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_probability_on_other_words_abstains_above_the_limit(tokenizer):
    mixture = {"yes": 0.4, "no": 0.2, "Maybe": 0.3, "I cannot judge this.": 0.1}
    outcome = read(mixture, choice("yes", "no"), tokenizer)
    assert outcome.kind is FailureKind.UNPARSEABLE
    assert "40% of the probability is not on one of the verdicts" in outcome.detail
    loose = read(mixture, choice("yes", "no", max_outside=0.5), tokenizer)
    assert loose.value == pytest.approx(2 / 3)
    assert loose.detail["measured"]["outside"] == pytest.approx(0.4)


def test_the_first_letters_of_another_sentence_are_no_verdict():
    """`I` begins `incorrect`, and `I cannot judge this.` as well."""
    mixture = {"correct": 0.5, "I cannot judge this.": 0.5}
    for tokenizer in TOKENIZERS:
        assert isinstance(read(mixture, choice("correct", "incorrect"), tokenizer), Abstain)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("shows_end", [True, False])
def test_a_ten_of_two_tokens_is_followed_where_it_was_written(tokenizer, shows_end):
    mixture = {"10/10": 0.5, "1/10": 0.2, "9/10": 0.2, "8/10": 0.1}
    outcome = read(mixture, number(1, 10), tokenizer, shows_end=shows_end)
    assert outcome.value == pytest.approx(5 + 0.2 + 1.8 + 0.8)
    assert outcome.detail["written"] == 10


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_a_written_one_of_ten_is_told_from_ten(tokenizer):
    outcome = read({"1/10": 0.5, "10/10": 0.3, "9/10": 0.2}, number(1, 10), tokenizer)
    assert outcome.value == pytest.approx(0.5 + 3 + 1.8)
    assert outcome.detail["written"] == 1


def test_a_one_that_may_become_ten_is_not_guessed():
    """With `8` written, nothing says what would have followed the `1`."""
    mixture = {"8/10": 0.6, "10/10": 0.4}
    outcome = read(mixture, number(1, 10), "qwen-max")
    assert isinstance(outcome, Abstain)
    assert "'1' 40% (may begin 10)" in outcome.detail
    assert read(mixture, number(1, 10), "cl100k").value == pytest.approx(8.8)  # 10 is a token there


def test_ranges_of_single_digits_are_never_uncertain():
    mixture = {"0": 0.1, " 3": 0.2, "4.": 0.3, "9": 0.4}
    for tokenizer in TOKENIZERS:
        outcome = read(mixture, number(0, 9, max_outside=0.21), tokenizer)
        assert outcome.value == pytest.approx(5.4, abs=0.6)  # some write the blank as a token


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_a_written_number_that_goes_on_is_another_number(tokenizer):
    assert isinstance(read({"100": 0.7, "5": 0.3}, number(0, 10), tokenizer), Abstain)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_words_of_parts_of_characters_are_followed(tokenizer):
    outcome = read({"是": 0.8, "否": 0.2}, choice("是", "否"), tokenizer)
    if isinstance(outcome, Score):
        assert outcome.value == pytest.approx(0.8) or outcome.detail["measured"]["outside"] > 0.1
    sure = read({"是。": 0.97, "否。": 0.03}, choice("是", "否"), tokenizer)
    assert sure.value == pytest.approx(1.0, abs=0.031)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_the_verdict_is_behind_the_thinking(tokenizer):
    outcome = read({"<think>\n\n</think>\n\nyes": 1.0}, choice("yes", "no"), tokenizer)
    assert outcome.value == 1.0


WORTHS = {
    "yes or no": (choice("yes", "no"), 1.0),
    "correct": (choice("correct", "partly correct", "incorrect"), 1.0),
    "number": (number(0, 10), 10.0),
    "chinese": (choice("是", "否"), 1.0),
}
TRUE = {
    "yes or no": {
        **dict.fromkeys(["yes", " yes", "Yes", " Yes", "YES", '"yes"', "**Yes**", "yes."], 1.0),
        **dict.fromkeys(["no", " no", "No", " No", "NO", '"no"', "**No**", "no."], 0.0),
        **dict.fromkeys(
            ["Maybe", "I cannot judge this.", "Not sure", "Yesterday", "", "Nobody knows"]
        ),
    },
    "correct": {
        **dict.fromkeys(["correct", " correct", "Correct", "**Correct**", "correct."], 1.0),
        **dict.fromkeys(
            ["incorrect", " incorrect", "Incorrect", "**Incorrect**", "incorrect."], 0.0
        ),
        **dict.fromkeys(
            ["partly correct", " partly correct", "Partly correct", "partly correct."], 0.5
        ),
        **dict.fromkeys(["In my opinion yes", "Inconclusive", "I"]),
    },
    "number": {
        **{f"{n}{end}": float(n) for n in range(11) for end in ("", ".", "/10", "\n")},
        **{f" {n}": float(n) for n in range(11)},
        **{f"**{n}**": float(n) for n in range(11)},
        **dict.fromkeys(["seven", "N/A", "11", "The", "-1"]),
    },
    "chinese": {
        **dict.fromkeys(["是", "是。", "**是**"], 1.0),
        **dict.fromkeys(["否", "否。"], 0.0),
        **dict.fromkeys(["不是", "不确定", "错误"]),
    },
}


@given(data=some.data())
def test_a_verdict_is_the_mixtures_expectation_up_to_what_it_calls_outside(data):
    kind = data.draw(some.sampled_from(sorted(TRUE)))
    tokenizer = data.draw(some.sampled_from(TOKENIZERS))
    replies = data.draw(
        some.lists(some.sampled_from(sorted(TRUE[kind])), min_size=1, max_size=8, unique=True)
    )
    weights = [data.draw(some.integers(1, 100)) for _ in replies]
    mixture = {reply: weight / sum(weights) for reply, weight in zip(replies, weights, strict=True)}
    rule, width = WORTHS[kind]
    shows_end = data.draw(some.booleans())
    outcome = read(mixture, rule, tokenizer, shows_end=shows_end)
    if isinstance(outcome, Abstain):
        assert outcome.kind in (
            FailureKind.UNPARSEABLE,
            FailureKind.HTTP_ERROR,
            FailureKind.REFUSED,
        )
        return
    said = first_tokens(mixture, tokenizer, greedy(mixture, tokenizer).text)
    worths = {reply: TRUE[kind][reply] for reply in said if TRUE[kind][reply] is not None}
    assert worths, "a verdict out of replies that have none"
    total = sum(said[reply] for reply in worths)
    truth = sum(said[reply] * worth for reply, worth in worths.items()) / total
    outside = outcome.detail["measured"]["outside"]
    assert abs(outcome.value - truth) <= outside * width + 1e-6


def first_tokens(mixture, tokenizer, written):
    """The replies that have the written one's marks before their verdict, and their shares."""
    marks = next((mark for mark in ("**", '"', " ") if written.startswith(mark)), "")
    tokens = (
        tokens_of(tokenizer, next(r for r in mixture if r == written)) if written in mixture else []
    )
    alone = bool(tokens) and marks and tokens[0] == marks.encode()
    kept = {
        r: p for r, p in mixture.items() if not alone or tokens_of(tokenizer, r)[:1] == tokens[:1]
    }
    return {reply: p / sum(kept.values()) for reply, p in kept.items()}


def top(*tokens, **more):
    """An OpenAI item without bytes, as some servers send it."""
    options = [{"token": token, "logprob": math.log(p)} for token, p in tokens]
    return {
        "token": tokens[0][0],
        "logprob": math.log(tokens[0][1]),
        "top_logprobs": options,
    } | more


FORMS = {
    "a mapping of alternatives": {
        "content": [
            {
                "token": "yes",
                "logprob": -0.4,
                "top_logprobs": {"yes": math.log(0.6), "no": math.log(0.4)},
            }
        ]
    },
    "legacy completions": {
        "tokens": [" yes"],
        "token_logprobs": [math.log(0.6)],
        "top_logprobs": [{" yes": math.log(0.6), " no": math.log(0.4)}],
        "text_offset": [0],
    },
    "a bare list": [top((" yes", 0.6), (" no", 0.4))],
    "GPT-2's vocabulary": {"content": [top(("\u0120yes", 0.6), ("\u0120no", 0.4))]},
    "SentencePiece's vocabulary": {"content": [top(("\u2581yes", 0.6), ("\u2581no", 0.4))]},
    "a blank token first": {
        "content": [top(("\u2581", 0.9), ("N", 0.1)), top(("yes", 0.6), ("no", 0.4))]
    },
    "bytes instead of characters": {
        "content": [top(("<0x79>", 0.6), ("no", 0.4)), top(("es", 1.0), ("", 0.0 + 1e-9))]
    },
    "the written token beside its alternatives": {
        "content": [
            {
                "token": "yes",
                "logprob": math.log(0.6),
                "top_logprobs": [{"token": "no", "logprob": math.log(0.4)}],
            }
        ]
    },
    "the end of the reply as a token": {
        "content": [top(("yes", 0.6), ("no", 0.4)), top(("<|im_end|>", 0.9), (".", 0.1))]
    },
    "thinking in the tokens and not in the text": {
        "content": [
            top(("no", 1.0)),
            top(("</think>", 1.0)),
            top(("\n\n", 1.0)),
            top(("yes", 0.6), ("no", 0.4)),
        ]
    },
    "an infinite logprob": {"content": [top(("yes", 0.6), ("no", 0.4)) | {"logprob": -9999.0}]},
}


@pytest.mark.parametrize("form", FORMS)
def test_every_servers_form_is_read(form):
    reply = completion("yes" if "legacy" not in form else " yes", FORMS[form])
    outcome = ProbabilityForm(choice("yes", "no"), reason_first=False).read_reply(reply)
    assert outcome.value == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("logprobs", "problem"),
    [
        (None, "has no logprobs"),
        ({"content": None}, "has no logprobs"),
        ({"content": []}, "has no logprobs"),
        ("yes", "has no logprobs"),
        ({"tokens": ["yes"], "token_logprobs": []}, "has no logprobs"),
        ({"content": [{"token": "yes", "logprob": -0.1}]}, "and no top_logprobs"),
        (
            {"content": [{"token": "yes", "logprob": -0.1, "top_logprobs": []}]},
            "and no top_logprobs",
        ),
        ({"content": [top(("token_id:1", 0.6), ("token_id:2", 0.4))]}, "the ids of tokens"),
    ],
)
def test_a_reply_without_them_is_the_endpoints_failure(logprobs, problem):
    form = ProbabilityForm(choice("yes", "no"), reason_first=False)
    outcome = form.read_reply(completion("yes", logprobs))
    assert outcome.kind is FailureKind.HTTP_ERROR
    assert problem in outcome.detail


@pytest.mark.parametrize("values", [(20.5, 18.0), (0.7, 0.3), (1.0, 0.0)])
def test_logits_and_probabilities_are_no_log_probabilities(values):
    """vLLM has a mode that sends logits; read as log-probabilities they were all certain."""
    said = [{"token": t, "logprob": v} for t, v in zip(("yes", "no"), values, strict=True)]
    outcome = ProbabilityForm(choice("yes", "no"), reason_first=False).read_reply(
        completion("yes", {"content": [said[0] | {"top_logprobs": said}]})
    )
    assert outcome.kind is FailureKind.HTTP_ERROR
    assert "no log-probabilities" in outcome.detail


@pytest.mark.parametrize("twice", ["yes", "no"])
def test_a_token_that_is_listed_twice_counts_once(twice):
    said = [{"token": t, "logprob": math.log(p)} for t, p in (("yes", 0.7), ("no", 0.3))]
    said += [each for each in said if each["token"] == twice]
    outcome = ProbabilityForm(choice("yes", "no"), reason_first=False).read_reply(
        completion("yes", {"content": [said[0] | {"top_logprobs": said}]})
    )
    assert outcome.value == pytest.approx(0.7)


@pytest.mark.parametrize("odd", [{"logprob": -(10**400)}, {"logprob": -9999}, {"logprob": None}])
def test_an_odd_number_beside_the_verdict_has_no_probability(odd):
    said = {"token": "yes", "logprob": -0.01, "bytes": []}
    tokens = [said, {"token": "no"} | odd]
    outcome = ProbabilityForm(choice("yes", "no"), reason_first=False).read_reply(
        completion("yes", {"content": [said | {"top_logprobs": tokens}]})
    )
    assert outcome.value == 1.0


@pytest.mark.parametrize("logprobs", [None, {"content": []}])
def test_an_empty_answer_is_not_taken_for_an_endpoint_without_logprobs(logprobs):
    """That would end a run because of one reply that was all thinking."""
    outcome = ProbabilityForm(choice("yes", "no"), reason_first=False).read_reply(
        completion("", logprobs)
    )
    assert outcome.kind is FailureKind.UNPARSEABLE


def test_logprobs_of_another_text_are_not_read():
    form = ProbabilityForm(choice("yes", "no"), reason_first=False)
    outcome = form.read_reply(completion("yes", {"content": [top(("no", 0.9), ("yes", 0.1))]}))
    assert outcome.kind is FailureKind.UNPARSEABLE
    assert "another text" in outcome.detail


PIECE = re.compile(r" ?[^\W\d]+|\d|[^\w\s]|\s+")
CORPUS = [
    json.loads(line)
    for line in (Path(__file__).parent / "corpus.jsonl").read_text("utf-8").split("\n")
    if line
]
RULES = {
    "1-10": (number(1, 10), VerdictRule(integer=(1, 10))),
    "yes/no": (choice("yes", "no"), VerdictRule(choice=["yes", "no"])),
}


@pytest.mark.parametrize("reason_first", [True, False])
def test_no_reply_of_the_corpus_gives_another_verdict_than_it_says(reason_first):
    """With every token certain, a verdict by probability is the one that the text gives."""
    known = [shape for shape in CORPUS if shape["rule"] in RULES]
    read_at_all = 0
    for shape in known[:: 1 if reason_first else 2]:
        rule, plain = RULES[shape["rule"]]
        text = shape["reply"]
        content = [top((token, 1.0)) for token in PIECE.findall(text)]
        form = ProbabilityForm(rule, reason_first=reason_first)
        outcome = form.read_reply(completion(text, {"content": content}))
        if isinstance(outcome, Abstain):
            continue
        read_at_all += 1
        said = parse(text, plain)
        if isinstance(said, Score):
            assert outcome.value == pytest.approx(said.value), text
        else:  # the first word of a sentence, which only a judge that gives no reasons writes so
            assert not reason_first, text
            assert re.match(r"\W*(yes|no)\b\W", text, re.IGNORECASE), text
    assert read_at_all > (800 if reason_first else 100)
