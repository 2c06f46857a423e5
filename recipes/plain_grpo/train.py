"""GRPO in plain PyTorch: no trainer, no Ray, one process, and judges that no step waits for.

python recipes/plain_grpo/train.py [--steps 60] [--model FOLDER]

Everything that concerns rewards is in `train`: a group is submitted as soon as it is generated, so
that it is judged while the next one is generated. A response without a reward has advantage 0.
"""

import argparse
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import zerowait
from zerowait.testing import FakeJudge, Garbage, Latency, Script
from zerowait.tiny_models.arithmetic import arithmetic_questions, make_arithmetic_policy

GROUP, GROUPS = 8, 4


def train(model: Any, tokenizer: Any, rewards: zerowait.Rewards, steps: int) -> list[float]:
    """Train `model` for some steps; the mean reward of each."""
    draw = random.Random(0)
    means: list[float] = []
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        groups = []
        for question in draw.sample(arithmetic_questions(), GROUPS):
            tokens, written, texts = generate(model, tokenizer, question.text)
            rows = [
                zerowait.Sample(
                    question.text, text, question.answer, group=question.text, step=step
                )
                for text in texts
            ]
            groups.append((tokens, written, rewards.submit_all(rows)))  # returns at once

        values = torch.tensor(
            [[float("nan") if r.value is None else r.value for r in future.result()]
             for _, _, future in groups]
        )  # fmt: skip
        baseline = values.nanmean(dim=1, keepdim=True)
        advantages = (values - baseline).nan_to_num(0.0)  # nothing is learned from a failure

        for (tokens, written, _), advantage in zip(groups, advantages, strict=True):
            logits = model(tokens[:, :-1]).logits
            logp = torch.log_softmax(logits, -1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
            loss = -(advantage[:, None] * logp * written).sum() / written.sum() / GROUPS
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        means.append(values.nanmean().item())
        if step % 10 == 9:
            print(f"step {step + 1}: mean reward of the last ten {sum(means[-10:]) / 10:.3f}")
    return means


@torch.no_grad()
def generate(
    model: Any, tokenizer: Any, question: str
) -> tuple[torch.Tensor, torch.Tensor, list[str]]:
    """Token ids (GROUP, length), which of them the model wrote (GROUP, length - 1), and texts."""
    messages = [{"role": "user", "content": question}]
    prompt = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=False
    )
    tokens = model.generate(
        prompt.expand(GROUP, -1), attention_mask=torch.ones(GROUP, prompt.shape[1]),
        do_sample=True, top_k=0, max_new_tokens=24, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    response = tokens[:, prompt.shape[1] :]
    ends = (response == tokenizer.eos_token_id).cumsum(1) - (
        response == tokenizer.eos_token_id
    ).int()
    written = torch.zeros(tokens.shape[0], tokens.shape[1] - 1)
    written[:, prompt.shape[1] - 1 :] = (ends == 0).float()  # up to its end, that included
    return tokens, written, tokenizer.batch_decode(response, skip_special_tokens=True)


def main() -> None:
    """Make the policy, start a fake judge, train, and compare the first steps with the last."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=60)
    options.add_argument("--model", help="folder of a policy; made if left out, in ten seconds")
    given = options.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = given.model or make_arithmetic_policy(folder).model
        model = AutoModelForCausalLM.from_pretrained(path)
        tokenizer = AutoTokenizer.from_pretrained(path)
    faults = (Garbage(share=0.1, always=True),)
    with FakeJudge(Script(latency=Latency(median_s=0.1), faults=faults)) as judge:
        os.environ["JUDGE_URL"] = judge.url
        with zerowait.open(Path(__file__).with_name("reward.yaml")) as rewards:
            means = train(model, tokenizer, rewards, given.steps)
            abstained = rewards.stats().abstained
    first, last = sum(means[:10]) / 10, sum(means[-10:]) / 10
    print(f"mean reward {first:.3f} -> {last:.3f}; {abstained} responses had none")


if __name__ == "__main__":
    main()
