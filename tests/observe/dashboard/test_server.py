"""Who may read the dashboard, what it answers, and how it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from http.client import HTTPConnection
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zerowait
from zerowait.client import Secret
from zerowait.errors import ConfigError, DataError
from zerowait.observe.dashboard import DashboardSettings
from zerowait.observe.dashboard.agreement import Confusion
from zerowait.observe.page.data import VIEWS
from zerowait.testing import FakeJudge
from zerowait.types import Score


def ask(url, path, method="GET", body=None, **headers):
    """Status, headers and body; no header is sent but those that are given, and Host."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, headers)
        reply = connection.getresponse()
        return SimpleNamespace(status=reply.status, headers=reply.headers, body=reply.read())
    finally:
        connection.close()


def json_at(url, path, **headers):
    reply = ask(url, path, **headers)
    assert reply.status == 200, reply.body
    return json.loads(reply.body)


def until_ready(url, state="ready", run=0):
    give_up_at = time.monotonic() + 60
    while (status := json_at(url, "/api/runs")[run])["state"] != state:
        assert time.monotonic() < give_up_at, status
        time.sleep(0.02)
    return status


def rate(url, row, up, note="", who=""):
    return ask(
        url,
        "/api/runs/0/opinions",
        "POST",
        json.dumps({"row": row, "up": up, "note": note, "who": who}),
        Content_Type="application/json",
        Origin=url,
    )


@pytest.fixture
def served(recorded, reward, judgement, serve_runs):
    folder = recorded(
        [reward(n, value=n / 4) for n in range(1, 5)], [judgement(n) for n in range(1, 5)]
    )
    with serve_runs([folder]) as url:
        until_ready(url)
        yield SimpleNamespace(url=url, folder=folder)


# ---------------------------------------------------------------- who may read


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.com"])
def test_another_address_than_loopback_needs_a_token(host):
    with pytest.raises(ConfigError, match="needs a token"):
        DashboardSettings(host=host)
    assert DashboardSettings(host=host, token=Secret("t")).host == host


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8003", "127.0.0.1.evil.example", ""]
)
def test_a_name_that_another_site_gave_this_machine_reads_nothing(served, host):
    for path in ("/", "/api/runs", "/api/runs/0/samples"):
        assert ask(served.url, path, Host=host).status == 403
    assert ask(served.url, "/", Host="localhost:8003").status == 200
    assert ask(served.url, "/", Host="[::1]:8003").status == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_pages_of_other_sites_read_nothing(served, site):
    assert ask(served.url, "/api/runs", Sec_Fetch_Site=site).status == 403
    assert ask(served.url, "/api/runs", Sec_Fetch_Site="same-origin").status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Authorization": "Bearer x"},
    ],
)
def test_only_the_own_page_may_rate(served, headers):
    body = json.dumps({"row": 1, "up": True})
    path = "/api/runs/0/opinions"
    assert (
        ask(served.url, path, "POST", body, Content_Type="application/json", **headers).status
        == 403
    )
    assert ask(served.url, path, "POST", body, Origin=served.url).status == 415
    assert not (served.folder / "opinions.jsonl").exists()


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/api/runs",
        "/nothing",
        "/api/runs/7/samples",
        "/page/app.js",
        "/api/runs/0/samples?step=x",
    ],
)
def test_every_answer_has_the_headers_that_keep_text_from_running(served, path):
    headers = ask(served.url, path).headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "frame-ancestors 'none'" in policy
    assert not [name for name in headers if name.lower().startswith("access-control")]


def test_a_token_lets_in_by_its_cookie_by_the_address_and_by_a_header(recorded, reward, serve_runs):
    with serve_runs([recorded([reward(1)])], token=Secret("right")) as url:
        assert ask(url, "/api/runs").status == 401
        assert ask(url, "/").headers["Location"] == "/login"
        assert ask(url, "/login").status == 200
        assert ask(url, "/page/dashboard.css").status == 200
        assert ask(url, "/page/app.js").status == 401
        assert ask(url, "/?token=wrong").status == 403
        assert ask(url, "/?token=%ff").status == 403
        assert ask(url, "/api/runs", Authorization="Bearer wrong").status == 401
        assert ask(url, "/api/runs", Authorization="Bearer right").status == 200
        let_in = ask(url, "/?token=right")
        assert (let_in.status, let_in.headers["Location"]) == (303, "/")
        cookie = let_in.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert "right" not in cookie
        assert ask(url, "/api/runs", Cookie=cookie.partition(";")[0]).status == 200
        assert ask(url, "/api/runs", Cookie=cookie.partition("=")[0] + "=right").status == 401


