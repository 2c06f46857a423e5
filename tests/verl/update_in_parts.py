"""Train a small policy in verl's own engine, each case once in parts and once in one update.

Run once for each of two ranks (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) with the folder of a
policy; rank 0 prints for each case how far parameters moved, the largest difference of the two ways
relative to that, and the metrics of both ways.
"""

import json
import os
import sys

import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.metric import reduce_metrics

from zerowait.verl.launch.composed_config import compose_config
from zerowait.verl.launch.overrides import arguments, base_overrides
from zerowait.verl.launch.training_setup import TrainingSetup
from zerowait.verl.part_worker import FIRST_PART, LAST_PART, TOKENS, PartWorker

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
STEPS = 5
ROWS = 8  # of a rank
SGD = {f"{ACTOR}.optim.optimizer": "SGD", f"{ACTOR}.optim.lr": 0.5}
CASES = {
    "token-mean, kl, entropy": {
        f"{ACTOR}.use_kl_loss": True,
        f"{ACTOR}.kl_loss_coef": 0.2,
        f"{ACTOR}.entropy_coeff": 0.1,
    },
    "seq-mean-token-mean, kl, sapo": {
        f"{ACTOR}.loss_agg_mode": "seq-mean-token-mean",
        f"{ACTOR}.policy_loss.loss_mode": "sapo",
        f"{ACTOR}.use_kl_loss": True,
    },
    "token-mean, rows per micro-batch, warm-up, gspo": {
        f"{ACTOR}.policy_loss.loss_mode": "gspo",
        f"{ACTOR}.use_dynamic_bsz": False,
        f"{ACTOR}.ppo_micro_batch_size_per_gpu": 2,
        f"{ROLLOUT}.log_prob_use_dynamic_bsz": False,
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": 2,
        f"{ACTOR}.optim.lr_warmup_steps": 4,
    },
}


def worker_of(policy, case):
    setup = TrainingSetup(
        model_path=policy,
        train_files=["none"],
        val_files=["none"],
        prompts=2 * ROWS,
        responses=1,
        max_prompt_tokens=16,
        max_response_tokens=16,
        micro_batch=2,
        learning_rate=1e-3,
    )
    config = compose_config([*arguments(base_overrides(setup) | SGD | CASES[case])])
    config.actor_rollout_ref.actor.optim.total_training_steps = STEPS
    worker = PartWorker(config.actor_rollout_ref, role="actor")
    worker.init_model()
    return worker, config.actor_rollout_ref.actor


def rows_of(step, rank):
    """A rank's rows of a step; the last of them is masked, as an abstained row may be."""
    draw = torch.Generator().manual_seed(100 * step + rank)
    columns = {}
    for row in range(ROWS):
        prompt = int(torch.randint(2, 8, (), generator=draw))
        length = int(torch.randint(1, 16, (), generator=draw))
        ids = torch.randint(3, 50, (prompt + length,), generator=draw)
        mask = torch.zeros(length) if row == ROWS - 1 else torch.ones(length)
        noise = [torch.randn(length, generator=draw) for _ in range(3)]
        new = {
            "input_ids": ids,
            "position_ids": torch.arange(prompt + length),
            "attention_mask": torch.ones_like(ids),
            "prompts": ids[:prompt],
            "responses": ids[prompt:],
            "response_mask": mask.long(),
            "loss_mask": mask.long(),
            "old_log_probs": -4 + 0.3 * noise[0],
            "ref_log_prob": -4 + 0.3 * noise[1],
            "advantages": noise[2][:1].expand(length).clone() * mask,
        }
        for name, value in new.items():
            columns.setdefault(name, []).append(value)
    return columns


def batch(columns, some, actor, **infos):
    nested = {
        name: torch.nested.as_nested_tensor([values[row] for row in some], layout=torch.jagged)
        for name, values in columns.items()
    }
    data = TensorDict(nested, batch_size=len(some))
    common = {
        "calculate_entropy": actor.entropy_coeff != 0,
        "distillation_use_topk": False,
        "distillation_only": False,
        "global_batch_size": 2 * ROWS,
        "temperature": 1.0,
    }
    tu.assign_non_tensor(data, **common, **infos)
    return data


def tokens_of(step):
    return sum(int(mask.sum()) for rank in (0, 1) for mask in rows_of(step, rank)["loss_mask"])


def stop_amid_parts(worker, actor, step, rank):
    """The first part of a step that the trainer never finishes, because rewards are missing."""
    infos = {FIRST_PART: True, LAST_PART: False, TOKENS: tokens_of(step)}
    worker.update_part(batch(rows_of(step, rank), [1, 2, 3, 4], actor, **infos))


def in_parts(worker, actor, step, rank):
    """Three parts; while the first ones are computed, more rows count as trained than in the end.

    Before each step but the first another one has stopped amid its parts; one step has no parts.
    """
    if step:
        stop_amid_parts(worker, actor, STEPS + step, rank)
    if step == STEPS - 2:
        return at_once(worker, actor, step, rank)
    columns = rows_of(step, rank)
    true = tokens_of(step)
    guessed = true + 17 if actor.loss_agg_mode == "token-mean" else true
    parts = [[1, 2], [3, 4, 5, 6], [0, 7]]
    before = parameters(worker)
    for place, some in enumerate(parts):
        last = place == len(parts) - 1
        if last:
            assert not distance(before, parameters(worker))
        infos = {FIRST_PART: place == 0, LAST_PART: last, TOKENS: true if last else guessed}
        output = worker.update_part(batch(columns, some, actor, **infos))
    return reduce_metrics(tu.get(output, "metrics"))


def at_once(worker, actor, step, rank):
    """The rows of the step as one mini-batch, by verl alone."""
    order = {"seed": 1, "dataloader_kwargs": {"shuffle": False}}
    infos = {"mini_batch_size": 2 * ROWS, "epochs": 1, **order}
    output = worker.update_actor(batch(rows_of(step, rank), range(ROWS), actor, **infos))
    return reduce_metrics(tu.get(output, "metrics"))


def parameters(worker):
    module = worker.actor.engine.module
    return {name: p.detach().full_tensor().clone() for name, p in module.named_parameters()}


def distance(some, others):
    return max(float((some[name] - others[name]).abs().max()) for name in some)


def main():
    policy, rank = sys.argv[1], int(os.environ["RANK"])
    for case in CASES:
        ends, told = [], []
        for update in (in_parts, at_once):
            worker, actor = worker_of(policy, case)
            start = parameters(worker)
            told.append([update(worker, actor, step, rank) for step in range(STEPS)])
            ends.append(parameters(worker))
        moved = distance(ends[1], start)
        apart = distance(*ends) / moved
        if rank == 0:
            found = {"case": case, "moved": moved, "apart": apart, "told": told}
            sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    main()
