r"""How a judge is told to answer, and what its answer means.

`reply_format` and `parse` are two sides of one rule, so that the prompt never asks for a form that
the parser does not read. The parser reads far more than is asked for, and never guesses:

- A value counts where it is *labelled* (``Score: 7``, ``**Rating** - 7/10``, ``{"score": 7}``,
  ``<score>7</score>``, ``评分: 7分``), or is all there is on the last line, or stands where
  `zerowait.judge.unlabelled` says. Any other number in prose, in ``\boxed{}`` or in ``[[ ]]``
  without a label is somebody's number, maybe the policy's.
- A labelled range, a fraction of another scale, ``7.5`` where a whole number was asked for,
  ``not yes`` and ``yes or no`` are not verdicts.
- Where different verdicts are claimed, the one that fills the last line is meant, if there is one
  (reasons first, then the verdict); otherwise nobody can say, and the reply is unparseable.
- Thinking is not an answer, and thinking that never ended is none either.
"""

from __future__ import annotations

import math
import re
from itertools import chain, islice

from zerowait.config.schema import VerdictRule
from zerowait.errors import ConfigError
from zerowait.judge.answer import answer_text, folded
from zerowait.judge.claims import Claim, Reader, text_claims
from zerowait.judge.context import takes_back
from zerowait.judge.loose_json import json_claims
from zerowait.judge.readers import bounds, reader_for
from zerowait.judge.unlabelled import given_claims, opening_claim
from zerowait.types import Abstain, FailureKind, Score

_MOST_CLAIMS = 100
_QUOTED = re.compile(r"(?:[ ]{0,3}>[ ]?)+")
_SHOWN_CHARS = 80
_REASON_CHARS = 240
_CHARS_AFTER = 4000


def reply_format(rule: VerdictRule, *, reason_first: bool = True) -> str:
    """What the judge is told about the form of its answer.

    >>> print(reply_format(VerdictRule(integer=(1, 10)), reason_first=False))
    Reply with exactly one line of this form and nothing else:
    Score: N
    where N is a whole number from 1 (lowest) to 10 (highest).
    """
    opening = (
        "First give your reasons in a few sentences. Then end your reply with exactly one line "
        "of this form and write nothing after it:"
        if reason_first
        else "Reply with exactly one line of this form and nothing else:"
    )
    if rule.choice is not None:
        return f"{opening}\nVerdict: WORD\nwhere WORD is one of: {', '.join(rule.choice)}."
    low, high = bounds(rule)
    kind = "a whole number" if rule.integer else "a decimal number"
    return (
        f"{opening}\nScore: N\nwhere N is {kind} from {_plain(low)} (lowest) to {_plain(high)} "
        "(highest)."
    )


def parse(text: str, rule: VerdictRule) -> Score | Abstain:
    r"""The verdict that `text` gives under `rule`: a Score, or an Abstain that says why not.

    A Score's `value` lies in the rule's range (of a choice: 1 for the first word, 0 for the last,
    evenly between), `why` is the beginning of the judge's reasons, and ``detail["verdict"]`` the
    verdict as given. The kinds are ``unparseable`` and ``out_of_range``. Raises nothing for any
    text; the time is linear in its length.

    >>> rule = VerdictRule(integer=(1, 10))
    >>> parse("Clear, but step 2 is missing.\n**Score:** 7/10", rule).value
    7.0
    >>> parse("It deserves 7, perhaps 8.", rule).kind.value
    'unparseable'
    >>> parse("Score: 15", rule).kind.value
    'out_of_range'
    """
    found = claimed(text, reader_for(rule))
    if isinstance(found, str):
        return unparseable(found, rule)
    claim, answer = found
    return judged(claim, rule, answer)


def claimed(text: str, reader: Reader) -> tuple[Claim, str] | str:
    """The claim that counts in `text`, with the answer it stands in, or what is wrong with it.

    Raises nothing for any text.
    """
    answer = answer_text(text)
    if answer is None:
        return "the reply ended while the judge was thinking"
    answer = f"\n{_unquoted(answer.strip())}"
    if answer == "\n":
        return "the reply is empty"
    claim = meant(_claims(answer, reader))
    if isinstance(claim, Claim) and taken_back(answer, claim.end, reader):
        claim = "the reply takes its verdict back"
    if isinstance(claim, str):
        return f"{claim}, the judge wrote {shortened(answer[-_SHOWN_CHARS:], _SHOWN_CHARS)!r}"
    return claim, answer


def _unquoted(answer: str) -> str:
    """`answer` without the marks of a Markdown quote before all its lines, or before the last.

    A quoted line in between is somebody's words: the response's, most likely.
    """
    if ">" not in answer:
        return answer
    lines = answer.split("\n")
    if all(_QUOTED.match(line) for line in lines if line.strip()):
        return "\n".join(_QUOTED.sub("", line) for line in lines)
    if _QUOTED.match(lines[-1]) and not (len(lines) > 1 and _QUOTED.match(lines[-2])):
        lines[-1] = _QUOTED.sub("", lines[-1])
    return "\n".join(lines)


