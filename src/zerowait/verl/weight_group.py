"""One sender and its receivers over gloo, from one update of the weights to its end.

A group of its own beside torch's default one, because trainer and rollouts are two worlds of
processes. Every call has a deadline, and whoever closes, or dies, ends the calls of the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import msgspec
import torch
from torch import distributed
from torch.distributed import ProcessGroupGloo, TCPStore

from zerowait.errors import ZerowaitError

_SENDER = 0
_PLACE = re.compile(r"^\[[^\]]*\] ")  # the file and line in gloo that an error begins with


class WeightTransferError(ZerowaitError):
    """The trainer's weights did not reach the rollout workers."""


class Meeting(msgspec.Struct, frozen=True):
    """Where the sender waits for its receivers."""

    host: str
    port: int


class Host:
    """Where a group meets; to be kept until the group is closed.

    Args:
        address: of this machine, as the receivers reach it.
        timeout_s: how long a member may be waited for.
    """

    def __init__(self, address: str, *, timeout_s: float) -> None:
        wait = timedelta(seconds=timeout_s)
        # Port 0: one that is free, and bound from here on.
        self._store = TCPStore(address, 0, is_master=True, wait_for_workers=False, timeout=wait)
        self.meeting = Meeting(address, self._store.port)


class WeightGroup:
    """Bytes from member 0 to all others.

    Args:
        meeting: where the members meet.
        rank: which member this is; 0 sends.
        size: how many there are.
        address: of this machine, as the others reach it.
        timeout_s: how long each call waits for the others.

    Raises:
        WeightTransferError: not all members came in time.
    """

    def __init__(
        self, meeting: Meeting, *, rank: int, size: int, address: str, timeout_s: float
    ) -> None:
        self._me = "the trainer" if rank == _SENDER else f"rollout worker {rank} of {size - 1}"
        self._timeout = timedelta(seconds=timeout_s)
        self._group: Any = None
        with self._told(f"did not meet all {size} processes at {meeting.host}:{meeting.port}"):
            store = TCPStore(
                meeting.host, meeting.port, wait_for_workers=False, timeout=self._timeout
            )
            options = ProcessGroupGloo._Options()  # noqa: SLF001 - torch has no other name for it
            options._timeout = self._timeout  # noqa: SLF001
            options._devices = [ProcessGroupGloo.create_device(hostname=address)]  # noqa: SLF001
            self._group = ProcessGroupGloo(store, rank, size, options)

    def send(self, header: bytes, payload: torch.Tensor) -> None:
        """Hand both to every receiver.

        Args:
            header: at least one byte.
            payload: of dtype uint8, in the host's memory.

        Raises:
            WeightTransferError: a receiver is gone, or did not take it in time.
        """
        with self._told(f"could not send {payload.numel()} bytes"):
            self._broadcast(torch.tensor([len(header), payload.numel()]))
            self._broadcast(torch.frombuffer(bytearray(header), dtype=torch.uint8))
            if payload.numel():
                self._broadcast(payload)

    def receive(self) -> tuple[bytes, torch.Tensor]:
        """What the sender sends next, in memory that nobody else writes to.

        Raises:
            WeightTransferError: the sender is gone, or sent nothing in time.
        """
        with self._told("did not get what the trainer sends"):
            header_bytes, payload_bytes = self._broadcast(
                torch.zeros(2, dtype=torch.int64)
            ).tolist()
            header = self._broadcast(torch.empty(header_bytes, dtype=torch.uint8))
            payload = torch.empty(payload_bytes, dtype=torch.uint8)
            if payload_bytes:
                self._broadcast(payload)
            return header.numpy().tobytes(), payload

    def close(self) -> None:
        """Leave the group, which ends it for the others, too. Safe to call twice."""
        self._group = None  # the last reference: gloo has no other way to close its connections

    def _broadcast(self, tensor: torch.Tensor) -> torch.Tensor:
        if self._group is None:
            raise WeightTransferError("the group was closed")
        options = distributed.BroadcastOptions()
        options.rootRank, options.rootTensor, options.timeout = _SENDER, 0, self._timeout
        self._group.broadcast([tensor], options).wait()
        return tensor

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """The errors of gloo in our words; whatever fails closes the group."""
        try:
            yield
        except RuntimeError as error:  # all that gloo and its store raise
            self.close()
            why = _PLACE.sub("", str(error).splitlines()[0])
            raise WeightTransferError(
                f"{self._me} {what} (deadline {self._timeout.total_seconds():g} s): {why}"
            ) from None
        except BaseException:
            self.close()
            raise
