"""How episodes went is in verl's loggers at each step, and beside each validated response."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerowait.types import Sample
from zerowait.verl.rewards.episode_metrics import episode_info, episode_metrics


def went(*, searches=0, failed=0, invalid=0, stop="answered", seen=0):
    return Sample(
        "p",
        "r",
        extra={
            "episode": {
                "turns": searches + 1,
                "searches": searches,
                "failed_searches": failed,
                "invalid_actions": invalid,
                "forged": 0,
                "failures": ["status 404"] * bool(failed),
                "stop": stop,
                "authors": [["model", 10], ["environment", seen], ["model", 4]],
            }
        },
    )


def test_a_step_says_how_its_episodes_went():
    metrics = episode_metrics(
        [
            went(searches=2, failed=1, seen=30),
            went(invalid=1),
            went(searches=2, stop="turn_limit", seen=50),
            went(stop="out_of_tokens"),
        ]
    )
    assert metrics == {
        "episode/turns/mean": 2.0,
        "episode/turns/max": 3.0,
        "episode/searches/mean": 1.0,
        "episode/searches/max": 2.0,
        "episode/failed_searches/mean": 0.25,
        "episode/failed_searches/max": 1.0,
        "episode/invalid_actions/mean": 0.25,
        "episode/invalid_actions/max": 1.0,
        "episode/forged/mean": 0.0,
        "episode/forged/max": 0.0,
        "episode/model_tokens/mean": 14.0,
        "episode/model_tokens/max": 14.0,
        "episode/environment_tokens/mean": 20.0,
        "episode/environment_tokens/max": 50.0,
        "episode/searched": 0.5,
        "episode/searches_failed": 0.25,
        "episode/stop/answered": 0.5,
        "episode/stop/turn_limit": 0.25,
        "episode/stop/out_of_tokens": 0.25,
        "episode/stop/aborted": 0.0,
    }


def test_every_step_has_the_same_lines_whatever_happened_in_it():
    quiet, busy = episode_metrics([went()]), episode_metrics([went(searches=3, failed=3, seen=9)])
    assert quiet.keys() == busy.keys()
    assert quiet["episode/searches_failed"] == 0.0


def test_where_no_agent_loop_gives_an_account_there_is_none():
    assert episode_metrics([Sample("p", "r"), Sample("p", "r", extra={"episode": "long"})]) == {}
    assert episode_info(Sample("p", "r")) == {}


def test_a_validated_response_says_how_its_own_episode_went():
    assert episode_info(went(searches=1, seen=7)) == {
        "episode_turns": 2.0,
        "episode_searches": 1.0,
        "episode_failed_searches": 0.0,
        "episode_invalid_actions": 0.0,
        "episode_forged": 0.0,
        "episode_model_tokens": 14.0,
        "episode_environment_tokens": 7.0,
        "episode_stop": "answered",
        "episode_answered": 1.0,
    }


anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["stop", "authors", "searches", "failed_searches", "mine"]), anything
        ),
        max_size=3,
    )
)
def test_whatever_another_agent_loop_says_of_its_episodes_every_line_is_a_finite_number(accounts):
    metrics = episode_metrics(
        [Sample("p", "r", extra={"episode": account}) for account in accounts]
    )
    assert all(isinstance(value, float) and math.isfinite(value) for value in metrics.values())


@pytest.mark.parametrize("huge", [10**400, -(10**400), 1e308, math.nan], ids="abcd")
def test_a_number_that_no_float_can_hold_is_left_out(huge):
    assert "episode/mine/mean" not in episode_metrics(
        [Sample("p", "r", extra={"episode": {"mine": huge}})]
    )
