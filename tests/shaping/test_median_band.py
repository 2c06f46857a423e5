"""The free band around the median: golden vectors, and the shape by name."""

import math

import pytest

from zerowait.shaping import GroupView, median_band, resolve_shape
from zerowait.types import Abstain, FailureKind

GOLDEN = [
    # lengths, options, penalties
    ([100, 100, 100], {}, [0, 0, 0]),
    ([100, 70, 130], {}, [0, 0, 0]),
    ([100, 69, 131], {}, [0, 0.05, 0.05]),
    ([100, 60, 140], {}, [0, 0.5, 0.5]),
    ([100, 50, 150], {}, [0, 1, 1]),
    ([100, 49, 151], {}, [0, 1, 1]),
    ([100, 0, 10_000], {}, [0, 1, 1]),
    ([100, 200], {}, [1 / 6, 1 / 6]),  # the median is 150, not torch's lower 100
    ([100, 100, 200, 200], {}, [1 / 6] * 4),
    ([1, 2, 3, 1000], {}, [1, 0, 0, 1]),
    ([7], {}, [0]),
    ([], {}, []),
    ([0, 0, 500], {}, [0, 0, 0]),
    ([0, 1], {}, [1, 1]),
    ([100, 60, 140], {"max_penalty": 2.0}, [0, 1, 1]),
    ([100, 60, 140], {"max_penalty": 0.0}, [0, 0, 0]),
    ([100, 90, 80], {"peak_ratio": 0.0, "outer_ratio": 0.2}, [10 / 18, 0, 10 / 18]),
    ([100, 0, 250], {"peak_ratio": 0.5, "outer_ratio": 1.5}, [0, 0.5, 1]),
]


@pytest.mark.parametrize(("lengths", "options", "penalties"), GOLDEN)
def test_the_penalties_are_these(lengths, options, penalties):
    assert median_band(lengths, **options) == pytest.approx(penalties)


@pytest.mark.parametrize("middle", [10, 30, 70, 90, 110, 1000, 4090, 123_450])
def test_a_length_on_an_edge_belongs_to_the_better_side(middle):
    """The edges are included in spite of rounding: 90 x 0.7 is 62.99999999999999 in floats."""
    inner = [middle * 7 // 10, middle * 13 // 10]
    outer = [middle // 2, middle + middle // 2]
    assert median_band([middle, *inner]) == [0.0, 0.0, 0.0]
    assert median_band([middle, *outer]) == [0.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outer_ratio": 0.3}, "outer_ratio must be greater than peak_ratio, but 0.3 <= 0.3"),
        ({"outer_ratio": 0.1}, "outer_ratio must be greater than peak_ratio"),
        ({"peak_ratio": -0.1}, "peak_ratio must not be negative"),
        ({"max_penalty": -1.0}, "max_penalty must not be negative"),
        ({"peak_ratio": math.nan}, "peak_ratio must be a finite number"),
        ({"outer_ratio": math.inf}, "outer_ratio must be a finite number"),
    ],
)
def test_parameters_that_make_no_band_are_refused_when_it_is_made(options, message):
    with pytest.raises(ValueError, match=message):
        median_band([1], **options)
    with pytest.raises(ValueError, match=message):
        resolve_shape("median_band", {}).__class__(**options)


def test_the_contribution_is_minus_the_penalty_and_says_how_it_came_about():
    shape = resolve_shape("median_band", {})
    first, second, third = shape.penalties(GroupView(lengths=[100, 60, 200]))
    assert (first.value, second.value, third.value) == (0.0, -0.5, -1.0)
    assert second.detail == {"penalty": 0.5, "median_length": 100.0, "response_length": 60}
    assert not shape.needs_scores
    assert math.copysign(1, first.value) == 1  # no -0.0 in anybody's logs


def test_an_unknown_length_leaves_the_whole_group_without_a_median():
    outcomes = resolve_shape("median_band", {}).penalties(GroupView(lengths=[100, None, 200]))
    assert [type(outcome) for outcome in outcomes] == [Abstain] * 3
    assert {outcome.kind for outcome in outcomes} == {FailureKind.BAD_INPUT}


def test_an_empty_group_has_no_penalties():
    assert resolve_shape("median_band", {}).penalties(GroupView(lengths=[])) == []
