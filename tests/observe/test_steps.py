from contextlib import closing

import msgspec
import pytest

from zerowait.observe import Report, alarms, by_step, comparison, summarise, traffic
from zerowait.record import (
    Records,
    RewardRecord,
    WaitRecord,
    append_wait,
    open_index,
    read_waits,
)
from zerowait.types import Abstain, Reward, Sample, Score


def record(value, *, split="train", step=1, at=0.0, settled=1.0, tokens=10, outcome=None):
    outcome = outcome or (Score(value) if value is not None else Abstain("timeout", "late"))
    sample = Sample("q", "a", split=split, step=step, response_tokens=tokens)
    reward = Reward(value, {"quality": outcome}, policy="" if value is not None else "neutral")
    return RewardRecord(sample=sample, reward=reward, submitted_at=at, settled_at=settled)


@pytest.fixture
def summaries(tmp_path):
    """The summaries of a run with these records and waits, by its index."""

    def of(records, waits=None):
        with closing(Records(tmp_path)) as recording:
            for each in records:
                recording.reward(each)
        for step, exposed_s in (waits or {}).items():
            append_wait(tmp_path, WaitRecord(step=step, exposed_s=exposed_s))
        with closing(open_index(tmp_path)) as index:
            return summarise(index)

    return of


def test_means_are_over_what_was_judged_and_abstentions_are_counted_apart(summaries):
    (step,) = summaries([record(1.0), record(3.0), record(None)])
    assert (step.rows, step.scored, step.reward) == (3, 2, 2.0)
    assert step.reward_std == pytest.approx(1.0)
    assert step.components == {"quality": 2.0}
    assert step.abstentions == {"quality/timeout": 1}


def test_a_step_without_a_judged_row_has_no_mean_and_not_0(summaries):
    (step,) = summaries([record(None), record(None)])
    assert step.reward is None
    assert step.reward_std is None
    assert step.components == {"quality": None}


def test_exposed_time_is_what_the_trainer_measured_and_nothing_that_a_record_tells(summaries):
    """A reward that settles late costs nothing while log-probabilities are computed."""
    rows = [record(1.0, at=0, settled=9), record(1.0, at=7, settled=8, step=2)]
    rows.append(record(1.0, split="validation", at=0, settled=5))
    steps = summaries(rows, {1: 0.25})
    first, second, validated = (
        next(s for s in steps if (s.split, s.step) == place)
        for place in (("train", 1), ("train", 2), ("validation", 1))
    )
    assert (first.exposed_s, second.exposed_s, validated.exposed_s) == (0.25, None, None)


def test_what_the_trainer_waited_is_read_by_step_and_the_last_time_counts(tmp_path):
    for step, exposed_s in ((1, 0.5), (2, 0.1), (2, 0.3)):
        append_wait(tmp_path, WaitRecord(step=step, exposed_s=exposed_s))
    assert read_waits(tmp_path) == {1: 0.5, 2: 0.3}
    assert read_waits(tmp_path / "without") == {}


def test_a_trainer_that_measured_nothing_waited_for_no_number(report):
    untold = msgspec.structs.replace(
        report, training=[msgspec.structs.replace(s, exposed_s=None) for s in report.training]
    )
    header, row = by_step(untold)
    assert row[header.index("exposed_reward_s")] == "-"
    assert ("exposed_reward_s, all steps", "-") in traffic(untold)
    assert ("exposed_reward_s, all steps", "1.00") in traffic(report)


def test_validation_of_a_step_comes_before_its_training(summaries):
    steps = summaries([record(1.0, step=1), record(1.0, split="validation", step=0)])
    assert [(s.split, s.step) for s in steps] == [("validation", 0), ("train", 1)]


@pytest.fixture
def report(tmp_path, summaries):
    steps = summaries(
        [
            record(0.2, split="validation", step=0),
            record(None, split="validation", step=0),
            record(0.5, step=1),
            record(0.8, split="validation", step=1),
        ],
        {1: 1.0},
    )
    return Report(
        folder=tmp_path,
        training=[s for s in steps if s.split == "train"],
        validation=[s for s in steps if s.split != "train"],
        stats={"asked": 4, "cached": 2, "abstentions": {"timeout": 1}},
    )


def test_the_comparison_shows_before_and_after_with_their_coverage(report):
    rows = comparison(report)
    assert rows[1] == ("reward", "0.200", "0.800")
    assert rows[-1] == ("judged", "1/2", "1/1")


def test_the_step_table_shows_abstentions_and_exposed_time(report):
    header, row = by_step(report)
    assert row[header.index("abstained")] == "0/1"
    assert row[header.index("exposed_reward_s")] == "1.00"


def test_the_traffic_table_names_each_kind_of_abstention(report):
    assert ("abstentions", "timeout 1") in traffic(report)


@pytest.mark.parametrize(
    ("usd", "shown"), [(0.25, "$0.2500"), (0.00004, "$0.0000"), (0.0, "nothing that has a price")]
)
def test_an_unknown_cost_is_not_shown_as_0(report, usd, shown):
    spent = msgspec.structs.replace(report, stats={"prompt_tokens": 900, "spent_usd": usd})
    assert ("spent", shown) in traffic(spent)


def test_the_alarms_table_says_what_each_one_means(report):
    assert alarms(report) == []
    raised = [{"kind": "saturated", "component": "quality", "step": 3, "why": "99% of 64 are 10"}]
    _, row = alarms(msgspec.structs.replace(report, stats={"alarms": raised}))
    assert row[:3] == ("3", "saturated", "quality")
    assert row[3].endswith("little can be learned: 99% of 64 are 10")
