"""Endless sampling, told of and stopped: verl replaces groups whose rewards are all equal."""

import itertools
import logging

import pytest
from omegaconf import OmegaConf

from zerowait.errors import JudgementError
from zerowait.types import Sample
from zerowait.verl.rewards.sampled_batches import SampledBatches, SampledRows, filters_groups


def row(step, split="train", group=None):
    return Sample("q", "a", split=split, step=step, group=group or f"g{next(NUMBERS)}")


NUMBERS = itertools.count()


def test_it_is_said_after_one_batch_and_stopped_after_the_given_number(caplog):
    caplog.set_level(logging.WARNING)
    counter = SampledBatches(batch=4, most=3)
    counter.add(3, why="all are 0")
    assert not caplog.records
    counter.add(1, why="all are 0")
    assert "all are 0" in caplog.text
    assert "stops at 3 batches" in caplog.text
    counter.add(7, why="all are 0")
    assert len(caplog.records) == 1
    with pytest.raises(JudgementError, match=r"3 batches were sampled .* all are 0"):
        counter.add(1, why="all are 0")


def test_each_step_counts_anew(caplog):
    counter = SampledBatches(batch=2, most=2)
    for _ in range(5):
        counter.add(3, why="")
        counter.begin_step()
    assert len(caplog.records) == 5


def test_a_worker_of_verls_own_trainer_counts_its_share_of_a_steps_responses():
    """Of 16 responses of a batch each of two workers sees 8; 3 batches beyond it are 24 more."""
    counter = SampledRows(batch=16, workers=2, most=3)
    for _ in range(100):
        counter.add(row(1, "validation"))
    for _ in range(8 + 23):
        counter.add(row(1))
    for _ in range(8):
        counter.add(row(2))
    for _ in range(23):
        counter.add(row(2))
    with pytest.raises(JudgementError, match="step 2 goes on sampling"):
        counter.add(row(2))
    for step in (2, 3):  # and again, until verl has no rows left
        with pytest.raises(JudgementError, match="step 2 goes on sampling"):
            counter.add(row(step))


def test_a_group_that_has_begun_is_not_cut_in_two():
    """A lone survivor would get its raw reward for its advantage from verl."""
    counter = SampledRows(batch=2, workers=1, most=1)
    for group in ("a", "b"):
        counter.add(row(1, group=group))
    counter.add(row(1, group="c"))
    with pytest.raises(JudgementError):
        counter.add(row(1, group="d"))
    for group in ("a", "b", "c"):
        counter.add(row(1, group=group))
    with pytest.raises(JudgementError):
        counter.add(row(1, group="d"))


@pytest.mark.parametrize(
    ("given", "filters"),
    [
        ({}, False),
        ({"filter_groups": None}, False),
        ({"filter_groups": {"enable": True}}, True),
        ({"filter_groups": {"enable": False}}, False),
        ({"filter_groups": {"metric": "acc"}}, False),
    ],
)
def test_only_where_groups_are_filtered(given, filters):
    assert filters_groups(OmegaConf.create(given)) is filters
