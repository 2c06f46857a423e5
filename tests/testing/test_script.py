"""Scripts: what they may say, and that chance is the same on every run."""

import math
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait.config import VerdictRule
from zerowait.errors import ConfigError
from zerowait.testing import (
    Capacity,
    Change,
    Garbage,
    Latency,
    Length,
    OutOfRange,
    Reset,
    Script,
    Status,
    load_script,
    verdict_for,
)
from zerowait.testing.draws import attempt_draws, body_key, content_draws, draws
from zerowait.testing.faults import choose_fault
from zerowait.testing.verdicts import content_for, outside_content_for, wrong_content_for

units = st.floats(0.0, 1.0, exclude_max=True)
digests = st.binary(min_size=32, max_size=32)


def fate(script, text, nth=1, tokens=None):
    content = content_draws(script.seed, [{"role": "user", "content": text}])
    attempt = attempt_draws(script.seed, body_key(text.encode()), nth)
    fault = choose_fault(script.faults, content=content, attempt=attempt, nth=nth, tokens=tokens)
    return "" if fault is None else fault.name


def test_a_yaml_file_says_everything_a_script_can(tmp_path):
    path = tmp_path / "judge.yaml"
    path.write_text(
        """
        seed: 7
        verdict: {number: [0, 1]}
        reply: '{"score": {verdict}}'
        latency: {median_s: 1.0, sigma: 0.8, stall_share: 0.01}
        capacity: {concurrency: 60, retry_after_s: 2, changes: [{at_s: 20, concurrency: 30}]}
        faults:
          - status: {status: 503, share: 0.05}
          - garbage: {share: 0.01}
          - reset:
              share: 0.02
              sent: headers
        """
    )
    assert load_script(path) == Script(
        seed=7,
        verdict=VerdictRule(number=(0, 1)),
        reply='{"score": {verdict}}',
        latency=Latency(1.0, sigma=0.8, stall_share=0.01),
        capacity=Capacity(
            concurrency=60, retry_after_s=2, changes=(Change(at_s=20, concurrency=30),)
        ),
        faults=(
            Status(status=503, share=0.05),
            Garbage(share=0.01),
            Reset(share=0.02, sent="headers"),
        ),
    )


def test_an_empty_file_is_the_judge_without_faults(tmp_path):
    path = tmp_path / "judge.yaml"
    path.write_text("")
    assert load_script(path) == Script()


def test_a_fault_without_options_is_its_name_alone():
    assert load_script({"faults": ["out_of_range"]}).faults == (OutOfRange(),)
    assert load_script({"faults": [{"out_of_range": None}]}).faults == (OutOfRange(),)


def test_a_mapping_is_not_changed_by_reading_it():
    mapping = {"seed": 3, "faults": ["garbage", {"empty": None}]}
    load_script(mapping)
    assert mapping == {"seed": 3, "faults": ["garbage", {"empty": None}]}


@pytest.mark.parametrize(
    ("mapping", "says"),
    [
        ({"sed": 1}, "did you mean 'seed'"),
        ({"latency": {"median": 1}}, "did you mean 'median_s'"),
        ({"faults": [{"rest": {}}]}, "did you mean 'reset'"),
        ({"faults": [{"reset": {"shar": 0.1}}]}, "did you mean 'share'"),
        ({"faults": [{"status": {}}]}, "status"),
        ({"faults": [{"status": {"status": 200}}]}, "400 to 599"),
        ({"faults": [{"reset": {"share": 1.5}}]}, "share must be in"),
        ({"faults": {"reset": {}}}, "must be a list"),
        ({"faults": [{"reset": {}, "hang": {}}]}, "must be one fault's name"),
        ({"faults": [{"reset": {"share": 0.6}}, {"hang": {"share": 0.6}}]}, "add up to 1.2"),
        ({"capacity": {"concurrency": 0}}, "greater than 0"),
        ({"latency": {"median_s": -1}}, "at least 0"),
        ({"verdict": {"integer": [3, 1]}}, "empty"),
        ({"reply": "seven"}, "{verdict}"),
    ],
)
def test_a_wrong_script_is_an_error_that_says_what_would_be_right(mapping, says):
    with pytest.raises(ConfigError, match=says.replace("{", r"\{")):
        load_script(mapping)


def test_a_fault_is_met_by_its_share_of_the_attempts():
    script = Script(seed=1, faults=(Status(status=500, share=0.2), Reset(share=0.1)))
    fates = [fate(script, f"question {n}") for n in range(4000)]
    assert fates.count("status") / 4000 == pytest.approx(0.2, abs=0.03)
    assert fates.count("reset") / 4000 == pytest.approx(0.1, abs=0.03)


