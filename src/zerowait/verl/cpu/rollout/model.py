"""The rollout's own copy of the policy: loading it, and moving it out of the trainer's way."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM

from zerowait.errors import ConfigError
from zerowait.verl.cpu.rollout import attention


def load_model(model_config: Any, *, device: str, dtype: str) -> Any:
    """The model at verl's path in evaluation mode; the trainer's weights replace its own later.

    Raises:
        ConfigError: `dtype` is not one of torch's.
    """
    attention.register()
    kind = getattr(torch, str(dtype), None)
    if not isinstance(kind, torch.dtype):
        raise ConfigError(f"actor_rollout_ref.rollout.dtype: torch has no dtype {dtype!r}")
    model = AutoModelForCausalLM.from_pretrained(
        model_config.local_path,
        config=model_config.hf_config,
        dtype=kind,
        attn_implementation=attention.ATTENTION_NAME,
        trust_remote_code=model_config.trust_remote_code,
    )
    return model.to(device).eval().requires_grad_(requires_grad=False)


def free_bytes(model: Any, share: float) -> int | None:
    """What `share` of the GPU leaves beside the weights; None on a CPU."""
    if model.device.type == "cpu":
        return None
    _, total = torch.cuda.mem_get_info(model.device)
    weights = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    return max(0, int(total * share) - weights)


def move(model: Any, device: torch.device) -> None:
    """Put the weights on `device`, and give the memory they leave back to other processes."""
    model.to(device)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
