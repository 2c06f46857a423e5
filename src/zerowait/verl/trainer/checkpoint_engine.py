"""verl's checkpoint engine ``gloo``: sends new weights over TCP to rollouts on other devices.

For machines without NCCL, and for the CPU. Importing this module registers it; verl imports it
with::

    actor_rollout_ref.rollout.checkpoint_engine.backend=gloo
    actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module=zerowait.verl.trainer.checkpoint_engine

The trainer's rank 0 sends and every rollout worker receives, both in host memory.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import msgspec
import ray
import torch
from torch import distributed
from torch.distributed import ProcessGroupGloo, TCPStore
from verl.checkpoint_engine.base import (
    CheckpointEngine,
    CheckpointEngineRegistry,
    TensorMeta,
    merge_weight_chunks,
    split_weight_chunks,
)

from zerowait.errors import ConfigError, ZerowaitError

_SENDER = 0
_SOURCE_LINE = re.compile(r"^\[[^\]]*\] ")  # file and line in gloo, at the start of its errors


class WeightTransferError(ZerowaitError):
    """The trainer's weights did not reach the rollout workers."""


class Rendezvous(msgspec.Struct, frozen=True):
    """Address of the store at which the sender and its receivers meet."""

    host: str
    port: int


class RendezvousHost:
    """The store at which a group meets; keep it until the group is closed.

    Args:
        address: of this machine, as the receivers reach it.
        timeout_s: seconds to wait for a member.
    """

    def __init__(self, address: str, *, timeout_s: float) -> None:
        wait = timedelta(seconds=timeout_s)
        # Port 0: the store binds a free one.
        self._store = TCPStore(address, 0, is_master=True, wait_for_workers=False, timeout=wait)
        self.rendezvous = Rendezvous(address, self._store.port)


class WeightGroup:
    """A process group that broadcasts bytes from member 0 to all others.

    Args:
        rendezvous: the store at which the members meet.
        rank: of this member; 0 sends.
        size: number of members.
        address: of this machine, as the others reach it.
        timeout_s: seconds that each call waits for the others.

    Raises:
        WeightTransferError: not all members arrived in time.
    """

    def __init__(
        self, rendezvous: Rendezvous, *, rank: int, size: int, address: str, timeout_s: float
    ) -> None:
        self._me = "the trainer" if rank == _SENDER else f"rollout worker {rank} of {size - 1}"
        self._timeout = timedelta(seconds=timeout_s)
        self._group: Any = None
        with self._translated_errors(
            f"did not meet all {size} processes at {rendezvous.host}:{rendezvous.port}"
        ):
            store = TCPStore(
                rendezvous.host, rendezvous.port, wait_for_workers=False, timeout=self._timeout
            )
            options = ProcessGroupGloo._Options()  # noqa: SLF001 - torch has no other name for it
            options._timeout = self._timeout  # noqa: SLF001
            options._devices = [ProcessGroupGloo.create_device(hostname=address)]  # noqa: SLF001
            self._group = ProcessGroupGloo(store, rank, size, options)

    def send(self, header: bytes, payload: torch.Tensor) -> None:
        """Send header and payload to every receiver.

        Args:
            header: at least one byte.
            payload: of shape (bytes,) and dtype uint8, in host memory.

        Raises:
            WeightTransferError: a receiver has failed, or did not receive in time.
        """
        with self._translated_errors(f"could not send {payload.numel()} bytes"):
            self._broadcast(torch.tensor([len(header), payload.numel()]))
            self._broadcast(torch.frombuffer(bytearray(header), dtype=torch.uint8))
            if payload.numel():
                self._broadcast(payload)

    def receive(self) -> tuple[bytes, torch.Tensor]:
        """The next header and payload, of shape (bytes,) and dtype uint8, in memory of its own.

        Raises:
            WeightTransferError: the sender has failed, or sent nothing in time.
        """
        with self._translated_errors("did not get what the trainer sends"):
            header_bytes, payload_bytes = self._broadcast(
                torch.zeros(2, dtype=torch.int64)
            ).tolist()
            header = self._broadcast(torch.empty(header_bytes, dtype=torch.uint8))
            payload = torch.empty(payload_bytes, dtype=torch.uint8)
            if payload_bytes:
                self._broadcast(payload)
            return header.numpy().tobytes(), payload

    def close(self) -> None:
        """Leave the group, which ends it for the other members too. Idempotent."""
        self._group = None  # the last reference: gloo has no other way to close its connections

    def _broadcast(self, tensor: torch.Tensor) -> torch.Tensor:
        if self._group is None:
            raise WeightTransferError("the group was closed")
        options = distributed.BroadcastOptions()
        options.rootRank, options.rootTensor, options.timeout = _SENDER, 0, self._timeout
        self._group.broadcast([tensor], options).wait()
        return tensor

    @contextmanager
    def _translated_errors(self, what: str) -> Iterator[None]:
        """Translate gloo's errors to `WeightTransferError`; any error closes the group."""
        try:
            yield
        except RuntimeError as error:  # all that gloo and its store raise
            self.close()
            why = _SOURCE_LINE.sub("", str(error).splitlines()[0])
            raise WeightTransferError(
                f"{self._me} {what} (deadline {self._timeout.total_seconds():g} s): {why}"
            ) from None
        except BaseException:
            self.close()
            raise


