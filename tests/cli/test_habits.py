"""Habits of a command line: -h, --version, python -m, completion, - for streams, and --json."""

import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from typer.main import get_command

import zerowait
from zerowait.cli import app
from zerowait.record.rewards import RewardRecord, StatsRecord
from zerowait.testing import FakeJudge, Garbage, Script
from zerowait.types import Reward, Sample

ROW = {"prompt": "q", "response": "Paris", "ground_truth": "Paris"}
RULE = "components: {answer: {scorer: contains}}\n"
QUESTION = {"question": "Who", "golden_answers": ["a"], "id": "1"}
PASSAGE = {"title": "Lima", "text": "In Peru."}
ENTRY = '{"key":"g","judge":"j","model":"m","fingerprint":"","created":1,"reply":"r","verdict":{"outcome":"score","value":1}}\n'
REFERENCE = Path(__file__).parents[2] / "docs/reference/cli.md"
SERVERS = {"judge", "serve", "retriever serve", "train"}  # they have no result to print


@pytest.fixture
def piped(tmp_path):
    """Runs the command with standard input in `tmp_path`; how it ended."""

    def run(*arguments, given):
        return subprocess.run(
            [sys.executable, "-m", "zerowait", *map(str, arguments)],
            input=given,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def files(tmp_path):
    for name, text in {
        "rows.jsonl": json.dumps(ROW) + "\n",
        "reward.yaml": RULE,
        "q.jsonl": json.dumps(QUESTION) + "\n",
        "p.jsonl": json.dumps(PASSAGE) + "\n",
        "c.jsonl": '{"id": "a", "contents": "Lima\\nLima is in Peru."}\n',
        "s.json": '{"Lima": {"title": "Lima", "extract": "Lima is.", "description": "Largest city of Peru by the sea"}, '
        '"Quito": {"title": "Quito", "extract": "Quito is.", "description": "High capital city of Ecuador"}}',
        "entries.jsonl": ENTRY,
    }.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def commands(group=None, path=()):
    """Every command with the words that call it."""
    if group is None:
        app.add_commands("")
        group = get_command(app.app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


@pytest.mark.parametrize("words", [(), ("cache",), *(words for words, _ in commands())])
def test_every_command_has_its_help_at_h(zerowait, words):
    done = zerowait(*words, "-h")
    assert done.returncode == 0
    assert " ".join(("Usage: zerowait", *words)) in done.stdout


def test_every_command_that_prints_a_result_has_json():
    without = {
        " ".join(words)
        for words, command in commands()
        if not any("--json" in parameter.opts for parameter in command.params)
    }
    assert without == SERVERS


def test_the_reference_lists_the_json_keys_of_every_command_that_has_them():
    section = REFERENCE.read_text().partition("| command | keys |")[2].partition("\n\n")[0]
    listed = set(re.findall(r"^\| `([a-z ]+)", section, re.MULTILINE))
    assert {words.strip() for words in listed} == {
        " ".join(words) for words, _ in commands()
    } - SERVERS


@pytest.mark.parametrize("option", ["--version", "version"])
def test_the_version_is_printed(zerowait_process, option):
    done = zerowait_process(option)
    assert done.returncode == 0
    assert done.stdout.split()[-1] == zerowait.__version__


def test_the_package_runs_as_a_module(piped):
    assert piped("--version", given="").stdout == f"zerowait {zerowait.__version__}\n"


def test_a_shell_completes_the_names_of_commands(zerowait_process):
    asked = {
        "_ZEROWAIT_COMPLETE": "complete_bash",
        "COMP_WORDS": "zerowait ca",
        "COMP_CWORD": "1",
    }
    assert zerowait_process(env=asked).stdout.split() == ["cache"]


def test_score_reads_standard_input_and_writes_rows_alone_to_standard_output(piped, files):
    done = piped("score", "-", "-c", "reward.yaml", given=json.dumps(ROW) + "\n")
    assert done.returncode == 0, done.stderr
    [row] = map(json.loads, done.stdout.splitlines())
    assert (row["reward"], row["response"]) == (1.0, "Paris")
    assert "1 row, mean reward 1.0000" in done.stderr


def test_a_wrong_row_of_standard_input_is_named_by_its_line(piped, files):
    done = piped("score", "-", "-c", "reward.yaml", given=json.dumps(ROW) + "\n\n{\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("zerowait: standard input:3: is no JSON object")


def test_score_of_a_file_writes_to_standard_output_with_out_dash(zerowait, files):
    done = zerowait("score", "rows.jsonl", "-c", "reward.yaml", "-o", "-", "-q")
    assert json.loads(done.stdout)["reward"] == 1.0
    assert not (files / "rows.rewards.jsonl").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("score", "rows.jsonl", "-c", "reward.yaml", "-o", "-"),
        ("data", "questions", "q.jsonl", "-"),
        ("data", "corpus", "p.jsonl", "-"),
        ("cache", "export", "c.db", "-"),
    ],
)
def test_rows_and_a_json_result_do_not_share_standard_output(zerowait, files, command):
    done = zerowait(*command, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--json: standard output gets the rows" in done.stderr


def test_data_reads_standard_input_and_writes_standard_output(piped):
    asked = piped("data", "questions", "-", "-", given=json.dumps(QUESTION) + "\n")
    assert json.loads(asked.stdout)["extra_info"]["question"] == "Who"
    assert asked.stderr == "-: 1 question\n"
    found = piped("data", "corpus", "-", "-", given=json.dumps(PASSAGE) + "\n")
    assert json.loads(found.stdout) == {"id": "0", "contents": "Lima\nIn Peru."}


def test_a_cache_is_copied_through_a_pipe(piped, tmp_path):
    done = piped("cache", "import", "a.db", "-", given=ENTRY)
    assert done.stdout == "a.db: 1 entry imported, 0 there already\n"
    exported = piped("cache", "export", "a.db", "-", given="")
    assert json.loads(exported.stdout)["key"] == "g"
    copied = piped("cache", "import", "b.db", "-", given=exported.stdout)
    assert copied.stdout.startswith("b.db: 1 entry imported")
    wrong = piped("cache", "import", "b.db", "-", given="{}\n")
    assert wrong.stderr.startswith("zerowait: standard input:1: is no entry")


@pytest.mark.parametrize(
    ("command", "keys"),
    [
        (("version",), {"version"}),
        (("doctor", "install"), {"python", "system", "machine", "packages"}),
        (("doctor", "config", "reward.yaml"), {"file", "components", "judges", "descriptions", "answers"}),
        (("score", "rows.jsonl", "-c", "reward.yaml"), {"out", "rows", "responses", "abstained", "mean_reward", "stats", "left_out"}),
        (("data", "questions", "q.jsonl", "o.jsonl"), {"files"}),
        (("data", "corpus", "p.jsonl", "o.jsonl"), {"files"}),
        (("data", "wiki", "o", "--summaries", "s.json", "--held-out", "1"), {"files"}),
        (("retriever", "build", "c.jsonl", "i"), {"index", "kind", "documents"}),
        (("cache", "import", "a.db", "entries.jsonl"), {"cache", "imported", "already_there"}),
    ],
)  # fmt: skip
def test_a_json_result_is_one_object_with_these_keys_alone_on_standard_output(
    zerowait, files, command, keys
):
    done = zerowait(*command, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert json.loads(done.stdout).keys() == keys


def test_the_json_of_a_cache_counts_entries_and_bytes(zerowait, files):
    zerowait("cache", "import", "a.db", "entries.jsonl")
    [found] = json.loads(zerowait("cache", "stats", "a.db", "--json").stdout)["files"]
    assert (found["path"], found["entries"]) == ("a.db", 1)
    [share] = found["models"]
    assert (share["judge"], share["model"], share["oldest_unix_s"]) == ("j", "m", 1.0)
    exported = json.loads(zerowait("cache", "export", "a.db", "o.jsonl", "--json").stdout)
    assert exported == {"file": "o.jsonl", "cache": "a.db", "entries": 1}
    pruned = json.loads(zerowait("cache", "prune", "a.db", "--older-than=1d", "--json").stdout)
    assert pruned["files"][0]["dropped_entries"] == 1


def test_the_json_of_a_score_counts_what_abstained_and_what_was_left_out(zerowait, files):
    (files / "rows.jsonl").write_text(json.dumps(ROW) + "\n" + '{"prompt": "q"}\n')
    done = zerowait("score", "rows.jsonl", "-c", "reward.yaml", "--skip-unusable", "--json", "-q")
    result = json.loads(done.stdout)
    assert (result["rows"], result["abstained"], result["mean_reward"]) == (1, 0, 1.0)
    assert result["left_out"][0].startswith("rows.jsonl:2: has no 'response'")


@pytest.mark.parametrize(("fault", "code"), [((), 0), ((Garbage(),), 1)])
def test_the_json_of_a_checked_configuration_has_the_verdict_or_why_there_is_none(
    zerowait, files, fault, code
):
    with FakeJudge(Script(faults=fault)) as judge:
        config = {
            "components": {"quality": {"judge": "q"}},
            "judges": {
                "q": {
                    "endpoints": [{"base_url": judge.url, "model": "m"}],
                    "verdict": {"integer": [1, 10]},
                }
            },
            "cache": "off",
        }
        (files / "judged.json").write_text(json.dumps(config))
        done = zerowait("doctor", "config", "judged.json", "--ask", "--json")
        shown = zerowait("doctor", "config", "judged.json", "--show-prompt", "--json")
    assert done.returncode == code, done.stderr
    [answer] = json.loads(done.stdout)["answers"]
    assert answer["judge"] == "q"
    assert (answer["verdict"] is None, answer["abstained"]) == (
        (True, "unparseable") if fault else (False, None)
    )
    [prompts] = json.loads(shown.stdout)["prompts"]
    assert prompts["judge"] == "q"
    assert [role for role, _ in prompts["requests"][0]][-1] == "user"


def test_the_json_of_doctor_verl_has_every_registration(zerowait_process):
    pytest.importorskip("verl")
    done = zerowait_process("doctor", "verl", "--json", env={"VERL_PLATFORM": "cpu"})
    result = json.loads(done.stdout)
    assert result["traps"] == []
    assert "failed" not in {each["status"] for each in result["registrations"]}


def test_the_json_of_a_report_has_the_mean_reward_of_each_step(zerowait, tmp_path):
    sample = Sample("q", "r", split="train", step=3)
    record = RewardRecord(sample=sample, reward=Reward(0.5, {}), trained_on=0.5)
    (tmp_path / "rewards.jsonl").write_bytes(msgspec.json.encode(record) + b"\n")
    stats = StatsRecord(at=1.0, split="train", step=3, stats={"asked": 0})
    (tmp_path / "stats.jsonl").write_bytes(msgspec.json.encode(stats) + b"\n")
    done = zerowait("report", ".", "--no-page", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [(step["step"], step["reward"]) for step in result["training"]] == [(3, 0.5)]
    assert result["page"] is None


def test_what_adds_a_command_is_in_the_modules_of_its_name():
    """Only those are loaded when it is called."""
    for words, command in commands():
        module = command.callback.__module__.removeprefix("zerowait.cli.")
        assert module == words[0] or module.startswith(f"{words[0]}_") or words == ("version",)
