"""Verdicts without a label that a reply begins with ("8 - great") or ends with ("Clear. 8/10")."""

from __future__ import annotations

import re

from zerowait.judge.parsing.claims import ClaimReader, Reading, VerdictClaim
from zerowait.judge.parsing.context import introduced_as_other
from zerowait.patterns import lazy_pattern

_OPENING = lazy_pattern(r"[\s#]*")
_BECAUSE = lazy_pattern(r"[*_`]*[,;]?[ ](?:-[ ]|—[ ]?)?(?:because|since|as|due[ ]to)\b")
_LINES = lazy_pattern(r"\n[ \t#>*_-]*+(?=[0-9])")
_GOOD = (
    r"(?:very|quite|really|pretty|fairly|rather|mostly|largely|generally|overall|outstanding"
    r"|excellent|exceptional|great|good|strong|solid|decent|nice|fine|fair|mediocre|average"
    r"|adequate|acceptable|okay|ok|weak|poor|bad|terrible|perfect|flawless|clear|concise|correct"
    r"|accurate|helpful|thorough|impressive|superb|fantastic|amazing|wonderful|insufficient"
    r"|incomplete|incorrect|wrong|inaccurate|unhelpful|vague|unclear|confusing|satisfactory"
    r"|well[ -]\w{1,12})"
)
_WORK = (
    r"(?:answer|response|reply|work|job|effort|attempt|solution|explanation|essay|output|summary"
    r"|text|story|poem|translation|code|argument|proof)"
)
# What makes a number that a reply begins with its verdict: an opinion, or a reason.
_REMARK = lazy_pattern(
    rf"""
    [*_]{{0,4}}+ (?: [ ](?:-|—)[ ] | — | [ ]?\n{{1,3}} | [ ]\(
      | (?<!\b1)[.][ ](?=(?:the|this)[ ]) ) [*_]{{0,4}}+
    (?! the[ ]answer[ ](?:is|equals|=)[ ](?!{_GOOD}\b) | [^\n.]{{0,40}}\b(?:should|must)\b )
    (?: (?:(?:an?|the|this|it)[ ])?(?:(?:is|was)[ ])?{_GOOD}\b
      | (?:the|this)[ ](?:assistant|model|user|{_WORK})(?:'s)?[ ]
      | (?:reason(?:ing|s)?|explanation|rationale|justification|feedback|comments?|why)\b
      | (?:it|this)[ ](?:is|was|does|has|lacks|misses|answers|follows|covers|explains|addresses)\b
      | (?:because|since|although|while)\b )
    """,
    re.VERBOSE,
)
# A text ends with "8/10" after a whole sentence, "a strong answer" or "so".
_CLOSES = lazy_pattern(
    rf"""
    (?: (?<=\w{{3}})[.!。] | \b{_GOOD},?[ ](?:\w{{1,14}}[ ])?{_WORK} (?: [ ]- | [ ]?— | [,:;!] )
      | (?: (?<=\n) | (?<=[.!;,][ ]) )
        (?: so | thus | hence | therefore | overall | all[ ]in[ ]all | all[ ]things[ ]considered
          | in[ ](?:total|summary|conclusion) ) [:,]?
      | \b(?:but|though|although|not[ ]bad)\b [^.!?;:"\n—]{{1,120}} (?: [ ]?— | [ ]-(?=[ ]) ) )
    (?: (?<=。) | \s{{1,3}}+ ) [*_]{{0,4}}+ (?:an?[ ](?:easy|clear|solid|strong)[ ])? [*_]{{0,4}}+
    (?= [0-9]++ (?:\.[0-9]++)? [ ]?(?:/|out[ ]of)[ ]?[0-9]++ [*_]{{0,4}}+
        (?:[ ](?:from|for)[ ]me)? [\s.!*_]*+ \Z )
    """,
    re.VERBOSE,
)
_LAST_CHARS = 1200
_SCALED = lazy_pattern(r"[0-9][ ]?(?:/|out[ ]of)[ ]?[0-9]")
_ANOTHER_SAYS = lazy_pattern(
    r"\b(?:response|answer|reply|author|it|he|she|they|model|student|user|text|policy|assistant"
    r"|line)[ ](?:itself[ ]|also[ ])?(?:says?|said|writes?|wrote|claims?|claimed|states?|stated"
    r"|reads|quotes?|tells?|told|instructs?|declares?|asserts?|ends|concludes?|demands?|asks?"
    r"|asked)\b"
    r"|\b(?:written|reads?|says?|instructs?|states?|prompts?|quoted?)\b[^.!?\n]{0,60}:"
)


def opening_claim(text: str, reader: ClaimReader) -> VerdictClaim | None:
    """The verdict that `text` begins with, or None. Only for a text with no labelled one."""
    opened = _OPENING.match(text)
    start = opened.end() if opened else 0
    reading = reader.read_at(text, start)
    if reading is None or reading.verdict is None or not _needs_no_label(text, reader, reading):
        return None
    return VerdictClaim(reading.verdict, start, reading.end, final=False)


def _needs_no_label(text: str, reader: ClaimReader, reading: Reading) -> bool:
    if isinstance(reading.verdict, str):
        return _BECAUSE.match(text, reading.end) is not None
    if not reading.scaled and _REMARK.match(text, reading.end) is None:
        return False
    return not any(
        below is not None and below.scaled >= reading.scaled  # the lines of a rubric, or of a list
        for below in (
            reader.read_at(text, line.end()) for line in _LINES.finditer(text, reading.end)
        )
    )


def closing_claim(text: str, reader: ClaimReader) -> VerdictClaim | None:
    """The "8/10" that `text` ends with, or None. Only for a text with no labelled verdict."""
    line = max(text.rfind("\n", 0, len(text.rstrip())), len(text) - _LAST_CHARS, 0)
    match = _CLOSES.search(text, line)
    if match is None or introduced_as_other(text, match.start() + 1):
        return None
    if _SCALED.search(text, line, match.end()) or _ANOTHER_SAYS.search(text, line, match.end()):
        return None
    reading = reader.read_at(text, match.end())
    if text.count('"', line, match.end()) % 2 or reading is None or not reading.scaled:
        return None
    return VerdictClaim(reading.verdict, match.end(), reading.end, final=False)
