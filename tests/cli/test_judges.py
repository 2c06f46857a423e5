"""What `zerowait doctor config` says about judges, and that every snippet of the docs runs."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from zerowait import Engine, Sample, Score
from zerowait.cli.judges import describe_judges
from zerowait.config import load_config
from zerowait.engine.plan import compile_plan
from zerowait.testing import FakeJudge

PAGES = ("kinds-of-judgement", "self-hosted-judge", "compare-responses")
HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
KINDS = "\n".join((HOW_TO / f"{page}.md").read_text() for page in PAGES)
SNIPPETS = [
    snippet
    for snippet in re.findall(r"```yaml\n(.*?)```", KINDS, re.DOTALL)
    if "components:" in snippet and "judge: " in snippet
]
NAMES = [re.search(r"judge: (\w+)", snippet)[1] for snippet in SNIPPETS]
SAYS = {
    "preference": ["judge preference: rubric reward model; its number as it is; 1 call a sample"],
    "helpful": ["judge helpful: rubric quality; /score of an object by helpful.json; 1 call a sample"],
    "sure": ["judge sure: rubric sure; one of yes, no, by probability; 1 call a sample"],
    "graded": ["judge graded: rubric graded; integer 1 to 10; criteria logic 3, style 1 apart; 2 calls a sample"],
    "voted": ["judge voted: rubric reference; one of correct, incorrect; 5 votes by majority, 3 needed; 5 calls a sample"],
    "panel": [
        "judge one: rubric quality; integer 1 to 10; 1 call a sample",
        "judge other: rubric quality; number 0 to 1; 1 call a sample",
        "panel panel: mean of one, other in [0, 1], 1 needed; 2 calls a sample",
    ],
    "checked": ["judge checked: rubric reference; one of correct, partly, incorrect; 1 call a sample"],
    "watched": [
        "judge watched: rubric monitor; one of yes, no; predicts extra.is_correct for a reward from -3.33333 to 3.33333; 1 call a sample",
    ],
    "compared": ["judge compared: rubric pairwise; compared with all siblings in both orders, by wins; n x (n - 1) calls for a group of n"],
    "ranked": ["judge ranked: rubric ranking; siblings ranked, at most 16 at a time; 1 call a group, more beyond that many"],
}  # fmt: skip
SAMPLE = Sample("Q?", "<think>easy</think> A.", "A.", group="q", extra={"is_correct": True})
SIBLING = Sample("Q?", "<think>hard</think> B.", "A.", group="q", extra={"is_correct": False})


def answer(body):
    """A judge that answers in whatever form it is asked for."""
    text = body["messages"][1]["content"]
    labels = re.findall(r"BEGIN RESPONSE ([A-Z]+) ", text)
    if labels:
        return f"Verdict: {labels[0]}"
    enforced = body.get("response_format")
    if enforced and "score" not in enforced["json_schema"]["schema"]["properties"]:
        return json.dumps(instance(enforced["json_schema"]["schema"]))
    if "JSON schema" in text:
        return json.dumps({"reason": "Short.", "score": 4, "complete": True})
    words = re.search(r"(?:where WORD is one of: |exactly one word, )(\w+)", text)
    return f"Verdict: {words[1]}" if words else "Score: 1"


def instance(schema):
    """An object that satisfies a schema."""
    if "enum" in schema:
        return schema["enum"][0]
    if schema["type"] == "object":
        return {name: instance(each) for name, each in schema["properties"].items()}
    return {"string": "Short.", "boolean": True}.get(schema["type"], schema.get("minimum", 1))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "helpful.json").write_text(re.search(r"```json\n(.*?)```", KINDS, re.DOTALL)[1])
    rubrics = re.findall(r"```markdown\n(.*?)```", KINDS, re.DOTALL)
    for name, word in (("graded.md", "criteria:"), ("sure.md", "answers the question correctly")):
        (tmp_path / name).write_text(next(rubric for rubric in rubrics if word in rubric))
    return tmp_path


@pytest.mark.parametrize("name", SAYS)
def test_every_kind_in_the_docs_runs_and_is_described_in_a_line(folder, name):
    path = folder / "reward.yaml"
    snippet = SNIPPETS[NAMES.index(name)]

    async def score():
        async with Engine(path) as engine:
            return (await engine.score_all([SAMPLE, SIBLING]))[0]

    with FakeJudge(answer=answer) as judge:
        path.write_text(
            re.sub(r"http://127.0.0.1:800\d(?:/v1)?", judge.url, snippet) + "cache: off\n"
        )
        config = load_config(path)
        assert list(describe_judges(config, compile_plan(config))) == SAYS[name]
        reward = asyncio.run(score())
    assert [type(outcome) for outcome in reward.components.values()] == [Score]


def test_the_docs_have_a_snippet_of_every_kind():
    assert sorted(NAMES) == sorted(SAYS)


def test_doctor_config_describes_the_judges(zerowait, folder):
    with FakeJudge() as judge:
        snippet = SNIPPETS[NAMES.index("graded")].replace("http://127.0.0.1:8001/v1", judge.url)
        (folder / "reward.yaml").write_text(snippet)
        done = zerowait("doctor", "config", "reward.yaml")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "reward.yaml: 1 component, 1 judge: fine",
        *SAYS["graded"],
    ]


def test_the_python_snippet_of_the_comparison_says_what_it_prints(capsys):
    exec(re.search(r"```python\n(.*?)```", KINDS, re.DOTALL)[1], {})
    assert capsys.readouterr().out == "[1.0, 0.0, 0.5]\n6\n"
