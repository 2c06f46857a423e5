"""From a recipe to verl's own trainer: the overrides, the environment, the process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from zerowait.errors import ConfigError
from zerowait.verl.ignored_keys import examine
from zerowait.verl.recipe import Recipe, Verbatim

LOG = "train.log"
_STEP = re.compile(r"\bstep:(\d+) - ")
_KILL_AFTER_S = 20.0


def device_of(recipe: Recipe) -> str:
    """``cuda`` or ``cpu``: as the recipe says, or what this machine has."""
    if recipe.resources.device != "auto":
        return recipe.resources.device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def compose_overrides(recipe: Recipe, device: str, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Every override of verl's configuration: ours, then the recipe's, then `extra`; later wins.

    Raises:
        ConfigError: an override would be ignored by verl, or would bypass the reward manager.
    """
    from zerowait.verl.overrides import base_overrides

    chosen = {**recipe.verl, **extra}
    findings = examine(chosen)
    if findings:
        raise ConfigError("; ".join(str(finding) for finding in findings))
    overrides = base_overrides(recipe, device=device)
    for key, value in chosen.items():
        bare = key.lstrip("+")
        for ours in (bare, f"+{bare}", f"++{bare}"):
            overrides.pop(ours, None)
        overrides[key] = value
    return overrides


def hydra_arguments(overrides: Mapping[str, Any]) -> list[str]:
    """The overrides as Hydra's command line wants them.

    >>> hydra_arguments({"trainer.logger": ["console"], "a.b": None, "c": True, "d": "x y"})
    ['trainer.logger=[console]', 'a.b=null', 'c=True', "d='x y'"]
    """
    return [f"{key}={_hydra(value)}" for key, value in overrides.items()]


def environment(device: str, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The trainer's environment: what verl's processes need, without losing what the user set."""
    env = {
        "HYDRA_FULL_ERROR": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "RAY_DEDUP_LOGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        **base,
    }
    if device == "cpu":
        env["VERL_PLATFORM"] = "cpu"
    return env


def dry_run(overrides: Mapping[str, Any]) -> str:
    """The whole configuration that the trainer would get, as YAML.

    Raises:
        ConfigError: verl's schema has no such key; names it.
    """
    import verl
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf

    folder = Path(verl.__file__ or "").parent / "trainer" / "config"
    try:
        with initialize_config_dir(config_dir=str(folder), version_base=None):
            composed = compose("ppo_trainer", overrides=hydra_arguments(overrides))
    except HydraException as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise ConfigError(f"verl's configuration: {reason}") from None
    text: str = OmegaConf.to_yaml(composed)
    return text


def run_trainer(
    overrides: Mapping[str, Any],
    *,
    device: str,
    folder: Path,
    on_step: Callable[[int], None],
) -> int:
    """The exit code of verl's trainer; its output goes to ``train.log`` in `folder`.

    `on_step` is called with each finished step's number. An interrupt is passed on to the trainer,
    which gets 20 s to end.
    """
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *hydra_arguments(overrides)]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOG).open("w", encoding="utf-8") as log:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter, no shell
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment(device),
            start_new_session=True,  # so that an interrupt reaches it once, through us
        )
        try:
            assert process.stdout is not None  # noqa: S101 - PIPE
            for step in _steps(process.stdout, log.write):
                on_step(step)
            return process.wait()
        finally:
            _end(process)


def tail(folder: Path, lines: int = 40) -> str:
    """The end of the trainer's log."""
    try:
        text = (folder / LOG).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def _steps(lines: Iterable[str], write: Callable[[str], Any]) -> Iterable[int]:
    for line in lines:
        write(line)
        found = _STEP.search(line)
        if found:
            yield int(found.group(1))


def _end(process: subprocess.Popen[str]) -> None:
    """Ends the trainer and everything it started, if it is still there."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(_KILL_AFTER_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _hydra(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_hydra(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_hydra(item) for item in value) + "]"
    if isinstance(value, Verbatim):
        return str(value)
    if isinstance(value, str) and not re.fullmatch(r"[\w./:@#+\-]*", value):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return str(value)
