import errno
import os
import resource
import subprocess
import sys
import textwrap

import pytest

from zerowait.cli.partial import Partial
from zerowait.cli.task import task_of
from zerowait.config import load_config
from zerowait.errors import ConfigError, DataError
from zerowait.types import Reward, Score


@pytest.fixture
def target(tmp_path):
    return tmp_path / "out.jsonl"


def reward(value):
    return Reward(value, {"a": Score(value)} if value is not None else {})


def keep(target, task, *indices):
    with Partial(target, task=task) as partial:
        for index in indices:
            partial.keep(index, reward(float(index)))
        return partial


def known(target, task):
    with Partial(target, task=task) as partial:
        return sorted(partial.known)


def test_what_was_kept_is_known_again(target):
    keep(target, "t", 1, 2)
    keep(target, "t", 3)
    assert known(target, "t") == [1, 2, 3]


@pytest.mark.parametrize("torn", range(1, 40, 7))
def test_rewards_behind_a_torn_line_are_known_too(target, torn):
    path = keep(target, "t", 1, 2).path
    path.write_bytes(path.read_bytes()[:-torn])
    assert known(target, "t") == [1]
    keep(target, "t", 3, 4)
    assert known(target, "t") == [1, 3, 4]


def test_a_torn_header_is_written_anew(target):
    path = keep(target, "t", 1).path
    path.write_bytes(path.read_bytes()[:5])
    keep(target, "t", 7)
    assert known(target, "t") == [7]


def test_rewards_of_another_task_are_set_aside_and_not_lost(target):
    before = keep(target, "other", 1, 2).path.read_bytes()
    partial = keep(target, "t", 5)
    assert partial.set_aside.read_bytes() == before
    assert known(target, "t") == [5]


def test_nothing_is_left_behind_when_nothing_was_reached_or_all_was(target, tmp_path):
    keep(target, "t")
    with Partial(target, task="t") as partial:
        partial.keep(1, reward(1.0))
        partial.keep(2, reward(None))
        partial.finish()
    assert list(tmp_path.iterdir()) == []


def test_a_second_process_is_refused_until_the_first_one_ends(target):
    holder = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from zerowait.cli.partial import Partial
        with Partial(Path(sys.argv[1]), task="t"):
            print("held", flush=True)
            sys.stdin.read()
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", holder, target], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        process.stdout.readline()
        with pytest.raises(ConfigError, match="is being written by another zerowait score"):
            Partial(target, task="other")
        process.kill()
        process.wait()
        keep(target, "t", 1)


def test_a_place_that_cannot_be_written_is_one_clear_error(tmp_path):
    with pytest.raises(DataError, match=r"cannot be written: Not a directory"):
        Partial(tmp_path / "file" / "x.jsonl", task=(tmp_path / "file").write_text("") or "t")


def test_a_full_disk_says_what_is_kept_and_where(target):
    """A limit on the size of files is a disk that is full, for this process alone."""
    code = textwrap.dedent(
        """
        import resource, signal, sys
        from pathlib import Path
        from zerowait.cli.partial import Partial
        from zerowait.errors import DataError
        from zerowait.types import Reward
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
        try:
            with Partial(Path(sys.argv[1]), task="t") as partial:
                for index in range(100):
                    partial.keep(index, Reward(1.0, {}))
        except DataError as error:
            print(error)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", code, target], capture_output=True, text=True, check=True
    )
    count = len(known(target, "t"))
    assert count > 0
    assert (
        f"{target} cannot be written: {os.strerror(errno.EFBIG)}; {count} rewards are kept in"
        in (done.stdout)
    )
    assert "run the same command again" in done.stdout
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


RUBRIC = "## System\nJudge.\n## User\n{{prompt}}\n{{response}}\n{{reply_format}}\n"
SCHEMA = '{"type": "object", "properties": {"s": {"type": "number"}}, "required": ["s"]}'
CONFIG = """
components:
  mine: {scorer: "edited_rules:score"}
  sourced: {scorer: by_data_source, table: {x: "edited_table:score"}}
  q: {judge: q}
judges:
  q:
    endpoints: [{base_url: "http://h/v1", model: m}]
    rubric: ./rubric.md
    verdict: {schema: schema.json, value: /s, structured: false}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    function = "def score(sample):\n    return 1.0\n"
    files = {
        "rows.jsonl": "{}",
        "reward.yaml": CONFIG,
        "rubric.md": RUBRIC,
        "schema.json": SCHEMA,
        "edited_rules.py": "from edited_words import WORDS\n" + function,
        "edited_words.py": "WORDS = ()\n",
        "edited_table.py": function,
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("edited_rules", "edited_words", "edited_table"):
        sys.modules.pop(name, None)


def task(folder):
    file = folder / "reward.yaml"
    return task_of(load_config(file), config_file=file, key="", data=folder / "rows.jsonl")


def test_the_same_files_are_the_same_task(project):
    assert task(project) == task(project)


@pytest.mark.parametrize(
    "name",
    [
        "rows.jsonl",
        "reward.yaml",
        "rubric.md",
        "schema.json",
        "edited_rules.py",
        "edited_words.py",
        "edited_table.py",
    ],
)
def test_an_edit_of_anything_that_decides_a_reward_is_another_task(project, name):
    before = task(project)
    file = project / name
    text = file.read_text()
    edited = text.replace("Judge.", "Judge strictly.") if name == "rubric.md" else text + "\n"
    file.write_text(edited)
    assert task(project) != before
