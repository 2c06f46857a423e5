"""Compose verl's whole configuration and check its overrides before anything is started.

Hydra composes it from verl's YAML files and the overrides, which takes half a second and imports
neither verl nor torch nor Ray. Hydra only checks that keys exist; verl itself fails on a value of
the wrong type after minutes, where it is used. So types are compared here with those of verl's own
values, and names with the names that verl knows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from typing import Any, Final, NoReturn

from zerowait.errors import ConfigError, did_you_mean
from zerowait.verl.batch_sizes import PROMPTS_OF_UPDATE, RESPONSES_TO_PROMPT, unfit_size
from zerowait.verl.early_gradients import MODE, needs_one_update, wants_early_gradients
from zerowait.verl.launch.hydra_syntax import flattened, plain_key
from zerowait.verl.launch.recipe import Recipe
from zerowait.verl.launch.verl_names import (
    BOOL,
    CHOICES,
    COUNTS,
    FLOAT,
    FURTHER_KINDS,
    INT,
    LIST,
    LOGGERS,
    MAPPING,
    NOT_INSTANTIATED,
    NULL,
    REGISTRIES,
    TEXT,
    declared_choices,
    declared_fields,
    verl_folder,
)
from zerowait.verl.policy_losses import unfit_loss

_ROOT: Final = "ppo_trainer"
_MODEL: Final = "actor_rollout_ref.model"
_CRITIC_OF_VERL: Final = "~/models/deepseek-llm-7b-chat"
"""The default of critic.model.path in verl."""
_ADDED: Final = ("reward.zerowait.", "search.")
_TYPED: Final = frozenset({BOOL, INT, FLOAT, TEXT, LIST})
_LOOSE: Final = {
    BOOL: frozenset({NULL}),
    TEXT: frozenset({NULL}),
    LIST: frozenset({TEXT, NULL}),
}
"""Further kinds that verl accepts for a key, by the kind of the value in verl's YAML."""
_IN_RECIPE: Final = {
    PROMPTS_OF_UPDATE: ("data", "batch"),
    RESPONSES_TO_PROMPT: ("rollout", "n"),
}
"""The recipe's keys for keys of verl's, where the recipe does not override verl's."""
_NUMBER: Final = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def compose_config(command: Sequence[str]) -> Any:
    """Verl's whole configuration with these overrides, an OmegaConf mapping.

    Raises:
        HydraException, OmegaConfBaseException: an override is invalid.
    """
    from hydra import compose, initialize_config_dir

    folder = verl_folder() / "trainer" / "config"
    with initialize_config_dir(config_dir=str(folder), version_base=None):
        return compose(_ROOT, overrides=list(command))


def compose_yaml(command: Sequence[str]) -> str:
    """Verl's whole configuration with these overrides, as YAML."""
    from omegaconf import OmegaConf

    text: str = OmegaConf.to_yaml(compose_config(command))
    return text


def check_overrides(
    command: Sequence[str], extra: Mapping[str, str], recipe: Recipe | None = None
) -> Any:
    """The whole configuration of verl, once the user's overrides were found to fit it.

    Args:
        command: the trainer's whole command line, which includes the user's overrides.
        extra: the user's overrides from the command line.
        recipe: the recipe with the user's other overrides under ``verl:``.

    Raises:
        ConfigError: for the first override with an unknown key or a value of the wrong type, in one
            line with the nearest valid name, and for the recipe with file and line.
    """
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    check = _Check(command, extra, recipe)
    for argument in check.given:
        check.syntax(argument)
    groups = [argument for argument in check.given if check.is_group(argument)]
    try:
        plain = compose_config([*check.own, *groups])
    except (HydraException, OmegaConfBaseException) as error:
        check.refuse_group(groups, error)
    try:
        whole = compose_config(command)
    except (HydraException, OmegaConfBaseException):
        check.refuse_key(plain)
    changed = [
        argument
        for argument in check.given
        if argument not in groups and not argument.startswith(("~", "hydra."))
    ]
    for argument in changed:
        check.section(_key(argument), plain, whole)
    for argument in changed:
        check.values(argument, plain, whole)
    check.early_gradients(whole)
    check.adapters(whole)
    if recipe is not None:
        check.critic(whole)
        check.numbers(whole, recipe)
    return whole


