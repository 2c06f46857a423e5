"""New weights from one process to another, as verl's checkpoint engine `gloo` sends them."""

import asyncio
import hashlib
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
import torch
from verl.checkpoint_engine.base import CheckpointEngineRegistry

from zerowait.errors import ConfigError
from zerowait.verl.trainer.checkpoint_engine import (
    GlooCheckpointEngine,
    RendezvousHost,
    WeightGroup,
    WeightTransferError,
)

pytestmark = pytest.mark.wire
BUCKET = 1024
LONG_S = 60
RECEIVER = """
import asyncio, hashlib, json, os, sys, warnings
warnings.simplefilter("ignore")
import torch
from zerowait.verl.trainer.checkpoint_engine import GlooCheckpointEngine
from zerowait.verl.trainer.checkpoint_engine import Rendezvous

def fingerprint(tensor):
    data = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
    return [str(tensor.dtype), list(tensor.shape), hashlib.sha256(data).hexdigest()]

async def receive(engine, end):
    got = {}
    weights = engine.receive_weights(global_steps=1)
    async for name, tensor in weights:
        if end == "dies":
            os._exit(1)
        if end == "leaves":
            await weights.aclose()
            break
        got[name] = tensor  # to the end: a bucket must not overwrite the one before
    return {name: fingerprint(tensor) for name, tensor in got.items()}

for line in sys.stdin:
    order = json.loads(line)
    engine = GlooCheckpointEngine(order["bucket"], timeout_s=order["timeout_s"])
    try:
        assert engine.prepare() is None
        rendezvous = Rendezvous(**order["rendezvous"])
        engine.init_process_group(rank=order["rank"], world_size=order["size"], rendezvous=rendezvous)
        answer = asyncio.run(receive(engine, order["end"]))
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    engine.finalize()
    print(json.dumps(answer), flush=True)
"""


def fingerprint(tensor):
    data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return [str(tensor.dtype), list(tensor.shape), hashlib.sha256(data).hexdigest()]


