"""``zerowait export``: the tables of a record as Parquet files."""

import json
from contextlib import closing

import pyarrow.parquet as pq
import pytest

from zerowait.record import TABLES, Records, RewardRecord, open_index
from zerowait.types import Abstain, Reward, Sample, Score


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    with closing(Records(folder)) as records:
        for step, value in ((1, 0.5), (2, None)):
            judged = Score(value) if value is not None else Abstain("timeout", "late")
            sample = Sample("q", "a ünïcode", step=step, extra={"level": step})
            records.reward(RewardRecord(sample=sample, reward=Reward(value, {"x": judged})))
    return folder


def test_every_table_is_a_file_with_the_columns_and_types_of_the_index(zerowait, run):
    done = zerowait("export", run)
    assert done.returncode == 0, done.stderr
    assert sorted(path.stem for path in (run / "export").iterdir()) == sorted(TABLES)
    with closing(open_index(run)) as index:
        for table in TABLES:
            read = pq.read_table(run / f"export/{table}.parquet")
            found = index.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall()
            assert [tuple(row.values()) for row in read.to_pylist()] == [tuple(r) for r in found]
    rewards = pq.read_table(run / "export/rewards.parquet")
    assert rewards["value"].to_pylist() == [0.5, None]
    assert str(rewards.schema.field("step").type) == "int64"


def test_one_table_goes_where_it_is_asked_for(zerowait, run, tmp_path):
    done = zerowait("export", run, "--table", "rewards", "--out", tmp_path / "out", "--json")
    assert json.loads(done.stdout) == {
        "files": [{"path": str(tmp_path / "out/rewards.parquet"), "rows": 2}]
    }
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["rewards.parquet"]


def test_a_wrong_table_or_folder_is_named(zerowait, run, tmp_path):
    wrong = zerowait("export", run, "--table", "reward")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "--table reward: there is no such table; did you mean 'rewards'?" in wrong.stderr
    nothing = zerowait("export", tmp_path / "nowhere")
    assert nothing.returncode == 2
    assert "there is no folder" in nothing.stderr
    (tmp_path / "file").write_text("")
    taken = zerowait("export", run, "--out", tmp_path / "file")
    assert "--out" in taken.stderr
