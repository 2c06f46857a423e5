"""Reads a reward configuration from YAML or a mapping, or raises one clear error."""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

import msgspec

from zerowait.config.build import build, converted, tree_at
from zerowait.config.callables import name_of
from zerowait.config.judgement import Panel, PanelEntry
from zerowait.config.key_places import OF_COMPONENTS, place_of, refuse_misplaced_keys
from zerowait.config.log_to import read_log_to
from zerowait.config.messages import kind_of
from zerowait.config.schema import (
    REDIS,
    Cache,
    Component,
    FailurePolicy,
    Judge,
    JudgeComponent,
    Policy,
    PolicyName,
    Recording,
    RewardConfig,
    ScorerComponent,
    ShapeComponent,
    Value,
)
from zerowait.config.source import KeyPath, Source, read_yaml, refuse_extremes
from zerowait.config.traffic import Price, Sharding, Traffic
from zerowait.errors import ConfigError
from zerowait.types import FailureKind

_COMPONENT_KINDS: dict[str, type[ScorerComponent | JudgeComponent | ShapeComponent]] = {
    "scorer": ScorerComponent,
    "judge": JudgeComponent,
    "shape": ShapeComponent,
}
_FACTORS = {"shape": ("weight", "scale"), "judge": ("scale", "weight")}
_WORDS_OF_ON_FAILURE = frozenset({"default", "quorum", "value", *FailureKind})
_TOP = [
    *("components", "judges", "traffic", "hub", "cache", "record", "prices", "on_failure", "log_to")
]


def load_config(config: str | Path | Mapping[str, Any] | RewardConfig) -> RewardConfig:
    """The reward configuration in a file, a mapping, or as it is.

    ``recipe.yaml#reward`` is the key ``reward`` of ``recipe.yaml``.

    Raises:
        ConfigError: names the file, the line, the key and the nearest right one.

    >>> load_config({"components": {"answer": {"scorer": "qa_em"}}}).components["answer"].weight
    1.0
    """
    if isinstance(config, RewardConfig):
        return config
    try:
        return _loaded(config)
    except ConfigError as error:
        failed = error
    finally:
        del config  # a mapping may hold a key, and a traceback may show local variables
    raise without_traceback(failed)


