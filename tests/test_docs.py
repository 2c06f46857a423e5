"""Every snippet of the README and the docs does what it says."""

import ast
import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

import zerowait
from zerowait.cli import app as commands
from zerowait.config import load_config
from zerowait.config.source import read_yaml
from zerowait.engine.plan import compile_plan
from zerowait.scorers import resolve
from zerowait.shaping import GroupView, resolve_shape
from zerowait.testing import FakeJudge, load_script
from zerowait.types import Sample
from zerowait.verl.batch import scores
from zerowait.verl.launch.recipe import load_recipe

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("recipes/*/README.md")])  # fmt: skip
OURS = "https://github.com/zerowait/zerowait/blob/main/"
COMMAND = [sys.executable, "-c", "from zerowait.cli import main; main()"]
RULE = "components: {answer: {scorer: qa_em}}\n"
REWARD = {
    "components": {"answer": {"scorer": "qa_em"}, "quality": {"judge": "quality"}},
    "judges": {
        "quality": {
            "endpoints": [{"base_url": "http://127.0.0.1:8001/v1", "model": "deepseek-v3"}],
            "verdict": {"integer": [1, 10]},
        }
    },
    "on_failure": "neutral",
}
RECIPE = {
    "model": {"path": "model"},
    "data": {"train": ["t.jsonl"], "validation": ["v.jsonl"], "batch": 2},
    "algorithm": {"steps": 1},
    "reward": {"components": {"answer": {"scorer": "qa_em"}}},
}
SAMPLE = Sample("Capital of France?", "<answer>Paris</answer>", "Paris")


ELSEWHERE = r"import ray|zerowait\.(trl|verifiers|swift|skyrl)|nemo_gym\.b"
"""What a snippet has that is run under Ray, or by tests/adapters with the package it needs."""


