"""Rubric files: the format, and errors that say what to change."""

import re
from pathlib import Path

import pytest

from zerowait.errors import ConfigError
from zerowait.judge import Rubric, load_rubric
from zerowait.judge.rubric import BUILT_IN, read_rubric

GOOD = """---
version: 3
# a remark
reason: none
---
Notes for people, with {{anything}}.

## System
You judge.

### A heading of one's own

## User
{{prompt}}

{{ response }} {{extra.level-1}}

{{reply_format}}
"""


def test_a_rubric_is_what_its_file_says(tmp_path):
    (tmp_path / "mine.md").write_text(GOOD)
    rubric = load_rubric("mine.md", base=tmp_path)
    assert rubric.name == "mine"
    assert rubric.system == "You judge.\n\n### A heading of one's own"
    assert rubric.user.startswith("{{prompt}}\n")
    assert rubric.needs == ("prompt", "response", "extra.level-1")
    assert not rubric.reason_first
    assert re.fullmatch(r"3\+[0-9a-f]{12}", rubric.version)


def test_paths_are_relative_to_the_base_and_absolute_ones_are_not(tmp_path, monkeypatch):
    (tmp_path / "rubrics").mkdir()
    path = tmp_path / "rubrics" / "mine"
    path.write_text(GOOD)
    (tmp_path / "home.md").write_text(GOOD)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_rubric("rubrics/mine", base=tmp_path).name == "mine"
    assert load_rubric(str(path), base=Path("/nowhere")).name == "mine"
    assert load_rubric("~/home.md", base=Path("/nowhere")).name == "home"


def test_any_edit_changes_the_version_and_line_ends_do_not(tmp_path):
    version = read_rubric(GOOD, name="x", where="x").version
    assert read_rubric(GOOD.replace("You judge.", "You judge!"), name="x", where="x") != version
    for text in (GOOD.replace("\n", "\r\n"), "\ufeff" + GOOD):
        (tmp_path / "x.md").write_text(text, "utf-8", newline="")
        assert load_rubric("x.md", base=tmp_path).version == version


def test_settings_are_optional():
    text = GOOD[GOOD.index("## System") :]
    rubric = read_rubric(text, name="x", where="x")
    assert rubric.reason_first
    assert re.fullmatch(r"[0-9a-f]{12}", rubric.version)


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_rubric_is_found_by_name_from_anywhere(name):
    rubric = load_rubric(name, base=Path("/nowhere"))
    assert rubric.name == name
    assert {"response", "responses"} & set(rubric.needs)
    assert rubric.version.startswith("1+")


def test_the_reference_rubric_shows_the_reference():
    assert "ground_truth" in load_rubric("reference", base=Path()).needs


@pytest.mark.parametrize("weight", ["30 %", "60 %", "10 %"])
def test_the_tool_rubric_names_its_weights(weight):
    assert weight in load_rubric("tool_reasoning", base=Path()).system


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (
            ("{{prompt}}", "{{promt}}"),
            "f.md:14: there is no placeholder {{promt}}; did you mean 'prompt'?",
        ),
        (
            ("{{extra.level-1}}", "{{extras.level}}"),
            "f.md:16: there is no placeholder {{extras.level}}; did you mean 'extra.level'?",
        ),
        (("{{prompt}}", "{{extra.}}"), "f.md:14: there is no placeholder {{extra.}}"),
        (("{{prompt}}", "{{prompt}"), "f.md:14: '{{' begins a placeholder such as {{response}}"),
        (("{{prompt}}", "{{a b}}"), "f.md:14: '{{' begins a placeholder"),
        (("{{prompt}}", "{{}}"), "f.md:14: '{{' begins a placeholder"),
        (("You judge.", "{{response}}"), "f.md:9: {{response}} belongs in the section '## User'"),
        (("{{reply_format}}", ""), "f.md: {{reply_format}} is missing"),
        (("{{ response }} {{extra.level-1}}", ""), "f.md: the user section shows no {{response}}"),
        (("## User", "## Usr"), "f.md:13: a rubric has no section 'Usr'; did you mean 'User'?"),
        (("### A", "## A"), "f.md:11: a rubric has no section"),
        (
            ("### A heading of one's own", "## System"),
            "f.md:11: there is a second section '## System'",
        ),
        (("## User", "# User"), "f.md: a rubric needs a section that begins '## User'"),
        (
            ("You judge.\n\n### A heading of one's own", ""),
            "f.md:8: the section '## System' is empty",
        ),
        (
            ("version: 3", "versoin: 3"),
            "f.md:2: a rubric has no setting 'versoin'; did you mean 'version'?",
        ),
        (("version: 3", "version:"), "f.md:2: version needs a value"),
        (("version: 3", "version 3"), "f.md:4: is not YAML: expected"),
        (("reason: none", "reason: last"), "f.md:4: reason is 'first' or 'none', not 'last'"),
    ],
)
def test_a_wrong_rubric_is_an_error_that_names_file_and_line(change, error, tmp_path):
    text = GOOD.replace(*change)
    assert text != GOOD
    with pytest.raises(ConfigError, match=re.escape(error)):
        read_rubric(text, name="f", where="f.md")


