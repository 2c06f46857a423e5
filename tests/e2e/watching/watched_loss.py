"""verl's own policy loss, which also writes down the masks it is given.

Loaded into verl's processes through ``VERL_USE_EXTERNAL_MODULES``; the lines go to ``WATCHED_LOSS``.
While there is a file ``WATCHED_PAUSE``, nothing is learned.
"""

import json
import os
import time
from pathlib import Path

from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla, register_policy_loss


@register_policy_loss("watched")
def watched(*, response_mask, advantages, **rest):
    while Path(os.environ["WATCHED_PAUSE"]).exists():
        time.sleep(0.05)
    lines = [
        json.dumps({"mask": mask.int().tolist(), "moved": bool(advantage[~mask].any())})
        for mask, advantage in zip(response_mask, advantages, strict=True)
    ]
    with Path(os.environ["WATCHED_LOSS"]).open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))
    return compute_policy_loss_vanilla(response_mask=response_mask, advantages=advantages, **rest)
