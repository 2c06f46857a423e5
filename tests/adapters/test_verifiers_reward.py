"""The reward method for verifiers, scored by the real package's own tasks on its own traces."""

import asyncio

import pytest

import zerowait
from zerowait import ConfigError
from zerowait.testing import FakeJudge, Script, Status

vf = pytest.importorskip("verifiers.v1")

import zerowait.verifiers  # noqa: E402

RULE = {"components": {"answer": {"scorer": "qa_em"}}}
RIGHT = "<answer>Paris</answer>"


class Question(vf.TaskData):
    answer: str = ""


def scored(reward, *replies, **data):
    """A trace with these replies, scored by verifiers."""

    class Asked(vf.Task[Question]):
        judged = reward

    task = Asked(Question(**{"prompt": "Capital of France?", "answer": "Paris"} | data))
    trace = vf.Trace(
        task=vf.TraceTask(type="asked", data=task.data),
        agent=vf.AgentInfo(config=vf.AgentConfig()),
        nodes=[
            vf.MessageNode(message=vf.AssistantMessage(content=reply), sampled=True)
            for reply in replies
        ],
    )
    asyncio.run(task.score(trace))
    return trace


@pytest.mark.parametrize(("reply", "value"), [(RIGHT, 1.0), ("<answer>Rome</answer>", 0.0)])
def test_a_traces_last_reply_is_rewarded_and_its_components_are_metrics(reply, value):
    trace = scored(zerowait.verifiers.reward(RULE), "I think.", reply)
    assert trace.reward == value
    assert trace.metrics == {"zerowait/answer": value}


def test_the_gold_answer_may_have_any_name_and_the_prompt_may_be_a_conversation():
    class Puzzle(Question):
        gold: str = "Rome"

    reward = zerowait.verifiers.reward(RULE, ground_truth="gold")

    class Asked(vf.Task[Puzzle]):
        judged = reward

    messages = [vf.SystemMessage(content="Be brief."), vf.UserMessage(content="Capital?")]
    task = Asked(Puzzle(prompt=messages))
    trace = vf.Trace(
        task=vf.TraceTask(type="asked", data=task.data),
        agent=vf.AgentInfo(config=vf.AgentConfig()),
        nodes=[
            vf.MessageNode(
                message=vf.AssistantMessage(content="<answer>Rome</answer>"), sampled=True
            )
        ],
    )
    asyncio.run(task.score(trace))
    assert trace.reward == 1.0
    with pytest.raises(vf.TaskError, match="no field 'golden'"):
        scored(zerowait.verifiers.reward(RULE, ground_truth="golden"), RIGHT)


def test_an_abstention_is_an_error_of_the_trace_and_never_a_zero(judged):
    with (
        FakeJudge(Script(faults=(Status(status=500, message="out of order"),))) as judge,
        pytest.raises(vf.TaskError, match=r"no reward was reached: .*out of order"),
    ):
        scored(zerowait.verifiers.reward(judged(judge)), RIGHT)


def test_the_weight_is_verifiers_own():
    assert scored(zerowait.verifiers.reward(RULE, weight=0.5), RIGHT).reward == 0.5


def test_a_wrong_configuration_is_told_when_the_task_is_defined():
    with pytest.raises(ConfigError, match="no scorer 'qa_en'"):
        zerowait.verifiers.reward({"components": {"answer": {"scorer": "qa_en"}}})
