"""What is no command or option of ours: one line, as for every other wrong input."""

import pytest


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["scor"], "No such command 'scor'. Did you mean 'score', 'doctor'?; zerowait --help"),
        (["cache", "stat", "x"], "No such command 'stat'. Did you mean 'stats'?; zerowait cache --help"),
        (["score", "--ouput", "x"], "No such option: --ouput (Possible options: --"),
        (["score", "rows.jsonl"], "Missing option '--config' / '-c'"),
        (["score", "rows.jsonl", "-c"], "Option '-c' requires an argument"),
        (["score", "-c", "reward.yaml"], "Missing argument 'file'; zerowait score --help"),
        (["score", "a", "b", "-c", "reward.yaml"], "Got unexpected extra argument(s) (b)"),
        (["judge", "--fake", "--port", "many"], "Invalid value for '--port'"),
        (["judge", "--fake", "--port", "99999"], "Invalid value for '--port'"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_one_line_and_exit_code_2(zerowait, arguments, says):
    done = zerowait(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.startswith("zerowait: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["cache"], ["doctor"]])
def test_a_command_without_what_it_should_do_shows_its_help(zerowait_process, arguments):
    done = zerowait_process(*arguments)
    assert done.returncode == 2
    assert "Usage: zerowait" in done.stdout + done.stderr
