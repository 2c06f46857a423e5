from zerowait.engine.progress import Progress


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