def taken_back(answer: str, end: int, reader: Reader) -> bool:
    """Whether what `answer` says after its verdict, which ends at `end`, takes it back."""
    after = folded(answer)[end : end + _CHARS_AFTER]
    return takes_back(after, reader.remarks)


def normalise(value: float, rule: VerdictRule) -> float:
    """A score's value mapped from the rule's range to [0, 1].

    Raises:
        ValueError: `value` is outside the range.

    >>> normalise(7.0, VerdictRule(integer=(1, 9)))
    0.75
    """
    return to_unit(value, bounds(rule))


def to_unit(value: float, within: tuple[float, float]) -> float:
    """`value` mapped from the range `within` to [0, 1].

    Raises:
        ValueError: `value` is outside the range.

    >>> to_unit(0.0, (-1.0, 1.0))
    0.5
    """
    low, high = within
    if not low <= value <= high:
        raise ValueError(f"{value} is not in the verdict's range [{_plain(low)}, {_plain(high)}]")
    return (value - low) / (high - low)


def check_rule(rule: VerdictRule) -> None:
    """Nothing, for a rule that every allowed verdict can be told apart by.

    Raises:
        ConfigError: a choice has a blank word, or two words that differ only in case; or a bound
            is infinite.
    """
    if not all(math.isfinite(bound) for bound in bounds(rule)):
        raise ConfigError(f"the verdict's range {list(bounds(rule))} must be finite")
    seen: dict[str, str] = {}
    for word in rule.choice or ():
        folded = word.strip().casefold()
        if not folded:
            raise ConfigError("a word of the verdict's choice is blank")
        if folded in seen:
            raise ConfigError(f"the choices {seen[folded]!r} and {word!r} cannot be told apart")
        seen[folded] = word


def _claims(answer: str, reader: Reader) -> list[Claim]:
    claims, spans = json_claims(answer, reader)
    seen = folded(answer)
    found = chain(text_claims(seen, reader, spans), given_claims(seen, reader, spans))
    claims.extend(islice(found, _MOST_CLAIMS))
    opening = None if claims else opening_claim(seen, reader)
    return [opening] if opening else claims


def meant(claims: list[Claim]) -> Claim | str:
    """The claim that counts, or what is wrong with all of them.

    Where all say the same, it is the last one, so that nothing after it is overlooked.
    """
    if not claims:
        return "the reply names no verdict"
    if len(claims) >= _MOST_CLAIMS:
        return f"the reply names {_MOST_CLAIMS} verdicts or more"
    if all(claim.verdict == claims[0].verdict for claim in claims):
        return max(claims, key=lambda claim: claim.end)
    final = [claim for claim in claims if claim.final]
    return final[0] if final else "the reply names different verdicts"


def judged(claim: Claim, rule: VerdictRule, answer: str) -> Score | Abstain:
    """The verdict that a claim in `answer` is under `rule`, or why it is none."""
    if claim.verdict is None:
        return unparseable("the reply's verdict has another form", rule, answer[claim.start :])
    if rule.choice is not None:
        word = str(claim.verdict)
        worth = 1.0 - rule.choice.index(word) / (len(rule.choice) - 1)
        return Score(worth, reason_of(claim, answer), {"verdict": word})
    value = float(claim.verdict)
    low, high = bounds(rule)
    if not (low <= value <= high and math.isfinite(value)):
        return Abstain(
            FailureKind.OUT_OF_RANGE, f"the verdict is {_plain(value)}, expected {expected(rule)}"
        )
    verdict = int(value) if rule.integer else value
    return Score(value, reason_of(claim, answer), {"verdict": verdict})


def reason_of(claim: Claim, answer: str) -> str:
    """The beginning of the judge's reasons for a claim in `answer`, on one line."""
    if claim.reason:
        return shortened(claim.reason, _REASON_CHARS)
    before = answer[: min(claim.start, 2 * _REASON_CHARS)]
    if any(map(str.isalpha, before)):
        return shortened(before, _REASON_CHARS)
    after = answer[claim.end : claim.end + 2 * _REASON_CHARS]
    return shortened(after.lstrip(" \t\n.,;:*_`-—|"), _REASON_CHARS)


def unparseable(problem: str, rule: VerdictRule, shown: str = "") -> Abstain:
    """The abstention of a reply without a verdict under `rule`; shows a part of it."""
    said = f", the judge wrote {shortened(shown, _SHOWN_CHARS)!r}" if shown else ""
    return Abstain(FailureKind.UNPARSEABLE, f"{problem}; expected {expected(rule)}{said}")


def expected(rule: VerdictRule) -> str:
    """What a verdict under `rule` looks like, such as "a whole number from 1 to 10"."""
    if rule.choice is not None:
        return f"one of {', '.join(rule.choice)}"
    low, high = bounds(rule)
    kind = "a whole number" if rule.integer else "a number"
    return f"{kind} from {_plain(low)} to {_plain(high)}"


def _plain(number: float) -> str:
    return f"{number:.15g}"


def shortened(text: str, chars: int = _REASON_CHARS) -> str:
    """The beginning of `text` on one line, at most so many characters."""
    line = " ".join(text[: 2 * chars].split())
    return line if len(line) <= chars else f"{line[: chars - 1]}…"
