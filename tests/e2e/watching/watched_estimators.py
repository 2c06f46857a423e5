"""verl's own estimators, which also write down what they are given and what they make of it.

Loaded into verl's processes through ``VERL_USE_EXTERNAL_MODULES``; lines go to ``WATCHED_ESTIMATORS``.
"""

import json
import os
from functools import wraps
from pathlib import Path

from verl.trainer.ppo import core_algos


def watched(estimator):
    @wraps(estimator)
    def told(*, token_level_rewards, response_mask, **rest):
        advantages, returns = estimator(
            token_level_rewards=token_level_rewards, response_mask=response_mask, **rest
        )
        parts = {"rewards": token_level_rewards, "mask": response_mask, "advantages": advantages}
        lists = {name: tensor.tolist() for name, tensor in parts.items()}
        uids = rest.get("index")
        lists["uid"] = [""] * len(response_mask) if uids is None else [str(uid) for uid in uids]
        rows = (dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True))
        with Path(os.environ["WATCHED_ESTIMATORS"]).open("a") as file:
            file.write("".join(f"{json.dumps(row)}\n" for row in rows))
        return advantages, returns

    return told


for name in ("reinforce_plus_plus", "grpo"):
    core_algos.ADV_ESTIMATOR_REGISTRY[name] = watched(core_algos.ADV_ESTIMATOR_REGISTRY[name])
core_algos.compute_grpo_outcome_advantage = core_algos.ADV_ESTIMATOR_REGISTRY["grpo"]
