"""The index of a record: its lines as tables, brought up to date from where it was."""

import os
import shutil
import sqlite3
from contextlib import closing

import msgspec
import pytest

from zerowait.engine import Stats
from zerowait.errors import DataError
from zerowait.record import (
    JUDGEMENTS,
    REWARDS,
    AppendOnlyFile,
    JudgementLine,
    Phase,
    Records,
    RewardRecord,
    WaitRecord,
    append_wait,
    archive_record,
    damage_in,
    open_index,
    refresh,
    rewind_record,
)
from zerowait.record.judgements import UNSET, encoded_body
from zerowait.types import Abstain, Reward, Sample, Score


def row(uid="a-1", *, value=1.0, step=1, ticket="", response="yes", **sample):
    judged = Score(value, "so") if value is not None else Abstain("timeout", "no answer in 60 s")
    return RewardRecord(
        uid=uid,
        sample=Sample("2+2?", response, step=step, group="g", **sample),
        reward=Reward(value, {"quality": judged}, {"length": 3.0, "none": None}),
        trained_on=value,
        ticket=ticket,
        submitted_at=1.0,
        settled_at=2.0,
    )


def recorded(folder, *rows):
    with closing(Records(folder)) as records:
        for each in rows:
            records.reward(each)


def judgement(number, **fields):
    given = {
        "at": float(number),
        "judge": "quality",
        "component": "quality",
        "uids": [f"a-{number}"],
        "question": 0,
        "key": f"key {number}",
        "source": "asked",
        "outcome": Score(0.5, "fair"),
        "request": msgspec.Raw(b'{"q": %d}' % number),
        "reply": msgspec.Raw(b'{"a": %d}' % number),
        "replied": True,
    }
    return JudgementLine(**given | fields)


def append(folder, name, *lines):
    file = AppendOnlyFile(folder / name)
    for line in lines:
        file.write(msgspec.json.encode(line))
    file.close()


def column(index, query):
    return [each[0] for each in index.execute(query)]


def test_a_reward_is_a_row_with_its_components_and_metrics(tmp_path):
    recorded(tmp_path, row(), row("a-2", value=None, ground_truth=["4"], extra={"level": 1}))
    with closing(open_index(tmp_path)) as index:
        first, second = index.execute("SELECT * FROM rewards ORDER BY row")
        assert (first["row"], first["uid"], first["prompt"], first["value"]) == (
            1,
            "a-1",
            "2+2?",
            1.0,
        )
        assert (second["value"], second["ground_truth"], second["extra"]) == (
            None,
            '["4"]',
            '{"level":1}',
        )
        assert first["ground_truth"] is first["messages"] is None
        assert [tuple(each) for each in index.execute("SELECT * FROM components")] == [
            (1, "quality", "score", 1.0, None, "so", None),
            (2, "quality", "abstain", None, "timeout", "no answer in 60 s", None),
        ]
        assert [tuple(each) for each in index.execute("SELECT * FROM metrics")] == [
            (1, "length", 3.0),
            (2, "length", 3.0),
        ]


def test_messages_are_kept_beside_their_text(tmp_path):
    asked = [{"role": "user", "content": "2+2?"}]
    said = [{"role": "assistant", "content": "4"}]
    sample = Sample(asked, said)
    recorded(tmp_path, RewardRecord(sample=sample, reward=Reward(1.0, {})))
    with closing(open_index(tmp_path)) as index:
        [found] = index.execute("SELECT prompt, response, messages FROM rewards")
    assert (found["prompt"], found["response"]) == ("2+2?", "4")
    assert msgspec.json.decode(found["messages"]) == {"prompt": asked, "response": said}


def test_of_rows_with_one_ticket_the_last_is_current(tmp_path):
    recorded(tmp_path, row("a-1", ticket="t"), row("a-2"))
    with closing(open_index(tmp_path)) as index:
        assert column(index, "SELECT current FROM rewards ORDER BY row") == [1, 1]
        recorded(tmp_path, row("b-1", ticket="t"))
        refresh(index)
        assert column(index, "SELECT current FROM rewards ORDER BY row") == [0, 1, 1]


def test_a_record_of_before_has_empty_tables_of_judgements(tmp_path):
    recorded(tmp_path, row(""))
    with closing(open_index(tmp_path)) as index:
        assert column(index, "SELECT uid FROM rewards") == [None]
        for table in ("judgements", "judgement_rows", "attempts", "texts", "events", "opinions"):
            assert column(index, f"SELECT count(*) FROM {table}") == [0]


