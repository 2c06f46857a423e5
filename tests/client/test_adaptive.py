from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.client import AdaptiveLimit, AttemptOutcome, AttemptSample
from zerowait.client.limits.rejections import RejectionCeiling


def success(now_s, *, took_s=1.0, occupancy=1.0, on_wire=31):
    return AttemptSample(AttemptOutcome.SUCCEEDED, now_s - took_s, now_s, occupancy, on_wire)


def rejected(now_s, *, sent_s=None, on_wire=31, retry_after_s=0.0):
    sent_s = now_s - 0.02 if sent_s is None else sent_s
    return AttemptSample(AttemptOutcome.OVERLOADED, sent_s, now_s, 1.0, on_wire, retry_after_s)


samples = st.builds(
    lambda ending, gap_s, took_s, occupancy, on_wire, retry_after_s: (
        gap_s,
        (ending, took_s, occupancy, on_wire, retry_after_s),
    ),
    st.sampled_from(
        [
            AttemptOutcome.SUCCEEDED,
            AttemptOutcome.SUCCEEDED,
            AttemptOutcome.SUCCEEDED,
            *AttemptOutcome,
        ]
    ),
    st.floats(0, 5),
    st.floats(0, 60),
    st.sampled_from([0.0, 0.5, 0.79, 0.8, 1.0, 1.0, 3.0]),
    st.integers(0, 2000),
    st.sampled_from([0.0, 0.0, 1.0, 3600.0]),
)


@settings(max_examples=150, deadline=None)
@given(
    run=st.lists(samples, max_size=60),
    repeat=st.integers(1, 12),
    bounds=st.tuples(st.integers(1, 40), st.integers(0, 40), st.integers(0, 900)),
)
def test_the_limit_stays_in_its_bounds_and_grows_only_after_a_success_under_load(
    run, repeat, bounds
):
    lowest, start, highest = bounds[0], sum(bounds[:2]), sum(bounds)
    rule = AdaptiveLimit(start=start, lowest=lowest, highest=highest)
    now_s = 0.0
    for gap_s, (ending, took_s, occupancy, on_wire, retry_after_s) in run * repeat:
        now_s += gap_s
        before = rule.limit
        rule.observe(
            AttemptSample(ending, now_s - took_s, now_s, occupancy, on_wire, retry_after_s)
        )
        assert lowest <= rule.limit <= highest
        if rule.limit > before:
            assert ending is AttemptOutcome.SUCCEEDED
            assert occupancy >= 0.8
        if ending is AttemptOutcome.SAYS_NOTHING:
            assert rule.limit == before


@pytest.mark.parametrize("bounds", [(0, 1, 1), (2, 1, 3), (1, 4, 3)])
def test_bounds_out_of_order_are_refused(bounds):
    lowest, start, highest = bounds
    with pytest.raises(ValueError, match="need 1 <="):
        AdaptiveLimit(lowest=lowest, start=start, highest=highest)


def test_it_starts_fast_by_half_a_round():
    rule = AdaptiveLimit(start=32)
    for _ in range(32):
        rule.observe(success(1.0))
    assert rule.limit == 48


def burst(rule, *, count, accepted, now_s=0.0, first=1, retry_after_s=0.0):
    """`count` are sent at once; the server lets `accepted` of them in and rejects the others."""
    for number in range(first, first + count):
        rule.sent(number, number - first)
    for number in range(first + accepted, first + count):
        on_wire = count - 1 - (number - first - accepted)
        rule.observe(
            AttemptSample(
                AttemptOutcome.OVERLOADED,
                now_s,
                now_s + 0.02,
                1.0,
                on_wire,
                retry_after_s,
                number - first,
                number,
            )
        )


def test_a_burst_of_429s_sets_it_to_what_was_accepted():
    """100 are sent at once and 60 accepted: the first 429 cannot know of the 39 that follow."""
    rule = AdaptiveLimit(start=100)
    burst(rule, count=100, accepted=60)
    assert rule.limit == 60
    assert rule.why == "429 with 60 accepted"


@pytest.mark.parametrize("others", [0, 5, 50, 99])
def test_one_429_among_many_that_are_accepted_moves_nothing(others):
    rule = AdaptiveLimit(start=100)
    for number in range(1, 101):
        rule.sent(number, number - 1)
    rule.observe(
        AttemptSample(AttemptOutcome.OVERLOADED, 0.0, 0.02, 1.0, 99, 1.0, others, others + 1)
    )
    assert rule.limit == 100


def test_a_late_429_of_an_old_burst_does_not_cut_again_for_what_was_answered_meanwhile():
    rule = AdaptiveLimit(start=101)
    for number in range(1, 102):
        rule.sent(number, number - 1)
    for number in range(61, 101):
        sample = AttemptSample(
            AttemptOutcome.OVERLOADED, 0.0, 0.02, 1.0, 160 - number + 1, 0.0, number - 1, number
        )
        rule.observe(sample)
    for number in range(1, 31):
        rule.observe(
            AttemptSample(
                AttemptOutcome.SUCCEEDED, 0.0, 1.0, 1.0, 61 - number, 0.0, number - 1, number
            )
        )
    rule.observe(AttemptSample(AttemptOutcome.OVERLOADED, 0.0, 1.5, 1.0, 30, 0.0, 100, 101))
    assert rule.limit == 60


