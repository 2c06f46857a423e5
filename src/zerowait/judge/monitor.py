"""A monitor reads a policy's reasoning and predicts something about it that is already known.

The policy is paid for how well it can be read: by default it loses when the prediction is right
(its reasoning gives the property away) and gains when it is wrong.
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
    # text and tags by turns
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
    """`sample` with its reasoning as the response, and nothing else that a rubric could show."""
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
    """What a prediction (1 is yes) is worth; an abstention stays one.

    ``measured["predicted"]`` is 1 for a predicted yes, ``measured["right"]`` 1 for a right one.

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
    return msgspec.structs.replace(outcome, value=_worth(monitor, right, truth), detail=detail)


def monitor_bounds(monitor: Monitor) -> tuple[float, float]:
    """The least and the greatest reward.

    >>> monitor_bounds(Monitor())
    (-1.0, 1.0)
    """
    cases = [(right, truth) for right in (True, False) for truth in (True, False)]
    worths = [_worth(monitor, right, truth) for right, truth in cases]
    return min(worths), max(worths)


def _worth(monitor: Monitor, right: bool, truth: bool) -> float:  # noqa: FBT001 - two facts
    reward = monitor.correct_reward if right else monitor.wrong_reward
    share = 1.0 if monitor.rebalance is None else monitor.rebalance.share(truth=truth)
    return reward / share
