"""Alarms about rewards: silent on sound data, and each raised by its own fault."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zerowait
from zerowait.config import load_config
from zerowait.engine.monitor.bimodality import dip, two_clusters
from zerowait.engine.monitor.health import (
    ALARMS,
    HealthRow,
    StepMean,
    findings,
    row_of,
    step_mean,
)
from zerowait.engine.monitor.health_monitor import HealthMonitor
from zerowait.engine.plan import compile_plan
from zerowait.events import HealthAlarm, RewardSettled
from zerowait.rank_statistics import rank_correlation, rank_sum_z, ranks
from zerowait.types import Abstain, Reward, Sample, Score

# What chance draws is the same on every run: one step in thousands lets a fault pass unnoticed.
SEEDS = pytest.mark.parametrize("seed", range(20))


def sound_row(chance, *, skill=0.4, lost=0.03):
    """A response that is right or wrong, judged 1 to 10, of a length that has nothing to say."""
    right = float(chance.random() < skill)
    judged = min(10, max(1, round(chance.gauss(5 + 2 * right, 2))))
    length = round(math.exp(chance.gauss(6, 0.6)))
    if chance.random() < lost:
        return HealthRow(None, True, length, right, {})
    return HealthRow(right + 0.1 * judged, False, length, right, {"quality": judged})


def sound_step(chance, count=256, **given):
    return [sound_row(chance, **given) for _ in range(count)]


def sound_past(chance, steps=12):
    return [step_mean(sound_step(chance, skill=0.3 + 0.01 * step)) for step in range(steps)]


def kinds(rows, past=()):
    return [found.kind for found in findings(rows, past)]


def test_sound_steps_raise_an_alarm_in_fewer_than_one_of_a_hundred():
    """300 runs of a step, of three sizes; each check promises fewer than one in a thousand."""
    chance = random.Random(7)
    past = sound_past(chance)
    alarms = [
        kind
        for count in (64, 128, 256)
        for _ in range(100)
        for kind in kinds(sound_step(chance, count, skill=0.42), past)
    ]
    assert len(alarms) < 3, alarms


@SEEDS
def test_equal_rewards_raise_an_alarm(seed):
    rows = [row._replace(value=0.5) for row in sound_step(random.Random(seed), 64)]
    assert kinds(rows)[0] == "all_equal"


@SEEDS
def test_a_judge_that_always_says_the_same_raises_an_alarm(seed):
    chance = random.Random(seed)
    end = chance.choice([1, 10])
    rows = [
        row._replace(judged={"quality": end if chance.random() < 0.99 else 5})
        for row in sound_step(chance)
    ]
    assert ("saturated", "quality") in [found[:2] for found in findings(rows)]


def test_nan_from_a_function_raises_an_alarm_with_its_component():
    bad = HealthRow(None, True, 100, None, {}, ("mine",))
    found = [each for each in findings([bad]) if each.kind == "not_finite"]
    assert [(each.component, each.why) for each in found] == [("mine", "for 1 of 1 responses")]


@SEEDS
def test_lengths_of_two_kinds_raise_an_alarm(seed):
    chance = random.Random(seed)
    share = chance.uniform(0.15, 0.85)
    rows = [
        row._replace(length=round(chance.gauss(20, 2) if index < share * 256 else row.length * 3))
        for index, row in enumerate(sound_step(chance))
    ]
    assert "bimodal_length" in kinds(rows)


ONE_KIND = {
    "uniform": lambda chance: chance.randint(10, 1000),
    "uniform from 0": lambda chance: chance.randint(0, 4000),
    "normal": lambda chance: round(abs(chance.gauss(300, 60))),
    "log-normal": lambda chance: round(math.exp(chance.gauss(6, 0.6))),
    "wide log-normal": lambda chance: round(math.exp(chance.gauss(5, 1.5))),
    "exponential": lambda chance: round(chance.expovariate(1 / 200)),
    "geometric": lambda chance: 1 + int(math.log(1 - chance.random()) / math.log(0.2)),
    "triangular": lambda chance: round(chance.triangular(1, 1000, 900)),
    "constant": lambda chance: 77,
    "five lengths": lambda chance: chance.choice([100, 200, 300, 400, 500]),
    "three lengths": lambda chance: chance.choice([10, 100, 1000]),
    "neighbours": lambda chance: chance.choice([7, 8]),
    "nothing or little": lambda chance: chance.choice([0, 1, 2]),
}


@pytest.mark.parametrize("shape", ONE_KIND)
@pytest.mark.parametrize(("count", "draws"), [(64, 1000), (100, 500), (256, 200), (1000, 50)])
def test_lengths_of_one_kind_raise_no_alarm(shape, count, draws):
    """Fewer than 1 draw in 1,000: of 64 uniform lengths 95 in 1,000 were told to be of two kinds."""
    chance = random.Random(count)
    draw = ONE_KIND[shape]
    told = sum(two_clusters([draw(chance) for _ in range(count)]) is not None for _ in range(draws))
    assert told <= draws // 1000


@SEEDS
@pytest.mark.parametrize("count", [64, 256])
def test_the_dip_of_one_cluster_is_small_and_that_of_two_is_large(seed, count):
    """Golden values of the statistic are in its docstring; diptest's agree to 1e-9."""
    chance = random.Random(seed)
    one = sorted(chance.gauss(0, 1) for _ in range(count))
    two = sorted(chance.gauss(0, 1) + 6 * (index % 2) for index in range(count))
    assert dip(one) * math.sqrt(count) < 0.73 < dip(two) * math.sqrt(count)
    assert dip(list(range(count))) == pytest.approx(1 / (2 * count))


