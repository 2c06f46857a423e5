"""``zerowait doctor``: what is wrong with an installation, a configuration, or a verl plug-in."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Annotated

import typer

from zerowait.cli.app import app
from zerowait.cli.asking import ask_judges, show_answers
from zerowait.cli.judges import described
from zerowait.cli.preflight import check_reward
from zerowait.cli.prompts import show_prompts
from zerowait.cli.rows import first_group
from zerowait.config import load_config
from zerowait.engine.plan import compile_plan
from zerowait.types import Abstain

doctor = typer.Typer(help="Say what is wrong, in one line each.", no_args_is_help=True)
app.add_typer(doctor, name="doctor")

_VERL = "0.9."
_PACKAGES = ("zerowait", "aiohttp", "msgspec", "uvloop", "torch", "verl", "ray", "transformers")


@doctor.command("install")
def install() -> int:
    """Show what is installed."""
    print(f"python {platform.python_version()} on {platform.system()} {platform.machine()}")
    for name in _PACKAGES:
        print(f"{name} {_version(name)}")
    return 0


@doctor.command("config")
def config(
    file: Annotated[str, typer.Argument(help="reward.yaml, or recipe.yaml#reward.")],
    ask: Annotated[
        bool, typer.Option(help="Also ask each endpoint of each judge one real question.")
    ] = False,
    show_prompt: Annotated[
        bool, typer.Option("--show-prompt", help="Print what each judge would read, and end.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(help="With --show-prompt: the first row of this file, with its siblings."),
    ] = None,
) -> int:
    """Check a reward configuration: every name, every key, every endpoint."""
    loaded = load_config(file)
    if show_prompt:
        show_prompts(loaded, None if data is None else first_group(data))
        return 0
    check_reward(loaded)
    judges = len(loaded.judges) + len(loaded.panels)
    print(f"{file}: {len(loaded.components)} components, {judges} judges: fine")
    for line in described(loaded, compile_plan(loaded)):
        print(line)
    if not ask or not loaded.judges:
        return 0
    answers = ask_judges(loaded)
    show_answers(answers)
    return 1 if any(isinstance(answer.outcome, Abstain) for answer in answers) else 0


@doctor.command("verl", context_settings={"ignore_unknown_options": True})
def verl(
    overrides: Annotated[
        list[str] | None, typer.Argument(help="The key=value overrides of your own command.")
    ] = None,
) -> int:
    """Prove what verl loaded of us, and name what is wrong or missing in a command of your own."""
    from zerowait.verl.launch.user_command import command_problems

    findings = command_problems(overrides or [])
    for finding in findings:
        print(f"trap: {finding}")
    failures = _plugin()
    return 1 if findings or failures else 0


def _plugin() -> int:
    """How many things keep verl from having us; prints each, and each registration."""
    external = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto")
    if external not in ("auto", "") and "zerowait" not in external.split(","):
        print(f"trap: VERL_USE_EXTERNAL_PLUGINS={external} keeps verl from loading zerowait")
        return 1
    os.environ.setdefault("VERL_PLATFORM", "cpu")
    try:
        import verl as host
    except ImportError as error:
        print(f"verl cannot be imported ({error}): pip install 'zerowait[verl]'", file=sys.stderr)
        return 1
    from zerowait.verl import plugin

    found = _version("verl")
    print(f"verl {found} at {Path(host.__file__ or '').parent}")
    if not found.startswith(_VERL):
        print(f"zerowait is made for and tested with verl {_VERL}x")
    if not _entry_point():
        print("the entry point verl.plugins/zerowait is not installed: pip install zerowait")
        return 1
    # each of verl's registries is imported by some of a run's processes only, and ours with it
    try:
        plugin.import_registries()
    except ImportError as error:
        print(f"verl's trainer cannot be imported ({error}): pip install 'zerowait[verl]'")
        return 1
    failures = 0
    for registration in plugin.registered():
        failures += registration.status == "failed"
        print(f"{registration.what}: {registration.status} {registration.error}".rstrip())
    return failures


def _entry_point() -> bool:
    points = importlib.metadata.entry_points(group="verl.plugins")
    return any(point.name == "zerowait" for point in points)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
