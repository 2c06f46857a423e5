"""Why a reward fell: properties of `likely_causes`, a pure function of two windows of a run."""

import math
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis.strategies import (
    builds,
    dictionaries,
    floats,
    integers,
    just,
    lists,
    none,
    sampled_from,
    tuples,
)

from zerowait.observe.causes import (
    ComponentFigures,
    DataSource,
    RewardWindow,
    change_in_words,
    changes,
    fall_z,
    has_fallen,
    likely_causes,
    worse_parts,
)

values = floats(-10, 10, allow_nan=False)
counts = integers(0, 300)
parts = builds(
    ComponentFigures,
    scored=counts,
    abstained=counts,
    mean=values,
    sd=floats(0, 5),
    judged=sampled_from([True, False]),
    kinds=dictionaries(sampled_from(["timeout", "refused"]), integers(1, 300)),
    by_length=none() | floats(-1, 1),
)
windows = builds(
    RewardWindow,
    rows=integers(300, 600),
    scored=counts,
    mean=values,
    sd=floats(0, 5),
    parts=dictionaries(sampled_from(["correct", "quality", "tone"]), parts),
    sources=dictionaries(
        sampled_from(["gsm8k", "aime", ""]),
        builds(DataSource, rows=integers(1, 300), mean=none() | values),
    ),
    length=none() | floats(0, 5000),
    groups=just(40),
    equal_groups=integers(0, 40),
    prompts_elsewhere=none() | values,
    usual_elsewhere=none() | values,
    events=lists(
        tuples(
            sampled_from(["endpoint_ejected", "judge_drifted", "model_changed", "limit_changed"]),
            just("quality"),
            just("why"),
        ),
        max_size=3,
    ),
    models=dictionaries(just("quality"), lists(sampled_from(["a", "b"]), max_size=2)),
)


@given(before=windows, now=windows)
def test_causes_are_ranked_have_evidence_and_a_strength_from_0_to_1(before, now):
    causes = likely_causes(before, now)
    strengths = [cause.strength for cause in causes]
    assert strengths == sorted(strengths, reverse=True)
    assert all(0 < strength <= 1 for strength in strengths)
    assert all(cause.evidence and cause.title and cause.advice for cause in causes)
    assert len({cause.kind for cause in causes}) == len(causes)


@given(before=windows, now=windows)
def test_where_nothing_fell_only_another_mix_of_lower_rewards_is_a_cause(before, now):
    silent = bool(before.scored) and not now.scored
    if not (silent or has_fallen(before, now) or worse_parts(before, now)):
        causes = likely_causes(before, now)
        assert [cause.kind for cause in causes] in ([], ["harder_prompts"])
        assert not causes or now.mean < before.mean


@given(window=windows)
def test_a_step_like_the_steps_before_it_has_no_cause(window):
    if window.scored:
        assert likely_causes(window, window) == []


@given(before=windows, now=windows)
def test_the_order_in_which_things_were_recorded_does_not_matter(before, now):
    def reversed_in(window):
        return msgspec.structs.replace(
            window,
            parts=dict(reversed(window.parts.items())),
            sources=dict(reversed(window.sources.items())),
        )

    assert likely_causes(before, now) == likely_causes(reversed_in(before), reversed_in(now))


@given(before=windows, now=windows, more=integers(1, 300))
def test_more_abstentions_never_speak_less_for_an_outage(before, now, more):
    def outage(window):
        return max(
            (c.strength for c in likely_causes(before, window) if c.kind == "judge_outage"),
            default=0.0,
        )

    name = next(iter(now.parts), None)
    if name is None:
        return
    part = now.parts[name]
    worse = msgspec.structs.replace(part, abstained=part.abstained + more)
    assert outage(now) <= outage(msgspec.structs.replace(now, parts=now.parts | {name: worse}))


@given(before=windows, now=windows)
def test_every_figure_is_finite_or_not_there(before, now):
    for change in changes(before, now):
        for figure in (change.before, change.now, change.z):
            assert figure is None or math.isfinite(figure)


@dataclass(frozen=True)
class Case:
    """A fall that is clear to a person, and the cause that a person would name."""

    cause: str
    now: RewardWindow


USUAL = RewardWindow(
    rows=320,
    scored=320,
    mean=0.8,
    sd=0.3,
    parts={
        "correct": ComponentFigures(scored=320, mean=0.7, sd=0.45),
        "quality": ComponentFigures(scored=320, mean=0.6, sd=0.2, judged=True, by_length=0.0),
    },
    sources={"gsm8k": DataSource(rows=280, mean=0.9), "aime": DataSource(rows=40, mean=0.1)},
    length=200.0,
)
STEP = msgspec.structs.replace(
    USUAL,
    rows=64,
    scored=64,
    mean=0.4,
    parts={
        "correct": ComponentFigures(scored=64, mean=0.7, sd=0.45),
        "quality": ComponentFigures(scored=64, mean=0.6, sd=0.2, judged=True, by_length=0.0),
    },
    sources={"gsm8k": DataSource(rows=56, mean=0.5), "aime": DataSource(rows=8, mean=0.1)},
)


def step(**fields):
    return msgspec.structs.replace(STEP, **fields)


