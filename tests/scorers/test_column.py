from decimal import Decimal

import numpy as np
import pytest

from zerowait.scorers.column import column
from zerowait.types import Abstain, FailureKind, Sample, Score


@pytest.mark.parametrize(
    ("held", "outcome"),
    [
        (0.25, 0.25),
        (True, 1.0),
        (Score(2.0), 2.0),
        (Abstain("timeout"), FailureKind.TIMEOUT),
        (None, FailureKind.BAD_INPUT),
        ("0.5", FailureKind.BAD_INPUT),
        (float("nan"), FailureKind.BAD_INPUT),
        ([1.0], FailureKind.BAD_INPUT),
        (np.float32(0.5), 0.5),
        (Decimal("0.5"), 0.5),
        (10**400, FailureKind.BAD_INPUT),
        (np.ma.masked, FailureKind.BAD_INPUT),
        (np.str_("1"), FailureKind.BAD_INPUT),
        (Decimal("NaN"), FailureKind.BAD_INPUT),
    ],
)
def test_it_takes_the_number_that_the_row_holds_and_nothing_else(held, outcome):
    found = column(Sample("", "", extra={"rm": held}), key="rm")
    assert outcome == (found.kind if isinstance(found, Abstain) else found.value)
