"""A reward configuration from environment variables: a rule, or a monitor of the reasoning."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from zerowait.errors import ConfigError
from zerowait.verl.batch.settings import KEY_VARIABLE, URL_VARIABLE

ON: Final = "TRAIN_WITH_MONITOR"
CACHE_VARIABLE: Final = "MONITOR_CACHE"
MODEL_VARIABLE: Final = "MONITOR_MODEL_NAME"
CORRECT, WRONG = "MONITOR_CORRECT_REWARD", "MONITOR_WRONG_REWARD"
REBALANCE: Final = "REBALANCE_MONITOR_REWARD"
VARIABLES: Final = (
    ON,
    CACHE_VARIABLE,
    MODEL_VARIABLE,
    CORRECT,
    WRONG,
    REBALANCE,
    KEY_VARIABLE,
    URL_VARIABLE,
)

_URL = "https://api.openai.com/v1"  # the default of all clients of that API
_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"", "0", "false", "no", "off"})


def reward_in(environ: Mapping[str, str], *, on_failure: Any = "neutral") -> dict[str, Any]:
    """The content of the ``reward.yaml`` that these environment variables stand for.

    Without ``TRAIN_WITH_MONITOR`` the reward is the score of the rule for the data source. With it,
    the reward follows from the monitor's prediction, and the rule is only recorded.

    Args:
        environ: environment variables.
        on_failure: the failure policy.

    Raises:
        ConfigError: a variable is missing or is not what it has to be; names it.

    >>> reward_in({})["components"]
    {'answer': {'scorer': 'by_data_source', 'weight': 1.0}}
    """
    rule = {"scorer": "by_data_source", "weight": 1.0}
    if not _switch(environ, ON, default="false"):
        return {"components": {"answer": rule}, "on_failure": on_failure}
    if not environ.get(KEY_VARIABLE, "").strip():
        _fail(KEY_VARIABLE, f"is not set, and {ON} needs the key of its judge there")
    tree: dict[str, Any] = {
        "components": {"answer": rule | {"weight": 0.0}, "monitor": {"judge": "monitor"}},
        "judges": {"monitor": _judge(environ)},
        "on_failure": on_failure,
    }
    return tree if _switch(environ, CACHE_VARIABLE, default="true") else tree | {"cache": "off"}


def _judge(environ: Mapping[str, str]) -> dict[str, Any]:
    model = environ.get(MODEL_VARIABLE, "").strip()
    if not model:
        _fail(MODEL_VARIABLE, f"is not set, and {ON} needs the name of its judge's model there")
    monitor: dict[str, Any] = {
        "correct_reward": _number(environ, CORRECT, -1.0),
        "wrong_reward": _number(environ, WRONG, 1.0),
    }
    if (share := _share(environ)) is not None:
        monitor["rebalance"] = {"true": share}
    url = environ.get(URL_VARIABLE, "").strip() or _URL
    return {
        "endpoints": [{"base_url": url, "model": model, "api_key_env": KEY_VARIABLE}],
        "rubric": "monitor",
        "verdict": {"choice": ["yes", "no"]},
        "monitor": monitor,
    }


def _switch(environ: Mapping[str, str], name: str, *, default: str) -> bool:
    word = environ.get(name, default).strip().lower()
    if word not in _YES | _NO:
        _fail(name, f"is {environ[name]!r}; it has to be true or false")
    return word in _YES


def _number(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name, "").strip()
    try:
        number = float(text) if text else default
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        _fail(name, f"is {text!r}; it has to be a number")
    return number


def _share(environ: Mapping[str, str]) -> float | None:
    """The share of samples whose property is true, in (0, 1), as given by the user.

    It is not counted from batches, or a reward would depend on the others in its batch.
    """
    text = environ.get(REBALANCE, "").strip().lower()
    if text in _NO:
        return None
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 < share < 1:
        _fail(
            REBALANCE,
            f"is {text!r}; it has to be the share of the samples whose property holds in the data, "
            "between 0 and 1 such as 0.7, or false",
        )
    return share


def _fail(name: str, problem: str) -> NoReturn:
    raise ConfigError(f"the environment variable {name} {problem}")