def test_an_unclosed_front_matter_does_not_swallow_the_file():
    with pytest.raises(ConfigError, match=r"f\.md:1: the settings"):
        read_rubric("---\nversion: 1\n", name="f", where="f.md")


def test_an_empty_file_is_an_error():
    with pytest.raises(ConfigError, match="needs a section that begins '## System'"):
        read_rubric("", name="f", where="f.md")


def test_an_unknown_name_suggests_the_nearest_and_says_how_to_give_a_path():
    with pytest.raises(ConfigError, match=r"'qualty'; did you mean 'quality'\?; .* ends in \.md"):
        load_rubric("qualty", base=Path())


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"no rubric /.*gone\.md: a relative path starts at"):
        load_rubric("gone.md", base=tmp_path)
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_rubric("./", base=tmp_path)
    (tmp_path / "latin.md").write_bytes(b"\xe9")
    with pytest.raises(ConfigError, match=r"latin\.md is not UTF-8"):
        load_rubric("latin.md", base=tmp_path)


def test_a_rubric_made_in_code_is_checked_as_well():
    with pytest.raises(ConfigError, match=r"rubric 'mine'.*reply_format.* is missing"):
        Rubric("mine", "1", "Judge.", "{{response}}")


NOT_SHOWN = {
    "single braces": ("{{ response }}", "{response}"),
    "single braces with blanks": ("{{ response }}", "{ response }"),
    "single braces, upper case": ("{{ response }}", "{Response}"),
    "as in a shell": ("{{ response }}", "${response}"),
    "square brackets": ("{{ response }}", "[[response]]"),
    "percent": ("{{ response }}", "%(response)s"),
    "a tag": ("{{ response }}", "<response></response>"),
    "another column alone": ("{{ response }} {{extra.level-1}}", "{{extra.level-1}}"),
    "the gold alone": ("{{ response }} {{extra.level-1}}", "{{ground_truth}}"),
    "the prompt in single braces": ("{{prompt}}", "{prompt}"),
    "a column in single braces": ("{{extra.level-1}}", "{extra.level-1}"),
}


@pytest.mark.parametrize("change", NOT_SHOWN.values(), ids=NOT_SHOWN.keys())
def test_a_rubric_that_does_not_show_what_it_means_to_is_an_error(change):
    """Else all responses to one prompt would share one verdict."""
    with pytest.raises(ConfigError, match=r"^f\.md.*\{\{(response|prompt|extra\.level-1)\}\}"):
        read_rubric(GOOD.replace(*change), name="f", where="f.md")


def test_braces_that_are_no_placeholder_are_text():
    text = GOOD.replace("You judge.", 'You judge {"a": 1}, {response} and f(x) = {x | x > 0}.')
    assert "{response}" in read_rubric(text, name="f", where="f.md").system


def test_a_rubric_may_say_that_it_judges_another_column():
    text = GOOD.replace("{{ response }} ", "").replace("reason: none", "judges: extra.level-1")
    assert read_rubric(text, name="f", where="f.md").needs == ("prompt", "extra.level-1")
    for wrong in ("extra.other", "prompt", "level-1"):
        with pytest.raises(ConfigError, match=f"says 'judges: {wrong}': it is the extra.NAME"):
            read_rubric(
                text.replace("judges: extra.level-1", f"judges: {wrong}"), name="f", where="f.md"
            )
