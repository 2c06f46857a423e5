"""What a run leaves in its record: every judgement, for whom it was, what was said, what failed."""

import asyncio
import json
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from contextlib import closing

import msgspec
import pytest

import zerowait
from zerowait.config import Recording
from zerowait.engine import Engine
from zerowait.events import FailedAttempt, JudgementSettled, LimitChanged
from zerowait.hub import JobHub
from zerowait.record import JUDGEMENTS, RunRecord, open_index, read_rewards
from zerowait.record.judgements import JudgementLine, encoded_body
from zerowait.record.lines import RotatingFile, encoded_lines, parts_of
from zerowait.testing import FakeJudge, Garbage, Length, Script, Status
from zerowait.types import Abstain, Sample, Score

KEY = "sk-planted-0123456789abcdef"
PATIENT = {"timeout_s": 60, "deadline_s": 120, "hedge": "off"}


def config(judge, tmp_path, *, verdict=None, traffic=None, record=None, **more):
    tree = {
        "components": {"quality": {"judge": "quality"}},
        "judges": {
            "quality": {
                "endpoints": [{"base_url": judge.url, "model": "m"}],
                "verdict": verdict or {"integer": [1, 10]},
                **more,
            }
        },
        "traffic": {**PATIENT, **(traffic or {})},
        "cache": {"path": str(tmp_path / "cache.db")},
    }
    return tree | ({"record": record} if record else {})


def scored(tree, folder, samples):
    with zerowait.open(tree, record=folder) as rewards:
        return rewards.score(samples)


def table(index, query, *given):
    return [tuple(each) for each in index.execute(query, given)]


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


def test_a_line_begins_with_the_fields_of_its_event_in_the_same_order():
    # the writer copies them by their position
    shared = JudgementSettled.__struct_fields__[
        : JudgementSettled.__struct_fields__.index("request")
    ]
    assert JudgementLine.__struct_fields__[1 : 1 + len(shared)] == shared
    assert JudgementLine.__struct_fields__[1 + len(shared) :] == (
        *("request", "reply", "replied", "failed"),
    )


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"oh no", b"{", b"{}x", b'{"a": 1}', b' {"a": 1}', b'{"a": 1} ', b'{"a":\n1}'),
        *(b'{"a":\r1}', b'{"a": "\xc3\xa9"}', b'{"a": "\xff"}', b'{"a": "\n"}', b"[1]", b"1"),
        b"{" * 5000,
    ],
)
def test_any_body_is_one_line_of_json_that_gives_the_body_back(body):
    written = bytes(encoded_body(body))
    assert not {b"\n", b"\r"} & {bytes([each]) for each in written}
    read = json.loads(written)
    text = body.decode("utf-8", "replace")
    assert read == (json.loads(text) if written.startswith(b"{") else text)


def test_a_judgement_names_its_sample_and_has_request_and_raw_reply(tmp_path, run):
    with FakeJudge() as judge:
        [reward] = scored(config(judge, tmp_path), run, [Sample("2+2?", "It is 4.", step=7)])
        url = judge.url
    with closing(open_index(run)) as index:
        [found] = index.execute(
            "SELECT j.*, q.body AS asked, a.body AS answered, r.value AS reward FROM judgements j"
            " JOIN judgement_rows USING (judgement) JOIN rewards r USING (uid)"
            " JOIN texts q ON q.text = j.request JOIN texts a ON a.text = j.reply"
        )
    assert found["value"] == found["reward"] == reward.value
    assert "It is 4." in json.loads(found["asked"])["messages"][-1]["content"]
    assert json.loads(found["answered"])["choices"][0]["finish_reason"] == "stop"
    assert (found["source"], found["outcome"], found["kind"]) == ("asked", "score", None)
    assert (found["question"], found["vote"], found["attempts"], found["hedges"]) == (0, 0, 1, 0)
    assert (found["status"], found["endpoint"]) == (200, f"{url}/chat/completions")
    assert found["prompt_tokens"] > 0
    assert found["form"] == "integer"


def test_a_cached_and_a_joined_judgement_name_their_own_samples(tmp_path, run):
    same = [Sample("2+2?", "4", id=name) for name in "ab"]
    with FakeJudge() as judge, zerowait.open(config(judge, tmp_path), record=run) as rewards:
        rewards.score(same)
        rewards.score(same[:1])
    assert judge.seen.requests == 1
    with closing(open_index(run)) as index:
        found = table(
            index,
            "SELECT source, id, request, reply FROM judgements JOIN judgement_rows USING (judgement)"
            " JOIN rewards USING (uid) ORDER BY source",
        )
        texts = table(index, "SELECT count(*) FROM texts")
    assert sorted(each[0] for each in found) == ["asked", "cache", "joined"]
    assert Counter(each[1] for each in found) == {"a": 2, "b": 1}
    assert len({each[2:] for each in found}) == 1
    assert texts == [(2,)]


