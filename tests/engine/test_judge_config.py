"""Settings of judges that do not go together are refused before any work, by key."""

import json

import pytest

from zerowait import ConfigError, Engine
from zerowait.config import load_config
from zerowait.engine.plan import compile_plan

ENDPOINT = {"base_url": "http://judge/v1", "model": "m"}
J = {"endpoints": [ENDPOINT], "verdict": {"integer": [1, 10]}}
WORDS = J | {"verdict": {"choice": ["yes", "no"]}}
DECIMAL = J | {"verdict": {"number": [0, 1]}}
MONITOR = WORDS | {"rubric": "monitor", "monitor": {}}
CRITERIA = J | {"rubric": "tool_criteria"}
VOTES = {"temperature": 0.7, "votes": {"n": 3}}
SCHEMA = {
    "type": "object",
    "properties": {"why": {"type": "string"}, "a": {"type": "integer"}},
    "required": ["why", "a"],
}
FREE = J | {"verdict": {"schema": "s.json", "value": "/a"}}


def other(judge=J, **parts):
    return judge | {"max_tokens": 7} | parts


def panel(*members, **parts):
    return {"panel": {"members": list(members)} | parts}


@pytest.fixture
def refused(tmp_path, monkeypatch):
    (tmp_path / "s.json").write_text(json.dumps(SCHEMA))
    monkeypatch.chdir(tmp_path)

    def says(judges, component):
        settings = {"components": {"q": {"judge": "j"} | component}, "judges": judges}
        with pytest.raises(ConfigError) as caught:
            Engine(settings)
        return str(caught.value)

    return says


@pytest.mark.parametrize(
    ("judge", "says"),
    [
        # votes
        (J | {"votes": {"n": 3}}, "judges.j: votes: at temperature 0 all 3 votes are the same answer, paid 3 times"),
        (J | VOTES | {"parameters": {"temperature": 0}}, "at temperature 0 all 3 votes"),
        (J | VOTES | {"votes": {"n": 1}}, "judges.j.votes.n must be at least 2"),
        (J | VOTES | {"votes": {"n": 3, "quorum": 4}}, "quorum must be from 1 to 3, not 4"),
        (J | VOTES | {"votes": {"n": 3, "by": "mode"}}, "judges.j.votes.by must be mean or median or majority, not 'mode'"),
        (J | VOTES | {"votes": {"n": 3, "qourum": 2}}, "judges.j.votes has no key 'qourum'; did you mean 'quorum'"),
        (J | VOTES | {"votes": 3}, "judges.j.votes must be a mapping"),
        (DECIMAL | VOTES | {"votes": {"n": 3, "by": "majority"}}, "votes.by: majority needs verdicts that can be equal"),
        (CRITERIA | VOTES | {"votes": {"n": 3, "by": "majority"}}, "votes.by: majority needs one verdict, not a mean of criteria"),
        # criteria
        (J | {"ask": "apart"}, "ask: apart is for criteria, and 'quality' has none"),
        (J | {"ask": "together"}, "ask: together is for criteria"),
        (CRITERIA | {"ask": "seperately"}, "judges.j.ask must be together or apart, not 'seperately'"),
        (FREE | {"rubric": "tool_criteria"}, "the rubric 'tool_criteria' has criteria, and so has a schema verdict"),
        # schema
        (J | {"verdict": {"schema": "s.json"}}, "judges.j.verdict is wrong: a schema verdict needs value"),
        (J | {"verdict": {"integer": [1, 3], "value": "/a"}}, "value belongs to a schema verdict"),
        (J | {"verdict": {"integer": [1, 3], "schema": "s.json"}}, "exactly one of integer, number, choice, schema"),
        (J | {"verdict": {"schema": "t.json", "value": "/a"}}, "the schema t.json cannot be read"),
        (J | {"verdict": {"schema": "s.json", "value": "/b"}}, "value /b is not in s.json"),
        (FREE | {"parameters": {"response_format": {}}}, "parameters cannot set 'response_format' beside a schema verdict"),
        # monitor
        (J | {"monitor": {}}, "monitor predicts yes or no: give verdict: {choice: [yes, no]}"),
        (WORDS | {"monitor": {}}, "monitor reads the reasoning alone, as {{response}}, and 'quality' also shows {{prompt}}"),
        (MONITOR | {"monitor": {"correct_reward": 1}}, "correct_reward and wrong_reward are equal"),
        (MONITOR | {"monitor": {"within": "a", "before": "b"}}, "either 'within' tags or 'before' a text, not both"),
        (MONITOR | {"monitor": {"within": "<think>"}}, "within is a tag's name such as think, not '<think>'"),
        (MONITOR | {"monitor": {"before": " "}}, "before must be a text such as <answer>"),
        (MONITOR | {"monitor": {"rebalance": {}}}, "rebalance needs the share of 'true' or of 'false'"),
        (MONITOR | {"monitor": {"rebalance": {True: 1.0}}}, "shares must be greater than 0 and below 1"),
        (MONITOR | {"monitor": {"rebalance": {True: 0.7, False: 0.4}}}, "shares must add up to 1, not 1.1"),
        (MONITOR | {"monitor": {"truht": "x"}}, "judges.j.monitor has no key 'truht'; did you mean 'truth'"),
        (MONITOR | VOTES, "monitor needs votes.by: majority, not mean"),
    ],
)  # fmt: skip
def test_a_judge_whose_settings_do_not_fit_is_refused(refused, judge, says):
    assert says in refused({"j": judge}, {})


