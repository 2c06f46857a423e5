"""Before a search agent is trained, its retriever has to answer."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from zerowait.cli.preflight import check_recipe
from zerowait.errors import ConfigError
from zerowait.verl.launch.recipe import load_recipe

RECIPE = """\
name: test
model: {path: model}
data: {train: [rows.jsonl], validation: [rows.jsonl], batch: 1}
algorithm: {steps: 1}
reward: {components: {answer: {scorer: qa_em}}}
resources: {device: cpu}
"""
ROW = {"prompt": [{"role": "user", "content": "q"}], "reward_model": {"ground_truth": "a"}}


class Retrieve(BaseHTTPRequestHandler):
    """Finds nothing for every query, under one path."""

    asked = 0

    def do_POST(self):
        queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        type(self).asked += 1
        body = json.dumps({"result": [[] for _ in queries]}).encode()
        self.send_response(200 if self.path == "/retrieve" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def base():
    with ThreadingHTTPServer(("127.0.0.1", 0), Retrieve) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def project(tmp_path):
    (tmp_path / "model").mkdir()
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / "model" / name).write_text("{}")
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW) + "\n")
    return tmp_path


def check(project, search, extra=None, *, connect=True):
    (project / "recipe.yaml").write_text(RECIPE + f"search: {json.dumps(search)}\n")
    check_recipe(load_recipe(project / "recipe.yaml"), extra or {}, connect=connect)


def test_a_retriever_that_answers_is_asked_once(project, base):
    before = Retrieve.asked
    check(project, {"retriever": {"url": f"{base}/retrieve"}})
    assert Retrieve.asked == before + 1


def test_one_that_is_not_there_ends_the_command_before_a_model_is_loaded(project, base):
    with pytest.raises(ConfigError, match=r"url http://127\.0\.0\.1:9/retrieve answers no search"):
        check(project, {"retriever": {"url": "http://127.0.0.1:9/retrieve", "deadline_s": 0.2}})
    with pytest.raises(ConfigError, match=r"status 404: .* zerowait retriever serve INDEX"):
        check(project, {"retriever": {"url": f"{base}/search"}})


@pytest.mark.parametrize("spelled", ["search.retriever.url", "+search.retriever.url"])
def test_the_address_on_the_command_line_is_the_one_that_counts(project, base, spelled):
    dead = {"retriever": {"url": "http://127.0.0.1:9/retrieve"}}
    check(project, dead, {spelled: f"{base}/retrieve"})
    with pytest.raises(ConfigError, match="status 404"):
        check(project, {"retriever": {"url": f"{base}/retrieve"}}, {spelled: f"{base}/x"})
    with pytest.raises(ConfigError, match="url must be like"):
        check(project, dead, {spelled: "nowhere"})


@pytest.mark.parametrize("search", [{"do_search": False}, {"max_turns": 0}])
def test_an_agent_that_never_searches_needs_no_retriever(project, search):
    check(project, search | {"retriever": {"url": "http://127.0.0.1:9/retrieve"}})


def test_a_dry_run_sends_no_query(project):
    check(project, {"retriever": {"url": "http://127.0.0.1:9/retrieve"}}, connect=False)
