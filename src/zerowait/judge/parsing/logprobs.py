"""The token log-probabilities in a reply, in whichever of the servers' forms they come.

- a list of tokens with their alternatives in ``top_logprobs``: OpenAI's chat completions and
  responses, vLLM, SGLang, llama.cpp, Ollama;
- parallel lists, the alternatives as mappings: OpenAI's legacy completions, and servers that send
  that form in chat completions too.

Tokens are kept as bytes, because one character may be spread over several of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

Options: TypeAlias = list[tuple[bytes, float]]
"""Tokens that could stand at one place, each with its probability."""


class TokenStep(NamedTuple):
    """One token of a reply, and what else could have stood in its place.

    Args:
        text: the bytes of the token that was written.
        options: the most probable tokens at this place, the written one among them; empty where
            the server sends no ``top_logprobs``, or numbers that cannot be log-probabilities.
    """

    text: bytes
    options: Options


_MOST_PROBABILITY = 1.05  # what half precision may round a sum of 1 to
_LEAST, _MOST = -1000.0, 700.0  # of these the exponential is 0 and a float
_ESCAPED = re.compile(r"\\x([0-9a-fA-F]{2})")
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_TOKEN_ID = re.compile(r"token_id:[0-9]+")
_VOCABULARY_MARKS = str.maketrans({"\u0120": " ", "\u2581": " ", "\u010a": "\n"})
"""A blank and a line end as GPT-2's and SentencePiece's vocabularies write them."""


def token_steps(logprobs: Any) -> list[TokenStep] | str:
    """The tokens of a reply with their probabilities, or what is wrong with its ``logprobs``.

    >>> said = {"token": " yes", "logprob": -0.1, "top_logprobs": [{"token": " no", "logprob": -3}]}
    >>> [(text, round(p, 2)) for text, p in token_steps({"content": [said]})[0].options]
    [(b' no', 0.05), (b' yes', 0.9)]
    >>> token_steps(None)
    'has no logprobs'
    """
    if isinstance(logprobs, Mapping):
        listed = logprobs.get("content")
        found = _listed(listed) if isinstance(listed, list) else _parallel(logprobs)
    else:
        found = _listed(logprobs) if isinstance(logprobs, list) else []
    if not found:
        return "has no logprobs"
    if not any(step.options for step in found):
        return "has the logprobs of the written tokens alone, and no top_logprobs"
    found = [step if _may_be(step.options) else TokenStep(step.text, []) for step in found]
    if not any(step.options for step in found):
        return "has numbers in its logprobs that are no log-probabilities: they add up to over 1"
    if _TOKEN_ID.fullmatch(found[0].text.decode("utf-8", "replace")):
        return "has the ids of tokens in its logprobs instead of their texts"
    return found


def _listed(items: Iterable[Any]) -> list[TokenStep]:
    return [
        _step(item, _alternatives(item.get("top_logprobs")))
        for item in items
        if isinstance(item, Mapping)
    ]


def _alternatives(top: Any) -> list[Any]:
    """The items of ``top_logprobs``, which some servers send as a mapping of token to number."""
    if isinstance(top, Mapping):
        return [{"token": token, "logprob": value} for token, value in top.items()]
    return top if isinstance(top, list) else []


def _parallel(logprobs: Mapping[str, Any]) -> list[TokenStep]:
    texts, values = logprobs.get("tokens"), logprobs.get("token_logprobs")
    if not (isinstance(texts, list) and isinstance(values, list) and len(texts) == len(values)):
        return []
    tops = logprobs.get("top_logprobs")
    if not (isinstance(tops, list) and len(tops) == len(texts)):
        tops = [None] * len(texts)
    return [
        _step({"token": text, "logprob": value}, _alternatives(top))
        for text, value, top in zip(texts, values, tops, strict=True)
    ]


def _step(written: Mapping[str, Any], alternatives: Iterable[Any]) -> TokenStep:
    """A token with its options; servers may leave the written one out of the alternatives."""
    options = [
        (_bytes(each), probability)
        for each in alternatives
        if isinstance(each, Mapping) and (probability := _probability(each)) is not None
    ]
    text, probability = _bytes(written), _probability(written)
    if options and probability is not None and all(text != other for other, _ in options):
        options.append((text, probability))
    return TokenStep(text, list(dict.fromkeys(options)))  # some list the written one twice


def _may_be(options: Options) -> bool:
    """Whether these may be probabilities; logits and probabilities in their place are not."""
    return sum(probability for _, probability in options) <= _MOST_PROBABILITY


def _probability(token: Mapping[str, Any]) -> float | None:
    value = token.get("logprob")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if math.isnan(value := min(max(value, _LEAST), _MOST)):
        return None
    return math.exp(value)


def _bytes(token: Mapping[str, Any]) -> bytes:
    """The bytes of a token: those that the server sends, else those that its text stands for."""
    given = token.get("bytes")
    if isinstance(given, list) and given:
        try:
            return bytes(given)
        except (TypeError, ValueError):
            pass
    text = token.get("token")
    if not isinstance(text, str):
        return b""
    if text.startswith("bytes:"):  # OpenAI's legacy completions, for a part of a character
        return bytes(int(pair, 16) for pair in _ESCAPED.findall(text))
    byte = _BYTE_TOKEN.fullmatch(text)  # SentencePiece, likewise
    if byte is not None:
        return bytes([int(byte[1], 16)])
    return text.translate(_VOCABULARY_MARKS).encode("utf-8", "replace")