@pytest.mark.parametrize(
    "case",
    [
        Case(
            "harder_prompts",
            step(
                sources={
                    "gsm8k": DataSource(rows=8, mean=0.9),
                    "aime": DataSource(rows=56, mean=0.1),
                }
            ),
        ),
        Case("harder_prompts", step(sources={"new": DataSource(rows=64, mean=0.4)})),
        Case(
            "judge_outage",
            step(
                parts=STEP.parts
                | {
                    "quality": ComponentFigures(
                        scored=24, abstained=40, judged=True, kinds={"timeout": 40}
                    )
                }
            ),
        ),
        Case(
            "judge_drift",
            step(
                parts=STEP.parts
                | {"quality": ComponentFigures(scored=64, mean=0.3, sd=0.2, judged=True)}
            ),
        ),
        Case(
            "length_hacking",
            step(
                length=420.0,
                parts={
                    "correct": ComponentFigures(scored=64, mean=0.3, sd=0.45),
                    "quality": ComponentFigures(
                        scored=64, mean=0.7, sd=0.2, judged=True, by_length=0.6
                    ),
                },
            ),
        ),
        Case("shorter_responses", step(length=40.0)),
        Case(
            "worse_responses",
            step(
                parts={
                    "correct": ComponentFigures(scored=64, mean=0.2, sd=0.4),
                    "quality": ComponentFigures(scored=64, mean=0.3, sd=0.2, judged=True),
                }
            ),
        ),
    ],
    ids=lambda case: case.cause,
)
def test_the_cause_that_a_person_would_name_is_named_first(case):
    assert likely_causes(USUAL, case.now)[0].kind == case.cause


def test_a_judge_that_answers_as_before_is_no_cause_whatever_is_told_about_its_model():
    told = step(events=[("model_changed", "quality", "a to b")])
    assert "judge_drift" not in {cause.kind for cause in likely_causes(USUAL, told)}


def test_a_judge_that_fails_is_named_although_the_reward_rose():
    gone = {"quality": ComponentFigures(abstained=64, judged=True, kinds={"timeout": 64})}
    risen = step(mean=0.95, parts=STEP.parts | gone)
    assert likely_causes(USUAL, risen)[0].kind == "judge_outage"
    assert change_in_words(USUAL, risen, 5).endswith("but quality abstained in 100 % of the rows.")


def test_a_budget_that_is_spent_is_no_outage():
    spent = ComponentFigures(scored=24, abstained=40, judged=True, kinds={"budget": 38, "other": 2})
    now = step(parts=STEP.parts | {"quality": spent})
    assert likely_causes(USUAL, now)[0].kind == "budget_spent"


def test_longer_responses_that_the_judge_likes_no_better_are_not_written_for_it():
    now = step(
        length=560.0,
        parts={
            "correct": ComponentFigures(scored=64, mean=0.1, sd=0.3),
            "quality": ComponentFigures(scored=64, mean=0.2, sd=0.2, judged=True, by_length=0.1),
        },
    )
    [cause] = likely_causes(USUAL, now)
    assert cause.kind == "worse_responses"
    assert "2.8 times as long" in cause.evidence[-1]


@pytest.mark.parametrize(("since", "cause"), [(0.72, "harder_prompts"), (0.2, "worse_responses")])
def test_held_out_prompts_tell_harder_prompts_from_a_worse_policy(since, cause):
    before = msgspec.structs.replace(
        USUAL, held_out={"correct": ComponentFigures(scored=64, mean=0.7, sd=0.45)}
    )
    now = step(
        parts=STEP.parts | {"correct": ComponentFigures(scored=64, mean=0.2, sd=0.4)},
        held_out={"correct": ComponentFigures(scored=64, mean=since, sd=0.45)},
    )
    assert likely_causes(before, now)[0].kind == cause


def test_a_mean_over_alike_responses_is_less_sure_than_over_as_many_of_different_prompts():
    """Four responses to one prompt that are all right, or all wrong, are one observation."""
    sure, unsure = (
        [msgspec.structs.replace(each, error=error) for each in (USUAL, step(mean=0.7))]
        for error in (None, 0.1)
    )
    assert has_fallen(*sure)
    assert not has_fallen(*unsure)


def test_a_step_in_which_everything_abstained_is_a_fall():
    gone = {"quality": ComponentFigures(abstained=64, judged=True, kinds={"unreachable": 64})}
    silent = step(scored=0, mean=0.0, parts=gone)
    assert likely_causes(USUAL, silent)[0].kind == "judge_outage"


def test_a_judge_that_fell_far_is_named_although_a_rule_may_have_fallen_by_chance():
    now = step(
        parts={
            "correct": ComponentFigures(scored=64, mean=0.54, sd=0.5),
            "quality": ComponentFigures(scored=64, mean=0.3, sd=0.2, judged=True),
        }
    )
    [cause] = likely_causes(USUAL, now)
    assert cause.kind == "judge_drift"
    assert cause.strength < 0.5
    assert "while no rule did as clearly" in cause.evidence[0]


def figures(mean, scored=100, abstained=0):
    return ComponentFigures(scored=scored, abstained=abstained, mean=mean, sd=0.5)


@pytest.mark.parametrize(
    ("was", "now", "is_worse"),
    [
        (figures(0.8), figures(0.3), True),
        (figures(0.3), figures(0.8), False),
        (figures(0.8), figures(0.3, scored=3), False),
        (figures(0.8), figures(0.8, scored=60, abstained=40), True),
        (figures(0.8, abstained=100), figures(0.8, scored=20, abstained=80), True),
        (figures(0.8, abstained=100), figures(0.8, abstained=100), False),
        (figures(0.8, abstained=100), figures(0.8), False),
        (figures(0.8), figures(0.8, scored=3, abstained=1), False),
    ],
)
def test_a_component_is_worse_by_its_mean_or_by_its_abstentions(was, now, is_worse):
    z = fall_z(was, now)
    assert z < -3 if is_worse else z == 0