def blocks(*languages):
    """Each block of these languages, as a parameter that is called by its page and line."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for block in re.finditer(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            line = text[: block.start()].count("\n") + 1
            name = f"{page.relative_to(ROOT)}:{line}"
            if block[1] in languages:
                found.append(pytest.param(page, block[2], id=name))
    return found


def examples(word):
    """The calls of `word` in the tables of the docs."""
    pattern = re.compile(rf"`({word}\(.*?\))`")
    return [call for page in PAGES for call in pattern.findall(page.read_text())]


def shown(language, word):
    """The first block of this language with the word in it."""
    return next(block.values[1] for block in blocks(language) if word in block.values[1])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with the files that snippets name, and the home of their cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "helpful.json").write_text(shown("json", '"complete"'))
    (tmp_path / "person.json").write_text('{"type": "object"}')
    (tmp_path / "graded.md").write_text(shown("markdown", "criteria:"))
    (tmp_path / "sure.md").write_text(shown("markdown", "answers the question correctly"))
    (tmp_path / "polite.md").write_text(shown("markdown", "how polite a response is"))
    (tmp_path / "anchors.jsonl").write_text(shown("json", '"verdict"'))
    (tmp_path / "my_rewards.py").write_text(
        "def score(response):\n    return 1.0\n"
        "def run_tests(sample):\n    return 1.0\n"
        "async def ask_a_service(sample):\n    return 1.0\n"
    )
    (tmp_path / "reward.yaml").write_text(RULE)
    return tmp_path


@pytest.mark.parametrize(("page", "text"), blocks("yaml"))
def test_yaml_is_read_as_the_file_it_belongs_to(folder, page, text):
    snippet = folder / "snippet.yaml"
    snippet.write_text(text)
    tree = read_yaml(snippet).tree
    if set(tree) <= {"latency", "faults", "capacity"}:
        load_script(snippet)
    elif set(tree) <= {"trainer", "search", "schedule", "resources", "rollout", "verl"}:
        snippet.write_text(json.dumps(RECIPE | tree))
        load_recipe(snippet)
    else:
        whole = tree if "components" in tree else over(REWARD, tree)
        snippet.write_text(json.dumps(whole))
        compile_plan(load_config(snippet))


def over(tree, changes):
    """`tree` with `changes` in it: what a reader makes of a file when told to add a part."""
    merged = dict(tree)
    for key, value in changes.items():
        inner = isinstance(value, dict) and isinstance(tree.get(key), dict)
        merged[key] = over(tree[key], value) if inner else value
    return merged


@pytest.mark.parametrize(("page", "text"), blocks("json"))
def test_json_is_json(page, text):
    try:
        json.loads(text)
    except ValueError:
        for line in text.splitlines():
            json.loads(line)


@contextmanager
def served(*arguments, folder):
    """The URL that a command of ours says it serves at, until the end."""
    process = subprocess.Popen(
        [*COMMAND, *arguments, "--port", "0"], stdout=subprocess.PIPE, text=True, cwd=folder
    )
    try:
        yield process.stdout.readline().split()[-1]
    finally:
        process.kill()
        process.communicate()


def servers(text, folder, stack):
    """The snippet with the addresses of servers that run until `stack` ends."""
    if "127.0.0.1:8001" in text:
        text = text.replace("http://127.0.0.1:8001/v1", stack.enter_context(FakeJudge()).url)
    if "127.0.0.1:8002" in text:
        service = stack.enter_context(served("serve", "-c", "reward.yaml", folder=folder))
        text = text.replace("http://127.0.0.1:8002", service)
    if "RetrieverSettings(" in text:
        (folder / "corpus.jsonl").write_text('{"id": "a", "contents": "Lima\\nLima is in Peru."}\n')
        subprocess.run([*COMMAND, "retriever", "build", "corpus.jsonl", "index"], check=True, cwd=folder)  # fmt: skip
        url = stack.enter_context(served("retriever", "serve", "index", folder=folder))
        text = text.replace("RetrieverSettings(", f"RetrieverSettings(url={url!r}, ")
    return text


def printed_as_said(text, said):
    """The output, line by line, against the comments behind ``print``."""
    promised = re.findall(r"^ *print\(.*\)  # (?=[\[\d(]|None|Score|unparseable|neutral)(.*)$", text, re.MULTILINE)  # fmt: skip
    return all(any(comment.startswith(line) for line in said) for comment in promised)


@pytest.fixture
def _closed_afterwards(monkeypatch):
    """What `compute_score` opens stays open for its process, which goes on here."""
    monkeypatch.setattr(scores, "_REWARDS", {})
    yield
    for rewards in scores._REWARDS.values():
        rewards.close()


@pytest.mark.usefixtures("_closed_afterwards", "usual_collector")
@pytest.mark.parametrize(
    ("page", "text"),
    [block for block in blocks("python") if not re.search(ELSEWHERE, block.values[1])],
)
def test_python_runs_as_printed(folder, page, text, capsys):
    with ExitStack() as stack:
        text = servers(text, folder, stack)
        code = compile(text, page.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        waiting = eval(code, {"zerowait": zerowait, "sample": SAMPLE, "__name__": "__main__"})
        if asyncio.iscoroutine(waiting):
            asyncio.run(waiting)
    said = capsys.readouterr().out.splitlines()
    does = any(isinstance(part, ast.With | ast.Expr) for part in ast.parse(text).body)
    assert bool(said) == (does and "print(" in text)
    assert printed_as_said(text, said)


PATIENT_RAY = {"RAY_raylet_start_wait_time_s": "200"}
"""Its node has 30 s to come up otherwise, which is little where all cores are busy."""


@pytest.mark.e2e
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("page", "text"), [block for block in blocks("python") if "import ray" in block.values[1]]
)
def test_python_under_ray_runs_as_printed(folder, page, text):
    done = subprocess.run(
        [sys.executable, "-c", text],
        cwd=folder,
        env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"} | PATIENT_RAY,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1.0 Reward(")


@pytest.mark.parametrize("example", examples("value"))
def test_an_example_of_a_rule_is_worth_one(example):
    def value(scorer, response, gold=None, **options):
        return resolve(scorer)(Sample("", response, gold), **options).value

    assert eval(example) == 1


@pytest.mark.parametrize("example", examples("penalties"))
def test_an_example_of_a_shape_gives_each_response_a_penalty(example):
    def penalties(shape, options, **group):
        return [s.value for s in resolve_shape(shape, options).penalties(GroupView(**group))]

    assert len(eval(example)) in {1, 2, 3, 4}


def command_lines():
    """The commands of ours in blocks and in the text; words in capitals stand for anything."""
    found = {}
    for block in blocks(""):
        page, text = block.values
        for line in text.replace("\\\n", " ").splitlines():
            found.setdefault(line.split(" #")[0].strip(), f"{page.name}: {line}")
    for page in PAGES:
        for line in re.findall(r"`(zerowait [^`]*)`", page.read_text()):
            found.setdefault(line, f"{page.name}: {line}")
    return [pytest.param(shlex.split(line), id=name) for line, name in found.items()]


LINES = command_lines()


@pytest.mark.parametrize("words", [line for line in LINES if line.values[0][:1] == ["zerowait"]])
def test_a_command_and_its_options_exist(words):
    commands.add_commands("")
    command, given = typer.main.get_command(commands.app), words[1:]
    while hasattr(command, "commands") and given and not given[0].startswith("-"):
        assert set(given[0].split("|")) <= set(command.commands), given[0]
        command, given = command.commands[given[0].split("|")[0]], given[1:]
    options = {name for parameter in command.params for name in parameter.opts} | {"--help"}
    for word in given:
        if word.startswith("-") and "=" not in word.lstrip("-"):
            assert word in options


PARIS = {"prompt": "Capital of France?", "response": "<answer>Paris</answer>", "ground_truth": "Paris"}  # fmt: skip
HOTPOT = {
    "_id": "1",
    "question": "Capital of Peru?",
    "answer": "Lima",
    "level": "easy",
    "context": [["Lima", ["Lima is in Peru."]]],
}
WITHOUT_MODELS = ("score", "data questions", "data corpus", "doctor config", "retriever build")


def is_whole(words, *, of):
    """Whether it is one of these commands with its files, and nothing in it stands for another."""
    line = " ".join(words[1:])
    return line.startswith(of) and len(words) > 3 and not re.search(r"[A-Z]{3}|\.\.\.", line)


def files_of_the_pages(folder):
    for name in ("rows.jsonl", "rollouts.jsonl"):
        (folder / name).write_text(json.dumps(PARIS) + "\n")
    (folder / "hotpot_train.json").write_text(json.dumps([HOTPOT]))
    (folder / "corpus.jsonl").write_text('{"id": "a", "contents": "Lima\\nLima is in Peru."}\n')
    shutil.copytree(ROOT / "recipes/code", folder / "recipes/code")
    (folder / "nq_search").mkdir()
    row = {"question": "Capital of Peru?", "golden_answers": ["Lima"], "data_source": "nq"}
    pq.write_table(pa.Table.from_pylist([row]), folder / "nq_search/train.parquet")


@pytest.mark.wire
@pytest.mark.parametrize(
    "words", [line for line in LINES if is_whole(line.values[0], of=WITHOUT_MODELS)]
)
def test_a_command_that_needs_no_model_runs_as_printed(folder, words):
    files_of_the_pages(folder)
    if "--show-prompt" in words:
        (folder / "reward.yaml").write_text(json.dumps(REWARD))
    done = subprocess.run([*COMMAND, *words[1:]], cwd=folder, capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.wire
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize(("page", "text"), [b for b in blocks("") if "curl " in b.values[1]])
def test_what_is_asked_with_curl_is_answered(folder, page, text):
    files_of_the_pages(folder)
    with served("serve", "-c", "reward.yaml", folder=folder) as url:
        command = text.replace("http://127.0.0.1:8002", url)
        done = subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    assert '"value":1.0' in done.stdout


@pytest.mark.parametrize("words", [line for line in LINES if line.values[0][:1] == ["make"]])
def test_a_target_of_make_exists(words):
    assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_every_link_to_a_page_of_ours_leads_to_it():
    for page in PAGES:
        for target in re.findall(rf"\]\(((?!https?:)[^)]+|{OURS}[^)]+)\)", page.read_text()):
            path, _, anchor = target.partition("#")
            if path.startswith(OURS):
                to = ROOT / path.removeprefix(OURS)
            else:
                to = (page.parent / path).resolve() if path else page
            assert to.exists(), f"{page.name}: {target}"
            if anchor and to.suffix == ".md":
                headings = re.findall(r"^#+ (.*)$", to.read_text(), re.MULTILINE)
                anchors = [re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings]
                assert anchor in anchors, f"{page.name}: {target}"


def test_a_page_that_the_code_names_exists():
    for module in (ROOT / "src").rglob("*.py"):
        for page in re.findall(r"\bdocs/[\w/-]+\.md", module.read_text()):
            assert (ROOT / page).exists(), f"{module.name}: {page}"


DATE = re.compile(r"(?<!\")\b20\d\d-\d\d-\d\d")


def test_measurements_have_their_pages_and_guides_have_none():
    dated = [page.name for page in ROOT.glob("docs/**/*.md") if DATE.search(page.read_text())]
    assert dated == ["measurements.md"]


def test_every_page_is_in_the_navigation_of_the_site():
    listed = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in ROOT.glob("docs/**/*.md")]
    assert sorted(listed) == sorted(pages)
