import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait.cli.output_file import check_output
from zerowait.cli.rewarded_rows import write_rewards
from zerowait.cli.row_files import columns_of, encode_json, read_rows
from zerowait.cli.samples import samples_of
from zerowait.errors import ConfigError, DataError
from zerowait.types import Reward, Score

ROW = {"prompt": "q", "response": "a"}
SUFFIXES = (".jsonl", ".ndjson", ".parquet")


def written(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.jsonl", json.dumps(ROW) + "\n" + json.dumps(ROW)),
        ("rows.ndjson", json.dumps(ROW) + "\n\n" + json.dumps(ROW) + "\n"),
        ("rows.json", json.dumps([ROW, ROW], indent=2)),
        ("rows.json", json.dumps(ROW) + "\r\n" + json.dumps(ROW) + "\r\n"),
        ("ROWS.JSONL", "\ufeff" + json.dumps(ROW) + "\n" + json.dumps(ROW)),
        ("rows.json", "\ufeff" + json.dumps([ROW, ROW])),
    ],
)
def test_rows_are_read_in_every_way_in_which_json_is_written(tmp_path, name, text):
    assert read_rows(written(tmp_path / name, text)).rows == [ROW, ROW]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("r.jsonl", '{"prompt": "q", "response": "a"}\n\n[1]\n', "r.jsonl:3: is no JSON object but a list"),
        ("r.jsonl", '"text"\n', "r.jsonl:1: is no JSON object but text"),
        ("r.jsonl", "7\n", "r.jsonl:1: is no JSON object but a number"),
        ("r.jsonl", '{"prompt": "q"\n', "r.jsonl:1: is no JSON object: Input data was truncated"),
        ("r.jsonl", b'{"prompt": "\xff"}\n', "r.jsonl:1: is no JSON object"),
        ("r.jsonl", "[" * 200_000, "r.jsonl:1: is no JSON object: it is nested too deeply"),
        ("r.jsonl", '{"prompt": 1' + "0" * 400 + "}", "r.jsonl:1"),
        ("r.json", '[{"prompt": "q", "response": "a"}, 3]', "r.json: item 2: is no JSON object but a number"),
        ("r.csv", "a,b", "r.csv is none of .jsonl, .ndjson, .json and .parquet"),
        ("r.parquet", "PAR1", "r.parquet: is no Parquet file"),
        ("r.jsonl", '\n{"prompt": "q"}\n', "r.jsonl:2: has no 'response'"),
        ("r.jsonl", '{"prompt": "q", "response": "a", "extra_info": "x"}', "r.jsonl:1: extra_info must be a mapping, not str"),
        ("r.jsonl", '{"prompt": "q", "response": "a", "extra": [1]}', "r.jsonl:1: extra must be a mapping, not list"),
    ],
)  # fmt: skip
def test_a_bad_row_is_named_by_its_line_with_what_is_wrong(tmp_path, name, text, says):
    with pytest.raises(DataError) as caught:
        samples_of(read_rows(written(tmp_path / name, text)), {})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def rewarded(tmp_path, rows, out="out.parquet"):
    data = written(tmp_path / "rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    rewards = [Reward(1.0, {"a": Score(1.0)}) for _ in rows]
    write_rewards(read_rows(data), rewards, tmp_path / out, arrow=columns_of(rows))
    return tmp_path / out


@pytest.mark.parametrize(
    "values",
    [
        [1, "one", None],
        [{}, {}, {"a": 1}],
        [{"a": 1}, {"b": 2}],
        [[], [1], ["x"]],
        [10**30, 1],
        [{"x": {}}, {"x": {}}],
        [[{}], [{"k": [1, "a"]}]],
        [True, 1, 2.5],
        ["a\x00b", "é"],
    ],
)
def test_parquet_holds_any_column_and_gives_its_values_back(tmp_path, values):
    out = rewarded(tmp_path, [ROW | {"odd": value} for value in values])
    found = [row["odd"] for row in pq.read_table(out).to_pylist()]
    if found != values:
        found = [None if text is None else json.loads(text) for text in found]
    assert found == values


def test_a_column_that_only_later_rows_have_is_in_the_parquet_file(tmp_path):
    out = rewarded(tmp_path, [ROW, ROW | {"late": 5}])
    assert pq.read_table(out).column("late").to_pylist() == [None, 5]


def test_columns_that_were_parquet_keep_their_types(tmp_path):
    table = pa.table(
        {
            "prompt": ["q"],
            "response": ["a"],
            "when": pa.array([1], pa.timestamp("us")),
            "small": pa.array([1], pa.int8()),
            "pairs": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        }
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    file, out = read_rows(tmp_path / "rows.parquet"), tmp_path / "rows.rewards.parquet"
    arrow = columns_of(file.rows, file.table)
    write_rewards(file, [Reward(None, {}, why="\ud800")], out, arrow=arrow)
    found = pq.read_table(out)
    assert found.schema.names[:5] == table.schema.names
    assert [found.schema.field(n).type for n in table.schema.names] == list(table.schema.types)
    assert found.column("reward_why").to_pylist() == ["?"]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=5,
)


@given(values=st.lists(JSON_VALUES, min_size=1, max_size=4))
def test_no_list_of_json_values_is_refused_as_a_column(values):
    column = columns_of([{"c": value} for value in values])["c"].to_pylist()
    if column != values:
        assert [None if text is None else json.loads(text) for text in column] == values


def test_json_of_anything_is_json():
    value = {"big": 10**40, "odd": object, "half": "\ud800", 5: {1}}
    assert json.loads(encode_json(value))["big"] == 10**40


@pytest.mark.parametrize(
    ("out", "says"),
    [
        ("rows.jsonl", "is the input itself"),
        ("link.jsonl", "is a link, and would be replaced"),
        ("folder.jsonl", "is a folder"),
        ("nowhere/x.jsonl", "there is no folder"),
        ("x.csv", "has to end in .jsonl or .ndjson or .parquet"),
    ],
)
def test_an_output_that_cannot_be_is_refused_before_anything_is_judged(tmp_path, out, says):
    data = written(tmp_path / "rows.jsonl", json.dumps(ROW))
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "rows.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(ConfigError, match=says):
        check_output("--out", tmp_path / out, inputs=[data], suffixes=SUFFIXES)


EPISODE = [
    {"role": "assistant", "content": "I look."},
    {"role": "tool", "content": "Paris"},
    {"role": "assistant", "content": "It is Paris."},
]


@pytest.mark.parametrize("column", ["response", "completion", "output"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_column_of_messages_is_an_episode(tmp_path, column, suffix):
    """TRL writes completions so."""
    path = tmp_path / f"rows{suffix}"
    rows = [{"prompt": "q", column: EPISODE}]
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text(json.dumps(rows[0]))
    [sample] = samples_of(read_rows(path), {})
    assert (sample.response, sample.response_messages) == ("It is Paris.", EPISODE)
    recorded = written(tmp_path / "rewards.jsonl", encode_json({"sample": sample}))
    assert samples_of(read_rows(recorded), {}) == [sample]


def test_a_files_pictures_are_read_from_its_own_folder(tmp_path):
    (tmp_path / "cat.png").write_bytes(b"\x89PNG\r\n\x1a\nrest")
    content = [{"type": "image", "path": "cat.png"}, {"type": "image"}]
    row = {"prompt": [{"role": "user", "content": content}], "response": "A cat."}
    data = tmp_path / "rows.jsonl"
    data.write_text(json.dumps(row | {"images": ["https://host/dog.png"]}))
    [sample] = samples_of(read_rows(data), {})
    urls = [part["image_url"]["url"] for part in sample.prompt[0]["content"]]
    assert urls == ["data:image/png;base64,iVBORw0KGgpyZXN0", "https://host/dog.png"]
    data.write_text(json.dumps(row))
    with pytest.raises(DataError, match=r"rows.jsonl:1: .*place of a picture without its data"):
        samples_of(read_rows(data), {})
