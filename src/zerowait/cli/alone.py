"""One judge of a configuration, asked without the rest of it."""

from __future__ import annotations

import msgspec

from zerowait.config import Cache, FailurePolicy, JudgeComponent, RewardConfig
from zerowait.errors import did_you_mean

COMPONENT = "verdict"


def judge_names(config: RewardConfig, wanted: str | None) -> list[str]:
    """The judge that is `wanted`, or all of them.

    Raises:
        ConfigError: there is no such judge, or none at all.
    """
    if not config.judges:
        config.fail(("judges",), "names none, so there is none to ask")
    if wanted is None:
        return list(config.judges)
    if wanted in config.panels:
        members = ", ".join(config.panels[wanted].members)
        config.fail(("judges", wanted), f"is a panel: ask its members, {members}")
    if wanted not in config.judges:
        config.fail(("judges",), f"has no {wanted!r}{did_you_mean(wanted, config.judges)}")
    return [wanted]


def alone(config: RewardConfig, name: str, *, endpoint: int | None = None) -> RewardConfig:
    """A configuration whose only component, `COMPONENT`, is the verdict of the judge `name`.

    Nothing comes from a cache or goes there, no gate is in the way, and a failure is an abstention.
    Traffic limits, prices and the budget stay.

    Args:
        config: the whole.
        name: of the judge.
        endpoint: ask only this one, by its index.
    """
    judge = msgspec.structs.replace(config.judges[name], anchors=None)
    if endpoint is not None:
        judge = msgspec.structs.replace(judge, endpoints=[judge.endpoints[endpoint]])
    return msgspec.structs.replace(
        config,
        components={COMPONENT: JudgeComponent(judge=name)},
        judges={name: judge},
        panels={},
        cache=Cache(path=None),
        on_failure=FailurePolicy(),
    )
