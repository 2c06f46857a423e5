"""``compute_score`` in verl's two conventions: for one response, or for lists of responses.

The reward is configured by environment variables or by a ``reward.yaml``. Importing this module
checks the environment, so that a mistake is seen when the trainer starts and not at its first
batch.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from zerowait.config import load_config
from zerowait.errors import ConfigError, DataError, JudgementError
from zerowait.types import Reward, Sample
from zerowait.verl.batch.data_proto import logged
from zerowait.verl.batch.environment import VARIABLES, reward_in
from zerowait.verl.batch.lazy_rewards import LazyRewards
from zerowait.verl.process_role import in_reward_worker
from zerowait.verl.rewards.streaming_rules import refuse_without_number
from zerowait.verl.rows import WHOLE, plain_values

ScoredRow: TypeAlias = dict[str, Any]
_DEADLINE_S: Final = 300.0
_REWARDS: Final[dict[bytes, LazyRewards]] = {}
"""By hash of the configuration; shared by all calls in this process."""


def compute_score(  # noqa: PLR0913 - verl's two conventions
    solution_str: str | None = None,
    ground_truth: Any = None,
    data_source: str = "",
    extra_info: Mapping[str, Any] | None = None,
    *,
    solution_strs: Sequence[str] | None = None,
    ground_truths: Sequence[Any] | None = None,
    data_sources: Sequence[str] | None = None,
    extra_infos: Sequence[Mapping[str, Any]] | None = None,
    config: str | Mapping[str, Any] | None = None,
    on_failure: Any = None,
) -> ScoredRow | list[ScoredRow]:
    """The score of one response as a mapping, or a list of mappings for lists of responses.

    Every mapping has the same keys: ``score`` (None where a judgement failed and `on_failure` gives
    no number for it), ``abstained`` (1.0 then, else 0.0), ``abstained_why``, and each component
    with its metrics.

    Args:
        solution_str: one response.
        ground_truth: what its rule compares it with.
        data_source: selects the rule.
        extra_info: further columns; judges are shown its ``prompt`` or ``question``.
        solution_strs: many responses, in place of `solution_str`; the other lists go with it.
        ground_truths: as `ground_truth`, one for each.
        data_sources: as `data_source`, one for each.
        extra_infos: as `extra_info`, one for each.
        config: path of a ``reward.yaml``, or its content; None reads the environment variables (see
            ``docs/how-to/batches.md``).
        on_failure: the failure policy when `config` is None; None is ``neutral``.

    Raises:
        ConfigError: the configuration is wrong, or compares the responses of a group; or one of
            verl's own reward managers calls, and a failure would leave a row without a number.
        DataError: the lists are not of one length, are no lists, or come with an argument of the
            other convention; `extra_info` is no mapping; or there is no response.
        JudgementError: a judgement failed and its policy is ``raise``.

    >>> compute_score("#### 4", "4", "openai/gsm8k", {})["score"]
    1.0
    """
    rewards = _rewards_for(config, on_failure)
    if solution_strs is not None:
        _refuse_mixture(solution_str, ground_truth, data_source, extra_info)
        samples = _listed(solution_strs, ground_truths, data_sources, extra_infos)
        return [_row(reward) for reward in rewards.score(samples)]
    return _row(rewards.one(_sample(solution_str, ground_truth, data_source, extra_info)))


async def acompute_score(  # noqa: PLR0913 - verl's two conventions
    solution_str: str | None = None,
    ground_truth: Any = None,
    data_source: str = "",
    extra_info: Mapping[str, Any] | None = None,
    *,
    solution_strs: Sequence[str] | None = None,
    ground_truths: Sequence[Any] | None = None,
    data_sources: Sequence[str] | None = None,
    extra_infos: Sequence[Mapping[str, Any]] | None = None,
    config: str | Mapping[str, Any] | None = None,
    on_failure: Any = None,
) -> ScoredRow | list[ScoredRow]:
    """As `compute_score`, for callers with an event loop: verl then awaits many rows at a time."""
    rewards = _rewards_for(config, on_failure)
    if solution_strs is not None:
        _refuse_mixture(solution_str, ground_truth, data_source, extra_info)
        samples = _listed(solution_strs, ground_truths, data_sources, extra_infos)
        scored = await asyncio.wrap_future(rewards.submit_all(samples))
        return [_row(reward) for reward in scored]
    sample = _sample(solution_str, ground_truth, data_source, extra_info)
    return _row(await asyncio.wrap_future(rewards.open().submit(sample)))


def _rewards_for(config: str | Mapping[str, Any] | None, on_failure: Any) -> LazyRewards:
    """The rewards for this configuration, which all calls of this process share."""
    if config is not None and on_failure is not None:
        raise ConfigError("on_failure belongs into config, where there is one")
    environ = _environment()
    text = msgspec.json.encode(plain_values([config, on_failure, environ]), order="deterministic")
    # hashed, because the text may hold an API key and the dictionary lives as long as the process
    key = hashlib.sha256(text).digest()
    found = _REWARDS.get(key)
    if found is not None:
        return found
    given = config
    if given is None:
        given = reward_in(environ, on_failure="neutral" if on_failure is None else on_failure)
    if in_reward_worker():
        refuse_without_number(load_config(given))
    return _REWARDS.setdefault(key, _prepared(given))


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in VARIABLES if name in os.environ}


def _prepared(given: str | Mapping[str, Any]) -> LazyRewards:
    rewards = LazyRewards(given, deadline_s=_DEADLINE_S)
    if rewards.plan.waits_for_siblings:
        raise ConfigError(
            f"the component {rewards.plan.waits_for_siblings!r} compares the responses of a group, "
            "and compute_score is not told which belong together: use the reward manager zerowait, "
            "or LengthPenaltyRewardManager"
        )
    return rewards


def _refuse_mixture(response: Any, gold: Any, source: Any, extra: Any) -> None:
    """Raise a DataError for arguments of the one-response convention beside lists."""
    single = {
        "solution_str": response,
        "ground_truth": gold,
        "data_source": source or None,
        "extra_info": extra,
    }
    for name, value in single.items():
        if value is not None:
            raise DataError(
                f"{name} is for one response, and solution_strs is for many: give either the "
                "arguments without an s at their end, or those with one"
            )


def _listed(
    responses: Sequence[str],
    golds: Sequence[Any] | None,
    sources: Sequence[str] | None,
    extras: Sequence[Mapping[str, Any]] | None,
) -> list[Sample]:
    given = {"ground_truths": golds, "data_sources": sources, "extra_infos": extras}
    for name, column in {"solution_strs": responses, **given}.items():
        if isinstance(column, str | bytes | Mapping):  # has a length too, of something else
            raise DataError(f"{name} has to be a list, not {type(column).__name__}")
    count = len(responses)
    for name, column in given.items():
        if column is not None and len(column) != count:
            raise DataError(f"there are {len(column)} {name} for {count} solution_strs")
    nothing = [None] * count
    columns = (nothing if column is None else column for column in given.values())
    return [_sample(*row) for row in zip(responses, *columns, strict=True)]


def _sample(response: Any, gold: Any, source: Any, extra: Mapping[str, Any] | None) -> Sample:
    if response is None:
        raise DataError("there is no response: give solution_str, or solution_strs")
    columns = plain_values({} if extra is None else extra)
    if not isinstance(columns, dict):
        raise DataError(f"extra_info has to be a mapping or None, not {type(columns).__name__}")
    if in_reward_worker():
        _refuse_tool_text(columns)
    prompt = columns.get("prompt") or columns.get("question") or ""
    return Sample(prompt, response, plain_values(gold), str(source or ""), extra=columns)


def _refuse_tool_text(extra: Mapping[str, Any]) -> None:
    """Raise a DataError where verl's own manager passes tool output as if the model wrote it."""
    turns = extra.get("num_turns")
    if turns is not None and int(turns) > 2 and not extra.get(WHOLE):
        raise DataError(
            f"a response has {int(turns)} turns, and verl's own reward managers do not say which "
            "of its text the model wrote: what a tool wrote would be rewarded. Write "
            "reward.reward_manager.name=zerowait, which judges the model's own text"
        )


def _row(reward: Reward) -> ScoredRow:
    # no failure policy applies to a sum that is too large for a float
    if reward.value is None and in_reward_worker():
        raise JudgementError(f"{reward.why}; verl's own reward managers need a number")
    columns = logged(reward)
    return {"score": columns.pop("judged_reward"), **columns}


_prepared(reward_in(_environment(), on_failure="neutral"))