def test_a_comparison_names_all_members_of_its_group(tmp_path, run):
    group = [Sample("2+2?", answer, group="g", id=answer) for answer in ("4", "four", "5")]
    with FakeJudge() as judge:
        scored(config(judge, tmp_path, verdict={"rank": "group"}), run, group)
    with closing(open_index(run)) as index:
        found = table(
            index,
            "SELECT question, id FROM judgement_rows JOIN rewards USING (uid) JOIN judgements USING (judgement)",
        )
    assert sorted(found) == [(None, "4"), (None, "5"), (None, "four")]


def test_votes_panels_and_turns_name_the_sample_that_was_given(tmp_path, run):
    turns = [{"role": "assistant", "content": "Hm."}, {"role": "user", "content": "Well?"}]
    episode = Sample("2+2?", [*turns, {"role": "assistant", "content": "4"}], id="episode")
    with FakeJudge() as judge:
        tree = config(judge, tmp_path, temperature=0.5, votes={"n": 2})
        tree["judges"]["other"] = {**tree["judges"]["quality"], "max_tokens": 512}
        tree["judges"]["both"] = {"panel": {"members": ["quality", "other"], "by": "mean"}}
        tree["components"] = {"quality": {"judge": "both", "per": "turn"}}
        scored(tree, run, [episode])
    with closing(open_index(run)) as index:
        found = table(
            index,
            "SELECT judge, vote, count(*) FROM judgements JOIN judgement_rows USING (judgement)"
            " JOIN rewards USING (uid) WHERE id = 'episode' GROUP BY judge, vote ORDER BY 1, 2",
        )
    assert found == [("other", 0, 2), ("other", 1, 2), ("quality", 0, 2), ("quality", 1, 2)]


def test_what_failed_is_kept_with_the_words_of_the_provider(tmp_path, run):
    script = Script(faults=[Status(status=500, message="the GPU fell off the bus")])
    with FakeJudge(script) as judge:
        [reward] = scored(
            config(judge, tmp_path, traffic={"attempts": 2, "deadline_s": 60}),
            run,
            [Sample("q", "a")],
        )
    assert reward.abstained
    with closing(open_index(run)) as index:
        [found] = index.execute("SELECT * FROM judgements")
        failed = table(
            index,
            "SELECT number, status, why, body FROM attempts JOIN texts ON text = reply ORDER BY number",
        )
    assert (found["outcome"], found["kind"], found["value"]) == ("abstain", "http_error", None)
    assert (found["attempts"], found["status"], found["reply"]) == (2, 500, None)
    assert found["endpoint"] == f"{judge_url(found)}/chat/completions"
    assert [each[:2] for each in failed] == [(1, 500), (2, 500)]
    for _, _, why, body in failed:
        assert "the GPU fell off the bus" in why
        assert json.loads(body)["error"]["message"] == "the GPU fell off the bus"


def judge_url(found):
    return found["endpoint"].removesuffix("/chat/completions")


def test_an_attempt_that_failed_before_an_answer_is_kept_too(tmp_path, run):
    script = Script(faults=[Status(status=503, first=1, message="warming up")])
    with FakeJudge(script) as judge:
        [reward] = scored(config(judge, tmp_path), run, [Sample("q", "a")])
    assert reward.value is not None
    with closing(open_index(run)) as index:
        assert table(index, "SELECT outcome, attempts, status FROM judgements") == [
            ("score", 2, 200)
        ]
        assert table(index, "SELECT number, status FROM attempts") == [(1, 503)]


def test_a_reply_without_a_verdict_is_kept_as_it_came(tmp_path, run):
    with FakeJudge(Script(faults=[Garbage(always=True)])) as judge:
        scored(config(judge, tmp_path), run, [Sample("q", "a")])
    with closing(open_index(run)) as index:
        [(kind, body)] = table(
            index, "SELECT kind, body FROM judgements JOIN texts ON text = reply"
        )
    assert kind == "unparseable"
    assert "choices" in json.loads(body)