def test_a_folder_without_a_record_is_refused_and_gets_no_index(tmp_path):
    with pytest.raises(DataError, match=r"holds no record: none of rewards\.jsonl"):
        open_index(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_new_lines_are_added_and_half_a_line_waits_for_its_end(tmp_path):
    recorded(tmp_path, row("a-1"))
    with closing(open_index(tmp_path)) as index:
        line = msgspec.json.encode(row("a-2"))
        with (tmp_path / REWARDS).open("ab") as file:
            file.write(line[:20])
        refresh(index)
        assert column(index, "SELECT uid FROM rewards") == ["a-1"]
        assert damage_in(index) == ""
        with (tmp_path / REWARDS).open("ab") as file:
            file.write(line[20:] + b"\n")
        refresh(index)
        assert column(index, "SELECT uid FROM rewards") == ["a-1", "a-2"]


def test_the_index_is_read_on_by_the_next_who_opens_it(tmp_path):
    """The bytes that were read before are not read again: here they are no lines any more."""
    recorded(tmp_path, row("a-1"), row("a-2"))
    open_index(tmp_path).close()
    path = tmp_path / REWARDS
    first, second = path.read_bytes().splitlines()
    with path.open("r+b") as file:
        file.seek(len(first) + 1)
        file.write(b"x" * len(second))
    recorded(tmp_path, row("a-3"))
    with closing(open_index(tmp_path)) as index:
        assert column(index, "SELECT uid FROM rewards") == ["a-1", "a-2", "a-3"]


def test_lines_that_were_edited_in_their_place_are_read_anew(tmp_path):
    recorded(tmp_path, row("a-1"), row("a-2"))
    with closing(open_index(tmp_path)) as index:
        path = tmp_path / REWARDS
        path.write_bytes(path.read_bytes().replace(b"a-2", b"a-22222"))
        refresh(index)
        assert column(index, "SELECT uid FROM rewards") == ["a-1", "a-22222"]


def test_a_damaged_line_is_left_out_and_named(tmp_path):
    recorded(tmp_path, row("a-1"))
    with closing(open_index(tmp_path)) as index:
        assert damage_in(index) == ""
        with (tmp_path / REWARDS).open("ab") as file:
            file.write(b'{"sample": 1}\n')
        recorded(tmp_path, row("a-2"))
        refresh(index)
        assert column(index, "SELECT uid FROM rewards") == ["a-1", "a-2"]
        assert "rewards.jsonl:2: is damaged and left out: Expected `object`" in damage_in(index)
    with closing(open_index(tmp_path)) as index:  # it is known to the next reader, too
        assert "rewards.jsonl:2: is damaged" in damage_in(index)


def test_a_value_that_no_table_can_hold_is_damage_of_its_line_alone(tmp_path):
    recorded(tmp_path, row("a-1"), row("a-2"), row("a-3"))
    lines = (tmp_path / REWARDS).read_bytes()
    (tmp_path / REWARDS).write_bytes(lines.replace(b'"step":1', b'"step":1' + b"0" * 30, 1))
    with closing(open_index(tmp_path)) as index:
        assert column(index, "SELECT uid FROM rewards") == ["a-2", "a-3"]
        assert "rewards.jsonl:1: is damaged and left out: Python int too large" in damage_in(index)


def test_rewards_of_which_none_can_be_read_are_an_error(tmp_path):
    (tmp_path / REWARDS).write_bytes(b"\0" * 4096 + b"\n{\n")
    with pytest.raises(DataError, match=r"rewards\.jsonl:1: is damaged, and no other line"):
        open_index(tmp_path)


@pytest.mark.parametrize("damage", [b"no database", b"SQLite format 3\0" + b"x" * 4096])
def test_a_damaged_index_is_made_anew(tmp_path, damage):
    recorded(tmp_path, row("a-1"))
    open_index(tmp_path).close()
    (tmp_path / "index.db").write_bytes(damage)
    with closing(open_index(tmp_path)) as index:
        assert column(index, "SELECT uid FROM rewards") == ["a-1"]


def test_an_index_of_another_version_is_made_anew(tmp_path):
    recorded(tmp_path, row("a-1"))
    open_index(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "index.db")) as other:
        other.execute("DROP TABLE rewards")
        other.execute("PRAGMA user_version = 999")
        other.commit()
    with closing(open_index(tmp_path)) as index:
        assert column(index, "SELECT uid FROM rewards") == ["a-1"]


def test_a_record_that_was_rewound_or_archived_is_indexed_anew(tmp_path):
    recorded(tmp_path, row("a-1"), row("a-2", step=2))
    with closing(open_index(tmp_path)) as index:
        rewind_record(tmp_path, step=1, validates=False)
        recorded(tmp_path, row("b-1", step=2), row("b-2", step=2))
        refresh(index)
        assert column(index, "SELECT uid FROM rewards") == ["a-1", "b-1", "b-2"]
        assert column(index, "SELECT uid FROM undone") == ["a-2"]
        archive_record(tmp_path)
        recorded(tmp_path, row("c-1"))
        refresh(index)
        assert column(index, "SELECT uid FROM rewards") == ["c-1"]


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_record_that_is_read_only_is_indexed_in_the_cache_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "run"
    recorded(folder, row("a-1"))
    folder.chmod(0o500)
    with closing(open_index(folder)) as index:
        assert column(index, "SELECT uid FROM rewards") == ["a-1"]
        assert index.file.parent == tmp_path / "home/.cache/zerowait/indexes"
    assert not (folder / "index.db").exists()


