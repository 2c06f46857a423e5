"""Chain-of-thought monitor: a judge that predicts a known property from a policy's reasoning.

The policy is rewarded by whether the prediction is right: by default it loses when it is (its
reasoning gives the property away) and gains when it is wrong.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from zerowait.config.judgement import Monitor
from zerowait.types import Abstain, FailureKind, Outcome, Sample, Score

MEASURES = ("predicted", "right")
_DEFAULT_TAG = "think"
_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def reasoning(response: str, monitor: Monitor) -> str:
    r"""The part of `response` that the monitor sees; empty where there is none.

    Within tags: all blocks, a last one that never ends included; what stands before a closing tag
    that nothing opened is a block too, since chat templates often open it in the prompt.

    >>> reasoning("<think>2+2 is 4</think>\nIt is 4.", Monitor())
    '2+2 is 4'
    >>> reasoning("2+2 is 4, so <answer>4</answer>", Monitor(before="<answer>"))
    '2+2 is 4, so'
    """
    if monitor.before is not None:
        before, found, _ = response.rpartition(monitor.before)
        return (before if found else response).strip()
    tag = re.escape(monitor.within or _DEFAULT_TAG)
    # text and tags alternate
    pieces = re.split(rf"<(/?){tag}>", response, flags=re.IGNORECASE)
    texts, closings = pieces[::2], pieces[1::2]
    inside = bool(closings) and closings[0] == "/"
    blocks = []
    for text, closing in zip(texts, [*closings, "/"], strict=True):
        if inside and text.strip():
            blocks.append(text.strip())
        inside = not closing
    return "\n\n".join(blocks)


def seen_by(sample: Sample, monitor: Monitor) -> Sample:
    """`sample` with its reasoning as the response, and nothing else that a rubric shows."""
    return Sample("", reasoning(sample.response, monitor))


def truth_of(sample: Sample, monitor: Monitor) -> bool | Abstain:
    """Whether the property holds, or Abstain(bad_input) where the sample does not say."""
    value: Any = sample.extra.get(monitor.truth)
    if hasattr(value, "tolist"):  # numpy's scalars, which data frames bring
        value = value.tolist()
    if isinstance(value, str):
        value = _WORDS.get(value.strip().casefold(), value)
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    said = "is missing" if value is None else f"is {value!r}, neither true nor false"
    return Abstain(FailureKind.BAD_INPUT, f"extra.{monitor.truth} {said}; the monitor needs it")


def monitored(outcome: Outcome, monitor: Monitor, *, truth: bool) -> Outcome:
    """The reward for a monitor's prediction; an abstention is returned unchanged.

    ``measured["predicted"]`` is 1 for a predicted yes, ``measured["right"]`` 1 for a right one.

    Args:
        outcome: of the judge; a value of 1 predicts yes.
        monitor: the rewards for a right and a wrong prediction.
        truth: whether the property holds.

    >>> monitored(Score(1.0), Monitor(), truth=True).value
    -1.0
    """
    if not isinstance(outcome, Score):
        return outcome
    predicted = outcome.value == 1.0
    right = predicted == truth
    measured = dict(outcome.detail.get("measured", {}))
    measured |= {"predicted": float(predicted), "right": float(right)}
    detail = outcome.detail | {"truth": truth, "right": right, "measured": measured}
    return msgspec.structs.replace(outcome, value=_reward(monitor, right, truth), detail=detail)


def monitor_bounds(monitor: Monitor) -> tuple[float, float]:
    """The least and the greatest reward.

    >>> monitor_bounds(Monitor())
    (-1.0, 1.0)
    """
    cases = [(right, truth) for right in (True, False) for truth in (True, False)]
    rewards = [_reward(monitor, right, truth) for right, truth in cases]
    return min(rewards), max(rewards)


def _reward(monitor: Monitor, right: bool, truth: bool) -> float:  # noqa: FBT001 - two facts
    reward = monitor.correct_reward if right else monitor.wrong_reward
    share = 1.0 if monitor.rebalance is None else monitor.rebalance.share(truth=truth)
    return reward / share