def test_a_reply_that_was_cut_is_kept_beside_the_longer_one(tmp_path, run):
    with FakeJudge(Script(faults=[Length(cured_at=2048)])) as judge:
        [reward] = scored(config(judge, tmp_path), run, [Sample("q", "a")])
    assert reward.value is not None
    with closing(open_index(run)) as index:
        [(status, body)] = table(
            index, "SELECT status, body FROM attempts JOIN texts ON text = reply"
        )
    assert (status, json.loads(body)["choices"][0]["finish_reason"]) == (200, "length")


def test_a_key_that_the_server_quotes_is_in_no_file_of_the_record(tmp_path, run, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    script = Script(faults=[Status(status=401, message=f"bad key {KEY}", share=0.5)], seed=3)
    with FakeJudge(script, api_key=KEY) as judge:
        tree = config(judge, tmp_path, traffic={"give_up_after": "off"})
        tree["judges"]["quality"]["endpoints"][0]["api_key_env"] = "JUDGE_KEY"
        scored(tree, run, [Sample("q", f"a{n}") for n in range(8)])
    open_index(run).close()
    files = list(run.iterdir())
    assert {"rewards.jsonl", "judgements.jsonl", "index.db"} <= {file.name for file in files}
    assert [file.name for file in files if KEY[:12].encode() in file.read_bytes()] == []
    with closing(open_index(run)) as index:
        assert table(index, "SELECT count(*) FROM attempts WHERE why LIKE '%bad key ***'") != [(0,)]


def test_nothing_is_kept_for_an_engine_without_a_record(tmp_path):
    events = []
    script = Script(faults=[Status(status=503, first=1)])
    with FakeJudge(script) as judge:
        tree = config(judge, tmp_path)
        with zerowait.open(tree, listener=events.append) as rewards:
            rewards.score([Sample("q", "a")])
    [settled] = [each for each in events if isinstance(each, JudgementSettled)]
    assert (settled.failed, settled.uids, settled.attempts, settled.status) == ((), (), 2, 200)
    assert "messages" not in repr(settled)


@pytest.mark.parametrize("texts", ["hash", "drop"])
def test_texts_that_are_not_to_be_kept_are_in_no_file(tmp_path, run, texts):
    secret = "xylophone"
    samples = [
        Sample(f"Is {secret} a word?", f"{secret} is.", [secret], extra={"hint": secret}),
        Sample([{"role": "user", "content": secret}], [{"role": "assistant", "content": secret}]),
    ]
    said = [f"no verdict: {secret}", f'{{"reason": "{secret}", "score": 7}}']
    with FakeJudge(answer=lambda body: said["is." in json.dumps(body)]) as judge:
        tree = config(judge, tmp_path, record={"texts": texts})
        tree["components"]["answer"] = {"scorer": "qa_em"}
        scored(tree, run, samples)
    index = open_index(run)
    with closing(index):
        rows = table(
            index, "SELECT prompt, response, response_chars, length(prompt_hash) FROM rewards"
        )
        kept = 64 if texts == "hash" else None
        assert set(rows) == {(None, None, 13, kept), (None, None, 9, kept)}
        assert table(index, "SELECT count(body), count(*) > 0 FROM texts") == [(0, texts == "hash")]
        assert table(index, "SELECT count(*) FROM judgements WHERE outcome = 'score'") == [(1,)]
    assert len(list(read_rewards(run))) == 2
    for file in run.iterdir():
        assert secret.encode() not in file.read_bytes(), file


def test_judgements_can_be_left_out(tmp_path, run):
    with FakeJudge() as judge:
        scored(config(judge, tmp_path, record={"judgements": "off"}), run, [Sample("q", "a")])
    with closing(open_index(run)) as index:
        assert table(index, "SELECT count(*) FROM judgements") == [(0,)]
        assert table(index, "SELECT count(*) FROM rewards") == [(1,)]


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"text": "keep"}, "record has no key 'text'; did you mean 'texts'?"),
        ({"texts": "none"}, "record.texts must be"),
        ({"max_bytes": 10}, "record.max_bytes must be at least 1048576"),
        ("runs/1", "--record DIR or record="),
    ],
)
def test_wrong_settings_are_refused(record, says):
    with pytest.raises(zerowait.ConfigError) as refused:
        Engine({"components": {"a": {"scorer": "qa_em"}}, "record": record})
    assert says in str(refused.value).replace(": record.", " record.")


def settled(number, *, size=1000, why="", **fields):
    return JudgementSettled(
        judge="q",
        key=f"k{number}",
        outcome=Score(1.0, why),
        source="asked",
        uids=(f"u-{number}",),
        request=b'{"m":"%d %b"}' % (number, b"x" * size),
        reply=b'{"r":%d}' % number,
        **fields,
    )


