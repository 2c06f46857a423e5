"""The adapters for AReaL, SkyRL and the Tinker cookbook by the real packages; slime, NeMo-Gym by call.

slime and NeMo-Gym are no packages: the form of their calls is recorded here from their sources
(slime/rollout/rm_hub/__init__.py; nemo_gym/base_resources_server.py).
"""

import asyncio
import pickle
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

import zerowait.nemo_gym
import zerowait.slime
import zerowait.tinker
from zerowait import ConfigError, DataError
from zerowait.engine.portal import Portal
from zerowait.errors import JudgementError
from zerowait.hub.http.service import serving
from zerowait.hub.http.settings import ServiceSettings
from zerowait.testing import FakeJudge, Script, Status

RULE = {"components": {"answer": {"scorer": "qa_em"}}}
RIGHT, WRONG = "<answer>Paris</answer>", "<answer>Rome</answer>"
ASKED = [{"role": "user", "content": "Capital of France?"}]


def failing(share=1.0):
    return FakeJudge(Script(faults=(Status(status=500, share=share, always=True),)))


# slime


@dataclass
class SlimeSample:
    response: str
    group_index: int | None = 0
    prompt: str = "Capital of France?"
    label: str | None = "Paris"
    response_length: int = 4
    remove_sample: bool = False
    metadata: dict = field(default_factory=dict)


def slime_rewards(rm, samples, *, group_rm):
    """What slime asks for: one call for each sample, or with ``--group-rm`` one for the group."""
    args = SimpleNamespace(n_samples_per_prompt=len(samples))

    async def asked():
        if group_rm:
            return await rm(args, samples)
        return await asyncio.gather(*(rm(args, sample) for sample in samples))  # noqa: TID251 - as slime does

    return asyncio.run(asked())


@pytest.mark.parametrize("group_rm", [False, True])
def test_slime_gets_each_samples_reward(group_rm):
    rm = zerowait.slime.custom_rm(RULE)
    samples = [SlimeSample(RIGHT), SlimeSample(WRONG)]
    assert slime_rewards(rm, samples, group_rm=group_rm) == [1.0, 0.0]
    assert not any(sample.remove_sample for sample in samples)


@pytest.mark.parametrize("group_rm", [False, True])
def test_slime_masks_an_abstained_sample_and_its_number_leaves_the_baseline_alone(group_rm, judged):
    samples = [SlimeSample(f"response {n}") for n in range(16)]
    with failing(0.4) as judge:
        rm = zerowait.slime.custom_rm(judged(judge))
        rewards = slime_rewards(rm, samples, group_rm=group_rm)
    kept = [value for value, each in zip(rewards, samples, strict=True) if not each.remove_sample]
    assert 0 < len(kept) < 16
    assert sum(rewards) / 16 == pytest.approx(sum(kept) / len(kept))


def test_slime_gets_no_number_where_nothing_was_judged(judged):
    with failing() as judge, pytest.raises(JudgementError, match="no judgement has been reached"):
        slime_rewards(zerowait.slime.custom_rm(judged(judge)), [SlimeSample("a")], group_rm=False)


# the Tinker cookbook


def tinker_episode(reward_fn, reply):
    """The last step of an episode in the cookbook's own environment for agents."""
    cookbook = pytest.importorskip("tinker_cookbook.tool_use.agent_tool_message_env")
    env = cookbook.AgentToolMessageEnv(
        tools=[], initial_messages=list(ASKED), max_turns=1, reward_fn=reward_fn
    )

    async def episode():
        await env.initial_observation()
        return await env.step({"role": "assistant", "content": reply})

    return asyncio.run(episode())


def test_tinker_gets_the_reward_at_the_end_of_an_episode_also_of_a_pickled_function():
    judge = zerowait.tinker.reward_fn(RULE)(ground_truth="Paris")
    for reward_fn in (judge, pickle.loads(pickle.dumps(judge))):
        step = tinker_episode(reward_fn, RIGHT)
        assert (step.reward, step.episode_done) == (1.0, True)
        assert step.metrics["zerowait/answer"] == 1.0
    thought = [{"type": "thinking", "thinking": "Rome?"}, {"type": "text", "text": RIGHT}]
    assert tinker_episode(judge, thought).reward == 1.0


def test_tinkers_rollout_fails_where_the_reward_abstains(judged):
    with failing() as judge, pytest.raises(JudgementError, match="no reward was reached"):
        tinker_episode(zerowait.tinker.reward_fn(judged(judge))(), "Paris")


# SkyRL


def skyrl_step(config, response, **chosen):
    gym = pytest.importorskip("skyrl_gym")
    import zerowait.skyrl

    gym.envs.registration.registry.pop("zerowait", None)
    gym.register("zerowait", entry_point=zerowait.skyrl.env_class(config, **chosen))
    extras = {"reward_spec": {"method": "rule", "ground_truth": "Paris"}, "max_turns": 1}
    env = gym.make("zerowait", env_config={}, extras=extras)
    chat, _ = env.init(list(ASKED))
    assert chat == ASKED
    step = env.step(response)
    return step["reward"], step["done"], env.get_metrics()["abstained"]


@pytest.mark.parametrize(("response", "value"), [(RIGHT, 1.0), (WRONG, 0.0)])
def test_skyrls_step_ends_the_episode_with_the_reward(response, value):
    assert skyrl_step(RULE, response) == (value, True, 0.0)


def test_skyrls_abstention_is_an_error_or_the_users_number(judged):
    with failing() as judge:
        with pytest.raises(JudgementError, match="no reward was reached and on_abstain is error"):
            skyrl_step(judged(judge), "Paris")
        assert skyrl_step(judged(judge), "Paris", on_abstain=-1.0) == (-1.0, True, 1.0)
    with pytest.raises(ConfigError, match="on_abstain must be"):
        skyrl_step(RULE, "Paris", on_abstain="raise")


