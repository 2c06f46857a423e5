"""The picture of a step, from the times that a run records."""

import xml.etree.ElementTree as ET

import msgspec
import pytest

from zerowait.errors import DataError
from zerowait.hub import Phase, RewardRecord, WaitRecord, append_wait, read_phases, read_waits
from zerowait.observe.svg import THEMES
from zerowait.observe.timeline import (
    GRADIENTS,
    LOG_PROBS,
    ROLLOUT,
    WAIT,
    draw_step,
    read_step,
)
from zerowait.types import Reward, Sample

STEP = [("gen", 0, 4), ("old_log_prob", 4, 5), ("adv", 5, 8), ("update_actor", 8, 9)]
WAITS = [("wait", 5.5, 6), ("wait", 6.5, 8), ("step", 0, 9)]


def phases(*named):
    return [Phase(name=name, began_at=100 + a, ended_at=100 + b) for name, a, b in named]


def reward(group, submitted, settled, *, split="train"):
    sample = Sample("q", "a", group=group, id=f"{group}_0", split=split, step=2)
    return RewardRecord(
        sample=sample,
        reward=Reward(1.0, {}),
        submitted_at=100.0 + submitted,
        settled_at=100.0 + settled,
    )


@pytest.fixture
def run(tmp_path):
    append_wait(tmp_path, WaitRecord(step=1, exposed_s=0.0, phases=phases(("gen", -9, -1))))
    append_wait(tmp_path, WaitRecord(step=2, exposed_s=2.0, phases=phases(*STEP, *WAITS)))
    rewards = [
        reward("a", 1, 3),
        reward("a", 2, 5),
        reward("b", 3, 8),
        reward("b", 1, 2, split="validation"),
        reward("c", -8, -2),
    ]
    lines = [msgspec.json.encode(each) + b"\n" for each in rewards]
    (tmp_path / "rewards.jsonl").write_bytes(b"".join(lines))
    return tmp_path


def test_waits_are_cut_out_of_the_phase_in_which_gradients_may_be_computed(run):
    drawn = [(p.name, p.began_at - 100, p.ended_at - 100) for p in read_step(run).phases]
    assert drawn == [
        (ROLLOUT, 0, 4),
        (LOG_PROBS, 4, 5),
        (GRADIENTS, 5, 5.5),
        (WAIT, 5.5, 6),
        (GRADIENTS, 6, 6.5),
        (WAIT, 6.5, 8),
        (GRADIENTS, 8, 8),
        (GRADIENTS, 8, 9),
    ]
    assert read_step(run).waited_s == 2


def test_a_prompt_has_one_line_from_its_first_response_to_its_last_reward(run):
    groups = [(a - 100, b - 100) for a, b in read_step(run, 2).groups]
    assert groups == [(1, 5), (3, 8)]


@pytest.mark.parametrize("theme", THEMES)
def test_the_picture_is_valid_svg_and_stays_inside_its_box(run, theme):
    svg = ET.fromstring(draw_step(read_step(run), THEMES[theme], title="a <b> & c"))
    width, height = float(svg.get("width")), float(svg.get("height"))
    boxes = [node for node in svg.iter() if node.tag.endswith("rect")]
    for box in boxes:
        assert 0 <= float(box.get("x", 0)) + float(box.get("width")) <= width
        assert 0 <= float(box.get("y", 0)) + float(box.get("height")) <= height
    words = [node.text for node in svg.iter() if node.tag.endswith("text")]
    assert words[0] == "a <b> & c: step 2, 9.0 s, of which 2.0 s waited for rewards"
    assert len([box for box in boxes if box.get("stroke-dasharray")]) == 2
    assert [word for word in words if word.endswith(" s")] == [f"{n} s" for n in range(10)]


def test_a_step_that_is_not_there_is_named(run):
    with pytest.raises(DataError, match=r"has no step 7: it has 1 to 2"):
        read_step(run, 7)


def test_a_run_of_verls_own_modes_has_no_phases(tmp_path):
    append_wait(tmp_path, WaitRecord(step=1, exposed_s=0.5))
    assert read_waits(tmp_path) == {1: 0.5}
    with pytest.raises(DataError, match=r"trainer modes zerowait, .* verl's own modes do not"):
        read_step(tmp_path)
    assert read_phases(tmp_path / "nothing") == {}
