r"""How a judge is told to answer with one verdict, and how its answer is read.

`reply_format` and `parse` are two sides of one rule, so that the prompt never asks for a form that
the parser does not read. An answer in exactly that form is read by `read_asked_form`. Every other
one goes to `read_any_form`, which reads far more than is asked for and never guesses:

- A value counts where it is *labelled* (``Score: 7``, ``**Rating** - 7/10``, ``{"score": 7}``,
  ``<score>7</score>``, ``评分: 7分``), or is all there is on the last line, or where a sentence
  gives it (`zerowait.judge.parsing.sentences`), or begins or ends the answer in a way that leaves
  no doubt (`zerowait.judge.parsing.unlabelled`). Any other number in prose, in ``\boxed{}`` or in
  ``[[ ]]`` without a label may be quoted from the policy, and does not count.
- A labelled range, a fraction of another scale, ``7.5`` where a whole number was asked for,
  ``not yes`` and ``yes or no`` are not verdicts.
- Where an answer claims different verdicts, the one that fills the last line counts, if there is
  one (reasons first, then the verdict); without one the answer is unparseable.
- Thinking is no answer, and an answer whose thinking never ended is unparseable.
"""

from __future__ import annotations

import math
import re
from itertools import chain, islice

from zerowait.config.schema import VerdictRule
from zerowait.errors import ConfigError
from zerowait.judge.parsing.answer import folded, visible_answer
from zerowait.judge.parsing.claims import ClaimReader, VerdictClaim, text_claims
from zerowait.judge.parsing.context import ends_a_sentence, retracts
from zerowait.judge.parsing.loose_json import json_claims
from zerowait.judge.parsing.readers import bounds, reader_for
from zerowait.judge.parsing.sentences import sentence_claims
from zerowait.judge.parsing.unlabelled import closing_claim, opening_claim
from zerowait.types import Abstain, FailureKind, Score

_MOST_CLAIMS = 100
_QUOTED = re.compile(r"(?:[ ]{0,3}>[ ]?)+")
_TAGGED = re.compile(
    r"<(?P<tag>answer|output|final|final_answer|solution)>\s*+(?P<inside>[^\W\d_][^<>]*+)</(?P=tag)>",
    re.IGNORECASE,
)
_SHOWN_CHARS = 80
_REASON_CHARS = 240
_CHARS_AFTER = 4000
_SURROGATE = re.compile("[\ud800-\udfff]")
_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?")
_WORD = re.compile(r"[^\W_]+(?: [^\W_]+)*")
NO_VERDICT = "the reply names no verdict"


def reply_format(rule: VerdictRule, *, reason_first: bool = True) -> str:
    """The instruction that tells a judge in which form to answer.

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
        f"{opening}\nScore: N\nwhere N is {kind} from {low:.15g} (lowest) to {high:.15g} (highest)."
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
    answer = visible_answer(text)
    return read_asked_form(answer or "", rule) or read_any_form(answer, rule)


def read_asked_form(answer: str, rule: VerdictRule) -> Score | None:
    r"""The verdict of an answer in exactly the form that `reply_format` asks for; else None.

    That is a last line ``Score: N`` or ``Verdict: WORD`` below reasons that end a sentence, or that
    line, N or WORD alone. `read_any_form` says the same of such an answer, several times slower.

    Args:
        answer: in plain characters, without thinking.
        rule: what N or WORD may be; None is returned for a value outside of it.

    >>> read_asked_form("Step 2 is missing.\nScore: 7", VerdictRule(integer=(1, 10))).value
    7.0
    """
    reasons, _, line = answer.strip().rpartition("\n")
    label, colon, said = line.rpartition(": ")
    if label != ("Score" if rule.choice is None else "Verdict") and (colon or reasons):
        return None
    if reasons and ("{" in reasons or not ends_a_sentence(reasons)):
        return None
    verdict: float | str
    if rule.choice is not None:
        if said not in rule.choice or not _WORD.fullmatch(said):
            return None
        value, verdict = 1.0 - rule.choice.index(said) / (len(rule.choice) - 1), said
    else:
        if not _NUMBER.fullmatch(said) or (rule.integer is not None and "." in said):
            return None
        value = float(said)
        low, high = bounds(rule)
        if not low <= value <= high:
            return None
        verdict = int(value) if rule.integer else value
    before = f"\n{reasons}"[: 2 * _REASON_CHARS]
    has_reason = any(map(str.isalpha, before))
    return Score(value, one_line(before) if has_reason else "", {"verdict": verdict})


def read_any_form(answer: str | None, rule: VerdictRule) -> Score | Abstain:
    """The verdict of an answer in whatever form a judge may give it.

    Args:
        answer: in plain characters, without thinking; None where the thinking never ended.
        rule: what the verdict may be.
    """
    found = find_claim(answer, reader_for(rule))
    if isinstance(found, str):
        return unparseable(found, rule)
    claim, answer = found
    return claim_outcome(claim, rule, answer)


def find_claim(answer: str | None, reader: ClaimReader) -> tuple[VerdictClaim, str] | str:
    """The claim that counts in an answer, with the text that its places refer to.

    Args:
        answer: as in `read_any_form`.
        reader: reads the values of one form of verdict.

    Returns:
        The claim and the text, or what is wrong with the answer.
    """
    if answer is None:
        return "the reply ended while the judge was thinking"
    answer = f"\n{_unquoted(_unwrapped(answer.strip()))}"
    if answer == "\n":
        return "the reply is empty"
    claims, spans = json_claims(answer, reader)
    lower = folded(answer)
    others = chain(text_claims(lower, reader, spans), sentence_claims(lower, reader, spans))
    claims.extend(islice(others, _MOST_CLAIMS))
    if not claims:
        unlabelled = (opening_claim(lower, reader), closing_claim(lower, reader))
        claims = [claim for claim in unlabelled if claim is not None]
    claim = deciding_claim(claims)
    if isinstance(claim, VerdictClaim) and is_retracted(answer, claim.end, reader):
        claim = "the reply takes its verdict back"
    if isinstance(claim, str):
        return f"{claim}, the judge wrote {one_line(answer[-_SHOWN_CHARS:], _SHOWN_CHARS)!r}"
    return claim, answer


def _unwrapped(answer: str) -> str:
    """`answer` without the tag around the whole of it, where there is a label or words inside."""
    wrapped = _TAGGED.fullmatch(answer)
    return wrapped["inside"] if wrapped else answer


def _unquoted(answer: str) -> str:
    """`answer` without Markdown's quote marks, where all its lines have them, or only the last.

    A quoted line in between holds another text's words: the response's, most likely.
    """
    if ">" not in answer:
        return answer
    lines = answer.split("\n")
    if all(_QUOTED.match(line) for line in lines if line.strip()):
        return "\n".join(_QUOTED.sub("", line) for line in lines)
    if _QUOTED.match(lines[-1]) and not (len(lines) > 1 and _QUOTED.match(lines[-2])):
        lines[-1] = _QUOTED.sub("", lines[-1])
    return "\n".join(lines)


def is_retracted(answer: str, end: int, reader: ClaimReader) -> bool:
    """Whether `answer` takes back the verdict that ends at `end`."""
    after = folded(answer)[end : end + _CHARS_AFTER]
    return retracts(after, reader.remarks)


def to_unit_range(value: float, rule: VerdictRule) -> float:
    """A score's value mapped from the rule's range to [0, 1].

    Raises:
        ValueError: `value` is outside the range.

    >>> to_unit_range(7.0, VerdictRule(integer=(1, 9)))
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
        raise ValueError(f"{value} is not in the verdict's range [{low:.15g}, {high:.15g}]")
    return (value - low) / (high - low)


