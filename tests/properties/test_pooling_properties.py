"""What holds of every way in which several verdicts become one."""

import math
import statistics
from collections import Counter

from hypothesis import assume, given
from hypothesis import strategies as st

from zerowait.config import Monitor, Panel, Rebalance, Votes
from zerowait.judge import monitored, panel_outcome, pooled, reasoning, votes_outcome, weighted
from zerowait.judge.monitor import monitor_bounds
from zerowait.judge.rubric import Criterion
from zerowait.types import POLICY_CAUSED, Abstain, FailureKind, Score

NUMBERS = st.floats(-1e6, 1e6)
SCORES = st.one_of(st.integers(1, 10).map(float), NUMBERS).map(Score)
FAILURES = st.sampled_from(list(FailureKind)).map(lambda kind: Abstain(kind, kind.value))
OUTCOMES = st.lists(st.one_of(SCORES, FAILURES), min_size=2, max_size=9)
RULES = st.sampled_from(["mean", "median", "majority"])


def pool(outcomes, by, quorum=1):
    return pooled(outcomes, by=by, quorum=quorum, what="votes")


@given(OUTCOMES, RULES, st.data())
def test_a_pool_is_a_number_only_when_enough_voices_are(outcomes, by, data):
    quorum = data.draw(st.integers(1, len(outcomes)))
    values = [o.value for o in outcomes if isinstance(o, Score)]
    result = pool(outcomes, by, quorum)
    if len(values) < quorum:
        assert isinstance(result, Abstain)
    elif by != "majority":
        assert isinstance(result, Score)
    if isinstance(result, Score):
        assert min(values) <= result.value <= max(values)


@given(OUTCOMES, RULES, st.randoms())
def test_the_order_of_the_voices_changes_nothing(outcomes, by, random):
    shuffled = random.sample(outcomes, len(outcomes))
    one, other = pool(outcomes, by), pool(shuffled, by)
    assert type(one) is type(other)
    if isinstance(one, Score):
        assert (one.value, one.detail) == (other.value, other.detail)
    else:
        assert one.kind == other.kind


@given(st.lists(SCORES, min_size=1, max_size=9))
def test_the_pool_agrees_with_the_standard_library(scores):
    values = [score.value for score in scores]
    mean = pool(scores, "mean")
    assert math.isclose(mean.value, statistics.fmean(values), rel_tol=1e-9, abs_tol=1e-9)
    assert pool(scores, "median").value == statistics.median(values)
    spread = mean.detail["measured"]["spread"]
    assert math.isclose(spread, statistics.pstdev(values), rel_tol=1e-6, abs_tol=1e-6)


@given(st.lists(st.sampled_from([1.0, 2.0, 3.0]).map(Score), min_size=1, max_size=9))
def test_a_majority_is_the_one_most_frequent_value_or_nobodys(scores):
    counts = Counter(score.value for score in scores)
    most = max(counts.values())
    winners = [value for value, times in counts.items() if times == most]
    result = pool(scores, "majority")
    if len(winners) > 1:
        assert result.kind is FailureKind.UNPARSEABLE
    else:
        assert result.value == winners[0]
        assert result.detail["measured"]["agreement"] == most / len(scores)


@given(st.lists(FAILURES, min_size=1, max_size=9))
def test_the_kind_of_a_failed_pool_is_one_of_the_most_frequent_and_covers_nothing_up(failures):
    counts = Counter(failure.kind for failure in failures)
    most = {kind for kind, times in counts.items() if times == max(counts.values())}
    kind = pool(failures, "mean").kind
    assert kind in most
    assert kind in POLICY_CAUSED or not most & POLICY_CAUSED


@given(SCORES, st.integers(2, 9), RULES)
def test_voices_that_all_say_the_same_say_that(score, n, by):
    result = votes_outcome([score] * n, Votes(n=n, by=by))
    assert result.value == score.value
    assert set(result.detail["measured"].values()) <= {0.0, 1.0}
    assert result.detail["votes"] == [score.value] * n


@given(st.dictionaries(st.text("abc", min_size=1), st.one_of(SCORES, FAILURES), min_size=2))
def test_a_panels_record_has_every_member_and_no_value_for_those_who_abstained(outcomes):
    panel = Panel(members=list(outcomes), quorum=1)
    result = panel_outcome(outcomes, panel)
    if isinstance(result, Abstain):
        assert not any(isinstance(outcome, Score) for outcome in outcomes.values())
        return
    assert list(result.detail["members"]) == list(outcomes)
    for name, outcome in outcomes.items():
        assert (result.detail["members"][name] is None) is isinstance(outcome, Abstain)
        assert (name in result.detail["measured"]) is isinstance(outcome, Score)


def test_votes_below_their_quorum_abstain_and_what_the_others_measured_is_averaged():
    votes, failed = Votes(n=3, by="mean"), Abstain("timeout", "no answer in 60 s")
    few = votes_outcome([failed, Score(7.0), failed], votes)
    assert (few.kind, votes.needed) == ("timeout", 2)
    measuring = [Score(value, "", {"measured": {"cut_chars": value}}) for value in (6.0, 8.0)]
    enough = votes_outcome([measuring[0], failed, measuring[1]], votes)
    assert enough.detail["votes"] == [6.0, None, 8.0]
    assert enough.detail["measured"] == {"cut_chars": 7.0, "spread": 1.0}


