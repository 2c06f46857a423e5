"""One rank of a TRL training: ``rank.py POLICY JUDGE_URL OUT``; run by torchrun."""

import json
import os
import sys
from pathlib import Path

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

import zerowait.trl


def train(policy, judge_url, out):
    settings = {
        "components": {
            "quality": {"judge": "q"},
            "clean": {"scorer": "regex", "pattern": "."},
            "short": {"shape": "group_linear", "coefficient": 0.5},
        },
        "judges": {
            "q": {
                "endpoints": [{"base_url": judge_url, "model": "m"}],
                "verdict": {"integer": [1, 10]},
            }
        },
        "on_failure": {"default": "neutral"},
        "cache": "off",
    }
    rows = [{"prompt": f"capital of {name}?"} for name in ("x", "y", "z", "w")]
    config = GRPOConfig(
        output_dir=out, max_steps=2, per_device_train_batch_size=2, num_generations=4,
        max_completion_length=8, report_to=[], use_cpu=True, bf16=False, logging_steps=1,
        save_strategy="no", seed=3, disable_tqdm=True, ddp_backend="gloo",
    )  # fmt: skip
    trainer = GRPOTrainer(
        policy,
        reward_funcs=zerowait.trl.reward(settings),
        args=config,
        train_dataset=Dataset.from_list(rows),
    )
    trainer.train()
    if os.environ["RANK"] == "0":
        logs = trainer._logs
        Path(out, "logs.json").write_text(
            json.dumps(
                {
                    "rewards": list(logs["rewards"]["zerowait"]),
                    **{name: list(logs["extra"][name]) for name in settings["components"]},
                }
            )
        )


if __name__ == "__main__":
    train(*sys.argv[1:])
