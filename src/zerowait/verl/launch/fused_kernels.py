"""Whether a policy's log-probabilities can be computed by verl's fused kernels.

Without the flash-attn package verl 0.9.1 computes log-probabilities on a GPU one token at a time.
Its fused kernels (``use_fused_kernels``) multiply by the output layer's matrix themselves, in
float32 and in chunks, which is several times faster, and right for models whose logits are that
product and nothing more: no soft cap, no scale, no bias.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

EXACT_MODELS: Final = frozenset(
    {
        "llama",
        "mistral",
        "mixtral",
        "olmo2",
        "phi3",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "smollm3",
    }
)
"""``model_type`` of the models for which both ways were compared, in tests/verl."""
_HUB_TIMEOUT_S: Final = 5.0
_SQUARES: Final = "actor_rollout_ref.actor.calculate_sum_pi_squared"
_MODEL: Final = "actor_rollout_ref.model.path"


def fused_kernels(path: Path, name: str, overrides: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether to use fused kernels for a policy, and if not, why.

    Args:
        path: where the recipe's model is if it is a folder.
        name: the model as the recipe names it, a folder or a name on the Hugging Face Hub.
        overrides: the user's overrides of verl's configuration, by dotted key.
    """
    if str(overrides.get(_SQUARES, False)).lower() == "true":
        return False, f"{_SQUARES} needs the whole distribution"
    given = overrides.get(_MODEL)
    kind = _model_type(path if given is None else Path(str(given)), str(given or name))
    if kind in EXACT_MODELS:
        return True, ""
    if kind is None:
        return False, f"the config.json of {given or name} could not be read"
    return False, f"for models of the type {kind} they were not compared with the plain computation"


def _model_type(folder: Path, name: str) -> str | None:
    file = folder / "config.json"
    if not folder.is_dir():
        found = _from_hub(name)
        if found is None:
            return None
        file = found
    try:
        return str(json.loads(file.read_text(encoding="utf-8")).get("model_type"))
    except (OSError, ValueError, AttributeError):
        return None


def _from_hub(name: str) -> Path | None:
    """The path of a hub model's ``config.json``, which verl would download later anyway."""
    try:
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(name, "config.json", etag_timeout=_HUB_TIMEOUT_S))
    except Exception:  # noqa: BLE001 - no hub, no network, no such model: verl will say which
        return None
