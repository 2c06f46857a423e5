"""What the sample browser finds is what a plain reading of the record finds."""

from contextlib import closing

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerowait.errors import DataError
from zerowait.observe.dashboard.samples import (
    SampleQuery,
    choices,
    group_of,
    sample_page,
    whole_sample,
)
from zerowait.record import open_index
from zerowait.types import Abstain, Skipped

FIELDS = {
    "split": st.sampled_from(["train", "validation", "test"]),
    "step": st.integers(0, 62),
    "group": st.sampled_from(["g7", "g900", "nobody"]),
    "data_source": st.sampled_from(["math", "code"]),
    "component": st.sampled_from(["quality", "other"]),
    "outcome": st.sampled_from(["score", "abstain", "timeout", "unparseable", "refused"]),
    "least": st.floats(0, 1).map(lambda value: round(value, 2)),
    "most": st.floats(0, 1).map(lambda value: round(value, 2)),
    "judge": st.sampled_from(["quality", "other"]),
    "source": st.sampled_from(["asked", "cache", "joined"]),
    "text": st.sampled_from(["alpha", "100%", "_ray", "A\\b", "zzz", "CAPITAL"]),
}


@pytest.fixture(scope="module")
def index(many):
    with closing(open_index(many.folder)) as opened:
        yield opened


def meets(wanted, record, judgement):
    sample, reward = record.sample, record.reward
    outcome = reward.components["quality"]
    values = [sample.split, sample.step, sample.group, sample.data_source]
    asked = [wanted.split, wanted.step, wanted.group, wanted.data_source]
    own = all(want is None or want == value for want, value in zip(asked, values, strict=True))
    value = reward.value if wanted.component is None else getattr(outcome, "value", None)
    low = wanted.least is None or (value is not None and value >= wanted.least)
    high = wanted.most is None or (value is not None and value <= wanted.most)
    state = "abstain" if isinstance(outcome, Abstain) else "score"
    names = {state, outcome.kind.value if isinstance(outcome, Abstain) else ""}
    return all(
        [
            own,
            low,
            high,
            wanted.component in {None, "quality"},
            wanted.outcome is None or wanted.outcome in names,
            wanted.judge in {None, judgement.judge},
            wanted.source in {None, judgement.source},
            wanted.text is None or wanted.text.lower() in (sample.response + sample.prompt).lower(),
        ]
    )


def read_on(index, wanted, order="newest", limit=200):
    """All rows, page by page, as the page reads on; and how many matched at first."""
    page = sample_page(index, wanted, order=order, limit=limit)
    rows, matches = [each["row"] for each in page["samples"]], page["matches"]
    while page["next"] is not None:
        page = sample_page(index, wanted, order=order, after=page["next"], limit=limit)
        rows += [each["row"] for each in page["samples"]]
    return rows, matches


@settings(max_examples=40)
@given(st.fixed_dictionaries({}, optional=FIELDS), st.sampled_from(["newest", "oldest"]))
def test_a_filter_finds_what_meets_it_page_by_page(index, many, fields, order):
    wanted = SampleQuery(**fields)
    expected = [
        row
        for row, pair in enumerate(zip(many.rewards, many.judgements, strict=True), start=1)
        if meets(wanted, *pair)
    ]
    found, matches = read_on(index, wanted, order)
    assert found == (expected if order == "oldest" else expected[::-1])
    assert matches in {None, len(expected)}


@pytest.mark.parametrize("order", ["highest", "lowest"])
@pytest.mark.parametrize("component", [None, "quality"])
def test_sorting_by_value_shows_each_scored_sample_once_although_many_are_equal(
    index, many, order, component
):
    rewards = many.rewards
    rows, _ = read_on(index, SampleQuery(split="train", component=component), order)
    values = [rewards[row - 1].reward.value for row in rows]
    assert values == sorted(values, reverse=order == "highest")
    scored = {
        row
        for row, each in enumerate(rewards, start=1)
        if each.reward.value is not None and each.sample.split == "train"
    }
    assert (len(rows), set(rows)) == (len(scored), scored)


