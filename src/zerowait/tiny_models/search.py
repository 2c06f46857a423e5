"""A policy that may look things up, and a world in which it has to: to train in a minute or two.

Everybody keeps an animal, which only the corpus knows: the questions do not tell, and the lessons
make the animals up. The policy was taught, for some seconds, to guess or to search, at random, and
to answer with what it has read. A rule that reads ``<answer>`` gives a guess one point in eight
and a search nearly all, so what there is to learn from rewards is to search.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from zerowait.search import Episode, Passage, Searcher, SearchSettings, Turn
from zerowait.search.documents import Document
from zerowait.search.passages import FAILED, INVALID, observation_text
from zerowait.tiny_models.policy import (
    Lesson,
    Tiny,
    prompt_tokens,
    question_row,
    save_tiny,
    taught_policy,
    tokenizer_for,
)
from zerowait.verl.agent.policy_tokens import PolicyTokens

# fmt: off
NAMES = ("Ada", "Bela", "Cleo", "Dora", "Egon", "Fina", "Gus", "Hedda", "Ivo", "Jana", "Kurt",
         "Lea", "Milo", "Nora", "Olaf", "Pia", "Quinn", "Rosa", "Sven", "Tilda")
ANIMALS = ("badger", "crow", "donkey", "ferret", "goose", "lizard", "otter", "parrot")
# fmt: on
LOOKUP_SOURCE = "tiny/keepers"
HELD_OUT = 6
SETTINGS = SearchSettings(max_turns=1, max_turn_length=16, max_obs_length=64)
"""How an episode goes in this world; retriever.topk is 1."""

_VOCABULARY = 512
_LESSONS = 400
_Form: TypeAlias = Literal["guess", "search", "told"]
_FORMS: dict[_Form, int] = {"guess": 6, "search": 2, "told": 16}
"""Episodes of a batch. One in four searches of its own accord; in the others that do, the choice is
not taught, only what follows it."""


class TinySearch(msgspec.Struct, frozen=True):
    """Where the pieces are: policy and questions, and the corpus to be indexed."""

    policy: Tiny
    corpus: str


def question(name: str) -> str:
    """What is asked about a keeper.

    >>> question("Ada")
    'Which animal does Ada keep?'
    """
    return f"Which animal does {name} keep?"


def document(name: str, animal: str) -> Document:
    """The one document about a keeper."""
    return Document(name, f"{name} keeps a {animal}.")


def make_tiny_search(folder: str | Path, *, rows: int = 256, seed: int = 0) -> TinySearch:
    """A policy that guesses more often than it searches, with its world, in `folder`.

    Takes about ten seconds, most of it teaching. No keeper of the validation file is in the
    training file.

    Args:
        folder: is made; what is in it under the same names is replaced.
        rows: of the training file; the validation file has each held-out keeper once.
        seed: of the animals, the rows' order, the weights and the lessons.
    """
    draw = random.Random(seed)
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    keeps = {name: draw.choice(ANIMALS) for name in NAMES}
    corpus = home / "corpus.jsonl"
    documents = [document(name, animal).contents for name, animal in keeps.items()]
    lines = [json.dumps({"id": str(n), "contents": text}) for n, text in enumerate(documents)]
    corpus.write_text("\n".join(lines) + "\n")
    held_out, known = NAMES[-HELD_OUT:], NAMES[:-HELD_OUT]
    tokenizer = search_tokenizer()
    model = taught_policy(tokenizer, _lessons(tokenizer, draw), seed=seed, spread=0.1)
    policy = save_tiny(
        home,
        model,
        tokenizer,
        train=_rows([draw.choice(known) for _ in range(rows)], keeps),
        validation=_rows(held_out, keeps),
    )
    return TinySearch(policy=policy, corpus=str(corpus))


def search_tokenizer() -> Any:
    """The policy's tokenizer: each name and each animal is one token."""
    texts = [INVALID, FAILED, "<information></information>\n\n"]
    for number, name in enumerate(NAMES):
        animal = ANIMALS[number % len(ANIMALS)]
        texts += [question(name), f"<search>{name}</search>", f"<answer>{animal}</answer>"]
        texts += [observation_text([name], [[_passage(name, animal)]])] * 2
    return tokenizer_for(texts, vocabulary=_VOCABULARY)


def _rows(names: Sequence[str], keeps: dict[str, str]) -> list[dict[str, Any]]:
    return [
        question_row(question(name), keeps[name], index=index, source=LOOKUP_SOURCE)
        for index, name in enumerate(names)
    ]


def _passage(name: str, animal: str) -> Passage:
    return Passage(document(name, animal).contents)


def _lessons(tokenizer: Any, draw: random.Random) -> Iterator[list[Lesson]]:
    """Episodes with made-up animals; the name in a search and the animal that was read matter."""
    for _ in range(_LESSONS):
        yield asyncio.run(_batch(tokenizer, draw))


async def _batch(tokenizer: Any, draw: random.Random) -> list[Lesson]:
    return [
        await _lesson(tokenizer, draw.choice(NAMES), draw.choice(ANIMALS), form=form)
        for form, count in _FORMS.items()
        for _ in range(count)
    ]


async def _lesson(tokenizer: Any, name: str, animal: str, *, form: _Form) -> Lesson:
    searches = form != "guess"
    turns = [f"<search>{name}</search>"] * searches + [f"<answer>{animal}</answer>"]
    episode = await _episode(tokenizer, question(name), turns, found=_passage(name, animal))
    start = len(episode.prompt)
    tokens = (*episode.prompt, *episode.response)
    choice = start + 1  # behind the <: whether to search
    taught = tuple(
        start + place
        for place, written in enumerate(episode.mask)
        if written and not (form == "told" and start + place == choice)
    )
    words = {PolicyTokens(tokenizer).encode(word)[0] for word in (name, animal)}
    crux = tuple(place for place in taught if searches and tokens[place] in words)
    return Lesson(tokens, taught, crux)


async def _episode(tokenizer: Any, asked: str, turns: Sequence[str], *, found: Passage) -> Episode:
    """The episode in which the model writes `turns`: tokens come just as they will in training."""
    tokens = PolicyTokens(tokenizer)
    left = iter(turns)

    async def generate(_context: Sequence[int], _most: int) -> Turn:
        return Turn(tokens.encode(next(left)))

    async def retrieve(_queries: Sequence[str]) -> list[list[Passage]]:
        return [[found]]

    searcher = Searcher(SETTINGS, generate=generate, retrieve=retrieve, tokens=tokens)
    return await searcher.episode(prompt_tokens(tokenizer, asked), room=256)
