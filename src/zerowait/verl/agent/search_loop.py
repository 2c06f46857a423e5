"""verl's agent loop ``search``: runs episodes of `zerowait.search` as verl trajectories.

Selected with ``actor_rollout_ref.rollout.agent.default_agent_loop=search`` and configured with a
section of its own (see `zerowait.search.SearchSettings`)::

    +search.max_turns=2
    +search.retriever.url=http://127.0.0.1:8000/retrieve

The markers may also be set with Search-R1's keys,
``+algorithm.state_masking.start_state_marker`` and ``end_state_marker``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)

from zerowait.errors import ConfigError
from zerowait.search import (
    STOP_TEXTS,
    Episode,
    Retriever,
    RetrieverSettings,
    Searcher,
    SearchSettings,
    Turn,
    settings_from,
)
from zerowait.verl.agent.manager import with_reward_on_model_token
from zerowait.verl.agent.turn_metadata import TurnMetadata, was_aborted
from zerowait.verl.policy_tokens import PolicyTokens, control_tokens, message_ends
from zerowait.verl.rows import EPISODE, MODEL_TOKENS, WHOLE

_MARKERS = {"start_state_marker": "start_marker", "end_state_marker": "end_marker"}

# verl creates an agent loop for every trajectory; the retriever's client is shared by all that run
# on one event loop.
_RETRIEVERS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[RetrieverSettings, Retriever]] = (
    WeakKeyDictionary()
)


def search_settings(config: Any) -> SearchSettings:
    """The search settings in verl's whole configuration.

    Raises:
        ConfigError: a key is unknown, a value is invalid, or a marker is set twice.
    """
    given = dict(_plain(OmegaConf.select(config, "search")))
    masking = _plain(OmegaConf.select(config, "algorithm.state_masking"))
    for key, name in _MARKERS.items():
        if key not in masking:
            continue
        if given.get(name, masking[key]) != masking[key]:
            raise ConfigError(
                f"search.{name} and algorithm.state_masking.{key} say different things: set one"
            )
        given[name] = masking[key]
    return settings_from(given)


def episode_summary(episode: Episode) -> dict[str, Any]:
    """The summary of an episode in plain values, which scorers find under ``extra["episode"]``.

    ``authors`` lists the authors of the response's tokens in order: ``[["model", 12],
    ["environment", 40], ...]``. ``failures`` lists the reasons for failed searches, each once.
    """
    return {
        "turns": sum(1 for _ in episode.turns()),
        "searches": episode.searches,
        "failed_searches": episode.failed_searches,
        "invalid_actions": episode.invalid_actions,
        "forged": episode.forged,
        "failures": list(episode.failures),
        "stop": episode.stop.value,
        "authors": [[part.author.value, len(part.tokens)] for part in episode.segments],
    }


class SearchAgentLoop(AgentLoopBase):
    """One trajectory in which the model thinks, searches and answers.

    Tokens of the environment have mask 0 and log-probability 0.0. ``extra_fields`` holds the number
    of tokens that the model wrote, for length penalties, and the summary of the episode, for the
    sample that is scored.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._settings = search_settings(self.config)
        self._spent_s = {"generate": 0.0, "search": 0.0}

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """Run the trajectory for one row of the data.

        Args:
            sampling_params: verl's, passed to the rollout engine.
            **kwargs: the row's columns; ``raw_prompt`` is the list of chat messages.
        """
        prompt = await self.ct_build_initial_tokens(list(kwargs["raw_prompt"]))
        request_id = uuid4().hex
        metadata = TurnMetadata()

        async def generate(context: Sequence[int], most: int) -> Turn:
            began = time.monotonic()
            output = await self.server_manager.generate(
                request_id=request_id,
                prompt_ids=list(context),
                sampling_params={**sampling_params, **self._stop(), "max_tokens": most},
            )
            self._spent_s["generate"] += time.monotonic() - began
            metadata.add(output)
            return Turn(output.token_ids, output.log_probs or None, was_aborted(output))

        episode = await self._searcher(generate).episode(
            prompt, room=self.rollout_config.response_length
        )
        return self._output(episode, metadata)

    def _searcher(self, generate: Any) -> Searcher:
        return Searcher(
            self._settings,
            generate=generate,
            retrieve=self._retrieve,
            tokens=PolicyTokens(self.tokenizer),
            end_ids=message_ends(self.tokenizer),
            control=control_tokens(self.tokenizer),
        )

    async def _retrieve(self, queries: Sequence[str]) -> Any:
        began = time.monotonic()
        try:
            return await _retriever(self._settings.retriever).find(queries)
        finally:
            self._spent_s["search"] += time.monotonic() - began

    def _stop(self) -> dict[str, Any]:
        """Sampling parameters that make the engine stop after a closing tag and keep the tag."""
        kept = (
            "no_stop_trim" if self.rollout_config.name == "sglang" else "include_stop_str_in_output"
        )
        return {"stop": list(STOP_TEXTS), kept: True}

    def _output(self, episode: Episode, metadata: TurnMetadata) -> AgentLoopOutput:
        output = AgentLoopOutput(
            prompt_ids=list(episode.prompt),
            response_ids=episode.response,
            response_mask=episode.mask,
            response_logprobs=episode.log_probs,
            routed_experts=_up_to(metadata.routed_experts, episode),
            num_turns=1 + len(episode.segments),
            metrics=AgentLoopMetrics(
                generate_sequences=self._spent_s["generate"],
                tool_calls=self._spent_s["search"],
                num_preempted=metadata.num_preempted,
            ),
            extra_fields={
                **metadata.fields,
                MODEL_TOKENS: episode.model_tokens,
                EPISODE: episode_summary(episode),
                WHOLE: True,  # retrieved text cannot contain tags or control tokens
                # keys that verl's own loops always have
                "turn_scores": [],
                "tool_rewards": [],
            },
        )
        return with_reward_on_model_token(output)


def _up_to(routed_experts: Any, episode: Episode) -> Any:
    """The routed experts without those of tokens after a closing tag, which are dropped."""
    if routed_experts is None:
        return None
    return routed_experts[: len(episode.prompt) + len(episode.response)]


def _retriever(settings: RetrieverSettings) -> Retriever:
    """The running event loop's client for these settings."""
    shared = _RETRIEVERS.setdefault(asyncio.get_running_loop(), {})
    if settings not in shared:
        shared[settings] = Retriever(settings)
    return shared[settings]


def _plain(section: Any) -> Mapping[str, Any]:
    if section is None:
        return {}
    plain = OmegaConf.to_container(section, resolve=True)
    if not isinstance(plain, dict):
        raise ConfigError("search has to be a section of settings")
    return {str(key): value for key, value in plain.items()}
