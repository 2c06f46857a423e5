"""The page of a run: what it holds, for records of every kind, and that it holds nothing else."""

import base64
import html
import json
import re
import sqlite3
from contextlib import closing
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis.strategies import floats, lists, none, text, tuples

from zerowait.engine import ALARMS
from zerowait.errors import DataError
from zerowait.observe import write_page
from zerowait.observe.axis import MAX_POINTS
from zerowait.observe.page.data import (
    ADVICE,
    MAX_DOTS,
    TEXT_CHARS,
    VIEWS,
    cut_in_the_middle,
    open_run,
    point,
    view_document,
)
from zerowait.observe.page.page import render
from zerowait.record import (
    EVENTS,
    JUDGEMENTS,
    AppendOnlyFile,
    EventLine,
    JudgementLine,
    Phase,
    Records,
    RewardRecord,
    StatsRecord,
    WaitRecord,
    append_wait,
    open_index,
)
from zerowait.types import Abstain, Reward, Sample, Score

LARGEST_PAGE = 1_500_000


def row(uid, value, *, step=1, prompt="2+2?", response="4", why="", **sample):
    outcome = Score(value, why) if value is not None else Abstain("timeout", why or "late")
    return RewardRecord(
        uid=uid,
        sample=Sample(prompt, response, step=step, **sample),
        reward=Reward(
            value, {"quality": outcome}, policy="" if value is not None else "neutral", why=why
        ),
        trained_on=value,
        submitted_at=1e9 + (step or 0),
        settled_at=1e9 + (step or 0) + 0.5,
    )


def recorded(folder, rows, *, stats=None):
    with closing(Records(folder)) as records:
        for each in rows:
            records.reward(each)
    append(folder, "stats.jsonl", *([] if stats is None else stats))
    return folder


def append(folder, name, *lines):
    with closing(AppendOnlyFile(folder / name)) as file:
        for line in lines:
            file.write(msgspec.json.encode(line))


def page_of(folder):
    written = BytesIO()
    write_page(folder, written)
    return written.getvalue().decode()


def documents_in(page):
    (inlined,) = re.findall(r'<script type="application/json" id="documents">(.*?)</script>', page)
    return json.loads(inlined)


def one_step(folder):
    rows = [
        row(f"u{n}", None if n == 3 else n / 4, group="g", response=f"so {n}") for n in range(4)
    ]
    return recorded(folder, rows)


def test_the_page_says_where_the_record_reached_its_limit(tmp_path):
    folder = one_step(tmp_path)
    why = "judgements are no longer recorded: the record's 10 bytes are reached"
    cut = EventLine(at=1.0, kind="record_cut", fields={"why": why})
    (folder / EVENTS).write_bytes(msgspec.json.encode(cut) + b"\n")
    with closing(open_index(folder)) as index:
        assert (
            f"Later rows lack something: {why}." in view_document(open_run(index), "overview").notes
        )


def test_the_page_needs_no_network_and_allows_only_its_own_scripts(tmp_path):
    page = page_of(one_step(tmp_path))
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    allowed = set(re.findall(r"'sha256-([^']+)'", html.unescape(policy)))
    scripts = re.findall(r"<script(?: type=\"module\")?>(.*?)</script>", page, re.DOTALL)
    hashes = {base64.b64encode(sha256(script.encode()).digest()).decode() for script in scripts}
    assert len(scripts) == 2
    assert hashes == allowed
    assert "default-src 'none'" in html.unescape(policy)


ATTACK = "</script><script>alert(1)</script><!--<img src=x onerror=alert(1)>&quot;\u2028"


def test_everything_of_a_record_is_text(tmp_path):
    folder = tmp_path / "<b>run</b>"
    attack = row(ATTACK, 0.5, prompt=ATTACK, response=ATTACK, why=ATTACK, group=ATTACK)
    recorded(folder, [attack])
    page = page_of(folder)
    assert "<img" not in page
    assert "<b>run" not in page
    assert page.count("</script>") == 3
    (panel,) = documents_in(page)["points"]
    assert panel["worst"][0]["prompt"] == ATTACK
    assert panel["worst"][0]["responses"][0]["text"] == ATTACK