def without_traceback(error: ConfigError) -> ConfigError:
    """`error` without its traceback, whose frames hold the document with its API keys."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _loaded(config: str | Path | Mapping[str, Any]) -> RewardConfig:
    if isinstance(config, str | Path):
        path, _, key = str(config).partition("#")
        source = read_yaml(Path(path).expanduser())
        at = (key,) if key else ()
        named = tree_at(source, at)
        if at and isinstance(named, str):  # a recipe may name the file of its reward
            return read_config(read_yaml(source.base / Path(named).expanduser()))
        return read_config(source, at)
    if not isinstance(config, Mapping):
        raise ConfigError(
            f"a reward configuration is a path, a mapping or a RewardConfig, not {kind_of(config)}"
        )
    source = Source("reward", _plain(config), {}, Path())
    refuse_extremes(source)
    return read_config(source)


def read_config(source: Source, at: KeyPath = ()) -> RewardConfig:
    """The reward configuration that `source` holds at key path `at`."""
    tree = tree_at(source, at)
    if not isinstance(tree, dict):
        source.fail(at, f"must be a mapping with the key 'components', not {kind_of(tree)}")
    for key in tree:
        if key not in _TOP:
            _refuse_recipe(source, tree)
            source.unknown_key(at, key, _TOP, hint=place_of(key))
    refuse_misplaced_keys(source, at, tree)
    components = _components(source, (*at, "components"), tree.get("components"))
    judges, panels = _judges(source, (*at, "judges"), tree.get("judges"))
    prices = {
        model: build(source, (*at, "prices", model), Price)
        for model in _mapping(source, (*at, "prices"), tree.get("prices"))
    }
    traffic = _traffic(source, (*at, "traffic"), tree.get("traffic"))
    hub = build(source, (*at, "hub"), Sharding) if tree.get("hub") is not None else Sharding()
    if hub.shards > traffic.slots:
        why = f"is {hub.shards}, more than the {traffic.slots} requests in flight that they share"
        source.fail((*at, "hub", "shards"), why)
    return RewardConfig(
        components=components,
        judges=judges,
        panels=panels,
        traffic=traffic,
        hub=hub,
        cache=_cache(source, (*at, "cache"), tree.get("cache", {})),
        record=_recording(source, (*at, "record"), tree.get("record")),
        prices=prices,
        on_failure=_on_failure(source, (*at, "on_failure"), tree.get("on_failure"), components),
        log_to=read_log_to(source, (*at, "log_to"), tree.get("log_to")),
        source=source,
        at=at,
    )


def _refuse_recipe(source: Source, tree: Mapping[str, Any]) -> None:
    if "reward" not in tree or "algorithm" not in tree:
        return
    reward = tree["reward"]
    where = repr(reward) if isinstance(reward, str) else f"{source.name}#reward"
    raise ConfigError(f"{source.name} is a recipe, and the rewards are in {where}: name that")


def _judges(source: Source, at: KeyPath, tree: Any) -> tuple[dict[str, Judge], dict[str, Panel]]:
    """The judges that ask a model, and the panels that ask those."""
    judges: dict[str, Judge] = {}
    panels: dict[str, Panel] = {}
    for name, entry in _mapping(source, at, tree).items():
        if isinstance(entry, dict) and "panel" in entry:
            panels[name] = build(source, (*at, name), PanelEntry).panel
        else:
            judges[name] = build(source, (*at, name), Judge)
    return judges, panels


def _components(source: Source, at: KeyPath, tree: Any) -> dict[str, Component]:
    if not tree:
        source.fail(at, "must name at least one component")
    return {name: _component(source, (*at, name)) for name in _mapping(source, at, tree)}


def _component(source: Source, at: KeyPath) -> Component:
    tree = tree_at(source, at)
    _check_name(source, at)
    if not isinstance(tree, dict):
        source.fail(at, f"must be a mapping with one of scorer, judge, shape, not {kind_of(tree)}")
    given = [key for key in _COMPONENT_KINDS if key in tree]
    factor = _FACTORS.get(given[0]) if len(given) == 1 else None
    if factor is not None and factor[0] in tree:
        wrong, right = factor
        why = f"is not for a {given[0]}, whose factor is {right}: write {right}"
        source.fail((*at, wrong), why)
    if not given:
        _refuse_misspelled_kind(source, at, tree)
    if len(given) != 1:
        source.fail(
            at, f"needs exactly one of scorer, judge, shape; it has {' and '.join(given) or 'none'}"
        )
    kind = _COMPONENT_KINDS[given[0]]
    fields = [name for name in kind.__struct_fields__ if name != "options"]
    own = {key: value for key, value in tree.items() if key in fields}
    options = {key: value for key, value in tree.items() if key not in fields}
    if options and "options" not in kind.__struct_fields__:
        key = next(iter(options))
        source.unknown_key(at, key, fields, hint=place_of(key, beside=OF_COMPONENTS))
    if options:
        own["options"] = options
    return converted(source, at, own, kind)


def _refuse_misspelled_kind(source: Source, at: KeyPath, tree: Mapping[Any, Any]) -> None:
    known = {name for kind in _COMPONENT_KINDS.values() for name in kind.__struct_fields__}
    for key in tree:
        if key not in known and get_close_matches(str(key), _COMPONENT_KINDS):
            source.unknown_key(at, key, [*_COMPONENT_KINDS])


def _check_name(source: Source, at: KeyPath) -> None:
    name = str(at[-1])
    if not name.isidentifier():
        source.fail(at, "is no name for a component: use letters, digits and _")
    if name in _WORDS_OF_ON_FAILURE:
        source.fail(at, "is no name for a component, because on_failure has a key of that name")
    if keyword.iskeyword(name):
        source.fail(at, "is no name for a component, because gates cannot name it")


def _traffic(source: Source, at: KeyPath, tree: Any) -> Traffic:
    if tree is None:
        return Traffic()
    traffic = build(source, at, Traffic)
    if "timeout_s" in tree and traffic.timeout_s > traffic.deadline_s:
        source.fail(
            (*at, "timeout_s"),
            f"is {traffic.timeout_s:g}, and a whole judgement has {traffic.deadline_s:g} "
            "(deadline_s): an attempt cannot take longer",
        )
    return traffic


def _cache(source: Source, at: KeyPath, tree: Any) -> Cache:
    if tree is False or tree is None or tree == "off":
        return Cache(path=None)
    if not isinstance(tree, dict | str) or tree in ("", "none"):
        written = f"{tree!r}" if isinstance(tree, str) else kind_of(tree)
        source.fail(at, f"must be off, a path, or a mapping with path or url, not {written}")
    if isinstance(tree, str):
        where = "url" if tree.startswith(REDIS) else "path"
        cache = converted(source, at, {where: tree}, Cache)
    else:
        cache = build(source, at, Cache) if tree else Cache()
        if "path" in tree and "url" in tree:
            source.fail((*at, "url"), "is given beside path: a cache is in one place")
    if cache.path is None:
        return cache
    return msgspec.structs.replace(cache, path=str(source.base / Path(cache.path).expanduser()))


def _recording(source: Source, at: KeyPath, tree: Any) -> Recording:
    if tree is None:
        return Recording()
    if isinstance(tree, str):
        why = "the folder is not named here, but by --record DIR or record="
        source.fail(at, f"must be a mapping with texts, max_bytes or judgements: {why}")
    return build(source, at, Recording)


def _on_failure(
    source: Source, at: KeyPath, tree: Any, components: Mapping[str, Component]
) -> FailurePolicy:
    if tree is None:
        return FailurePolicy()
    if not isinstance(tree, dict) or set(tree) == {"value"}:
        return FailurePolicy(default=_policy(source, at, tree))
    kinds: dict[FailureKind, Policy] = {}
    own: dict[str, FailurePolicy] = {}
    default: Policy | None = None
    quorum = FailurePolicy().quorum
    for key, value in tree.items():
        if key == "default":
            default = _policy(source, (*at, key), value)
        elif key == "quorum" and components:
            quorum = _quorum(source, (*at, key), value)
        elif key == "quorum":
            source.fail((*at, key), "belongs to on_failure as a whole, not to one component")
        elif key in set(FailureKind):
            kinds[FailureKind(key)] = _policy(source, (*at, key), value)
        elif key in components:
            own[key] = _on_failure(source, (*at, key), value, {})
        else:
            words = ["default", *(["quorum"] if components else [])]
            source.unknown_key(
                at, key, [*words, *(kind.value for kind in FailureKind), *components]
            )
    return FailurePolicy(default=default, kinds=kinds, components=own, quorum=quorum)


def _policy(source: Source, at: KeyPath, tree: Any) -> Policy:
    if isinstance(tree, dict):
        return build(source, at, Value)
    try:
        name: Policy = msgspec.convert(tree, PolicyName)
    except msgspec.ValidationError:
        names = ", ".join(get_args(PolicyName))
        source.fail(at, f"must be one of {names} or {{value: x}}, not {tree!r}")
    return name


def _quorum(source: Source, at: KeyPath, tree: Any) -> float:
    if isinstance(tree, bool) or not isinstance(tree, int | float) or not 0 < tree <= 1:
        source.fail(at, f"must be a number in (0, 1], not {tree!r}")
    return float(tree)


def _mapping(source: Source, at: KeyPath, tree: Any) -> dict[str, Any]:
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        source.fail(at, f"must be a mapping, not {kind_of(tree)}")
    return tree


def _plain(tree: Any) -> Any:
    """Nested mappings and sequences (OmegaConf's too) as dicts and lists; functions as names."""
    if isinstance(tree, Mapping):
        return {str(key): _plain(tree[key]) for key in tree}
    if isinstance(tree, Sequence) and not isinstance(tree, str | bytes):
        return [_plain(item) for item in tree]
    return name_of(tree) if callable(tree) else tree
