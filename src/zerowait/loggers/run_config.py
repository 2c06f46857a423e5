"""What of a reward configuration a run's page shows: names and numbers, never an address or key."""

from __future__ import annotations

from typing import Any

from zerowait.config import JudgeComponent, RewardConfig, ShapeComponent


def shown_config(config: RewardConfig) -> dict[str, str | float]:
    """By dotted name, the components with their weights, and the judges' models and rubrics.

    Everything that is shown is listed here, so that no setting is shown by accident.
    """
    shown: dict[str, str | float] = {}
    for name, component in config.components.items():
        at = f"components.{name}"
        if isinstance(component, ShapeComponent):
            shown |= {f"{at}.shape": component.shape, f"{at}.scale": component.scale}
        elif isinstance(component, JudgeComponent):
            shown |= {f"{at}.judge": component.judge, f"{at}.weight": component.weight}
        else:
            shown |= {f"{at}.scorer": component.scorer, f"{at}.weight": component.weight}
    for name, judge in config.judges.items():
        at = f"judges.{name}"
        models = dict.fromkeys(endpoint.model for endpoint in judge.endpoints)
        settings: dict[str, Any] = {
            "model": ", ".join(models),
            "rubric": judge.rubric,
            "temperature": judge.temperature,
            "max_tokens": judge.max_tokens,
        }
        shown |= {f"{at}.{key}": value for key, value in settings.items()}
    return shown
