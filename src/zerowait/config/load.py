"""From YAML or a mapping to a `RewardConfig`, or to one clear error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec

from zerowait.config.judgement import Panel, PanelEntry
from zerowait.config.schema import (
    Cache,
    Component,
    FailurePolicy,
    Judge,
    JudgeComponent,
    Policy,
    PolicyName,
    RewardConfig,
    ScorerComponent,
    ShapeComponent,
    Value,
)
from zerowait.config.source import KeyPath, Source, read_yaml
from zerowait.config.traffic import Price, Sharding, Traffic
from zerowait.config.words import kind_of, locate, plain_words, with_words, words_for
from zerowait.errors import ConfigError
from zerowait.types import FailureKind

StructT = TypeVar("StructT", bound=msgspec.Struct)

_COMPONENT_KINDS: dict[str, type[ScorerComponent | JudgeComponent | ShapeComponent]] = {
    "scorer": ScorerComponent,
    "judge": JudgeComponent,
    "shape": ShapeComponent,
}
_TOP = ["components", "judges", "traffic", "hub", "cache", "prices", "on_failure"]


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
    if isinstance(config, str | Path):
        path, _, key = str(config).partition("#")
        source = read_yaml(Path(path).expanduser())
        return read_config(source, (key,) if key else ())
    return read_config(Source("reward", _plain(config), {}, Path()))


def read_config(source: Source, at: KeyPath = ()) -> RewardConfig:
    """The reward configuration that `source` holds at key path `at`."""
    tree = _at(source, at)
    if not isinstance(tree, dict):
        source.fail(at, f"must be a mapping with the key 'components', not {kind_of(tree)}")
    for key in tree:
        if key not in _TOP:
            source.unknown_key(at, key, _TOP)
    components = _components(source, (*at, "components"), tree.get("components"))
    judges, panels = _judges(source, (*at, "judges"), tree.get("judges"))
    prices = {
        model: build(source, (*at, "prices", model), Price)
        for model in _mapping(source, (*at, "prices"), tree.get("prices"))
    }
    traffic = build(source, (*at, "traffic"), Traffic) if tree.get("traffic") else Traffic()
    hub = build(source, (*at, "hub"), Sharding) if tree.get("hub") else Sharding()
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
        prices=prices,
        on_failure=_on_failure(source, (*at, "on_failure"), tree.get("on_failure"), components),
        source=source,
        at=at,
    )


def build(source: Source, at: KeyPath, kind: type[StructT]) -> StructT:
    """A `kind` from the mapping at `at`; unknown keys and wrong types are ConfigErrors."""
    tree = _at(source, at)
    if not isinstance(tree, dict):
        source.fail(at, f"must be a mapping, not {kind_of(tree)}")
    tree = with_words(tree)
    _refuse_unknown_keys(source, at, tree, kind)
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError as error:
        path, problem = locate(str(error))
        words = words_for(kind, path) if problem.startswith("Invalid enum value") else None
        given = problem.removeprefix("Invalid enum value ")
        source.fail(
            (*at, *path), f"must be {words}, not {given}" if words else plain_words(problem)
        )


def _refuse_unknown_keys(source: Source, at: KeyPath, tree: Any, kind: Any) -> None:
    """Walks nested structs too, so that the nearest name is always offered."""
    if isinstance(tree, list):
        inner = getattr(kind, "__args__", (None,))[0]
        for index, item in enumerate(tree):
            _refuse_unknown_keys(source, (*at, index), item, inner)
    if get_origin(kind) in (Union, UnionType):
        kind = next((option for option in get_args(kind) if isinstance(option, type)), kind)
    if not (isinstance(tree, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in tree.items():
        if key not in fields:
            source.unknown_key(at, key, list(fields))
        _refuse_unknown_keys(source, (*at, key), value, fields[key])


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
    tree = _at(source, at)
    if not isinstance(tree, dict):
        source.fail(at, f"must be a mapping with one of scorer, judge, shape, not {kind_of(tree)}")
    if not str(at[-1]).isidentifier():
        source.fail(at, "is no name for a component: use letters, digits and _")
    given = [key for key in _COMPONENT_KINDS if key in tree]
    if len(given) != 1:
        source.fail(at, f"needs exactly one of scorer, judge, shape; it has {given or 'none'}")
    kind = _COMPONENT_KINDS[given[0]]
    fields = [name for name in kind.__struct_fields__ if name != "options"]
    own = {key: value for key, value in tree.items() if key in fields}
    options = {key: value for key, value in tree.items() if key not in fields}
    if options and "options" not in kind.__struct_fields__:
        source.unknown_key(at, next(iter(options)), fields)
    if options:
        own["options"] = options
    try:
        return msgspec.convert(own, kind)
    except msgspec.ValidationError as error:
        path, problem = locate(str(error))
        source.fail((*at, *path), plain_words(problem))


def _cache(source: Source, at: KeyPath, tree: Any) -> Cache:
    if tree is False or tree is None or tree == "off":
        return Cache(path=None)
    cache = Cache(path=tree) if isinstance(tree, str) else Cache()
    if isinstance(tree, dict) and tree:
        cache = build(source, at, Cache)
        if "path" in tree and "url" in tree:
            source.fail((*at, "url"), "is given beside path: a cache is in one place")
    if cache.path is None:
        return cache
    return msgspec.structs.replace(cache, path=str(source.base / Path(cache.path).expanduser()))


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
        elif key in set(FailureKind):
            kinds[FailureKind(key)] = _policy(source, (*at, key), value)
        elif key in components:
            own[key] = _on_failure(source, (*at, key), value, {})
        else:
            source.unknown_key(
                at, key, ["default", "quorum", *(kind.value for kind in FailureKind), *components]
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


def _at(source: Source, path: KeyPath) -> Any:
    tree = source.tree
    for part in path:
        if isinstance(tree, dict) and part not in tree:
            source.fail(path, "is missing")
        tree = tree[part]
    return tree


def _plain(tree: Any) -> Any:
    """Nested mappings and sequences (OmegaConf's too) as dicts and lists."""
    if isinstance(tree, Mapping):
        return {str(key): _plain(tree[key]) for key in tree}
    if isinstance(tree, Sequence) and not isinstance(tree, str | bytes):
        return [_plain(item) for item in tree]
    return tree


def require_file(path: Path, *, what: str) -> Path:
    """`path`, if it is a file that exists.

    Raises:
        ConfigError: it does not exist or is a folder.
    """
    if not path.is_file():
        raise ConfigError(
            f"{what} {path} does not exist" if not path.exists() else f"{path} is no file"
        )
    return path