CHECKPOINT_BACKEND = "gloo"
_TIMEOUT_S = 300.0
_ALIGNED = 16  # bytes: a tensor's view has to start at a multiple of its item size
_NOT_A_MEMBER = -1


class _Chunk(msgspec.Struct, frozen=True):
    """Describes a tensor, or a part of a large one, in a bucket; offsets and sizes in bytes."""

    name: str
    shape: list[int]
    dtype: str
    chunk_offset: int
    chunk_size: int
    offset: int


class _Bucket:
    """A buffer of `size` bytes in host memory that holds tensors one after the other."""

    def __init__(self, size: int) -> None:
        self._memory = torch.empty(size, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
        self._chunks: list[_Chunk] = []
        self._end = 0

    @property
    def empty(self) -> bool:
        return not self._chunks

    def fits(self, size: int) -> bool:
        return self._start + size <= self._memory.numel()

    def add(self, meta: TensorMeta, data: torch.Tensor) -> None:
        start = self._start
        self._end = start + meta.chunk_size
        self._memory[start : self._end].copy_(data)
        dtype = str(meta.dtype).removeprefix("torch.")
        self._chunks.append(
            _Chunk(meta.name, list(meta.shape), dtype, meta.chunk_offset, meta.chunk_size, start)
        )

    def take(self) -> tuple[bytes, torch.Tensor]:
        """The chunks' description as JSON, and their bytes; the bucket is empty afterwards."""
        header, payload = msgspec.json.encode(self._chunks), self._memory[: self._end]
        self._chunks, self._end = [], 0
        return header, payload

    @property
    def _start(self) -> int:
        return -(-self._end // _ALIGNED) * _ALIGNED


def _unpacked(header: bytes, payload: torch.Tensor) -> Iterator[tuple[TensorMeta, torch.Tensor]]:
    for chunk in msgspec.json.decode(header, type=list[_Chunk]):
        meta = TensorMeta(
            name=chunk.name,
            shape=torch.Size(chunk.shape),
            dtype=getattr(torch, chunk.dtype),
            chunk_offset=chunk.chunk_offset,
            chunk_size=chunk.chunk_size,
            offset=chunk.offset,
        )
        yield meta, payload[chunk.offset : chunk.offset + chunk.chunk_size]


@CheckpointEngineRegistry.register(CHECKPOINT_BACKEND)
class GlooCheckpointEngine(CheckpointEngine):
    """verl's checkpoint engine over gloo; each weight update has a process group of its own.

    Args:
        bucket_size: bytes sent at a time; each process holds a few times as many.
        is_master: whether this is the trainer's rank 0.
        timeout_s: seconds to wait for a bucket, or for a process at the start
            (``checkpoint_engine.engine_kwargs.gloo.timeout_s``).

    Raises:
        ConfigError: `timeout_s` is no number of seconds above 0.
    """

    def __init__(
        self, bucket_size: int, *, is_master: bool = False, timeout_s: float = _TIMEOUT_S
    ) -> None:
        number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
        if not (number and math.isfinite(timeout_s) and timeout_s > 0):
            raise ConfigError(
                "actor_rollout_ref.rollout.checkpoint_engine.engine_kwargs.gloo.timeout_s must be "
                f"a number of seconds above 0, not {timeout_s!r}"
            )
        self._bucket_bytes = bucket_size
        self._is_master = is_master
        self._timeout_s = float(timeout_s)
        self._host: RendezvousHost | None = None
        self._group: WeightGroup | None = None

    def prepare(self) -> Any:
        """The rendezvous, from the trainer's rank 0; None from all others."""
        self.finalize()  # after an update that failed
        if not self._is_master:
            return None
        self._host = RendezvousHost(_address(), timeout_s=self._timeout_s)
        return self._host.rendezvous

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Arguments of `init_process_group` for the trainer's ranks and for the rollout workers.

        The trainer's rank 0 is member 0, the rollout workers follow; its other ranks are not
        members.

        Args:
            actor_wg_world_size: number of trainer ranks.
            rollout_world_size: number of rollout workers.
            metadata: results of `prepare`, by trainer rank.
        """
        size, rendezvous = 1 + rollout_world_size, metadata[0]
        outside = actor_wg_world_size - 1
        trainer = {
            "rank": [0, *[_NOT_A_MEMBER] * outside],
            "world_size": [size] * actor_wg_world_size,
            "rendezvous": [rendezvous] * actor_wg_world_size,
        }
        rollouts = {
            "rank": list(range(1, size)),
            "world_size": [size] * rollout_world_size,
            "rendezvous": [rendezvous] * rollout_world_size,
        }
        return trainer, rollouts

    def init_process_group(self, *, rank: int, world_size: int, rendezvous: Rendezvous) -> None:
        """Join the process group; does nothing on a trainer rank that is no member.

        Args:
            rank: of this member; -1 for no member.
            world_size: number of members.
            rendezvous: the store at which they meet.

        Raises:
            WeightTransferError: not all members arrived in time.
        """
        if rank == _NOT_A_MEMBER:
            return
        self._group = WeightGroup(
            rendezvous, rank=rank, size=world_size, address=_address(), timeout_s=self._timeout_s
        )

    @torch.no_grad()
    async def send_weights(
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None
    ) -> None:
        """Send all weights; every trainer rank has to call this and iterates to the end.

        Gathering a weight is a collective operation: a rank that stopped would block the others.

        Args:
            weights: names and tensors of any shape.
            global_steps: not used.

        Raises:
            WeightTransferError: the weights did not reach every rollout worker.
        """
        del global_steps
        if self._is_master and self._group is None:
            raise RuntimeError("weights are sent before init_process_group")
        left = iter(weights)
        try:
            if self._group is not None:
                await self._send(left, self._group)
        finally:
            for _ in left:
                pass

    async def _send(self, weights: Iterator[tuple[str, torch.Tensor]], group: WeightGroup) -> None:
        try:
            bucket = _Bucket(self._bucket_bytes)
            plain = ((name, tensor.detach().contiguous()) for name, tensor in weights)
            async for meta, data in split_weight_chunks(plain, self._bucket_bytes):
                if not bucket.fits(meta.chunk_size):
                    await asyncio.to_thread(group.send, *bucket.take())
                bucket.add(meta, data)
            if not bucket.empty:
                await asyncio.to_thread(group.send, *bucket.take())
            await asyncio.to_thread(group.send, *bucket.take())  # an empty bucket marks the end
        except BaseException:
            self.finalize()  # so that the receivers fail now and not at their deadline
            raise

    async def receive_weights(
        self, global_steps: int | None = None
    ) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """The names and tensors of the weights, in host memory.

        Raises:
            WeightTransferError: the trainer has failed, or sent nothing in time.
        """
        del global_steps
        if self._group is None:
            raise RuntimeError("weights are received before init_process_group")
        ended = False
        try:
            chunks = _received(self._group)
            async for named in merge_weight_chunks(chunks, self._bucket_bytes):
                yield named
            ended = True
        finally:
            if not ended:
                self.finalize()  # so that the trainer fails now and not at its deadline

    def finalize(self) -> None:
        """Leave the group and close its store. Idempotent."""
        if self._group is not None:
            self._group.close()
        self._group = self._host = None


async def _received(group: WeightGroup) -> AsyncIterator[tuple[TensorMeta, torch.Tensor]]:
    """The chunks that the sender sends, until its empty bucket."""
    while True:
        header, payload = await asyncio.to_thread(group.receive)
        if not payload.numel():
            return
        for chunk in _unpacked(header, payload):
            yield chunk


def _address() -> str:
    """This machine's address in the Ray cluster."""
    return str(ray.util.get_node_ip_address()).strip("[]")
