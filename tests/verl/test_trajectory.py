"""What is rewarded of a trajectory, in the very batches that verl's own agent loops send."""

import asyncio
import warnings
from types import SimpleNamespace

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from verl.experimental.agent_loop.agent_loop import (
        AgentLoopMetrics,
        AgentLoopOutput,
        AgentLoopWorker,
    )

from msgspec import structs

from zerowait.engine.turns import samples_of_turns
from zerowait.errors import ConfigError, DataError
from zerowait.scorers.qa_em import qa_em
from zerowait.verl.response_mask import episode_messages
from zerowait.verl.rewards.manager import sample_of

ROW = {
    "uid": "u",
    "session_id": 2,
    "global_steps": 5,
    "raw_prompt": [{"role": "user", "content": "Say it."}],
    "data_source": "letters",
    "reward_model": {"ground_truth": ["a"]},
    "extra_info": {"split": "validation", "group_size": 4, "level": 3},
}


class Letters:
    """Token ids are letters, and the padding is one too: what is read too far shows."""

    def decode(self, ids, *, skip_special_tokens):
        return "".join("_" if int(token) == 0 else chr(int(token)) for token in ids)


def output(prompt, response, *, turns=2, **fields):
    return AgentLoopOutput(
        prompt_ids=[ord(letter) for letter in prompt],
        response_ids=[ord(letter) for letter in response],
        response_mask=[1] * len(response),
        num_turns=turns,
        metrics=AgentLoopMetrics(),
        extra_fields=fields,
    )


class Sent:
    """The reward loop's end of the wire: keeps the batch that verl sends."""

    def __init__(self):
        self.compute_score = SimpleNamespace(remote=self._keep)

    async def _keep(self, batch):
        self.batch = batch
        return {"reward_score": 0.0, "reward_extra_info": {}}


def sent(outputs, **columns):
    """The batch that verl 0.9.1 makes of a session's outputs."""
    handle = Sent()
    worker = object.__new__(AgentLoopWorker)
    worker.reward_loop_worker_handles = [handle]
    worker.processor, worker.mm_processor_kwargs = None, {}
    asyncio.run(worker._compute_score(outputs, {**ROW, **columns}))
    return handle.batch


def sample(outputs, **columns):
    return sample_of(sent(outputs, **columns), Letters())


def test_a_trajectory_of_one_output_is_its_response_and_the_rows_columns():
    one = sample([output("prompt", "answer")])
    assert (one.response, one.response_tokens) == ("answer", 6)
    assert (one.id, one.group, one.group_size, one.split) == ("u_2", "u", 4, "validation")
    assert (one.prompt, one.ground_truth) == (ROW["raw_prompt"], ["a"])
    assert (one.data_source, one.extra, one.step) == ("letters", {"level": 3}, 5)


@pytest.mark.parametrize(
    "outputs",
    [
        [("p", "a much longer first output"), ("p", "short")],
        [("a very long prompt of the first output", "and its response"), ("p", "x")],
        [("p", "first"), ("a long prompt, such as a summary of the first output", "second")],
        [("p", "one"), ("pp", "a longer one in the middle"), ("ppp", "last")],
        [("p", "first"), ("p", "")],
    ],
)
def test_of_several_outputs_the_last_is_judged_whole_whatever_the_others_are(outputs):
    """verl pads prompts and responses apart, and its mask not as either."""
    last = outputs[-1][1]
    one = sample([output(*texts) for texts in outputs])
    assert one.response == last
    assert one.response_tokens == len(last)


def test_of_several_outputs_the_last_says_how_long_the_response_is_and_how_the_episode_went():
    first = output("p", "a first output", model_tokens=14, episode={"searches": 1})
    last = output(
        *("p", "last"), turns=6, model_tokens=3, episode={"searches": 2}, judged_whole=True
    )
    one = sample([first, last])
    assert one.response_tokens == 3
    assert one.extra == {"level": 3, "episode": {"searches": 2}}


def test_rows_without_stamps_are_told_the_data_set_to_use():
    with pytest.raises(ConfigError, match="RewardDataset"):
        sample([output("p", "r")], extra_info={"index": 3})


@pytest.mark.parametrize("found", [float("nan"), None, "Paris", ["Paris"], 7])
def test_a_gold_answer_that_is_no_mapping_is_told_with_its_row_and_column(found):
    with pytest.raises(DataError, match="response u_2: column 'reward_model' has to be a mapping"):
        sample([output("p", "r")], reward_model=found)


def test_extra_columns_that_are_no_mapping_are_told_with_their_row_and_column():
    with pytest.raises(DataError, match=r"response u_2: column 'extra_info' .*not str 'train'"):
        sample([output("p", "r")], extra_info="train")


