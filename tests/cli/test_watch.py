"""``zerowait score --watch``: each row of growing files is scored once, whatever happens between."""

import asyncio
import fcntl
import json
import signal
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zerowait.cli.watch import Position, _lines
from zerowait.testing import FakeJudge, Latency, Script

RULE = "components: {answer: {scorer: contains}}\n"
WATCH = ["zerowait", "score", "rollouts", "-c", "reward.yaml", "--watch", "--limit", "1"]
SHAPE = "components: {answer: {scorer: contains}, length: {shape: median_band}}\n"


def row(response, **more):
    """A row as verl's ``trainer.rollout_data_dir`` has it."""
    fields = {"input": "Capital?", "output": response, "gts": "Paris", "score": 0.0, "step": 1}
    return json.dumps(fields | more) + "\n"


@pytest.fixture
def rollouts(tmp_path):
    (tmp_path / "reward.yaml").write_text(RULE)
    folder = tmp_path / "rollouts"
    folder.mkdir()
    return folder


@pytest.fixture
def watch(tmp_path, zerowait):
    """Scores so many new rows of the rollouts and ends; the rewards of each file."""

    def run(limit, *options, code=0):
        done = zerowait(
            "score", "rollouts", "-c", "reward.yaml", "--watch", "--limit", limit, *options
        )
        assert done.returncode == code, done.stderr
        return done.stderr if code else rewards(tmp_path)

    return run


def rewards(folder):
    files = sorted((folder / "rollouts.rewards").glob("*.jsonl"))
    return {
        file.stem: [json.loads(line)["reward"] for line in file.read_text().splitlines()]
        for file in files
    }


def append(file, text):
    with file.open("a") as opened:
        opened.write(text)


def test_a_line_is_scored_when_it_is_complete_and_files_go_on_where_they_were(rollouts, watch):
    (rollouts / "1.jsonl").write_text(row("Paris") + row("Rome")[:20])
    (rollouts / "10.jsonl").write_text(row("Rome"))
    (rollouts / "2.jsonl").write_text(row("Paris"))
    (rollouts / ".3.jsonl").write_text(row("Paris"))
    (rollouts / "notes.txt").write_text("no rollout")
    assert watch(3) == {"1": [1.0], "2": [1.0], "10": [0.0]}
    append(rollouts / "1.jsonl", row("Rome")[20:] + row("Paris").rstrip())
    assert watch(2) == {"1": [1.0, 0.0, 1.0], "2": [1.0], "10": [0.0]}
    append(rollouts / "1.jsonl", "\n\n" + row("Rome"))
    assert watch(1)["1"] == [1.0, 0.0, 1.0, 0.0]


def test_the_limit_counts_rows_and_the_next_run_has_the_rest(rollouts, watch):
    (rollouts / "1.jsonl").write_text(row("Paris") * 2 + row("Rome") * 3)
    assert watch(2) == {"1": [1.0, 1.0]}
    assert watch(3) == {"1": [1.0, 1.0, 0.0, 0.0, 0.0]}


def test_a_renamed_file_goes_on_and_one_that_is_written_anew_is_scored_again(rollouts, watch):
    (rollouts / "now.jsonl").write_text(row("Paris"))
    (rollouts / "1.jsonl").write_text(row("Paris") + row("Paris"))
    watch(3)
    (rollouts / "now.jsonl").rename(rollouts / "2.jsonl")
    append(rollouts / "2.jsonl", row("Rome"))
    (rollouts / "1.jsonl").write_text(row("Rome"))
    assert watch(2) == {"1": [0.0], "2": [1.0, 0.0]}


def test_what_a_killed_watch_had_appended_without_keeping_it_is_scored_once(
    rollouts, watch, tmp_path
):
    (rollouts / "1.jsonl").write_text(row("Paris"))
    watch(1)
    append(rollouts / "1.jsonl", row("Rome"))
    append(tmp_path / "rollouts.rewards" / "1.jsonl", row("Rome") + '{"half')
    assert watch(1) == {"1": [1.0, 0.0]}


def test_a_group_is_scored_when_it_is_whole(rollouts, watch, tmp_path):
    (tmp_path / "reward.yaml").write_text(SHAPE)

    def member(tokens):
        return row("Paris", group="g", group_size=3, response_tokens=tokens)

    (rollouts / "1.jsonl").write_text(member(10) + member(10))
    (rollouts / "2.jsonl").write_text(member(10) + member(30) + member(10))
    assert watch(1, "--settle-s", 10**6) == {"2": [1.0, 0.0, 1.0]}
    append(rollouts / "1.jsonl", member(30))
    assert watch(3, "--settle-s", 10**6) == {"1": [1.0, 1.0, 0.0], "2": [1.0, 0.0, 1.0]}


def test_a_group_without_a_size_is_whole_when_its_file_has_settled(rollouts, watch, tmp_path):
    (tmp_path / "reward.yaml").write_text(SHAPE)
    rows = [row("Paris", response_tokens=tokens) for tokens in (10, 30, 10)]
    (rollouts / "1.jsonl").write_text("".join(rows))
    assert watch(1, "--group", "input", "--settle-s", 0.01) == {"1": [1.0, 0.0, 1.0]}


def test_a_row_that_cannot_be_scored_is_named_or_left_out(rollouts, watch):
    (rollouts / "1.jsonl").write_text(row("Paris") + "garbage\n" + row("Rome"))
    assert "rollouts/1.jsonl:2: is no JSON object" in watch(3, code=2)
    assert watch(3, "--skip-unusable") == {"1": [1.0, 0.0]}