class _Check:
    """The checks of one command line, with the source of each override for messages."""

    def __init__(
        self, command: Sequence[str], extra: Mapping[str, str], recipe: Recipe | None
    ) -> None:
        self._recipe = recipe
        self._extra = {plain_key(key) for key in extra}
        self._verl: Mapping[str, Any] = {} if recipe is None else recipe.verl
        user_keys = self._extra | {plain_key(key) for key in self._verl}
        self.given = [argument for argument in command if _key(argument) in user_keys]
        self.own = [argument for argument in command if _key(argument) not in user_keys]

    def fail(self, key: str, problem: str) -> NoReturn:
        """Raise a ConfigError for a dotted key, with the recipe's line if it was set there."""
        if self._recipe is not None and not any(
            key == given or key.startswith(f"{given}.") for given in self._extra
        ):
            path = _recipe_path(self._verl, key)
            place = self._recipe.source.message(("verl", *path), "").split(": ", 1)[0]
            raise ConfigError(f"{place}: verl: {key} {problem}")
        raise ConfigError(f"{key} {problem}")

    def adapters(self, whole: Any) -> None:
        """Refuse a LoRA adapter that the transformers rollout could not take."""
        model = whole.actor_rollout_ref.model
        engine = whole.actor_rollout_ref.rollout.get("name", "")  # verl has no default
        if engine != "transformers" or model.lora.merge:
            return
        for name in ("lora_rank", "lora_adapter_path"):
            if model[name]:
                self.fail(
                    f"{_MODEL}.{name}",
                    f"is {model[name]}, and the transformers rollout takes whole weights: write "
                    f"{_MODEL}.lora.merge: true too",
                )

    def critic(self, whole: Any) -> None:
        """Refuse a critic that would start from the model that verl names where nothing is said."""
        wanted, path = whole.critic.enable, str(whole.critic.model.path)
        estimator = str(whole.algorithm.adv_estimator)
        if path != _CRITIC_OF_VERL or not (estimator == "gae" if wanted is None else wanted):
            return
        key, value = ("algorithm.adv_estimator", estimator)
        if wanted is not None:
            key, value = ("critic.enable", "true")
        self.fail(
            key,
            f"is {value}, so there is a critic, and it would start from verl's {path}: write "
            "algorithm: {estimator: gae} in the recipe, or critic.model.path=FOLDER too",
        )

    def numbers(self, whole: Any, recipe: Recipe) -> None:
        """Refuse numbers on which verl would stop after a batch was rolled out and judged."""
        unfit = unfit_size(whole) or unfit_loss(whole)
        if unfit is None:
            return
        key, problem = unfit
        path = _IN_RECIPE.get(key)
        if path is not None and key not in map(_key, self.given):
            recipe.source.fail(path, problem)
        self.fail(key, problem)

    def early_gradients(self, whole: Any) -> None:
        """Refuse ``on`` where parts of a step would not add up to the gradient of one update."""
        own = whole.reward.get("zerowait") or {}
        if str(whole.trainer.v1.trainer_mode) != MODE or own.get("early_gradients") != "on":
            return
        why = needs_one_update(whole)
        if why is not None and self._recipe is not None:
            problem = f"is on, and {why}: write auto, which takes one update there"
            self._recipe.source.fail(("trainer", "early_gradients"), problem)
        wants_early_gradients(whole, "on")

    def syntax(self, argument: str) -> None:
        """Refuse an override that Hydra cannot parse, or that has several values."""
        from hydra.core.override_parser.overrides_parser import OverridesParser
        from hydra.errors import HydraException

        try:
            override = OverridesParser.create().parse_override(argument)
        except HydraException as error:
            reason = str(error).splitlines()[0]
            self.fail(
                _key(argument),
                f"is not in Hydra's syntax ({argument}): {reason}; text with special characters "
                "stands in quotes",
            )
        if override.is_sweep_override():
            self.fail(
                _key(argument),
                f"has several values ({argument}), and a training has one: a list stands in "
                "brackets, and text with commas in quotes",
            )

    def is_group(self, argument: str) -> bool:
        """Whether the argument selects a file of a config group (``model_engine=megatron``)."""
        group = plain_key(argument.partition("=")[0]).partition("@")[0]
        return "@" in argument.partition("=")[0] or (
            "." not in group and (verl_folder() / "trainer" / "config" / group).is_dir()
        )

    def refuse_group(self, groups: Sequence[str], error: Exception) -> NoReturn:
        """Raise a ConfigError for an unknown choice of a config group."""
        for argument in groups:
            key, _, choice = argument.partition("=")
            group = plain_key(key).partition("@")[0]
            folder = verl_folder() / "trainer" / "config" / group
            known = sorted(file.stem for file in folder.glob("*.yaml"))
            if choice.strip("\"'") not in known:
                hint = did_you_mean(choice, known)
                self.fail(_key(argument), f"has no choice {choice!r} in verl{hint}")
        raise ConfigError(f"verl's configuration: {_first_line(error)}") from None

    def refuse_key(self, plain: Any) -> NoReturn:
        """Raise a ConfigError for the first override with which verl's files do not compose."""
        from hydra.errors import HydraException
        from omegaconf.errors import OmegaConfBaseException

        for argument in self.given:
            if not argument.startswith(("+", "~", "hydra.")):
                for key, _ in _leaves(argument):
                    self._exists(key, plain)
        done = list(self.own)
        for argument in self.given:
            done.append(argument)
            try:
                compose_config(done)
            except (HydraException, OmegaConfBaseException) as error:
                self.fail(_key(argument), f"does not fit ({argument}): {_first_line(error)}")
        raise ConfigError("verl's configuration does not compose")

    def _exists(self, key: str, plain: Any) -> None:
        from omegaconf import DictConfig

        node, inside = plain, ""
        for part in key.split("."):
            if not isinstance(node, DictConfig):
                return
            if part not in set(node):  # `in` itself denies a key without a value yet
                where = f"in {inside}" if inside else "at the top"
                hint = _nearest(part, inside, node, plain)
                if key.startswith(_ADDED):
                    hint = f"; it is added with a plus, as in +{key}=..."
                self.fail(
                    key,
                    f"is no key of verl's configuration: there is no {part!r} {where}{hint}",
                )
            node = _value(node, part)
            inside = f"{inside}.{part}" if inside else part

    def values(self, argument: str, plain: Any, whole: Any) -> None:
        """Refuse a value of another type than verl's own, and a name that verl does not know."""
        for key, _ in _leaves(argument):
            value = self._resolved(key, whole)
            expected = _expected(key, plain, whole)
            self._field(key, whole)
            if expected and not _fits(value, expected):
                self.fail(key, f"must be {_kind_names(expected)}, not {_shown(value, expected)}")
            if key in COUNTS and isinstance(value, int) and value < 1:
                self.fail(key, f"must be at least 1, not {value}")
            self._choice(key, value, whole)

    def section(self, key: str, plain: Any, whole: Any) -> None:
        """Refuse a value for a section, and a section for a value."""
        from omegaconf import DictConfig

        own, given = _select(plain, key), _select(whole, key)
        if isinstance(own, DictConfig) and own and not isinstance(given, DictConfig):
            self.fail(key, f"is a section with keys of its own, not {_shown(given, frozenset())}")
        if isinstance(given, DictConfig) and own is not None and not isinstance(own, DictConfig):
            expected = _expected(key, plain, whole)
            if expected and MAPPING not in expected:
                self.fail(key, f"must be {_kind_names(expected)}, not a mapping")

    def _resolved(self, key: str, whole: Any) -> Any:
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        try:
            return OmegaConf.select(whole, key)
        except (OmegaConfBaseException, ValueError) as error:
            self.fail(key, f"refers to what is not there: {_first_line(error)}")

    def _field(self, key: str, whole: Any) -> None:
        """Refuse a key that the dataclass of its section does not have."""
        from omegaconf import DictConfig

        parts = key.split(".")
        for depth in range(len(parts) - 1, 0, -1):
            inside = ".".join(parts[:depth])
            section = _select(whole, inside)
            if not isinstance(section, DictConfig):
                continue
            target = section.get("_target_")
            if target is None:
                continue
            fields = declared_fields(str(target))
            if inside.startswith(NOT_INSTANTIATED) or fields is None or parts[depth] in fields:
                return
            known = sorted(set(fields) - {"_target_"})
            self.fail(
                key,
                f"is a key that verl cannot take: {inside} is made into a "
                f"{str(target).rpartition('.')[2]}, which has no {parts[depth]!r}"
                f"{did_you_mean(parts[depth], known)}",
            )

    def _choice(self, key: str, value: Any, whole: Any) -> None:
        if key == "trainer.logger":
            for name in [value] if isinstance(value, str) else value or ():
                if name not in LOGGERS:
                    self.fail(key, f"must list verl's, not {name!r}{did_you_mean(name, LOGGERS)}")
        known = CHOICES.get(key) or _asserted_choices(key, whole)
        if known is None and not _has_other_registrations({*self._extra, *flattened(self._verl)}):
            known = REGISTRIES.get(key)
        if known and value is not None and value not in known:
            near = did_you_mean(str(value), known)
            self.fail(key, f"must be one of verl's names, not {value!r}{near}")


