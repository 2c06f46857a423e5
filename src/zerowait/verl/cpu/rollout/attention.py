"""Grouped-query attention of one new token per row without copying keys and values.

transformers' own ``sdpa`` repeats keys and values for every query head, at every step. With one
query token, the heads of a group can take the place of the token axis, which gives the same product
without copies. All other cases are transformers' own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

ATTENTION_NAME = "zerowait_sdpa"


def register() -> None:
    """Register `ATTENTION_NAME` as a value of ``attn_implementation``."""
    AttentionInterface.register(ATTENTION_NAME, grouped_attention)
    AttentionMaskInterface.register(ATTENTION_NAME, sdpa_mask)


def grouped_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """The attention output of shape (rows, tokens, heads, dimension), and None for its weights.

    Args:
        module: the attention layer.
        query: of shape (rows, heads, tokens, dimension).
        key: of shape (rows, groups, columns, dimension).
        value: of the same shape as `key`.
        attention_mask: booleans that broadcast to (rows, heads, tokens, columns), or None.
        **options: of transformers' attention interface.
    """
    rows, heads, tokens, dimension = query.shape
    groups = key.shape[1]
    if tokens != 1 or heads == groups:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    output = scaled_dot_product_attention(
        query.reshape(rows, groups, heads // groups, dimension),
        key,
        value,
        attn_mask=attention_mask,
        scale=options.get("scaling"),
    )
    return output.reshape(rows, heads, 1, -1).transpose(1, 2).contiguous(), None