def test_a_page_of_one_row_has_every_view(tmp_path):
    views = documents_in(page_of(recorded(tmp_path, [row("a", 0.5)])))["views"]
    assert set(views) == set(VIEWS)
    assert views["rewards"]["train"]["mean"] == [0.5]


def test_an_abstained_row_is_no_zero_anywhere(tmp_path):
    folder = recorded(tmp_path, [row("a", None), row("b", None)])
    views = documents_in(page_of(folder))["views"]
    assert views["overview"]["abstained"] == 2
    assert views["overview"]["last"] is None
    train = views["rewards"]["train"]
    assert (train["rows"], train["scored"], train["mean"]) == ([2], [0], [None])
    assert train["quantiles"] == [None]
    assert views["abstentions"]["kinds"] == {"quality/timeout": [2]}
    assert views["overview"]["failures"] == [{"kind": "timeout", "why": "late", "count": 2}]


def test_rows_without_steps_are_drawn_in_the_order_of_recording(tmp_path):
    rows = [row(f"u{n}", float(n >= 60), step=None) for n in range(120)]
    views = documents_in(page_of(recorded(tmp_path, rows)))["views"]
    assert views["overview"]["axis"] == {"kind": "rows", "width": 3, "split": "train"}
    assert views["rewards"]["train"]["mean"] == [0.0] * 20 + [1.0] * 20
    assert views["overview"]["notes"][0] == "Each point of a chart is 3 rows."


def test_a_record_of_another_split_alone_is_drawn_too(tmp_path):
    rows = [row(f"u{n}", 1.0, step=None, split="test") for n in range(3)]
    views = documents_in(page_of(recorded(tmp_path, rows)))["views"]
    assert views["rewards"]["train"]["scored"] == [1, 1, 1]
    assert views["rewards"]["held_out"] == {}


def test_held_out_scores_have_a_curve_of_their_own(tmp_path):
    rows = [row("a", 0.25), row("b", 0.75, split="validation", step=0), row("c", 1.0, step=2)]
    views = documents_in(page_of(recorded(tmp_path, rows)))["views"]
    assert views["rewards"]["train"]["points"] == [1, 2]
    assert views["rewards"]["held_out"]["validation"]["points"] == [0]


def test_steps_that_share_a_point_are_said_to(tmp_path):
    steps = 3 * MAX_POINTS
    rows = [row(f"u{step}", 1.0, step=step) for step in range(1, steps + 1)]
    views = documents_in(page_of(recorded(tmp_path, rows)))["views"]
    assert views["rewards"]["train"]["points"] == list(range(1, steps + 1, 3))
    assert set(views["rewards"]["train"]["rows"]) == {3}
    assert "Each point of a chart is 3 steps." in views["overview"]["notes"]


def test_a_step_without_variance_in_a_group_is_counted(tmp_path):
    rows = [row("a", 1.0, group="same"), row("b", 1.0, group="same")]
    rows += [row("c", 1.0, group="other"), row("d", 0.0, group="other")]
    views = documents_in(page_of(recorded(tmp_path, rows)))["views"]
    assert (views["groups"]["groups"], views["groups"]["equal"]) == ([2], [1])


def judgement(uid, *, at, reply, **fields):
    given = {
        "at": at,
        "judge": "grader",
        "component": "quality",
        "uids": [uid],
        "key": uid,
        "source": "asked",
        "outcome": Score(0.5, "fair"),
        "model": "m",
        "reply": msgspec.Raw(msgspec.json.encode(reply)),
        "replied": True,
    }
    return JudgementLine(**given | fields)


def test_the_worst_group_is_shown_with_the_words_of_the_judge(tmp_path):
    rows = [
        row(f"{group}-{n}", value, group=group, prompt=f"prompt {group}")
        for group, value in (("good", 1.0), ("bad", 0.0))
        for n in range(2)
    ]
    recorded(tmp_path, rows)
    append(tmp_path, JUDGEMENTS, judgement("bad-1", at=1e9 + 1, reply="It is wrong: 1"))
    (panel,) = documents_in(page_of(tmp_path))["points"]
    assert panel["worst"][0]["prompt"] == "prompt bad"
    worst = panel["worst"][0]["responses"][-1]
    assert [each["reply"] for each in worst["judgements"]] == ["It is wrong: 1"]


