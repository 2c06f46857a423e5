"""Check a user's own command line for ``verl.trainer.main_ppo`` (``zerowait doctor verl``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from zerowait.errors import ConfigError, DataError
from zerowait.verl.batch_sizes import unfit_size
from zerowait.verl.launch.composed_config import check_overrides, compose_config
from zerowait.verl.launch.data_columns import check_data_file
from zerowait.verl.launch.hydra_syntax import plain_key
from zerowait.verl.launch.ignored_keys import examine
from zerowait.verl.launch.overrides import DATASET
from zerowait.verl.launch.recipe import parse_override
from zerowait.verl.policy_losses import unfit_loss

_MANAGER: Final = "reward.reward_manager.name"
_CLASS: Final = "RewardDataset"


def command_problems(overrides: Sequence[str]) -> list[str]:
    """The problems of a training with these overrides, one line each; [] without overrides.

    Raises:
        ConfigError: an override is not key=value.
    """
    if not overrides:
        return []
    given = dict(parse_override(text) for text in overrides)
    found = [str(finding) for finding in examine(given)]
    given_keys = {plain_key(key) for key in given}
    config, problems = _compose_valid(overrides)
    found += problems
    if config is None:
        return found
    return [
        *found,
        *_number_problems(config, given_keys),
        *_missing_keys(config, given_keys),
        *_input_problems(config, given_keys),
    ]


def _compose_valid(overrides: Sequence[str]) -> tuple[Any, list[str]]:
    """The configuration composed from the valid overrides, and the problems of the others."""
    whole = _refusal(overrides)
    if whole is None:
        return compose_config(overrides), []
    why = {text: problem for text in overrides if (problem := _refusal([text])) is not None}
    rest = [text for text in overrides if text not in why]
    if _refusal(rest) is not None:  # they contradict each other
        return None, [*why.values(), whole]
    return compose_config(rest), list(why.values())


def _refusal(overrides: Sequence[str]) -> str | None:
    given = dict(parse_override(text) for text in overrides)
    return _problem(partial(check_overrides, overrides, given))


def _number_problems(config: Any, given_keys: set[str]) -> Iterator[str]:
    """Numbers on which verl would stop, where the command line gives them or what needs them."""
    unfit = unfit_size(config)
    if unfit is not None and unfit[0] in given_keys:
        yield " ".join(unfit)
    unfit = unfit_loss(config)
    if unfit is not None:
        yield " ".join(unfit)


def _missing_keys(config: Any, given_keys: set[str]) -> Iterator[str]:
    """Missing keys without which verl does not call zerowait."""
    if _MANAGER not in given_keys:
        yield (
            f"{_MANAGER} is not set, so that verl's own manager "
            f"{config.reward.reward_manager.name} scores: write {_MANAGER}=zerowait"
        )
    own = config.data.custom_cls
    if own.path is None:
        yield (
            "data.custom_cls.path is not set, so that rewards are not told the split and group of "
            f"a row: write data.custom_cls.path={DATASET} data.custom_cls.name={_CLASS}"
        )
    elif own.path == DATASET and own.name != _CLASS:
        what = "not set" if own.name is None else f"{own.name}: {DATASET} has no such class"
        yield f"data.custom_cls.name is {what}; write data.custom_cls.name={_CLASS}"


def _input_problems(config: Any, given_keys: set[str]) -> Iterator[str]:
    """Problems of the reward configuration and the data files."""
    if config.reward.reward_manager.name == "zerowait" or _MANAGER not in given_keys:
        problem = _problem(partial(_check_reward, config))
        if problem is not None:
            yield problem
    for key in ("train_files", "val_files"):
        if f"data.{key}" in given_keys:
            yield from _file_problems(config.data[key], config.data.prompt_key)


def _check_reward(config: Any) -> None:
    from zerowait.verl.rewards.settings import settings_in
    from zerowait.verl.rewards.streaming_rules import check_rewards, check_streaming

    if config.reward.reward_manager.name == "zerowait":
        check_rewards(config)
    else:
        check_streaming(settings_in(config).config, config)


def _file_problems(files: Any, prompt_key: str) -> Iterator[str]:
    for name in [files] if isinstance(files, str) else files:
        path = Path(str(name)).expanduser()
        if "://" not in str(name):
            problem = _problem(partial(check_data_file, path, prompt_key=prompt_key))
            if problem is not None:
                yield problem


def _problem(check: Callable[[], object]) -> str | None:
    try:
        check()
    except (ConfigError, DataError) as error:
        return str(error)
    return None
