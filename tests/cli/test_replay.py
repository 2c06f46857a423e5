"""``zerowait replay``, ``diff`` and ``show`` as a person runs them, on a run that was recorded."""

import asyncio
import json
import shutil

import pytest

from zerowait import Sample
from zerowait.hub import JobHub, Phase, WaitRecord, append_wait
from zerowait.testing import FakeJudge, Garbage, Script, Status
from zerowait.types import FailureKind

UNREACHABLE = "http://127.0.0.1:9/v1"
SAID = "the context window is full"
FAULTS = (Garbage(share=0.1, always=True), Status(status=400, share=0.1, always=True, message=SAID))
COUNT = 48


def config(url, **component):
    return {
        "components": {
            "answer": {"scorer": "contains"},
            "quality": {"judge": "clarity", "weight": 0.1} | component,
        },
        "judges": {
            "clarity": {
                "endpoints": [{"base_url": url, "model": "m"}],
                "verdict": {"integer": [1, 10]},
            }
        },
        "traffic": {"hedge": "off", "timeout_s": 60, "give_up_after": "off"},
        "cache": "off",
    }


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The folder of a run."""
    folder = tmp_path_factory.mktemp("recorded") / "run"
    rows = [
        Sample(
            f"Capital {at // 4}?",
            f"{'Paris' if at % 3 else 'Rome'} {at}.",
            "Paris",
            group=f"g{at // 4}",
            id=str(at),
            step=at // 16,
        )
        for at in range(COUNT)
    ]

    async def score(url):
        async with JobHub(config(url), record=folder) as hub:
            await hub.score_all(rows)

    with FakeJudge(Script(seed=3, faults=FAULTS)) as judge:
        asyncio.run(score(judge.url))
    return folder


@pytest.fixture
def run(recorded, tmp_path):
    """A copy of that folder in the working folder, with two configurations beside it."""
    shutil.copytree(recorded, tmp_path / "run")
    (tmp_path / "same.yaml").write_text(json.dumps(config(UNREACHABLE)))
    (tmp_path / "new.yaml").write_text(json.dumps(config(UNREACHABLE, gate="answer > 0")))
    return tmp_path / "run"


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def kinds(recorded):
    return [
        outcome.get("kind")
        for line in lines_of(recorded / "rewards.jsonl")
        for outcome in line["reward"]["components"].values()
    ]


def test_a_replay_shows_what_changes_and_asks_nobody(run, zerowait, recorded):
    done = zerowait("replay", "run", "-c", "new.yaml", "-q")
    assert done.returncode == 3, done.stderr  # some failed in the run
    assert f"run: {COUNT} samples scored by new.yaml" in done.stdout
    assert "requests sent to judges: 0" in done.stdout
    assert "by the recorded reply to the same request" in done.stdout
    assert "failed in the run, and do again" in done.stdout
    assert "changed: components.quality.gate: null, now answer > 0" in done.stdout
    assert "advantages:" in done.stdout
    assert "worst disagreements" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_same_configuration_gives_the_same_rewards(run, zerowait):
    done = zerowait("replay", "run", "-c", "same.yaml", "--json", "-q")
    found = json.loads(done.stdout)
    assert found["reward"]["same"] == found["reward"]["both"] > 0
    assert (found["reward"]["only_a"], found["reward"]["only_b"]) == (0, 0)
    assert (found["signs"]["flipped"], found["worst"], found["requests"]) == (0, [], 0)
    assert found["changes"] == []
    assert (found["missing"], found["not_replayed"], found["notes"]) == ({}, {}, [])
    assert set(found["answered"]["clarity"]) == {"same", "failed"}


def test_the_new_rewards_are_written_and_compared(run, zerowait, tmp_path):
    done = zerowait("replay", "run", "-c", "new.yaml", "--out", "new.jsonl", "-q")
    assert done.returncode == 3, done.stderr
    rows = lines_of(tmp_path / "new.jsonl")
    assert len(rows) == COUNT
    assert all(row["reward"] == 0 for row in rows if row["sample"]["response"].startswith("Rome"))
    compared = json.loads(zerowait("diff", "run", "new.jsonl", "--json").stdout)
    shown = json.loads(zerowait("replay", "run", "-c", "new.yaml", "--json", "-q").stdout)
    for part in ("reward", "signs", "components"):
        assert compared[part] == shown[part]
    assert (compared["rows"], compared["only_a"], compared["only_b"]) == (COUNT, 0, 0)


def test_rows_go_to_standard_output_alone(run, zerowait):
    done = zerowait("replay", "run", "-c", "new.yaml", "--out", "-", "-q")
    rows = [json.loads(line)["row"] for line in done.stdout.splitlines()]
    assert sorted(rows) == list(range(1, COUNT + 1))  # step by step
    assert "requests sent to judges: 0" in done.stderr


def test_a_diff_of_a_run_with_a_score_of_it_joins_all_rows(run, zerowait, tmp_path):
    rule = tmp_path / "rule.yaml"
    rule.write_text(json.dumps({"components": {"answer": {"scorer": "contains"}}}))
    zerowait("score", "run/rewards.jsonl", "-c", rule, "-o", "scored.jsonl", "-q")
    done = zerowait("diff", "run", "scored.jsonl")
    assert done.returncode == 0, done.stderr
    assert f"{COUNT} samples in both, joined by their ids" in done.stdout
    assert "only in A (run): 0; only in B (scored.jsonl): 0" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_diff_counts_what_one_side_lacks_and_tells_two_samples_apart(run, zerowait, tmp_path):
    rows = [
        {"prompt": "Capital 0?", "response": "Another.", "id": "0", "reward": 1.0},
        {"prompt": "Capital 0?", "response": "Paris 1.", "id": "1", "reward": 1.0},
        {"prompt": "?", "response": "?", "id": "new", "reward": None},
    ]
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = json.loads(zerowait("diff", "run", "b.jsonl", "--json").stdout)
    assert (found["rows"], found["only_a"], found["only_b"]) == (2, COUNT - 2, 1)
    assert found["other_response"] == 1
    assert "responses differ" in zerowait("diff", "run", "b.jsonl").stdout


def test_show_prints_what_abstained_with_what_the_judge_read_and_said(run, zerowait, recorded):
    failed = sum(kind is not None for kind in kinds(recorded))
    done = zerowait("show", "run", "--abstained", "--limit", "100")
    assert f"run: {failed} samples, {failed} shown" in done.stdout
    assert SAID in done.stdout  # the provider's words
    assert done.stdout.count("judge clarity for quality: asked") == failed
    assert done.stdout.count("replied") >= failed
    assert "You judge one response of an assistant" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b[" not in done.stdout


def test_show_as_json_has_every_judgement(run, zerowait):
    found = json.loads(zerowait("show", "run", "--kind", "too_long", "--json").stdout)
    assert found["matching"] == len(found["samples"]) > 0
    for sample in found["samples"]:
        assert sample["value"] is None
        [judgement] = sample["judgements"]
        assert judgement["outcome"]["kind"] == "too_long"
        assert SAID in judgement["outcome"]["detail"]
        assert sample["response"] in judgement["shown"][1][1]
        assert SAID in judgement["failed"][0]["reply"]


@pytest.mark.parametrize("order", ["worst", "best"])
def test_show_orders_by_reward_or_component(run, zerowait, order):
    def found(*words):
        return json.loads(zerowait("show", "run", "--json", *words).stdout)["samples"]

    every = [s for s in found("--limit", "100") if s["value"] is not None]
    rewards = sorted((s["value"] for s in every), reverse=order == "best")
    assert [s["value"] for s in found(f"--{order}", "3")] == rewards[:3]
    values = sorted((s["components"]["quality"]["value"] for s in every), reverse=order == "best")
    own = found(f"--{order}", "3", "--component", "quality")
    assert [s["components"]["quality"]["value"] for s in own] == values[:3]


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (("--step", "1"), 16),
        (("--group", "g0"), 4),
        (("--step", "1", "--group", "g0"), 0),
        (("--row", "7"), 1),
        (("--id", "7"), 1),
        (("--grep", "PARIS 1."), 1),
        (("--grep", "as the material shows", "--step", "0"), None),
        (("--judge", "clarity", "--group", "g1"), 4),
        (("--component", "answer"), COUNT),
        (("--split", "train"), COUNT),
    ],
)
def test_show_filters(run, zerowait, words, count):
    done = zerowait("show", "run", "--json", *words)
    assert done.returncode == 0, done.stderr
    matching = json.loads(done.stdout)["matching"]
    assert matching == count or (count is None and 0 < matching <= 16)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "run", "--judge", "clarty"), "did you mean 'clarity'"),
        (("show", "run", "--component", "qualty"), "did you mean 'quality'"),
        (("show", "run", "--kind", "time_out"), "did you mean 'timeout'"),
        (("show", "run", "--step", "9"), "the record has the steps 0 to 2"),
        (("show", "run", "--id", "none"), f"it has {COUNT} ids, such as "),
        (("show", "run", "--row", "999"), f"the record has the rows 1 to {COUNT}"),
        (("show", "run", "--worst", "1", "--best", "1"), "--best"),
        (("show", "rnu"), "there is no folder rnu; did you mean run?"),
        (("show", "."), "holds no record: it has no rewards.jsonl; did you mean run?"),
        (("show", "new.yaml"), "new.yaml is a file; name the folder of a run"),
        (("replay", "rnu", "-c", "new.yaml"), "did you mean run?"),
        (("replay", "run", "-c", "nev.yaml"), "did you mean 'new.yaml'"),
        (("replay", "run", "-c", "new.yaml", "--keep", "anwser"), "did you mean 'answer'"),
        (("replay", "run", "-c", "new.yaml", "--out", "run/rewards.jsonl"), "would be lost"),
        (("replay", "run", "-c", "new.yaml", "--out", "o.parquet"), "has to end in .jsonl"),
        (("replay", "run", "-c", "new.yaml", "--out", "-", "--json"), "--json"),
        (("diff", "run", "new.yaml"), "new.yaml"),
        (("diff", "run", "b.jsonl"), "b.jsonl does not exist"),
        (("diff", "run", "rnu"), "did you mean run?"),
    ],
)
def test_wrong_input_is_one_line_that_names_the_nearest_right_one(run, zerowait, words, said):
    done = zerowait(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_a_diff_of_two_runs_says_what_differs_between_their_configurations(run, zerowait, tmp_path):
    shutil.copytree(run, tmp_path / "other")
    kept = json.loads((run / "reward.json").read_text())
    kept["components"]["quality"]["weight"] = 0.5
    (tmp_path / "other" / "reward.json").write_text(json.dumps(kept))
    done = zerowait("diff", "run", "other")
    assert f"{COUNT} samples in both, joined by their ids" in done.stdout
    assert "changed: components.quality.weight: 0.1, now 0.5" in done.stdout


def test_rows_of_before_keep_the_configuration_that_scored_them(zerowait, tmp_path):
    """A run that goes on in its folder by another configuration had these rewards by the first."""
    rows = [{"prompt": f"Capital {n}?", "response": "Paris", "ground_truth": "Paris"} for n in "ab"]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for weight in (1.0, 1.0, 0.5):
        rule = {"scorer": "contains", "weight": weight}
        (tmp_path / f"{weight}.yaml").write_text(json.dumps({"components": {"x": rule}}))
        scored = ("score", "rows.jsonl", "-c", f"{weight}.yaml", "-q", "--record", "run")
        assert zerowait(*scored).returncode == 0
    assert len(lines_of(tmp_path / "run" / "configurations.jsonl")) == 1
    said = "rows 1 to 4 were scored by an earlier configuration of the run; since then changed: "
    change = "components.x.weight: 1.0, now 0.5"
    done = json.loads(zerowait("replay", "run", "-c", "0.5.yaml", "-q", "--json").stdout)
    assert (done["notes"], done["changes"]) == ([f"{said}{change}"], [])
    done = json.loads(zerowait("replay", "run", "-c", "1.0.yaml", "-q", "--json").stdout)
    assert done["changes"] == ["components.x.weight: 0.5, now 1.0"]
    same = (
        "rows 1 to 4 were scored by an earlier configuration of the run; "
        "it has the same components, judges and failure policies as "
    )
    assert done["notes"] == [f"{same}the given one"]
    # other limits, and another order of keys, decide about no reward
    (tmp_path / "limits.yaml").write_text(
        json.dumps(
            {
                "traffic": {"concurrency": 3},
                "components": {"x": {"weight": 1, "scorer": "contains"}},
            }
        )
    )
    done = json.loads(zerowait("replay", "run", "-c", "limits.yaml", "-q", "--json").stdout)
    assert done["notes"] == [f"{same}the given one"]
    done = zerowait("diff", "run", "run")
    assert f"note: run: {said}{change}" in done.stdout
    again = ("score", "rows.jsonl", "-c", "1.0.yaml", "-q", "--record", "run")
    assert zerowait(*again).returncode == 0
    assert f"note: run: {same}its last one" in zerowait("diff", "run", "run").stdout


def test_rows_whose_configuration_was_damaged_are_not_said_to_be_by_the_next_one(
    zerowait, tmp_path
):
    (tmp_path / "rows.jsonl").write_text('{"prompt": "Q?", "response": "x", "ground_truth": "x"}\n')
    for weight in (1.0, 0.5):
        rule = {"scorer": "contains", "weight": weight}
        (tmp_path / f"{weight}.yaml").write_text(json.dumps({"components": {"x": rule}}))
        done = zerowait("score", "rows.jsonl", "-c", f"{weight}.yaml", "-q", "--record", "run")
        assert done.returncode == 0
        if weight == 1.0:
            (tmp_path / "run" / "reward.json").write_bytes(b'{"components": {"x"')
    done = json.loads(zerowait("replay", "run", "-c", "0.5.yaml", "-q", "--json").stdout)
    unknown = "rows 1 to 1 were scored by a configuration of the run that cannot be read any more"
    assert (done["notes"], done["changes"]) == ([unknown], [])


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_rows_with_several_responses_are_compared_response_by_response(zerowait, tmp_path, ending):
    row = {"prompt": "Capital?", "responses": ["Paris", "Rome", "Lima"], "ground_truth": "Paris"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    for name, wanted in (("a", "contains"), ("b", "column")):
        rule = {"scorer": wanted} | ({"key": "none"} if wanted == "column" else {})
        (tmp_path / f"{name}.yaml").write_text(json.dumps({"components": {"x": rule}}))
        out = f"{name}.{ending}"
        zerowait("score", "rows.jsonl", "-c", f"{name}.yaml", "-o", out, "-q")
    done = zerowait("diff", f"a.{ending}", f"b.{ending}", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["rows"], found["reward"]["only_a"]) == (3, 3)


def test_files_with_nothing_in_common_are_an_error(run, zerowait, tmp_path):
    (tmp_path / "b.jsonl").write_text(json.dumps({"prompt": "?", "response": "?", "reward": 1}))
    done = zerowait("diff", "run", "b.jsonl")
    assert done.returncode == 2
    assert "have no sample in common" in done.stderr


def test_rows_without_a_reward_cannot_be_compared(run, zerowait, tmp_path):
    (tmp_path / "b.jsonl").write_text(json.dumps({"prompt": "?", "response": "?"}))
    assert "b.jsonl:1: has no 'reward'" in zerowait("diff", "run", "b.jsonl").stderr


def test_a_response_cannot_move_the_cursor(zerowait, tmp_path):
    async def score():
        rule = {"components": {"answer": {"scorer": "contains"}}}
        async with JobHub(rule, record=tmp_path / "run") as hub:
            await hub.score_all([Sample("Q?", "\x1b[2Jgone\u202e\r", "x")])

    asyncio.run(score())
    done = zerowait("show", "run")
    assert "\\x1b[2Jgone\\u202e\\r" in done.stdout
    assert "only the outcomes of components" in done.stdout


def test_every_kind_of_failure_can_be_asked_for(run, zerowait):
    for kind in FailureKind:
        assert zerowait("show", "run", "--kind", kind.value).returncode == 0


DAMAGES = {
    "a write that was torn": lambda line: line[: len(line) // 2] + b"\n",
    "blocks that a power cut left empty": lambda line: bytes(512) + line[512:],
    "text that is not UTF-8": lambda line: line.replace(b"Paris", b"P\xff\xfe", 1),
    "JSON of another kind": lambda _: b'{"sample": {"prompt": 3}}\n',
    "no JSON": lambda _: b"<html>\n",
}
READERS = (
    ("report", "run"),
    ("show", "run"),
    ("replay", "run", "-c", "same.yaml", "-q"),
    ("diff", "run", "whole"),
    ("export", "run"),
    ("timeline", "run"),
)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_line_is_left_out_and_named_once_by_every_command(
    zerowait, run, tmp_path, damage, caplog
):
    step = Phase(name="gen", began_at=100.0, ended_at=104.0)
    append_wait(run, WaitRecord(step=1, exposed_s=0.0, phases=[step]))
    shutil.copytree(run, tmp_path / "whole")
    first, second, *others = (run / "rewards.jsonl").read_bytes().splitlines(keepends=True)
    damaged = DAMAGES[damage](second)
    (run / "rewards.jsonl").write_bytes(b"".join([first, damaged, *others]) + others[0][:99])
    for command in READERS:
        done = zerowait(*command)
        assert done.returncode in {0, 3}, done.stderr
        lines = [*done.stderr.splitlines(), *caplog.messages]  # Python prints warnings there, too
        [told] = [line for line in lines if "damaged" in line]
        assert "run/rewards.jsonl:2: is damaged and left out: " in told
    assert f"{COUNT - 1} samples" in zerowait("show", "run").stdout
    shown = (run / "report.html").read_text()
    assert "run/rewards.jsonl:2: is damaged and left out" in shown


def test_a_damaged_judgement_costs_its_own_row_and_no_other(zerowait, run):
    file = run / "judgements.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if b'"request":{' in line)
    lines[at] = lines[at][:80] + b"\n"
    file.write_bytes(b"".join(lines))
    done = zerowait("replay", "run", "-c", "same.yaml", "-q", "--json")
    assert f"run/judgements.jsonl:{at + 1}: is damaged and left out" in done.stderr
    assert json.loads(done.stdout)["missing"] == {
        "clarity": {"no judgement of this sample was recorded": 1}
    }


def test_rewards_of_which_none_can_be_read_are_one_clear_line(zerowait, run):
    (run / "rewards.jsonl").write_bytes(b"\0" * 100 + b"\n" + b"{\n")
    for command in READERS:
        if command[0] != "timeline":
            done = zerowait(*command)
            assert done.returncode == 2
            [told] = done.stderr.splitlines()
            assert "rewards.jsonl:1: is damaged, and no other line of the file can be read" in told