def test_at_the_limit_of_its_size_texts_go_first_then_judgements_and_it_says_so(run, caplog):
    async def scenario():
        record = RunRecord(run, Recording(max_bytes=2**20))
        record.open()
        for number in range(120):
            record(settled(number, size=10_000))
        record(LimitChanged(endpoint="e", before=1, after=2, why="w"))
        record.close()
        again = RunRecord(run, Recording(max_bytes=2**20))
        again.open()
        for number in range(2000):
            again(settled(100 + number, size=10))
        again.close()

    asyncio.run(scenario())
    with closing(open_index(run)) as index:
        bodies = table(index, "SELECT count(*), count(request) FROM judgements")
        kinds = [kind for (kind,) in table(index, "SELECT kind FROM events")]
    assert bodies[0][0] > 120
    assert 90 <= bodies[0][1] < 100
    assert kinds.count("record_cut") >= 2
    assert "prompts and replies are no longer recorded" in caplog.text
    assert "judgements are no longer recorded" in caplog.text
    assert sum(part.stat().st_size for part in run.glob("*.jsonl")) < 1.2 * 2**20


def test_a_large_file_goes_on_in_numbered_parts(tmp_path):
    one, other = (RotatingFile(tmp_path, JUDGEMENTS, part_bytes=100) for _ in range(2))
    for number in range(6):
        (one if number % 2 else other).append(b'{"n": %d, "x": "%b"}\n' % (number, b"x" * 40))
    one.close()
    other.close()
    parts = parts_of(tmp_path, JUDGEMENTS)
    assert [part.name for part in parts[:2]] == [JUDGEMENTS, "judgements.00002.jsonl"]
    numbers = [
        msgspec.json.decode(line)["n"] for part in parts for line in part.read_bytes().splitlines()
    ]
    assert sorted(numbers) == list(range(6))


def recorded(run, *events):
    async def scenario():
        record = RunRecord(run, Recording())
        record.open()
        for event in events:
            record(event)
        record.close()

    asyncio.run(scenario())


def test_lines_of_one_key_stay_in_order_where_the_thread_makes_some_of_them(run):
    """A line after a failed attempt is made by the thread; a later one has no request of its own."""
    words = {"endpoint": "http://e", "status": 503, "latency_s": 0.1, "why": "busy"}
    attempt = FailedAttempt(number=1, at=1.0, reply=b"wait", **words)
    first = [settled(number, failed=(attempt,) if number % 2 else ()) for number in range(200)]
    again = [msgspec.structs.replace(each, source="cache", failed=()) for each in first]
    recorded(run, *(each for both in zip(first, again, strict=True) for each in both))
    with closing(open_index(run)) as index:
        found = table(
            index,
            "SELECT key, source, q.body, a.body FROM judgements JOIN texts q ON q.text = request"
            " JOIN texts a ON a.text = reply ORDER BY judgement",
        )
        assert table(index, "SELECT count(*) FROM attempts") == [(100,)]
        assert table(index, "SELECT count(*) FROM texts") == [(401,)]
    assert found == [
        (each.key, source, each.request.decode(), each.reply.decode())
        for each in first
        for source in ("asked", "cache")
    ]


class Unsayable:
    def __str__(self):
        raise ValueError("it has no words")


def test_a_judgement_that_no_line_can_hold_costs_no_other_one(run, caplog):
    unsaid = Score(1.0, detail={"what": Unsayable()})
    broken = msgspec.structs.replace(settled(2), outcome=unsaid)
    recorded(run, settled(1), broken, settled(3, why="\ud800"), settled(4))
    with closing(open_index(run)) as index:
        assert table(index, "SELECT key, why FROM judgements") == [
            ("k1", ""),
            ("k3", "\ufffd"),
            ("k4", ""),
        ]
        [(lost,)] = table(index, "SELECT fields FROM events WHERE kind = 'record_lost'")
    assert json.loads(lost)["lines"] == 1
    assert caplog.text.count("an event could not be recorded") == 1


@pytest.mark.parametrize("text", ["", "a", "x" * 300_000, "half \ud800 of a pair"])
def test_records_are_lines_of_json_whatever_stands_in_one_of_them(text):
    class Row(msgspec.Struct):
        number: int
        text: str

    lines = encoded_lines([Row(1, "before"), Row(2, text), Row(3, "after")])
    assert [msgspec.json.decode(line) for line in lines.splitlines()] == [
        {"number": 1, "text": "before"},
        {"number": 2, "text": text.replace("\ud800", "\ufffd")},
        {"number": 3, "text": "after"},
    ]
    assert lines.endswith(b"}\n")
    assert encoded_lines([]) == b""


