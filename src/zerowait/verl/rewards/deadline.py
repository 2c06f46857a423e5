"""The reward of a sample that was not judged before the step's deadline (``redeem_s``)."""

from __future__ import annotations

from zerowait.config import RewardConfig
from zerowait.engine import metrics_of, policy_for
from zerowait.engine.plan import compile_plan
from zerowait.errors import JudgementError
from zerowait.types import Abstain, FailureKind, Outcome, Reward, Sample


def timed_out_reward(config: RewardConfig, sample: Sample, waited_s: float) -> Reward:
    """A reward without a value, in which every component abstains with the kind ``timeout``.

    No component's score is known by then, not even a rule's. So a policy ``{value: x}``, which
    replaces the score of one component, gives no number here: the row is treated as ``neutral``.

    Args:
        config: the reward configuration, whose failure policies apply.
        sample: the response that was not judged in time.
        waited_s: how long the step waited for it, for the message.

    Raises:
        JudgementError: the policy for ``timeout`` is ``raise``.
    """
    outcome = Abstain(FailureKind.TIMEOUT, f"not known {waited_s:g} s after the step needed it")
    components: dict[str, Outcome] = dict.fromkeys(config.components, outcome)
    policies = [policy_for(config.on_failure, name, outcome) for name in components]
    why = f"reward: {outcome.kind}: {outcome.detail}"
    if "raise" in policies:
        raise JudgementError(f"{sample.id}: {why} (on_failure says raise)")
    policy = next((name for name in ("drop_group", "mask") if name in policies), "neutral")
    metrics = metrics_of(components, compile_plan(config).terms)
    return Reward(None, components, metrics, policy, why)
