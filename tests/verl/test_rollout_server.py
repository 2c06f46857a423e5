import asyncio
from types import SimpleNamespace

import pytest
import torch

from zerowait.errors import ConfigError
from zerowait.verl.cpu.rollout.server import TransformersServer
from zerowait.verl.cpu.rollout.weights import WeightMismatchError, pack

from .conftest import small_model

PROMPT = [5, 9, 11]
GREEDY = {"temperature": 0, "logprobs": True}


def rollout(**more):
    settings = {
        "engine_kwargs": {"transformers": {"quiet_s": 0.001}},
        "dtype": "float32",
        "seed": 42,
        "prompt_length": 16,
        "response_length": 8,
        "max_model_len": None,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
        "gpu_memory_utilization": 0.5,
        "ignore_eos": True,
        "free_cache_engine": True,
    }
    return SimpleNamespace(**(settings | more))


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    model = small_model()
    model.save_pretrained(path)
    return SimpleNamespace(
        local_path=str(path),
        hf_config=model.config,
        trust_remote_code=False,
        generation_config=None,
    )


@pytest.fixture
def serve(files, tokenizer):
    """Runs ``work(server)`` on a fresh server and closes it."""

    def served(work, *, replica_rank=0, **more):
        async def main():
            config = SimpleNamespace(**vars(files), tokenizer=tokenizer)
            server = TransformersServer(
                rollout(**more), config, device="cpu", replica_rank=replica_rank
            )
            try:
                return await work(server)
            finally:
                await server.aclose()

        return asyncio.run(main())

    return served


async def update(server, model, *, step=None, without=()):
    await server.begin_update()
    state = model.state_dict()
    await server.load_weights(
        [pack(name, tensor) for name, tensor in state.items() if name not in without]
    )
    return await server.finish_update(step)


def test_a_response_has_tokens_log_probabilities_and_the_weights_version(serve):
    async def work(server):
        await server.set_global_steps(3)
        output = await server.generate("r", PROMPT, GREEDY)
        assert len(output.token_ids) == len(output.log_probs) == 8
        assert output.stop_reason == "completed"
        assert output.extra_fields == {"global_steps": 3}
        bare = await server.generate("r", PROMPT, {"temperature": 0})
        assert bare.log_probs is None
        assert bare.token_ids == output.token_ids

    serve(work)


def test_after_an_update_responses_come_from_the_new_weights(serve):
    new = small_model(seed=9)

    async def work(server):
        before = await server.generate("r", PROMPT, GREEDY)
        await server.sleep()
        await server.wake_up(tags=["weights"])
        assert await update(server, new, step=4) == len(list(new.parameters()))
        await server.wake_up(tags=["kv_cache"])
        after = await server.generate("r", PROMPT, GREEDY)
        assert after.extra_fields == {"global_steps": 4}
        assert after.token_ids != before.token_ids
        ids = torch.tensor([PROMPT + after.token_ids])
        with torch.no_grad():
            trained = new(input_ids=ids).logits.log_softmax(-1)[0, len(PROMPT) - 1 : -1]
        expected = trained.gather(1, torch.tensor(after.token_ids)[:, None])[:, 0]
        assert after.log_probs == pytest.approx(expected.tolist(), abs=1e-4)

    serve(work)


def test_an_incomplete_update_is_an_error_and_nothing_is_answered_with_it(serve):
    async def work(server):
        with pytest.raises(WeightMismatchError, match=r"model\.norm\.weight"):
            await update(server, small_model(seed=9), without={"model.norm.weight"})
        task = asyncio.create_task(server.generate("r", PROMPT, GREEDY))
        await asyncio.sleep(0.02)
        assert not task.done()
        await update(server, small_model(seed=9))
        assert len((await task).token_ids) == 8

    serve(work)


def test_a_sleeping_server_answers_when_it_is_woken(serve):
    async def work(server):
        await server.sleep()
        task = asyncio.create_task(server.generate("r", PROMPT, GREEDY))
        await server.wake_up(tags=["weights"])
        await asyncio.sleep(0.02)
        assert not task.done()
        await server.wake_up(tags=["kv_cache"])
        assert len((await task).token_ids) == 8

    serve(work)


def test_siblings_differ_and_a_second_run_repeats_them(serve):
    async def work(server):
        outputs = [await server.generate(f"r{at}", PROMPT, {"temperature": 1}) for at in range(3)]
        return [output.token_ids for output in outputs]

    first = serve(work)
    assert len({tuple(tokens) for tokens in first}) == 3
    assert serve(work) == first
    assert serve(work, replica_rank=1) != first
    assert serve(work, seed=43) != first


def test_a_request_may_bring_its_own_seed(serve):
    async def work(server):
        params = {"temperature": 1, "seed": 7}
        return [(await server.generate("r", PROMPT, params)).token_ids for _ in range(2)]

    one, other = serve(work)
    assert one == other


def test_a_long_prompt_leaves_a_shorter_response(serve):
    async def work(server):
        output = await server.generate("r", list(range(20)), {"temperature": 0})
        assert len(output.token_ids) == 4

    serve(work)


def test_a_prompt_that_fills_the_model_is_refused(serve):
    async def work(server):
        with pytest.raises(ValueError, match="no room"):
            await server.generate("r", list(range(30)), GREEDY)

    serve(work, max_model_len=30)


def test_images_are_refused_and_not_dropped(serve):
    async def work(server):
        with pytest.raises(ConfigError, match="image_data"):
            await server.generate("r", PROMPT, GREEDY, image_data=["x"], video_data=None)

    serve(work)


def test_an_abort_ends_what_runs_and_a_resume_takes_requests_again(serve):
    async def work(server):
        task = asyncio.create_task(server.generate("r", PROMPT, GREEDY))
        while not (await server.stats()).steps:  # noqa: ASYNC110 - counted in another thread
            await asyncio.sleep(0.001)
        assert await server.abort_all_requests() == {"aborted_count": 1}
        cut = await task
        assert cut.stop_reason == "aborted"
        assert 0 < len(cut.token_ids) == len(cut.log_probs) < 400
        await server.resume_generation()
        assert (await server.generate("r", PROMPT, GREEDY)).stop_reason == "completed"

    serve(work, response_length=400)


def test_a_dtype_that_torch_lacks_is_refused(serve):
    with pytest.raises(ConfigError, match="float31"):
        serve(None, dtype="float31")


@pytest.mark.parametrize("way", [GREEDY, {"temperature": 0.7}, {"temperature": 1.0, "top_p": 0.9}])
def test_a_validation_before_it_changes_no_response_of_the_training(serve, way):
    """A run that goes on from a checkpoint begins with one; a run that goes through does not."""
    training = {"temperature": 1.0, "top_p": 1.0}

    def responses(*before):
        async def work(server):
            await server.set_global_steps(3)
            for sampling in before:
                await server.generate("v", PROMPT, sampling)
            outputs = [await server.generate("r", PROMPT, training) for _ in range(2)]
            return [output.token_ids for output in outputs]

        return serve(work)

    assert responses(way, way) == responses()
