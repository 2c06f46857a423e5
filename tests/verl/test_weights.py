import asyncio

import numpy as np
import pytest
import torch

from zerowait.verl.cpu.rollout.weights import WeightLoader, WeightMismatchError, buckets, pack

from .conftest import small_model


def sent(weights, *, limit_bytes=1 << 30, dtype=torch.float32):
    async def collect():
        return [bucket async for bucket in buckets(weights, limit_bytes=limit_bytes, dtype=dtype)]

    return asyncio.run(collect())


def transfer(source, target, **how):
    loader = WeightLoader(target)
    for bucket in sent(source.state_dict().items(), **how):
        loader.load(bucket)
    return loader.finish()


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("tied", [True, False])
def test_a_model_receives_every_weight_of_another(tied):
    trainer, rollout = small_model(tied=tied, seed=1), small_model(tied=tied, seed=2)
    assert not same(trainer, rollout)
    assert transfer(trainer, rollout) == len(list(trainer.parameters()))
    assert same(trainer, rollout)


def test_a_tied_weight_may_be_sent_once():
    trainer, rollout = small_model(seed=1), small_model(seed=2)
    loader = WeightLoader(rollout)
    state = trainer.state_dict()
    state.pop("lm_head.weight")
    for bucket in sent(state.items()):
        loader.load(bucket)
    loader.finish()
    assert torch.equal(rollout.lm_head.weight, trainer.lm_head.weight)


def test_a_trainer_in_float32_feeds_a_rollout_in_bfloat16():
    trainer, rollout = small_model(seed=1), small_model(seed=2).to(torch.bfloat16)
    transfer(trainer, rollout, dtype=torch.bfloat16)
    weight = trainer.model.norm.weight.to(torch.bfloat16)
    assert torch.equal(rollout.model.norm.weight, weight)


def test_a_missing_weight_is_an_error_that_names_it():
    loader = WeightLoader(small_model())
    state = small_model().state_dict()
    state.pop("model.norm.weight")
    for bucket in sent(state.items()):
        loader.load(bucket)
    with pytest.raises(WeightMismatchError, match=r"1 weights .* not sent: model\.norm\.weight"):
        loader.finish()


def test_an_unknown_weight_is_an_error_that_names_it():
    loader = WeightLoader(small_model())
    with pytest.raises(WeightMismatchError, match=r"no weight 'lora\.A'"):
        loader.load([pack("lora.A", torch.zeros(2))])


def test_a_weight_of_another_shape_is_an_error_that_names_both():
    loader = WeightLoader(small_model())
    with pytest.raises(WeightMismatchError, match=r"\(32,\).*\(31,\)"):
        loader.load([pack("model.norm.weight", torch.zeros(31))])


def test_read_only_memory_as_ray_hands_it_out_can_be_loaded():
    rollout = small_model()
    name, dtype, shape, data = pack("model.norm.weight", torch.full((32,), 3.0))
    data = data.copy()
    data.flags.writeable = False
    WeightLoader(rollout).load([(name, dtype, shape, data)])
    assert torch.equal(rollout.model.norm.weight, torch.full((32,), 3.0))


def test_buckets_hold_every_weight_once_and_at_most_the_limit():
    weights = [(str(at), torch.zeros(size)) for at, size in enumerate([10, 10, 10, 100, 10])]
    portions = sent(weights, limit_bytes=80)
    assert [[name for name, *_ in bucket] for bucket in portions] == [
        ["0", "1"],
        ["2"],
        ["3"],
        ["4"],
    ]
    assert all(
        sum(data.nbytes for *_, data in bucket) <= 80 for bucket in portions if len(bucket) > 1
    )


def test_weights_may_come_from_an_asynchronous_source():
    async def source():
        yield "a", torch.ones(2)

    ((packed,),) = sent(source())
    assert packed[0] == "a"
    assert np.array_equal(packed[3].view(np.float32), [1, 1])
