"""verl's own GAE, which also writes down what it is given and what it makes of it.

Loaded into verl's processes through ``VERL_USE_EXTERNAL_MODULES``; the lines go to ``WATCHED_GAE``.
"""

import json
import os
from pathlib import Path

from verl.trainer.ppo import core_algos

verls = core_algos.compute_gae_advantage_return


def watched(*, token_level_rewards, response_mask, **rest):
    advantages, returns = verls(
        token_level_rewards=token_level_rewards, response_mask=response_mask, **rest
    )
    parts = {"rewards": token_level_rewards, "mask": response_mask, "returns": returns}
    lists = {name: tensor.tolist() for name, tensor in parts.items()}
    rows = (dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True))
    with Path(os.environ["WATCHED_GAE"]).open("a") as file:
        file.write("".join(f"{json.dumps(row)}\n" for row in rows))
    return advantages, returns


core_algos.compute_gae_advantage_return = watched
