"""The page of the record lists every table and column, and its questions have answers."""

import re
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

import zerowait
from zerowait.record import TABLES, EventLine, open_index
from zerowait.record.index import _TABLES
from zerowait.testing import FakeJudge, Garbage, Script, Status
from zerowait.types import Sample

PAGE = (Path(__file__).parents[2] / "docs/reference/record.md").read_text()
QUESTIONS = re.findall(r"^([A-Z][^\n]*\?)\n\n```sql\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A record of two steps, in which some requests fail and some replies are no verdicts."""
    folder = tmp_path_factory.mktemp("record")
    faults = [Status(status=503, first=1, share=0.3), Garbage(share=0.2, always=True)]
    with FakeJudge(Script(faults=faults, seed=5)) as judge:
        endpoint = {"base_url": judge.url, "model": "m"}
        config = {
            "components": {
                "answer": {"scorer": "contains"},
                "quality": {"judge": "quality", "weight": 0.1},
            },
            "judges": {"quality": {"endpoints": [endpoint], "verdict": {"integer": [1, 10]}}},
            "traffic": {"hedge": "off", "attempts": 8},
            "prices": {"m": {"input": 1.0, "output": 2.0}},
            "cache": {"path": str(folder / "cache.db")},
        }
        with zerowait.open(config, record=folder / "run") as rewards:
            for step in (1, 2):
                samples = [
                    Sample(f"q{n % 3}", f"Paris {n}", "Paris", group=f"g{n % 3}", step=step)
                    for n in range(12)
                ]
                same = Sample("same?", "Paris", "Paris", group="same", step=step)
                rewards.score([*samples, same, same])
    event = EventLine(at=1.0, kind="health_alarm", fields={"component": "quality", "why": "w"})
    with (folder / "run/events.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(event) + b"\n")
    return folder / "run"


def test_there_are_ten_questions():
    assert len(QUESTIONS) == 10


@pytest.mark.parametrize(("question", "query"), QUESTIONS, ids=[q for q, _ in QUESTIONS])
def test_a_question_has_an_answer(run, question, query):
    with closing(open_index(run)) as index:
        assert index.execute(query).fetchall()


def test_every_table_is_listed_with_its_columns_and_no_other():
    listed = {}
    for name, section in re.findall(r"^### (\w+)\n(.*?)(?=^#|\Z)", PAGE, re.DOTALL | re.MULTILINE):
        cells = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
        listed[name] = {column for cell in cells for column in re.findall(r"`(\w+)`", cell)}
    known = {
        name: set(re.findall(r"(\w+) (?:INTEGER|TEXT|REAL)", columns))
        for name, columns in re.findall(r"CREATE TABLE (\w+) \((.*?)\);", _TABLES, re.DOTALL)
    }
    del known["sources"]
    assert listed == known
    assert set(listed) == set(TABLES)
