import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from zerowait.errors import ConfigError
from zerowait.verl.cpu.rollout.sampling import (
    Sampling,
    SamplingDefaults,
    SamplingTensors,
    draw,
    next_tokens,
    sampling_from,
)

CPU = torch.device("cpu")
DEFAULTS = SamplingDefaults(max_tokens=16, room=40, stop_ids=frozenset({2}))

weights = st.lists(st.floats(-8, 8, width=32), min_size=2, max_size=24)
uniforms = st.floats(0, 1, exclude_max=True)


def picked(logits, sampling, uniform=0.5, **more):
    controls = SamplingTensors([sampling], CPU)
    tokens, log_probs = next_tokens(
        torch.tensor([logits]), controls, torch.tensor([uniform], dtype=torch.float64), **more
    )
    return int(tokens[0]), float(log_probs[0])


@given(logits=weights, uniform=uniforms, temperature=st.floats(0.2, 3), top_k=st.integers(1, 5))
def test_the_log_probability_is_the_models_whatever_the_sampler_cut_off(
    logits, uniform, temperature, top_k
):
    sampling = Sampling(max_tokens=1, temperature=temperature, top_k=top_k, top_p=0.7)
    token, log_prob = picked(logits, sampling, uniform)
    expected = torch.log_softmax(torch.tensor(logits) / temperature, dim=-1)[token]
    assert log_prob == pytest.approx(float(expected), abs=1e-5)


@given(logits=weights, uniform=uniforms)
def test_temperature_zero_takes_the_most_likely_token(logits, uniform):
    token, log_prob = picked(logits, Sampling(max_tokens=1, temperature=0), uniform)
    assert logits[token] == max(logits)
    assert log_prob == pytest.approx(float(torch.tensor(logits).log_softmax(-1).max()), abs=1e-5)


@given(logits=weights)
def test_tokens_are_drawn_in_proportion_to_their_probability(logits):
    grid = 2_000
    steps = torch.arange(grid, dtype=torch.float64).add(0.5).div(grid)
    drawn = draw(torch.tensor([logits]).repeat(grid, 1), steps)
    counts = torch.bincount(drawn, minlength=len(logits)) / grid
    expected = torch.softmax(torch.tensor(logits), dim=-1)
    assert torch.allclose(counts, expected, atol=2 / grid)


@given(logits=weights, uniform=uniforms, k=st.integers(1, 30))
def test_top_k_draws_only_from_the_k_most_likely(logits, uniform, k):
    token, _ = picked(logits, Sampling(max_tokens=1, top_k=k), uniform)
    assert sum(other > logits[token] for other in logits) < k


@given(logits=weights, uniform=uniforms, p=st.floats(0.05, 1))
def test_top_p_draws_only_from_the_smallest_set_that_reaches_p(logits, uniform, p):
    token, _ = picked(logits, Sampling(max_tokens=1, top_p=p), uniform)
    probs = torch.softmax(torch.tensor(logits), dim=-1)
    more_likely = float(probs[torch.tensor(logits) > logits[token]].sum())
    assert more_likely < p + 1e-5


@given(logits=weights, seen=st.sets(st.integers(0, 1)), penalty=st.floats(1.1, 3))
def test_the_repetition_penalty_moves_seen_tokens_down_and_no_others(logits, seen, penalty):
    sampling = Sampling(max_tokens=1, temperature=0, repetition_penalty=penalty)
    token, _ = picked(logits, sampling, seen=[sorted(seen)])
    moved = [
        (value / penalty if value > 0 else value * penalty) if at in seen else value
        for at, value in enumerate(torch.tensor(logits).tolist())
    ]
    assert moved[token] == pytest.approx(max(moved), rel=1e-5, abs=1e-6)


@given(logits=weights, uniform=uniforms)
def test_a_forbidden_token_is_never_drawn(logits, uniform):
    likely = logits.index(max(logits))
    for temperature in (0, 1):
        sampling = Sampling(max_tokens=1, temperature=temperature)
        token, _ = picked(logits, sampling, uniform, forbidden=[(0, [likely])])
        assert token != likely


def test_the_largest_uniform_number_never_draws_a_token_without_probability():
    logits = torch.tensor([[0.1, 0.3, -math.inf, -math.inf]])
    highest = torch.tensor([math.nextafter(1, 0)], dtype=torch.float64)
    assert int(draw(logits, highest)) == 1


def test_a_row_draws_the_same_token_whichever_rows_are_beside_it():
    torch.manual_seed(0)
    logits, numbers = torch.randn(5, 40), torch.rand(5, dtype=torch.float64)
    rows = [
        Sampling(max_tokens=1, temperature=t, top_k=k, top_p=p, repetition_penalty=r)
        for t, k, p, r in [
            (1, -1, 1, 1),
            (0, -1, 1, 1),
            (0.7, 5, 1, 1),
            (2, -1, 0.6, 1),
            (1, 3, 1, 2),
        ]
    ]
    seen = [[1, 2], [3], [4], [5], [6, 7]]
    together = next_tokens(logits, SamplingTensors(rows, CPU), numbers, seen=seen)
    for row, sampling in enumerate(rows):
        one = slice(row, row + 1)
        alone = next_tokens(
            logits[one], SamplingTensors([sampling], CPU), numbers[one], seen=seen[one]
        )
        assert torch.equal(together[0][one], alone[0])
        assert torch.allclose(together[1][one], alone[1])


def test_an_unknown_parameter_is_refused_by_name_and_not_ignored():
    with pytest.raises(ConfigError, match=r"'top_n'.*did you mean 'top_p'"):
        sampling_from({"top_n": 3}, DEFAULTS)


def test_a_parameter_that_is_none_asks_for_nothing():
    assert sampling_from({"min_p": None}, DEFAULTS).max_tokens == 16


def test_verls_own_parameters_are_understood():
    given = {
        "temperature": 0.5,
        "top_p": 1,
        "top_k": -1,
        "repetition_penalty": 1.0,
        "logprobs": True,
    }
    sampling = sampling_from(given, DEFAULTS)
    assert (sampling.temperature, sampling.top_k, sampling.stop_ids) == (0.5, -1, frozenset({2}))


@pytest.mark.parametrize("name", ["max_tokens", "max_new_tokens"])
@pytest.mark.parametrize(("asked", "given"), [(5, 5), (99, 40), (0, 16)])
def test_a_response_is_as_long_as_asked_but_fits_the_model(name, asked, given):
    assert sampling_from({name: asked}, DEFAULTS).max_tokens == given


def test_end_tokens_of_the_request_join_the_models_own_unless_those_are_ignored():
    more = {"stop_token_ids": [7], "stop": "x"}
    assert sampling_from(more, DEFAULTS).stop_ids == {2, 7}
    assert sampling_from(more | {"ignore_eos": True}, DEFAULTS).stop_ids == {7}
    assert sampling_from(more, DEFAULTS).stop_texts == ("x",)


@pytest.mark.parametrize(
    "wrong", [{"max_tokens": 0}, {"temperature": -1}, {"top_p": 0}, {"repetition_penalty": 0}]
)
def test_numbers_outside_their_range_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Sampling(**({"max_tokens": 1} | wrong))
