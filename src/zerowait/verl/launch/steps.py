"""Number of steps of a training, by verl's two limits and the recipe's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zerowait.errors import ConfigError
from zerowait.verl.launch.hydra_syntax import flattened, read
from zerowait.verl.launch.recipe import Recipe

_STEPS: Final = "trainer.total_training_steps"
_EPOCHS: Final = "trainer.total_epochs"


def steps_of(recipe: Recipe, extra: Mapping[str, str], *, rows: int | None = None) -> int:
    """Number of training steps: ``trainer.total_training_steps``, or the recipe's ``steps``.

    If the command line removes that limit (null), the number of steps in the epochs.

    Args:
        recipe: the recipe.
        extra: overrides of verl's configuration from the command line.
        rows: number of rows in the training files; None if unknown.

    Raises:
        ConfigError: two limits contradict each other.
    """
    overrides = flattened({**recipe.verl, **extra})
    own = flattened(recipe.verl).get(_STEPS, recipe.algorithm.steps)
    if _number(own) != recipe.algorithm.steps:
        recipe.source.fail(
            ("verl",),
            f"says {_STEPS}: {own}, and algorithm.steps is {recipe.algorithm.steps}: leave one out",
        )
    epochs = _number(overrides.get(_EPOCHS))
    steps = _number(overrides.get(_STEPS, recipe.algorithm.steps))
    if steps is None:  # null, or what verl itself refuses
        in_all = _in_epochs(epochs or recipe.algorithm.steps, rows, recipe, overrides)
        return recipe.algorithm.steps if in_all is None else in_all
    in_epochs = _in_epochs(epochs, rows, recipe, overrides)
    if in_epochs is not None and in_epochs < steps:
        asked = _STEPS if flattened(extra).get(_STEPS) is not None else "algorithm.steps"
        raise ConfigError(
            f"{_EPOCHS}={epochs} ends the training after {in_epochs} steps, since the training "
            f"files have {rows} rows, and {asked} is {steps}: leave {_EPOCHS} out, which follows "
            f"the steps, or make {asked} {in_epochs}"
        )
    return steps


def _in_epochs(
    epochs: int | None, rows: int | None, recipe: Recipe, overrides: Mapping[str, Any]
) -> int | None:
    """The number of steps in these epochs; verl drops a last batch that is not full."""
    if epochs is None or rows is None:
        return None
    at_most = _number(overrides.get("data.train_max_samples"))
    if at_most is not None and at_most > 0:
        rows = min(rows, at_most)
    batch = _number(overrides.get("data.train_batch_size")) or recipe.data.batch
    return epochs * (rows // batch)


def _number(value: Any) -> int | None:
    number = read(value) if isinstance(value, str) else value
    return number if isinstance(number, int) and not isinstance(number, bool) else None
