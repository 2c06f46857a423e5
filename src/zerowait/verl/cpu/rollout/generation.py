"""One request being decoded: prompt, sampling parameters, and the tokens so far."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from zerowait.verl.cpu.rollout.sampling import Sampling

FinishReason: TypeAlias = Literal["", "stop", "length", "aborted"]
Detokenize: TypeAlias = Callable[[Sequence[int]], str]

_TAIL_TOKENS = 32


class Generation:
    """A response being decoded; `token_ids` and `log_probs` grow together.

    Args:
        prompt_ids: tokens of the prompt.
        sampling: sampling parameters; their seed, or `seed`, makes the response repeatable.
        seed: used if `sampling` has none; with neither, a random one.
        decode: from tokens to text; needed for stop texts.

    Attributes:
        finish: why it ended; empty until then.
        cancelled: whether its caller no longer waits for it.
    """

    __slots__ = (
        "_decode",
        "_random",
        "cancelled",
        "finish",
        "log_probs",
        "prompt_ids",
        "sampling",
        "token_ids",
    )

    def __init__(
        self,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        *,
        seed: int | None = None,
        decode: Detokenize | None = None,
    ) -> None:
        if not prompt_ids:
            raise ValueError("there is nothing to continue: the prompt has no tokens")
        if sampling.stop_texts and decode is None:
            raise ValueError("stop texts need a tokenizer")
        self.prompt_ids = list(prompt_ids)
        self.sampling = sampling
        self.token_ids: list[int] = []
        self.log_probs: list[float] = []
        self.finish: FinishReason = ""
        self.cancelled = False
        self._random = random.Random(seed if sampling.seed is None else sampling.seed)
        self._decode = decode

    @property
    def context(self) -> list[int]:
        """Tokens of the prompt and of the response so far."""
        return self.prompt_ids + self.token_ids

    @property
    def longest(self) -> int:
        """The longest possible context, in tokens."""
        return len(self.prompt_ids) + self.sampling.max_tokens

    @property
    def done(self) -> bool:
        """Whether it is finished or cancelled."""
        return bool(self.finish) or self.cancelled

    def uniform(self) -> float:
        """The next random number in [0, 1) of this response."""
        return self._random.random()

    def forbidden(self) -> frozenset[int]:
        """The stop tokens, while the response is shorter than ``min_tokens``; else none."""
        early = len(self.token_ids) < self.sampling.min_tokens
        return self.sampling.stop_ids if early else frozenset()

    def accept(self, token: int, log_prob: float) -> None:
        """Append a token and set `finish` if it is the last.

        Args:
            token: the sampled token.
            log_prob: its log-probability.

        Raises:
            ArithmeticError: `log_prob` is NaN, so the model's weights are broken.
        """
        if log_prob != log_prob:  # noqa: PLR0124 - the test for NaN that needs no import
            raise ArithmeticError("the model's logits are not numbers: its weights are broken")
        self.token_ids.append(token)
        self.log_probs.append(log_prob)
        written = len(self.token_ids)
        early = written < self.sampling.min_tokens
        if not early and (token in self.sampling.stop_ids or self._wrote_stop_text()):
            self.finish = "stop"
        elif written >= self.sampling.max_tokens:
            self.finish = "length"

    def _wrote_stop_text(self) -> bool:
        """Whether the last token completed a stop text.

        The stop text may begin in the prompt, which ends with the first part of an aborted response
        when that is continued.
        """
        if not self.sampling.stop_texts or self._decode is None:
            return False
        tail = self._tail()
        now = self._decode(tail)
        found = [text for text in self.sampling.stop_texts if text in now]
        if not found or len(tail) <= len(self.token_ids):
            return bool(found)
        before = self._decode(tail[:-1])
        return any(now.count(text) > before.count(text) for text in found)

    def _tail(self) -> list[int]:
        missing = _TAIL_TOKENS - len(self.token_ids)
        return (self.prompt_ids[-missing:] if missing > 0 else []) + self.token_ids[-_TAIL_TOKENS:]
