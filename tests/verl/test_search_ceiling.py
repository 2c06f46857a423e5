"""A retriever that stays dead stops the training; one that is started again does not."""

import pytest

from zerowait.errors import JudgementError
from zerowait.search import RetrieverSettings, SearchSettings
from zerowait.types import Sample
from zerowait.verl.trainer.search_ceiling import SearchCeiling

URL = "http://127.0.0.1:9/retrieve"
REFUSED = "unreachable: Connection refused"


def step(searches, failed):
    """A step's samples: each episode searches once."""
    return [
        Sample(
            "q",
            "a",
            extra={
                "episode": {
                    "searches": 1,
                    "failed_searches": int(n < failed),
                    "failures": [REFUSED] if n < failed else [],
                }
            },
        )
        for n in range(searches)
    ]


def ceiling(**more):
    return SearchCeiling(SearchSettings(retriever=RetrieverSettings(url=URL), **more))


def test_two_steps_of_failed_searches_stop_with_the_retrievers_words():
    count = ceiling()
    count.check(step(8, 7))
    with pytest.raises(JudgementError) as stopped:
        count.check(step(8, 8))
    assert str(stopped.value) == (
        "8 of 8 searches of this step failed, after a step like it, which is more than "
        f"search.max_failed=0.5 allows: {REFUSED} (8); is the retriever at {URL} running?"
    )


def test_an_outage_that_ends_stops_nothing():
    count = ceiling()
    for failed in (8, 0, 8, 4, 8, 0):
        count.check(step(8, failed))


@pytest.mark.parametrize("samples", [[], [Sample("q", "a")], step(3, 0), [Sample("q", "a", extra={"episode": "x"})]])  # fmt: skip
def test_without_failed_searches_nothing_is_counted(samples):
    count = ceiling(max_failed=0.01)
    for _ in range(3):
        count.check(samples)


def test_the_share_is_the_users_and_1_never_stops():
    count = ceiling(max_failed=1)
    for _ in range(3):
        count.check(step(4, 4))
    strict = ceiling(max_failed=0.1)
    strict.check(step(8, 1))
    with pytest.raises(JudgementError, match=r"1 of 8 .* search\.max_failed=0\.1"):
        strict.check(step(8, 1))


@pytest.mark.parametrize("share", [0, 1.5, -1, float("nan")])
def test_a_share_is_above_0_and_at_most_1(share):
    with pytest.raises(ValueError, match="max_failed must be in"):
        SearchSettings(max_failed=share)
