"""``zerowait score`` as a person runs it: a real process, a real server, a real cache file."""

import json
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from zerowait.cli.rewarded_rows import RewardCounts, show_summary, write_rewards
from zerowait.cli.row_files import columns_of
from zerowait.cli.row_files import read_rows as rows_in
from zerowait.engine import Stats, failure_reason
from zerowait.record import open_index
from zerowait.testing import FakeJudge, Garbage, Latency, Script, Status
from zerowait.types import Abstain, FailureKind, Reward


def write_config(path, url, **parts):
    config = {
        "components": {
            "answer": {"scorer": "contains"},
            "quality": {"judge": "q", "weight": 0.1},
        },
        "judges": {
            "q": {"endpoints": [{"base_url": url, "model": "m"}], "verdict": {"integer": [1, 10]}}
        },
        "traffic": {"concurrency": 16, "hedge": "off"},
        "cache": {"path": str(path.parent / "judgements.db")},
    } | parts
    path.write_text(json.dumps(config))  # JSON is YAML
    return path


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def questions(count, distinct=None):
    distinct = distinct or count
    return [
        {
            "id": str(i),
            "prompt": "Capital?",
            "response": f"Paris {i % distinct}",
            "ground_truth": "Paris",
        }
        for i in range(count)
    ]


def test_every_row_comes_back_in_order_with_its_reward_and_the_reasons(tmp_path, zerowait):
    data = write_rows(tmp_path / "rows.jsonl", questions(20))
    with FakeJudge() as judge:
        done = zerowait("score", data, "-c", write_config(tmp_path / "reward.yaml", judge.url))
    assert done.returncode == 0, done.stderr
    rows = read_rows(tmp_path / "rows.rewards.jsonl")
    assert [row["id"] for row in rows] == [str(i) for i in range(20)]
    for row in rows:
        verdict = row["reward_components"]["quality"]["value"]
        assert row["reward"] == pytest.approx(1 + 0.1 * verdict)
    assert "20 rows" in done.stdout
    assert not list(tmp_path.glob(".*partial"))


def test_an_abstention_is_null_with_its_reason_and_shows_in_the_exit_code(tmp_path, zerowait):
    data = write_rows(tmp_path / "rows.jsonl", questions(40))
    faults = (Status(status=429, share=0.2), Garbage(share=0.2, always=True))
    with FakeJudge(Script(seed=3, faults=faults)) as judge:
        done = zerowait("score", data, "-c", write_config(tmp_path / "reward.yaml", judge.url))
    assert done.returncode == 3, done.stderr
    rows = read_rows(tmp_path / "rows.rewards.jsonl")
    lost = [row for row in rows if row["reward"] is None]
    assert 0 < len(lost) < len(rows)
    assert all(row["reward_why"].startswith("quality: unparseable") for row in lost)
    assert all(row["reward"] != 0 for row in rows)
    assert f"unparseable {len(lost)}" in done.stdout


def test_rows_without_a_reward_because_of_a_rule_are_counted_with_the_reason(tmp_path, zerowait):
    rows = questions(5)
    del rows[1]["ground_truth"], rows[4]["ground_truth"]
    write_rows(tmp_path / "rows.jsonl", rows)
    (tmp_path / "reward.yaml").write_text(RULE)
    words = ("score", "rows.jsonl", "-c", "reward.yaml", "--record", "run")
    first, again = zerowait(*words), zerowait(*words)
    assert "abstentions of rules: 2\n  2 x answer: bad_input: ground_truth" in first.stdout
    assert "earlier commands" not in first.stderr
    assert "--record run: the rewards of earlier commands stay in it" in again.stderr


def interrupted_run(judge, start_zerowait, *arguments):
    """How ``score`` ended that was interrupted once the judge had seen 100 requests."""
    process = start_zerowait("score", *arguments, "-q")
    while judge.seen.answered < 100:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, output = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in output
    return output


def test_interrupted_and_run_again_it_sends_each_distinct_request_once_in_total(
    tmp_path, start_zerowait, zerowait
):
    data = write_rows(tmp_path / "rows.jsonl", questions(1024, distinct=512))
    with FakeJudge(Script(latency=Latency(median_s=0.05))) as judge:
        config = write_config(tmp_path / "reward.yaml", judge.url)
        output = interrupted_run(judge, start_zerowait, data, "-c", config)
        assert output.endswith(
            "interrupted; run the same command again: the judges' replies until now are in the "
            "cache\n"
        )
        assert not list(tmp_path.glob("*rewards*"))
        second = zerowait("score", data, "-c", config, "-q")
        seen = judge.seen
    assert second.returncode == 0, second.stderr
    assert len(read_rows(tmp_path / "rows.rewards.jsonl")) == 1024
    assert (seen.distinct_bodies, seen.requests, seen.repeats) == (512, 512, 0)


