"""Judges with ``base_url: verl``, asked through verl's own reward worker and router."""

import asyncio
import threading
import warnings
from types import SimpleNamespace

import pytest

ray = pytest.importorskip("ray")
torch = pytest.importorskip("torch")
pytest.importorskip("verl")

import numpy as np  # noqa: E402 - verl is optional
import uvicorn  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from verl import DataProto
    from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
    from verl.experimental.reward_loop.router.naive_router import NaiveRouter

import zerowait.verl.plugin  # noqa: E402 - registers the reward manager
from zerowait.errors import ConfigError  # noqa: E402
from zerowait.hub.ray import servers  # noqa: E402
from zerowait.testing import FakeJudge  # noqa: E402
from zerowait.tiny_models.arithmetic import make_arithmetic_policy  # noqa: E402

pytestmark = pytest.mark.usefixtures("usual_collector")
SEVEN = "Score: 7"
RESPONSE = "<answer>Paris</answer>"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model's folder, whose tokenizer verl reads for policy and reward model."""
    folder = tmp_path_factory.mktemp("policy")
    make_arithmetic_policy(folder)
    return str(folder / "model")


@pytest.fixture
def router():
    """verl's router in front of a fake judge: its address, as verl gives it to its workers."""
    with FakeJudge(answer=lambda _: SEVEN) as judge:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            app = NaiveRouter(worker_urls=[judge.url.removesuffix("/v1")]).app
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
        started = threading.Event()
        startup = server.startup

        async def announced(sockets=None):
            await startup(sockets)
            started.set()

        server.startup = announced
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            assert started.wait(60)
            port = server.servers[0].sockets[0].getsockname()[1]
            yield SimpleNamespace(address=f"127.0.0.1:{port}", judge=judge)
        finally:
            server.should_exit = True
            thread.join()


def verl_config(tmp_path, model, **reward_model):
    path = tmp_path / "reward.yaml"
    path.write_text(
        "components: {quality: {judge: quality}}\n"
        "judges:\n"
        "  quality:\n"
        f"    endpoints: [{{base_url: verl, model: {model}}}]\n"
        "    verdict: {integer: [1, 10]}\n"
        "traffic: {hedge: off}\n"
        "cache: off\n"
    )
    served = {"enable": True, "enable_resource_pool": True, "model_path": model, **reward_model}
    return OmegaConf.create(
        {
            "trainer": {"v1": {"trainer_mode": "sync", "sampler": {}}},
            "data": {"train_batch_size": 4},
            "actor_rollout_ref": {
                "rollout": {"n": 4},
                "model": {"path": model, "tokenizer_path": None},
            },
            "reward": {
                "num_workers": 1,
                "custom_reward_function": {"path": "pkg://zerowait.verl", "name": "compute_score"},
                "reward_manager": {"source": "register", "name": "zerowait"},
                "reward_model": served,
                "zerowait": {"config": str(path), "record": None},
            },
            "algorithm": {"adv_estimator": "grpo"},
        }
    )


def batch(tokenizer):
    tokens = torch.tensor([tokenizer.encode(RESPONSE)])
    columns = {
        "uid": "u",
        "session_id": 0,
        "global_steps": 1,
        "raw_prompt": [{"role": "user", "content": "Capital of France?"}],
        "data_source": "capitals",
        "reward_model": {"ground_truth": "Paris"},
        "extra_info": {"split": "train", "group_size": 1},
        "tool_extra_fields": {"response_mask": [1] * tokens.shape[1]},
    }
    arrays = {}
    for column, value in columns.items():
        arrays[column] = np.empty(1, dtype=object)
        arrays[column][0] = value
    mask = torch.ones(1, 2 + tokens.shape[1])
    return DataProto.from_dict(
        tensors={"responses": tokens, "attention_mask": mask}, non_tensors=arrays
    )


def test_verls_worker_is_given_the_router_that_our_hub_asks(
    ray_here, reference, monkeypatch, tmp_path, model, router
):
    made = []

    def get_actor(name):
        """As Ray: no worker of this name until verl's trainer has made it."""
        if name != "reward_loop_worker_0" or not made:
            raise ValueError(name)

        async def call(function):
            return function(made[0])

        return SimpleNamespace(
            __ray_call__=SimpleNamespace(remote=lambda function: reference(call(function)))
        )

    monkeypatch.setattr(ray, "get_actor", get_actor)
    monkeypatch.setattr(ray, "cluster_resources", dict)
    monkeypatch.setattr(servers, "_PAUSE_S", 0.01)

    async def scenario():
        worker = RewardLoopWorker(verl_config(tmp_path, model), router.address)
        made.append(worker)
        result = await worker.compute_score(batch(worker.input_tokenizer))
        await ray_here[0].actor.aclose(0.0)
        return result

    result = asyncio.run(scenario())
    assert result["reward_score"] == 7.0
    assert router.judge.seen.requests == 1


async def manager(config, address):
    """Made on a loop, as verl does: without one its base class makes one and leaves it open."""
    return zerowait.verl.rewards.manager.RewardManager(config, None, reward_router_address=address)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (
            {"enable": False},
            (
                r"endpoints\[0\]\.base_url is verl, and verl serves no reward model beside the rollout: "
                r"set reward.reward_model.enable=True, and reward.reward_model.model_path"
            ),
        ),
        (
            {"enable_resource_pool": False},
            r"set reward.reward_model.enable_resource_pool=True, and",
        ),
        ({"model_path": None}, r"base_url is verl, and verl is told no model"),
        ({"model_path": "/other"}, r"\.model is .*, and verl serves /other .*: write that"),
    ],
)
def test_what_verl_is_not_told_is_named(tmp_path, model, changed, says):
    config = verl_config(tmp_path, model, **changed)
    with pytest.raises(ConfigError, match=says):
        asyncio.run(manager(config, "h:1"))


def test_a_manager_without_a_router_says_so(tmp_path, model):
    with pytest.raises(ConfigError, match=r"gave its reward manager no reward_router_address"):
        asyncio.run(manager(verl_config(tmp_path, model), None))
