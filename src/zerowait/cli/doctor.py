"""``zerowait doctor``: checks of the installation, a configuration, and the plug-in in verl."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from zerowait.cli.app import app
from zerowait.cli.endpoint_check import ask_endpoints, show_answers
from zerowait.cli.json_output import JsonOption, print_json, reserved_stdout
from zerowait.cli.judges import describe_judges
from zerowait.cli.preflight import check_reward
from zerowait.cli.prompts import judge_prompts, show_prompts
from zerowait.cli.samples import first_group
from zerowait.cli.tables import counted
from zerowait.config import load_config
from zerowait.engine.plan import compile_plan
from zerowait.types import Abstain

doctor = typer.Typer(
    help="Check the installation, a configuration, judges, or verl.", no_args_is_help=True
)
app.add_typer(doctor, name="doctor")

_VERL = "0.9."
_PACKAGES = ("zerowait", "aiohttp", "msgspec", "uvloop", "torch", "verl", "ray", "transformers")


@doctor.command("install")
def install(*, as_json: JsonOption = False) -> int:
    """Show the versions of Python and of the packages that matter."""
    packages = {name: _installed_version(name) for name in _PACKAGES}
    python, system, machine = platform.python_version(), platform.system(), platform.machine()
    if as_json:
        print_json({"python": python, "system": system, "machine": machine, "packages": packages})
        return 0
    print(f"python {python} on {system} {machine}")
    for name, found in packages.items():
        print(f"{name} {found or 'not installed'}")
    return 0


@doctor.command("config")
def config(
    file: Annotated[str, typer.Argument(help="reward.yaml, or recipe.yaml#reward.")],
    ask: Annotated[
        bool, typer.Option(help="Also send one real question to each endpoint of each judge.")
    ] = False,
    show_prompt: Annotated[
        bool, typer.Option("--show-prompt", help="Print each judge's requests instead of sending.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(help="With --show-prompt: about the first row of this file and its group."),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Check a reward configuration: every name, every key, every endpoint."""
    loaded = load_config(file)
    if show_prompt:
        prompts = judge_prompts(loaded, None if data is None else first_group(data))
        if as_json:
            print_json({"file": file, "prompts": prompts})
        else:
            show_prompts(prompts)
        return 0
    check_reward(loaded)
    lines = list(describe_judges(loaded, compile_plan(loaded)))
    if not as_json:
        judges = counted(len(loaded.judges) + len(loaded.panels), "judge")
        print(f"{file}: {counted(len(loaded.components), 'component')}, {judges}: fine")
        print("\n".join(lines), end="\n" * bool(lines))
    answers = ask_endpoints(loaded) if ask and loaded.judges else []
    if as_json:
        print_json(
            {
                "file": file,
                "components": list(loaded.components),
                "judges": [*loaded.judges, *loaded.panels],
                "descriptions": lines,
                "answers": [answer.as_json() for answer in answers],
            }
        )
    elif answers:
        show_answers(answers)
    return 1 if any(isinstance(answer.outcome, Abstain) for answer in answers) else 0


@doctor.command("verl", context_settings={"ignore_unknown_options": True})
def verl(
    overrides: Annotated[
        list[str] | None, typer.Argument(help="The key=value overrides of your own command.")
    ] = None,
    *,
    as_json: JsonOption = False,
) -> int:
    """Show what verl loaded of zerowait, and the traps in the overrides of your own command.

    Exit code 0 when verl has all of it and there is no trap, else 1.
    """
    from zerowait.verl.launch.user_command import command_problems

    traps = command_problems(overrides or [])
    with reserved_stdout(reserved=as_json):
        plugin = _check_plugin()
    if as_json:
        print_json({"traps": [str(trap) for trap in traps], **msgspec.structs.asdict(plugin)})
    else:
        for trap in traps:
            print(f"trap: {trap}")
        plugin.show()
    return 1 if traps or plugin.failed else 0


class _PluginCheck(msgspec.Struct, kw_only=True):
    """The state of zerowait's plug-in in the installed verl.

    Args:
        verl: the version; None where verl is not installed or not even tried.
        path: the folder it is imported from.
        problem: why the plug-in cannot be loaded; None where it can.
        warning: what may go wrong though it is loaded.
        registrations: each part of zerowait in verl, and whether it is there.
    """

    verl: str | None = None
    path: str | None = None
    problem: str | None = None
    warning: str | None = None
    registrations: list[Any] = []

    @property
    def failed(self) -> bool:
        """Whether verl lacks any part of zerowait."""
        return self.problem is not None or any(r.status == "failed" for r in self.registrations)

    def show(self) -> None:
        """Print one line for each finding."""
        if self.verl is not None:
            print(f"verl {self.verl} at {self.path}")
        for line in (self.warning, self.problem):
            if line is not None:
                print(line)
        for each in self.registrations:
            print(f"{each.what}: {each.status} {each.error}".rstrip())


def _check_plugin() -> _PluginCheck:
    """Import verl and zerowait's plug-in, as each process of a training does."""
    external = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto")
    if external not in ("auto", "") and "zerowait" not in external.split(","):
        keeps = f"trap: VERL_USE_EXTERNAL_PLUGINS={external} keeps verl from loading zerowait"
        return _PluginCheck(problem=keeps)
    os.environ.setdefault("VERL_PLATFORM", "cpu")
    try:
        import verl as host
    except ImportError as error:
        return _PluginCheck(
            problem=f"verl cannot be imported ({error}): pip install 'zerowait[verl]'"
        )
    from zerowait.verl import plugin

    found = _installed_version("verl") or "of unknown version"
    check = _PluginCheck(verl=found, path=str(Path(host.__file__ or "").parent))
    if not found.startswith(_VERL):
        check.warning = f"zerowait is made for and tested with verl {_VERL}x"
    points = importlib.metadata.entry_points(group="verl.plugins")
    if not any(point.name == "zerowait" for point in points):
        check.problem = (
            "the entry point verl.plugins/zerowait is not installed: pip install zerowait"
        )
        return check
    # Each process of a training imports only some of verl's registries; here all are needed
    try:
        plugin.import_registries()
    except ImportError as error:
        check.problem = f"verl's trainer cannot be imported ({error}): pip install 'zerowait[verl]'"
        return check
    check.registrations = list(plugin.registered())
    return check


def _installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