def _key(argument: str) -> str:
    return plain_key(argument.partition("=")[0])


def _leaves(argument: str) -> Iterator[tuple[str, Any]]:
    spelled, _, value = argument.partition("=")
    yield from flattened({spelled: value}).items()


def _recipe_path(tree: Any, key: str) -> tuple[str, ...]:
    """The nested keys of a recipe's ``verl:`` that spell a dotted key."""
    if not isinstance(tree, Mapping):
        return ()
    for spelled, inner in tree.items():
        plain = plain_key(str(spelled))
        if key == plain:
            return (str(spelled),)
        if key.startswith(f"{plain}."):
            return (str(spelled), *_recipe_path(inner, key.removeprefix(f"{plain}.")))
    return ()


def _has_other_registrations(given: set[str]) -> bool:
    """Whether other code than verl and zerowait may have registered names."""
    return bool(
        os.environ.get("VERL_USE_EXTERNAL_MODULES")
        or "actor_rollout_ref.model.external_lib" in given
        or any(point.name != "zerowait" for point in entry_points(group="verl.plugins"))
    )


def _select(config: Any, key: str) -> Any:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    with suppress(OmegaConfBaseException, ValueError):
        return OmegaConf.select(config, key)
    return None


def _value(node: Any, part: str) -> Any:
    from omegaconf.errors import OmegaConfBaseException

    with suppress(OmegaConfBaseException):
        return node[part]
    return None


