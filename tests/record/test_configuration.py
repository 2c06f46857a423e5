"""What a record keeps of its configuration, and what differs between two of them, in words."""

import asyncio
import json

import pytest

from zerowait.config import load_config
from zerowait.hub import JobHub
from zerowait.observe import config_differences
from zerowait.record import (
    CONFIGURATION,
    described,
    earlier_configurations,
    read_configuration,
)
from zerowait.types import Sample

RUBRIC = "## System\nYou judge.\n\n## User\n{{response}}\n\n{{reply_format}}\n"
KEY = "sk-planted-key-of-the-test"


def config(**changes):
    judge = {
        "endpoints": [{"base_url": f"http://h/v1?key={KEY}", "model": "m", "api_key": KEY}],
        "verdict": {"integer": [1, 10]},
        "parameters": {"api_key": KEY, "top_p": 0.5, "extra_headers": {"X": KEY}},
    }
    base = {
        "components": {"answer": {"scorer": "contains"}, "quality": {"judge": "q", "weight": 0.1}},
        "judges": {"q": judge | changes.pop("judge", {})},
        "cache": "off",
    }
    return base | changes


def differences(a, b):
    return config_differences(described(load_config(a)), described(load_config(b)))


def test_a_run_keeps_what_its_rewards_are_made_of_and_no_key(tmp_path):
    async def score(settings):
        async with JobHub(settings, record=tmp_path) as hub:
            await hub.score(Sample("Q?", "no", "x", data_source="a"))

    gated = {"judge": "q", "weight": 0.1, "gate": "answer > 0"}
    components = {"answer": {"scorer": "contains"}, "quality": gated}
    asyncio.run(score(config(components=components)))
    kept = read_configuration(tmp_path)
    assert kept["components"]["quality"]["weight"] == 0.1
    assert kept["judges"]["q"]["verdict"]["integer"] == [1, 10]
    text = (tmp_path / CONFIGURATION).read_text()
    assert KEY not in text
    assert "http" not in text
    assert (tmp_path / CONFIGURATION).stat().st_mode & 0o077 == 0
    assert not list(tmp_path.glob(".reward*"))


CHANGES = {
    "components.quality.weight: 0.1, now 0.5": {
        "components": {"answer": {"scorer": "contains"}, "quality": {"judge": "q", "weight": 0.5}}
    },
    "components.answer: is gone": {"components": {"quality": {"judge": "q", "weight": 0.1}}},
    "judges.q.verdict.integer: [1,10], now [0,20]": {"judge": {"verdict": {"integer": [0, 20]}}},
    "judges.q.rubric: quality, now tool_reasoning": {"judge": {"rubric": "tool_reasoning"}},
    "judges.q.temperature: 0.0, now 1.0": {"judge": {"temperature": 1.0}},
}


@pytest.mark.parametrize("said", CHANGES)
def test_a_difference_is_one_line_with_both_values(said):
    assert differences(config(), config(**CHANGES[said])) == [said]


def test_what_decides_about_no_reward_is_no_difference():
    other = {"endpoints": [{"base_url": "http://other/v1", "model": "m"}]}
    assert differences(config(), config(judge=other, traffic={"concurrency": 3})) == []


def test_another_text_of_the_same_rubric_file_is_a_difference(tmp_path):
    path = tmp_path / "reward.yaml"
    path.write_text(json.dumps(config(judge={"rubric": "./mine.md"})))
    (tmp_path / "mine.md").write_text(RUBRIC)
    before = described(load_config(path))
    (tmp_path / "mine.md").write_text(RUBRIC.replace("judge", "judge strictly"))
    assert config_differences(before, described(load_config(path))) == [
        "judges.q.rubric: its text changed"
    ]


def test_a_record_without_a_configuration_or_with_a_damaged_one_has_none(tmp_path):
    assert read_configuration(tmp_path) is None
    (tmp_path / CONFIGURATION).write_text("{")
    assert read_configuration(tmp_path) is None


@pytest.mark.parametrize(
    "damaged", [b"", b"\0" * 40, b"\x1f\x8b\xff", b'{"components": {"a', b"[1]"]
)
def test_a_damaged_configuration_is_told_and_stops_no_command(tmp_path, caplog, damaged):
    (tmp_path / CONFIGURATION).write_bytes(damaged)
    assert read_configuration(tmp_path) is None
    assert f"{tmp_path / CONFIGURATION} cannot be read" in caplog.text
    caplog.clear()
    (tmp_path / "configurations.jsonl").write_bytes(damaged + b"\n{}\n")
    assert earlier_configurations(tmp_path) == []
    assert f"{tmp_path / 'configurations.jsonl'}:" in caplog.text
    assert "earlier configurations are not known" in caplog.text


def test_a_record_without_a_configuration_is_no_damage(tmp_path, caplog):
    assert read_configuration(tmp_path) is None
    assert earlier_configurations(tmp_path) == []
    assert caplog.text == ""
