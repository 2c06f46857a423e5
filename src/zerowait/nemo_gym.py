"""The verification of a NeMo-Gym resources server, made by `verifier`.

With ``judged = zerowait.nemo_gym.verifier("reward.yaml")``, in a `SimpleResourcesServer`::

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), **await judged(body))

Where the reward abstains, the call fails. With ``on_abstain="mask"`` the reply has ``mask_sample``,
by which NeMo-Gym leaves the sample out. The trainer has to do so too: the reply's reward has to be
a number.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from zerowait.config import RewardConfig
from zerowait.errors import ConfigError
from zerowait.hub.process import (
    USUAL_GOLD_COLUMNS,
    ProcessHub,
    gold_column,
    is_number,
    number_or_error,
)
from zerowait.types import Abstain, FailureKind, Reward, Sample, content_text

_CALLS: Final = ("response", "responses_create_params")
_GOLD_COLUMNS: Final = (*USUAL_GOLD_COLUMNS, "expected_answer")


def verifier(
    config: str | Path | Mapping[str, Any] | RewardConfig,
    *,
    ground_truth: str | None = None,
    on_abstain: float | Literal["error", "mask"] = "error",
    url: str | None = None,
    token: str | None = None,
) -> Callable[[Any], Awaitable[dict[str, Any]]]:
    """A function of a verify request, awaited for the fields that a verify reply adds to it.

    Args:
        config: a path to a ``reward.yaml``, a mapping, or a `RewardConfig`.
        ground_truth: the request's field with the gold answer; None: the first that it has of
            ``ground_truth``, ``solution``, ``answer`` and ``expected_answer``.
        on_abstain: what a sample that abstained gets: ``error``, the function raises a
            `JudgementError`; ``mask``, ``mask_sample`` beside a reward of 0, for trainers that
            leave such samples out; or a number of your choice.
        url: a running ``zerowait serve`` with the same configuration, which all servers share;
            None: each process has an engine of its own.
        token: the value of the service's ``--token-env`` variable.

    Raises:
        ConfigError: the configuration or `on_abstain` is wrong.
    """
    if on_abstain != "mask" and not is_number(on_abstain) and on_abstain != "error":
        raise ConfigError(
            f"on_abstain must be 'error', 'mask' or a finite number, not {on_abstain!r}"
        )
    hub = ProcessHub(config, url=url, token=token)
    del config, token  # a traceback may show local variables

    async def verify(body: Any) -> dict[str, Any]:
        reward = await hub.score(_sample(body.model_dump(mode="json"), ground_truth))
        return _fields(reward, on_abstain)

    return verify


def _fields(reward: Reward, on_abstain: float | Literal["error", "mask"]) -> dict[str, Any]:
    """Of `BaseVerifyResponse`."""
    if reward.value is not None:
        return {"reward": reward.value, "mask_sample": False}
    masked = on_abstain == "mask"
    number = number_or_error(reward, 0.0 if on_abstain == "mask" else on_abstain)
    unparseable = any(
        isinstance(outcome, Abstain) and outcome.kind is FailureKind.UNPARSEABLE
        for outcome in reward.components.values()
    )
    return {
        "reward": number,
        "mask_sample": masked,
        "failure_kind": "judge_unparseable" if unparseable else "judge_failed",
        "failure_reason": reward.why,
    }


def _sample(request: dict[str, Any], ground_truth: str | None) -> Sample:
    fields = {key: each for key, each in request.items() if key not in _CALLS}
    column = gold_column(fields, ground_truth, "the request has no field", usual=_GOLD_COLUMNS)
    asked = request["responses_create_params"]["input"]
    return Sample(
        prompt=asked if isinstance(asked, str) else [each for each in asked if "role" in each],
        response=_last_text(request["response"]["output"]),
        ground_truth=None if column is None else fields[column],
        extra=fields,
    )


def _last_text(output: list[dict[str, Any]]) -> str:
    """The text of the last message of a Responses API output; empty without one."""
    said = [item for item in output if item.get("type") == "message"]
    return content_text(said[-1].get("content")) if said else ""
