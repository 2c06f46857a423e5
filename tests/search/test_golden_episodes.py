"""Each way in which an episode can go: its text, who wrote each token, why it ended, its rewards."""

import asyncio

import pytest

from zerowait.scorers.qa_em import qa_em
from zerowait.scorers.qa_em_format import qa_em_format
from zerowait.search import Failed, Passage, Searcher, SearchSettings, Turn
from zerowait.search.passages import FAILED, INVALID
from zerowait.types import Sample

FOUND = '\n\n<information>Doc 1(Title: "Lima") Lima is in Peru.</information>\n\n'
CUT = "\n\n<information>Doc 1(Title</information>\n\n"
LOST = f"\n\n<information>{FAILED}</information>\n\n"
LIMA = [Passage('"Lima"\nLima is in Peru.')]


class Characters:
    def encode(self, text):
        return [ord(c) for c in text]

    def decode(self, tokens):
        return "".join(map(chr, tokens))


def m(text):
    return (text, 1)


def e(text):
    return (text, 0)


# what the model says, what is found, settings; then the parts, the stop, exact match, with format
GOLDEN = {
    "search": (
        ["<think>?</think><search>Lima</search>", "<think>!</think><answer>Peru</answer>"], LIMA, {},
        [m("<think>?</think><search>Lima</search>"), e(FOUND), m("<think>!</think><answer>Peru</answer>")],
        "answered", 1.0, 1.0,
    ),
    "answer": (
        ["<think>!</think><answer>Peru</answer> bye"], LIMA, {},
        [m("<think>!</think><answer>Peru</answer>")], "answered", 1.0, 1.0,
    ),
    "wrong answer": (
        ["<think>!</think><answer>Chile</answer>"], LIMA, {},
        [m("<think>!</think><answer>Chile</answer>")], "answered", 0.0, 0.2,
    ),
    "invalid": (
        ["hm", "<answer>Peru</answer>"], LIMA, {},
        [m("hm"), e(INVALID), m("<answer>Peru</answer>")], "answered", 1.0, 0.8,
    ),
    "both tags": (
        ["<search>Lima</search> or <answer>Chile</answer>", "<answer>Peru</answer>"], LIMA, {},
        [m("<search>Lima</search>"), e(FOUND), m("<answer>Peru</answer>")], "answered", 1.0, 0.8,
    ),
    "nested": (
        ["<answer><search>Lima</search></answer>", "<answer>Peru</answer>"], LIMA, {},
        [m("<answer><search>Lima</search>"), e(FOUND), m("<answer>Peru</answer>")], "answered", 1.0, 0.8,
    ),
    "truncated observation": (
        ["<search>Lima</search>", "<answer>Peru</answer>"], LIMA, {"max_obs_length": len(CUT)},
        [m("<search>Lima</search>"), e(CUT), m("<answer>Peru</answer>")], "answered", 1.0, 0.8,
    ),
    "failed retriever": (
        ["<search>Lima</search>", "<answer>Peru</answer>"], Failed("refused"), {},
        [m("<search>Lima</search>"), e(LOST), m("<answer>Peru</answer>")], "answered", 1.0, 0.8,
    ),
    "turn limit": (
        ["<search>Lima</search>", "<search>Peru</search>"], LIMA, {"max_turns": 1},
        [m("<search>Lima</search>"), e(FOUND), m("<search>Peru</search>")], "turn_limit", 0.0, 0.0,
    ),
}  # fmt: skip


def play(turns, found, settings):
    left = iter(turns)
    tokens = Characters()

    async def generate(_context, most):
        return Turn(tokens.encode(next(left))[:most])

    async def retrieve(queries):
        return [found for _ in queries]

    searcher = Searcher(
        SearchSettings(**settings), generate=generate, retrieve=retrieve, tokens=tokens
    )
    return asyncio.run(searcher.episode(tokens.encode("Where is Lima?"), room=1000))


@pytest.mark.parametrize("name", GOLDEN)
def test_an_episode_goes_token_by_token_as_written_down(name):
    turns, found, settings, parts, stop, exact, with_format = GOLDEN[name]
    episode = play(turns, found, settings)
    text = "".join(part for part, _ in parts)
    assert episode.response == Characters().encode(text)
    assert episode.mask == [bit for part, bit in parts for _ in part]
    assert episode.stop == stop
    sample = Sample("Where is Lima?", text, "Peru", group="g", response_tokens=episode.model_tokens)
    assert qa_em(sample).value == exact
    assert qa_em_format(sample).value == pytest.approx(with_format)
