"""Tiny search policy with questions that only its corpus answers: RL takes a minute or two.

Each keeper has an animal that only the corpus names; the supervised examples use random animals.
They make the policy guess or search at random, and answer with what it has read. A rule that reads
``<answer>`` scores a guess 1/8 on average and a search almost 1, so RL learns to search.
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
    SftExample,
    TinyFiles,
    prompt_tokens,
    question_row,
    save_tiny,
    tokenizer_for,
    train_policy,
)
from zerowait.verl.policy_tokens import PolicyTokens

# fmt: off
NAMES = ("Ada", "Bela", "Cleo", "Dora", "Egon", "Fina", "Gus", "Hedda", "Ivo", "Jana", "Kurt",
         "Lea", "Milo", "Nora", "Olaf", "Pia", "Quinn", "Rosa", "Sven", "Tilda")
ANIMALS = ("badger", "crow", "donkey", "ferret", "goose", "lizard", "otter", "parrot")
# fmt: on
LOOKUP_SOURCE = "tiny/keepers"
HELD_OUT = 6
SETTINGS = SearchSettings(max_turns=1, max_turn_length=16, max_obs_length=64)
"""The search settings of these questions; retriever.topk is 1."""

_VOCABULARY = 512
_BATCHES = 400
_Form: TypeAlias = Literal["guess", "search", "given"]
_FORMS: dict[_Form, int] = {"guess": 6, "search": 2, "given": 16}
"""Episodes in a batch, by form. Of those with a labelled choice, one in four searches; in ``given``
episodes the choice to search has no label, only what follows it."""


class SearchFiles(msgspec.Struct, frozen=True):
    """Paths of the policy with its data files, and of the corpus to be indexed."""

    policy: TinyFiles
    corpus: str


def question(name: str) -> str:
    """The question about a keeper.

    >>> question("Ada")
    'Which animal does Ada keep?'
    """
    return f"Which animal does {name} keep?"


def document(name: str, animal: str) -> Document:
    """The document about a keeper."""
    return Document(name, f"{name} keeps a {animal}.")


def make_search_policy(folder: str | Path, *, rows: int = 256, seed: int = 0) -> SearchFiles:
    """Make a policy that guesses more often than it searches, its data and corpus, in `folder`.

    Takes about ten seconds. No keeper is in both data files.

    Args:
        folder: is created; files of the same names are replaced.
        rows: number of rows in the training file; the validation file has each held-out keeper
            once.
        seed: of the animals, the rows' order, the weights and the supervised examples.
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
    model = train_policy(tokenizer, _examples(tokenizer, draw), seed=seed, spread=0.1)
    policy = save_tiny(
        home,
        model,
        tokenizer,
        train=_rows([draw.choice(known) for _ in range(rows)], keeps),
        validation=_rows(held_out, keeps),
    )
    return SearchFiles(policy=policy, corpus=str(corpus))


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


def _examples(tokenizer: Any, draw: random.Random) -> Iterator[list[SftExample]]:
    """Batches of episodes with random animals; searched names and read animals are decisive."""
    for _ in range(_BATCHES):
        yield asyncio.run(_batch(tokenizer, draw))


async def _batch(tokenizer: Any, draw: random.Random) -> list[SftExample]:
    return [
        await _example(tokenizer, draw.choice(NAMES), draw.choice(ANIMALS), form=form)
        for form, count in _FORMS.items()
        for _ in range(count)
    ]


async def _example(tokenizer: Any, name: str, animal: str, *, form: _Form) -> SftExample:
    searches = form != "guess"
    turns = [f"<search>{name}</search>"] * searches + [f"<answer>{animal}</answer>"]
    episode = await _episode(tokenizer, question(name), turns, found=_passage(name, animal))
    start = len(episode.prompt)
    tokens = (*episode.prompt, *episode.response)
    choice = start + 1  # the token after "<" decides whether to search
    labelled = tuple(
        start + position
        for position, written in enumerate(episode.mask)
        if written and not (form == "given" and start + position == choice)
    )
    words = {PolicyTokens(tokenizer).encode(word)[0] for word in (name, animal)}
    decisive = tuple(position for position in labelled if searches and tokens[position] in words)
    return SftExample(tokens, labelled, decisive)


async def _episode(tokenizer: Any, asked: str, turns: Sequence[str], *, found: Passage) -> Episode:
    """The episode in which the model writes `turns`, with the tokens that training will have."""
    tokens = PolicyTokens(tokenizer)
    left = iter(turns)

    async def generate(_context: Sequence[int], _most: int) -> Turn:
        return Turn(tokens.encode(next(left)))

    async def retrieve(_queries: Sequence[str]) -> list[list[Passage]]:
        return [[found]]

    searcher = Searcher(SETTINGS, generate=generate, retrieve=retrieve, tokens=tokens)
    return await searcher.episode(prompt_tokens(tokenizer, asked), room=256)
