"""Statistics of several shards merged into those of one hub."""

import pytest

from zerowait.engine import JudgeStats, Stats
from zerowait.hub.shard_stats import merged_stats

ONE = Stats(
    asked=3,
    requests=3,
    spent_usd=0.5,
    limit=10,
    limits={"a m": 10},
    abstentions={"timeout": 1},
    judges={"q": JudgeStats(asked=3, spent_usd=0.5)},
    model_changes=1,
    latency_p50_s=1.0,
    loop_lag_p99_s=0.1,
    loop_blocked_by="f",
    budget_usd=9.0,
    budget_spent_usd=2.0,
)
OTHER = Stats(
    asked=1,
    requests=1,
    limit=6,
    limits={"a m": 4, "b m": 2},
    abstentions={"refused": 2},
    judges={"q": JudgeStats(asked=1), "r": JudgeStats(cached=2)},
    model_changes=1,
    latency_p50_s=2.0,
    loop_lag_p99_s=0.3,
    loop_blocked_by="g",
    budget_usd=9.0,
    budget_spent_usd=2.5,
)


def test_counts_are_summed_and_what_all_shards_share_is_counted_once():
    both = merged_stats([ONE, OTHER])
    assert (both.asked, both.requests, both.limit, both.spent_usd) == (4, 4, 16, 0.5)
    assert both.limits == {"a m": 14, "b m": 2}
    assert both.abstentions == {"refused": 2, "timeout": 1}
    assert both.judges == {"q": JudgeStats(asked=4, spent_usd=0.5), "r": JudgeStats(cached=2)}
    assert both.model_changes == 1
    assert (both.budget_usd, both.budget_spent_usd) == (9.0, 2.5)
    assert both.latency_p50_s == pytest.approx(1.25)
    assert (both.loop_lag_p99_s, both.loop_blocked_by) == (0.3, "g")


def test_a_shard_without_an_answer_makes_the_others_no_faster():
    assert merged_stats([ONE, Stats()]).latency_p50_s == 1.0
    assert merged_stats([ONE, Stats(requests=9)]).latency_p50_s == 1.0
    assert merged_stats([Stats(), Stats()]).latency_p50_s == 0.0


def test_the_statistics_of_a_single_shard_are_unchanged():
    assert merged_stats([ONE]) is ONE


def test_without_a_budget_there_is_none():
    assert merged_stats([Stats(), Stats()]).budget_usd is None
