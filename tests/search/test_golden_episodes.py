"""Each way in which an episode can go: its text, who wrote each token, why it ended, its rewards.

The same episodes go through verl, with their groups, in ``tests/verl/test_golden_rows.py``.
"""

import asyncio
import json
from pathlib import Path

import pytest

from zerowait.scorers.qa_em import qa_em
from zerowait.scorers.qa_em_format import qa_em_format
from zerowait.search import Failed, Passage, Searcher, SearchSettings, Turn
from zerowait.types import Sample

GOLDEN = json.loads((Path(__file__).parent / "golden_episodes.json").read_text())


class Characters:
    def encode(self, text):
        return [ord(c) for c in text]

    def decode(self, tokens):
        return "".join(map(chr, tokens))


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
    golden = GOLDEN[name]
    found = Failed("refused") if golden["found"] is None else [Passage(golden["found"])]
    episode = play(golden["turns"], found, golden["settings"])
    text = "".join(part for part, _ in golden["parts"])
    assert episode.response == Characters().encode(text)
    assert episode.mask == [bit for part, bit in golden["parts"] for _ in part]
    assert episode.stop == golden["stop"]
    sample = Sample("Where is Lima?", text, "Peru", response_tokens=episode.model_tokens)
    assert qa_em(sample).value == golden["qa_em"]
    assert qa_em_format(sample).value == pytest.approx(golden["qa_em_format"])
