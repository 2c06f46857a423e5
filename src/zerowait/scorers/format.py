"""The scorer ``format``: the tags that a response has to be written in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from zerowait.errors import ConfigError
from zerowait.types import Sample, Score

_DEFAULT_TAGS = ("think", "answer")
_NAME = re.compile(r"[A-Za-z][\w.-]*")


def format_fault(
    text: str, tags: Sequence[str] = _DEFAULT_TAGS, *, once: bool = False, whole: bool = False
) -> str:
    """What is wrong with the tags of `text`; empty when nothing is.

    Every tag has to be present, balanced and not inside another one, and no block may stand
    before a block of an earlier tag.

    Args:
        text: the response.
        tags: names in the order they have to come in.
        once: each tag exactly once.
        whole: nothing but white space outside of the tags.

    Reference:
        DeepSeek-AI 2025, DeepSeek-R1 (arXiv:2501.12948), section 2.2.2.

    >>> format_fault("<think>a</think> <answer>b</answer>")
    ''
    >>> format_fault("<answer>b</answer><think>a</think>")
    '<think> stands after <answer>'
    """
    open_tag, reached, end = "", 0, 0
    seen = dict.fromkeys(tags, 0)
    outside: list[str] = []
    for tag in _pattern(tuple(tags)).finditer(text):
        closing, name = tag[1], tag[2]
        if closing:
            if name != open_tag:
                return f"</{name}> closes nothing"
            open_tag, end = "", tag.end()
            continue
        if open_tag:
            return f"<{name}> stands inside <{open_tag}>"
        if tags.index(name) < reached:
            return f"<{name}> stands after <{tags[reached]}>"
        open_tag, reached = name, tags.index(name)
        seen[name] += 1
        outside.append(text[end : tag.start()])
    if open_tag:
        return f"<{open_tag}> is not closed"
    outside.append(text[end:])
    if whole and any(part.strip() for part in outside):
        return "there is text outside of the tags"
    return _count_fault(seen, once=once)


def tag_format(
    sample: Sample,
    *,
    tags: Sequence[str] = _DEFAULT_TAGS,
    once: bool = False,
    whole: bool = False,
    prefix: str = "",
    score: float = 1.0,
) -> Score:
    """`score` when the response's tags are present, ordered and balanced, else 0.

    Args:
        sample: its response is checked.
        tags: names in the order they have to come in.
        once: each tag exactly once.
        whole: nothing but white space outside of the tags.
        prefix: tags that the end of the prompt has already opened, such as ``<think>``.
        score: of a response in the right form.

    >>> tag_format(Sample("", "a</think><answer>b</answer>"), prefix="<think>").value
    1.0
    """
    fault = format_fault(prefix + sample.response, tags, once=once, whole=whole)
    return Score(0.0 if fault else score, fault)


def check_format(options: Mapping[str, Any]) -> None:
    """Raises a ConfigError unless the tags are different names."""
    tags = options.get("tags", _DEFAULT_TAGS)
    if not tags:
        raise ConfigError("tags: name at least one tag")
    for tag in tags:
        if not _NAME.fullmatch(tag):
            raise ConfigError(f"tags: {tag!r} is not the name of a tag; write think, not <think>")
    if len(set(tags)) < len(tags):
        raise ConfigError(f"tags: {list(tags)} names a tag twice")


def _count_fault(seen: Mapping[str, int], *, once: bool) -> str:
    for name, times in seen.items():
        if not times:
            return f"<{name}> is missing"
        if once and times > 1:
            return f"<{name}> stands there {times} times"
    return ""


@lru_cache(maxsize=64)
def _pattern(tags: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"<(/?)({'|'.join(map(re.escape, tags))})>")