def test_reasons_that_differ_in_numbers_alone_are_counted_as_one(tmp_path):
    rows = [row(f"b{n}", None, why=f"$0.03{n} are spent (after {n} attempts)") for n in range(2, 9)]
    views = documents_in(page_of(recorded(tmp_path, rows)))["views"]
    (failure,) = views["overview"]["failures"]
    assert (failure["why"], failure["count"]) == ("$… are spent", 7)


def test_a_call_that_several_shared_is_paid_once_in_records_of_earlier_versions_too(tmp_path):
    recorded(tmp_path, [row("a", 1.0), row("b", 1.0)])
    billed = {"cost_usd": 0.5, "prompt_tokens": 7}
    lines = [
        judgement(uid, at=1e9, reply="1", source=source, **billed)
        for uid, source in (("a", "asked"), ("b", "joined"))
    ]
    append(tmp_path, JUDGEMENTS, *lines)
    (judge,) = documents_in(page_of(tmp_path))["views"]["judges"]["judges"]
    assert (judge["spent_usd"], judge["prompt_tokens"], judge["joined"]) == (0.5, 7, 1)


def test_events_and_counters_of_judges_are_shown_over_time(tmp_path):
    stats = [
        StatsRecord(at=10.0, split="train", step=1, hub="a", stats={"asked": 8, "cached": 0, "limit": 8, "spent_usd": 1.0}),
        StatsRecord(at=20.0, split="train", step=2, hub="b", stats={"asked": 0, "cached": 8, "limit": 4, "spent_usd": 0.5}),
    ]  # fmt: skip
    recorded(tmp_path, [row("a", 1.0)], stats=stats)
    append(
        tmp_path,
        EVENTS,
        EventLine(at=15.0, kind="endpoint_ejected", fields={"endpoint": "e", "why": "down"}),
    )
    views = documents_in(page_of(tmp_path))["views"]
    assert views["judges"]["limit"] == [8, 4]
    assert views["judges"]["hit_rate"] == [0.0, 0.5]
    assert views["judges"]["spent_usd"] == [1.0, 1.5]
    assert [each["kind"] for each in views["judges"]["events"]] == ["endpoint_ejected"]


def test_the_cost_of_processes_that_record_at_once_is_that_of_each_once(tmp_path):
    stats = [
        StatsRecord(at=at, split="train", step=1, hub=hub, stats={"asked": asked, "spent_usd": usd})
        for at, hub, asked, usd in (
            (0.0, "a", 1, 0.1), (100.0, "b", 1, 0.1), (200.0, "a", 2, 0.2), (300.0, "b", 2, 0.2),
            (800.0, "a", 3, 0.3), (805.0, "b", 3, 0.3), (1600.0, "b", 3, 0.3),
        )
    ]  # fmt: skip
    recorded(tmp_path, [row("a", 1.0)], stats=stats)
    shown = documents_in(page_of(tmp_path))["views"]
    spent = [round(usd, 6) for usd in shown["judges"]["spent_usd"]]
    assert spent == [0.1, 0.2, 0.3, 0.4, 0.6, 0.6]  # 800 and 805 are one point
    assert round(shown["overview"]["counters"]["spent_usd"], 6) == 0.6


def test_where_the_counters_are_lost_the_page_counts_the_judgements(tmp_path):
    recorded(tmp_path, [row("a", 1.0), row("b", 0.0)])
    append(tmp_path, JUDGEMENTS, *(judgement(uid, at=1e9, reply="1") for uid in "ab"))
    assert documents_in(page_of(tmp_path))["views"]["overview"]["counters"]["asked"] == 2


def test_the_times_of_a_step_are_in_its_panel(tmp_path):
    recorded(tmp_path, [row("a", 1.0, group="g")])
    phases = [
        Phase(name="gen", began_at=1e9, ended_at=1e9 + 2),
        Phase(name="adv", began_at=1e9 + 2, ended_at=1e9 + 4),
        Phase(name="wait", began_at=1e9 + 2, ended_at=1e9 + 3),
    ]
    append_wait(tmp_path, WaitRecord(step=1, exposed_s=1.0, phases=phases))
    (panel,) = documents_in(page_of(tmp_path))["points"]
    assert panel["timeline"]["waited_s"] == 1.0
    assert panel["timeline"]["phases"][0][0] == "rollout"
    assert panel["timeline"]["groups"] == [[1.0, 1.5]]


