"""A training recipe: model, data, rollout, algorithm, reward and resources in one YAML."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from zerowait.config import FailurePolicy, RewardConfig, Source, build, read_config, read_yaml
from zerowait.errors import ConfigError
from zerowait.search import SearchSettings
from zerowait.types import POLICY_CAUSED
from zerowait.verl.modes import SEPARATE
from zerowait.verl.recipe_parts import (
    SEPARATE_ONLY,
    Algorithm,
    Data,
    Model,
    Resources,
    Rollout,
    Schedule,
    Trainer,
)

_NAME = re.compile(r"\w[^/\\\x00-\x1f\x7f]{0,59}")
_SEEDS = 2**32  # numpy takes no greater ones


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """A whole training recipe.

    Args:
        output: the run's folder; relative paths start where the command runs.
        search: rollouts are episodes of a search agent; None: single turns.
        verl: overrides of verl's own configuration, by their Hydra keys; they win.
    """

    name: str
    model: Model
    data: Data
    algorithm: Algorithm
    reward: RewardConfig
    reward_path: str
    output: str
    seed: int = 0
    rollout: Rollout = Rollout()
    trainer: Trainer = Trainer()
    resources: Resources = Resources()
    schedule: Schedule = Schedule()
    search: SearchSettings | None = None
    verl: dict[str, Any] = {}
    source: Source

    def path(self, text: str) -> Path:
        """A path of the recipe: relative ones start at the recipe's folder."""
        return (self.source.base / Path(text).expanduser()).resolve()


_PARTS: dict[str, type[msgspec.Struct]] = {
    "model": Model,
    "data": Data,
    "algorithm": Algorithm,
    "rollout": Rollout,
    "trainer": Trainer,
    "resources": Resources,
    "schedule": Schedule,
    "search": SearchSettings,
}
_NEEDED = ("model", "data", "algorithm", "reward")
_TOP = ["name", "seed", "output", *_PARTS, "reward", "verl"]


def load_recipe(path: Path, *, output: Path | None = None, seed: int | None = None) -> Recipe:
    """The recipe in `path`; `output` and `seed` replace what it says.

    Raises:
        ConfigError: names the file, the line, the key and the nearest right one.
    """
    source = read_yaml(path)
    tree = source.tree
    if not isinstance(tree, dict):
        source.fail((), f"a recipe is a mapping with the keys {', '.join(_NEEDED)}")
    for key in tree:
        if key not in _TOP:
            source.unknown_key((), key, _TOP)
    for key in _NEEDED:
        if key not in tree:
            source.fail((key,), "is missing")
    parts = {key: build(source, (key,), kind) for key, kind in _PARTS.items() if key in tree}
    _devices_fit_the_mode(source, parts)
    reward, reward_path = _reward(source, path)
    _every_policy_caused_failure_was_chosen(reward)
    name = _name(source, path)
    recipe: dict[str, Any] = {
        "name": name,
        "seed": _seed(source, seed),
        "output": str(Path(output or _text(source, "output", f"runs/{name}")).resolve()),
        "reward": reward,
        "reward_path": reward_path,
        "verl": _overrides(source),
        "source": source,
        **parts,
    }
    return Recipe(**recipe)


def _devices_fit_the_mode(source: Source, parts: dict[str, Any]) -> None:
    """Rollouts have devices of their own in some modes only, and share each step's prompts out."""
    trainer, resources = parts.get("trainer", Trainer()), parts.get("resources", Resources())
    given = [name for name in SEPARATE_ONLY if getattr(resources, name) is not None]
    given += ["weight_transfer"] if resources.weight_transfer != "auto" else []
    if given and not trainer.is_separate:
        source.fail(
            ("resources", given[0]),
            f"is read with trainer: {{mode: {SEPARATE[-1]}}} or {SEPARATE[0]} only, where rollouts "
            "have devices of their own",
        )
    updates, batch = trainer.updates_per_sync or 1, parts["data"].batch
    if batch % updates:
        source.fail(
            ("trainer", "updates_per_sync"),
            f"is {updates}, which does not divide data.batch: {batch} prompts of a step are shared "
            "out evenly among its updates",
        )


def _reward(source: Source, path: Path) -> tuple[RewardConfig, str]:
    reward = source.tree["reward"]
    if isinstance(reward, dict):
        return read_config(source, ("reward",)), f"{path.resolve()}#reward"
    if not isinstance(reward, str):
        source.fail(("reward",), "must be the path of a reward.yaml, or what such a file holds")
    file = (source.base / Path(reward).expanduser()).resolve()
    return read_config(read_yaml(file)), str(file)


def _every_policy_caused_failure_was_chosen(reward: RewardConfig) -> None:
    """A policy that can escape its judge at no cost will learn to: the recipe has to choose."""
    judged = [name for name, part in reward.components.items() if hasattr(part, "judge")]
    for name in judged:
        own = reward.on_failure.components.get(name, FailurePolicy())
        for level in (own, reward.on_failure):
            if level.default is not None:
                break
        else:
            chosen = own.kinds.keys() | reward.on_failure.kinds.keys()
            silent = sorted(kind.value for kind in POLICY_CAUSED - chosen)
            if silent:
                reward.fail(
                    ("on_failure",),
                    f"does not say what {', '.join(silent)} of {name!r} are worth: the trained "
                    "model can cause them with its own text. Say `on_failure: neutral`, or give "
                    "each kind neutral, raise or {value: x}",
                )


def _name(source: Source, path: Path) -> str:
    """What the run and its folder are called; a name is one folder, never a way out of it."""
    folder = path.resolve().parent.name or "run"
    name = _text(source, "name", path.stem if path.stem != "recipe" else folder)
    if not _NAME.fullmatch(name):
        source.fail(
            ("name",),
            f"is {name[:60]!r}, and has to be the name of one folder: a letter or digit first, no "
            "slash, at most 60 characters; `output` may be any path",
        )
    return name


def _text(source: Source, key: str, default: str) -> str:
    value = source.tree.get(key, default)
    if not isinstance(value, str) or not value:
        source.fail((key,), f"must be text, not {value!r}")
    return value


def _seed(source: Source, given: int | None) -> int:
    value = source.tree.get("seed", 0) if given is None else given
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _SEEDS:
        problem = f"must be a whole number from 0 to {_SEEDS - 1}, not {value!r}"
        if given is not None:
            raise ConfigError(f"--seed {given}: {problem}")
        source.fail(("seed",), problem)
    return value


def _overrides(source: Source) -> dict[str, Any]:
    tree = source.tree.get("verl") or {}
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        source.fail(("verl",), "must be a mapping of verl's Hydra keys to values")
    return dict(tree)


def parse_override(text: str) -> tuple[str, str]:
    """A ``key=value`` from the command line, the value as Hydra reads it.

    Raises:
        ConfigError: there is no ``=``.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"{text!r}: an override of verl's configuration is key=value")
    return key, value