@pytest.mark.parametrize("lengths", [[5] * 40 + [900] * 40, [10, 12, 900, 1000] * 20])
def test_two_lengths_that_are_far_apart_are_two_kinds(lengths):
    assert two_clusters(lengths) is not None


@SEEDS
def test_a_judge_against_the_rules_raises_an_alarm(seed):
    chance = random.Random(seed)
    rows = [
        row._replace(judged={"quality": round(chance.gauss(7 - 4 * row.rule_score, 1.5))})
        for row in sound_step(chance)
    ]
    assert "judge_disagrees" in kinds(rows)


@SEEDS
def test_a_jump_of_the_mean_raises_an_alarm(seed):
    chance = random.Random(seed)
    by = chance.choice([-1.0, 1.0])
    past = sound_past(chance)
    rows = [
        row._replace(value=None if row.value is None else row.value + by)
        for row in sound_step(chance)
    ]
    assert "mean_jump" in kinds(rows, past)
    assert "mean_jump" not in kinds(rows, past[:5])


@settings(max_examples=50)
@given(st.floats(-10, 10), st.lists(st.integers(32, 400), min_size=13, max_size=13))
def test_the_rounding_of_a_mean_that_stays_the_same_is_no_jump(value, counts):
    """The mean of 33 times 0.1 is not that of 32 times 0.1."""
    *past, now = [[HealthRow(value)] * count for count in counts]
    assert kinds(now, [step_mean(rows) for rows in past]) == ["all_equal"]


@SEEDS
def test_right_or_wrong_one_response_to_a_prompt_raises_nothing(seed):
    """Rewards of 0 and 1 are two values, and n = 1 is no group: neither is a fault."""
    chance = random.Random(seed)
    skill = chance.uniform(0.25, 0.75)

    def step():
        right = [float(chance.random() < skill) for _ in range(128)]
        return [HealthRow(value, False, round(chance.gauss(300, 60)), value) for value in right]

    past = [step_mean(step()) for _ in range(12)]
    assert kinds(step(), past) == []


@SEEDS
def test_escaping_the_judge_by_length_raises_an_alarm(seed):
    rows = [
        row._replace(value=None, abstained=True) if row.length > 600 else row
        for row in sound_step(random.Random(seed))
    ]
    assert "abstains_by_length" in kinds(rows)


@SEEDS
def test_escaping_the_judge_with_wrong_answers_raises_an_alarm(seed):
    chance = random.Random(seed)
    rows = [
        row._replace(abstained=True) if not row.rule_score and chance.random() < 0.4 else row
        for row in sound_step(chance)
    ]
    assert "abstains_by_score" in kinds(rows)


def test_a_step_without_rewards_or_with_few_says_nothing():
    assert kinds([]) == []
    assert kinds([HealthRow(1.0)] * 31) == []
    assert kinds([HealthRow(None, True)] * 100) == []