def test_where_no_file_may_be_the_index_is_in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/proc/nowhere")
    recorded(tmp_path, row("a-1"))
    (tmp_path / "index.db").mkdir()
    with closing(open_index(tmp_path)) as index:
        assert column(index, "SELECT uid FROM rewards") == ["a-1"]


def test_a_copy_of_the_folder_is_indexed_by_what_it_holds(tmp_path):
    recorded(tmp_path / "run", row("a-1"))
    open_index(tmp_path / "run").close()
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    recorded(tmp_path / "copy", row("a-2"))
    with closing(open_index(tmp_path / "copy")) as index:
        assert column(index, "SELECT uid FROM rewards") == ["a-1", "a-2"]


def test_the_index_is_for_its_owner_only(tmp_path):
    recorded(tmp_path, row("a-1"))
    with closing(open_index(tmp_path)) as index:
        assert index.file.stat().st_mode & 0o077 == 0


def test_counters_waits_and_phases_are_tables(tmp_path):
    with closing(Records(tmp_path)) as records:
        records.stats(Stats, split="train", step=3)
    for exposed_s in (1.0, 2.0):
        phases = [Phase(name="gen", began_at=0.0, ended_at=exposed_s)]
        append_wait(tmp_path, WaitRecord(step=3, exposed_s=exposed_s, phases=phases))
    with closing(open_index(tmp_path)) as index:
        assert tuple(*index.execute("SELECT step, exposed_s FROM waits")) == (3, 2.0)
        assert tuple(*index.execute("SELECT step, name, ended_at FROM phases")) == (3, "gen", 2.0)
        [stats] = column(index, "SELECT stats FROM stats WHERE step = 3")
        assert msgspec.json.decode(stats)["settled"] == 0


def test_a_judgement_has_the_texts_of_the_last_line_of_its_key_that_brought_them(tmp_path):
    def of_first(number, **fields):
        return judgement(number, **{"key": "key 1", "request": UNSET, "reply": UNSET} | fields)

    append(
        tmp_path,
        JUDGEMENTS,
        judgement(1),
        of_first(2, source="joined"),
        of_first(3, reply=encoded_body(b"no JSON")),
        judgement(4, reply=encoded_body(b'{"in": \n"lines"}')),
    )
    open_index(tmp_path).close()
    append(
        tmp_path,
        JUDGEMENTS,
        of_first(5, source="cache"),
        of_first(6, replied=False),
        judgement(7, request=UNSET, replied=False, reply=UNSET),
    )
    with closing(open_index(tmp_path)) as index:
        found = index.execute(
            "SELECT judgement, q.body, a.body FROM judgements"
            " LEFT JOIN texts q ON q.text = request LEFT JOIN texts a ON a.text = reply"
        )
        bodies = {each[0]: tuple(each)[1:] for each in found}
    asked = '{"q": 1}'
    assert bodies == {
        1: (asked, '{"a": 1}'),
        2: (asked, '{"a": 1}'),
        3: (asked, "no JSON"),
        4: ('{"q": 4}', '{"in": \n"lines"}'),
        5: (asked, "no JSON"),
        6: (asked, None),
        7: (None, None),
    }


def test_the_parts_of_a_file_are_read_in_order(tmp_path):
    append(tmp_path, "judgements.00010.jsonl", judgement(3))
    append(tmp_path, JUDGEMENTS, judgement(1))
    append(tmp_path, "judgements.00002.jsonl", judgement(2))
    append(tmp_path, "judgements.previous.jsonl", judgement(9))
    with closing(open_index(tmp_path)) as index:
        assert column(index, "SELECT at FROM judgements ORDER BY judgement") == [1.0, 2.0, 3.0]


def test_steps_are_summed_up_and_again_when_a_row_is_judged_anew(tmp_path):
    recorded(
        tmp_path,
        *(row(value=value, response_tokens=4) for value in (1.0, 2.0, None)),
        row(value=3.0, step=2, ticket="t"),
        row(value=3.0, step=2),
    )
    with closing(open_index(tmp_path)) as index:
        query = "SELECT step, rows, scored, mean_value, mean_square, mean_tokens, groups, equal_groups FROM steps ORDER BY step"
        assert [tuple(each) for each in index.execute(query)] == [
            (1, 3, 2, 1.5, 2.5, 4.0, 1, 0),
            (2, 2, 2, 3.0, 9.0, None, 1, 1),
        ]
        recorded(tmp_path, row(value=5.0, step=2, ticket="t"))
        refresh(index)
        assert column(index, "SELECT mean_value FROM steps WHERE step = 2") == [4.0]
        found = index.execute(
            "SELECT step, component, outcome, kind, rows, mean_value FROM step_components ORDER BY 1, 3 DESC"
        )
        assert [tuple(each) for each in found] == [
            (1, "quality", "score", None, 2, 1.5),
            (1, "quality", "abstain", "timeout", 1, None),
            (2, "quality", "score", None, 2, 4.0),
        ]
