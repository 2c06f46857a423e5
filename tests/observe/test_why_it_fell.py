"""The page names the cause of a fall, in runs that were made by the real engine."""

from contextlib import closing

import pytest

from zerowait.observe.page.data import open_run, point, view_document
from zerowait.record import open_index

FALLS_AT = 6


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("harder prompts", "harder_prompts"),
        ("harder prompts of one source", "harder_prompts"),
        ("a judge outage", "judge_outage"),
        ("a drifted judge", "judge_drift"),
        ("reward hacking by length", "length_hacking"),
    ],
)
def test_the_first_cause_is_the_true_one(name, cause, prepare, tmp_path):
    with closing(open_index(prepare(name, tmp_path / "run"))) as index:
        run = open_run(index)
        assert FALLS_AT in view_document(run, "rewards").falls
        panel = point(run, FALLS_AT)
    assert panel.fall.fell
    assert panel.fall.causes[0].kind == cause, panel.fall
    assert panel.worst[0].responses[-1].components
