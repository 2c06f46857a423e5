"""verl's training worker with an update that comes in parts: gradients now, one step at the end.

Training workers import this module; it is not beside the trainer, whose import they need not pay.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, Final

import torch
from codetiming import Timer
from tensordict import TensorDict
from verl.single_controller.base.decorator import make_nd_compute_dataproto_dispatch_fn, register
from verl.utils import tensordict_utils as tu
from verl.utils.metric.utils import AggregationType, Metric
from verl.utils.py_functional import append_to_dict
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker

FIRST_PART: Final = "first_part"
LAST_PART: Final = "last_part"
TOKENS: Final = "step_tokens"
"""Names in a part's data: whether it begins and ends the update, and the step's loss tokens."""

_Loss = Callable[..., tuple[torch.Tensor, dict[str, Any]]]


class PartTrainingWorker(TrainingWorker):
    """verl's training worker, whose one update of a step may come in parts.

    `update_part` on all parts of a step does what verl's `train_mini_batch` does with the step's
    rows as its only mini-batch: gradients are zeroed, added up, clipped and stepped once.
    """

    @register(
        dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"), blocking=False
    )
    def update_part(self, data: TensorDict) -> TensorDict | None:
        """Add a part's gradient; the last part also steps the optimizer and returns the metrics."""
        tu.maybe_fix_3d_position_ids(data)
        first, last, tokens = (tu.pop(data, name) for name in (FIRST_PART, LAST_PART, TOKENS))
        self._set_defaults(data)
        engine, grad_norm, rate = self.engine, None, None
        with engine.train_mode(zero_grad_on_exit=last), Timer(logger=None) as timer:
            if first:
                engine.optimizer_zero_grad()
                self._begin_update(tokens)
            elif tokens != self._tokens:
                self._divide_by(tokens)
            output = engine.forward_backward_batch(data, loss_function=self._loss_over(tokens))
            if last:
                grad_norm = engine.optimizer_step()
        if last:
            rate = engine.lr_scheduler_step()
        self._add(output, data, timer.last)
        if not last:
            return tu.get_tensordict({}, {"metrics": {}}).cpu()
        return self._finish_update({"grad_norm": grad_norm, "lr": rate})

    def _set_defaults(self, data: TensorDict) -> None:
        """The engine's settings that verl's `train_batch` adds to its data."""
        config = self.engine_config
        tu.assign_non_tensor(
            data,
            use_remove_padding=self.model_config.get("use_remove_padding", False),
            use_dynamic_bsz=config.use_dynamic_bsz,
            max_token_len_per_gpu=config.max_token_len_per_gpu,
            micro_batch_size_per_gpu=config.micro_batch_size_per_gpu,
            use_fused_kernels=config.use_fused_kernels,
        )

    def _begin_update(self, tokens: int) -> None:
        self._tokens = tokens
        self._losses: list[float] = []
        self._metrics: dict[str, Any] = {}
        self._lengths: list[int] = []
        self._seconds = 0.0

    def _loss_over(self, tokens: int) -> _Loss:
        """The loss of verl, with the tokens of the whole step in place of those of this part."""

        def loss(
            model_output: Any, data: TensorDict, dp_group: Any = None
        ) -> tuple[torch.Tensor, dict[str, Any]]:
            tu.assign_non_tensor(data, batch_num_tokens=tokens)
            result: tuple[torch.Tensor, dict[str, Any]] = self.loss_fn(
                model_output=model_output, data=data, dp_group=dp_group
            )
            return result

        return loss

    @torch.no_grad()
    def _divide_by(self, tokens: int) -> None:
        """Correct what earlier parts divided by a number of tokens that has changed since.

        Rows that turned out to be masked leave the denominator of ``token-mean``.
        """
        ratio = self._tokens / tokens
        self._tokens = tokens
        for parameter in self.engine.module.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(ratio)
        self._losses = [loss * ratio for loss in self._losses]
        for metric in self._metrics.values():
            if isinstance(metric, Metric) and metric.aggregation is AggregationType.SUM:
                metric.values = [value * ratio for value in metric.values]

    def _add(self, output: dict[str, Any], data: TensorDict, seconds: float) -> None:
        group = self.engine.get_data_parallel_group()
        lengths: list[Any] = [None] * torch.distributed.get_world_size(group)
        own = data["input_ids"].offsets().diff().tolist()
        torch.distributed.all_gather_object(lengths, own, group)
        self._lengths += chain.from_iterable(lengths)
        self._losses += output["loss"]
        append_to_dict(self._metrics, output["metrics"])
        self._seconds += seconds

    def _finish_update(self, stepped: dict[str, Any]) -> TensorDict | None:
        """The metrics of the whole update, as verl's `train_mini_batch` returns them."""
        self.profiler.step()
        if not self.engine.is_mp_src_rank_with_outputs():
            return None
        output = self._postprocess_output(
            {"loss": self._losses, "metrics": self._metrics | stepped},
            global_token_num=self._lengths,
            delta_time=self._seconds,
            forward_only=False,
            images_seqlens=None,
        )
        metrics: dict[str, Any] = {}
        append_to_dict(
            metrics, {name: _over_ranks(value) for name, value in tu.get(output, "metrics").items()}
        )
        return tu.get_tensordict({}, {"metrics": metrics}).cpu()


def _over_ranks(value: Any) -> Any:
    """A metric of all ranks: one number, or the numbers of their micro-batches in one list."""
    if not isinstance(value, list):
        return value
    return (
        Metric.aggregate_dp(value)
        if isinstance(value[0], Metric)
        else list(chain.from_iterable(value))
    )


class PartWorker(ActorRolloutRefWorker):
    """verl's worker for actor, rollout and reference model, with `update_part`."""

    actor_worker_cls = PartTrainingWorker

    @register(
        dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="actor"), blocking=False
    )
    def update_part(self, data: TensorDict) -> TensorDict | None:
        """See `PartTrainingWorker.update_part`."""
        output: TensorDict | None = self.actor.update_part(data)
        return output
