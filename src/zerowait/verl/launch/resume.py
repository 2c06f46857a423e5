"""Which checkpoint verl will resume from, read from its command line before it is started."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from zerowait.verl.launch.hydra_syntax import flattened, read

_TRACKER: Final = "latest_checkpointed_iteration.txt"
_STEP: Final = re.compile(r"global_step_(\d+)/?$")


def resumed_step(command: Iterable[str]) -> int | None:
    """The step of the checkpoint that verl 0.9.1 will load; None if it starts from step 0.

    Args:
        command: the trainer's arguments, ``trainer.default_local_dir`` among them.
    """
    trainer = _section(command, "trainer.")
    mode = trainer.get("resume_mode", "auto")
    if mode == "resume_path":
        found = _STEP.search(str(trainer.get("resume_from_path")))
        return int(found[1]) if found else None
    if mode != "auto" or trainer.get("default_local_dir") is None:
        return None
    folder = Path(str(trainer["default_local_dir"]))
    try:
        step = int((folder / _TRACKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return step if (folder / f"global_step_{step}").exists() else None


def validates_first(command: Iterable[str]) -> bool:
    """Whether the run starts with a validation, as is verl's default."""
    return _section(command, "trainer.").get("val_before_train") is not False


def _section(command: Iterable[str], prefix: str) -> dict[str, Any]:
    given = dict(argument.split("=", 1) for argument in command if "=" in argument)
    return {
        key.removeprefix(prefix): read(value) if isinstance(value, str) else value
        for key, value in flattened(given).items()
        if key.startswith(prefix)
    }