@pytest.mark.parametrize(("order", "after"), [("newest", "x"), ("highest", "1"), ("lowest", "a@1")])
def test_a_place_that_no_page_gave_is_refused(index, order, after):
    with pytest.raises(DataError, match="no page begins after"):
        sample_page(index, SampleQuery(), order=order, after=after)


def test_a_row_that_was_judged_again_is_shown_once(recorded, reward):
    again = [msgspec.structs.replace(reward(n), ticket="t1") for n in (1, 2)]
    with closing(open_index(recorded(again))) as index:
        assert read_on(index, SampleQuery())[0] == [2]


def test_a_group_is_shown_whole_with_the_prompt_that_the_judge_read_and_its_reply(
    recorded, reward, judgement
):
    folder = recorded(
        [reward(n, group="g", step=1) for n in (1, 2, 3)] + [reward(4, group="g", step=2)],
        [
            judgement(1),
            judgement(2, outcome=Abstain("unparseable", "no verdict"), reply="Well."),
            judgement(3),
        ],
    )
    with closing(open_index(folder)) as index:
        group = group_of(index, 2)
    assert [each["row"] for each in group["samples"]] == [1, 2, 3]
    [said] = group["samples"][1]["judgements"]
    assert (said["kind"], said["reply_text"]) == ("unparseable", "Well.")
    assert "Judge answer 2." in said["request_text"]


def test_a_sample_without_a_group_stands_alone_and_texts_may_be_missing(recorded, reward):
    dropped = msgspec.structs.replace(reward(1, response="", prompt=""), response_chars=12)
    with closing(open_index(recorded([dropped, reward(2)]))) as index:
        [alone] = group_of(index, 1)["samples"]
        assert (alone["prompt"], alone["response"], alone["response_chars"]) == (None, None, 12)
        assert sample_page(index, SampleQuery(text="it"))["samples"][0]["row"] == 2
        with pytest.raises(DataError, match="no row 9"):
            whole_sample(index, 9)


def test_texts_with_the_character_0_are_searched_to_their_end(recorded, reward):
    lines = [reward(1, response="A byte \0 of data, then ORCHIDS"), reward(2)]
    with closing(open_index(recorded(lines))) as index:

        def found(text):
            page = sample_page(index, SampleQuery(text=text))
            return [sample["row"] for sample in page["samples"]]

        assert found("orchids") == [1]
        assert found("\0 of") == [1]
        assert found("\0zebra") == []


def test_the_filters_offer_what_the_run_has(index):
    offered = choices(index)
    assert offered["splits"] == ["train", "validation"]
    assert offered["data_sources"] == ["code", "math"]
    assert (offered["components"], offered["judges"]) == (["quality"], ["quality"])
    assert offered["kinds"] == ["timeout", "unparseable"]
    assert offered["sources"] == ["asked", "cache"]
    assert offered["steps"] == {"first": 0, "last": 60}


def test_skipped_samples_are_found_and_offered_only_where_there_are_some(recorded, reward):
    gated = [reward(1), reward(2, outcome=Skipped("correct > 0")), reward(3)]
    for name, rewards, expected in (("gated", gated, [2]), ("plain", gated[::2], [])):
        with closing(open_index(recorded(rewards, name=name))) as index:
            assert read_on(index, SampleQuery(outcome="skipped"))[0] == expected
            assert bool(choices(index)["skipped"]) is bool(expected)


def test_samples_whose_component_abstained_are_sorted_by_their_reward(recorded, reward):
    lost = Abstain("timeout", "no answer")
    rewards = [
        reward(n, value=value, outcome=lost) for n, value in enumerate((0.2, 0.9, 0.5), start=1)
    ]
    with closing(open_index(recorded([*rewards, reward(4, value=7.0)]))) as index:
        component = rewards[0].reward.components
        wanted = SampleQuery(component=next(iter(component)), outcome="abstain")
        assert read_on(index, wanted, "highest")[0] == [2, 3, 1]
