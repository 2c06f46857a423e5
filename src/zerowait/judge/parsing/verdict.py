r"""How a judge is told to answer, and what its answer means.

`reply_format` and `parse` are two sides of one rule, so that the prompt never asks for a form that
the parser does not read. The parser reads far more than is asked for, and never guesses:

- A value counts where it is *labelled* (``Score: 7``, ``**Rating** - 7/10``, ``{"score": 7}``,
  ``<score>7</score>``, ``评分: 7分``), or is all there is on the last line, or stands where
  `zerowait.judge.parsing.verdict` says. Any other number in prose, in ``\boxed{}`` or in ``[[ ]]``
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
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, islice

import msgspec

from zerowait.config.schema import VerdictRule
from zerowait.errors import ConfigError
from zerowait.judge.parsing.answer import answer_text, folded, plain_characters
from zerowait.judge.parsing.claims import (
    CLOSING,
    OPENING,
    ClaimReader,
    Reading,
    Remarks,
    Spans,
    Verdict,
    VerdictClaim,
    introduced,
    is_within,
    key_pattern,
    label_pattern,
    named_key,
    named_label,
    of_a_scale,
    remarks,
    says_nothing_after,
    takes_back,
    text_claims,
    well_followed,
)
from zerowait.judge.parsing.loose_json import json_claims
from zerowait.types import Abstain, FailureKind, Score

_WRAPPED = rf"[{OPENING}]*+(?:\\(?:boxed|text|mathbf|mathrm)\{{[{OPENING}]*+)*+"
_CLOSED = rf"[{CLOSING}]*+(?:</[a-z_]{{1,24}}>)?[{CLOSING}]*+"
_UNIT = (
    r"(?: [*_`]*+ [ \t]*+ (?: 分(?![之制]) | 点(?![0-9]) | 점 | points?\b | pts\b | stars?\b ) )?"
)
SOLID = (  # what stands between an article and the verdict: "a solid 8"
    r"(?:solid|strong|firm|clear|generous|fair|respectable|decent|weak|low|high|modest|comfortable)"
)
_NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_WORDS = {name: float(value) for value, name in enumerate(_NAMES)}
_NAMED = "|".join(_NAMES)
_NUMBER = re.compile(
    rf"""
    {_WRAPPED} (?: (?:an?[ ])?{SOLID}[ ] | an?[ ](?=[0-9]) )? {_WRAPPED}
    (?: (?P<number> [+-]?+ (?: [0-9]++ (?:\.[0-9]++)? | \.[0-9]++ ) ) | (?P<word> {_NAMED} )\b )
    {_UNIT}
    (?: [{CLOSING}]*+ [ \t]*+ [(\[]?
        (?: / | out[ ]of\b | of\b | von\b | sur\b
          | on[ ]an?[ ]scale[ ](?:of|from)[ ](?:[0-9.]++[ ]?(?:to|-)[ ]?)? )
        [ \t*_`]*+ (?P<scale> [0-9]++ (?:\.[0-9]++)? | (?:{_NAMED})\b )
      | [ \t]*+ (?P<percent> % ) )?
    {_UNIT}
    {_CLOSED}
    """,
    re.VERBOSE,
)
_NUMBERS = re.compile(r"[0-9]++(?:\.[0-9]++)?")
_STANDING = (
    r"(?=[\s*_`\"']*+(?:[.,;:!?)\]|/]|\Z"
    r"|(?:is|was|would|seems?|may|might|instead|rather|then|now|at)\b))"
)
# Digits of any script, raised and lowered ones, and those in circles, brackets and squares.
_DIGIT = (
    r"[\d\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u2089\u2150-\u218f\u2460-\u249b\u24ea-\u24ff"
    r"\u2776-\u2793\u3021-\u3029\u3192-\u3195\u3220-\u33ff]"
)
_ANY_NUMBER = rf"[-+±~≈<>]?[ ]?\.?{_DIGIT}"
_NUMBER_REMARKS = remarks(
    _ANY_NUMBER,
    rf"[-+]?(?:\d++(?:\.\d++)?|(?:{_NAMED})\b)"
    rf"(?:[ ]?(?:points?\b|stars?\b|分|out[ ]of[ ]\d++))?{_STANDING}",
)


class NumberReader(msgspec.Struct, frozen=True):
    """Reads numbers; `whole` means that only whole ones are verdicts."""

    high: float
    whole: bool
    label: re.Pattern[str]
    key: re.Pattern[str]
    remarks: Remarks = _NUMBER_REMARKS

    def at(self, text: str, position: int) -> Reading | None:
        """The number that begins at `position`, if one does."""
        match = _NUMBER.match(text, position)
        if match is None:
            return None
        end = match.end()
        scale = 100.0 if match["percent"] else _value(match["scale"] or f"{self.high}")
        known = scale == self.high and not self.other_scale(of_a_scale(text, end))
        if known and well_followed(text, end, self.remarks):
            value = _value(match["number"] or match["word"])
            return Reading(self.of(value), end, scaled=match["scale"] is not None)
        return Reading(None, end)

    def other_scale(self, said: str) -> bool:
        """Whether the highest number in `said` is not the highest verdict."""
        numbers = _NUMBERS.findall(said)
        return bool(numbers) and max(map(float, numbers)) != self.high

    def of(self, value: float) -> Verdict | None:
        """The number itself, or None where a whole one was asked for and this is none."""
        if self.whole and math.isfinite(value) and not float(value).is_integer():
            return None
        return float(value)


class ChoiceReader(msgspec.Struct, frozen=True):
    """Reads words; whatever the case and the marks around them."""

    words: dict[str, str]
    word: re.Pattern[str]
    remarks: Remarks
    label: re.Pattern[str]
    key: re.Pattern[str]

    def at(self, text: str, position: int) -> Reading | None:
        """The word that begins at `position`, if one does."""
        match = self.word.match(text, position)
        if match is None:
            return None
        if well_followed(text, match.end(), self.remarks):
            return Reading(self.words.get(match["word"]), match.end())
        return Reading(None, match.end())

    def other_scale(self, said: str) -> bool:
        """False: a choice has no scale."""
        del said
        return False

    def of(self, value: float) -> Verdict | None:
        """The word that a JSON number stands for, where numbers are among the words."""
        return self.words.get(f"{value:.15g}")


def _value(said: str) -> float:
    return _WORDS[said] if said in _WORDS else float(said)


def reader_for(rule: VerdictRule) -> NumberReader | ChoiceReader:
    """The reader of the verdicts that `rule` asks for."""
    if rule.choice is not None:
        return _choice_reader(tuple(rule.choice))
    _, high = bounds(rule)
    return _number_reader(float(high), rule.integer is not None)


def named_reader(rule: VerdictRule, name: str) -> ClaimReader:
    """The reader of the verdicts that `rule` asks for and that are labelled with `name`."""
    reader = reader_for(rule)
    label, key = named_label(name), named_key(name)
    return msgspec.structs.replace(reader, label=label, key=key)


def bounds(rule: VerdictRule) -> tuple[float, float]:
    """The least and the greatest verdict of `rule`; of a choice, the least and greatest worth."""
    return rule.integer or rule.number or (0.0, 1.0)


@lru_cache(maxsize=64)
def _number_reader(high: float, whole: bool) -> NumberReader:  # noqa: FBT001 - a cache key
    return NumberReader(
        high, whole, label=label_pattern(numeric=True), key=key_pattern(numeric=True)
    )


@lru_cache(maxsize=64)
def _choice_reader(choice: tuple[str, ...]) -> ChoiceReader:
    words: dict[str, str] = {}
    for word in choice:
        words.setdefault(folded(plain_characters(word).strip()), word)
    longest_first = sorted(filter(None, words), key=len, reverse=True)
    either = "|".join(re.escape(word) for word in longest_first) or r"(?!)"
    standing = rf"(?:{either})(?!\w){_STANDING}"
    return ChoiceReader(
        words=words,
        word=re.compile(rf"{_WRAPPED}(?P<word>{either}){_CLOSED}"),
        remarks=remarks(f"{standing}|[0-9]", standing),
        label=label_pattern(numeric=False),
        key=key_pattern(numeric=False),
    )


_JUDGED = (
    r"(?:it|this(?:[ ]one)?|(?:this|the)[ ](?:response|answer|reply|solution|output|essay|text)"
    r"|the[ ](?:overall[ ])?quality[ ]of[ ](?:it|this|this[ ](?:response|answer|reply)))"
)
_MARK = r"(?:score|rating|grade|mark)"
_OF = rf"(?P<of>(?:(?:final|overall|total)[ ])?{_MARK}[ ]of[ ])?"
_RATES = ("rate", "give", "score", "grade", "assign", "award")
_EARNS = ("deserves", "earns", "gets", "merits", "receives", "scores")
_OTHERS = ("go with", "settle on", "call", "put", "place", "say", "giving", "rating", "rated")
_OPENERS = r"""
    (?: (?: (?:so|thus|therefore|hence|and|then|accordingly) | (?P<lead> overall | finally
      | ultimately | in[ ](?:summary|conclusion) | on[ ]balance | all[ ]in[ ]all | to[ ]conclude
      | for[ ](?:these|that)[ ]reasons? | given[ ](?:this|that|these) | based[ ]on[ ](?:this|that)
      | (?:i|we)[ ](?:think|believe|feel)(?:[ ]that)? ) ) ,?[ ] ){0,2}
    (?P<on> (?: on[ ]an?[ ]scale[ ](?:from|of)[ ][0-9]++[ ]?(?:to|-)[ ]?[0-9]++
      | on[ ](?:an?|the)[ ][0-9]++[ ]?(?:to|-)[ ]?[0-9]++[ ]scale | from[ ][0-9]++[ ]to[ ][0-9]++
      | out[ ]of[ ][0-9]++ ) ,?[ ] )?
"""
_WILL = (
    r"(?:i|we)(?:'d|'ll|'m|[ ]would|[ ]will|[ ]am)?[ ](?:(?:therefore|thus|hence|going[ ]to)[ ])?"
)
# In the groups is what makes a bare number a verdict: an object that is rated, or an article.
_GIVES = re.compile(
    rf"""
    [\n.!?;,:] [\s*_\#>-]*+ {_OPENERS}
    (?: {_WILL} (?: (?:{"|".join(_RATES)}) | giving | awarding ) [ ] (?P<object>{_JUDGED}[ ])?
      | (?P<puts> {_WILL} (?:put|place)[ ]{_JUDGED}[ ]at[ ] )
      | {_WILL} (?: (?:go|going)[ ]with | (?:settle|land)[ ]on | call[ ]it
          | say[ ](?:it|this)(?:'s|[ ]is) ) [ ]
      | {_JUDGED} [ ] (?: (?P<deserves>deserves|merits) | (?P<earns>{"|".join(_EARNS)}) ) [ ]
      | (?:this|it)(?:'s|[ ]is)[ ] (?= an?[ ]{SOLID}[ ] )
      | (?P<is> (?:this|it|that)(?:'s|[ ]is)[ ] (?=an?[ ]) )
      | (?P<mark> (?:(?:my|the)[ ])?(?:(?:final|overall|appropriate|(?:most[ ])?fitting
          |resulting)[ ])?{_MARK} (?:[ ](?:i|we)(?:'d|[ ]would)?[ ](?:give|assign))?
          (?:[ ](?:would|should)[ ]be|[ ]is) [ ] )
      | (?: (?:rated|rating|giving|scoring) [ ] (?:{_JUDGED}[ ])? )
      | (?P<bare> (?=(?:an?[ ])?(?:final[ ]|overall[ ])?{_MARK}[ ]of) ) )
    (?P<article>an?[ ])? (?: (?:at|as)[ ](?:an?[ ])? )? (?P<solid>{SOLID}[ ])? {_OF}
    (?=[*_`\[(]*+(?:[0-9]|[a-z]{{3,5}}\b))
    """,
    re.VERBOSE,
)
_VERBS = (
    *(f" {verb} " for verb in (*_RATES, *_EARNS, *_OTHERS, "is", "it's", "of", "be")),
    *("\nrated ", "\nrating ", "\ngiving ", "\nit's ", "\nthis ", "\nit "),
)
"""One of these is in each text that `_GIVES` finds something in."""
_SENTENCE_CHARS = 300
# "With tests, this deserves a 9" and "According to its author, this deserves a 10".
_SUPPOSES = re.compile(
    r"[\s*_#>-]*+(?:with(?![ ](?:that|this|these|all)\b)|according[ ]to|(?:in|by)[ ](?:its|their))"
    r"\b"
)
_FITTING = re.compile(
    rf"""
    [\n.!?;,:] [\s*_\#>-]*+ {_OPENERS} (?:an?|the)[ ](?:(?:final|overall)[ ])?(?:{_MARK}[ ]of[ ])?
    (?P<number>[0-9]++(?:\.[0-9]++)?) (?:/(?P<out>[0-9]++))? [ ](?:is|seems|feels)[ ]
    (?:(?:most|quite|only|well)[ ])?
    (?:appropriate|fair|warranted|justified|reasonable|fitting|suitable|deserved)
    (?= [*_]*+ (?: [.,;!\n] | \Z
      | [ ](?:here|overall|because|since|given|for[ ]this[ ]response)\b ) )
    """,
    re.VERBOSE,
)

_RESULT = re.compile(r"[\s.!?;]\[result\]:?[ \t]*+(?=[0-9])")
_BECAUSE = re.compile(r"[*_`]*[,;]?[ ](?:-[ ]|—[ ]?)?(?:because|since|as|due[ ]to)\b")
_OPENING = re.compile(r"[\s#]*")
_LINES = re.compile(r"\n[\s#>*_-]*+(?=[0-9])")


def given_claims(text: str, reader: ClaimReader, skip: Spans) -> Iterator[VerdictClaim]:
    """The numbers that sentences of `text` give; `text` is as in `claims.text_claims`."""
    # looking for a word first takes a tenth of the time, and most texts have none
    gives = _GIVES.finditer(text) if any(map(text.__contains__, _VERBS)) else ()
    results = _RESULT.finditer(text) if "[result]" in text else ()
    for match in chain(gives, results):
        if is_within(match.start(), skip) or introduced(text, match.start() + 1):
            continue
        if _SUPPOSES.match(text, _sentence_start(text, match.start())):
            continue
        reading = reader.at(text, match.end())
        if reading is None or not isinstance(reading.verdict, float):
            continue
        if (
            says_nothing_after(text, reading.end)
            if match.re is _RESULT
            else _is_given(match, reading, reader)
        ):
            yield VerdictClaim(reading.verdict, match.start(), reading.end, final=False)
    yield from _fitting_claims(text, reader, skip)


def _sentence_start(text: str, position: int) -> int:
    """Where the sentence begins that `position` is in; at most 300 characters before it."""
    begin = max(position - _SENTENCE_CHARS, 0)
    return max(text.rfind(end, begin, position + 1) for end in (*"\n.!?;", "\u3002")) + 1


def _is_given(match: re.Match[str], reading: Reading, reader: ClaimReader) -> bool:
    """Whether the sentence leaves no doubt that the number is the verdict.

    "It gets 2" may be about a sum, and "I'd give 3" about reasons: there an article, a scale or a
    word such as "score" has to say what the number is.
    """
    if reader.other_scale(match["on"] or ""):
        return False
    if match["is"]:  # "It's a 7" may be about a digit
        return bool(match["on"] or match["lead"] or reading.scaled)
    if match["earns"] and match[0].startswith(",") and not match["lead"]:
        return reading.scaled  # "on the second roll, it gets a 2"
    known = ("of", "on", "object", "deserves", "puts", "solid", "mark", "article")
    return reading.scaled or any(match[name] for name in known)


def _fitting_claims(text: str, reader: ClaimReader, skip: Spans) -> Iterator[VerdictClaim]:
    """The numbers that are called appropriate: "A score of 7 seems fair."."""
    if " is " not in text and " seems " not in text and " feels " not in text:
        return
    for match in _FITTING.finditer(text):
        if is_within(match.start(), skip) or introduced(text, match.start() + 1):
            continue
        scale = f"{match['on'] or ''} {match['out'] or ''}"
        verdict = None if reader.other_scale(scale) else reader.of(float(match["number"]))
        if isinstance(verdict, float):
            yield VerdictClaim(verdict, match.start(), match.end(), final=False)


def opening_claim(text: str, reader: ClaimReader) -> VerdictClaim | None:
    """The verdict that `text` begins with, or None; for a text that claims no other."""
    opened = _OPENING.match(text)
    start = opened.end() if opened else 0
    reading = reader.at(text, start)
    if reading is None or reading.verdict is None or not _stands(text, reader, reading):
        return None
    return VerdictClaim(reading.verdict, start, reading.end, final=False)


def _stands(text: str, reader: ClaimReader, reading: Reading) -> bool:
    if isinstance(reading.verdict, str):
        return _BECAUSE.match(text, reading.end) is not None
    return reading.scaled and not any(
        below is not None and below.scaled  # the lines of a rubric, or of several verdicts
        for below in (reader.at(text, line.end()) for line in _LINES.finditer(text, reading.end))
    )


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


def claimed(text: str, reader: ClaimReader) -> tuple[VerdictClaim, str] | str:
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
    if isinstance(claim, VerdictClaim) and taken_back(answer, claim.end, reader):
        claim = "the reply takes its verdict back"
    if isinstance(claim, str):
        return (
            f"{claim}, the judge wrote {shortened_reason(answer[-_SHOWN_CHARS:], _SHOWN_CHARS)!r}"
        )
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


def taken_back(answer: str, end: int, reader: ClaimReader) -> bool:
    """Whether what `answer` says after its verdict, which ends at `end`, takes it back."""
    after = folded(answer)[end : end + _CHARS_AFTER]
    return takes_back(after, reader.remarks)


def to_unit_range(value: float, rule: VerdictRule) -> float:
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


def _claims(answer: str, reader: ClaimReader) -> list[VerdictClaim]:
    claims, spans = json_claims(answer, reader)
    seen = folded(answer)
    found = chain(text_claims(seen, reader, spans), given_claims(seen, reader, spans))
    claims.extend(islice(found, _MOST_CLAIMS))
    opening = None if claims else opening_claim(seen, reader)
    return [opening] if opening else claims


def meant(claims: list[VerdictClaim]) -> VerdictClaim | str:
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


def judged(claim: VerdictClaim, rule: VerdictRule, answer: str) -> Score | Abstain:
    """The verdict that a claim in `answer` is under `rule`, or why it is none."""
    if claim.verdict is None:
        return unparseable("the reply's verdict has another form", rule, answer[claim.start :])
    if rule.choice is not None:
        word = str(claim.verdict)
        worth = 1.0 - rule.choice.index(word) / (len(rule.choice) - 1)
        return Score(worth, verdict_reason(claim, answer), {"verdict": word})
    value = float(claim.verdict)
    low, high = bounds(rule)
    if not (low <= value <= high and math.isfinite(value)):
        return Abstain(
            FailureKind.OUT_OF_RANGE, f"the verdict is {_plain(value)}, expected {expected(rule)}"
        )
    verdict = int(value) if rule.integer else value
    return Score(value, verdict_reason(claim, answer), {"verdict": verdict})


def verdict_reason(claim: VerdictClaim, answer: str) -> str:
    """The beginning of the judge's reasons for a claim in `answer`, on one line."""
    if claim.reason:
        return shortened_reason(claim.reason, _REASON_CHARS)
    before = answer[: min(claim.start, 2 * _REASON_CHARS)]
    if any(map(str.isalpha, before)):
        return shortened_reason(before, _REASON_CHARS)
    after = answer[claim.end : claim.end + 2 * _REASON_CHARS]
    return shortened_reason(after.lstrip(" \t\n.,;:*_`-—|"), _REASON_CHARS)


def unparseable(problem: str, rule: VerdictRule, shown: str = "") -> Abstain:
    """The abstention of a reply without a verdict under `rule`; shows a part of it."""
    said = f", the judge wrote {shortened_reason(shown, _SHOWN_CHARS)!r}" if shown else ""
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


def shortened_reason(text: str, chars: int = _REASON_CHARS) -> str:
    """The beginning of `text` on one line, at most so many characters."""
    line = " ".join(text[: 2 * chars].split())
    return line if len(line) <= chars else f"{line[: chars - 1]}…"