# AReaL


class Letters:
    """A tokenizer whose tokens are the letters' numbers."""

    pad_token_id, eos_token_id = 0, 1

    def apply_chat_template(self, messages, **_):
        return {"input_ids": [ord(letter) for letter in messages[-1]["content"]]}

    def decode(self, tokens, **_):
        return "".join(map(chr, tokens))


def areal_group(config, replies, **row):
    """The trajectories of a group in AReaL's own workflow, whose engine gives these replies."""
    pytest.importorskip("areal.workflow.rlvr")
    from areal.api import ModelResponse
    from areal.api.cli_args import GenerationHyperparameters
    from areal.infra.remote_inf_engine import GroupedRolloutWorkflow
    from areal.utils import logging

    import zerowait.areal

    left = list(replies)

    class Engine:
        async def agenerate(self, request):
            said = [ord(letter) for letter in left.pop(0)]
            return ModelResponse(
                input_tokens=request.input_ids,
                output_tokens=said,
                output_logprobs=[0.0] * len(said),
                output_versions=[0] * len(said),
            )

    workflow = zerowait.areal.RLVRWorkflow(
        config, gconfig=GenerationHyperparameters(), tokenizer=Letters(), **row.pop("chosen", {})
    )
    group = GroupedRolloutWorkflow(workflow, len(replies), logging.getLogger("test"))
    return asyncio.run(group.arun_episode(Engine(), {"messages": list(ASKED)} | row))


def test_areals_trajectories_have_the_rewards():
    assert areal_group(RULE, [RIGHT, WRONG], answer="Paris")["rewards"].tolist() == [1.0, 0.0]
    chosen = {"ground_truth": "gold"}
    assert areal_group(RULE, [RIGHT], gold="Paris", chosen=chosen)["rewards"].tolist() == [1.0]
    with pytest.raises(DataError, match="no field 'gold'"):
        areal_group(RULE, [RIGHT], answer="Paris", chosen=chosen)


def test_areal_trains_on_a_group_without_the_trajectories_that_abstained(judged):
    with failing(0.4) as judge:
        kept = areal_group(judged(judge), [f"response {n}" for n in range(16)])["rewards"]
    assert 0 < len(kept) < 16
    with failing() as judge:
        assert areal_group(judged(judge), ["a", "b"]) is None


# NeMo-Gym


class Body(SimpleNamespace):
    """A verify request: what `BaseVerifyRequest` and the fields of the user's subclass dump."""

    def model_dump(self, **_):
        return dict(vars(self))


def nemo_body(text, **fields):
    return Body(
        responses_create_params={"input": list(ASKED)},
        response={
            "id": "resp_1",
            "output": [
                {"type": "reasoning", "id": "rs_1", "summary": []},
                {"type": "function_call", "name": "look", "call_id": "c1", "arguments": "{}"},
                {
                    "type": "function_call_output",
                    "call_id": "c1",
                    "output": "<answer>Oslo</answer>",
                },
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": text, "annotations": []}],
                },
            ],
        },
        **fields,
    )


@pytest.mark.parametrize(("text", "value"), [(RIGHT, 1.0), (WRONG, 0.0)])
def test_nemo_gyms_verify_gets_the_fields_of_its_reply(text, value):
    verify = zerowait.nemo_gym.verifier(RULE)
    fields = asyncio.run(verify(nemo_body(text, answer="Paris")))
    assert fields == {"reward": value, "mask_sample": False}
    with pytest.raises(DataError, match="no field 'gold'"):
        asyncio.run(zerowait.nemo_gym.verifier(RULE, ground_truth="gold")(nemo_body(text)))


def test_nemo_gym_gets_no_number_where_the_reward_abstains_unless_one_was_chosen(judged):
    def fields_of(**chosen):
        verify = zerowait.nemo_gym.verifier(judged(judge), **chosen)
        return asyncio.run(verify(nemo_body("Paris")))

    with failing() as judge:
        with pytest.raises(JudgementError, match="500"):
            fields_of()
        number = fields_of(on_abstain=-1.0)
        fields = fields_of(on_abstain="mask")
        with pytest.raises(ConfigError, match="'error', 'mask' or a finite number, not 'masks'"):
            fields_of(on_abstain="masks")
    assert (number["reward"], number["mask_sample"]) == (-1.0, False)
    assert fields["mask_sample"]
    assert fields["failure_kind"] == "judge_failed"
    assert "500" in fields["failure_reason"]


# one service for several processes


def test_a_running_service_computes_the_same_rewards_and_neutral_means(judged):
    samples = [SlimeSample(f"response {n}") for n in range(16)]
    with failing(0.4) as judge, Portal("service") as portal:
        running = serving(judged(judge), ServiceSettings(port=0))
        url, _ = portal.call(running.__aenter__)
        try:
            rm = zerowait.slime.custom_rm(RULE, url=url)
            rewards = slime_rewards(rm, samples, group_rm=False)
            alone = zerowait.tinker.reward_fn(RULE, url=url)()
            outcomes = [tinker_outcome(alone, each.response) for each in samples]
        finally:
            portal.call(lambda: running.__aexit__(None, None, None))
    kept = [value for value, each in zip(rewards, samples, strict=True) if not each.remove_sample]
    assert 0 < len(kept) < 16
    assert sum(rewards) / 16 == pytest.approx(sum(kept) / len(kept))
    assert [outcome is None for outcome in outcomes] == [each.remove_sample for each in samples]


def tinker_outcome(reward_fn, reply):
    try:
        return asyncio.run(reward_fn([*ASKED, {"role": "assistant", "content": reply}]))
    except JudgementError:
        return None
