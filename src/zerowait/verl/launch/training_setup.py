"""Settings of one run of verl's trainer, from which its overrides are made."""

from __future__ import annotations

from typing import Literal

import msgspec


class TrainingSetup(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one run of verl's trainer.

    Args:
        model_path: a folder in Hugging Face format.
        train_files, val_files: Parquet or JSONL files in verl's columns.
        device: that trains.
        devices: GPUs per node, or logical devices on the CPU.
        nodes: number of machines.
        rollout_devices, rollout_nodes: as `devices` and `nodes`, for rollouts in verl's mode
            ``separate_async``; 0 devices runs rollouts on the training devices.
        updates_per_sync: updates of the policy between two transfers of its weights to rollouts.
        weight_transfer: checkpoint engine of that transfer: ``gloo`` is ours, ``nccl`` verl's.
        engine: verl's rollout: ``transformers`` is ours, the others need a GPU.
        backend: shards the models for training.
        prompt_key: the column of chat messages.
        prompts: per step.
        responses: per prompt.
        val_responses: per prompt in validation.
        max_prompt_tokens, max_response_tokens: longer prompts are left out; responses are cut.
        steps: training steps.
        learning_rate: of AdamW.
        temperature: of training responses; validation is greedy.
        estimator: verl's advantage estimator.
        kl_loss: coefficient of the KL term in the loss; 0 needs no reference model.
        micro_batch: sequences of full length per forward and backward pass on one device.
        half_precision: compute in bfloat16; None does so on GPUs only.
        flash_attention: whether the trainer has the flash-attn package.
        fused_kernels: compute the policy's log-probabilities with verl's fused kernels.
        max_num_seqs: responses that one engine generates at a time.
        validate_every, save_every: in steps; 0 is never. Validation also runs before the first
            step and after the last.
        name: of the run.
        folder: for checkpoints.
        logger: verl's trackers.
        seed: of data order and sampling.
        reward_workers, agent_workers, storage_units: verl's helper processes, about 0.4 GB each.
        ray_address: a running cluster; None starts a Ray of its own on this machine.
    """

    model_path: str
    train_files: list[str]
    val_files: list[str]
    device: Literal["cpu", "cuda"] = "cpu"
    devices: int = 1
    nodes: int = 1
    rollout_devices: int = 0
    rollout_nodes: int = 1
    updates_per_sync: int = 1
    weight_transfer: Literal["gloo", "nccl"] = "gloo"
    engine: Literal["transformers", "vllm", "sglang"] = "transformers"
    backend: Literal["fsdp2", "megatron"] = "fsdp2"
    prompt_key: str = "prompt"
    prompts: int = 4
    responses: int = 4
    val_responses: int = 1
    max_prompt_tokens: int = 512
    max_response_tokens: int = 512
    steps: int = 10
    learning_rate: float = 1e-6
    temperature: float = 1.0
    estimator: str = "grpo"
    kl_loss: float = 0.0
    micro_batch: int = 8
    half_precision: bool | None = None
    flash_attention: bool = False
    fused_kernels: bool = False
    max_num_seqs: int = 256
    validate_every: int = 0
    save_every: int = 0
    name: str = "run"
    folder: str = "runs"
    logger: tuple[str, ...] = ("console",)
    seed: int = 0
    reward_workers: int = 1
    agent_workers: int = 1
    storage_units: int = 1
    ray_address: str | None = None

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt and response together."""
        return self.max_prompt_tokens + self.max_response_tokens

    @property
    def bfloat16(self) -> bool:
        """Whether actor and rollout compute in bfloat16."""
        return self.device == "cuda" if self.half_precision is None else self.half_precision
