"""``zerowait timeline`` writes pictures of a step, or says in one line why it cannot."""

from zerowait.hub import Phase, WaitRecord, append_wait


def test_a_light_and_a_dark_picture_are_written(tmp_path, zerowait):
    step = Phase(name="gen", began_at=100.0, ended_at=104.0)
    append_wait(tmp_path, WaitRecord(step=3, exposed_s=0.0, phases=[step]))
    (tmp_path / "rewards.jsonl").touch()
    done = zerowait("timeline", ".", "--step", "3", "-o", "picture.svg")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["picture-light.svg", "picture-dark.svg"]
    for name in done.stdout.split():
        assert (tmp_path / name).read_text().startswith("<svg ")


def test_a_folder_without_the_times_of_its_steps_is_one_line(tmp_path, zerowait):
    done = zerowait("timeline", ".")
    assert done.returncode == 2
    assert "has no times of its steps: the trainer modes zerowait" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    done = zerowait("timeline", "nowhere")
    assert (done.returncode, done.stderr) == (2, "zerowait: there is no folder nowhere\n")