@pytest.mark.parametrize(
    "name", ["..%2f..%2frewards.jsonl", "a.png", "0" * 64 + ".svg", "0" * 64 + ".png"]
)
def test_only_pictures_of_the_record_are_sent(served, name):
    assert ask(served.url, f"/api/runs/0/pictures/{name}").status == 404


# ---------------------------------------------------------------- runs that begin and grow


def test_a_run_may_begin_later_and_grow_beside_another(recorded, reward, serve_runs, tmp_path):
    there = recorded([reward(1)], name="there")
    with serve_runs([there, tmp_path / "later"]) as url:
        until_ready(url)
        waiting = until_ready(url, "waiting", run=1)
        assert waiting["why"].endswith("later to have a record")
        late = ask(url, "/api/runs/1/samples")
        assert (late.status, late.headers["Retry-After"]) == (503, "1")
        recorded([reward(1)], name="later")
        until_ready(url, run=1)
        recorded([reward(2)], name="later")
        while json_at(url, "/api/runs")[1]["samples"] != 2:
            time.sleep(0.02)
        assert [s["row"] for s in json_at(url, "/api/runs/1/samples")["samples"]] == [2, 1]
        assert [s["row"] for s in json_at(url, "/api/runs/0/samples")["samples"]] == [1]


def test_a_folder_without_a_record_is_named_with_the_runs_in_it(
    recorded, reward, serve_runs, tmp_path
):
    recorded([reward(1)], name="a")
    (tmp_path / "notes.txt").write_text("x")
    for path, says in (
        (tmp_path, r"has no record: no rewards.jsonl is there; runs in it: .*a$"),
        (tmp_path / "notes.txt", "is a file: give the folder of a run"),
    ):
        with pytest.raises(DataError, match=says), serve_runs([path]):
            pass


def test_the_views_are_made_before_a_page_asks_for_them(recorded, reward, serve_runs):
    folder = recorded([reward(1)])
    with serve_runs([folder]) as url:
        until_ready(url)
        while set(json_at(url, "/api/runs/0/views")["documents"]) != set(VIEWS):
            time.sleep(0.02)


def test_a_damaged_line_is_told_and_not_hidden(recorded, reward, serve_runs):
    folder = recorded([reward(1)])
    with (folder / "rewards.jsonl").open("a") as file:
        file.write("{broken}\n")
    with serve_runs([folder]) as url:
        assert until_ready(url)["samples"] == 1
        [note, *_] = json_at(url, "/api/runs/0/views/overview")["notes"]
        assert "rewards.jsonl:2: is damaged and left out" in note


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/api/runs/9/samples", "there is no run 9"),
        ("/api/runs/0/samples?step=x", "step"),
        ("/api/runs/0/samples?stpe=1", "stpe"),
        ("/api/runs/0/samples?order=random", "order"),
        ("/api/runs/0/samples/77/group", "no row 77"),
        ("/api/runs/0/views/nothing", "no view"),
        ("/api/runs/0/points/77", "77"),
        ("/api/runs/0/anchors?judge=quality", "up and down"),
        ("/api/runs/0/agreement?threshold=high", "float"),
        ("/api/runs/0/agreement?threshold=nan", "finite"),
        ("/api/runs/0/anchors?judge=quality&up=inf&down=1", "finite"),
        ("/api/runs/0/samples?step=99999999999999999999", "18 digits"),
        ("/api/runs/0/samples?after=99999999999999999999", "18 digits"),
    ],
)
def test_a_wrong_request_is_answered_with_what_is_wrong(served, path, says):
    reply = ask(served.url, path)
    assert reply.status in {400, 404}
    assert says in json.loads(reply.body)["error"]