row = st.builds(
    HealthRow,
    st.none() | st.floats(-1e9, 1e9),
    st.booleans(),
    st.none() | st.integers(0, 10**6),
    st.none() | st.floats(-1e9, 1e9),
    st.dictionaries(st.sampled_from("ab"), st.floats(-1e9, 1e9)),
)


@settings(max_examples=50)
@given(
    st.lists(row, max_size=80),
    st.lists(st.builds(StepMean, st.floats(-1e9, 1e9), st.floats(0, 1e9)), max_size=12),
)
def test_no_rows_make_a_check_raise_or_invent_an_alarm(rows, past):
    assert {found.kind for found in findings(rows, past)} <= set(ALARMS)


@given(st.lists(st.integers(0, 5), min_size=1))
def test_equal_values_share_the_mean_of_their_ranks(values):
    for value, rank in zip(values, ranks(values), strict=True):
        places = [place for place, each in enumerate(sorted(values), 1) if each == value]
        assert rank == sum(places) / len(places)


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=2))
def test_a_rank_correlation_turns_with_either_side_and_keeps_its_bounds(pairs):
    one, other = zip(*pairs, strict=True)
    rho = rank_correlation(one, other)
    if rho is not None:
        assert -1 <= rho <= 1
        assert rank_correlation(one, [-each for each in other]) == pytest.approx(-rho)
        assert rank_correlation([each**3 for each in one], other) == pytest.approx(rho)
    else:
        assert len(set(one)) == 1 or len(set(other)) == 1


@given(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9)))
def test_a_rank_sum_turns_with_its_sides(some, others):
    assert rank_sum_z(some, others) == pytest.approx(-rank_sum_z(others, some))


@given(st.lists(st.integers(0, 10_000), max_size=200))
def test_clusters_leave_a_tenth_on_each_side(lengths):
    found = two_clusters(lengths)
    if found is not None:
        assert 0.1 <= found.share <= 0.9
        assert found.short < found.long


CONFIG = {
    "components": {
        "answer": {"scorer": "gsm8k"},
        "quality": {"judge": "q", "weight": 0.1},
    },
    "judges": {
        "q": {
            "endpoints": [{"base_url": "http://127.0.0.1:1/v1", "model": "m"}],
            "verdict": {"integer": [1, 10]},
        }
    },
    "cache": "off",
}


def settled(value, step, *, split="train", quality=None):
    outcomes = {"answer": Score(1.0), "quality": quality or Score(5.0)}
    sample = Sample("q", "a", split=split, step=step, response_tokens=10)
    return RewardSettled(
        sample=sample, reward=Reward(value, outcomes), submitted_at=0, settled_at=0
    )


def monitored(events):
    told = []
    monitor = HealthMonitor(compile_plan(load_config(CONFIG)), told.append)
    for event in events:
        monitor(event)
    monitor.close()
    return monitor, told


def equal(step):
    return [settled(1.0, step, quality=Score(float(1 + i % 5))) for i in range(40)]


def varied(step):
    return [settled(i % 7 / 7, step, quality=Score(float(1 + i % 5))) for i in range(40)]


def test_an_alarm_is_raised_once_for_as_long_as_it_lasts_and_again_when_it_is_back():
    monitor, told = monitored([*equal(1), *equal(2), *varied(3), *equal(4)])
    assert [(alarm.kind, alarm.step) for alarm in told] == [("all_equal", 1), ("all_equal", 4)]
    assert isinstance(told[0], HealthAlarm)
    assert monitor.on == {"all_equal": 1}


def outage(step, failed, of=64):
    """A step whose rows failed first, because a refused connection is faster than a verdict."""
    down = Abstain("unreachable", "connection refused")
    rows = varied(step) + varied(step)
    return [settled(None, step, quality=down) for _ in range(failed)] + rows[: of - failed]


def told_when(events):
    """The alarms about failing judges, with how many rewards were known of all steps by then."""
    told = []
    seen = 0

    def listener(alarm):
        told.append((alarm.kind, alarm.step, seen, alarm.why))

    monitor = HealthMonitor(compile_plan(load_config(CONFIG)), listener)
    for event in events:
        seen += 1
        monitor(event)
    monitor.close()
    return [each[1:] for each in told if each[0] == "judge_fails"]


