"""A response that an update of the weights interrupts, as verl's asynchronous client takes it up."""

import asyncio
from types import SimpleNamespace

import pytest
from verl.workers.rollout import llm_server
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient

from zerowait.verl.cpu.rollout.weights import pack

from .conftest import small_model
from .test_rollout_server import PROMPT, files, serve  # noqa: F401 - fixtures
from .test_rollout_server import rollout as rollout_config

LENGTH = 400
SAMPLING = {"temperature": 0, "logprobs": True}


class Calls:
    """A Ray actor's methods, in this process."""

    def __init__(self, target):
        self._target = target

    def __getattr__(self, name):
        return SimpleNamespace(remote=getattr(self._target, name))


class OneServer:
    """verl's load balancer, with nothing to choose from."""

    def __init__(self, server):
        self._server = server

    async def require_acquire_fields(self):
        return ()

    async def require_release_fields(self):
        return ()

    async def acquire_server(self, request_id):
        del request_id
        return "one", Calls(self._server)

    def release_server(self, server_id):
        assert server_id == "one"


@pytest.fixture(autouse=True)
def no_rest(monkeypatch):
    """verl waits a second before it asks for the rest."""
    real = asyncio.sleep
    brief = SimpleNamespace(**{**vars(asyncio), "sleep": lambda _: real(0.001)})
    monkeypatch.setattr(llm_server, "asyncio", brief)


def client(server):
    config = SimpleNamespace(
        actor_rollout_ref=SimpleNamespace(
            rollout=rollout_config(name="transformers", response_length=LENGTH)
        )
    )
    return FullyAsyncLLMServerClient(config, load_balancer_handle=Calls(OneServer(server)))


async def more_tokens(server, count):
    """Waits until the server has written so many more."""
    goal = (await server.stats()).tokens + count
    for _ in range(100_000):
        if (await server.stats()).tokens >= goal:
            return
        await asyncio.sleep(0.001)
    pytest.fail("nothing is written")


async def renew(server, model, step):
    """As verl's manager goes on after an abort: free the cache, new weights, everything back."""
    await server.release_kv_cache()
    await server.begin_update()
    await server.load_weights([pack(*named) for named in model.state_dict().items()])
    await server.finish_update(step)
    await server.resume_kv_cache()
    await server.resume_generation()


def test_no_token_is_lost_or_repeated_by_two_interruptions(serve):  # noqa: F811
    async def work(server):
        ask = client(server).generate
        whole = await ask("r", prompt_ids=PROMPT, sampling_params=SAMPLING)
        task = asyncio.create_task(ask("r", prompt_ids=PROMPT, sampling_params=SAMPLING))
        for step in (1, 2):
            await more_tokens(server, 20)
            assert not task.done()
            await server.abort_all_requests(reject_request=False)
            await renew(server, small_model(), step)
        parted = await task
        assert parted.token_ids == whole.token_ids
        assert len(parted.token_ids) == LENGTH
        assert parted.log_probs == pytest.approx(whole.log_probs, abs=1e-4)
        assert parted.stop_reason == whole.stop_reason == "length"
        steps = [parted.extra_fields[f"{end}_global_steps"] for end in ("min", "max")]
        assert steps == [0, 2]

    serve(work, response_length=LENGTH)


def test_what_is_asked_for_during_an_update_is_answered_by_the_new_weights(serve):  # noqa: F811
    new = small_model(seed=9)

    async def work(server):
        ask = client(server).generate
        await server.abort_all_requests(reject_request=False)
        task = asyncio.create_task(ask("r", prompt_ids=PROMPT, sampling_params=SAMPLING))
        await asyncio.sleep(0.01)
        await renew(server, new, 5)
        answer = await task
        assert answer.extra_fields["min_global_steps"] == 5
        assert len(answer.token_ids) == LENGTH

    serve(work, response_length=LENGTH)
