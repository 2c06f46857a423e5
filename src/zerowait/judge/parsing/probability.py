r"""A verdict read from the probabilities of its tokens, instead of the token that was written.

The reply's log-probabilities say what the judge could have written in the verdict's place. The
score is the expectation over the allowed verdicts, which is a finer reward than the one verdict
that was written. For ``by: probability`` of two words that is the probability of the first.

- Spellings of one verdict (``yes``, `` Yes``, ``"YES``, ``**yes``) are added up.
- A verdict of several tokens (``1`` and ``0``, ``in`` and ``correct``) is followed token by token
  where it was written. Where it was not, only its first token is known. It counts if it can begin
  nothing else that is allowed and has at least three letters; otherwise it is as uncertain as a
  token that is no verdict.
- Above ``max_outside`` of uncertain probability the judge abstains; below it, the rest is scaled
  to 1.

References:
    Liu et al. 2023, G-Eval (arXiv:2303.16634), section 2.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from itertools import accumulate
from typing import Any, Final, NamedTuple

import msgspec

from zerowait.attribution import ReplyEnding
from zerowait.completion import Completion
from zerowait.config.schema import VerdictRule
from zerowait.errors import ConfigError
from zerowait.judge.parsing.answer import (
    folded,
    plain_characters,
    split_thinking,
    visible_answer,
)
from zerowait.judge.parsing.logprobs import TokenStep, token_steps
from zerowait.judge.parsing.readers import bounds, reader_for
from zerowait.judge.parsing.verdict import (
    NO_VERDICT,
    expected_form,
    find_claim,
    one_line,
    parse,
    reply_format,
)
from zerowait.judge.reply import read_completion
from zerowait.types import Abstain, FailureKind, Outcome, Score

OUTSIDE: Final = "outside"
"""The metric: the probability of tokens that are no verdict, or that cannot be told apart."""

_TOP_LOGPROBS: Final = 20  # the most that OpenAI, vLLM by default and most others give
_MAX_OUTSIDE: Final = 0.2
_MOST_VERDICTS: Final = 1001
_SURE_LETTERS: Final = 3
_SHOWN: Final = 3
_CLAUSE_ENDS: Final = ("", *",.;:!?-\u2013\u2014\n\u3002\uff0c\uff01")
_LEADING = " \t\r\n*_`\"'$([{<\u00ab:="
_TRAILING = re.compile(r"[^\w]+\Z")
_SPECIAL = re.compile(r"<[|\uff5c][^<>]*[|\uff5c]>|</?s>|<(?:eos|end_of_turn|eot_id)>")
_FIRST = re.compile(
    r"""[\s*_`"'$(\[{<«#>]*+
    (?: (?:the[ ]|my[ ]|final[ ]|overall[ ]){0,3} (?:verdict|score|rating|answer|grade)
        [ *_`"']*+ (?: [:=] | is\b ) [\s*_`"'(\[{<]*+ )?+
    (?P<word> [+-]?\w )""",
    re.VERBOSE | re.IGNORECASE,
)


class _Place(NamedTuple):
    """The place of the verdict in a text: where its first character stands, and what it says."""

    text: str
    start: int


class ProbabilityForm:
    """One word or whole number whose tokens' probabilities are read.

    Args:
        rule: which words or numbers.
        reason_first: whether the judge writes its reasons before the verdict. Otherwise the first
            word of the answer is the verdict, and what follows it does not matter.

    Raises:
        ConfigError: there are too many different verdicts.
    """

    response_format: None = None  # an enforced form would change the probabilities
    enforced: str = ""

    def __init__(self, rule: VerdictRule, *, reason_first: bool) -> None:
        self.rule = rule
        self.bounds = bounds(rule)
        self._reason_first = reason_first
        self._limit = _MAX_OUTSIDE if rule.max_outside is None else rule.max_outside
        self._worth = _verdicts(rule)
        self._names = {self._folded(name): name for name in self._worth}

    @property
    def parameters(self) -> dict[str, Any]:
        """Fields of the request that ask for log-probabilities."""
        return {"logprobs": True, "top_logprobs": _TOP_LOGPROBS}

    def asked(self, *, reason_first: bool) -> str:
        """The instruction in which form to answer; without reasons it is the verdict alone.

        Where one number begins another, as 1 does 10, the judge writes ``N/10``: what follows the 1
        then tells which of them it is.

        >>> rule = VerdictRule(choice=["yes", "no"], by="probability")
        >>> ProbabilityForm(rule, reason_first=False).asked(reason_first=False)
        'Reply with exactly one word, yes or no, and nothing else.'
        """
        low, high = self.bounds
        scaled = self.rule.choice is None and low >= 0 and self._has_prefixes
        if reason_first:
            asked = reply_format(self.rule, reason_first=True)
            return asked.replace("\nScore: N\n", f"\nScore: N/{high:g}\n") if scaled else asked
        if self.rule.choice is not None:
            *words, last = self.rule.choice
            return f"Reply with exactly one word, {', '.join(words)} or {last}, and nothing else."
        written = f", written as N/{high:g}," if scaled else ""
        return (
            f"Reply with exactly one whole number from {low:g} (lowest) to {high:g} (highest)"
            f"{written} and nothing else."
        )

    def read(self, text: str) -> Score | Abstain:
        """The verdict that was written: what remains without probabilities."""
        return parse(text, self.rule)

    def read_reply(self, completion: Completion) -> Outcome:
        """The expectation over the verdicts in a decoded reply, or why there is none.

        ``detail["probabilities"]`` has the share of each verdict, ``detail["written"]`` the verdict
        that was written, ``measured["outside"]`` the probability that is left out.
        """
        if self._reason_first:
            written = read_completion(completion, self.read)
            if isinstance(written, Abstain):
                return written
            place = self._labelled(completion.text)
            outcome = self._outcome(completion, place)
            if isinstance(outcome, Score) and isinstance(written, Score):
                detail = outcome.detail | {"written": written.detail["verdict"]}
                return Score(outcome.value, written.why or outcome.why, detail)
            return outcome
        place = self._first(completion.text)
        if completion.ending is ReplyEnding.CUT and isinstance(place, _Place):
            completion = msgspec.structs.replace(completion, ending=ReplyEnding.COMPLETE)
        outcome = self._outcome(completion, place)
        # `read_completion` sees to replies that are no answers, and to refusals
        return read_completion(completion, lambda _: outcome)

    @property
    def _has_prefixes(self) -> bool:
        names = list(self._names)
        return any(a != b and b.startswith(a) for a in names for b in names)

    def _first(self, text: str) -> _Place | str:
        """The place of the answer's first word, behind thinking and a label."""
        plain = plain_characters(text)
        split = split_thinking(plain)
        if split.answer is None:
            return "the reply ended while the judge was thinking"
        found = _FIRST.match(split.answer)
        if found is None:
            return "the reply is empty"
        at = plain.rfind(split.answer)
        if at < 0:
            return "the verdict stands between control tokens"
        place = _Place(plain, at + found.start("word"))
        written = self._word_at(plain, place.start)
        before = _FIRST.match(split.before)
        if before is not None:
            earlier = self._word_at(split.before, before.start("word"))
            if earlier is not None and earlier != written:
                return "the reply names different verdicts before and after the end of its thinking"
        return place if written is None else self._contradiction(place, written) or place

    def _contradiction(self, place: _Place, written: str) -> str | None:
        """How the rest of the answer contradicts its first word; None where it does not.

        A reply cut behind its first word has no rest. A first word may end a clause ("Yes, it
        is."); a number that is not labelled may be anything, such as that of a list.
        """
        answer = split_thinking(place.text).answer
        found = find_claim(answer, reader_for(self.rule))
        if isinstance(found, str):
            rest = place.text[place.start + len(written) :].lstrip("*_`\"'")
            ends_clause = self.rule.choice is not None and rest[:1] in _CLAUSE_ENDS
            alone = not any(
                name != self._folded(written) and _has(name, rest) for name in self._names
            )
            is_first_word = found.startswith(NO_VERDICT) and ends_clause and alone
            return None if is_first_word else found
        verdict = found[0].verdict
        if verdict is None:
            return "the reply's verdict has another form"
        same = verdict == (written if self.rule.choice is not None else float(written))
        return None if same else "the reply's first word is one verdict and the rest names another"

    def _labelled(self, text: str) -> _Place | str:
        """The place of the verdict that `parse` finds."""
        reader = reader_for(self.rule)
        found = find_claim(visible_answer(text), reader)
        if isinstance(found, str):
            return found
        claim, answer = found
        lower = folded(answer)
        readings = ((at, reader.read_at(lower, at)) for at in range(claim.start, claim.end))
        fits = [(at, r.end) for at, r in readings if r is not None and r.verdict == claim.verdict]
        # a label may name the verdict too ("Score (1-10): 1"), and a reason in the same JSON object
        fits = [fit for fit in fits if fit[1] == claim.end] or fits
        verdict = claim.verdict
        name = self._folded(f"{verdict:.0f}" if isinstance(verdict, float) else str(verdict))
        start = lower.find(name, fits[0][0], claim.end) if fits else -1
        tail = answer[start:].rstrip()
        plain = plain_characters(text).rstrip()
        if start < 0 or len({end for _, end in fits}) > 1 or not plain.endswith(tail):
            return "the place of the verdict in the reply is not clear"
        return _Place(plain, len(plain) - len(tail))

    def _outcome(self, completion: Completion, place: _Place | str) -> Score | Abstain:
        if isinstance(place, str) and not completion.text.strip():
            return self._unread(place)  # and no wonder that nothing has probabilities
        steps = token_steps(completion.logprobs)
        if isinstance(steps, str):
            return Abstain(
                FailureKind.HTTP_ERROR,
                f"the reply {steps}, and 'by: {self.rule.by}' reads them: this endpoint does not "
                "give them for this model, or needs another 'top_logprobs' in the judge's "
                "parameters",
            )
        if isinstance(place, str):
            return self._unread(place)
        found = _step_at(steps, completion.text, place)
        if found is None:
            return self._unread("the logprobs are those of another text than the reply's")
        at, head = found
        shares = dict.fromkeys(self._names, 0.0)
        self._spread(steps, at, head, shares)
        total = min(math.fsum(shares.values()), 1.0)
        outside = 1.0 - total
        if outside > self._limit or not total:
            return self._uncertain(steps[at], head, outside)
        return self._expectation(shares, outside, self._word_at(place.text, place.start))

    def _spread(
        self, steps: list[TokenStep], at: int, head: bytes, shares: dict[str, float]
    ) -> None:
        """Add the probability of each verdict that may stand at a place to `shares`.

        Args:
            steps: the tokens of the reply.
            at: the index of the verdict's first token.
            head: what stands in that token before the verdict, such as a colon.
            shares: probability of each verdict.
        """
        written, mass = b"", 1.0
        while at < len(steps):
            step = steps[at]
            texts = [self._start(written + text, head) for text, _ in step.options]
            whole = {text for text in texts if text in self._names}
            goes_on = 0.0
            for (token, probability), text in zip(step.options, texts, strict=True):
                if written and _ends(token):
                    text = self._start(written, head)  # noqa: PLW2901 - the verdict ends here
                    longer: list[str] = []
                else:
                    longer = self._longer(text)
                if token == step.text and _goes_on(steps, at, text, longer):
                    goes_on = mass * probability
                elif (name := self._name(text, longer, whole)) is not None:
                    shares[name] += mass * probability
            if not goes_on:
                return
            written, mass, at = written + step.text, goes_on, at + 1

    def _start(self, token: bytes, head: bytes) -> str:
        """A token as text, in the characters and case in which verdicts are compared."""
        if head and not token.startswith(head):
            return ""
        text = token[len(head) :].decode("utf-8", "replace")
        return self._folded(text).lstrip(_LEADING)

    def _longer(self, text: str) -> list[str]:
        """The verdicts that `text` is only the beginning of."""
        return [n for n in self._names if text and len(n) > len(text) and n.startswith(text)]

    def _name(self, text: str, longer: list[str], whole: set[str]) -> str | None:
        """The verdict that a token means; None where it means none, or it is not certain which.

        Args:
            text: of the token.
            longer: the verdicts that it may be the beginning of.
            whole: the verdicts that are single tokens here; a tokenizer that has 10 as one token
                writes no 10 as 1 and 0.
        """
        said = _TRAILING.sub("", text)
        if said in self._names:
            return said if not longer or not whole.isdisjoint(longer) else None
        return longer[0] if len(longer) == 1 and len(text) >= _SURE_LETTERS else None

    def _word_at(self, text: str, start: int) -> str | None:
        """The verdict that is written at a place; None for another word."""
        said = self._folded(text[start:])
        fits = [n for n in self._names if said.startswith(n) and not said[len(n) :][:1].isalnum()]
        return self._names[max(fits, key=len)] if fits else None

    def _expectation(self, shares: dict[str, float], outside: float, written: str | None) -> Score:
        total = math.fsum(shares.values())
        share = {self._names[name]: each / total for name, each in shares.items() if each}
        value = math.fsum(self._worth[name] * each for name, each in share.items())
        value = min(max(value, self.bounds[0]), self.bounds[1])
        likely = sorted(share, key=share.__getitem__, reverse=True)[:_SHOWN]
        why = ", ".join(f"{name} {share[name]:.0%}" for name in likely)
        detail: dict[str, Any] = {
            "verdict": value,
            "probabilities": {name: round(each, 6) for name, each in share.items()},
            "measured": {OUTSIDE: outside},
        }
        if written is not None:
            detail["written"] = written if self.rule.choice else int(written)
        return Score(value, why, detail)

    def _uncertain(self, step: TokenStep, head: bytes, outside: float) -> Abstain:
        """The abstention where too much probability is on tokens that are no verdict."""
        if not step.options:
            return self._unread("the logprobs have no probabilities in the verdict's place")
        whole = {text for token, _ in step.options if (text := self._start(token, head))}
        others: list[str] = []
        for token, probability in sorted(step.options, key=lambda option: -option[1]):
            text = self._start(token, head)
            longer = self._longer(text)
            if self._name(text, longer, whole) is None and len(others) < _SHOWN:
                began = (
                    f" (may begin {_either([self._names[n] for n in longer])})" if longer else ""
                )
                shown = one_line(token.decode("utf-8", "replace"), 20)
                others.append(f"{shown!r} {probability:.0%}{began}")
        return self._unread(
            f"{outside:.0%} of the probability is not on one of the verdicts, and max_outside is "
            f"{self._limit:.0%}: {', '.join(others) or 'on tokens beyond top_logprobs'}"
        )

    def _unread(self, problem: str) -> Abstain:
        return Abstain(FailureKind.UNPARSEABLE, f"{problem}; expected {expected_form(self.rule)}")

    @staticmethod
    def _folded(text: str) -> str:
        return folded(plain_characters(text))


def _verdicts(rule: VerdictRule) -> dict[str, float]:
    """What each verdict is worth.

    Raises:
        ConfigError: there are too many of them.
    """
    if rule.choice is not None:
        last = len(rule.choice) - 1
        return {word.strip(): 1.0 - at / last for at, word in enumerate(rule.choice)}
    low, high = rule.integer or (0, 1)
    if high - low >= _MOST_VERDICTS:
        raise ConfigError(
            f"by: expectation is for at most {_MOST_VERDICTS} different verdicts, and "
            f"[{low}, {high}] has {high - low + 1}"
        )
    return {str(value): float(value) for value in range(low, high + 1)}


def _step_at(steps: list[TokenStep], text: str, place: _Place) -> tuple[int, bytes] | None:
    """The token in which a verdict begins, and what stands before it in that token.

    Args:
        steps: of the whole reply, thinking included where the server counts it.
        text: of the answer.
        place: of the verdict in the answer's plain characters.

    Returns:
        The index of the token and the bytes before the verdict, where these are more than marks;
        None where the tokens do not make up the text.
    """
    stream = b"".join(step.text for step in steps)
    offset = _original_offset(text, place.start)
    line = text.rfind("\n", 0, offset) + 1
    for begin in (0, line):  # a server may count control tokens of the text, or leave them out
        known = text[begin:].strip().encode("utf-8", "replace")
        skipped = len(text[begin:]) - len(text[begin:].lstrip())
        before = text[begin + skipped : offset].encode("utf-8", "replace")
        found = stream.rfind(known)
        if found >= 0:
            return _token_at(steps, found + len(before))
    return None


def _token_at(steps: list[TokenStep], position: int) -> tuple[int, bytes] | None:
    ends = list(accumulate(len(step.text) for step in steps))
    at = bisect_right(ends, position)
    if at == len(steps):
        return None
    head = steps[at].text[: position - (ends[at - 1] if at else 0)]
    return at, head if head.decode("utf-8", "replace").strip(_LEADING) else b""


def _original_offset(text: str, plain_offset: int) -> int:
    """The place in `text` of a place in its plain characters."""
    if len(plain_characters(text)) == len(text):
        return plain_offset
    kept = [
        at
        for at, char in enumerate(text)
        if plain_characters(char) and not text.startswith("\r\n", at)
    ]
    return kept[plain_offset] if plain_offset < len(kept) else len(text)


def _has(word: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) is not None


def _goes_on(steps: list[TokenStep], at: int, text: str, longer: list[str]) -> bool:
    """Whether the token behind `at` belongs to the same word, or decides which word it is.

    Args:
        steps: the tokens of the reply.
        at: the index of a token.
        text: what is written of the verdict up to that token.
        longer: the verdicts that `text` is only the beginning of.
    """
    if at + 1 == len(steps):
        return False
    follows = steps[at + 1].text.decode("utf-8", "replace")
    return bool(longer) or (text[-1:].isalnum() and follows[:1].isalnum())


def _ends(token: bytes) -> bool:
    """Whether a token ends the word before it: white space, nothing, or a control token."""
    text = token.decode("utf-8", "replace")
    return not text.strip() or _SPECIAL.match(text) is not None


def _either(names: list[str]) -> str:
    return " or ".join(names[:_SHOWN])
