"""What happened when the model answered one question: tokens, each with its author."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec


class Author(StrEnum):
    """Who wrote a stretch of tokens: only the model's own are trained on."""

    MODEL = "model"
    ENVIRONMENT = "environment"


class StopReason(StrEnum):
    """Why an episode ended.

    ``answered``: with an answer. ``turn_limit``: the last turn brought none. ``out_of_tokens``: the
    response is as long as it may be. ``aborted``: the rollout engine ended the turn.
    """

    ANSWERED = "answered"
    TURN_LIMIT = "turn_limit"
    OUT_OF_TOKENS = "out_of_tokens"
    ABORTED = "aborted"


class Segment(msgspec.Struct, frozen=True):
    """A stretch of tokens by one author.

    Args:
        author: who wrote it.
        tokens: as sampled, or as an observation was encoded.
        log_probs: one for each token of the model; empty for the environment, and where the
            rollout engine gives none.
        text: what the tokens say.
    """

    author: Author
    tokens: tuple[int, ...]
    log_probs: tuple[float, ...] = ()
    text: str = ""

    def __post_init__(self) -> None:
        if self.log_probs and len(self.log_probs) != len(self.tokens):
            raise ValueError(
                f"{len(self.tokens)} tokens came with {len(self.log_probs)} log-probabilities"
            )
        if self.log_probs and self.author is Author.ENVIRONMENT:
            raise ValueError("the environment samples nothing: it has no log-probabilities")


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """One question's episode. Masks, counts and log-probabilities all follow from `segments`.

    Args:
        prompt: the tokens before the first turn.
        segments: turns of the model and what the environment wrote after them, in order.
        stop: why it ended.
        answer: what the model answered; None without an answer.
        searches: how often it searched.
        failed_searches: how many of those the retriever did not answer.
        invalid_actions: turns, before the last, in which it did neither.
        forged: turns in which it wrote one of the environment's markers itself.
        failures: why searches failed, each reason once.
    """

    prompt: tuple[int, ...]
    segments: tuple[Segment, ...]
    stop: StopReason
    answer: str | None = None
    searches: int = 0
    failed_searches: int = 0
    invalid_actions: int = 0
    forged: int = 0
    failures: tuple[str, ...] = ()

    @property
    def response(self) -> list[int]:
        """Every token after the prompt, in order."""
        return [token for segment in self.segments for token in segment.tokens]

    @property
    def mask(self) -> list[int]:
        """1 for each response token that the model wrote, 0 for the others."""
        return [int(s.author is Author.MODEL) for s in self.segments for _ in s.tokens]

    @property
    def log_probs(self) -> list[float] | None:
        """One for each response token, 0.0 for the environment's; None if a turn has none."""
        if any(not segment.log_probs and segment.tokens for segment in self.turns()):
            return None
        return [
            value for segment in self.segments for value in segment.log_probs or _zeros(segment)
        ]

    @property
    def model_tokens(self) -> int:
        """How many tokens the model wrote: what a length term may count."""
        return sum(len(segment.tokens) for segment in self.turns())

    @property
    def model_text(self) -> str:
        """What the model wrote, without what it was given."""
        return "".join(segment.text for segment in self.turns())

    def turns(self) -> Iterator[Segment]:
        """The model's own segments."""
        return (segment for segment in self.segments if segment.author is Author.MODEL)


def _zeros(segment: Segment) -> tuple[float, ...]:
    return (0.0,) * len(segment.tokens)
