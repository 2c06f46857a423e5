"""A response without its thinking, whichever model's tags mark that.

An answer that was only considered in thinking does not count. Every rule reads `spoken`, except
those about the tags themselves and the modes that reproduce published code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from zerowait.patterns import lazy_pattern
from zerowait.scorers.answers import last_answer
from zerowait.types import Sample, content_text

_NAMES: Final = (
    "think",
    "thinking",
    "thought",
    "thoughts",
    "reason",
    "reasoning",
    "analysis",
    "reflection",
    "scratchpad",
)
# What opens thinking, and what closes it: by name first, then the marks of single models.
_PAIRS: Final = (
    *((rf"<\s*(?:\w+:)?{name}(?:\s[^<>]*)?>", rf"<\s*/\s*(?:\w+:)?{name}\s*>") for name in _NAMES),
    (r"\[THINK\]", r"\[/THINK\]"),  # Mistral
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),  # Kimi
    (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),  # Sky, OpenThinker
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),  # Command
    (r"<\|channel>\s*thought\b", r"<channel\|>"),  # Gemma
    (r"<unused94>\s*thought\b", r"<unused95>"),  # MedGemma
)
_MARK: Final = lazy_pattern(
    "|".join(f"(?P<o{n}>{opens})|(?P<c{n}>{closes})" for n, (opens, closes) in enumerate(_PAIRS)),
    re.IGNORECASE,
)
# Trying all of these at every character would take a hundred times longer, and a pattern for these
# characters ten times longer than `str.find`. Most of what they begin is no mark: <answer>, [1, 2].
_FIRST: Final = "<[\u25c1"
_MAY_BE: Final = lazy_pattern(
    rf"<\s*(?:/\s*)?(?:\w+:)?(?:{'|'.join(_NAMES)})|<[|cu]|\[/?THINK|\u25c1", re.IGNORECASE
)
_TAIL_CHARS: Final = 200
# At the end of a prompt, on a line of its own or behind another mark: not mentioned in a sentence.
_OPENED: Final = lazy_pattern(
    rf"(?:\A|[\n>\]])[ \t]*(?P<mark>{'|'.join(opens for opens, _ in _PAIRS)})\s*\Z", re.IGNORECASE
)

# gpt-oss names the channel of each message; its control tokens are often lost in decoding.
_CHANNEL: Final = lazy_pattern(r"<\|channel\|>\s*(\w+)[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>")
_CHANNEL_END: Final = lazy_pattern(r"<\|(?:end|return|call|start|channel)\|>")
_BARE_THINKING: Final = lazy_pattern(r"\s*analysis(?=[^\sa-z:,.;!?()'\"-])")
_BARE_FINAL: Final = "assistantfinal"


def spoken(sample: Sample) -> str:
    """The response of `sample` without its thinking.

    A prompt may end with the opening tag of the response's thinking, as chat templates write it.

    >>> spoken(Sample("2+2?<|Assistant|><think>", "4, or 5")), spoken(Sample("2+2?", "4 or 5"))
    ('', '4 or 5')
    """
    return without_thinking(_opened_by_prompt(sample) + sample.response)


def spoken_answer(sample: Sample) -> str | None:
    """The last ``<answer>`` of the response outside of its thinking; None when there is none.

    >>> spoken_answer(Sample("", "<think><answer>5</answer></think> <answer>4</answer>"))
    '4'
    """
    return last_answer(spoken(sample))


def without_thinking(response: str) -> str:
    """A response without its thinking.

    Thinking is the text between ``<think>`` and ``</think>``, before a closing tag whose opening
    tag is in the prompt, and after an opening tag that is never closed. Other models' tags count
    likewise: ``<thinking>``, ``<reasoning>``, ``<seed:think>``, ``[THINK]``, ... Of gpt-oss only
    the text of the channel ``final`` is kept.

    >>> without_thinking("<think>5?</think>6<think>7</think>8")
    '68'
    >>> without_thinking("5?</think>6<think>or 7")
    '6'
    """
    response = _final_channel(response)
    parts: list[str] = []
    open_tag, end = "", 0
    for mark in _marks(response):
        kind, closes = (mark.lastgroup or "")[1:], (mark.lastgroup or "")[0] == "c"
        if open_tag and not (closes and kind == open_tag):
            continue
        if not open_tag:
            parts.append(response[end : mark.start()])
        if closes and not open_tag:
            parts.clear()
        open_tag, end = "" if closes else kind, mark.end()
    return "".join(parts) if open_tag else "".join((*parts, response[end:]))


@lru_cache(maxsize=64)
def mentions_thinking(pattern: str) -> bool:
    r"""Whether a user's `pattern` mentions a tag of thinking, which `spoken` removes.

    >>> mentions_thinking(r"<think>.*</think>\s*A"), mentions_thinking("I think")
    (True, False)
    """
    return bool(_MARK.search(pattern) or _MARK.search(re.sub(r"[\\?]", "", pattern)))


def _marks(text: str) -> Iterator[re.Match[str]]:
    """Every tag of thinking, in order; looked for only at characters with which one can begin."""
    for start in sorted(index for char in _FIRST for index in _indices(char, text)):
        if _MAY_BE.match(text, start) and (mark := _MARK.match(text, start)) is not None:
            yield mark


def _indices(char: str, text: str) -> Iterator[int]:
    index = text.find(char)
    while index >= 0:
        yield index
        index = text.find(char, index + 1)


def _opened_by_prompt(sample: Sample) -> str:
    """The tag with which the prompt ends, where that opens thinking; else empty."""
    prompt = sample.prompt
    if not isinstance(prompt, str):
        last = prompt[-1] if prompt else {}
        prompt = content_text(last.get("content")) if last.get("role") == "assistant" else ""
    opening = _OPENED.search(prompt[-_TAIL_CHARS:])
    return f"{opening['mark']}\n" if opening else ""


def _final_channel(response: str) -> str:
    """The last message of gpt-oss in its channel ``final``; any other response as it is."""
    bare = _BARE_THINKING.match(response)
    if bare is not None:
        return response.rpartition(_BARE_FINAL)[2] if _BARE_FINAL in response else ""
    channels = list(_CHANNEL.finditer(response)) if "<|channel|>" in response else []
    final = next((each for each in reversed(channels) if each[1] == "final"), None)
    if final is not None:
        end = _CHANNEL_END.search(response, final.end())
        return response[final.end() : end.start() if end else len(response)]
    thought = next((each for each in channels if each[1] == "analysis"), None)
    return response if thought is None else response[: thought.start()]
