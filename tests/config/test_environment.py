"""Environment variables in YAML: ``${NAME}`` and ``${NAME:-default}``."""

import pytest

from zerowait.config import load_config
from zerowait.config.source import parse_yaml
from zerowait.errors import ConfigError


@pytest.fixture
def tree(tmp_path, monkeypatch):
    monkeypatch.setenv("MODEL", "m-1")
    monkeypatch.setenv("SLOTS", "8")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("MISSING", raising=False)
    return lambda text: parse_yaml(text, name="reward.yaml", base=tmp_path).tree


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: ${MODEL}", "m-1"),
        ("a: http://${MODEL}:80/v1", "http://m-1:80/v1"),
        ("a: ${MODEL}-${SLOTS}", "m-1-8"),
        ("a: ${SLOTS}", 8),
        ("a: '${SLOTS}'", "8"),
        ("a: ${MISSING:-4}", 4),
        ("a: ${EMPTY:-4}", 4),
        ("a: ${MODEL:-other}", "m-1"),
        ("a: ${MISSING:-}", None),
        ("a: '${MISSING:-}'", ""),
        ("a:\n- ${MODEL}\n- b: ${SLOTS}", ["m-1", {"b": 8}]),
        ("a: ['${MODEL}', {b: '${SLOTS}'}]", ["m-1", {"b": "8"}]),
        ("a: $${MODEL}", "${MODEL}"),
        ("a: ${x}", "${x}"),
        ("a: $x^{2}$", "$x^{2}$"),
        ("a: ${trainer.total}", "${trainer.total}"),
        ("a: ${oc.env:MODEL}", "${oc.env:MODEL}"),
    ],
)
def test_a_variable_stands_for_its_value_and_other_text_for_itself(tree, text, value):
    assert tree(text) == {"a": value}


def test_keys_are_names_and_never_replaced(tree):
    assert tree("${MODEL}: 1") == {"${MODEL}": 1}


def test_a_variable_that_is_not_set_is_an_error_with_file_line_and_way_out(tree):
    with pytest.raises(
        ConfigError, match=r"reward.yaml:2: \$\{MISSING\}: .* MISSING is not set; give a default"
    ):
        tree("b: 1\na: ${MISSING}")


def test_a_key_from_the_environment_is_a_secret_like_any_other(tmp_path, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "planted-key")
    path = tmp_path / "reward.yaml"
    path.write_text(
        "components: {quality: {judge: q}}\n"
        "judges: {q: {endpoints: [{base_url: 'http://127.0.0.1:1', model: m, "
        "api_key: '${JUDGE_KEY}'}], verdict: {integer: [1, 10]}}}\n"
    )
    config = load_config(path)
    assert config.judges["q"].endpoints[0].api_key is not None
    assert "planted-key" not in repr(config)