KILLED = """
    import os, sys
    import zerowait
    from zerowait.testing import FakeJudge

    folder, cache = sys.argv[1:]
    with FakeJudge() as judge:
        endpoint = {"base_url": judge.url, "model": "m"}
        config = {
            "components": {"quality": {"judge": "quality"}},
            "judges": {"quality": {"endpoints": [endpoint], "verdict": {"integer": [1, 10]}}},
            "cache": {"path": cache},
        }
        rewards = zerowait.open(config, record=folder)
        for number in range(20):
            rewards.score([zerowait.Sample("q", f"a{number}")])
        print("scored", flush=True)
        sys.stdin.readline()
"""


def test_a_killed_process_loses_no_reward_and_the_index_reads_what_is_there(tmp_path, run):
    program = textwrap.dedent(KILLED)
    command = [sys.executable, "-c", program, str(run), str(tmp_path / "cache.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"scored\n"
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert len(list(read_rewards(run))) == 20
    with closing(open_index(run)) as index:
        assert table(index, "SELECT count(*) FROM rewards") == [(20,)]


def test_a_full_disk_costs_judgements_and_is_told_once(tmp_path, run, caplog):
    """Here no byte fits; once there is room, what was lost is written down."""

    class Full:
        full = True

        def __init__(self, file):
            self.file = file

        def append(self, lines):
            if Full.full:
                raise OSError(28, "No space left on device", "judgements.jsonl")
            return self.file.append(lines)

        def close(self):
            self.file.close()

    async def scenario():
        record = RunRecord(run, Recording())
        record.open()
        writer = record._events
        writer._judgements = Full(writer._judgements)
        for number in range(100):
            record(settled(number))
        while writer._queue or not writer._lost:  # noqa: ASYNC110 - a thread works
            await asyncio.sleep(0)
        Full.full = False
        record(settled(1000))
        record.close()

    asyncio.run(scenario())
    assert caplog.text.count("judgements are not recorded until there is room") == 1
    with closing(open_index(run)) as index:
        [(lost,)] = table(index, "SELECT fields FROM events WHERE kind = 'record_lost'")
        recorded = table(index, "SELECT count(*) FROM judgements")[0][0]
    assert json.loads(lost)["lines"] + recorded == 101


def test_a_hub_records_judgements_with_tickets_streams_and_groups(tmp_path, run):
    async def scenario(tree):
        async with JobHub(tree, record=run) as hub:
            await hub.score(Sample("q", "by ticket", id="t"), ticket="train/t")
            await hub.reward(Sample("q", "streamed", id="s"))
            await hub.score_all([Sample("q", "in a batch", id="b")])
            async for _ in hub.score_each([Sample("q", "one of each", id="e")]):
                pass

    with FakeJudge() as judge:
        asyncio.run(scenario(config(judge, tmp_path)))
    with closing(open_index(run)) as index:
        found = table(
            index,
            "SELECT id, ticket, count(judgement) FROM rewards LEFT JOIN judgement_rows USING (uid)"
            " GROUP BY row ORDER BY row",
        )
    assert found == [("t", "train/t", 1), ("s", None, 1), ("b", None, 1), ("e", None, 1)]


def test_events_of_the_engine_are_lines_with_their_step(run):
    async def scenario():
        record = RunRecord(run, Recording())
        record.open()
        record(LimitChanged(endpoint="http://e", before=8, after=4, why="429"))
        record.close()

    asyncio.run(scenario())
    with closing(open_index(run)) as index:
        assert table(index, "SELECT kind, endpoint, why, fields FROM events") == [
            (
                "limit_changed",
                "http://e",
                "429",
                '{"endpoint":"http://e","before":8,"after":4,"why":"429"}',
            )
        ]


def test_an_abstention_without_a_request_is_a_judgement_that_was_refused(tmp_path, run):
    with FakeJudge() as judge:
        tree = config(judge, tmp_path, traffic={"budget_usd": 0, "budget_name": None})
        tree["prices"] = {"m": {"input": 1.0, "output": 1.0}}
        [reward] = scored(tree, run, [Sample("q", "a")])
    assert isinstance(reward.components["quality"], Abstain)
    with closing(open_index(run)) as index:
        [found] = table(index, "SELECT source, kind, endpoint, status FROM judgements")
    assert found == ("refused", "budget", None, None)