def test_a_fault_per_attempt_lets_a_retry_succeed():
    script = Script(faults=(Status(status=500, share=0.5),))
    for text in map(str, range(50)):
        assert "" in {fate(script, text, nth) for nth in range(1, 30)}


def test_a_fault_that_is_always_there_does_not_go_away():
    script = Script(faults=(Status(status=500, share=0.5, always=True),))
    fates = [{fate(script, text, nth) for nth in range(1, 10)} for text in map(str, range(50))]
    assert {frozenset(seen) for seen in fates} == {frozenset({""}), frozenset({"status"})}


def test_a_fault_of_the_first_attempts_ends_after_them():
    script = Script(faults=(Status(status=503, first=2),))
    assert [fate(script, "a", nth) for nth in (1, 2, 3, 4)] == ["status", "status", "", ""]


def test_a_reply_that_was_too_long_is_cured_by_more_tokens():
    script = Script(faults=(Length(cured_at=100),))
    assert [fate(script, "a", tokens=n) for n in (50, 99, 100, 200, None)] == [
        "length",
        "length",
        "",
        "",
        "",
    ]


def test_the_verdict_depends_on_the_contents_and_on_nothing_else():
    script = Script(seed=7)
    plain = [{"role": "user", "content": "What is 2+2?"}]
    assert verdict_for(script, plain) == verdict_for(script, [plain[0] | {"name": "bob"}])
    verdicts = {verdict_for(script, [{"role": "user", "content": str(n)}]) for n in range(200)}
    assert verdicts == {str(n) for n in range(1, 11)}


def test_text_moved_from_one_message_to_the_next_is_another_question():
    one = [{"role": "user", "content": "ab"}, {"role": "user", "content": "c"}]
    two = [{"role": "user", "content": "a"}, {"role": "user", "content": "bc"}]
    assert content_draws(0, one) != content_draws(0, two)


@given(digests, st.integers(-50, 50), st.integers(1, 30))
def test_an_integer_verdict_is_in_its_range_and_the_bad_ones_are_not_the_right_one(digest, low, n):
    script = Script(verdict=VerdictRule(integer=(low, low + n)))
    content = draws(digest)
    assert low <= int(content_for(script, content)) <= low + n
    assert low <= int(wrong_content_for(script, content)) <= low + n
    assert wrong_content_for(script, content) != content_for(script, content)
    assert not low <= int(outside_content_for(script, content)) <= low + n


@given(digests, st.floats(-10, 10), st.floats(0.1, 10))
def test_a_number_verdict_is_in_its_range_and_the_bad_ones_are_not_the_right_one(digest, low, n):
    script = Script(verdict=VerdictRule(number=(low, low + n)))
    content = draws(digest)
    assert low <= float(content_for(script, content)) <= low + n
    assert low <= float(wrong_content_for(script, content)) <= low + n
    assert wrong_content_for(script, content) != content_for(script, content)
    assert not low <= float(outside_content_for(script, content)) <= low + n


@given(digests)
def test_a_choice_verdict_is_one_of_the_words_and_the_bad_ones_are_not_the_right_one(digest):
    script = Script(verdict=VerdictRule(choice=["yes", "no"]))
    content = draws(digest)
    assert {content_for(script, content), wrong_content_for(script, content)} == {"yes", "no"}
    assert outside_content_for(script, content) not in {"yes", "no"}


@given(digests, st.floats(0.01, 10), st.floats(0, 2))
def test_a_latency_is_finite_and_never_longer_than_the_longest(digest, median_s, sigma):
    for latency in (
        Latency(median_s, sigma=sigma, longest_s=20.0, stall_share=0.1),
        Latency(median_s, tail=1.1, longest_s=20.0),
    ):
        value = latency.of(draws(digest))
        assert math.isfinite(value)
        assert 0 <= value <= 20.0


@pytest.mark.parametrize("latency", [Latency(2.0, sigma=0.8), Latency(2.0, tail=1.5)])
def test_half_of_the_answers_are_faster_than_the_median(latency):
    values = [latency.of(attempt_draws(3, bytes([n % 256, n // 256]), 1)) for n in range(4000)]
    assert median(values) == pytest.approx(2.0, rel=0.08)
    assert max(values) > 4.0


def test_a_share_of_the_answers_stalls():
    latency = Latency(1.0, stall_share=0.1, stall_s=30.0)
    values = [latency.of(attempt_draws(3, bytes([n % 256, n // 256]), 1)) for n in range(4000)]
    assert values.count(30.0) / 4000 == pytest.approx(0.1, abs=0.02)
    assert set(values) == {1.0, 30.0}


def test_a_script_has_no_verdict_by_a_schema():
    with pytest.raises(ValueError, match="give FakeJudge an answer instead"):
        Script(verdict=VerdictRule(schema="s.json", value="/a"))
