"""Reward functions in verl's two conventions: one response, or lists of them.

What they ask is in the environment, or in a ``reward.yaml`` that they are given. Importing this
module checks the environment, because a trainer does so when it starts and not with its first
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
from zerowait.verl.batch.data import logged
from zerowait.verl.batch.environment import VARIABLES, reward_in
from zerowait.verl.batch.opened import LazyRewards
from zerowait.verl.process_role import in_reward_worker
from zerowait.verl.rewards.rows import WHOLE, plain_values
from zerowait.verl.rewards.streaming_rules import refuse_without_number

ScoredRow: TypeAlias = dict[str, Any]
_DEADLINE_S: Final = 300.0
_OPENED: Final[dict[bytes, LazyRewards]] = {}
"""One for each configuration that this process was asked for."""


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
    """What a response is worth, or, for lists, what each of them is.

    A row is a mapping with the same keys whatever happened: ``score`` (None where a judgement was
    not reached and `on_failure` makes no number of that), ``abstained`` (1 then), why, and each
    component with what it measured.

    Args:
        solution_str: one response.
        ground_truth: what its rule compares it with.
        data_source: selects its rule.
        extra_info: further columns; ``prompt`` or ``question`` in it is shown to judges.
        solution_strs: many responses, instead; further lists belong to it.
        ground_truths: as `ground_truth`, one for each.
        data_sources: as `data_source`, one for each.
        extra_infos: as `extra_info`, one for each.
        config: a ``reward.yaml`` or what it holds; None: what the environment says (see
            ``docs/how-to/batches.md``).
        on_failure: the failure policy, where the environment says the rest; None is ``neutral``.

    Raises:
        ConfigError: the configuration is wrong, or compares the responses of a group; or verl's
            own reward managers ask, and a failure would leave a row without a number.
        DataError: the lists are not of one length, are no lists, or come with an argument of the
            other convention; `extra_info` is no mapping; or there is no response.
        JudgementError: a judgement failed and its policy is ``raise``.

    >>> compute_score("#### 4", "4", "openai/gsm8k", {})["score"]
    1.0
    """
    opened = _opened(config, on_failure)
    if solution_strs is not None:
        _refuse_mixture(solution_str, ground_truth, data_source, extra_info)
        samples = _listed(solution_strs, ground_truths, data_sources, extra_infos)
        return [_row(reward) for reward in opened.score(samples)]
    return _row(opened.one(_sample(solution_str, ground_truth, data_source, extra_info)))


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
    """The same as `compute_score`, awaited: verl's own managers then wait for many at a time."""
    opened = _opened(config, on_failure)
    if solution_strs is not None:
        _refuse_mixture(solution_str, ground_truth, data_source, extra_info)
        samples = _listed(solution_strs, ground_truths, data_sources, extra_infos)
        rewards = await asyncio.wrap_future(opened.submit_all(samples))
        return [_row(reward) for reward in rewards]
    sample = _sample(solution_str, ground_truth, data_source, extra_info)
    return _row(await asyncio.wrap_future(opened.open().submit(sample)))


def _opened(config: str | Mapping[str, Any] | None, on_failure: Any) -> LazyRewards:
    """Thousands of calls share what the first of them opened."""
    if config is not None and on_failure is not None:
        raise ConfigError("on_failure belongs into config, where there is one")
    environ = _environment()
    told = msgspec.json.encode(plain_values([config, on_failure, environ]), order="deterministic")
    key = hashlib.sha256(told).digest()  # it may hold an API key, and lives as long as the process
    found = _OPENED.get(key)
    if found is not None:
        return found
    given = config
    if given is None:
        given = reward_in(environ, on_failure="neutral" if on_failure is None else on_failure)
    if in_reward_worker():
        refuse_without_number(load_config(given))
    return _OPENED.setdefault(key, _prepared(given))


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in VARIABLES if name in os.environ}


def _prepared(given: str | Mapping[str, Any]) -> LazyRewards:
    opened = LazyRewards(given, deadline_s=_DEADLINE_S)
    if opened.plan.waits_for_siblings:
        raise ConfigError(
            f"the component {opened.plan.waits_for_siblings!r} compares the responses of a group, "
            "and compute_score is not told which belong together: use the reward manager zerowait, "
            "or LengthPenaltyRewardManager"
        )
    return opened


def _refuse_mixture(response: Any, gold: Any, source: Any, extra: Any) -> None:
    """Raises where lists come with what belongs to one response, which none of them would get."""
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
    told = plain_values({} if extra is None else extra)
    if not isinstance(told, dict):
        raise DataError(f"extra_info has to be a mapping or None, not {type(told).__name__}")
    if in_reward_worker():
        _refuse_turns_of_others(told)
    prompt = told.get("prompt") or told.get("question") or ""
    return Sample(prompt, response, plain_values(gold), str(source or ""), extra=told)


def _refuse_turns_of_others(extra: Mapping[str, Any]) -> None:
    """Raises where verl's own manager decoded what tools wrote as if it were the model's."""
    turns = extra.get("num_turns")
    if turns is not None and int(turns) > 2 and not extra.get(WHOLE):
        raise DataError(
            f"a response has {int(turns)} turns, and verl's own reward managers do not say which "
            "of its text the model wrote: what a tool wrote would be rewarded. Write "
            "reward.reward_manager.name=zerowait, which judges the model's own text"
        )


def _row(reward: Reward) -> ScoredRow:
    if (
        reward.value is None and in_reward_worker()
    ):  # a sum that no float holds, whatever was chosen
        raise JudgementError(f"{reward.why}; verl's own reward managers need a number")
    told = logged(reward)
    return {"score": told.pop("judged_reward"), **told}


_prepared(reward_in(_environment(), on_failure="neutral"))
