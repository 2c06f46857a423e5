"""Which responses count as correct for the shapes that reward correct ones for being short."""

import pytest

import zerowait
from zerowait import ConfigError, Engine, Sample
from zerowait.testing import virtually

RIGHT, WRONG, NONE = "so #### 4", "so #### 5", "no idea"
ANSWER = {"scorer": "gsm8k", "format_score": 0.1}
FORM = {"scorer": "format", "tags": ["think"]}
TAGGED = "<think>hm</think>"
COSINE = {"shape": "cosine", "limit": 100}

# components beside the shape, the shape's own parameters, a response, whether it counts as correct
MEMBERS = [
    ({"answer": ANSWER}, {}, RIGHT, True),
    ({"answer": ANSWER}, {}, WRONG, False),  # was correct: 0.1 is more than 0
    ({"answer": ANSWER}, {}, NONE, False),
    ({"answer": ANSWER | {"weight": 0.5}}, {}, RIGHT, True),
    ({"answer": ANSWER | {"weight": 0.3}}, {}, WRONG, False),
    ({"answer": ANSWER | {"weight": 20}}, {}, WRONG, False),
    ({"answer": ANSWER | {"score": 2.0, "format_score": 1.5}}, {}, WRONG, False),
    ({"answer": ANSWER | {"score": 2.0}}, {}, RIGHT, True),
    ({"answer": ANSWER | {"score": 0.5}}, {}, RIGHT, True),
    ({"answer": ANSWER, "form": FORM}, {}, TAGGED + WRONG, False),
    ({"answer": ANSWER, "form": FORM}, {}, TAGGED + RIGHT, True),
    ({"answer": ANSWER, "form": FORM}, {}, RIGHT, True),
    ({"answer": ANSWER, "form": FORM | {"weight": 5}}, {}, TAGGED + NONE, False),
    ({"answer": {"scorer": "gsm8k"}, "banned": {"scorer": "contains", "weight": -0.5}}, {}, "#### 4", True),
    ({"form": FORM}, {}, TAGGED, True),
    ({"form": FORM}, {}, NONE, False),
    ({"answer": {"scorer": "column", "key": "rm"}}, {}, RIGHT, True),
    ({"answer": {"scorer": "column", "key": "rm"}}, {"correct": 2.0}, RIGHT, False),
    ({"answer": ANSWER}, {"correct": 0.1}, WRONG, True),
    ({"answer": ANSWER}, {"correct": 1.0}, WRONG, False),
    ({"answer": ANSWER, "form": FORM}, {"correct": 1.5}, RIGHT, False),
    ({"answer": ANSWER, "form": FORM}, {"correct": 1.5}, TAGGED + RIGHT, True),
    (
        {"answer": {"scorer": "by_data_source", "table": {"s": {"scorer": "qa_em", "format_score": 0.2}}}},
        {},
        "<answer>5</answer>",
        False,
    ),
    (
        {"answer": {"scorer": "by_data_source", "table": {"s": {"scorer": "qa_em", "score": 3}}}},
        {},
        "<answer>4</answer>",
        True,
    ),
]  # fmt: skip


def sample(response, tokens=10, index=0):
    return Sample(
        "2+2?",
        response,
        "4",
        data_source="s",
        group="g",
        response_tokens=tokens,
        extra={"rm": 1.0, "target_tokens": 100},
        id=str(index),
    )


def scored(components, *samples):
    async def main():
        async with Engine({"components": components}) as engine:
            return await engine.score_all(samples)

    return virtually(main())[0]


@pytest.mark.parametrize(("components", "own", "response", "correct"), MEMBERS)
def test_a_response_is_correct_when_it_earned_the_full_score(components, own, response, correct):
    """Yeo et al. pay a wrong short answer about -10; it got +2 where its form was paid for."""
    (reward,) = scored(components | {"length": COSINE | own}, sample(response))
    assert (reward.components["length"].value > 0) is correct


@pytest.mark.parametrize(
    ("shape", "right", "wrong"),
    [
        ({"shape": "cosine", "limit": 100}, 1.976, -9.755),
        ({"shape": "kimi"}, 0.5, 0.0),
        ({"shape": "group_linear", "coefficient": 0.25, "only_correct": True}, -0.00833, 0.0),
        ({"shape": "lcpo_max", "alpha": 0.01}, 0.0, 0.0),
    ],
)
def test_no_shape_takes_a_format_score_for_a_right_answer(shape, right, wrong):
    """The first is right, the second wrong in the right form, the third longer and wrong."""
    components = {"answer": ANSWER, "length": shape}
    rows = [sample(RIGHT, 10), sample(WRONG, 10, 1), sample(NONE, 100, 2)]
    rewards = scored(components, *rows)
    values = [reward.components["length"].value for reward in rewards]
    assert values[:2] == pytest.approx([right, wrong], abs=1e-3)


def test_a_problem_that_was_never_solved_presses_no_response_to_be_short():
    components = {"answer": ANSWER, "length": {"shape": "group_linear"}}
    rewards = scored(components, sample(WRONG, 10), sample(WRONG, 100, 1))
    assert [reward.components["length"].value for reward in rewards] == [0, 0]


def test_what_a_wrong_answer_got_for_its_form_does_not_depend_on_its_length():
    """L1 multiplies what is right; a long wrong answer lost a part of its format score."""
    components = {"answer": ANSWER, "length": {"shape": "lcpo_max", "alpha": 0.01}}
    rewards = scored(components, sample(WRONG, 10), sample(WRONG, 500, 1), sample(RIGHT, 500, 2))
    assert [reward.value for reward in rewards] == pytest.approx([0.1, 0.1, 0.0])


@pytest.mark.parametrize(("weight", "correct"), [(0.5, 1.0), (1.0, 1.5)])
def test_a_correct_that_no_response_can_reach_is_refused(weight, correct):
    components = {
        "answer": {"scorer": "gsm8k", "weight": weight},
        "length": {"shape": "kimi", "correct": correct},
    }
    with pytest.raises(ConfigError, match=r"components\.length\.correct is .* give at most"):
        zerowait.Engine({"components": components})
