import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from zerowait.errors import DataError
from zerowait.verl.launch.data_columns import check_data_file

ROW = {
    "prompt": [{"role": "user", "content": "2+2?"}],
    "reward_model": {"style": "rule", "ground_truth": "4"},
    "data_source": "sums",
}


@pytest.fixture(params=["parquet", "jsonl"])
def write(request, tmp_path):
    """Writes rows in the format and returns the path."""

    def written(rows):
        path = tmp_path / f"rows.{request.param}"
        if request.param == "parquet":
            parquet.write_table(pa.Table.from_pylist(rows), path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return written


def complaint(path, **how):
    with pytest.raises(DataError) as caught:
        check_data_file(path, **how)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_complete_rows_are_accepted(write):
    check_data_file(write([ROW] * 3))


def test_the_prompts_may_have_another_name(write):
    row = {**ROW, "messages": ROW["prompt"]}
    del row["prompt"]
    check_data_file(write([row]), prompt_key="messages")


def test_a_missing_prompt_column_is_named_with_the_nearest_there_is(write):
    row = {**ROW, "prompts": ROW["prompt"]}
    del row["prompt"]
    assert "'prompt'; did you mean 'prompts'" in complaint(write([row]))


def test_a_missing_ground_truth_is_named(write):
    text = complaint(write([{**ROW, "reward_model": {"style": "rule"}}]))
    assert "row 1" in text
    assert "'ground_truth'" in text


def test_a_missing_reward_model_column_is_named(write):
    row = dict(ROW)
    del row["reward_model"]
    assert "'reward_model'" in complaint(write([row]))


def test_one_row_without_ground_truth_among_many_is_found(write):
    bad = {**ROW, "reward_model": {"style": "rule", "ground_truth": None}}
    assert "row 2" in complaint(write([ROW, bad, ROW]))


def test_a_prompt_that_is_text_is_refused_with_the_form_it_needs(write):
    text = complaint(write([{**ROW, "prompt": "2+2?"}]))
    assert '"role": "user"' in text
    assert "'2+2?'" in text


def test_a_byte_order_mark_is_no_part_of_the_first_row(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ROW) + "\n", encoding="utf-8-sig")
    assert check_data_file(path) == 1


def test_a_file_without_rows_is_refused(tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    assert "no rows" in complaint(empty)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    assert "no such file" in complaint(tmp_path / "absent.parquet")


def test_a_format_that_verl_cannot_read_is_refused(tmp_path):
    other = tmp_path / "rows.csv"
    other.write_text("a,b\n")
    assert ".parquet" in complaint(other)


@pytest.mark.parametrize("name", ["broken.parquet", "broken.jsonl"])
def test_a_broken_file_is_refused(tmp_path, name):
    broken = tmp_path / name
    broken.write_bytes(b"{not data")
    complaint(broken)


@pytest.mark.parametrize("column", ["reward_model", "extra_info"])
def test_a_mapping_may_be_written_down_as_json(write, column):
    row = {**ROW, "extra_info": {"index": 3}}
    check_data_file(write([{**row, column: json.dumps(row[column])}]))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(
            (name, text)
            for name in ("reward_model", "extra_info")
            for text in ("4", "{", "[1]", "a")
        ),
        ("extra_info", 7),
        ("extra_info", ["train"]),
    ],
)
def test_text_that_is_no_mapping_is_named_before_anything_starts(write, column, value):
    text = complaint(write([{**ROW, "extra_info": {"index": 3}}, {**ROW, column: value}][1:]))
    assert f"row 1: column {column!r} has to be a mapping" in text


def test_json_without_a_ground_truth_has_none(write):
    text = complaint(write([{**ROW, "reward_model": json.dumps({"style": "rule"})}]))
    assert "'ground_truth'" in text
