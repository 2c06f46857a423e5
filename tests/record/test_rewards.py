import resource
import stat
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest

from zerowait.engine import Stats
from zerowait.errors import ConfigError, DataError
from zerowait.hub import RewardRecord, read_rewards, read_stats
from zerowait.record import REWARDS, Records
from zerowait.types import Abstain, Reward, Sample, Score

ROW = RewardRecord(
    sample=Sample([{"role": "user", "content": "q"}], "a", ground_truth=["x"], group="g"),
    reward=Reward(
        None, {"a": Score(1.0), "b": Abstain("refused", "no")}, {"a/scored": 1.0}, "mask", "b"
    ),
    trained_on=0.5,
    substitute_from="group",
)


def test_what_was_recorded_is_read_back_as_it_was(tmp_path):
    records = Records(tmp_path)
    records.reward(ROW)
    records.close()
    assert list(read_rewards(tmp_path)) == [ROW]


def test_the_field_stand_in_keeps_its_name_in_the_file(tmp_path):
    """Scripts of users read it there."""
    records = Records(tmp_path)
    records.reward(ROW)
    records.close()
    assert b'"stand_in":"group"' in (tmp_path / REWARDS).read_bytes()


def test_half_a_surrogate_pair_which_no_file_can_hold_costs_no_reward(tmp_path):
    """Models that write bytes of their own, and JSON's escapes, make such texts."""
    sample = Sample("half \ud83d", "a", extra={"\udc00": ["\ud83d"]})
    records = Records(tmp_path)
    records.reward(RewardRecord(sample=sample, reward=Reward(1.0, {})))
    records.close()
    [row] = read_rewards(tmp_path)
    assert (row.sample.prompt, row.sample.extra) == ("half \ufffd", {"\ufffd": ["\ufffd"]})


def test_a_second_run_of_the_writer_appends(tmp_path):
    for _ in range(2):
        records = Records(tmp_path)
        records.reward(ROW)
        records.close()
    assert len(list(read_rewards(tmp_path))) == 2


def test_a_half_written_last_line_of_a_killed_process_is_left_out(tmp_path):
    records = Records(tmp_path)
    records.reward(ROW)
    records.close()
    with (tmp_path / REWARDS).open("ab") as file:
        file.write(b'{"sample": {"prom')
    assert list(read_rewards(tmp_path)) == [ROW]


@contextmanager
def room_for(size_bytes):
    """Files of this process cannot grow beyond `size_bytes`, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("reopened", [False, True], ids=["the same writer", "another writer"])
@pytest.mark.parametrize("room_bytes", [0, 10])
def test_a_full_disk_costs_the_record_that_did_not_fit_and_no_other(tmp_path, room_bytes, reopened):
    """Half a line stays there; what is written after it is no part of it."""
    records = Records(tmp_path)
    records.reward(ROW)
    size_bytes = (tmp_path / REWARDS).stat().st_size
    with room_for(size_bytes + room_bytes), pytest.raises(OSError, match=r"rewards\.jsonl"):
        records.reward(ROW)
    assert (tmp_path / REWARDS).stat().st_size == size_bytes + room_bytes
    if reopened:
        records.close()
        records = Records(tmp_path)
    records.reward(ROW)
    records.reward(ROW)
    records.close()
    assert list(read_rewards(tmp_path)) == [ROW] * 3


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"the record .*file/run: .*name another folder"):
        Records(tmp_path / "file" / "run")


def test_a_file_of_which_no_line_can_be_read_is_an_error(tmp_path):
    (tmp_path / REWARDS).write_bytes(b"{}\n")
    with pytest.raises(DataError, match=r"rewards.jsonl:1: is damaged"):
        list(read_rewards(tmp_path))


def test_damaged_lines_are_left_out_and_told_once(tmp_path, caplog):
    for _ in range(2):
        records = Records(tmp_path)
        records.reward(ROW)
        records.close()
    first, second = (tmp_path / REWARDS).read_bytes().splitlines(keepends=True)
    (tmp_path / REWARDS).write_bytes(first + b"\0\0\n" + second + b'"\xff"\n')
    assert list(read_rewards(tmp_path)) == [ROW, ROW]
    [told] = caplog.messages
    assert "2 damaged lines are left out: rewards.jsonl:2 (JSON is malformed" in told
    assert told.endswith(", :4")


def test_nothing_recorded_is_one_clear_error(tmp_path):
    with pytest.raises(DataError, match="nothing was recorded there"):
        list(read_rewards(tmp_path / "nowhere"))


def test_numpy_values_of_data_sets_are_recorded_as_plain_ones(tmp_path):
    records = Records(tmp_path)
    extra = {"index": np.int64(3), "list": np.array([1, 2])}
    records.reward(RewardRecord(sample=Sample("q", "a", extra=extra), reward=Reward(1.0, {})))
    records.close()
    (row,) = read_rewards(tmp_path)
    assert row.sample.extra == {"index": 3, "list": [1, 2]}


def test_counters_are_kept_at_each_new_step_and_at_the_end_but_not_for_every_row(tmp_path):
    records = Records(tmp_path)
    for step in (1, 1, 1, 2):
        records.stats(partial(Stats, settled=step), split="train", step=step)
    records.stats(lambda: Stats(settled=9), split="train", step=2, last=True)
    records.close()
    assert [row.stats["settled"] for row in read_stats(tmp_path)] == [1, 2, 9]


def test_records_are_readable_by_their_owner_only(tmp_path):
    Records(tmp_path).close()
    assert stat.S_IMODE((tmp_path / REWARDS).stat().st_mode) == 0o600


def test_a_runs_folder_is_for_its_owner_only(tmp_path):
    Records(tmp_path / "runs" / "1").close()
    assert stat.S_IMODE((tmp_path / "runs" / "1").stat().st_mode) == 0o700