def test_the_reports_views_are_made_of_the_run_as_it_is(served, recorded, reward):
    before = json_at(served.url, "/api/runs/0/views/overview")
    assert before["rows"] == 4
    recorded([reward(5, value=0.5)])
    while json_at(served.url, "/api/runs/0/views/overview")["rows"] != 5:
        json_at(served.url, "/api/runs")
        time.sleep(0.02)
    kept = json_at(served.url, "/api/runs/0/views")
    assert kept["documents"]["overview"]["rows"] == 5


# ---------------------------------------------------------------- opinions


def test_each_person_has_one_opinion_on_a_sample_and_may_take_it_back(served):
    url = served.url
    assert rate(url, 2, True, "fine").status == 200
    assert rate(url, 2, False, "no", "Ada").status == 200
    changed = json.loads(rate(url, 2, False, "on second thought").body)["opinions"]
    assert sorted((o["who"], o["up"], o["note"]) for o in changed) == [
        ("", False, "on second thought"),
        ("Ada", False, "no"),
    ]
    left = json.loads(rate(url, 2, None, who="Ada").body)["opinions"]
    assert [o["who"] for o in left] == [""]
    found = json_at(url, "/api/runs/0/samples?opinion=any")["samples"]
    assert [(s["row"], s["opinions"][0]["note"]) for s in found] == [(2, "on second thought")]
    assert len(json_at(url, "/api/runs/0/samples?opinion=none")["samples"]) == 3
    assert len((served.folder / "opinions.jsonl").read_text().splitlines()) == 4


@pytest.mark.parametrize(
    "body", ["", "{", '{"row": 1}', '{"row": 1, "up": "yes"}', '{"row": 99, "up": true}']
)
def test_what_is_no_opinion_is_not_written(served, body):
    headers = {"Content_Type": "application/json", "Origin": served.url}
    assert ask(served.url, "/api/runs/0/opinions", "POST", body, **headers).status == 400
    assert not (served.folder / "opinions.jsonl").exists()


def test_an_opinion_that_cannot_be_written_is_told(served):
    json_at(served.url, "/api/runs/0/samples")
    (served.folder / "opinions.jsonl").mkdir()
    reply = rate(served.url, 1, True)
    assert reply.status == 400
    assert "opinions.jsonl cannot be written to" in json.loads(reply.body)["error"]


def test_agreement_counts_abstentions_apart(recorded, reward, serve_runs):
    values = [0.9, 0.8, 0.2, 0.1, None]
    folder = recorded([reward(n, value=value) for n, value in enumerate(values, start=1)])
    with serve_runs([folder]) as url:
        until_ready(url)
        for row, up in ((1, True), (2, False), (3, False), (4, False), (5, True)):
            rate(url, row, up)
        found = json_at(url, "/api/runs/0/agreement")
        assert (found["threshold"], found["without_score"]) == (0.5, 1)
        assert found["confusion"] == {
            "both_good": 1,
            "only_person": 0,
            "only_score": 1,
            "both_bad": 2,
        }
        assert (found["accuracy"], found["kappa"]) == (0.75, 0.5)
        assert found["disagreements"] == [{"row": 2, "up": False, "value": 0.8}]
        strict = json_at(url, "/api/runs/0/agreement?threshold=0.85&component=quality")
        assert (strict["accuracy"], strict["kappa"]) == (1.0, 1.0)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=30))
def test_kappa_is_agreement_beyond_what_chance_would_give(pairs):
    counts = [sum(pair == each for pair in pairs) for each in ((1, 1), (1, 0), (0, 1), (0, 0))]
    table = Confusion(**dict(zip(Confusion.__struct_fields__, counts, strict=True)))
    if not pairs:
        assert (table.accuracy, table.kappa) == (None, None)
        return
    agree = sum(a == b for a, b in pairs) / len(pairs)
    first, second = (sum(pair[at] for pair in pairs) / len(pairs) for at in (0, 1))
    chance = first * second + (1 - first) * (1 - second)
    assert table.accuracy == pytest.approx(agree)
    if {True, False} & {a != b for a, b in pairs} and chance < 1:
        assert table.kappa == pytest.approx((agree - chance) / (1 - chance))
        assert -1 <= table.kappa <= 1
    if chance == 1:
        assert table.kappa is None