def test_a_known_ceiling_is_probed_ever_more_patiently_up_to_three_seconds():
    ceiling, waits_s = RejectionCeiling(), []
    for number in range(1, 11):
        ceiling.sent(number, 59 + number)
    for number in range(1, 11):
        sample = AttemptSample(
            AttemptOutcome.OVERLOADED, -1.0, -0.98, 1.0, 60, 0.0, 59 + number, number
        )
        ceiling.rejected(sample, 70.0, latency_s=0.5)
    assert ceiling.height == 60
    for now_s in range(0, 60, 10):
        sample = AttemptSample(
            AttemptOutcome.OVERLOADED, now_s - 0.02, float(now_s), 1.0, 60, 0.0, 60, 1000 + now_s
        )
        assert ceiling.rejected(sample, 61.0, latency_s=0.5) == 60
        held = [step / 10 for step in range(100) if not _may_probe(ceiling, now_s, step / 10)]
        waits_s.append(max(held) + 0.1)
    assert waits_s == pytest.approx([1.0, 2.0, 3.0, 3.0, 3.0, 3.0])


def _may_probe(ceiling, now_s, after_s):
    return ceiling.may_probe(
        AttemptSample(AttemptOutcome.SUCCEEDED, now_s, now_s + after_s, 1.0, 60)
    )


def test_nothing_more_is_asked_for_at_a_ceiling_until_a_named_retry_after_is_over():
    rule = AdaptiveLimit(start=32)
    burst(rule, count=32, accepted=10, now_s=1.0, retry_after_s=30.0)
    for step in range(290):
        rule.observe(success(2.0 + step / 10, took_s=0.5))
    assert rule.limit == 10
    for step in range(100):
        rule.observe(success(31.1 + step / 10, took_s=0.5))
    assert rule.limit > 10


def test_beyond_the_old_ceiling_it_grows_faster():
    rule = AdaptiveLimit(start=100, highest=10_000)
    burst(rule, count=100, accepted=50)
    rounds = []
    for step in range(1, 12):
        before = rule.limit
        for _ in range(rule.limit):
            rule.observe(success(10.0 * step, took_s=1.0, on_wire=before - 1))
        rounds.append(rule.limit - before)
    assert rounds[0] <= 1
    assert rounds[-1] >= 5


def test_an_outage_teaches_nothing_about_the_limit():
    rule = AdaptiveLimit(start=100)
    burst(rule, count=100, accepted=10)
    burst(rule, count=10, accepted=1, now_s=1.0, first=101)
    assert rule.limit == 1
    rule.recover()
    assert rule.limit == 100


def test_latency_at_twice_the_least_stops_the_growth():
    rule = AdaptiveLimit(start=128, highest=10_000)
    feed(rule, seconds=20, took_s=1.0)
    feed(rule, seconds=40, took_s=2.2, now_s=20)
    stopped_at = rule.limit
    feed(rule, seconds=40, took_s=2.2, now_s=60)
    assert rule.limit <= stopped_at


def feed(rule, *, seconds, took_s, now_s=0.0, rate=64):
    """Steady successes under full load."""
    for step in range(int(seconds * rate)):
        rule.observe(success(now_s + step / rate, took_s=took_s, on_wire=rule.limit - 1))


def test_an_idle_hour_between_two_steps_of_training_is_not_taken_for_low_throughput():
    rule = AdaptiveLimit(start=64, highest=64)
    feed(rule, seconds=15, took_s=1.0)
    for step in range(20):
        feed(rule, seconds=1.5, took_s=1.0 + step % 2, now_s=3600.0 * (step + 1))
    assert rule.limit >= 51  # a trial of four fifths may be open, no more


def test_what_is_remembered_of_rejections_is_bounded():
    ceiling = RejectionCeiling()
    for number in range(1, 5000):
        ceiling.sent(number, 20)
        outcome = AttemptOutcome.SUCCEEDED if number % 10 else AttemptOutcome.OVERLOADED
        sample = AttemptSample(outcome, 0.0, 1.0, 1.0, 20, 0.0, 20, number)
        if number % 10:
            ceiling.ended(sample)
        else:
            ceiling.rejected(sample, 100.0, latency_s=1.0)
    assert ceiling.height is None
    assert len(ceiling._evidence) <= 300
    assert not ceiling._others


def test_rejections_of_those_that_met_most_others_are_a_ceiling_even_among_those_by_chance():
    """Of 1 in 10 that are rejected by chance none tells; those beyond 60 are all rejected."""
    ceiling, draws, found = RejectionCeiling(), Random(1), []
    for number in range(1, 400):
        others = 40 + number % 25
        ceiling.sent(number, others)
        is_rejected = others >= 60 or draws.random() < 0.1
        outcome = AttemptOutcome.OVERLOADED if is_rejected else AttemptOutcome.SUCCEEDED
        sample = AttemptSample(outcome, 0.0, 1.0, 1.0, others, 0.0, others, number)
        if is_rejected:
            found.append(ceiling.rejected(sample, 65.0, latency_s=1.0, by_chance=True))
        else:
            ceiling.ended(sample)
    assert {height for height in found if height} == {60}
