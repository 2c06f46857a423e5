"""verl's agent loop ``search``: episodes of `zerowait.search` as trajectories of verl.

Selected with ``actor_rollout_ref.rollout.agent.default_agent_loop=search`` and configured with a
section of its own (see `zerowait.search.SearchSettings`)::

    +search.max_turns=2
    +search.retriever.url=http://127.0.0.1:8000/retrieve

The markers may also be given where Search-R1 has them, as
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
from zerowait.verl.agent.policy_tokens import PolicyTokens, control_tokens, message_ends
from zerowait.verl.agent.turn_metadata import TurnMetadata, was_aborted
from zerowait.verl.rows import EPISODE, MODEL_TOKENS, WHOLE

_MARKERS = {"start_state_marker": "start_marker", "end_state_marker": "end_marker"}

# verl makes an agent loop anew for every trajectory; what they share belongs to the worker's loop
# and ends with its process.
_RETRIEVERS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[RetrieverSettings, Retriever]] = (
    WeakKeyDictionary()
)


def search_settings(config: Any) -> SearchSettings:
    """The settings in verl's whole configuration.

    Raises:
        ConfigError: a key is unknown, a value is not possible, or a marker is given twice.
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
    """How an episode went, in plain values: what a scorer finds under ``extra["episode"]``.

    ``authors`` says in order who wrote how many tokens of the response: ``[["model", 12],
    ["environment", 40], ...]``. ``failures`` says why searches failed, each reason once.
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
    """One trajectory: the model thinks, searches and answers; only its own tokens are trained on.

    What the environment wrote has mask 0 and log-probability 0.0. ``extra_fields`` says how many
    tokens the model wrote, so that length terms count no others, and how the episode went, which
    goes into the sample that is rewarded.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._settings = search_settings(self.config)
        self._spent_s = {"generate": 0.0, "search": 0.0}

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """The trajectory for one row of the data."""
        prompt = await self.ct_build_initial_tokens(list(kwargs["raw_prompt"]))
        request_id = uuid4().hex
        reports = TurnMetadata()

        async def generate(context: Sequence[int], most: int) -> Turn:
            began = time.monotonic()
            output = await self.server_manager.generate(
                request_id=request_id,
                prompt_ids=list(context),
                sampling_params={**sampling_params, **self._stop(), "max_tokens": most},
            )
            self._spent_s["generate"] += time.monotonic() - began
            reports.add(output)
            return Turn(output.token_ids, output.log_probs or None, was_aborted(output))

        episode = await self._searcher(generate).episode(
            prompt, room=self.rollout_config.response_length
        )
        return self._output(episode, reports)

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
        """How the engine is told to stop behind a closing tag, and to keep the tag's tokens."""
        kept = (
            "no_stop_trim" if self.rollout_config.name == "sglang" else "include_stop_str_in_output"
        )
        return {"stop": list(STOP_TEXTS), kept: True}

    def _output(self, episode: Episode, reports: TurnMetadata) -> AgentLoopOutput:
        output = AgentLoopOutput(
            prompt_ids=list(episode.prompt),
            response_ids=episode.response,
            response_mask=episode.mask,
            response_logprobs=episode.log_probs,
            routed_experts=_up_to(reports.routed_experts, episode),
            num_turns=1 + len(episode.segments),
            metrics=AgentLoopMetrics(
                generate_sequences=self._spent_s["generate"],
                tool_calls=self._spent_s["search"],
                num_preempted=reports.num_preempted,
            ),
            extra_fields={
                **reports.fields,
                MODEL_TOKENS: episode.model_tokens,
                EPISODE: episode_summary(episode),
                WHOLE: True,  # what was found cannot write tags or control tokens
                # what verl's own loops always have
                "turn_scores": [],
                "tool_rewards": [],
            },
        )
        return with_reward_on_model_token(output)


def _up_to(routed_experts: Any, episode: Episode) -> Any:
    """Without those of tokens behind a closing tag, which are not kept."""
    if routed_experts is None:
        return None
    return routed_experts[: len(episode.prompt) + len(episode.response)]


def _retriever(settings: RetrieverSettings) -> Retriever:
    """The running loop's client for these settings."""
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
