"""OpenRLHF's own executor of single turns asks our service, and our reward function."""

import asyncio
import importlib.util
import sys
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

import pytest

from zerowait import ConfigError
from zerowait.engine.concurrent_tasks import side_by_side
from zerowait.engine.portal import Portal
from zerowait.hub.http.service import serving
from zerowait.hub.http.settings import ServiceSettings
from zerowait.openrlhf import reward_func
from zerowait.testing import FakeJudge, Script, Status

RULE = {"components": {"answer": {"scorer": "qa_em"}}}
RIGHT, WRONG = "<answer>Paris</answer>", "<answer>Rome</answer>"
PROMPT = "Capital of France?"


@pytest.fixture(scope="module")
def executor():
    """OpenRLHF's class; its package's other modules need CUDA libraries, and are not imported."""
    found = importlib.util.find_spec("openrlhf")
    if found is None or found.origin is None:
        pytest.skip("openrlhf is not installed")
    utils = ModuleType("openrlhf.utils")
    utils.__path__ = [found.origin.replace("__init__.py", "utils")]
    sys.modules["openrlhf.utils"] = utils
    try:
        from openrlhf.utils.agent import SingleTurnAgentExecutor

        yield SingleTurnAgentExecutor
    finally:
        for name in [name for name in sys.modules if name.startswith("openrlhf")]:
            del sys.modules[name]


class Letters:
    """A tokenizer whose tokens are characters, as the executor uses one."""

    def __call__(self, text, **_):
        import torch

        return {"input_ids": torch.tensor([[ord(letter) for letter in text]])}

    def decode(self, ids, **_):
        return "".join(map(chr, ids))


class Engine:
    """vLLM's engine, which always writes `response`."""

    def __init__(self, response):
        ids = [ord(letter) for letter in response]
        self.output = SimpleNamespace(token_ids=ids, finish_reason="stop", logprobs=None)

    async def generate(self, *_, **__):
        return SimpleNamespace(outputs=[self.output])


async def rollout(executor, response, label="Paris"):
    """What OpenRLHF's rollout holds after its reward was asked for."""
    sampling = SimpleNamespace(max_tokens=64, logprobs=None)
    return await executor.execute(PROMPT, label, sampling, 4096, Letters(), Engine(response))


@contextmanager
def service(config=RULE, **settings):
    with Portal("service") as portal:
        running = serving(config, ServiceSettings(port=0, **settings))
        url, _ = portal.call(running.__aenter__)
        try:
            yield url
        finally:
            portal.call(lambda: running.__aexit__(None, None, None))


@pytest.mark.parametrize(("response", "value"), [(RIGHT, 1.0), (WRONG, 0.0)])
def test_openrlhfs_client_gets_the_reward_from_the_service(executor, response, value):
    with service() as url:
        done = asyncio.run(rollout(executor(f"{url}/get_reward"), response))
    assert (done["reward"], done["scores"]) == ([value], [value])
    assert done["extra_logs"]["abstained"] == [0.0]


@pytest.mark.parametrize(("response", "value"), [(RIGHT, 1.0), (WRONG, 0.0)])
def test_openrlhf_loads_the_reward_function_from_a_file(executor, tmp_path, response, value):
    (tmp_path / "reward.yaml").write_text("components: {answer: {scorer: qa_em}}\n")
    file = tmp_path / "rewards.py"
    file.write_text(
        "from zerowait.openrlhf import reward_func as make\n"
        f"reward_func = make({str(tmp_path / 'reward.yaml')!r})\n"
    )
    done = asyncio.run(rollout(executor(str(file)), response))
    assert done["reward"] == [value]


def group_of(executor, endpoint):
    """The rewards of sixteen responses to one prompt, asked for as OpenRLHF does: one by one."""

    async def all_of_them():
        one = executor(endpoint)
        return await side_by_side(rollout(one, f"response {n}") for n in range(16))

    done = asyncio.run(all_of_them())
    return [row["reward"][0] for row in done], [row["extra_logs"]["abstained"] for row in done]


@pytest.mark.parametrize("form", ["service", "file"])
def test_a_neutral_abstention_gets_its_groups_mean_so_that_its_advantage_is_zero(
    executor, tmp_path, form, judged
):
    fails = Status(status=500, share=0.4, always=True)
    with FakeJudge(Script(faults=(fails,))) as judge:
        config = judged(judge)
        if form == "service":
            with service(config, on_abstain="neutral") as url:
                rewards, abstained = group_of(executor, f"{url}/get_reward?group_size=16")
        else:
            file = tmp_path / "rewards.py"
            file.write_text(
                "from zerowait.openrlhf import reward_func as make\n"
                f"reward_func = make({config!r}, on_abstain='neutral', group_size=16)\n"
            )
            rewards, abstained = group_of(executor, str(file))
    kept = [value for value, lost in zip(rewards, abstained, strict=True) if lost == [0.0]]
    lost = [value for value, lost in zip(rewards, abstained, strict=True) if lost == [1.0]]
    assert kept
    assert lost
    assert set(lost) == {sum(kept) / len(kept)}
    assert sum(rewards) / 16 == pytest.approx(sum(kept) / len(kept))


def test_an_abstention_without_a_choice_gives_openrlhf_no_number(executor, judged):
    with FakeJudge(Script(faults=(Status(status=400, always=True),))) as judge:
        file_form = reward_func(judged(judge))
        with pytest.raises(Exception, match="no reward was reached and on_abstain is error"):
            file_form([PROMPT + "r"], [PROMPT], [None])
        chosen = reward_func(judged(judge), on_abstain=-1.0)
        assert chosen([PROMPT + "r"], [PROMPT], [None])["rewards"] == [-1.0]


@pytest.mark.parametrize("wrong", ["nuetral", float("nan"), float("inf"), None, True])
def test_what_is_no_choice_for_an_abstention_is_told_at_once(wrong):
    with pytest.raises(ConfigError, match="on_abstain must be 'neutral', 'error' or a finite"):
        reward_func(RULE, on_abstain=wrong)


def test_a_wrong_configuration_is_told_when_openrlhf_loads_the_file():
    with pytest.raises(ConfigError, match="no scorer 'qa_en'"):
        reward_func({"components": {"answer": {"scorer": "qa_en"}}})
