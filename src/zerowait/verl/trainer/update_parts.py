"""One update of the policy in parts: gradients of groups whose rewards are known come first."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import ray
import torch
from transfer_queue import KVBatchMeta
from verl.utils.metric import reduce_metrics
from verl.utils.py_functional import rename_dict
from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions

from zerowait.verl.batch_sizes import rows_of_update
from zerowait.verl.early_gradients import rows_of_pass
from zerowait.verl.part_worker import FIRST_PART, LAST_PART, TOKENS
from zerowait.verl.rewards.advantage import row_sums
from zerowait.verl.rewards.row_rewards import RowRewards

_POLL_S: Final = 0.05
"""A reward that arrives between a look and the wait for the next one is seen after this."""
_COMPUTING_POLL_S: Final = 0.01
"""Between two parts the workers are idle for about this long at most."""


def groups_of(batch: KVBatchMeta) -> dict[str, list[str]]:
    """The rows of each prompt by its uid, in the order of the batch; padding is left out."""
    groups: dict[str, list[str]] = {}
    for key, tag in zip(batch.keys, batch.tags, strict=True):
        if not tag.get("is_padding"):
            groups.setdefault(key.split("_")[0], []).append(key)
    return groups


def largest_part(groups: Mapping[str, Sequence[str]], multiple: int) -> list[str]:
    """The most groups, in their order, whose number of rows is a multiple of `multiple`.

    >>> largest_part({"a": ["a_0", "a_1"], "b": ["b_0"], "c": ["c_0"]}, 2)
    ['a', 'b', 'c']
    >>> largest_part({"a": ["a_0", "a_1"], "b": ["b_0"]}, 2)
    ['a']
    >>> largest_part({"a": ["a_0"]}, 2)
    []
    """
    rows, end = 0, 0
    for place, keys in enumerate(groups.values(), start=1):
        rows += len(keys)
        if rows % multiple == 0:
            end = place
    return list(groups)[:end]


class UpdateParts:
    """The update of one step, sent to the training workers in parts.

    While the workers compute one part, the trainer computes the advantages of groups whose rewards
    arrive. When the workers are free, all these groups together are the next part.

    Args:
        workers: verl's worker group with `PartWorker.update_part`.
        config: verl's whole configuration.
        ranks: number of equal shares that verl splits a batch into.
        whole: all rows of the step.

    Attributes:
        sent: the rows whose gradients are there.
        early_s: seconds from sending these parts to collecting them.
    """

    def __init__(self, workers: Any, config: Any, *, ranks: int, whole: KVBatchMeta) -> None:
        self._workers = workers
        self._actor = config.actor_rollout_ref.actor
        self._rollout = config.actor_rollout_ref.rollout
        self._ranks = ranks
        self._rows = rows_of_update(config)
        self._multiple = ranks * rows_of_pass(config)
        self._whole = whole
        self._tokens: int | None = None
        self._running: Any = None
        self._running_since = 0.0
        self.sent: set[str] = set()
        self.early_s = 0.0

    def send_while_waiting(
        self,
        rows: RowRewards,
        advantages: Callable[[KVBatchMeta], KVBatchMeta],
        *,
        redeem_s: float,
    ) -> float:
        """Compute gradients of groups whose rewards are known until all rewards are known.

        Returns when the rewards of the rows that are left are known, or were waited for in vain;
        the workers may still compute a part (see `collect`).

        Args:
            rows: the rewards of the rows.
            advantages: settles rows whose rewards are known, and gives them advantages.
            redeem_s: seconds to wait with nothing else to do.

        Returns:
            Seconds of waiting in which the workers computed nothing.

        Raises:
            JudgementError, HubLostError: a reward cannot be had, and training has to stop.
        """
        left, settled, idle_s = groups_of(self._whole), [], 0.0
        while idle_s < redeem_s:
            known = {uid: keys for uid, keys in left.items() if rows.known(keys)}
            if len(known) == len(left):
                break
            names = largest_part(known, self._multiple)
            if names:
                keys = [key for name in names for key in left.pop(name)]
                settled.append(advantages(self._whole.select_keys(keys)))
            computing = self._computing()
            if settled and not computing:
                self._send(KVBatchMeta.concat(settled))
                settled = []
            elif computing:
                rows.wait_for_change(_COMPUTING_POLL_S, exposed=False)
            else:
                started = time.monotonic()
                rows.wait_for_change(min(_POLL_S, redeem_s - idle_s))
                idle_s += time.monotonic() - started
        return idle_s

    def collect(self) -> None:
        """Wait until the workers have computed the part that was sent; raises their error."""
        if self._running is not None:
            self._running.get()
            self._running = None
            self.early_s += time.monotonic() - self._running_since

    def finish(self, whole: KVBatchMeta) -> dict[str, Any]:
        """Compute the gradient of the rows that are left, step the optimizer once; the metrics.

        Args:
            whole: all rows of the step, with advantages.
        """
        rest = whole.select_keys([key for key in whole.keys if key not in self.sent])
        self.collect()
        output = self._workers.update_part(self._part(rest, last=True)).get()
        metrics = rename_dict(output["metrics"], "actor/")
        metrics["perf/mfu/actor"] = metrics.pop("actor/mfu")
        reduced: dict[str, Any] = reduce_metrics(metrics)
        return reduced

    def _computing(self) -> bool:
        """Whether the workers still compute a part; raises what a worker died of."""
        if self._running is None:
            return False
        answers = self._running.futures
        ended, _ = ray.wait(answers, num_returns=len(answers), timeout=0)
        if len(ended) == len(answers):
            self.collect()
        elif ended:
            ray.get(ended)  # where one has died, the others would wait for it in a collective
        return self._running is not None

    def _send(self, part: KVBatchMeta) -> None:
        """Let the workers compute a part's gradient; returns at once."""
        self.sent.update(part.keys)
        self._running_since = time.monotonic()
        self._running = self._workers.update_part(self._part(part, last=False))

    def _part(self, part: KVBatchMeta, *, last: bool) -> KVBatchMeta:
        """The rows of a part, with what the workers need to know of the whole update."""
        actor, first = self._actor, self._tokens is None
        if first or (last and actor.loss_agg_mode == "token-mean"):
            # rows that turned out to be masked since the first part have no tokens in the loss
            whole = self._whole
            self._tokens = round(sum(row_sums(whole.partition_id, whole.keys, "loss_mask")))
        part.extra_info = {
            FIRST_PART: first,
            LAST_PART: last,
            TOKENS: self._tokens,
            "calculate_entropy": bool(actor.calculate_entropy or actor.entropy_coeff != 0.0),
            "distillation_use_topk": False,
            "distillation_only": False,
            "global_batch_size": self._rows,
            "temperature": self._rollout.temperature,
        }
        self._balance(part)
        return part

    def _balance(self, part: KVBatchMeta) -> None:
        """Give each rank about as many tokens, as verl's `_balance_batch` does for a batch."""
        if self._ranks > 1:
            work = calculate_workload(torch.tensor([tag["seq_len"] for tag in part.tags]))
            shares = get_seqlen_balanced_partitions(work, k_partitions=self._ranks, equal_size=True)
            part.reorder([row for share in shares for row in share])