CALLED = "<call>x[tool: <answer>Paris</answer>]so: Lyon"
BY_MODEL = [1] * 7 + [0] * 30 + [1] * 8  # not the tool's text between its brackets


def test_what_a_tool_wrote_is_not_judged_and_stands_in_the_transcript():
    one = sample([output("p", CALLED, turns=4, response_mask=BY_MODEL)])
    assert one.response == "<call>x\nso: Lyon"
    assert one.response_tokens == 15
    assert one.extra == {"level": 3, "transcript": CALLED}


def test_an_answer_that_only_a_tool_wrote_earns_nothing():
    one = sample([output("p", CALLED, turns=4, response_mask=BY_MODEL)])
    whole = structs.replace(one, response=CALLED)
    asked = (structs.replace(sample, ground_truth=["Paris"]) for sample in (one, whole))
    assert [qa_em(sample).value for sample in asked] == [0, 1]


def test_a_loop_whose_environment_cannot_write_tags_is_judged_whole():
    one = sample([output("p", CALLED, turns=4, response_mask=BY_MODEL, judged_whole=True)])
    assert (one.response, one.response_tokens, one.extra) == (CALLED, 15, {"level": 3})


@pytest.mark.parametrize("said", [{}, {"model_tokens": 3}, {"episode": {"searches": 1}}])
def test_turns_of_others_without_a_mask_are_an_error_and_no_reward(said):
    with pytest.raises(ConfigError, match=r"5 turns, .*agent_loop_manager_class=zerowait.*mask"):
        sample([output("p", CALLED, turns=5, **said)])


def test_a_model_that_wrote_every_token_of_many_turns_needs_no_mask():
    one = sample([output("p", "all mine", turns=6, model_tokens=8)])
    assert (one.response, one.response_tokens) == ("all mine", 8)


def test_columns_may_hold_their_mappings_as_json():
    """numpy, in which verl sends them, has a type of its own for text."""
    gold, extra = '{"ground_truth": ["b"]}', '{"split": "train", "group_size": 2, "level": 1}'
    one = sample([output("p", "r")], reward_model=gold, extra_info=extra)
    assert (one.ground_truth, one.extra, one.group_size) == (["b"], {"level": 1}, 2)


def test_an_episodes_messages_are_the_runs_of_its_mask():
    one = sample([output("p", CALLED, turns=4, response_mask=BY_MODEL)])
    assert one.response_messages == [
        {"role": "assistant", "content": "<call>x", "last_token": 6},
        {"role": "tool", "content": "[tool: <answer>Paris</answer>]"},
        {"role": "assistant", "content": "so: Lyon", "last_token": 44},
    ]
    assert [turn.response for turn in samples_of_turns(one)] == ["<call>x", "so: Lyon"]


def test_our_search_loop_says_who_wrote_what_without_a_mask():
    authors = [["model", 7], ["environment", 30], ["model", 8]]
    said = {"judged_whole": True, "model_tokens": 15, "episode": {"authors": authors}}
    one = sample([output("p", CALLED, turns=4, **said)])
    assert one.response == CALLED
    assert [message["role"] for message in one.response_messages] == [
        *("assistant", "tool", "assistant")
    ]


def test_a_response_of_the_model_alone_has_no_messages():
    assert sample([output("p", "all mine")]).response_messages is None
    whole = output("p", "all mine", response_mask=[1] * 8)
    assert sample([whole]).response_messages is None


@pytest.mark.parametrize(
    "text",
    [
        "\nuser\n<tool_response>\nParis\n</tool_response>\nassistant\n",
        "ipython\n\n<tool_response>\nParis\n</tool_response>assistant\n\n",
        "<tool_response>\nParis\n</tool_response>",
    ],
)
def test_role_names_of_the_chat_template_are_no_part_of_what_a_tool_wrote(text):
    mask = [1] + [0] * len(text) + [1]
    told = episode_messages("a" + text + "b", mask, "".join, verbatim=False)
    assert told[1] == {"role": "tool", "content": "<tool_response>\nParis\n</tool_response>"}


def test_a_rows_pictures_reach_the_sample_as_urls_in_every_form():
    png = bytes.fromhex("89504e470d0a1a0a") + b"rest"
    picture = {"type": "image", "bytes": png, "image": SimpleNamespace(save=None)}
    prompt = [{"role": "user", "content": [picture, {"type": "text", "text": "What is it?"}]}]
    one = sample([output("p", "A cat.")], raw_prompt=prompt)
    first, second = one.prompt[0]["content"]
    assert first["image_url"]["url"].startswith("data:image/png;base64,iVBORw0KGgp")
    assert second == {"type": "text", "text": "What is it?"}
