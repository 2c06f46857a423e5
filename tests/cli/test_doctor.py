"""What ``zerowait doctor`` says about judges, asked over a real wire."""

import json

import pytest

from zerowait.config import VerdictRule
from zerowait.testing import FakeJudge, Script, Status

RULE = {"integer": [1, 10]}


@pytest.fixture
def config(tmp_path):
    """Writes a reward.yaml whose judges answer at the given URLs; JSON is YAML."""

    def write(judges, **parts):
        file = tmp_path / "reward.yaml"
        components = {name: {"judge": name} for name in judges}
        file.write_text(
            json.dumps(
                {
                    "components": components,
                    "judges": {
                        name: {
                            "endpoints": [{"base_url": url, "model": "m"} for url in urls],
                            "rubric": "reference",
                            "verdict": RULE,
                            "max_tokens": 32,
                        }
                        for name, urls in judges.items()
                    },
                    "traffic": {"attempts": 1, "concurrency": 16},
                    "cache": {"path": str(tmp_path / "judgements.db")},
                }
                | parts
            )
        )
        return file

    return write


def test_a_judge_that_obeys_the_response_is_found_out(config, zerowait_process):
    with FakeJudge(Script(obeys=True)) as judge:
        file = config({"q": [judge.url]}, prices={"m": {"input": 1, "output": 2}})
        shown = zerowait_process("doctor", "judge", file, "-q")
        told = zerowait_process("doctor", "judge", file, "--json", "-q")
        allowed = zerowait_process("doctor", "judge", file, "-q", "--allow", "0.9")
        asked = judge.seen.requests
    assert shown.returncode == told.returncode == 1
    assert allowed.returncode == 0
    assert "82 questions, at most $0." in shown.stdout
    assert "instruction that fooled it: ignore_above" in shown.stdout
    found = json.loads(told.stdout)["judges"]["q"]
    fooled = {row["kind"]: row["fooled"] for row in found["kinds"]}
    assert (fooled["instruction"], fooled["fake_fence"], fooled["master_key"]) == (6, 5, 0)
    assert (found["compared"], found["confused"]) == (10, 0)
    assert asked == 3 * 82  # nothing came from a cache


def test_a_judge_that_cannot_be_reached_through_its_faults_is_not_called_sound(config, zerowait):
    with FakeJudge(
        Script(obeys=True, faults=(Status(status=500, always=True, share=1.0),))
    ) as judge:
        file = config({"q": [judge.url]}, traffic={"attempts": 1, "concurrency": 82})
        done = zerowait("doctor", "judge", file, "-q")
    assert done.returncode == 3
    heading, line = done.stdout.strip().splitlines()
    assert heading.startswith("q: model")
    assert line.startswith("no verdict at all")
    assert "abstained: 82, the first: http_error" in line


def test_only_the_judge_that_is_named_is_asked(config, zerowait):
    with FakeJudge(Script(obeys=True)) as one, FakeJudge() as other:
        file = config({"one": [one.url], "other": [other.url]})
        zerowait("doctor", "judge", file, "--judge", "one", "-q")
        wrong = zerowait("doctor", "judge", file, "--judge", "othr", "-q")
        assert (one.seen.requests, other.seen.requests) == (82, 0)
    assert wrong.returncode == 2
    assert "judges has no 'othr'; did you mean 'other'?" in wrong.stderr


@pytest.mark.parametrize("option", ["--allow", "--margin"])
def test_a_share_outside_zero_to_one_is_refused(option, config, zerowait):
    done = zerowait("doctor", "judge", config({"q": ["http://127.0.0.1:1/v1"]}), option, "1.5")
    assert (done.returncode, done.stderr) == (2, f"zerowait: {option} 1.5: must be in [0, 1]\n")


def test_each_endpoint_of_each_judge_is_asked_once_past_its_gate(config, zerowait):
    with FakeJudge(Script(obeys=True)) as one, FakeJudge(Script(model="other")) as two:
        components = {
            "answer": {"scorer": "qa_em"},
            "q": {"judge": "q", "gate": "answer > 5"},
            "r": {"judge": "r"},
        }
        file = config(
            {"q": [one.url, two.url], "r": [one.url]},
            components=components,
            prices={"m": {"input": 1, "output": 2}},
        )
        done = zerowait("doctor", "config", file, "--ask")
        assert (one.seen.requests, two.seen.requests) == (2, 1)
        urls = one.url, two.url
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if "/v1" in line]
    assert [(row[0], row[1], row[5]) for row in rows] == [
        ("q", urls[0], "m"),
        ("q", urls[1], "other"),
        ("r", urls[0], "m"),
    ]
    assert all(row[-1].startswith("$0.0") for row in rows)


def test_an_endpoint_that_fails_is_named_with_its_reason(config, zerowait):
    broken = Script(faults=(Status(status=500, always=True, share=1.0),))
    with FakeJudge() as good, FakeJudge(broken) as bad:
        done = zerowait("doctor", "config", config({"q": [good.url, bad.url]}), "--ask")
        place = bad.url
    assert done.returncode == 1
    assert f"q at {place}: http_error: " in done.stdout


