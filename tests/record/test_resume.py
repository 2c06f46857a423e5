"""The record of a run that resumes, or starts over in the same folder."""

import stat
from contextlib import closing

import msgspec
import pytest

from zerowait.engine import Stats
from zerowait.hub import RewardRecord, read_rewards, read_stats
from zerowait.record import (
    EVENTS,
    JUDGEMENTS,
    OPINIONS,
    REWARDS,
    JudgementLine,
    Records,
    open_index,
)
from zerowait.record.resume import UNDONE, archive_record, rewind_record
from zerowait.types import Reward, Sample, Score


def row(step, *, split="train", ticket="", value=1.0, uid=""):
    sample = Sample("q", "a", split=split, step=step)
    reward = Reward(value, {"a": Score(value)})
    return RewardRecord(sample=sample, reward=reward, ticket=ticket, uid=uid)


def recorded(folder, *rows):
    records = Records(folder)
    for each in rows:
        records.reward(each)
    records.stats(Stats, split="train", step=1)
    records.close()


def splits_and_steps(folder):
    return [(r.sample.split, r.sample.step) for r in read_rewards(folder)]


def test_the_record_of_a_resumed_run_holds_each_step_once(tmp_path):
    """The steps after the checkpoint are trained again."""
    recorded(tmp_path, row(1), row(2), row(3), row(4))
    rewind_record(tmp_path, step=2, validates=False)
    recorded(tmp_path, row(3), row(4), row(5))
    assert splits_and_steps(tmp_path) == [("train", step) for step in (1, 2, 3, 4, 5)]
    assert len(list(read_stats(tmp_path))) == 2
    assert len((tmp_path / UNDONE).read_bytes().splitlines()) == 2


@pytest.mark.parametrize(("validates", "left"), [(True, [0]), (False, [0, 2])])
def test_the_first_validation_of_a_resumed_run_replaces_the_one_at_its_checkpoint(
    tmp_path, validates, left
):
    recorded(tmp_path, *[row(step, split="validation") for step in (0, 2, 4)])
    rewind_record(tmp_path, step=2, validates=validates)
    assert splits_and_steps(tmp_path) == [("validation", step) for step in left]


def test_a_trainer_that_counts_from_zero_trains_on_the_checkpoints_step_after_it(tmp_path):
    """What was validated at that step was validated before the checkpoint."""
    recorded(tmp_path, *[row(step) for step in range(4)], row(2, split="validation"))
    rewind_record(tmp_path, step=2, validates=False, counts_from_zero=True)
    assert splits_and_steps(tmp_path) == [("train", 0), ("train", 1), ("validation", 2)]


def test_a_record_that_is_resumed_twice_keeps_all_that_was_undone(tmp_path):
    recorded(tmp_path, row(1), row(2))
    rewind_record(tmp_path, step=1, validates=True)
    recorded(tmp_path, row(2))
    rewind_record(tmp_path, step=1, validates=True)
    assert splits_and_steps(tmp_path) == [("train", 1)]
    assert len((tmp_path / UNDONE).read_bytes().splitlines()) == 2


def test_rows_without_a_step_and_incomplete_lines_stay(tmp_path):
    recorded(tmp_path, row(None), row(1))
    with (tmp_path / REWARDS).open("ab") as file:
        file.write(b'{"sample": {"step": 7')
    rewind_record(tmp_path, step=1, validates=True)
    recorded(tmp_path, row(2))
    assert splits_and_steps(tmp_path) == [("train", None), ("train", 1), ("train", 2)]
    assert not (tmp_path / UNDONE).exists()


def test_the_record_stays_readable_by_its_owner_only(tmp_path):
    recorded(tmp_path, row(1), row(2))
    rewind_record(tmp_path, step=1, validates=True)
    for name in (REWARDS, UNDONE):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_a_run_without_a_record_may_resume_too(tmp_path):
    rewind_record(tmp_path, step=3, validates=True)
    assert list(tmp_path.iterdir()) == []


def test_runs_that_start_over_archive_every_earlier_record(tmp_path):
    for step in (1, 2, 3):
        archive_record(tmp_path)
        recorded(tmp_path, row(step))
    assert splits_and_steps(tmp_path) == [("train", 3)]
    kept = sorted(path.name for path in tmp_path.iterdir() if ".previous" in path.name)
    assert kept == [
        *("rewards.previous-2.jsonl", "rewards.previous.jsonl"),
        *("stats.previous-2.jsonl", "stats.previous.jsonl"),
    ]


def test_a_ticket_that_was_judged_again_counts_once_and_as_it_was_redeemed(tmp_path):
    """A hub that is killed between a judgement and its redemption judges it again afterwards."""
    recorded(tmp_path, row(1, ticket="train/u_0"), row(1, ticket="train/u_1"), row(1))
    recorded(tmp_path, row(1, ticket="train/u_0", value=2.0), row(1))
    tickets = [(r.ticket, r.reward.value) for r in read_rewards(tmp_path)]
    assert tickets == [("train/u_1", 1.0), ("", 1.0), ("train/u_0", 2.0), ("", 1.0)]


def test_judgements_of_undone_steps_stay_and_are_told_apart(tmp_path):
    """They were paid for."""

    def judged(uid):
        return JudgementLine(
            at=1.0, judge="q", key=uid, source="asked", outcome=Score(1.0), uids=[uid], cost_usd=0.5
        )

    recorded(tmp_path, row(1, uid="a-1"), row(2, uid="a-2"))
    (tmp_path / JUDGEMENTS).write_bytes(
        b"".join(msgspec.json.encode(judged(uid)) + b"\n" for uid in ("a-1", "a-2"))
    )
    rewind_record(tmp_path, step=1, validates=False)
    with closing(open_index(tmp_path)) as index:
        [cost] = index.execute("SELECT sum(cost_usd) FROM judgements").fetchone()
        undone = index.execute(
            "SELECT uid, step FROM judgements JOIN judgement_rows USING (judgement)"
            " JOIN undone USING (uid)"
        )
        assert (cost, [tuple(each) for each in undone]) == (1.0, [("a-2", 2)])


def test_every_file_of_an_earlier_run_is_archived(tmp_path):
    recorded(tmp_path, row(1), row(2))
    rewind_record(tmp_path, step=1, validates=False)
    for name in (JUDGEMENTS, "judgements.00002.jsonl", EVENTS, OPINIONS):
        (tmp_path / name).write_bytes(b"{}\n")
    archive_record(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        *("rewards.previous.jsonl", "rewards.undone.previous.jsonl", "stats.previous.jsonl"),
        *("judgements.previous.jsonl", "judgements.00002.previous.jsonl"),
        *("events.previous.jsonl", "opinions.previous.jsonl"),
    }
