"""An episode of a search agent: the tokens of one question's turns, each with its author."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec


class Author(StrEnum):
    """Author of a segment of tokens; only the model's own are trained on."""

    MODEL = "model"
    ENVIRONMENT = "environment"


class StopReason(StrEnum):
    """Why an episode ended.

    ``answered``: the model gave an answer. ``turn_limit``: the last turn had no answer.
    ``out_of_tokens``: the response has its maximal length. ``aborted``: the rollout engine aborted
    the turn.
    """

    ANSWERED = "answered"
    TURN_LIMIT = "turn_limit"
    OUT_OF_TOKENS = "out_of_tokens"
    ABORTED = "aborted"


class Segment(msgspec.Struct, frozen=True):
    """Consecutive tokens of one author.

    Args:
        author: the model or the environment.
        tokens: as sampled, or as an observation was encoded.
        log_probs: one for each token of the model; empty for the environment, and where the
            rollout engine gives none.
        text: the decoded tokens.
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
    """The episode of one question; masks, counts and log-probabilities derive from `segments`.

    Args:
        prompt: the tokens before the first turn.
        segments: turns of the model and the observations after them, in order.
        stop: why it ended.
        answer: of the model; None without one.
        searches: number of searches.
        failed_searches: searches in which the retriever failed.
        invalid_actions: turns before the last with neither a search nor an answer.
        forged: turns in which the model wrote a marker of the environment.
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
        """The number of tokens that the model wrote: the length that a length penalty may use."""
        return sum(len(segment.tokens) for segment in self.turns())

    def turns(self) -> Iterator[Segment]:
        """The model's own segments."""
        return (segment for segment in self.segments if segment.author is Author.MODEL)


def _zeros(segment: Segment) -> tuple[float, ...]:
    return (0.0,) * len(segment.tokens)
