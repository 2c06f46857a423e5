import zerowait
from zerowait.engine import Stats
from zerowait.engine.progress import Progress, closing_text, failures_text
from zerowait.testing import FakeJudge, Script, Status


def test_slow_work_is_told_in_seconds_for_each_and_no_two_lines_are_the_same(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    progress = Progress(12, shown=False, what="training tiny")
    lines = []
    for now[0], done in [(10.0, 0), (20.0, 0), (40.0, 1), (50.0, 1)]:
        progress.advance(done - progress._done)
        lines.append(progress.line())
    assert lines == [
        "training tiny 0/12 (0 %), none done yet, 10 s so far, left: unknown",
        "training tiny 0/12 (0 %), none done yet, 20 s so far, left: unknown",
        "training tiny 1/12 (8 %), 40.0 s each, 40 s so far, left: 440 s",
        "training tiny 1/12 (8 %), 50.0 s each, 50 s so far, left: 550 s",
    ]


def test_what_was_done_before_says_nothing_about_the_rate(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    resumed = Progress(12, shown=False, what="training tiny", done=8)
    now[0] = 10.0
    before = "training tiny 8/12 (67 %), none done yet, 10 s so far, left: unknown"
    assert resumed.line() == before
    resumed.advance()
    now[0] = 20.0
    assert resumed.line() == "training tiny 9/12 (75 %), 20.0 s each, 20 s so far, left: 60 s"


def test_a_line_shows_the_traffic_and_what_failed(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    stats = [Stats(requests=9, in_flight=31, limit=64, abstentions={"timeout": 2, "refused": 3})]
    progress = Progress(100, shown=False, stats=lambda: stats[0])
    progress.advance(20)
    now[0] = 10.0
    assert progress.line() == (
        "scoring 20/100 (20 %), 2.0/s, 10 s so far, left: 40 s, 31 in flight of at most 64, "
        "abstained: refused 3, timeout 2"
    )
    stats[0] = Stats(requests=9, in_flight=7, limit=64)
    assert "31 in flight" in progress.line()  # at most one snapshot a second
    now[0] = 11.5
    assert "7 in flight of at most 64" in progress.line()


def test_rules_have_no_traffic_to_show():
    assert Progress(1, shown=False, stats=Stats).traffic() == ""


def test_the_last_line_names_the_commonest_failure_of_this_batch_in_the_providers_words(capsys):
    script = Script(faults=[Status(status=404, message="The model `m` does not exist")])
    with FakeJudge(script) as judge:
        config = {
            "components": {"q": {"judge": "q"}},
            "judges": {
                "q": {
                    "endpoints": [{"base_url": judge.url, "model": "m"}],
                    "verdict": {"integer": [1, 10]},
                }
            },
            "cache": "off",
            "traffic": {"give_up_after": 1000},
        }
        with zerowait.open(config) as rewards:
            rewards.score([zerowait.Sample("before", "a")])
            assert capsys.readouterr().err == ""
            rewards.score([zerowait.Sample(str(n), "a") for n in range(3)], progress=True)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("scoring: 3 rows in ")
    assert "3 abstained; 3 judgements asked, 0 from the cache or shared" in line
    assert "; 3 judgements failed (http_error 3); the commonest, 3 times: http_error: " in line
    assert "The model `m` does not exist" in line


def test_a_quick_batch_in_which_nothing_abstained_says_nothing_where_there_is_no_terminal(capsys):
    with zerowait.open({"components": {"a": {"scorer": "contains"}}}) as rewards:
        rewards.score([zerowait.Sample("q", "a", "a")], progress=True)
    assert capsys.readouterr() == ("", "")


def test_nothing_is_said_of_failures_where_there_were_none():
    before = Stats(asked=1, abstentions={"timeout": 1}, reasons={"timeout": 1})
    after = Stats(asked=5, abstentions={"timeout": 1}, reasons={"timeout": 1})
    assert failures_text(before, after) == ""
    assert closing_text(4, 0, 2.0, (before, after)) == (
        "4 rows in 2.0 s, 2.0/s, 0 abstained; 4 judgements asked, 0 from the cache or shared"
    )
