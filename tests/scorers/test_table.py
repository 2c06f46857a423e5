"""Names, options, data sources."""

import pytest

from zerowait.errors import ConfigError
from zerowait.scorers import (
    DEFAULT_RULES,
    SCORERS,
    check_options,
    is_user_function,
    needs_pool,
    option_names,
    resolve,
    rule_for,
    selected,
)
from zerowait.types import Abstain, FailureKind, Sample


def test_every_scorer_takes_a_sample_and_keyword_only_options():
    for name, scorer in SCORERS.items():
        assert resolve(name) is scorer
        options = {"regex": {"pattern": "x"}, "column": {"key": "x"}}.get(name, {})
        check_options(name, options)
        assert option_names(scorer), name
        assert not isinstance(scorer(Sample("", "", "1"), **options), float)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("qa_emm", {}, "did you mean 'qa_em'"),
        ("zzz", {}, "known: by_data_source, code, column"),
        ("qa_em", {"scoer": 1.0}, "qa_em has no option 'scoer'; did you mean 'score'?"),
        ("qa_em", {"score": "1"}, "qa_em: score is '1': it must be a number, not text"),
        ("qa_em", {"score": float("nan")}, "must be a finite number"),
        ("qa_em", {"compat": "verll"}, "qa_em: compat is 'verll'; did you mean 'verl'?"),
        ("gsm8k", {"method": "strct"}, "did you mean 'strict'?"),
        ("regex", {}, "regex needs the option 'pattern'"),
        ("regex", {"pattern": "("}, "is no regular expression"),
        ("regex", {"pattern": "(a)(b)"}, "has 2 groups"),
        ("format", {"tags": "think"}, "format: tags is 'think'"),
        ("format", {"tags": []}, "name at least one tag"),
        ("format", {"tags": ["<think>"]}, "write think, not <think>"),
        ("format", {"tags": ["a", "a"]}, "names a tag twice"),
        ("by_data_source", {"table": {"x": "gsm8"}}, "table: x: there is no scorer 'gsm8'"),
        ("by_data_source", {"table": {"x": {"scorer": "gsm8k", "metod": "strict"}}}, "'method'"),
        ("by_data_source", {"table": {"x": 5}}, "neither a scorer nor"),
        ("by_data_source", {"table": {"x": {"method": "strict"}}}, "neither a scorer nor"),
        ("by_data_source", {"table": {"x": "by_data_source"}}, "cannot select itself"),
        ("by_data_source", {"table": ["gsm8k"]}, "table is"),
    ],
)
def test_a_wrong_configuration_says_what_to_change(name, options, message):
    with pytest.raises(ConfigError) as caught:
        check_options(name, options)
    assert message in str(caught.value)


def test_whole_numbers_and_none_are_fine_where_a_number_or_nothing_is_wanted():
    check_options("qa_em", {"score": 1, "compat": None})
    check_options("by_data_source", {"table": None})


def value(data_source, response, gold, **options):
    sample = Sample("", response, gold, data_source=data_source)
    return SCORERS["by_data_source"](sample, **options).value


def test_a_data_source_selects_its_scorer():
    assert value("openai/gsm8k", "#### 72", "72") == 1
    assert value("searchR1_nq", "<answer>Paris</answer>", {"target": ["Paris"]}) == 1
    assert value("hotpotqa", "<answer>Paris</answer>", ["Rome"]) == 0


def test_the_user_s_table_extends_and_overrides_the_built_in_rules():
    table = {
        "mine": "contains",
        "mine/*": {"scorer": "gsm8k", "method": "flexible"},
        "mine/math/*": "qa_f1",
        "openai/gsm8k": {"scorer": "gsm8k", "method": "flexible"},
    }
    assert value("mine", "it is Paris", "Paris", table=table) == 1
    assert value("mine/x", "it is 72", "72", table=table) == 1
    assert value("mine/math/x", "<answer>a b</answer>", "b", table=table) == 1
    assert value("openai/gsm8k", "it is 72", "72", table=table) == 1
    assert value("nq", "<answer>Paris</answer>", "Paris", table=table) == 1
    assert rule_for("mine/math/x", table).scorer == "qa_f1"


def test_a_source_without_a_rule_abstains_and_names_the_table():
    sample = Sample("", "x", "x", data_source="unheard")
    outcome = SCORERS["by_data_source"](sample, table={"mine": "contains"})
    assert isinstance(outcome, Abstain)
    assert outcome.kind is FailureKind.BAD_INPUT
    for word in ("'unheard'", "mine", *DEFAULT_RULES):
        assert word in outcome.detail


def test_what_may_hang_needs_a_pool():
    assert is_user_function("mine:f")
    assert not is_user_function("regex")
    slow = ["by_data_source", "code", "constraints", "json_schema", "math", "regex"]
    assert [name for name in SCORERS if needs_pool(name)] == slow
    assert needs_pool("mine:f")


def test_the_selected_scorer_is_known_before_it_runs():
    sample = Sample("", "", data_source="x")
    table = {"table": {"x": {"scorer": "mine:f", "k": 1}}}
    rule = selected("by_data_source", sample, table)
    assert (rule.scorer, rule.options) == ("mine:f", {"k": 1})
    assert selected("qa_em", sample, {"score": 2.0}).options == {"score": 2.0}
    assert isinstance(selected("by_data_source", sample, {}), Abstain)
