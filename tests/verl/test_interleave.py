from hypothesis import given
from hypothesis.strategies import booleans, integers, lists

from zerowait.verl.trainer.interleave import interleaved


@given(silent=lists(booleans(), min_size=1, max_size=40), ranks=integers(1, 4))
def test_no_row_is_lost_and_none_changes_its_rank(silent, ranks):
    silent = silent * ranks
    order = interleaved(silent, ranks)
    share = len(silent) // ranks
    assert sorted(order) == list(range(len(silent)))
    assert all(order[at] // share == at // share for at in range(len(silent)))


@given(loud=integers(1, 30), silent=integers(0, 30), batches=integers(1, 6))
def test_every_mini_batch_has_a_row_that_speaks_when_there_are_enough(loud, silent, batches):
    rows = [True] * silent + [False] * loud
    rows += [True] * (-len(rows) % batches)
    order = interleaved(rows, ranks=1)
    size = len(rows) // batches
    cut = [order[at : at + size] for at in range(0, len(rows), size)]
    if loud >= 2 * batches:
        assert all(any(not rows[row] for row in batch) for batch in cut)


def test_rows_of_one_kind_keep_their_order():
    assert interleaved([False] * 4, ranks=2) == [0, 1, 2, 3]
    assert interleaved([True] * 3, ranks=1) == [0, 1, 2]