def _nearest(part: str, inside: str, node: Any, plain: Any) -> str:
    """A hint at the nearest key of the section, or at keys of this name elsewhere."""
    hint = did_you_mean(part, [str(key) for key in node if key != "_target_"])
    if "did you mean" in hint:
        return hint
    elsewhere = [key for key in _all_keys(plain) if key.rpartition(".")[2] == part]
    if elsewhere and inside:
        return f"; there is {' and '.join(elsewhere[:3])}"
    return hint


def _all_keys(node: Any, inside: str = "") -> Iterator[str]:
    from omegaconf import DictConfig

    for key in node:
        whole = f"{inside}.{key}" if inside else str(key)
        yield whole
        inner = _value(node, key)
        if isinstance(inner, DictConfig):
            yield from _all_keys(inner, whole)


def _target(key: str, whole: Any) -> tuple[str | None, str]:
    """The dataclass of the key's section (None if there is none), and the key's name in it."""
    from omegaconf import DictConfig

    inside, _, name = key.rpartition(".")
    section = _select(whole, inside) if inside else whole
    target = section.get("_target_") if isinstance(section, DictConfig) else None
    return (None if target is None else str(target)), name


def _asserted_choices(key: str, whole: Any) -> tuple[str, ...] | None:
    target, name = _target(key, whole)
    return declared_choices(target).get(name) if target else None


def _expected(key: str, plain: Any, whole: Any) -> frozenset[str]:
    """The kinds that a value may have, by dataclass or verl's own value; empty allows any."""
    own = _select(plain, key)
    target, name = _target(key, whole)
    kinds = ((declared_fields(target) if target else None) or {}).get(name)
    if kinds is not None:
        return kinds if own is not None else kinds | {NULL}
    return FURTHER_KINDS.get(key, frozenset()) | _kinds_of(own)


def _kinds_of(own: Any) -> frozenset[str]:
    kind = _kind(own)
    return _LOOSE.get(kind, frozenset()) | {kind} if kind in _TYPED else frozenset()


def _kind(value: Any) -> str:
    from omegaconf import DictConfig, ListConfig

    kinds = {bool: BOOL, int: INT, float: FLOAT, str: TEXT, ListConfig: LIST, DictConfig: MAPPING}
    return kinds.get(type(value), NULL)


def _fits(value: Any, expected: frozenset[str]) -> bool:
    kind = _kind(value)
    if kind == INT and (FLOAT in expected or (BOOL in expected and value in {0, 1})):
        return True
    return kind in expected


def _kind_names(expected: frozenset[str]) -> str:
    kinds = (INT, FLOAT, BOOL, TEXT, LIST, MAPPING)
    return " or ".join(kind for kind in kinds if kind in expected)


def _shown(value: Any, expected: frozenset[str]) -> str:
    kind, numeric = _kind(value), {INT, FLOAT} & expected
    if kind in {NULL, LIST, MAPPING}:
        return kind
    if kind == BOOL:
        return str(value).lower()
    if kind == TEXT:
        hint = f": {_as_number(value)}" if numeric and _NUMBER.fullmatch(value) else ""
        return f"text {value[:60]!r}{hint}"
    if TEXT in expected and not numeric:
        return f"{value}, which is a number: in two pairs of quotes, '\"{value}\"', it is text"
    return str(value)


def _as_number(text: str) -> str:
    number = float(text)
    written = repr(number) if "." in text or "e" in text.lower() else text
    if "e" in written and "." not in written:
        written = written.replace("e", ".0e")
    return f"YAML reads {text} as text; write {written}" if "e" in text.lower() else f"write {text}"


def _first_line(error: Exception) -> str:
    reason = error.__cause__ or error
    return str(reason).splitlines()[0].strip() if str(reason) else type(reason).__name__