def test_a_judge_that_is_down_is_told_in_the_middle_of_the_step_and_once():
    """Of 64 rows 16 failures are too many whatever the others bring; the 32nd is not waited for."""
    events = [*outage(1, 0), *outage(2, 64), *outage(3, 64), *outage(4, 0), *outage(5, 30)]
    assert told_when(events) == [
        (2, 64 + 16, "16 of 16 rows: unreachable 16"),
        (5, 4 * 64 + 16, "16 of 16 rows: unreachable 16"),
    ]


def test_an_outage_in_the_first_step_is_told_at_its_end():
    assert told_when(outage(1, 40)) == [(1, 64, "40 of 64 rows: unreachable 40")]


@pytest.mark.parametrize("failed", [1, 4, 7, 12])
def test_a_few_failures_of_many_are_no_outage_although_they_come_first(failed):
    assert told_when([*outage(1, 0), *outage(2, failed), *outage(3, failed)]) == []


def test_failures_that_some_judgements_always_have_raise_no_alarm_in_ten_runs():
    """24 steps each, in which one judgement in 14 fails."""
    down = Abstain("timeout", "no answer")
    for seed in range(10):
        draw = random.Random(seed)
        rows = [
            settled(0.5, step, quality=down if draw.random() < 0.07 else Score(5.0))
            for step in range(24)
            for _ in range(64)
        ]
        assert told_when(rows) == []


def shared(events, cuts):
    """What the first of three engines tells, each of which sees a third of every step.

    The first round fetches from each engine what happened before its cut, the second the rest.
    """
    told, plan = [], compile_plan(load_config(CONFIG))
    engines = [HealthMonitor(plan, told.append, alone=False) for _ in cuts]
    for is_first in (True, False):
        for number, event in enumerate(events):
            if (number < cuts[number % 3]) == is_first:
                engines[number % 3](event)
        engines[0].observe([row for engine in engines for row in engine.take_rows()])
    for engine in reversed(engines):
        engine.close()
    return engines[0], told


@given(st.tuples(*[st.integers(0, 160)] * 3))
def test_engines_that_share_a_job_raise_the_alarms_of_one_that_is_alone(cuts):
    """A third of a step is too few rows for any alarm, and rounds fall anywhere in a step."""
    monitor, told = shared([*equal(1), *equal(2), *varied(3), *equal(4)], cuts)
    assert [(alarm.kind, alarm.step) for alarm in told] == [("all_equal", 1), ("all_equal", 4)]
    assert monitor.on == {"all_equal": 1}


def test_only_training_rows_with_a_step_are_checked_and_late_ones_are_left_out():
    validation = [settled(1.0, 1, split="validation") for _ in range(40)]
    no_step = [settled(1.0, None) for _ in range(40)]
    late = equal(1)
    _, told = monitored([*validation, *no_step, *varied(1), *varied(2), *late])
    assert told == []


def test_a_row_has_the_weighted_rules_the_judges_and_what_failed():
    nan = Abstain("crashed", "my:f returned nan; expected a finite number")
    outcomes = {"answer": Score(1.0), "format": Score(0.5), "quality": Score(7.0), "mine": nan}
    sample = Sample("q", "a", response_tokens=12)
    found = row_of(sample, Reward(None, outcomes), {"answer": 2.0, "format": 1.0}, {"quality"})
    assert found == HealthRow(None, True, 12, 2.5, {"quality": 7.0}, ("mine",))
    judged = row_of(sample, Reward(None, outcomes), {}, {"mine"})
    assert judged.failed == {"mine": "crashed"}
    assert row_of(sample, Reward(None, outcomes), {"mine": 1.0}, set()).rule_score is None


def test_a_running_engine_raises_counts_and_keeps_its_alarms():
    told = []
    samples = [Sample("q", "#### 4", "4", step=step) for step in (1, 2) for _ in range(32)]
    with zerowait.open(
        {"components": {"answer": {"scorer": "gsm8k"}}}, listener=told.append
    ) as rewards:
        rewards.score(samples)
        stats = rewards.stats()
    assert [alarm.kind for alarm in stats.alarms] == ["all_equal"]
    assert stats.alarms_on == {"all_equal": 1}
    assert [event.step for event in told if isinstance(event, HealthAlarm)] == [1]