def test_a_row_is_named_by_its_line_after_one_that_came_without_its_end(rollouts, watch):
    (rollouts / "1.jsonl").write_text(row("Paris").rstrip())
    watch(1)
    append(rollouts / "1.jsonl", "\n" + row("Rome").rstrip())
    watch(1)
    append(rollouts / "1.jsonl", "\n" + row("Rome") + "garbage\n")
    assert "rollouts/1.jsonl:4: is no JSON object" in watch(3, code=2)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--out", "rollouts"], "--out rollouts: is the watched folder"),
        (["--out", "reward.yaml"], "--out reward.yaml: with --watch it is a folder"),
        (["--out", "no/such"], "there is no folder no"),
        (["--out", "."], "has files that no watch wrote"),
        (["--out", "-"], "--watch: takes a folder of rollouts, no stream"),
        (["--settle-s", "-1"], "--settle-s"),
        (["--prompt", "input"], "of another configuration, or of other columns"),
    ],
)
def test_what_cannot_be_is_one_clear_line(rollouts, watch, options, says):
    (rollouts / "1.jsonl").write_text(row("Paris"))
    watch(1)
    assert says in watch(1, *options, code=2)


def test_a_start_on_a_full_disk_does_not_lose_what_the_folder_holds(rollouts, watch, tmp_path):
    (rollouts / "1.jsonl").write_text(row("Paris"))
    watch(1)
    append(rollouts / "1.jsonl", row("Rome"))
    full = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); "
    run = f"from zerowait.cli import main; sys.argv = {WATCH!r}; main()"
    ended = subprocess.run(
        [sys.executable, "-c", full + run],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    assert watch(1) == {"1": [1.0, 0.0]}


def test_two_watches_do_not_write_to_one_folder(rollouts, watch, tmp_path):
    (rollouts / "1.jsonl").write_text(row("Paris"))
    watch(1)
    with (tmp_path / "rollouts.rewards/.watch/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another watch writes to it" in watch(1, code=2)


def test_killed_and_terminated_it_scores_each_row_once_and_asks_once(
    rollouts, start_zerowait, tmp_path
):
    """Killed with a cache half full, started again, and ended by SIGTERM with rows in flight."""
    opened = threading.Event()

    async def hold(body):
        while b"Rome" in body and not opened.is_set():  # noqa: ASYNC110 - set in another thread
            await asyncio.sleep(0.005)

    with FakeJudge(Script(latency=Latency(median_s=0.02)), hold=hold) as judge:
        config = {
            "components": {"quality": {"judge": "q"}},
            "judges": {
                "q": {
                    "endpoints": [{"base_url": judge.url, "model": "m"}],
                    "verdict": {"integer": [1, 10]},
                }
            },
            "traffic": {"concurrency": 4, "hedge": "off"},
            "cache": {"path": str(tmp_path / "judgements.db")},
        }
        (tmp_path / "reward.yaml").write_text(json.dumps(config))
        command = ["score", "rollouts", "-c", "reward.yaml", "--watch", "-q"]
        (rollouts / "1.jsonl").write_text("".join(row(f"Paris {i}") for i in range(100)))
        killed = start_zerowait(*command)
        until(lambda: judge.seen.answered >= 30)
        killed.kill()
        killed.wait()
        ended = start_zerowait(*command)
        until(lambda: len(rewards(tmp_path).get("1", [])) == 100)
        (rollouts / "2.jsonl").write_text(row("Rome"))
        until(lambda: judge.seen.distinct_bodies == 101)
        ended.send_signal(signal.SIGTERM)
        assert "waiting for 1 row in flight" in ended.stderr.readline()
        opened.set()
        output, _ = ended.communicate(timeout=60)
        seen = judge.seen
    assert ended.returncode == 0, output
    found = rewards(tmp_path)
    assert [len(found["1"]), len(found["2"])] == [100, 1]
    assert None not in found["1"] + found["2"]
    assert seen.distinct_bodies == 101
    assert seen.repeats < 30  # what was in flight in the killed process; the cache had the rest


def until(condition, within_s=60.0):
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.text(max_size=5), max_size=8),
    cuts=st.lists(st.integers(0, 400), max_size=6),
    ended=st.booleans(),
)
def test_however_a_file_grows_each_of_its_rows_is_read_once(tmp_path, rows, cuts, ended):
    text = "".join(json.dumps({"r": each}, ensure_ascii=False) + "\n" for each in rows).encode()
    text = text if ended else text.rstrip(b"\n")
    path, known, read = tmp_path / "growing.jsonl", Position(), []
    for end in [*sorted(cut for cut in cuts if cut < len(text)), len(text)]:
        path.write_bytes(text[:end])
        for found in _lines(path, known, 16):
            read.append(found.row["r"])
            known = Position(offset=found.end, lines=found.line)
    while more := list(_lines(path, known, 16)):
        read += [found.row["r"] for found in more]
        known = Position(offset=more[-1].end, lines=more[-1].line)
    assert read == rows


def test_a_byte_order_mark_is_no_part_of_the_first_row(rollouts, watch):
    (rollouts / "1.jsonl").write_bytes(b"\xef\xbb\xbf" + row("Paris").encode())
    assert watch(1) == {"1": [1.0]}


def test_a_watch_that_is_started_again_goes_on_with_its_record(rollouts, watch, tmp_path):
    (rollouts / "1.jsonl").write_text(row("Paris") + row("Rome"))
    watch(2, "--record", "run")
    append(rollouts / "1.jsonl", row("Paris"))
    watch(1, "--record", "run")
    recorded = (tmp_path / "run" / "rewards.jsonl").read_text().splitlines()
    assert [json.loads(line)["reward"]["value"] for line in recorded] == [1.0, 0.0, 1.0]