@pytest.mark.parametrize(
    ("judges", "says"),
    [
        ({"a": J, "j": panel("a")}, "judges.j.panel is wrong: a panel needs at least two members"),
        ({"a": J, "j": panel("a", "a")}, "the member 'a' is named twice; for more calls give it 'votes'"),
        ({"ab": J, "b": other(), "j": panel("abc", "b")}, "judges.ab is used by no component"),
        ({"ab": J, "b": other(), "j": panel("ab", "b", "bc")}, "judges.j.panel.members[2] names 'bc', which is no judge"),
        ({"a": J, "j": panel("a", "j")}, "judges.j.panel.members[1] names 'j', which is a panel itself"),
        ({"a": J, "b": other(), "j": panel("a", "b", quorum=3)}, "quorum must be from 1 to 2, not 3"),
        ({"a": J, "b": J, "j": panel("a", "b")}, "members[1] names 'b', which asks the same model the same as 'a'"),
        ({"a": J, "b": DECIMAL, "j": panel("a", "b")}, "judges.j.panel has members with different ranges (a 1 to 10, b 0 to 1): say normalize: true"),
        ({"a": J, "b": FREE, "j": panel("a", "b", normalize=True)}, "names 'b', whose verdict has no minimum and maximum"),
        ({"a": WORDS, "b": MONITOR, "j": panel("a", "b")}, "names 'b', a monitor; it judges alone"),
        ({"a": DECIMAL, "b": other(DECIMAL), "j": panel("a", "b", by="majority")}, "judges.j.panel.by for 'a': majority needs verdicts that can be equal"),
        ({"a": J, "spread": other(), "j": panel("a", "spread")}, "names 'spread', a metric's name"),
        ({"a": J, "b": other(), "j": panel("a", "b") | {"rubric": "quality"}}, "judges.j has no key 'rubric'"),
        ({"a": J, "b": other(), "j": panel("a", "b", members_="a")}, "judges.j.panel has no key 'members_'; did you mean 'members'"),
        ({"a": J, "b": other(), "p": panel("a", "b"), "j": J}, "judges.p is used by no component"),
    ],
)  # fmt: skip
def test_a_panel_that_cannot_meet_is_refused(refused, judges, says):
    assert says in refused(judges, {})


def test_a_verdict_without_a_range_cannot_be_normalised(refused):
    says = refused({"j": FREE}, {"normalize": True})
    assert "components.q.normalize needs a range, and the verdict of 'j' has no minimum" in says


def test_an_unknown_judge_is_named_beside_those_that_there_are(refused):
    says = refused({"a": J, "b": other(), "p": panel("a", "b")}, {})
    assert "components.q.judge names 'j'; judges: a, b, p" in says


def test_a_file_reads_yes_no_and_true_as_the_words_they_are(tmp_path):
    path = tmp_path / "reward.yaml"
    path.write_text("""
components: {q: {judge: j}}
judges:
  j:
    endpoints: [{base_url: "http://judge/v1", model: m}]
    rubric: monitor
    verdict: {choice: [yes, no]}
    monitor: {rebalance: {true: 0.7}}
""")
    config = load_config(path)
    assert config.judges["j"].verdict.choice == ["yes", "no"]
    assert compile_plan(config).judges.bounds["j"] == pytest.approx((-1 / 0.3, 1 / 0.3))


def test_an_error_in_a_file_names_the_line(tmp_path):
    path = tmp_path / "reward.yaml"
    path.write_text("""
components: {q: {judge: j}}
judges:
  a: &a {endpoints: [{base_url: "http://judge/v1", model: m}], verdict: {integer: [1, 10]}}
  j:
    panel:
      members: [a, b]
""")
    with pytest.raises(ConfigError, match=r"reward\.yaml:7: judges\.j\.panel\.members\[1\]"):
        Engine(path)
