"""The rollout's copy of the policy: load it, and move it between devices."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM

from zerowait.errors import ConfigError
from zerowait.verl.cpu.rollout import attention


def load_model(model_config: Any, *, device: str, dtype: str) -> Any:
    """The model in evaluation mode, with the weights of its files until the trainer sends its own.

    Args:
        model_config: verl's model configuration.
        device: torch's device.
        dtype: name of torch's dtype.

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
    """Bytes left for the cache: `share` of the GPU's memory less the weights; None on a CPU."""
    if model.device.type == "cpu":
        return None
    _, total = torch.cuda.mem_get_info(model.device)
    weights = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    return max(0, int(total * share) - weights)


def move_weights(model: Any, device: torch.device) -> None:
    """Move the weights to `device`, and free the memory that they leave."""
    model.to(device)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
