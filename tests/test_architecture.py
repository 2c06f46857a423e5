"""The house rules that a machine can check."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import ModuleType

import pytest

import zerowait

SOURCE = Path(zerowait.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))

# A layer may import itself and what is listed; the list only points down.
WORDS = {"types", "errors"}
FLOOR = WORDS | {
    *("attribution", "completion", "events", "config"),
    *("json_schema", "control_tokens", "patterns", "pictures", "rank_statistics"),
}
LEAVES = {"scorers", "shaping", "judge", "client", "cache"}
CORE = FLOOR | LEAVES | {"loggers", "record", "engine"}
MAY_IMPORT = {
    "types": {"errors"},
    "errors": set(),
    "events": WORDS,
    "attribution": {"patterns", "types"},
    "completion": {"attribution"},
    "config": WORDS | {"attribution"},
    "json_schema": WORDS,
    "control_tokens": set(),
    "patterns": set(),
    "rank_statistics": set(),
    "pictures": {"errors"},
    **dict.fromkeys(LEAVES, FLOOR),
    "loggers": FLOOR | {"client"},
    "record": FLOOR,
    "engine": FLOOR | LEAVES | {"loggers", "record"},
    "hub": CORE,
    "search": FLOOR | {"cache", "client"},
    "observe": CORE | {"hub"},
    "testing": FLOOR | {"judge"},
    "verl": CORE | {"hub", "search"},
    "tiny_models": FLOOR | {"search", "testing", "verl"},
    "cli": CORE | {"hub", "observe", "search", "testing", "tiny_models", "verl"},
    **dict.fromkeys(("trl", "openrlhf", "verifiers"), CORE | {"hub"}),
    **dict.fromkeys(("areal", "nemo_gym", "skyrl", "slime", "swift", "tinker"), CORE | {"hub"}),
    "__init__": FLOOR | {"engine", "hub"},
    "__main__": {"cli"},
}

# What the subpackages of a layer may import of it; its other modules may import them.
SUBPACKAGES = {
    "client": {"http": {"transport"}, "limits": {"headers"}},
    "judge": {
        "parsing": {"pooling", "reply", "rubric"},
        "comparing": {"fence", "parsing", "request", "rubric"},
    },
    "scorers": {"math": {"answers", "boxed", "thinking"}, "code": {"thinking"}},
    "engine": {
        "judging": {"partition", "concurrent_tasks"},
        "groups": {"judging", "plan"},
        "pool": set(),
        "sandbox": set(),
        "serving": set(),
        "monitor": {"plan"},
    },
    "observe": {"dashboard": {"page"}, "page": {"axis", "config_differences", "fall", "timeline"}},
    "hub": {
        "ray": {"job", "rpc", "shard_stats", "slots", "streaming", "tickets"},
        "http": {"job", "rpc", "streaming"},
    },
    "verl": {
        "rewards": {
            "agent_loop_check",
            "early_gradients",
            "estimators",
            "response_mask",
            "rows",
            "trainer_modes",
        },
        "trainer": {
            "agent",
            "agent_loop_check",
            "batch_sizes",
            "early_gradients",
            "estimators",
            "part_worker",
            "rewards",
            "rows",
            "trainer_modes",
        },
        "agent": {"policy_tokens", "response_mask", "rows"},
        "batch": {"process_role", "response_mask", "rewards", "rows"},
        "cpu": {"process_role"},
        "launch": {
            "batch_sizes",
            "early_gradients",
            "estimators",
            "policy_losses",
            "rewards",
            "rows",
            "trainer_modes",
        },
    },
}


def layer(module: Path) -> str:
    return module.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def parsed(module: Path) -> ast.Module:
    return ast.parse(module.read_text())


def imported_layers(module: Path) -> set[str]:
    found = set()
    for node in ast.walk(parsed(module)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        found |= {n.split(".")[1] for n in names if n.startswith("zerowait.")}
    return found


def test_imports_only_point_down():
    upwards = {
        str(module.relative_to(SOURCE)): above
        for module in MODULES
        if (above := imported_layers(module) - MAY_IMPORT[layer(module)] - {layer(module)})
    }
    assert upwards == {}


def imported_neighbours(module: Path) -> set[str]:
    """The subpackages and modules of a module's own layer that it imports."""
    found = set()
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.ImportFrom) and node.module:
            inside = node.module.removeprefix(f"zerowait.{layer(module)}").split(".")
            if node.module.startswith(f"zerowait.{layer(module)}"):
                found |= {inside[1]} if len(inside) > 1 else {a.name for a in node.names}
    return found


