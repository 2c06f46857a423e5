"""A feature whose extra is not installed says in one line how to get it."""

import subprocess
import sys

import pytest

from zerowait.search.index import build_index

ROW = '{"prompt": "q", "response": "Paris", "ground_truth": "Paris"}\n'
FILES = {
    "d.jsonl": ROW,
    "p.parquet": "",
    "c.jsonl": '{"id": "a", "contents": "Lima\\nLima is in Peru."}\n',
    "rule.yaml": "components: {a: {scorer: contains}}\n",
    "math.yaml": "components: {a: {scorer: math}}\n",
    "schema.yaml": "components: {a: {scorer: json_schema, schema: {type: object}}}\n",
    "redis.yaml": """\
components: {q: {judge: q}}
judges: {q: {endpoints: [{base_url: "http://127.0.0.1:9/v1", model: m}], verdict: {integer: [1, 10]}}}
cache: {url: "redis://127.0.0.1:9/0"}
""",
}
BUILD = ("retriever", "build", "c.jsonl", "new")


@pytest.mark.parametrize(
    ("package", "command", "extra"),
    [
        ("mpmath", ("score", "d.jsonl", "-c", "math.yaml"), "math"),
        ("jsonschema_rs", ("score", "d.jsonl", "-c", "schema.yaml"), "schema"),
        ("redis", ("score", "d.jsonl", "-c", "redis.yaml"), "redis"),
        ("pyarrow", ("score", "p.parquet", "-c", "rule.yaml"), "parquet"),
        ("pyarrow", ("score", "d.jsonl", "-c", "rule.yaml", "-o", "o.parquet"), "parquet"),
        ("pyarrow", ("data", "questions", "d.jsonl", "o.parquet", "--question", "prompt", "--answers", "ground_truth"), "parquet"),
        ("numpy", BUILD, "search"),
        ("bm25s", BUILD, "search"),
        ("bm25s", ("retriever", "serve", "index"), "search"),
        ("torch", (*BUILD, "--kind", "dense", "--encoder", "e"), "search-dense"),
        ("transformers", (*BUILD, "--kind", "hybrid", "--encoder", "e"), "search,search-dense"),
    ],
)  # fmt: skip
def test_what_is_not_installed_is_named_with_the_line_that_installs_it(
    tmp_path, package, command, extra
):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    build_index(tmp_path / "c.jsonl", tmp_path / "index")
    missing = f"import sys; sys.modules[{package!r}] = None; from zerowait.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", missing, *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert f"needs an extra: pip install 'zerowait[{extra}]'" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()
