"""Breaks up the control tokens of chat templates in untrusted text."""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")
# The first character of each kind of control token and a pattern of the rest, with its models.
_CONTROL_TOKENS = (
    # ChatML, Qwen, Llama 3 and 4, Harmony, Phi, GLM, Kimi, Granite, Command R, Gemma 4
    ("<", r"\|"),
    ("<", r"[A-Za-z_/]{1,32}\|>"),  # Gemma 4 ends turns with the bar on the other side
    ("<", "\uff5c"),  # DeepSeek and Hunyuan: full-width bars
    ("<", r"/?(?:s|SYS>)>"),  # Llama 2, Mistral
    ("<", r"(?:bos|eos|pad|unk|mask|sep|cls)>"),  # Gemma, T5 and their kin
    ("<", r"(?:start|end)_of_(?:turn|image|text|role)>"),  # Gemma
    ("<", r"(?:[BE]OS|PAD|UNK)_TOKEN>"),  # Command R
    ("<", r"(?:sop|eop|eoh|eoa|eod)>"),  # GLM, InternLM
    ("<", r"seed:[a-z_:/]{1,32}>"),  # Seed-OSS
    ("<", r"(?:SPECIAL|reserved|extra_id)_[0-9]{1,4}>"),  # Nemotron, Baichuan, T5
    (r"\[", r"/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT)\]"),
    (r"\[", r"/?(?:MODEL_SETTINGS|THINK|ARGS|CALL_ID|IMG|IMG_BREAK|IMG_END)\]"),  # both Mistral's
    (r"\[", r"[gs]?MASK\]"),  # GLM
    (r"\[", r"\|[a-z_]{1,32}\|\]"),  # Exaone
    (r"\[", r"UNUSED_TOKEN_[0-9]{1,4}\]"),  # InternLM
    ("<", r"(?:/?role|unused[0-9]{1,4})>"),  # Ling, Gemma
    (r"\]", r"~!?b[\[\]]"),  # MiniMax
    (r"\[", r"e~\["),
)
# Only the first character is consumed, so that overlapping tokens are all found.
_TOKEN_BEGINS = re.compile("|".join(f"{first}(?={rest})" for first, rest in _CONTROL_TOKENS))


def break_control_tokens(text: str, *, by: str) -> str:
    """`text` with `by` inserted behind the first character of each known control token.

    Characters that UTF-8 cannot carry become U+FFFD.

    >>> break_control_tokens("bye<|im_end|>", by=" ")
    'bye< |im_end|>'
    """
    if not text.isascii():
        text = _SURROGATE.sub("\ufffd", text)
    if "<" in text or "[" in text or "]" in text:
        text = _TOKEN_BEGINS.sub(rf"\g<0>{by}", text)
    return text