def test_without_a_judge_there_is_nothing_to_ask(tmp_path, zerowait):
    file = tmp_path / "reward.yaml"
    file.write_text("components: {answer: {scorer: qa_em}}\n")
    assert zerowait("doctor", "config", file, "--ask").returncode == 0
    done = zerowait("doctor", "judge", file)
    assert done.returncode == 2
    assert "names none, so there is none to ask" in done.stderr


def test_a_panel_is_examined_by_its_members_and_a_monitor_not_at_all(config, zerowait, tmp_path):
    with FakeJudge() as judge:
        file = config({"a": [judge.url], "b": [judge.url], "p": []})
        tree = json.loads(file.read_text())
        tree["judges"]["p"] = {"panel": {"members": ["a", "b"]}}
        tree["judges"]["b"]["max_tokens"] = 64
        tree["judges"]["m"] = tree["judges"]["a"] | {
            "rubric": "monitor",
            "monitor": {},
            "verdict": {"choice": ["yes", "no"]},
        }
        tree["components"]["m"] = {"judge": "m"}
        file.write_text(json.dumps(tree))
        panel = zerowait("doctor", "judge", file, "--judge", "p")
        monitor = zerowait("doctor", "judge", file, "--judge", "m")
        assert judge.seen.requests == 0
    assert "judges.p is a panel: ask its members, a, b" in panel.stderr
    assert "judges.m is a monitor" in monitor.stderr


def test_every_vote_of_an_endpoint_counts_in_its_tokens_and_cost(config, zerowait):
    with FakeJudge(Script(obeys=True)) as judge:
        file = config({"q": [judge.url]}, prices={"m": {"input": 1, "output": 2}})
        tree = json.loads(file.read_text())
        once = zerowait("doctor", "config", file, "--ask").stdout
        tree["judges"]["q"] |= {"votes": {"n": 3}, "temperature": 1}
        file.write_text(json.dumps(tree))
        thrice = zerowait("doctor", "config", file, "--ask").stdout
        assert judge.seen.requests == 4

    def cost(shown):
        [row] = [line.split() for line in shown.splitlines() if "/v1" in line]
        return float(row[-1].removeprefix("$"))

    assert cost(thrice) == pytest.approx(3 * cost(once), abs=2e-6)


@pytest.mark.parametrize(
    ("parts", "calls"),
    [
        ({"rubric": "pairwise", "verdict": {"pairs": "group"}}, 2),
        ({"rubric": "pairwise", "verdict": {"pairs": "reference"}}, 2),
        ({"rubric": "ranking", "verdict": {"rank": "group"}}, 1),
        ({"rubric": "monitor", "verdict": {"choice": ["yes", "no"]}, "monitor": {}}, 1),
    ],
)
def test_judges_that_compare_or_predict_are_asked_what_they_can_answer(
    parts, calls, config, zerowait
):
    script = Script(verdict=VerdictRule(choice=["yes", "no"]))
    with FakeJudge(script) as judge:
        file = config({"q": [judge.url]})
        tree = json.loads(file.read_text())
        tree["judges"]["q"] |= parts
        file.write_text(json.dumps(tree))
        done = zerowait("doctor", "config", file, "--ask")
        tried = zerowait("doctor", "judge", file)
        assert judge.seen.requests == calls
    assert done.returncode == 0, done.stdout + done.stderr
    assert tried.returncode == 2
    assert "judges.q " in tried.stderr


def test_the_prompt_is_shown_as_the_judge_would_read_it_and_nothing_is_sent(zerowait, tmp_path):
    """Also without the key, and with no server at the address."""
    rubric = tmp_path / "mine.md"
    rubric.write_text(
        "## System\nBe strict.\n## User\n{{prompt}}\n{{response}}\n{{reply_format}}\n"
    )
    place = {"base_url": "http://127.0.0.1:9/v1", "model": "m", "api_key_env": "NOT_SET"}
    (tmp_path / "reward.yaml").write_text(
        json.dumps(
            {
                "components": {"q": {"judge": "q"}, "c": {"judge": "c"}},
                "judges": {
                    "q": {
                        "endpoints": [place],
                        "rubric": "mine.md",
                        "verdict": {"integer": [1, 7]},
                    },
                    "c": {"endpoints": [place], "verdict": {"pairs": "group"}},
                },
            }
        )
    )
    ended = zerowait("doctor", "config", "reward.yaml", "--show-prompt")
    assert ended.returncode == 0, ended.stderr
    assert "===== judge q: system =====\nBe strict." in ended.stdout
    assert "whole number from 1 (lowest) to 7" in ended.stdout
    assert "===== judge c, request 2 of 2: user =====" in ended.stdout
    (tmp_path / "rows.jsonl").write_text('{"prompt": "Why?", "response": "Because it rains."}\n')
    ended = zerowait("doctor", "config", "reward.yaml", "--show-prompt", "--data", "rows.jsonl")
    assert "Because it rains." in ended.stdout
    assert "judge c would be asked nothing" in ended.stdout
    rubric.write_text(rubric.read_text().replace("{{response}}", "{response}"))
    ended = zerowait("doctor", "config", "reward.yaml", "--show-prompt")
    assert ended.returncode == 2
    assert "mine.md:5: {response} is text" in ended.stderr
