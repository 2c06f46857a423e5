"""The installed command: an index is built and served until it is told to end."""

import json
import signal
import subprocess
import sys
import urllib.request

import pytest

COMMAND = [sys.executable, "-c", "from zerowait.cli import main; main()", "retriever"]


def run(*arguments):
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("retriever")
    corpus = folder / "corpus.jsonl"
    corpus.write_text('{"id": "a", "contents": "Lima\\nLima is in Peru."}\n')
    done = run("build", corpus, folder / "index")
    assert done.returncode == 0, done.stderr
    assert "1 documents are indexed" in done.stdout
    return folder / "index"


def test_an_index_is_served_until_a_signal(index):
    process = subprocess.Popen(
        [*COMMAND, "serve", str(index), "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        url = process.stdout.readline().split()[-1]
        request = urllib.request.Request(
            url, json.dumps({"queries": ["Peru"]}).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            assert json.load(reply) == {
                "result": [[{"id": "a", "contents": "Lima\nLima is in Peru."}]]
            }
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def asked(url, query):
    request = urllib.request.Request(
        url, json.dumps({"queries": [query]}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        return [document["id"] for document in json.load(reply)["result"][0]]


def test_a_server_reloads_an_index_that_was_built_under_it_at_sighup(tmp_path):
    def build(*ids):
        lines = [json.dumps({"id": i, "contents": f"Lima {i} " + "x" * 50}) for i in ids]
        (tmp_path / "draft").write_text("\n".join(lines))
        (tmp_path / "draft").replace(tmp_path / "c.jsonl")
        assert run("build", tmp_path / "c.jsonl", tmp_path / "index").returncode == 0

    build(*[f"old{n}" for n in range(3000)])
    command = [*COMMAND, "serve", str(tmp_path / "index"), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        url = process.stdout.readline().split()[-1]
        build("new")
        assert asked(url, "old2999") == ["old2999"]
        process.send_signal(signal.SIGHUP)
        assert process.stdout.readline() == "1 documents are served now\n"
        assert asked(url, "Lima") == ["new"]
        (tmp_path / "index" / "index.json").unlink()
        (tmp_path / "index" / "index.json").mkdir()  # neither a file nor nothing
        process.send_signal(signal.SIGHUP)
        assert "was not reloaded" in process.stderr.readline()
        assert asked(url, "Lima") == ["new"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.stdout.close()
        process.stderr.close()
        process.wait()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["build", "nowhere.jsonl", "x"], "there is no such file"),
        (["build", "nowhere.jsonl", "x", "--kind", "bm52"], "must be one of bm25, dense, hybrid"),
        (["build", "nowhere.jsonl", "x", "--kind", "dense"], "needs an encoder"),
        (["serve", "nowhere"], "holds no index"),
    ],
)
def test_a_mistake_is_one_clear_line_and_exit_code_2(zerowait, arguments, complaint):
    done = zerowait("retriever", *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1
