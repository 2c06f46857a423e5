"""Turn rewards: each assistant turn of an episode is judged, as if the episode had ended with it.

The judge of a turn is shown what came before the turn and the turn itself, and nothing that came
after it. The component's outcome is one number made of all verdicts; ``Reward.turns`` keeps each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from zerowait.config import Aggregate
from zerowait.engine.combine import Term
from zerowait.judge.pooling import dominating
from zerowait.types import (
    Abstain,
    Message,
    Outcome,
    Reward,
    Sample,
    Score,
    Skipped,
    TurnReward,
    assistant_turns,
    content_text,
)

JUDGED_TURNS: Final = "turns"
"""In a score's ``detail["measured"]``: how many turns were judged."""


def samples_of_turns(sample: Sample) -> list[Sample]:
    """For each assistant turn, the sample as it was when the turn ended.

    A response that is text, without messages, is one turn.

    >>> asked = [{"role": "assistant", "content": "Where?"}, {"role": "tool", "content": "Paris"}]
    >>> episode = Sample("Capital?", [*asked, {"role": "assistant", "content": "Paris."}])
    >>> [(turn.response, len(turn.response_messages)) for turn in samples_of_turns(episode)]
    [('Where?', 1), ('Paris.', 3)]
    """
    messages = sample.response_messages
    own = assistant_turns(messages or ())
    if messages is None or not own:
        return [sample]
    return [
        msgspec.structs.replace(
            sample,
            response=content_text(messages[at].get("content")),
            response_messages=messages[: at + 1],
        )
        for at in own
    ]


def outcome_of_turns(outcomes: Sequence[Outcome], aggregate: Aggregate) -> Outcome:
    """One outcome of the turns' outcomes; an abstention when one of the turns abstained.

    An episode is never worth less, or more, because a verdict on one of its turns is missing.

    Args:
        outcomes: of the turns, in order; at least one.
        aggregate: the number that their values become.

    >>> outcome_of_turns([Score(1.0), Score(0.5)], "mean").value
    0.75
    >>> outcome_of_turns([Score(1.0), Abstain("timeout", "no answer in 60 s")], "mean").detail
    '1 of 2 turns were judged; turn 2: no answer in 60 s'
    """
    scores = [outcome for outcome in outcomes if isinstance(outcome, Score)]
    if len(scores) < len(outcomes):
        return _not_judged(outcomes, len(scores))
    values = [score.value for score in scores]
    return Score(
        _aggregated(values, aggregate),
        scores[-1].why if len(scores) == 1 else "",
        {
            "turns": [score.detail.get("verdict", score.value) for score in scores],
            "measured": _means(scores) | {JUDGED_TURNS: float(len(scores))},
        },
    )


def with_turns(
    reward: Reward, sample: Sample, turns: Mapping[str, Sequence[Outcome]], terms: Sequence[Term]
) -> Reward:
    """The reward with what each turn earned.

    Args:
        reward: of the whole sample.
        sample: whose turns were judged.
        turns: by component, the outcomes on the turns; a component that was skipped has none.
        terms: the components that judge turns.
    """
    if not turns:
        return reward
    messages = sample.response_messages or ()
    own = assistant_turns(messages)
    return msgspec.structs.replace(
        reward,
        turns=tuple(
            _turn_reward(
                {term.name: turns[term.name][number] for term in terms if term.name in turns},
                terms,
                message=own[number] if own else 0,
                token=_last_token(messages[own[number]]) if own else None,
            )
            for number in range(len(own) or 1)
        ),
    )


def _turn_reward(
    components: dict[str, Outcome], terms: Sequence[Term], *, message: int, token: int | None
) -> TurnReward:
    counting = [term for term in terms if term.factor != 0 and term.name in components]
    values = [
        term.factor * outcome.value
        for term in counting
        if isinstance(outcome := components[term.name], Score)
    ]
    value = math.fsum(values) if len(values) == len(counting) else None
    return TurnReward(value, components, message, token)


def _last_token(message: Message) -> int | None:
    """Index of the message's last token in the response, where its trainer said it."""
    token = message.get("last_token")
    return token if isinstance(token, int) else None


def _not_judged(outcomes: Sequence[Outcome], judged: int) -> Outcome:
    """Why there is no number: the most frequent failure, or that the judge was not wanted."""
    failures = [outcome for outcome in outcomes if isinstance(outcome, Abstain)]
    if not failures:
        return next(outcome for outcome in outcomes if isinstance(outcome, Skipped))
    kind = dominating(failures)
    number, first = next(
        (number, outcome)
        for number, outcome in enumerate(outcomes, start=1)
        if isinstance(outcome, Abstain) and outcome.kind is kind
    )
    return Abstain(
        kind, f"{judged} of {len(outcomes)} turns were judged; turn {number}: {first.detail}"
    )


def _aggregated(values: Sequence[float], aggregate: Aggregate) -> float:
    match aggregate:
        case "mean":
            return math.fsum(values) / len(values)
        case "sum":
            return math.fsum(values)
        case "last":
            return values[-1]
        case "min":
            return min(values)


def _means(scores: Sequence[Score]) -> dict[str, float]:
    """The mean over the turns of each number that all of them measured."""
    measured = [score.detail.get("measured", {}) for score in scores]
    return {
        name: math.fsum(each[name] for each in measured) / len(measured)
        for name in measured[0]
        if all(each.get(name) is not None for each in measured)
    }