CRITERIA = st.dictionaries(
    st.sampled_from(["logic", "style", "depth", "care"]),
    st.tuples(st.floats(1e-3, 1e3), st.one_of(SCORES, FAILURES)),
    min_size=2,
)


@given(CRITERIA)
def test_one_missing_criterion_abstains_all_and_weights_are_never_spread_over_the_rest(parts):
    criteria = [Criterion(name, weight) for name, (weight, _) in parts.items()]
    outcomes = {name: outcome for name, (_, outcome) in parts.items()}
    result = weighted(criteria, outcomes)
    failed = [o for o in outcomes.values() if isinstance(o, Abstain)]
    assert isinstance(result, Abstain) is bool(failed)
    if failed:
        assert result.kind in {failure.kind for failure in failed}
        return
    values = [outcome.value for outcome in outcomes.values()]
    assert min(values) <= result.value <= max(values)
    total = sum(c.weight for c in criteria)
    slow = sum(c.weight * outcomes[c.name].value for c in criteria) / total
    assert math.isclose(result.value, slow, rel_tol=1e-6, abs_tol=1e-3)


@given(CRITERIA, st.floats(1e-2, 1e2))
def test_only_the_ratio_of_the_weights_matters(parts, factor):
    outcomes = {name: outcome for name, (_, outcome) in parts.items()}
    assume(all(isinstance(outcome, Score) for outcome in outcomes.values()))
    one = weighted([Criterion(n, w) for n, (w, _) in parts.items()], outcomes)
    other = weighted([Criterion(n, w * factor) for n, (w, _) in parts.items()], outcomes)
    assert math.isclose(one.value, other.value, rel_tol=1e-6, abs_tol=1e-3)


MONITORS = st.builds(
    Monitor,
    correct_reward=st.floats(-5, -1),
    wrong_reward=st.floats(0, 5),
    rebalance=st.one_of(st.none(), st.builds(Rebalance, true=st.floats(0.01, 0.99))),
)


@given(MONITORS, st.booleans(), st.booleans())
def test_a_monitors_reward_is_in_its_range_and_says_whether_it_was_right(monitor, yes, truth):
    result = monitored(Score(float(yes)), monitor, truth=truth)
    low, high = monitor_bounds(monitor)
    assert low <= result.value <= high
    assert result.detail["right"] is (yes == truth)
    share = 1 if monitor.rebalance is None else monitor.rebalance.share(truth=truth)
    reward = monitor.correct_reward if yes == truth else monitor.wrong_reward
    assert math.isclose(result.value * share, reward, abs_tol=1e-9)


@given(st.floats(0.01, 0.99))
def test_rebalanced_a_constant_prediction_earns_as_if_both_truths_were_as_frequent(share):
    monitor = Monitor(correct_reward=0, wrong_reward=1, rebalance=Rebalance(true=share))
    right = monitored(Score(0.0), monitor, truth=True).value * share
    wrong = monitored(Score(1.0), monitor, truth=False).value * (1 - share)
    assert math.isclose(right, wrong, rel_tol=1e-9)


@given(st.text(), st.text(), st.text())
def test_a_monitor_never_sees_what_stands_outside_the_tags(before, thought, after):
    assume(not any("<" in text or text.strip() in thought for text in (before, after)))
    assume("<" not in thought)
    seen = reasoning(f"{before}<think>{thought}</think>{after}", Monitor())
    assert seen == thought.strip()


PIECES = st.sampled_from(["a", "b", " ", "\n", "<think>", "</think>", "<answer>"])


@given(st.lists(PIECES).map("".join))
def test_the_reasoning_of_any_text_is_a_part_of_it(text):
    for monitor in (Monitor(), Monitor(before="<answer>")):
        for block in reasoning(text, monitor).split("\n\n"):
            assert block in text


@given(st.lists(st.integers(1, 10), min_size=1, max_size=5), st.sampled_from(["mean", "median"]))
def test_the_reason_shown_is_that_of_the_verdict_nearest_to_the_pooled_one(values, by):
    scores = [Score(float(value), f"says {value}") for value in values]
    found = pooled(scores, by=by, quorum=1, what="votes")
    said = float(found.why.removeprefix("says "))
    assert abs(said - found.value) == min(abs(value - found.value) for value in values)


@given(value=st.floats(0, 10), by=st.sampled_from(["mean", "median", "majority"]))
def test_of_two_members_one_that_abstains_decides_by_the_quorum_alone(value, by):
    """More than half of two is two: one voice is a panel only where the user says so."""
    voices = [Score(value, "fine"), Abstain(FailureKind.REFUSED, "it refuses")]
    for order in (voices, voices[::-1]):
        alone = pooled(order, by=by, quorum=1, what="members")
        assert (alone.value, alone.why) == (value, "fine")
        both = pooled(order, by=by, quorum=2, what="members")
        assert both.kind is FailureKind.REFUSED
        assert both.detail == "1 of 2 members gave a verdict, 2 are needed; refused: it refuses"
    none = pooled([voices[1]] * 2, by=by, quorum=1, what="members")
    assert none.detail.startswith("0 of 2 members gave a verdict, 1 are needed")
