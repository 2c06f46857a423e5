"""What people write by mistake in a reward.yaml, and the hint that they get."""

import re

import pytest

from zerowait.config import load_config
from zerowait.engine.plan import compile_plan
from zerowait.errors import ConfigError


def complaint(folder, text):
    (folder / "reward.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        compile_plan(load_config(folder / "reward.yaml"))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("0,5", "must be a number, not text; a number is written with a point: 0.5"),
        ("-1,25", "a number is written with a point: -1.25"),
        (",5", "a number is written with a point: .5"),
        ("'0.5'", "must be a number, not text; write 0.5 without quotes"),
        ("50%", "must be a number, not text; write 0.5"),
        ("50 %", "write 0.5"),
        ("\u22120.5", "write -0.5"),
        ("1e-3", "YAML reads 1e-3 as text: write 1.0e-3"),
        ("half", "must be a number, not text"),
        ("[0,5]", "must be a number, not a list"),
    ],
)
@pytest.mark.parametrize(
    "at",
    [
        "components: {{a: {{scorer: qa_em, weight: {}}}}}",
        "components: {{a: {{shape: median_band, scale: {}}}}}",
        "components: {{a: {{shape: median_band, peak_ratio: {}}}}}",
        "components: {{a: {{scorer: math, timeout_s: {}}}}}",
        "components: {{a: {{scorer: qa_em, format_score: {}}}}}",
        "traffic: {{timeout_s: {}}}\ncomponents: {{a: {{scorer: qa_em}}}}",
    ],
)
def test_a_number_that_is_none_says_how_to_write_it(written, says, at, tmp_path):
    value = (
        f'"{written}"'
        if written.startswith((",", "50 ")) or ("," in written and "[" not in written)
        else written
    )
    told = complaint(tmp_path, at.format(value))
    assert says.removeprefix("must be a number, not text; ") in told
    assert "number" in told


@pytest.mark.parametrize(
    "component",
    [
        "{scorer: math, weight: 0,5}",
        "{scorer: qa_em, weight: 0,25}",
        "{shape: cosine, scale: 0,5}",
        "{scorer: math, timeout_s: 2,5}",
    ],
)
def test_a_comma_in_braces_ends_a_number_and_the_hint_says_so(component, tmp_path):
    told = complaint(tmp_path, f"components: {{a: {component}}}")
    assert "if it is the end of a number: that is written with a point, 0." in told


@pytest.mark.parametrize(
    ("component", "says"),
    [
        ("{shape: median_band, weight: 0.5}", "a.weight is not for a shape, whose factor is scale"),
        ("{judge: q, scale: 0.5}", "a.scale is not for a judge, whose factor is weight"),
    ],
)
def test_the_factor_has_one_name_for_each_kind_of_component(component, says, tmp_path):
    assert says in complaint(tmp_path, f"components:\n  a: {component}\n")


JUDGE = """
components: {a: {judge: q}}
judges:
  q:
    endpoints: [{base_url: "http://127.0.0.1:9/v1", model: m}]
    verdict: {integer: [1, 10]}
    rubric: %s
"""


def test_a_missing_rubric_says_where_it_was_looked_for(tmp_path, monkeypatch):
    (tmp_path / "rubrics").mkdir()
    (tmp_path / "rubrics" / "quality.md").write_text("")
    told = complaint(tmp_path, JUDGE % "rubrics/qualty.md")
    assert str(tmp_path / "rubrics" / "qualty.md") in told
    assert "reward.yaml:7: judges.q.rubric" in told
    assert "a relative path starts at the folder of the configuration" in told
    assert "did you mean 'quality.md'?" in told
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.md").write_text("")
    monkeypatch.chdir(elsewhere)
    told = complaint(tmp_path, JUDGE % "mine.md")
    assert f"there is {elsewhere / 'mine.md'}: write elsewhere/mine.md" in told
    (tmp_path / "own.md").write_text("")
    assert f"there is {tmp_path / 'own.md'}: write own.md" in complaint(tmp_path, JUDGE % "own")


def test_a_module_that_breaks_says_in_which_line(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_rule.py").write_text("import json\n\nlimit = json.loads('{')\n")
    told = complaint(tmp_path, "components: {a: {scorer: 'broken_rule:f'}}")
    assert re.search(
        r"broken_rule raised JSONDecodeError: .* \(/.*/broken_rule\.py:3, in <module>\)", told
    )
    (tmp_path / "misspelt_rule.py").write_text("x = 1\ndef f(:\n")
    told = complaint(tmp_path, "components: {a: {scorer: 'misspelt_rule:f'}}")
    assert "misspelt_rule.py:2)" in told
