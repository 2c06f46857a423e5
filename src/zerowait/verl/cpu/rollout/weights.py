"""New weights on their way from the trainer to a rollout server, and nothing lost underway.

Tensors travel as NumPy bytes, which Ray moves through shared memory without copying them again,
in buckets, so that no process ever holds a second model.
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
    """The weights that were sent are not the weights of the model that received them."""


def pack(name: str, tensor: torch.Tensor) -> PackedTensor:
    """`tensor` in a form that Ray moves without copying; bfloat16 included, which NumPy lacks."""
    flat = tensor.detach().to("cpu").contiguous().reshape(-1)
    dtype = str(flat.dtype).removeprefix("torch.")
    return name, dtype, tuple(tensor.shape), flat.view(torch.uint8).numpy()


async def buckets(
    weights: Iterable[tuple[str, torch.Tensor]] | AsyncIterator[tuple[str, torch.Tensor]],
    *,
    limit_bytes: int,
    dtype: torch.dtype,
) -> AsyncIterator[list[PackedTensor]]:
    """The weights in portions of at least one tensor and, beyond that, at most `limit_bytes`.

    Args:
        weights: names and tensors; gathering each may be a collective operation, so that every
            rank has to take all of them.
        limit_bytes: size of a portion.
        dtype: what floating-point tensors become before they travel.
    """
    bucket: list[PackedTensor] = []
    held = 0
    async for name, tensor in _each(weights):
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
    """Receives all weights of `model`, or says which did not fit.

    Args:
        model: gets the new weights in place.
    """

    def __init__(self, model: Any) -> None:
        self._targets: dict[str, torch.Tensor] = model.state_dict()
        self._loaded: set[int] = set()

    def load(self, bucket: Sequence[PackedTensor]) -> None:
        """Write one portion into the model.

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
        """The number of weights that were received, tied ones counted once.

        Raises:
            WeightMismatchError: a weight of the model was not among those received.
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
    # A copy of our own: what Ray hands out is read-only, which torch cannot express.
    source = torch.from_numpy(np.array(data)).view(source_dtype)
    with torch.no_grad():
        target.copy_(source.reshape(target.shape))


async def _each(
    weights: Iterable[tuple[str, torch.Tensor]] | AsyncIterator[tuple[str, torch.Tensor]],
) -> AsyncIterator[tuple[str, torch.Tensor]]:
    if isinstance(weights, AsyncIterator):
        async for item in weights:
            yield item
        return
    for item in weights:
        yield item
