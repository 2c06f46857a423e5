"""The episode loop of a search agent: turn, observation, turn, until there is an answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from zerowait.errors import ConfigError
from zerowait.search.actions import Action, action_in, cut, kept_tokens, queries_in
from zerowait.search.episode import Author, Episode, Segment, StopReason
from zerowait.search.observation import Tokens, plain_tokens
from zerowait.search.passages import INVALID, Failed, Passage, observation_text
from zerowait.search.settings import SearchSettings


class Turn(msgspec.Struct, frozen=True):
    """One sampled turn.

    Args:
        tokens: as the rollout engine sampled them.
        log_probs: one for each token; None where the engine gives none.
        aborted: whether the engine aborted the turn.
    """

    tokens: Sequence[int]
    log_probs: Sequence[float] | None = None
    aborted: bool = False


Generate = Callable[[Sequence[int], int], Awaitable[Turn]]
"""Samples the next turn after the given tokens, with at most so many tokens."""

Retrieve = Callable[[Sequence[str]], Awaitable[Sequence[Sequence[Passage] | Failed]]]
"""The passages for each query, or why the search failed; raises no exception of its own."""


class Searcher:
    """Runs episodes; it has no state between them, so that many may run at once.

    Args:
        settings: limits of turns, searches and tokens, and the markers of observations.
        generate: samples a turn of the model.
        retrieve: searches for passages.
        tokens: the policy's tokenizer.
        end_ids: the tokens that end a message. At the end of a turn that is not the last they are
            dropped, like the tokens behind a closing tag.
        control: tokens that an observation must not contain, each with its text.

    Raises:
        ConfigError: the markers alone are longer than an observation may be.
    """

    def __init__(
        self,
        settings: SearchSettings,
        *,
        generate: Generate,
        retrieve: Retrieve,
        tokens: Tokens,
        end_ids: frozenset[int] = frozenset(),
        control: Mapping[int, str] | None = None,
    ) -> None:
        self._settings = settings
        self._generate = generate
        self._retrieve = retrieve
        self._tokens = tokens
        self._end_ids = end_ids
        self._start = tuple(tokens.encode(f"\n\n{settings.start_marker}"))
        self._end = tuple(tokens.encode(f"{settings.end_marker}\n\n"))
        self._control = frozenset(control or {})
        self._markers = (settings.start_marker, settings.end_marker)
        self._reserved = (*self._markers, *(control or {}).values())
        around = len(self._start) + len(self._end)
        if around >= settings.max_obs_length:
            raise ConfigError(
                f"search.max_obs_length is {settings.max_obs_length}, and the markers alone take "
                f"{around} tokens: make it larger"
            )

    async def episode(self, prompt: Sequence[int], *, room: int) -> Episode:
        """The episode that follows `prompt`.

        Args:
            prompt: the tokens of the question in its chat template.
            room: maximal tokens of the whole response, observations included; at least 1.
        """
        state = _EpisodeState(tuple(prompt), room)
        searching = self._settings.max_turns if self._settings.do_search else 0
        for _ in range(searching):
            action, stop = await self._turn(state, last=False)
            stop = stop or await self._observe(state, action)
            if stop is not None:
                return state.finish(stop)
        _, stop = await self._turn(state, last=True)
        return state.finish(stop or StopReason.TURN_LIMIT)

    async def _turn(self, state: _EpisodeState, *, last: bool) -> tuple[Action, StopReason | None]:
        """Sample the next turn; its action, and the stop reason if the episode ends with it."""
        most = min(self._settings.max_turn_length, state.left)
        sampled = await self._generate(state.context, most)
        count = kept_tokens(sampled.tokens, self._tokens.decode)
        action = action_in(cut(self._tokens.decode(sampled.tokens[:count])))
        continues = not (last or action.kind == "answer" or sampled.aborted)
        if continues:
            count = self._without_end_tokens(sampled.tokens, count)
        turn = self._segment(sampled, count)
        state.add(turn)
        state.forged += any(marker in turn.text for marker in self._markers)
        if action.kind == "answer":
            state.answer = action.text
            return action, StopReason.ANSWERED
        if sampled.aborted:
            return action, StopReason.ABORTED
        return action, None if state.left else StopReason.OUT_OF_TOKENS

    async def _observe(self, state: _EpisodeState, action: Action) -> StopReason | None:
        """Append the observation after an action; the stop reason if no tokens are left."""
        most = min(self._settings.max_obs_length, state.left)
        if action.kind == "search":
            room = most - len(self._start) - len(self._end)
            if room < 1:
                return StopReason.OUT_OF_TOKENS
            found = self._plain_tokens(await self._search(state, action), room)
            tokens = (*self._start, *found, *self._end)
        else:
            state.invalid_actions += 1
            tokens = tuple(self._tokens.encode(INVALID)[:most])
        text = self._tokens.decode(tokens)
        state.add(Segment(Author.ENVIRONMENT, tokens, text=text))
        return None if state.left else StopReason.OUT_OF_TOKENS

    async def _search(self, state: _EpisodeState, action: Action) -> str:
        queries = queries_in(action.text, self._settings.queries_per_search)
        results = await self._retrieve(queries)
        state.searches += 1
        whys = [result.why for result in results if isinstance(result, Failed)]
        state.failed_searches += bool(whys)
        state.failures |= dict.fromkeys(whys)
        return observation_text(queries, results, reserved=self._reserved)

    def _plain_tokens(self, text: str, most: int) -> tuple[int, ...]:
        return plain_tokens(
            text, self._tokens, most=most, reserved=self._reserved, control=self._control
        )

    def _without_end_tokens(self, tokens: Sequence[int], count: int) -> int:
        while count and tokens[count - 1] in self._end_ids:
            count -= 1
        return count

    def _segment(self, turn: Turn, count: int) -> Segment:
        tokens = tuple(turn.tokens[:count])
        log_probs = () if turn.log_probs is None else tuple(turn.log_probs[:count])
        return Segment(Author.MODEL, tokens, log_probs, self._tokens.decode(tokens))


class _EpisodeState:
    """Mutable state of a running episode."""

    def __init__(self, prompt: tuple[int, ...], room: int) -> None:
        self._prompt = prompt
        self._segments: list[Segment] = []
        self.context: list[int] = list(prompt)
        self.left = room
        self.answer: str | None = None
        self.searches = 0
        self.failed_searches = 0
        self.invalid_actions = 0
        self.forged = 0
        self.failures: dict[str, None] = {}

    def add(self, segment: Segment) -> None:
        self._segments.append(segment)
        self.context.extend(segment.tokens)
        self.left -= len(segment.tokens)

    def finish(self, stop: StopReason) -> Episode:
        return Episode(
            prompt=self._prompt,
            segments=tuple(self._segments),
            stop=stop,
            answer=self.answer,
            searches=self.searches,
            failed_searches=self.failed_searches,
            invalid_actions=self.invalid_actions,
            forged=self.forged,
            failures=tuple(self.failures),
        )