def check_rule(rule: VerdictRule) -> None:
    """Check that the parser can tell all allowed verdicts apart.

    Raises:
        ConfigError: a choice has a blank word, or two words that differ only in case; or a bound
            is infinite.
    """
    if not all(math.isfinite(bound) for bound in bounds(rule)):
        raise ConfigError(f"the verdict's range {list(bounds(rule))} must be finite")
    seen: dict[str, str] = {}
    for word in rule.choice or ():
        lower = word.strip().casefold()
        if not lower:
            raise ConfigError("a word of the verdict's choice is blank")
        if lower in seen:
            raise ConfigError(f"the choices {seen[lower]!r} and {word!r} cannot be told apart")
        seen[lower] = word


def deciding_claim(claims: list[VerdictClaim]) -> VerdictClaim | str:
    """The claim that counts, or why none of them does.

    Where all claim the same verdict it is the last one, so that what follows it is checked.
    """
    if not claims:
        return NO_VERDICT
    if len(claims) >= _MOST_CLAIMS:
        return f"the reply names {_MOST_CLAIMS} verdicts or more"
    if all(claim.verdict == claims[0].verdict for claim in claims):
        return max(claims, key=lambda claim: claim.end)
    final = [claim for claim in claims if claim.final]
    return final[0] if final else "the reply names different verdicts"


def claim_outcome(claim: VerdictClaim, rule: VerdictRule, answer: str) -> Score | Abstain:
    """The Score of a claim in `answer` under `rule`, or an Abstain where it is not allowed."""
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
            FailureKind.OUT_OF_RANGE,
            f"the verdict is {value:.15g}, expected {expected_form(rule)}",
        )
    verdict = int(value) if rule.integer else value
    return Score(value, reason_of(claim, answer), {"verdict": verdict})


def reason_of(claim: VerdictClaim, answer: str) -> str:
    """The beginning of the judge's reasons for a claim in `answer`, on one line."""
    if claim.reason:
        return one_line(claim.reason)
    before = answer[: min(claim.start, 2 * _REASON_CHARS)]
    if any(map(str.isalpha, before)):
        return one_line(before)
    after = answer[claim.end : claim.end + 2 * _REASON_CHARS]
    return one_line(after.lstrip(" \t\n.,;:*_`-—|"))


def unparseable(problem: str, rule: VerdictRule, shown: str = "") -> Abstain:
    """The abstention for a reply without a verdict.

    Args:
        problem: what is wrong with the reply.
        rule: the verdict that was expected.
        shown: the part of the reply that the message quotes.
    """
    said = f", the judge wrote {one_line(shown, _SHOWN_CHARS)!r}" if shown else ""
    return Abstain(FailureKind.UNPARSEABLE, f"{problem}; expected {expected_form(rule)}{said}")


def expected_form(rule: VerdictRule) -> str:
    """What a verdict under `rule` looks like, such as "a whole number from 1 to 10"."""
    if rule.choice is not None:
        return f"one of {', '.join(rule.choice)}"
    low, high = bounds(rule)
    kind = "a whole number" if rule.integer else "a number"
    return f"{kind} from {low:.15g} to {high:.15g}"


def one_line(text: str, chars: int = _REASON_CHARS) -> str:
    """The beginning of `text` on one line, at most `chars` characters long."""
    line = " ".join(_SURROGATE.sub("\ufffd", text[: 2 * chars]).split())
    return line if len(line) <= chars else f"{line[: chars - 1]}…"