def test_each_alarm_says_what_to_do():
    assert ADVICE.keys() == ALARMS.keys()


def test_a_run_without_that_step_or_view_says_so(tmp_path):
    with closing(open_index(one_step(tmp_path))) as index:
        run = open_run(index)
        with pytest.raises(DataError, match="no step 7"):
            point(run, 7)
        with pytest.raises(DataError, match="the views are overview, rewards"):
            view_document(run, "reward")


@given(words=text(max_size=3 * TEXT_CHARS))
def test_a_shortened_text_keeps_both_ends(words):
    short = cut_in_the_middle(words)
    assert len(short) <= TEXT_CHARS + 40
    assert short[:10] == words[:10]
    assert short[len(short) - 10 :] == words[len(words) - 10 :] or len(words) < 10


values = lists(
    tuples(none() | floats(-100, 100), text(min_size=1, max_size=3)), min_size=1, max_size=60
)


@given(rows=values)
def test_quantiles_lie_within_the_values_and_rise(rows):
    """Against the values themselves, in an index of the record's own tables in memory."""
    with closing(index_of((1, value, group) for value, group in rows)) as index:
        band = view_document(open_run(index), "rewards").train
    known = [value for value, _ in rows if value is not None]
    assert band.rows == [len(rows)]
    assert band.scored == [len(known)]
    (quantiles,) = band.quantiles
    if not known:
        assert quantiles is None
        return
    assert quantiles == sorted(quantiles)
    assert set(quantiles) <= set(known)
    assert band.mean[0] == pytest.approx(sum(known) / len(known), abs=1e-9)


def index_of(rows):
    """An index of rewards `(step, value, group)` that were not written as lines first."""
    from zerowait.record.index import _INDEXES, _TABLES, RecordIndex, _sum_up

    index = sqlite3.connect(":memory:", factory=RecordIndex)
    index.folder = Path("/nowhere")  # which has no configuration
    index.row_factory = sqlite3.Row
    index.executescript(_TABLES + _INDEXES)
    index.executemany(
        "INSERT INTO rewards (row, uid, current, split, step, value, prompt_group, policy, why, "
        "response_chars, prompt, response) VALUES (?, ?, 1, 'train', ?, ?, ?, '', '', 9, ?, ?)",
        (
            (number, f"u{number}", step, value, group, "why? " * 60, "so " * 100)
            for number, (step, value, group) in enumerate(rows, start=1)
        ),
    )
    steps = index.execute("SELECT DISTINCT split, step FROM rewards").fetchall()
    _sum_up(index, [tuple(each) for each in steps])
    return index


@pytest.mark.wire
@pytest.mark.timeout(600)
def test_a_page_of_100_000_rows_stays_small_and_says_what_it_left_out():
    rows = ((n // 100, (n * 7919 % 1000) / 1000, str(n // 10)) for n in range(100_000))
    with closing(index_of(rows)) as index:
        page = render(open_run(index, "large"), 0.0)
    assert len(page) < LARGEST_PAGE
    found = documents_in(page)
    assert found["views"]["overview"]["rows"] == 100_000
    assert sum(found["views"]["rewards"]["train"]["rows"]) == 100_000
    assert "left out to keep this page small" in found["note"]
    assert len(found["views"]["length"]["relations"][0]["dots"]) <= MAX_DOTS


def test_what_to_do_about_an_alarm_is_in_the_reference_too():
    reference = (Path(__file__).parents[2] / "docs/reference/alarms.md").read_text()
    for kind, advice in ADVICE.items():
        assert f"| `{kind}` | {advice} |" in reference


def test_the_pages_that_a_cause_names_are_there():
    import zerowait.observe.causes as module

    named = set(re.findall(r"docs/[\w/-]+\.md", Path(module.__file__).read_text()))
    assert named
    for name in named:
        assert (Path(__file__).parents[2] / name).is_file()
