"""Token log-probabilities of the fake judge: of the written verdict, its spellings and the others.

The tokens are words with the blank before them, single digits and marks, so that 10 is two tokens.
"""

from __future__ import annotations

import math
import re
from typing import Any

from zerowait.config import VerdictRule

_TOKEN = re.compile(r" ?[^\W\d]+|\d|[^\w\s]|\s+", re.ASCII)
_WRITTEN, _OTHER_SPELLING, _NO_VERDICT = 0.6, 0.1, 0.05
_FILLERS = ("The", "I", "It", "**", "\n", "Based", "A", "This", "Well", "So")


def written_logprobs(content: str, rule: VerdictRule, top: int) -> dict[str, Any]:
    """``choices[0].logprobs`` of a chat completion with this content.

    Every token was certain, but for those of the verdict: another spelling of it has 10 % of the
    probability, tokens that are no verdict 5 %, and the other verdicts share what is left, those
    nearer to the written one more than others.

    Args:
        content: of the reply.
        rule: the verdicts.
        top: number of alternatives for each token.
    """
    verdicts = _verdicts(rule)
    steps = [_alternatives(token, verdicts) for token in _TOKEN.findall(content)]
    return {"content": [_entry(step, top) for step in steps]}


def as_parallel_lists(logprobs: dict[str, Any]) -> dict[str, Any]:
    """The same in the form of legacy completions."""
    steps, offset, offsets = logprobs["content"], 0, []
    for step in steps:
        offsets.append(offset)
        offset += len(step["token"])
    return {
        "tokens": [step["token"] for step in steps],
        "token_logprobs": [step["logprob"] for step in steps],
        "top_logprobs": [
            {each["token"]: each["logprob"] for each in step["top_logprobs"]} for step in steps
        ],
        "text_offset": offsets,
    }


def _verdicts(rule: VerdictRule) -> list[str]:
    if rule.choice is not None:
        return list(rule.choice)
    low, high = rule.integer or (0, -1)
    return [str(value) for value in range(low, high + 1)]


def _alternatives(token: str, verdicts: list[str]) -> dict[str, float]:
    """The probability of each token that may stand in the place of the written one, this first."""
    word = token.strip()
    known = [verdict.casefold() for verdict in verdicts]
    if word.casefold() not in known:
        return {token: 0.999, _FILLERS[0] if token != _FILLERS[0] else _FILLERS[1]: 0.001}
    at = known.index(word.casefold())
    others = {v: 0.5 ** abs(n - at) for n, v in enumerate(verdicts) if n != at}
    left = (1 - _WRITTEN - _OTHER_SPELLING - _NO_VERDICT) / sum(others.values())
    blank = " " * (len(token) - len(token.lstrip()))
    spelling = f"{word}" if blank else f" {word}"
    found = {token: _WRITTEN, spelling: _OTHER_SPELLING}
    for verdict, share in others.items():
        first = verdict[0] if verdict.isdigit() else verdict
        found[blank + first] = found.get(blank + first, 0.0) + left * share
    return found | dict.fromkeys(_FILLERS, _NO_VERDICT / len(_FILLERS))


def _entry(options: dict[str, float], top: int) -> dict[str, Any]:
    """The item of one token, its alternatives in the order of their probability."""
    written = next(iter(options))
    ranked = sorted(options, key=lambda token: -options[token])[:top]
    item = _item(written, options[written])
    return item | {"top_logprobs": [_item(token, options[token]) for token in ranked]}


def _item(token: str, probability: float) -> dict[str, Any]:
    return {"token": token, "logprob": math.log(probability), "bytes": list(token.encode())}