def test_an_interrupt_without_a_cache_says_that_nothing_was_kept(tmp_path, start_zerowait):
    data = write_rows(tmp_path / "rows.jsonl", questions(512))
    with FakeJudge(Script(latency=Latency(median_s=0.05))) as judge:
        config = write_config(tmp_path / "reward.yaml", judge.url, cache="off")
        output = interrupted_run(judge, start_zerowait, data, "-c", config)
    assert output.endswith("nothing was kept, since the configuration has no cache\n")
    assert "waiting for" not in output


def test_a_full_disk_is_one_clear_line_and_leaves_no_draft(tmp_path):
    """A limit on the size of files is a disk that is full, for one process alone."""
    write_rows(tmp_path / "rows.jsonl", questions(400))
    (tmp_path / "reward.yaml").write_text(RULE)
    limited = (
        "import resource, signal, sys;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000));"
        "from zerowait.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited, "score", "rows.jsonl", "-c", "reward.yaml", "-q"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "rows.rewards.jsonl cannot be written: File too large; make room" in done.stderr
    assert not list(tmp_path.glob("*rewards*")) + list(tmp_path.glob(".*rewards*"))


def test_parquet_in_parquet_out(tmp_path, zerowait_process):
    pq.write_table(pa.Table.from_pylist(questions(4)), tmp_path / "rows.parquet")
    with FakeJudge() as judge:
        config = write_config(tmp_path / "reward.yaml", judge.url)
        done = zerowait_process("score", "rows.parquet", "-c", config)
    assert done.returncode == 0, done.stderr
    rows = pq.read_table(tmp_path / "rows.rewards.parquet").to_pylist()
    assert [row["reward"] > 1 for row in rows] == [True] * 4


def test_verls_dumps_and_a_runs_record_are_read_as_they_are(tmp_path, zerowait):
    write_rows(
        tmp_path / "dump.jsonl",
        [{"input": "q", "output": "Paris", "gts": "Paris", "score": 9, "step": 1}],
    )
    write_rows(
        tmp_path / "record.jsonl",
        [{"sample": {"prompt": "q", "response": "Rome", "ground_truth": "Paris"}, "trained_on": 1}],
    )
    (tmp_path / "reward.yaml").write_text("components: {answer: {scorer: contains}}")
    for name, reward in (("dump", 1), ("record", 0)):
        done = zerowait("score", f"{name}.jsonl", "-c", "reward.yaml")
        assert done.returncode == 0, done.stderr
        assert read_rows(tmp_path / f"{name}.rewards.jsonl")[0]["reward"] == reward


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_the_output_is_as_private_as_what_it_was_made_of(tmp_path, name):
    rows = write_rows(tmp_path / "rows.jsonl", questions(2))
    rewards = [Reward(value=1.0, components={}), Reward(value=0.0, components={})]
    out = tmp_path / name
    rows.chmod(0o600)
    file = rows_in(rows)
    arrow = columns_of(file.rows) if out.suffix == ".parquet" else None
    write_rewards(file, rewards, out, arrow=arrow)
    assert out.stat().st_mode & 0o777 == 0o600
    out.chmod(0o640)
    write_rewards(file, rewards, out, arrow=arrow)
    assert out.stat().st_mode & 0o777 == 0o640


def test_columns_can_be_named(tmp_path, zerowait):
    write_rows(tmp_path / "rows.jsonl", [{"frage": "q", "antwort": "Paris", "gold": "Paris"}])
    (tmp_path / "reward.yaml").write_text("components: {answer: {scorer: contains}}")
    names = ["prompt=frage", "response=antwort", "ground_truth=gold"]
    options = [part for name in names for part in ("--column", name)]
    done = zerowait("score", "rows.jsonl", "-c", "reward.yaml", *options)
    assert done.returncode == 0, done.stderr
    assert read_rows(tmp_path / "rows.rewards.jsonl")[0]["reward"] == 1


@pytest.mark.parametrize(
    ("files", "arguments", "says"),
    [
        ({}, ["rows.jsonl", "-c", "reward.yaml"], "reward.yaml: cannot be read: No such file or directory"),
        ({"reward.yaml": "components: {a: {scorer: contains}}"}, ["rows.jsonl", "-c", "reward.yaml"], "rows.jsonl does not exist"),
        ({"reward.yaml": "components: {a: {scorer: contain}}", "rows.jsonl": '{"prompt": "q", "response": "a"}\n'}, ["rows.jsonl", "-c", "reward.yaml"], "reward.yaml:1: components.a: there is no scorer 'contain'; did you mean 'contains'?"),
        ({"reward.yaml": "components: {a: {scorer: contains}}", "rows.jsonl": '{"promt": "q"}\n'}, ["rows.jsonl", "-c", "reward.yaml"], "rows.jsonl:1: has no 'prompt'"),
        ({"reward.yaml": "components: {a: {scorer: contains}}", "rows.jsonl": "{broken\n"}, ["rows.jsonl", "-c", "reward.yaml"], "rows.jsonl:1: is no JSON object"),
        ({"reward.yaml": "components: {a: {scorer: contains}}", "rows.jsonl": b'{"prompt": "gr\xf6\xdfer"}\n'}, ["rows.jsonl", "-c", "reward.yaml"], "rows.jsonl:1: is no JSON object: it is not in UTF-8, in which"),
        ({"reward.yaml": "components: {a: {scorer: contains}}", "rows.jsonl": ""}, ["rows.jsonl", "-c", "reward.yaml"], "rows.jsonl has no rows"),
        ({"reward.yaml": "components: {a: {scorer: contains}}", "rows.jsonl": '{"prompt": "q", "response": 3}\n'}, ["rows.jsonl", "-c", "reward.yaml"], "rows.jsonl:1: response must be text or a list, not a whole number"),
        ({"reward.yaml": "components: {a: {shape: median_band}}", "rows.jsonl": '{"prompt": "q", "response": "a", "group": "g"}\n'}, ["rows.jsonl", "-c", "reward.yaml"], "no response_tokens, which the shape 'a' needs"),
    ],
)  # fmt: skip
def test_wrong_input_is_one_clear_line_and_exit_code_2(tmp_path, zerowait, files, arguments, says):
    for name, text in files.items():
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    done = zerowait("score", *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_planted_key_is_nowhere_in_what_is_printed_or_written(tmp_path, zerowait):
    data = write_rows(tmp_path / "rows.jsonl", questions(4))
    with FakeJudge(api_key="sk-right") as judge:
        config = write_config(tmp_path / "reward.yaml", judge.url)
        text = json.loads(config.read_text())
        text["judges"]["q"]["endpoints"][0]["api_key_env"] = "PLANTED"
        config.write_text(json.dumps(text))
        refused = zerowait("score", data, "-c", config, env={"PLANTED": "sk-planted-secret"})
        served = zerowait("score", data, "-c", config, env={"PLANTED": "sk-right"})
    assert refused.returncode == 3
    assert served.returncode == 0
    for done in (refused, served):
        assert "sk-" not in done.stdout + done.stderr
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or b"sk-" not in file.read_bytes(), file


def test_a_missing_key_is_one_clear_line(tmp_path, zerowait):
    data = write_rows(tmp_path / "rows.jsonl", questions(1))
    config = write_config(tmp_path / "reward.yaml", "http://127.0.0.1:9/v1")
    text = json.loads(config.read_text())
    text["judges"]["q"]["endpoints"][0]["api_key_env"] = "NOT_SET_ANYWHERE"
    config.write_text(json.dumps(text))
    done = zerowait("score", data, "-c", config)
    assert done.returncode == 2
    assert "the environment variable NOT_SET_ANYWHERE, which is not set" in done.stderr


RULE = "components: {answer: {scorer: contains}}"


def test_standard_output_that_cannot_be_written_is_one_clear_line(tmp_path, start_zerowait):
    write_rows(tmp_path / "rows.jsonl", questions(2))
    (tmp_path / "reward.yaml").write_text(RULE)
    with Path("/dev/full").open("w") as full:
        process = start_zerowait("score", "rows.jsonl", "-c", "reward.yaml", stdout=full)
        _, output = process.communicate(timeout=60)
    assert (process.returncode, output) == (2, "zerowait: No space left on device\n")


def test_a_terminal_that_knows_ascii_only_gets_escapes(tmp_path, zerowait_process):
    write_rows(tmp_path / "Größe.jsonl", questions(2))
    (tmp_path / "reward.yaml").write_text(RULE)
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    done = zerowait_process("score", "Größe.jsonl", "-c", "reward.yaml", "-q", env=ascii_only)
    assert done.returncode == 0, done.stderr
    assert "Gr\\xf6\\xdfe.rewards.jsonl: 2 rows" in done.stdout


def test_the_home_folder_is_found_behind_an_equals_sign(tmp_path, zerowait_process):
    write_rows(tmp_path / "rows.jsonl", questions(2))
    (tmp_path / "reward.yaml").write_text(RULE)
    options = ["--config=~/reward.yaml", "--out=~/out.jsonl"]
    done = zerowait_process("score", "rows.jsonl", *options, "-q", env={"HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert len(read_rows(tmp_path / "out.jsonl")) == 2


def test_late_requests_and_a_cache_that_fails_show_in_the_summary(capsys):
    stats = Stats(hedges=3, store_failures=2)
    show_summary("out.jsonl", RewardCounts(), stats, judged=["quality"])
    output = capsys.readouterr().out
    assert "3 late and asked twice" in output
    assert "warning: 2 reads or writes of the cache failed" in output


def test_a_reason_seen_once_keeps_its_numbers_and_a_small_budget_its_digits(capsys):
    counts = RewardCounts()
    once = Abstain(FailureKind.BUDGET, "this request may cost $0.00061 (after 2 attempts)")
    counts.add([Reward(None, components={"quality": once})], rows=1)
    stats = Stats(budget_usd=0.0005, abstentions={"budget": 1}, reasons={failure_reason(once): 1})
    show_summary("out.jsonl", counts, stats, judged=["quality"])
    output = capsys.readouterr().out
    assert "of $0.0005 spent" in output
    assert "  1 x budget: this request may cost $0.00061 " in output
    assert "abstentions of rules" not in output


BAD_ROWS = {
    3: '{"prompt": "q"}',
    4: "{broken",
    5: "[1, 2]",
    6: '{"prompt": "q"}',
    8: '{"prompt": "q", "response": 7}',
    9: '{"prompt": "q", "response": "r", "group_size": 0}',
    11: '{"prompt": "q", "response": "r", "extra": "x"}',
    12: '{"prompt": "q"}',
    13: '{"prompt": "q"}',
}


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json"])
def test_all_rows_that_cannot_be_scored_are_named_at_once_and_may_be_left_out(
    name, tmp_path, zerowait
):
    good = '{"prompt": "Capital?", "response": "Paris", "ground_truth": "Paris"}'
    bad = {n: row for n, row in BAD_ROWS.items() if name == "rows.jsonl" or n != 4}
    lines = [bad.get(n, good) for n in range(1, 15)]
    whole = name == "rows.json"
    (tmp_path / name).write_text(f"[{','.join(lines)}]" if whole else "\n".join(lines))
    config = tmp_path / "reward.yaml"
    config.write_text(json.dumps({"components": {"answer": {"scorer": "contains"}}}))
    ended = zerowait("score", name, "-c", "reward.yaml", "-q")
    assert ended.returncode == 2
    assert f"{name}: {len(bad)} rows cannot be scored\n" in ended.stderr
    assert "  3, 6, 12-13: has no 'response'" in ended.stderr
    assert "--skip-unusable leaves them out" in ended.stderr
    assert not list(tmp_path.glob("*.rewards.*"))
    ended = zerowait("score", name, "-c", "reward.yaml", "-q", "--skip-unusable")
    assert ended.returncode == 0, ended.stderr
    assert f"left out: {name}: {len(bad)} rows cannot be scored" in ended.stdout
    assert "  11: extra must be a mapping" in ended.stdout
    assert len(read_rows(tmp_path / "rows.rewards.jsonl")) == 14 - len(bad)


def test_rows_that_lack_what_a_shape_needs_are_named_at_once_too(tmp_path, zerowait):
    rows = [
        {"prompt": "q", "response": "r", "group": "g", "response_tokens": n}
        | ({} if n else {"group": None})
        for n in (3, 0, 2, 0)
    ]
    rows.append({"prompt": "q", "response": "r", "group": "g"})
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    config = tmp_path / "reward.yaml"
    config.write_text(json.dumps({"components": {"length": {"shape": "median_band"}}}))
    ended = zerowait("score", "rows.parquet", "-c", "reward.yaml", "-q")
    assert ended.returncode == 2
    assert "3 rows cannot be scored" in ended.stderr
    assert "  2, 4: " in ended.stderr
    assert "  5: " in ended.stderr
    ended = zerowait("score", "rows.parquet", "-c", "reward.yaml", "-q", "--skip-unusable")
    assert ended.returncode == 0, ended.stderr
    assert pq.read_table(tmp_path / "rows.rewards.parquet").num_rows == 2


def test_a_file_without_a_usable_row_is_one_line(tmp_path, zerowait):
    (tmp_path / "reward.yaml").write_text("components: {answer: {scorer: contains}}")
    pq.write_table(pa.Table.from_pylist([{"prompt": "q"}]), tmp_path / "one.parquet")
    for one in (write_rows(tmp_path / "one.jsonl", [{"prompt": "q"}]), "one.parquet"):
        ended = zerowait("score", one, "-c", "reward.yaml", "--skip-unusable")
        assert ended.returncode == 2
        assert "has no usable rows" in ended.stderr


@pytest.fixture
def saved(tmp_path):
    """Data sets as Hugging Face's own library saves them, and their rows."""
    import datasets

    rows = [
        {"frage": "Capital?", "said": f"Paris {i}" if i % 2 else "Rome", "gold": ["Paris"]}
        for i in range(10)
    ]
    whole = datasets.Dataset.from_list(rows)
    whole.save_to_disk(tmp_path / "sharded", num_shards=3)
    splits = {"train": whole, "test": whole.shuffle(seed=1).select(range(4))}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "both")
    (tmp_path / "reward.yaml").write_text(RULE)
    return splits


COLUMNS = ["--prompt", "frage", "--response", "said", "--ground-truth", "gold", "-c", "reward.yaml"]


def test_a_data_set_on_disk_is_scored_with_the_columns_that_flags_name(tmp_path, zerowait, saved):
    done = zerowait("score", "sharded", *COLUMNS)
    assert done.returncode == 0, done.stderr
    rows = pq.read_table(tmp_path / "sharded.rewards.parquet").to_pylist()
    assert [row["reward"] for row in rows] == [float(i % 2) for i in range(10)]
    assert [row["gold"] for row in rows] == [["Paris"]] * 10
    for path, options in (("both/test", []), ("both", ["--split", "test"])):
        done = zerowait("score", path, *COLUMNS, *options)
        assert done.returncode == 0, done.stderr
        rows = pq.read_table(tmp_path / "both.test.rewards.parquet").to_pylist()
        assert [row["said"] for row in rows] == saved["test"]["said"]
        (tmp_path / "both.test.rewards.parquet").unlink()
    assert zerowait("score", "both", *COLUMNS, "--split", "train", "--limit", 3).returncode == 0
    assert pq.read_table(tmp_path / "both.train.rewards.parquet").num_rows == 3


def test_a_folder_that_is_no_data_set_or_has_no_such_split_is_one_clear_line(
    tmp_path, zerowait, saved
):
    (tmp_path / "empty").mkdir()
    (tmp_path / "sharded" / "data-00001-of-00003.arrow").write_bytes(b"broken")
    write_rows(tmp_path / "rows.jsonl", questions(1))
    for path, options, says in (
        ("both", [], "both has the splits train, test: choose one with --split NAME"),
        ("both", ["--split", "tset"], "--split tset: both has no such split; did you mean 'test'?"),
        (
            "both/test",
            ["--split", "test"],
            "--split test: both/test is no saved data set with splits",
        ),
        ("empty", [], "empty is a folder, but no data set that save_to_disk wrote; --watch"),
        ("sharded", [], "data-00001-of-00003.arrow: is no Arrow file"),
        ("rows.jsonl", ["--split", "x"], "--split x: rows.jsonl is no saved data set with splits"),
        ("both/test", ["--column", "prompt=x"], "--column prompt=x: prompt is 'frage' already"),
    ):
        done = zerowait("score", path, *COLUMNS, *options)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert says in done.stderr


def test_a_row_with_several_responses_is_a_group_and_gets_a_list_of_rewards(tmp_path, zerowait):
    several = {
        "id": "a",
        "prompt": "Capital?",
        "responses": ["Paris", "Paris", "Rome"],
        "answer": "Paris",
    }
    rows = [
        several | {"response_tokens": [10, 30, 10]},
        {"prompt": "q", "response": "Paris", "answer": "Paris", "group": "b", "response_tokens": 9},
        several | {"response_tokens": [10, 10, 10]},
    ]
    write_rows(tmp_path / "rows.jsonl", rows)
    components = {"answer": {"scorer": "contains"}, "length": {"shape": "median_band"}}
    (tmp_path / "reward.yaml").write_text(json.dumps({"components": components}))
    done = zerowait("score", "rows.jsonl", "-c", "reward.yaml")
    assert done.returncode == 0, done.stderr
    assert "3 rows, 7 responses" in done.stdout
    scored = read_rows(tmp_path / "rows.rewards.jsonl")
    assert [row["reward"] for row in scored] == [[1.0, 0.0, 0.0], 1.0, [1.0, 1.0, 0.0]]
    assert [len(row["reward_why"]) for row in (scored[0], scored[2])] == [3, 3]
    assert scored[0]["reward_components"][1]["length"]["value"] == -1.0
    # The same as Parquet, whose rows have null where they have no such column
    assert zerowait("score", "rows.jsonl", "-c", "reward.yaml", "-o", "r.parquet").returncode == 0
    assert json.loads(pq.read_table(tmp_path / "r.parquet").column("reward")[0].as_py()) == [
        1,
        0,
        0,
    ]
    write_rows(tmp_path / "one.jsonl", rows[:1])
    assert zerowait("score", "one.jsonl", "-c", "reward.yaml", "-o", "o.parquet").returncode == 0
    assert pq.read_table(tmp_path / "o.parquet").column("reward").to_pylist() == [[1.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"responses": []}, "responses must be a list with at least one response"),
        ({"responses": "Paris"}, "responses must be a list with at least one response"),
        ({"responses": [{"role": "assistant", "content": "a"}]}, "responses must hold texts, or a list of messages for each"),
        ({"responses": ["a", "b"], "response_tokens": [1]}, "response_tokens has 1 numbers for 2 responses"),
        ({"responses": ["a", [{"role": "user", "content": "b"}]]}, "response 1: a sample's response is a list of messages without one whose role is 'assistant'"),
    ],
)  # fmt: skip
def test_a_list_of_responses_that_cannot_be_scored_is_named(tmp_path, zerowait, row, says):
    write_rows(tmp_path / "rows.jsonl", [{"prompt": "q"} | row])
    (tmp_path / "reward.yaml").write_text(RULE)
    done = zerowait("score", "rows.jsonl", "-c", "reward.yaml")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"rows.jsonl:1: {says}" in done.stderr


@pytest.mark.parametrize("limit", [[], ["--limit", "1"]], ids=["whole", "limit"])
def test_pipes_that_close_end_it_without_a_traceback(tmp_path, limit):
    """``yes ROW | zerowait score - --limit 1``, and ``... | head -1`` behind it."""
    (tmp_path / "reward.yaml").write_text(RULE)
    line = json.dumps(questions(1)[0])
    command = [sys.executable, "-m", "zerowait", "score", "-", "-c", "reward.yaml", "-q", *limit]
    given = subprocess.Popen(
        ["yes", line] if limit else ["sh", "-c", f"yes '{line}' | head -5000"],
        stdout=subprocess.PIPE,
    )
    score = subprocess.Popen(
        command, cwd=tmp_path, stdin=given.stdout, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )  # fmt: skip
    given.stdout.close()
    first = json.loads(score.stdout.readline())
    score.stdout.close()
    errors = score.stderr.read()
    score.stderr.close()
    assert first["reward"] == 1.0
    assert score.wait(60) == (0 if limit else 1)
    assert "Traceback" not in errors
    given.wait(60)


def test_a_record_gets_every_reward_and_judgement(tmp_path, zerowait):
    rows = write_rows(tmp_path / "rows.jsonl", questions(3))
    with FakeJudge() as judge:
        config = write_config(tmp_path / "reward.yaml", judge.url)
        zerowait("score", rows, "-c", config, "--record", tmp_path / "run")
    with closing(open_index(tmp_path / "run")) as index:
        found = index.execute(
            "SELECT id, rewards.value, outcome, body FROM rewards JOIN judgement_rows USING (uid)"
            " JOIN judgements USING (judgement) JOIN texts ON text = reply"
        )
        assert sorted((row[0], row[1] > 1, row[2], "choices" in row[3]) for row in found) == [
            (str(number), True, "score", True) for number in range(3)
        ]
    # what was recorded is scored again from the record
    again = tmp_path / "again.jsonl"
    zerowait("score", tmp_path / "run/rewards.jsonl", "-c", config, "--out", again)
    assert sorted(row["sample"]["id"] for row in read_rows(again)) == ["0", "1", "2"]
