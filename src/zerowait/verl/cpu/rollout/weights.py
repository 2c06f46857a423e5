"""Transfer of new weights from the trainer to a rollout server, complete or an error.

Tensors are sent as NumPy bytes, which Ray passes through shared memory without a copy, in buckets,
so that no process ever holds a second model.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from zerowait.errors import ZerowaitError

PackedTensor: TypeAlias = tuple[str, str, tuple[int, ...], Any]
"""Name, dtype, shape and bytes of one tensor."""


class WeightMismatchError(ZerowaitError):
    """The weights that were sent do not match the receiving model."""


def pack(name: str, tensor: torch.Tensor) -> PackedTensor:
    """A tensor as bytes that Ray passes without a copy; works for bfloat16, which NumPy lacks."""
    flat = tensor.detach().to("cpu").contiguous().reshape(-1)
    dtype = str(flat.dtype).removeprefix("torch.")
    return name, dtype, tuple(tensor.shape), flat.view(torch.uint8).numpy()


async def buckets(
    weights: Iterable[tuple[str, torch.Tensor]] | AsyncIterator[tuple[str, torch.Tensor]],
    *,
    limit_bytes: int,
    dtype: torch.dtype,
) -> AsyncIterator[list[PackedTensor]]:
    """The weights in buckets of at most `limit_bytes`, or of one larger tensor.

    Args:
        weights: names and tensors. Gathering one may be a collective operation, so every rank has
            to iterate to the end.
        limit_bytes: size of a bucket.
        dtype: to which floating-point tensors are converted.
    """
    bucket: list[PackedTensor] = []
    held = 0
    async for name, tensor in _iterate(weights):
        packed = pack(name, tensor.to(dtype) if tensor.is_floating_point() else tensor)
        size = packed[3].nbytes
        if bucket and held + size > limit_bytes:
            yield bucket
            bucket, held = [], 0
        bucket.append(packed)
        held += size
    if bucket:
        yield bucket


class WeightLoader:
    """Loads new weights into a model and checks that they are complete.

    Args:
        model: gets the new weights in place.
    """

    def __init__(self, model: Any) -> None:
        self._targets: dict[str, torch.Tensor] = model.state_dict()
        self._loaded: set[int] = set()

    def load(self, bucket: Sequence[PackedTensor]) -> None:
        """Write one bucket into the model.

        Raises:
            WeightMismatchError: the model has no weight of that name and shape.
        """
        for name, dtype, shape, data in bucket:
            target = self._targets.get(name)
            if target is None:
                raise WeightMismatchError(f"the rollout's model has no weight {name!r}")
            if tuple(target.shape) != tuple(shape):
                raise WeightMismatchError(
                    f"{name} has shape {tuple(target.shape)} in the rollout's model "
                    f"and {tuple(shape)} in the trainer's"
                )
            _write(target, dtype, data)
            self._loaded.add(target.data_ptr())

    def finish(self) -> int:
        """The number of weights that were loaded, tied ones counted once.

        Raises:
            WeightMismatchError: a weight of the model was not sent.
        """
        missing = [
            name
            for name, target in self._targets.items()
            if target.numel() and target.data_ptr() not in self._loaded
        ]
        if missing:
            raise WeightMismatchError(
                f"{len(missing)} weights of the rollout's model were not sent: "
                f"{', '.join(missing[:5])}{' ...' if len(missing) > 5 else ''}"
            )
        return len(self._loaded)


def _write(target: torch.Tensor, dtype: str, data: Any) -> None:
    source_dtype = getattr(torch, dtype)
    if target.device.type == "cpu" and target.dtype == source_dtype and target.is_contiguous():
        np.copyto(target.detach().reshape(-1).view(torch.uint8).numpy(), data)
        return
    # A copy: Ray's arrays are read-only, which torch does not support.
    source = torch.from_numpy(np.array(data)).view(source_dtype)
    with torch.no_grad():
        target.copy_(source.reshape(target.shape))


async def _iterate(
    weights: Iterable[tuple[str, torch.Tensor]] | AsyncIterator[tuple[str, torch.Tensor]],
) -> AsyncIterator[tuple[str, torch.Tensor]]:
    if isinstance(weights, AsyncIterator):
        async for item in weights:
            yield item
        return
    for item in weights:
        yield item
