"""What a configuration may not say; every refusal is one line that names the key."""

import itertools
import os
import textwrap

import pytest

from zerowait.cli.preflight import check_reward
from zerowait.config import Cache, load_config
from zerowait.config.urls import check_url, shown_url
from zerowait.engine.credentials import credentials
from zerowait.engine.plan import compile_plan
from zerowait.errors import ConfigError

REWARD = """\
components:
  answer: {scorer: qa_em}
  quality: {judge: q, weight: 0.1}
judges:
  q:
    endpoints:
      - base_url: URL
        model: m
    verdict: {integer: [1, 10]}
"""
ANSWER = "components:\n  answer: {scorer: qa_em}\n"


def compile_and_keep(config):
    compile_plan(config)
    return config


def problem(tmp_path, text, environ=os.environ):
    path = tmp_path / "reward.yaml"
    path.write_bytes(textwrap.dedent(text).encode())
    with pytest.raises(ConfigError) as caught:
        credentials(compile_and_keep(load_config(path)), environ)
    said = str(caught.value).removeprefix(f"{tmp_path}/")
    assert "\n" not in said
    return said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("components: &a {answer: {scorer: qa_em, options: *a}}\n", "reward.yaml:1: components.answer.options refers to what it is itself a part of"),
        ("components: \x00\n", "reward.yaml: is not YAML: unacceptable character #x0000"),
        ("a: 2020-99-99\n", "reward.yaml: is not YAML: month must be in 1..12"),
        ("a: " + "[" * 3000, "reward.yaml: is nested too deeply"),
        (ANSWER + "cache: 5\n", "reward.yaml:3: cache must be off, a path, or a mapping with path or url, not a whole number"),
        (ANSWER + "cache: [a]\n", "cache must be off, a path, or a mapping with path or url, not a list"),
        (ANSWER + "cache: none\n", "cache must be off, a path, or a mapping with path or url, not 'none'"),
        (ANSWER + "cache: ':memory:'\n", "cache.path must be a file on a disk; for no cache say off"),
        (ANSWER + "cache: {path: 'redis://h'}\n", "cache.path must be a file; write the address of a Redis as url:"),
        (ANSWER + 'cache: {path: "a\\0b"}\n', "reward.yaml:3: cache.path holds the character U+0000, which no text has"),
        (ANSWER + 'on_failure: {"\\ud800": raise}\n', "on_failure holds the character U+D800, which no text has"),
        (ANSWER + "traffic: []\n", "traffic must be a mapping, not a list"),
        (ANSWER + "traffic: 0\n", "traffic must be a mapping, not a whole number"),
        (ANSWER + "traffic: false\n", "traffic must be a mapping, not true or false"),
        (ANSWER + "traffic: ''\n", "traffic must be a mapping, not text"),
        (ANSWER + "traffic: {timeout_s: 9, deadline_s: 1}\n", "traffic.timeout_s is 9, and a whole judgement has 1 (deadline_s)"),
        (ANSWER + "traffic: {timeout_s: 1.0e+308, deadline_s: 1.0e+308}\n", "traffic.timeout_s must be at most"),
        (ANSWER + "traffic: {concurrency: 1.5}\n", "traffic.concurrency must be auto or a whole number, not a number"),
        (ANSWER + "traffic: {budget_usd: 1.0e+300}\n", "traffic.budget_usd must be at most 1e+09"),
        (ANSWER + "traffic: {rpm: 1" + "0" * 400 + "}\n", "reward.yaml:3: traffic.rpm is a number that is too large"),
        ("components:\n  answer: {scorer: qa_em, weight: 1e-3}\n", "components.answer.weight must be a number, not text; YAML reads 1e-3 as text: write 1.0e-3"),
        ("components:\n  answer: {scorer: qa_em, weigth: 2}\n", "components.answer has no key 'weigth'; did you mean 'weight'?"),
        ("components:\n  l: {shape: median_band, scael: 2}\n", "components.l has no key 'scael'; did you mean 'scale'?"),
        ("components:\n  answer: {scorer: qa_em, score: x}\n", "components.answer: qa_em: score"),
        ("components:\n  value: {scorer: qa_em}\n", "components.value is no name for a component, because on_failure has a key of that name"),
        ("components:\n  timeout: {scorer: qa_em}\n", "components.timeout is no name for a component"),
        ("components:\n  default: {scorer: qa_em}\n", "components.default is no name for a component"),
        ("components:\n  not: {scorer: qa_em}\n", "components.not is no name for a component, because gates cannot name it"),
        (ANSWER + "on_failure: {answer: {quorum: 0.5}}\n", "on_failure.answer.quorum belongs to on_failure as a whole, not to one component"),
        (REWARD + "    temperature: -1\n", "judges.q.temperature must not be negative, and not -1.0"),
        (REWARD + "    temperature: .nan\n", "judges.q.temperature must not be negative, and not nan"),
        (REWARD + "    parameters: {top_p: .nan}\n", "judges.q.parameters.top_p must be a finite number, not nan"),
        (REWARD + "    parameters: {since: 2020-01-01}\n", "judges.q.parameters.since must be something that JSON has, not a date"),
        (REWARD.replace("model: m", "model: ''"), "reward.yaml:8: judges.q.endpoints[0].model must be the name that the endpoint knows, not nothing"),
        (REWARD.replace("model: m", 'model: m\n        headers: {X: "sk-a\\r\\nEvil: 1"}'), "reward.yaml:9: judges.q.endpoints[0].headers must hold one line each, and X has a line break"),
        (REWARD.replace("model: m", "model: m\n        headers: {X: 5}"), "judges.q.endpoints[0].headers must be text, not a whole number"),
        (ANSWER.replace("qa_em", f"qa_em, gate: '{'not ' * 3000}answer > 0'"), "is nested too deeply"),
        (ANSWER.replace("qa_em", f"qa_em, gate: '{'(' * 300}answer > 0{')' * 300}'"), "components.answer.gate"),
    ],
)  # fmt: skip
def test_it_is_refused_in_one_line_that_names_the_key(tmp_path, text, says):
    assert says in problem(tmp_path, text.replace("URL", "http://h/v1"))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://a:b/v1", "a host and a port that exist"),
        ("http://a:99999/v1", "a host and a port that exist"),
        ("http://[::1/v1", "a host and a port that exist"),
        ("http://a:0/v1", "a port from 1 to 65535"),
        ("http://", "must name a host"),
        (f"http://{'a' * 70}.com", "must name a host"),
        ("http://a..com/v1", "must name a host"),
        ("http://a b/v1", "no white space"),
        ("http://a/v1 ", "no white space"),
        ("http://a/v1\n", "no white space"),
        ("ftp://a/v1", "must start with http:// or https://"),
        ("http://me:s3cret@a/v1", "no user name or password"),
    ],
)
def test_a_url_that_cannot_be_asked_is_refused_and_not_repeated(url, says):
    with pytest.raises(ValueError, match=says) as caught:
        check_url("base_url", url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://h/v1", "HTTPS://h:443", "http://[::1]:8/v1?k=v"])
def test_a_url_that_can_be_asked_is_accepted(url):
    check_url("base_url", url)


def test_the_values_of_a_query_are_never_shown(tmp_path):
    url = "http://127.0.0.1:9/v1?key=s3cret"
    assert shown_url(url) == "http://127.0.0.1:9/v1?..."
    path = tmp_path / "reward.yaml"
    path.write_text(REWARD.replace("URL", url))
    config = load_config(path)
    with pytest.raises(ConfigError, match="cannot be reached") as caught:
        check_reward(config)
    assert "s3cret" not in f"{caught.value} {config!r}"


@pytest.mark.parametrize(
    "text",
    [
        ANSWER + "judges: {q: sk-s3cret}\n",
        ANSWER + "judges: sk-s3cret\n",
        ANSWER + "cache: {path: a, url: 'redis://:s3cret@h'}\n",
        REWARD.replace("URL", "sk-s3cret"),
        REWARD.replace("URL", "http://me:s3cret@h/v1"),
        REWARD.replace("URL", "http://h/v1\n        api_key_env: sk-s3cret"),
        REWARD.replace("URL", "http://h/v1\n        api_key_env: gsk_s3cret"),
        REWARD.replace("URL", 'http://h/v1\n        api_key: "s3cret\\n"'),
        REWARD.replace("URL", "http://h/v1\n        api_key_env: PLANTED"),
        REWARD.replace("URL", 'http://h/v1\n        headers: {K: "s3cret\\n"}'),
    ],
)  # fmt: skip
def test_what_may_be_a_secret_is_not_repeated(tmp_path, text):
    assert "s3cret" not in problem(tmp_path, text, {"PLANTED": "s3cret\x00"})


def test_a_key_that_was_written_where_its_variables_name_belongs_is_explained(tmp_path):
    text = REWARD.replace("URL", "http://h/v1\n        api_key_env: sk-s3cret")
    assert problem(tmp_path, text).startswith(
        "reward.yaml:8: judges.q.endpoints[0].api_key_env must be the NAME of an environment variable"
    )


@pytest.mark.parametrize("name", ["1", "yes", "null", "2.5", "on"])
def test_any_unquoted_word_may_name_a_judge(tmp_path, name):
    path = tmp_path / "reward.yaml"
    text = REWARD.replace("URL", "http://h/v1").replace("  q:\n", f"  {name}:\n")
    path.write_text(text.replace("judge: q", f"judge: '{name}'"))
    compile_plan(load_config(path))


def test_a_short_deadline_alone_is_fine(tmp_path):
    path = tmp_path / "reward.yaml"
    path.write_text(ANSWER + "traffic: {deadline_s: 5}\n")
    assert load_config(path).traffic.deadline_s == 5


def test_the_address_of_a_redis_is_a_cache(tmp_path):
    path = tmp_path / "reward.yaml"
    path.write_text(ANSWER + "cache: redis://h:6379/0\n")
    assert load_config(path).cache.url == "redis://h:6379/0"
    assert load_config({"components": {"a": {"scorer": "qa_em"}}, "cache": {}}).cache == Cache(
        path=load_config({"components": {"a": {"scorer": "qa_em"}}}).cache.path
    )


def test_a_chain_of_a_thousand_gates_is_compiled():
    names = [f"c{i}" for i in range(1500)]
    chain = {
        name: {"scorer": "qa_em", "gate": f"{before} > 0"}
        for before, name in itertools.pairwise(names)
    }
    plan = compile_plan(load_config({"components": {**chain, "c0": {"scorer": "qa_em"}}}))
    assert [step.name for step in plan.steps] == names
