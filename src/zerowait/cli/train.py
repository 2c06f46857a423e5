"""``zerowait train``: run verl's trainer with zerowait's rewards from one recipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from zerowait.cli.app import app
from zerowait.cli.preflight import check_recipe
from zerowait.engine import Progress, Stats
from zerowait.engine.progress import failures_text
from zerowait.errors import ConfigError, MissingExtraError, ZerowaitError, did_you_mean
from zerowait.loggers import check_installed
from zerowait.observe.report import run_stats
from zerowait.record import read_stats
from zerowait.record.resume import archive_record, rewind_record
from zerowait.verl.launch.command import (
    compose_arguments,
    device_of,
    has_driver,
    refuse_ineffective_overrides,
    setup_of,
    uses_fused_kernels,
)
from zerowait.verl.launch.composed_config import check_overrides, compose_yaml
from zerowait.verl.launch.hydra_syntax import flattened
from zerowait.verl.launch.launch_retry import run_with_retries
from zerowait.verl.launch.log import last_error, tail
from zerowait.verl.launch.overrides import environment
from zerowait.verl.launch.recipe import Recipe, load_recipe, parse_override
from zerowait.verl.launch.resume import resumed_step, validates_first
from zerowait.verl.launch.steps import steps_of
from zerowait.verl.launch.trainer_process import ending, run_trainer
from zerowait.verl.launch.weight_socket import weight_socket
from zerowait.verl.rewards.streaming_rules import check_rewards, reward_workers

_OPTIONS: Final = ("--dry-run", "--output", "--seed", "--help")


@app.command(context_settings={"ignore_unknown_options": True})
def train(
    recipe: Annotated[Path, typer.Argument(help="The recipe's YAML.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="verl's own configuration, as key=value.")
    ] = None,
    only_print: Annotated[
        bool, typer.Option("--dry-run", help="Print verl's composed configuration and stop.")
    ] = False,
    output: Annotated[Path | None, typer.Option(help="The run's folder.")] = None,
    seed: Annotated[int | None, typer.Option(help="Overrides the recipe's seed.")] = None,
) -> int:
    """Train with GRPO or another estimator of verl, as configured in RECIPE.

    The same command runs on a CPU, on one GPU and on a Ray cluster.
    Exit code 2 for an error before the start, 1 when the training failed.
    """
    _refuse_options(overrides or [])
    extra = dict(parse_override(text) for text in overrides or [])
    loaded = load_recipe(recipe, output=output, seed=seed)
    _needs_verl()
    # Of these loggers zerowait runs one under verl; the rest is left to verl's own
    check_installed({"otel"} & set(loaded.reward.log_to.wanted))
    refuse_ineffective_overrides(loaded, extra)
    workers = check_configuration(loaded, extra)
    check_recipe(loaded, extra, connect=not only_print)
    device = device_of(loaded, runs_here=not only_print)
    fused, why = uses_fused_kernels(loaded, device, extra)
    if why:
        _print_message(
            "log-probabilities will be computed one token at a time, which makes steps several "
            f"times slower, because flash-attn is not used, and neither are fused kernels: {why}. "
            "Install flash-attn and write model: {flash_attention: true}"
        )
    setup = setup_of(loaded, device, reward_workers=workers, fused_kernels=fused)
    command = compose_arguments(loaded, setup, extra)
    if os.environ.get("RAY_ADDRESS") and "+ray_kwargs.ray_init.address=local" in command:
        _print_message(
            "RAY_ADDRESS is set and not used: this training starts a Ray of its own. To join that "
            "cluster write resources: {ray_address: auto}"
        )
    if only_print:
        print(compose_yaml(command))
        return 0
    folder = Path(loaded.output)
    steps = steps_of(loaded, extra)
    before = resumed_step(command) or 0
    with (
        weight_socket(setup),
        Progress(
            steps,
            shown=True,
            what=f"training {loaded.name}",
            stats=lambda: _stats_of(folder),
            done=min(before, steps),
        ) as bar,
    ):
        begin_record(folder, command)
        done = before
        messages: list[str] = []

        def show(message: str) -> None:
            messages.append(message)
            _print_message(message)

        def on_step(step: int) -> None:
            nonlocal done
            bar.advance(max(0, step - done))
            done = max(done, step)

        code = run_with_retries(
            lambda: run_trainer(
                command, env=environment(setup), folder=folder, on_step=on_step, tell=show
            ),
            folder=folder,
            has_begun=lambda: done > before,
            tell=_print_message,
        )
    if code != 0:
        print(tail(folder), file=sys.stderr)
        for message in messages[-1:]:  # repeated below the end of the log, where it is read
            _print_message(message)
        error = last_error(folder)
        why = f": {error}" if error else ""
        _print_message(f"verl {ending(code)}{why}; {folder}/train.log")
        return 1
    failures = failures_text(Stats(), _stats_of(folder))
    if failures:
        print(f"{folder}: {failures}")
    print(f"{folder}: {_outcome(done, steps, before=before)}; zerowait report {folder}")
    return 0


def _stats_of(folder: Path) -> Stats:
    """The latest recorded statistics of the run; all 0 where none can be read."""
    try:
        return msgspec.convert(run_stats(read_stats(folder)), Stats)
    except (ZerowaitError, OSError, msgspec.ValidationError):  # a picture of the run, no part of it
        return Stats()


def _print_message(message: str) -> None:
    print(f"zerowait: {message}", file=sys.stderr)


def _outcome(done: int, steps: int, *, before: int) -> str:
    """How far the training came, by the last step on verl's console.

    Args:
        done: the last step.
        steps: how many were asked for.
        before: the step of the checkpoint that the run went on from.
    """
    if before >= steps:
        return f"no step left of {steps}, since the checkpoint is of step {before}"
    if done >= steps:
        return f"{done} steps"
    if done > before:
        return f"ended after step {done}, and {steps} were asked for: the data or the epochs ended"
    return "verl ended, and its console reports no step of this run"


def _refuse_options(overrides: Sequence[str]) -> None:
    """Raise a ConfigError for an unknown option, since no key of verl begins with a dash."""
    for text in overrides:
        if text.startswith("-"):
            hint = did_you_mean(text.partition("=")[0], _OPTIONS)
            raise ConfigError(f"{text}: zerowait train has no such option{hint}")


def check_configuration(recipe: Recipe, extra: Mapping[str, str]) -> int:
    """The number of reward workers that the training's rows need.

    The configuration has the same keys on every device, so torch need not be loaded to find one.

    Raises:
        ConfigError: an override does not fit verl's configuration, or the trainer or its reward
            workers would refuse it when they start.
    """
    device = recipe.resources.device
    if device == "auto":
        device = "cuda" if has_driver() else "cpu"
    command = compose_arguments(recipe, setup_of(recipe, device), extra)
    config = check_overrides(command, extra, recipe)
    needed = reward_workers(recipe.reward, config)
    if recipe.resources.reward_workers is None and not _sets_reward_workers(recipe, extra):
        config.reward.num_workers = needed
    check_rewards(config)
    return needed


def _sets_reward_workers(recipe: Recipe, extra: Mapping[str, str]) -> bool:
    given = flattened({**recipe.verl, **extra})
    return "reward.num_workers" in {key.lstrip("+") for key in given}


def _needs_verl() -> None:
    """Raise unless verl is installed and will load zerowait as its plug-in."""
    if find_spec("verl") is None or find_spec("ray") is None:
        raise MissingExtraError("Training", extra="verl")
    if not any(point.name == "zerowait" for point in entry_points(group="verl.plugins")):
        raise ConfigError(
            "verl cannot find zerowait: the entry point verl.plugins/zerowait is not installed; "
            "install the package (pip install zerowait), not only its source"
        )
    allowed = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto").strip()
    if allowed not in ("", "auto") and "zerowait" not in allowed.split(","):
        raise ConfigError(
            f"VERL_USE_EXTERNAL_PLUGINS={allowed} keeps verl from loading zerowait: unset it, or "
            "add zerowait to it"
        )


def begin_record(folder: Path, command: list[str]) -> None:
    """Continue the record of the run that verl resumes, or begin a new one."""
    done = resumed_step(command)
    if done is None:
        archive_record(folder)
    else:
        print(f"{folder}: resumes after step {done}")
        rewind_record(folder, step=done, validates=validates_first(command))
