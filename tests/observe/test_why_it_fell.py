"""The page names the cause of a fall, in runs that were made by the real engine."""

import sys
from contextlib import closing
from pathlib import Path

import pytest

from zerowait.observe.page.data import document, open_run, point
from zerowait.record import open_index

sys.path.insert(0, str(Path(__file__).parent))
from prepared_runs import CAUSES, FALLS_AT


@pytest.mark.parametrize("name", CAUSES)
def test_the_first_cause_is_the_true_one(name, tmp_path):
    make, cause = CAUSES[name]
    folder = tmp_path / "run"
    make(folder)
    with closing(open_index(folder)) as index:
        run = open_run(index)
        assert FALLS_AT in document(run, "rewards").falls[:3]
        panel = point(run, FALLS_AT)
    assert panel.fall.fell
    assert panel.fall.causes[0].kind == cause, panel.fall
    assert panel.worst[0].responses[-1].components