def test_subpackages_import_only_what_they_may_of_their_own_layer():
    wrong = {}
    for module in MODULES:
        parts = module.relative_to(SOURCE).parts
        listed = SUBPACKAGES.get(parts[0], {})
        if len(parts) == 3 and parts[1] in listed:
            above = imported_neighbours(module) - listed[parts[1]] - {parts[1]}
            if above:
                wrong["/".join(parts)] = above
    assert wrong == {}


def module_name(module: Path) -> str:
    parts = ("zerowait", *module.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


def imported_modules(module: Path, names: set[str]) -> set[str]:
    """Those of the modules `names` that a module imports, also inside functions."""
    found = set()
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            below = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in names else node.module for name in below}
    return found & names


def test_no_modules_import_each_other_in_a_circle():
    """Imports inside functions count too: they only hide the circle."""
    names = {module_name(module) for module in MODULES}
    needed = {module_name(m): imported_modules(m, names) - {module_name(m)} for m in MODULES}
    try:
        TopologicalSorter(needed).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))


def test_every_subpackage_is_listed():
    subpackages = {
        tuple(path.parent.relative_to(SOURCE).parts)
        for path in MODULES
        if len(path.relative_to(SOURCE).parts) == 3
    }
    assert {(of, name) for of, name in subpackages if name not in SUBPACKAGES.get(of, {})} == set()


# Names that stand in several modules and mean the same in each.
SHARED_NAMES = {
    "open_index": "opens the index of a corpus in `search`, that of a run's record in `record`",
    "reward": "makes a trainer's reward function of a configuration",
    "T": "a type variable",
    "R": "a type variable",
    "build": "a function of `config`, and the command `zerowait retriever build`",
    "export": "the commands `zerowait export` and `zerowait cache export`",
    "judge": "the commands `zerowait judge` and `zerowait doctor judge`",
    "prune": "the command `zerowait cache prune`, and what it does",
    "serve": "the commands `zerowait serve` and `zerowait retriever serve`",
    "serve_forever": "runs a server until it is told to end: each of our three servers has one",
}


def defined_names(module: Path) -> set[str]:
    """The public names of a module's own classes, functions and constants."""
    found = set()
    for node in parsed(module).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return {name for name in found if not name.startswith("_")}


def test_one_name_means_one_thing():
    modules = {}
    for module in MODULES:
        for name in defined_names(module):
            modules.setdefault(name, []).append(str(module.relative_to(SOURCE)))
    shared = {name: where for name, where in modules.items() if len(where) > 1}
    assert {name: where for name, where in shared.items() if name not in SHARED_NAMES} == {}
    assert set(SHARED_NAMES) <= set(shared)


def test_the_public_names_are_exactly_the_ones_listed():
    for name in zerowait.__all__:
        getattr(zerowait, name)
    shown = {
        name
        for name, value in vars(zerowait).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert zerowait.__all__ == sorted(zerowait.__all__)
    assert set(zerowait.__all__) == shown - {"TYPE_CHECKING", "annotations", "import_module"}
    assert set(zerowait.__all__) <= set(dir(zerowait))


def test_a_public_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Enigne"):
        zerowait.Enigne  # noqa: B018


def in_a_fresh_process(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout


@pytest.mark.parametrize("name", ["zerowait", "zerowait.cli"])
def test_importing_zerowait_loads_nothing_else(name):
    """Not by time, which the machine decides: what is not loaded costs nothing."""
    loaded = set(in_a_fresh_process(f"import sys, {name}; print(*sys.modules)").split())
    before = set(in_a_fresh_process("import sys; print(*sys.modules)").split())
    assert {module for module in loaded - before if "importlib" not in module} <= {
        "__future__", "warnings", "zerowait", name
    }  # fmt: skip


def test_the_words_load_nothing_but_their_own_library():
    loaded = in_a_fresh_process("import sys, zerowait; zerowait.Sample; print(*sys.modules)")
    ours = {module for module in loaded.split() if module.partition(".")[0] == "zerowait"}
    assert ours == {"zerowait", "zerowait.errors", "zerowait.types"}


@pytest.mark.parametrize("name", ["errors", "types"])
def test_modules_of_words_are_there_without_another_import(name):
    assert in_a_fresh_process(f"import zerowait; print(zerowait.{name}.__name__)").split() == [
        f"zerowait.{name}"
    ]


def test_every_module_says_what_it_is():
    silent = [str(m.relative_to(SOURCE)) for m in MODULES if not ast.get_docstring(parsed(m))]
    assert silent == []


def test_nobody_prints_but_the_command_line():
    """The library tells events; only commands and progress write to a terminal."""
    allowed = {"cli", "progress.py"}
    offenders = [
        str(module.relative_to(SOURCE))
        for module in MODULES
        if not allowed & set(module.relative_to(SOURCE).parts)
        for node in ast.walk(parsed(module))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]
    assert offenders == []
