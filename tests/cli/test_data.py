"""The installed command: what it writes is what training and the retriever read."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from zerowait.search.corpus import Corpus
from zerowait.verl.launch.data_columns import check_data_file

HOTPOT = [
    {
        "_id": f"q{number}",
        "question": f"Question {number}?",
        "answer": "Peru",
        "type": "bridge",
        "context": [["Lima", ["Lima is in Peru.", " It is large."]], [f"T{number}", ["Text."]]],
    }
    for number in range(3)
]
SUMMARIES = {
    name: {"title": name, "extract": f"{name} is.", "description": what, "topic": "Geography"}
    for name, what in (
        ("Lima", "Largest city of Peru by the sea"),
        ("Quito", "High capital city of Ecuador"),
    )
}


@pytest.fixture
def hotpot(tmp_path):
    file = tmp_path / "hotpot.json"
    file.write_text(json.dumps(HOTPOT))
    return file


@pytest.mark.parametrize("name", ["train.jsonl", "train.parquet"])
def test_questions_become_rows_that_training_accepts(zerowait, tmp_path, hotpot, name):
    done = zerowait("data", "questions", hotpot, name, "--data-source=hotpotqa", "--keep=type")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{name}: 3 questions\n"
    assert check_data_file(tmp_path / name) == 3
    if name.endswith(".jsonl"):
        row = json.loads((tmp_path / name).read_text().splitlines()[2])
    else:
        row = pq.read_table(tmp_path / name).to_pylist()[2]
    assert row["data_source"] == "hotpotqa"
    assert row["reward_model"]["ground_truth"] == ["Peru"]
    assert row["extra_info"]["type"] == "bridge"
    assert (row["extra_info"]["index"], row["extra_info"]["id"]) == (2, "q2")


def test_paragraphs_become_documents_that_the_retriever_indexes(zerowait, tmp_path, hotpot):
    done = zerowait("data", "corpus", hotpot, "corpus.jsonl")
    assert done.stdout == "corpus.jsonl: 4 documents\n"
    with Corpus(tmp_path / "corpus.jsonl") as documents:
        assert [document.id for document in documents] == ["0", "1", "2", "3"]
        assert documents[0].contents == "Lima\nLima is in Peru. It is large."


def test_passages_in_parquet_become_documents(zerowait, tmp_path):
    pq.write_table(pa.table({"title": ["Lima"], "text": ["In Peru."]}), tmp_path / "p.parquet")
    assert zerowait("data", "corpus", "p.parquet", "c.jsonl").returncode == 0
    line = json.loads((tmp_path / "c.jsonl").read_text())
    assert line == {"id": "0", "contents": "Lima\nIn Peru."}


def test_articles_become_a_corpus_and_two_sets_of_questions(zerowait_process, tmp_path):
    (tmp_path / "s.json").write_text(json.dumps(SUMMARIES))
    done = zerowait_process("data", "wiki", "out", "--summaries=s.json", "--held-out=1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "out/corpus.jsonl: 2 documents",
        "out/train.jsonl: 1 question",
        "out/heldout.jsonl: 1 question",
    ]
    assert check_data_file(tmp_path / "out/train.jsonl") == 1
    with Corpus(tmp_path / "out/corpus.jsonl") as documents:
        assert [document.contents for document in documents] == [
            "Lima\nLima is.",
            "Quito\nQuito is.",
        ]


def test_unusable_rows_are_left_out_and_counted_with_skip_unusable(zerowait, tmp_path):
    rows = [
        {"question": "?"},
        {"question": "Where?", "answer": "here"},
        {"question": "", "answer": "a"},
    ]
    (tmp_path / "f.jsonl").write_text("\n".join(map(json.dumps, rows)))
    refused = zerowait("data", "questions", "f.jsonl", "o.jsonl")
    assert refused.returncode == 2
    assert "f.jsonl:1: has no answer" in refused.stderr
    assert not (tmp_path / "o.jsonl").exists()
    done = zerowait("data", "questions", "f.jsonl", "o.jsonl", "--skip-unusable")
    assert done.stdout.startswith("o.jsonl: 1 question\n2 rows were left out, the first because")
    assert json.loads((tmp_path / "o.jsonl").read_text())["extra_info"]["index"] == 0


def test_repeated_questions_are_kept_and_reported(zerowait, tmp_path):
    rows = [{"question": q, "answer": "a"} for q in ("Who?", "Where?", "Who?", "Who?")]
    (tmp_path / "f.jsonl").write_text("\n".join(map(json.dumps, rows)))
    done = zerowait("data", "questions", "f.jsonl", "o.jsonl")
    output = "2 rows repeat the question of an earlier row, the first f.jsonl:3"
    assert done.stdout.splitlines() == ["o.jsonl: 4 questions", output]


def test_no_more_rows_than_wanted_are_written(zerowait, tmp_path, hotpot):
    assert "2 questions" in zerowait("data", "questions", hotpot, "o.jsonl", "--limit=2").stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["wiki", "out", "--summaries=nowhere.json"], "there is no such file"),
        (["wiki", "out", "--summaries=hotpot.json"], "is no mapping of titles to articles"),
        (["questions", "nowhere.jsonl", "o.jsonl"], "does not exist"),
        (["questions", "hotpot.json", "o.csv"], "has to end in .jsonl or .parquet"),
        (["questions", "hotpot.json", "no/o.jsonl"], "there is no folder no"),
        (["questions", "hotpot.json", "hotpot.json"], "has to end in"),
        (["questions", "hotpot.json", "o.jsonl", "--instructions=serch"], "did you mean 'search'?"),
        (
            ["questions", "hotpot.json", "o.jsonl", "--instructions=keep"],
            "hotpot.json:1: has no chat",
        ),
        (
            ["questions", "hotpot.json", "o.jsonl", "--question=Question"],
            "did you mean 'question'?",
        ),
        (["questions", "hotpot.json", "o.jsonl", "--limit=0"], "greater than or equal to 1"),
        (
            ["questions", "hotpot.json", "o.jsonl", "--keep=index"],
            "--keep index: extra_info has another value",
        ),
        (["corpus", "empty.jsonl", "o.jsonl"], "there would be no documents"),
        (["corpus", "hotpot.json", "o.parquet"], "has to end in .jsonl"),
    ],
)
def test_a_mistake_is_one_clear_line_and_leaves_nothing_behind(
    zerowait, tmp_path, hotpot, arguments, complaint
):
    (tmp_path / "empty.jsonl").touch()
    done = zerowait("data", *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["empty.jsonl", "hotpot.json"]


def test_the_input_is_never_overwritten(zerowait, tmp_path):
    (tmp_path / "f.jsonl").write_text(json.dumps({"question": "?", "answer": "a"}))
    done = zerowait("data", "questions", "f.jsonl", "f.jsonl")
    assert "is the input itself" in done.stderr


SQUAD = {
    "version": "1.1",
    "data": [
        {
            "title": "Peru",
            "paragraphs": [
                {
                    "context": "Lima is the capital of Peru.",
                    "qas": [
                        {"id": "a1", "question": "What is the capital?", "answers": [{"text": "Lima", "answer_start": 0}, {"text": "Lima", "answer_start": 0}]},
                        {"id": "a2", "question": "Of what?", "answers": [{"text": "Peru", "answer_start": 23}]},
                    ],
                },
                {"context": "It has deserts.", "qas": [{"id": "a3", "question": "What has it not?", "answers": [], "is_impossible": True}]},
            ],
        },
        {"title": "Chile", "paragraphs": [{"context": "Chile is long.", "qas": [{"id": "b1", "question": "How is it?", "answers": [{"text": "long"}]}]}]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("indent", [None, 2])
def test_squads_own_files_are_questions_and_a_corpus(zerowait, tmp_path, indent):
    (tmp_path / "train.json").write_text(json.dumps(SQUAD, indent=indent))
    refused = zerowait("data", "questions", "train.json", "o.jsonl")
    assert refused.returncode == 2
    assert "article 1, question a3: no answer can be read from 'answers'" in refused.stderr
    done = zerowait("data", "questions", "train.json", "o.jsonl", "--skip-unusable", "--keep=title")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert [row["reward_model"]["ground_truth"] for row in rows] == [["Lima"], ["Peru"], ["long"]]
    assert [row["extra_info"]["id"] for row in rows] == ["a1", "a2", "b1"]
    assert [row["extra_info"]["title"] for row in rows] == ["Peru", "Peru", "Chile"]
    assert zerowait("data", "corpus", "train.json", "c.jsonl").returncode == 0
    texts = [json.loads(line)["contents"] for line in (tmp_path / "c.jsonl").read_text().splitlines()]  # fmt: skip
    assert texts == [
        "Peru\nLima is the capital of Peru.",
        "Peru\nIt has deserts.",
        "Chile\nChile is long.",
    ]
