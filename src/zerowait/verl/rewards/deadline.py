"""The reward of a response that was not judged in the time that a step waits."""

from __future__ import annotations

from zerowait.config import RewardConfig
from zerowait.engine import metrics_of, policy_for
from zerowait.engine.plan import compile_plan
from zerowait.errors import JudgementError
from zerowait.types import Abstain, FailureKind, Outcome, Reward, Sample


def late_reward(config: RewardConfig, sample: Sample, waited_s: float) -> Reward:
    """An abstention with the kind ``timeout`` in every component, and the policy for that kind.

    What the components would have said is not known, not even that of a rule. So a policy
    ``{value: x}``, which stands for one component, makes no number here: the row is neutral.

    Raises:
        JudgementError: the policy is ``raise``.
    """
    outcome = Abstain(FailureKind.TIMEOUT, f"not known {waited_s:g} s after the step needed it")
    components: dict[str, Outcome] = dict.fromkeys(config.components, outcome)
    chosen = [policy_for(config.on_failure, name, outcome) for name in components]
    why = f"reward: {outcome.kind}: {outcome.detail}"
    if "raise" in chosen:
        raise JudgementError(f"{sample.id}: {why} (on_failure says raise)")
    policy = next((name for name in ("drop_group", "mask") if name in chosen), "neutral")
    metrics = metrics_of(components, compile_plan(config).terms)
    return Reward(None, components, metrics, policy, why)