class Rollouts:
    """A process that receives; a new one when it has died."""

    def __init__(self):
        self.process = None

    def order(self, **what):
        if self.process is None or self.process.poll() is not None:
            self.close()
            self.process = subprocess.Popen(
                [sys.executable, "-c", RECEIVER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def answer(self):
        return json.loads(self.process.stdout.readline())

    def close(self):
        if self.process is not None:
            self.process.kill()
            self.process.communicate()


@pytest.fixture(scope="module")
def rollouts():
    running = Rollouts()
    yield running
    running.close()


@pytest.fixture
def trainer():
    engine = CheckpointEngineRegistry.new(
        "gloo", bucket_size=BUCKET, is_master=True, timeout_s=LONG_S
    )
    yield engine
    engine.finalize()


def update(trainer, rollouts, weights, *, end="all"):
    """One update as verl's manager makes it: a trainer of two ranks, of which one sends."""
    metadata = [trainer.prepare(), None, None]
    ours, theirs = GlooCheckpointEngine.build_topology(2, 1, metadata)
    assert ours["rank"] == [0, -1]
    rollouts.order(
        bucket=BUCKET,
        timeout_s=LONG_S,
        rendezvous=msgspec.to_builtins(metadata[0]),
        rank=theirs["rank"][0],
        size=theirs["world_size"][0],
        end=end,
    )
    trainer.init_process_group(**{name: values[0] for name, values in ours.items()})
    asyncio.run(trainer.send_weights(weights, global_steps=1))
    trainer.finalize()


def all_kinds(seed):
    torch.manual_seed(seed)
    return {
        "halves": torch.randn(3, 5).to(torch.bfloat16),
        "after an odd number of bytes": torch.randn(7),
        "truth": torch.rand(9) > 0.5,
        "a number": torch.tensor(seed),
        "larger than a bucket": torch.randn(40, 41),
        "transposed": torch.randn(6, 4).T,
        "as large as a bucket": torch.randn(BUCKET // 4),
        "last": torch.randn(2, dtype=torch.float64),
    }


def large():
    """More than the connection holds when no one reads."""
    return {f"layer {at}": torch.full((1 << 20,), float(at)) for at in range(24)}


def test_a_rollout_receives_each_update_bit_for_bit(trainer, rollouts):
    for seed in (1, 2):
        weights = all_kinds(seed)
        update(trainer, rollouts, weights.items())
        assert rollouts.answer() == {name: fingerprint(w) for name, w in weights.items()}


@pytest.mark.parametrize("end", ["leaves", "dies"])
def test_a_rollout_that_is_gone_is_an_error_after_which_the_next_update_works(
    trainer, rollouts, end
):
    left = iter(large().items())
    with pytest.raises(WeightTransferError, match=r"the trainer could not send \d+ bytes .*peer"):
        update(trainer, rollouts, left, end=end)
    assert list(left) == []  # to gather a weight takes every rank of the trainer
    if end == "leaves":
        assert rollouts.answer() == {}
    else:
        rollouts.process.wait(LONG_S)
    update(trainer, rollouts, all_kinds(3).items())
    assert set(rollouts.answer()) == set(all_kinds(3))


def test_a_trainer_that_fails_keeps_no_rollout_waiting(trainer, rollouts):
    def broken():
        yield from all_kinds(4).items()
        raise ArithmeticError("no such shard")

    with pytest.raises(ArithmeticError, match="no such shard"):
        update(trainer, rollouts, broken())
    error = rollouts.answer()["error"]
    assert error.startswith(
        "WeightTransferError: rollout worker 1 of 1 did not get what the trainer sends"
    )


def test_a_rank_that_sends_nothing_takes_part_in_gathering_every_weight():
    engine = GlooCheckpointEngine(BUCKET)
    ours, _ = GlooCheckpointEngine.build_topology(2, 1, [engine.prepare(), None, None])
    engine.init_process_group(**{name: values[1] for name, values in ours.items()})
    left = iter(all_kinds(5).items())
    asyncio.run(engine.send_weights(left))
    assert list(left) == []


def group(host, rank, timeout_s):
    address = host.rendezvous.host
    return WeightGroup(host.rendezvous, rank=rank, size=2, address=address, timeout_s=timeout_s)


def test_a_rollout_that_never_comes_ends_in_an_error():
    host = RendezvousHost("127.0.0.1", timeout_s=0.5)
    with pytest.raises(
        WeightTransferError, match=r"the trainer did not meet .* \(deadline 0.5 s\)"
    ):
        group(host, 0, 0.5)


def test_a_trainer_that_is_silent_ends_in_an_error_and_closes_the_group():
    host = RendezvousHost("127.0.0.1", timeout_s=LONG_S)
    with ThreadPoolExecutor() as pool:
        joining = [pool.submit(group, host, rank, 1.0) for rank in (0, 1)]
        _trainer, rollout = (joined.result() for joined in joining)
    with pytest.raises(
        WeightTransferError, match=r"rollout worker 1 of 1 did not get .* \(deadline 1 s\)"
    ):
        rollout.receive()
    with pytest.raises(WeightTransferError, match="closed"):
        rollout.receive()


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf"), "300", True])
def test_a_deadline_is_a_number_of_seconds(timeout_s):
    with pytest.raises(ConfigError, match=r"engine_kwargs\.gloo\.timeout_s must be"):
        GlooCheckpointEngine(BUCKET, timeout_s=timeout_s)


@pytest.mark.parametrize("is_master", [True, False])
def test_weights_without_a_group_are_an_error_and_not_silence(is_master):
    async def take(engine):
        return [named async for named in engine.receive_weights()]

    engine = GlooCheckpointEngine(BUCKET, is_master=is_master)
    with pytest.raises(RuntimeError, match="before init_process_group"):
        asyncio.run(engine.send_weights([]) if is_master else take(engine))
