import textwrap

import pytest

from zerowait.config import Cache, Value, load_config
from zerowait.errors import ConfigError
from zerowait.types import FailureKind

JUDGES = """
judges:
  quality:
    endpoints: [{base_url: "http://127.0.0.1:8001/v1", model: m}]
    verdict: {integer: [1, 10]}
"""
ANSWER = "components:\n  answer: {scorer: qa_em}\n"


def load(tmp_path, text):
    path = tmp_path / "reward.yaml"
    path.write_text(textwrap.dedent(text))
    return load_config(path)


def problem(tmp_path, text):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    return str(caught.value).removeprefix(f"{tmp_path}/")


def test_a_reward_file_is_read_with_every_part_of_the_documented_example(tmp_path):
    config = load(
        tmp_path,
        """
        components:
          answer:  {scorer: by_data_source, weight: 1.0}
          quality: {judge: quality, weight: 0.1, gate: answer > 0}
          length:  {shape: median_band, peak_ratio: 0.3, outer_ratio: 0.5, max_penalty: 1.0, scale: 1.0}
        judges:
          quality:
            endpoints: [{base_url: "http://127.0.0.1:8001/v1", model: deepseek-v3, api_key_env: KEY}]
            rubric: tool_reasoning
            verdict: {integer: [1, 10]}
            max_tokens: 1024
        traffic: {concurrency: 60, timeout_s: 60, deadline_s: 300}
        cache: {path: "~/judgements.db"}
        on_failure: {default: neutral, refused: {value: 0}, quality: {timeout: raise}}
        """,
    )
    assert list(config.components) == ["answer", "quality", "length"]
    assert config.components["length"].options == {
        "peak_ratio": 0.3,
        "outer_ratio": 0.5,
        "max_penalty": 1.0,
    }
    assert config.on_failure.kinds == {FailureKind.REFUSED: Value(0)}
    assert config.on_failure.components["quality"].kinds == {FailureKind.TIMEOUT: "raise"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("components:\n  a: {judge: x, wieght: 1}\n", "reward.yaml:2: components.a has no key 'wieght'; did you mean 'weight'?"),
        ("componentz: {}\n", "reward.yaml:1: it has no key 'componentz'; did you mean 'components'?"),
        (ANSWER + "traffic: {concurency: 4}\n", "reward.yaml:3: traffic has no key 'concurency'; did you mean 'concurrency'?"),
        (ANSWER + "traffic:\n  concurrency: 0\n", "reward.yaml:4: traffic.concurrency must be greater than 0, not 0"),
        (ANSWER + "traffic:\n  concurrency: fast\n", "reward.yaml:4: traffic.concurrency must be auto or a whole number, not 'fast'"),
        (ANSWER + "traffic:\n  rpm: 0\n", "reward.yaml:4: traffic.rpm must be greater than 0, not 0.0"),
        (ANSWER + "traffic:\n  hedge: {aftr: p95}\n", "reward.yaml:4: traffic.hedge has no key 'aftr'; did you mean 'after'?"),
        (ANSWER + "traffic:\n  hedge: {after: soon}\n", "reward.yaml:4: traffic.hedge.after must be p50 to p99.9 or seconds, not 'soon'"),
        (ANSWER + "traffic:\n  hedge: {extra: 2}\n", "reward.yaml:4: traffic.hedge.extra must be in (0, 1], not 2.0"),
        (ANSWER + "traffic:\n  hedge: always\n", "reward.yaml:4: traffic.hedge must be off or a mapping, not 'always'"),
        (ANSWER + "on_failure: {timout: mask}\n", "reward.yaml:3: on_failure has no key 'timout'; did you mean 'timeout'?"),
        (ANSWER + "on_failure: zero\n", "reward.yaml:3: on_failure must be one of neutral, mask, drop_group, raise or {value: x}, not 'zero'"),
        (ANSWER + "prices:\n  m: {input: 1, outptu: 2}\n", "reward.yaml:4: prices.m has no key 'outptu'; did you mean 'output'?"),
        (ANSWER + "prices:\n  m: {input: 1}\n", "reward.yaml:4: prices.m needs the key 'output'"),
        (ANSWER + "prices:\n  m: {input: -1, output: 0}\n", "reward.yaml:4: prices.m.input must not be negative, and not -1.0"),
        (ANSWER + "traffic:\n  budget_usd: lots\n", "reward.yaml:4: traffic.budget_usd must be a number, not text"),
        (ANSWER + "cache: {url: 'http://x'}\n", "reward.yaml:3: cache.url must start with one of redis://, rediss://, unix://"),
        (ANSWER + "cache: {url: 'redis://x', path: j.db}\n", "reward.yaml:3: cache.url is given beside path: a cache is in one place"),
        (ANSWER + "cache: {url: 'redis://x', max_bytes: 2000000}\n", "reward.yaml:3: cache.max_bytes is for a file; for Redis set its own maxmemory"),
        (ANSWER + "cache: {max_bytes: 5}\n", "reward.yaml:3: cache.max_bytes must be at least 1048576"),
        (ANSWER + "cache: {max_age_days: 0}\n", "reward.yaml:3: cache.max_age_days must be greater than 0, not 0.0"),
        (ANSWER + "cache: {max_age_day: 1}\n", "reward.yaml:3: cache has no key 'max_age_day'; did you mean 'max_age_days'?"),
        ("components:\n  a: {scorer: x, weight: heavy}\n", "reward.yaml:2: components.a.weight must be a number, not text"),
        ("components:\n  a: {scorer: x, judge: y}\n", "reward.yaml:2: components.a needs exactly one of scorer, judge, shape; it has scorer and judge"),
        ("components:\n  a: {scorre: x, weight: 2}\n", "reward.yaml:2: components.a has no key 'scorre'; did you mean 'scorer'?"),
        (ANSWER + "judges:\n  q:\n    endpoints: [{base_url: 'http://x', model: m, rpm: 60}]\n    verdict: {integer: [1, 10]}\n", "reward.yaml:5: judges.q.endpoints[0] has no key 'rpm'; it belongs under traffic"),
        (ANSWER + "timeout_s: 5\n", "reward.yaml:3: it has no key 'timeout_s'; it belongs under components.NAME or traffic"),
        ("model: m\nalgorithm: {}\nreward: other.yaml\n", "reward.yaml is a recipe, and the rewards are in 'other.yaml': name that"),
        ("components:\n  a: {scorer: x}\n  a: {scorer: y}\n", "reward.yaml:3: components.a is given twice"),
        ("components:\n  1-a: {scorer: x}\n", "reward.yaml:2: components.1-a is no name for a component: use letters, digits and _"),
        ("components: []\n", "reward.yaml:1: components must name at least one component"),
        ("", "reward.yaml: must be a mapping with the key 'components', not nothing"),
        ("a: [b\n", "reward.yaml:2: is not YAML: expected ',' or ']', but got '<stream end>'"),
        (ANSWER + "judges:\n  q:\n    endpoints: [{base_url: 'http://x', modle: 1}]\n    verdict: {integer: [1, 10]}\n", "reward.yaml:5: judges.q.endpoints[0] has no key 'modle'; did you mean 'model'?"),
        (ANSWER + "judges:\n  q:\n    endpoints: [{base_url: 'x', model: m}]\n    verdict: {integer: [1, 10]}\n", "reward.yaml:5: judges.q.endpoints[0].base_url must start with http:// or https://"),
        (ANSWER + "judges:\n  q:\n    endpoints: [{base_url: 'http://x'}]\n    verdict: {integer: [1, 10]}\n", "reward.yaml:5: judges.q.endpoints[0] needs the key 'model'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line_and_the_nearest_right_key(tmp_path, text, says):
    assert problem(tmp_path, text) == says


@pytest.mark.parametrize("off", ["off", "false", '"off"', "null"])
def test_every_way_of_writing_off_means_no_cache(tmp_path, off):
    assert load(tmp_path, ANSWER + f"cache: {off}\n").cache == Cache(path=None)


@pytest.mark.parametrize("off", ["off", "false", '"off"'])
def test_quotas_and_hedging_may_be_off(tmp_path, off):
    traffic = load(
        tmp_path, ANSWER + f"traffic: {{rpm: {off}, tpm: 90000, hedge: {off}}}\n"
    ).traffic
    assert (traffic.rpm, traffic.tpm, traffic.hedge) == ("off", 90000, "off")


def test_without_a_word_about_it_there_is_a_cache_in_the_home_folder(tmp_path):
    assert load(tmp_path, ANSWER).cache.path.endswith("/.cache/zerowait/judgements.db")
    assert "~" not in load(tmp_path, ANSWER).cache.path


def test_a_relative_cache_path_starts_at_the_files_folder(tmp_path):
    assert load(tmp_path, ANSWER + "cache: {path: j.db}\n").cache.path == f"{tmp_path}/j.db"


def test_the_limits_of_a_cache_survive_the_reading_of_its_path(tmp_path):
    text = ANSWER + "cache: {path: j.db, max_bytes: 20_000_000, max_age_days: 1.5}\n"
    cache = load(tmp_path, text).cache
    assert cache == Cache(path=f"{tmp_path}/j.db", max_bytes=20_000_000, max_age_days=1.5)


def test_a_mapping_is_read_like_a_file():
    config = load_config({"components": {"answer": {"scorer": "qa_em", "weight": 2}}})
    assert config.components["answer"].weight == 2
    with pytest.raises(ConfigError, match=r"reward: components.a has no key 'gat'"):
        load_config({"components": {"a": {"judge": "x", "gat": "b > 0"}}})


def test_a_key_inside_another_file_can_be_named(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("name: x\nreward:\n  components:\n    a: {scorer: qa_em}\n")
    assert list(load_config(f"{path}#reward").components) == ["a"]
    with pytest.raises(ConfigError, match=r"rewards is missing"):
        load_config(f"{path}#rewards")


def test_a_recipe_that_names_the_file_of_its_reward_stands_for_that_file(tmp_path):
    (tmp_path / "reward.yaml").write_text(ANSWER)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("algorithm: {steps: 1}\nreward: reward.yaml\n")
    assert list(load_config(f"{recipe}#reward").components) == ["answer"]
    recipe.write_text("algorithm: {steps: 1}\nreward: recipe.yaml#reward\n")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(f"{recipe}#reward")


def test_a_missing_file_is_one_clear_line(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere.yaml: cannot be read: No such file"):
        load_config(tmp_path / "nowhere.yaml")


def test_a_literal_key_never_shows_in_a_repr(tmp_path):
    text = ANSWER + JUDGES.replace("model: m", "model: m, api_key: sk-planted")
    config = load(tmp_path, text)
    assert config.judges["quality"].endpoints[0].api_key == "sk-planted"
    assert "sk-planted" not in f"{config!r} {config} {config.judges}"


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://h/v1", "http://h/v1/chat/completions"),
        ("http://h/v1/", "http://h/v1/chat/completions"),
        ("https://h/v2/chat/completions", "https://h/v2/chat/completions"),
        ("https://h/v1?key=1", "https://h/v1/chat/completions?key=1"),
        ("https://h/chat/completions?v=1", "https://h/chat/completions?v=1"),
    ],
)
def test_a_base_url_and_a_full_endpoint_url_are_both_accepted(tmp_path, given, url):
    config = load(tmp_path, ANSWER + JUDGES.replace("http://127.0.0.1:8001/v1", given))
    assert config.judges["quality"].endpoints[0].url == url


def test_an_unquoted_yes_and_no_are_words_and_no_booleans(tmp_path):
    text = ANSWER + JUDGES.replace("{integer: [1, 10]}", "{choice: [yes, no]}")
    assert load(tmp_path, text).judges["quality"].verdict.choice == ["yes", "no"]
