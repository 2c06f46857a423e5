"""A judge's reply as a typed chat completion, decoded once and read by everything after that.

`zerowait.judge.decode_reply` makes one of the bytes of any API; the client, the cost meter and the
readers of verdicts know only this type.
"""

from __future__ import annotations

from typing import Any

import msgspec

from zerowait.attribution import Attribution, ReplyEnding


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """A chat completion. A field of the wrong type counts as a field that is missing.

    Args:
        text: the visible answer; its parts joined where the server sends a list of them.
        reasoning: the text of the field that holds reasoning, or "".
        refusal: the text of the refusal field, or "".
        ending: what `finish_reason` means.
        finish_reason: how the reply ended in the server's word, or "".
        prompt_tokens: as the reply bills them; 0 where it does not say.
        completion_tokens: likewise, of the answer.
        model: the name of the model that answered, or "".
        fingerprint: the server's ``system_fingerprint``, or "".
        failure: why this is no answer: the body tells of an error, was broken off, or nothing was
            generated. The provider's failure, and asked for again. None for an answer, however
            useless its text.
        logprobs: the log-probabilities of the answer's tokens in the server's own form, or None.
    """

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    ending: ReplyEnding = ReplyEnding.COMPLETE
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    model: str = ""
    fingerprint: str = ""
    failure: Attribution | None = None
    logprobs: Any = None