def test_thumbs_become_anchors_that_a_configuration_takes(
    recorded, reward, judgement, serve_runs, tmp_path
):
    chat = [{"role": "user", "content": "Capital of Peru?"}]
    rewards = [
        reward(1, response="Lima.", ground_truth="Lima", prompt=chat),
        reward(2, response="Cusco."),
        reward(3, response="Both think otherwise."),
        reward(4, response="Another judge's."),
        reward(5, response="Nobody rated it."),
    ]
    judgements = [judgement(n, outcome=Score(float(n))) for n in (1, 2, 3, 5)]
    judgements.append(judgement(4, judge="other"))
    with serve_runs([recorded(rewards, judgements)]) as url:
        until_ready(url)
        nothing = ask(url, "/api/runs/0/anchors?judge=quality&up=10&down=1")
        assert (nothing.status, b"give thumbs first" in nothing.body) == (400, True)
        for row, up, who in (
            (1, True, ""),
            (2, False, ""),
            (3, True, "a"),
            (3, False, "b"),
            (4, True, ""),
        ):
            rate(url, row, up, who=who)
        assert json_at(url, "/api/runs/0/verdicts?judge=quality") == {"lowest": 1.0, "highest": 5.0}
        made = ask(url, "/api/runs/0/anchors?judge=quality&up=10&down=1")
    assert (made.headers["X-Anchors"], made.headers["X-Left-Out"]) == ("2", "1")
    (tmp_path / "anchors.jsonl").write_bytes(made.body)
    assert [json.loads(line)["verdict"] for line in made.body.splitlines()] == [10.0, 1.0]
    with FakeJudge(answer=lambda _: "Score: 10") as judge:
        quality = {
            "endpoints": [{"base_url": judge.url, "model": "m"}],
            "rubric": "quality",
            "verdict": {"integer": [1, 10]},
            "anchors": str(tmp_path / "anchors.jsonl"),
        }
        config = {
            "components": {"q": {"judge": "quality"}},
            "judges": {"quality": quality},
            "cache": "off",
        }
        measured = []
        with zerowait.open(config, listener=measured.append):
            give_up_at = time.monotonic() + 60
            while not any(isinstance(event, zerowait.events.AnchorsMeasured) for event in measured):
                assert time.monotonic() < give_up_at
                time.sleep(0.02)
    [event] = [each for each in measured if isinstance(each, zerowait.events.AnchorsMeasured)]
    assert event.from_reference.anchors == 2
    assert event.from_reference.mean_abs == 0.5


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_prints_its_address_and_ends_at_a_signal(recorded, reward, number):
    command = [
        sys.executable,
        "-m",
        "zerowait",
        "dashboard",
        recorded([reward(1)]),
        "--port",
        "0",
        "--json",
        "--token",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        said = json.loads(running.stdout.readline())
        assert said["address"].startswith(f"{said['url']}/?token=")
        token = said["address"].rpartition("=")[2]
        until = time.monotonic() + 60
        while (
            json_at(said["url"], "/api/runs", Authorization=f"Bearer {token}")[0]["state"]
            != "ready"
        ):
            assert time.monotonic() < until
            time.sleep(0.02)
        running.send_signal(number)
        out, errors = running.communicate(timeout=60)
    assert (running.returncode, out, errors) == (0, "", "")


def test_a_port_in_use_is_one_line(zerowait, recorded, reward):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = zerowait("dashboard", recorded([reward(1)]), "--port", port)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"zerowait: cannot listen on 127.0.0.1 port {port}:")


def test_a_token_of_an_environment_variable_is_never_printed(recorded, reward):
    command = [
        sys.executable,
        "-m",
        "zerowait",
        "dashboard",
        recorded([reward(1)]),
        "--port",
        "0",
        "--token-env",
        "MINE",
    ]
    environment = os.environ | {"MINE": "planted-token"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as running:
        said = running.stdout.readline()
        url = said.split()[-1]
        assert ask(url, "/api/runs", Authorization="Bearer planted-token").status == 200
        assert ask(url, "/api/runs").status == 401
        running.terminate()
        said += running.communicate(timeout=60)[0]
    assert "planted-token" not in said
