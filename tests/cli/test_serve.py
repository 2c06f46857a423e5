"""The command ``zerowait serve``."""

import json
import signal
import urllib.request

import pytest

from zerowait.hub import read_rewards

RULE = "components: {answer: {scorer: qa_em}}\n"
ROW = {"prompt": "Capital?", "response": "<answer>Paris</answer>", "ground_truth": "Paris"}


@pytest.fixture
def config(tmp_path):
    (tmp_path / "reward.yaml").write_text(RULE)
    return "reward.yaml"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--host", "0.0.0.0"], "--host 0.0.0.0: other machines could spend your judge's money"),
        (["--token-env", "NO_SUCH_TOKEN"], "the environment variable NO_SUCH_TOKEN is not set"),
        (["--on-abstain", "zero"], "--on-abstain zero: must be error, neutral or a number"),
        (["--on-abstain", "nan"], "on_abstain must be a finite number"),
        (["--max-body-mb", "inf"], "--max-body-mb inf: must be greater than 0, and at most"),
        (["--port", "70000"], "--port 70000: must be from 0 to 65535"),
    ],
)
def test_a_wrong_option_is_one_clear_line_and_exit_code_2(zerowait, config, options, complaint):
    ended = zerowait("serve", "-c", config, *options)
    assert ended.returncode == 2
    assert complaint in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_wrong_configuration_is_one_clear_line_and_exit_code_2(zerowait, tmp_path):
    (tmp_path / "reward.yaml").write_text("components: {answer: {scorer: qa_emm}}\n")
    ended = zerowait("serve", "-c", "reward.yaml", "--port", "0")
    assert ended.returncode == 2
    assert "reward.yaml:1" in ended.stderr
    assert "did you mean 'qa_em'" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_it_serves_rewards_keeps_a_record_and_ends_cleanly(start_zerowait, config, tmp_path):
    process = start_zerowait("serve", "-c", config, "--port", "0", "--record", "run")
    url = process.stdout.readline().split()[-1]
    request = urllib.request.Request(
        f"{url}/v1/score",
        data=json.dumps(ROW).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as reply:
        assert json.load(reply)["value"] == 1.0
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (0, "")
    assert [record.trained_on for record in read_rewards(tmp_path / "run")] == [1.0]
