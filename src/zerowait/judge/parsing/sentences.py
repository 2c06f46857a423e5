"""Verdicts that a sentence gives, such as "this response deserves a 7"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from zerowait.judge.parsing.claims import (
    ClaimReader,
    Reading,
    Spans,
    VerdictClaim,
    is_within,
)
from zerowait.judge.parsing.context import introduced_as_other
from zerowait.judge.parsing.readers import SOLID
from zerowait.patterns import lazy_pattern

_JUDGED = (
    r"(?:it|this(?:[ ]one)?|(?:this|the)[ ](?:response|answer|reply|solution|output|essay|text)"
    r"|the[ ](?:overall[ ])?quality[ ]of[ ](?:it|this|this[ ](?:response|answer|reply)))"
)
_MARK = r"(?:score|rating|grade|mark)"
_OF = rf"(?P<of>(?:(?:final|overall|total)[ ])?{_MARK}[ ]of[ ])?"
_RATES = ("rate", "give", "score", "grade", "assign", "award")
_EARNS = ("deserves", "earns", "gets", "merits", "receives", "scores", "warrants")
_OTHERS = ("go with", "settle on", "call", "put", "place", "say", "giving", "rating", "rated")
_OPENERS = r"""
    (?: (?: (?:so|thus|therefore|hence|and|then|accordingly) | (?P<lead> overall | finally
      | ultimately | in[ ](?:summary|conclusion) | on[ ]balance | all[ ]in[ ]all | to[ ]conclude
      | all[ ]things[ ]considered
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
_GIVES = lazy_pattern(
    rf"""
    [\n.!?;,:] [ \t*_\#>-]*+ {_OPENERS}
    (?: {_WILL} (?: (?:{"|".join(_RATES)}) | giving | awarding ) [ ] (?P<object>{_JUDGED}[ ])?
      | (?P<puts> {_WILL} (?:put|place)[ ]{_JUDGED}[ ]at[ ] )
      | (?P<ends> {_WILL} (?: (?:go|going)[ ]with | (?:settle|settling|land)[ ]on ) [ ] )
      | (?: {_WILL} | let's[ ] ) (?: call[ ]it | go
          | say (?: [ ](?:it|this|that)(?:'s|[ ]is) )?+ ) [ ]
      | {_JUDGED} [ ] (?: (?P<deserves>deserves|merits)
          | (?P<earns>{"|".join(_EARNS)}|is[ ]worth) ) [ ]
      | (?:this|it)(?:'s|[ ]is)[ ] (?= an?[ ]{SOLID}[ ] )
      | (?P<is> (?:it's|(?:that|this)(?:'s|[ ]is)|{_JUDGED}[ ]is)[ ] (?=an?[ ]) )
      | (?:easily|definitely|clearly|honestly)[ ](?=an?[ ])
      | (?P<noun> (?=an?[ ](?:{SOLID}[ ])?[*_]*+[0-9]) )
      | (?:this[ ]is[ ])? (?=an?[ ]{SOLID}[ ][*_]*+[0-9.]++[ ]?(?:/|out[ ]of)[ ]?[0-9])
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
    *(
        "\nrated ",
        "\nrating ",
        "\ngiving ",
        "\nit's ",
        "\nthis ",
        "\nit ",
        "\na ",
        "\nan ",
        ", a ",
        ", an ",
    ),
    *(
        "going with ",
        "settling on ",
        "land on ",
        " go ",
        "that's ",
        "\neasily ",
        "\ndefinitely ",
        "\nclearly ",
        "\nhonestly ",
    ),
)
"""One of these is in each text that `_GIVES` finds something in."""
_SENTENCE_CHARS = 300
# "With tests, this deserves a 9" and "According to its author, this deserves a 10".
_SUPPOSES = lazy_pattern(
    r"[\s*_#>-]*+(?:with(?![ ](?:that|this|these|all)\b)|according[ ]to|(?:in|by)[ ](?:its|their))"
    r"\b"
)
_FITTING = lazy_pattern(
    rf"""
    [\n.!?;,:] [ \t*_\#>-]*+ {_OPENERS}
    (?: (?:an?|the)[ ](?:(?:final|overall)[ ])?(?:{_MARK}[ ]of[ ])? | (?=[0-9.]++/) )
    (?P<number>[0-9]++(?:\.[0-9]++)?) (?:/(?P<out>[0-9]++))? [ ](?:is|seems|feels)[ ]
    (?:(?:most|quite|only|well|about)[ ])?
    (?:appropriate|(?<=(?:seem|feel)s[ ])right|(?<=about[ ])right|fair|warranted|justified
      |reasonable|fitting|suitable|deserved)
    (?= [*_]*+ (?: [.,;!\n] | \Z
      | [ ](?:here|overall|because|since|given|for[ ]this[ ]response)\b ) )
    """,
    re.VERBOSE,
)

_SO = lazy_pattern(r",[ ](?:and[ ])?(?:so|thus|hence|therefore)\b")
_FROM_ME = lazy_pattern(r"[*_]*[ ](?:from|for)[ ]me(?=[.!\n]|\Z)")
_STOPS = lazy_pattern(r"[*_]{0,4}+(?:[.!](?=\s|\Z)|\s*\Z)")
_IN_POINTS = lazy_pattern(r"points?|pts|stars?|分|点|점")
# "On a 1-10 scale: 7" as a line.
_ON_A_SCALE = lazy_pattern(
    r"""
    \n [ \t*_\#>-]*+
    (?P<on> (?:on[ ])?(?:an?[ ]|the[ ])?(?:scale[ ](?:from|of)[ ])?
      (?: [0-9]++[ ]?(?:-|to)[ ]?[0-9]++(?:[ ]scale)? | out[ ]of[ ][0-9]++ ) )
    [ *_]*+ (?: [:=→] | -> | (?P<comma>,) ) [ *_]*+ (?=[0-9])
    """,
    re.VERBOSE,
)
# "Ich gebe der Antwort 7/10" and "Le doy un 8/10": only with the scale.
_GIVES_ABROAD = lazy_pattern(
    r"""
    [\n.!?;,:] [ \t*]*+
    (?: ich[ ](?:gebe|vergebe|bewerte) | je[ ](?:lui[ ])?(?:donne|donnerais|mets|attribue)
      | (?:yo[ ])?(?:le[ ])?(?:doy|daría|otorgo|asigno) | (?:gli[ ]|le[ ])?(?:do|darei|assegno)
      | (?:eu[ ])?(?:dou|daria|atribuo) | я[ ](?:ставлю|даю|оцениваю) )
    (?: [ ] (?: dies(?:er|e)|d(?:er|em|ie|as)|antwort|daher|ihr|eine[nr]?|ein|note|von|mit|insgesamt
      |une?|de|la|à|cette|réponse|una|a|esta|respuesta|puntuación|nota|di|questa|risposta|voto|uma?
      |resposta|score|этому|ответу|ответ|этот|на|оценку ) ){0,6}
    [ ] (?=[*_]*+[0-9])
    """,
    re.VERBOSE,
)
# "我给这个回答打8分": a clause that gives points.
_IT_CHINESE = (
    r"(?:(?:这个|该|此|这份|这篇|这条|这一|这段|本)(?:回答|回复|答案|响应|作文|文本|解答)|它)"
)
_SCORES_CHINESE = r"(?:(?:打出|打分|打|评为|评分|评|给出|给予|给|值得|值|得)[了为]?)"
_GIVES_CHINESE = lazy_pattern(
    rf"""
    [\n。,;:!] [ \t*]*+
    (?: 因此|所以|综上(?:所述)?|总体(?:来说|而言|来看)?|综合(?:来看|考虑)?|最终|最后|故 )? ,?
    我? (?: 会|将|决定|愿意|想|认为|觉得 )?
    (?: 给予?{_IT_CHINESE}的?{_SCORES_CHINESE}?
      | [为对将]?(?:{_IT_CHINESE}的?)?(?:可以|应该|应|可)?{_SCORES_CHINESE} )
    [ ]? \**+ (?= [0-9]++ (?:\.[0-9]++)? \**+ [ ]? [分/] )
    """,
    re.VERBOSE,
)
_DOUBT_CHINESE = lazy_pattern(
    r"如果|假如|若|要是|倘|否则|本可|本应|例如|比如|自称|声称|写道|说|要求|不|每|扣|可能|也许|另|其他|之前"
)


def sentence_claims(text: str, reader: ClaimReader, skip: Spans) -> Iterator[VerdictClaim]:
    """The numbers that sentences of a text give as verdict; `text` as in `text_claims`."""
    # most texts have none of these words, and looking for one takes a tenth of the time
    gives = _GIVES.finditer(text) if any(map(text.__contains__, _VERBS)) else ()
    for match in gives:
        if is_within(match.start(), skip) or introduced_as_other(text, match.start() + 1):
            continue
        if _SUPPOSES.match(text, _sentence_start(text, match.start())):
            continue
        reading = reader.read_at(text, match.end())
        if reading is None or not isinstance(reading.verdict, float):
            continue
        if _is_verdict_sentence(text, match, reading, reader):
            yield VerdictClaim(reading.verdict, match.start(), reading.end, final=False)
    yield from _fitting_claims(text, reader, skip)
    yield from _unworded_claims(text, reader, skip)


def _sentence_start(text: str, position: int) -> int:
    """Where the sentence begins that `position` is in; at most 300 characters before it."""
    begin = max(position - _SENTENCE_CHARS, 0)
    return max(text.rfind(end, begin, position + 1) for end in (*"\n.!?;", "\u3002")) + 1


def _is_verdict_sentence(
    text: str, match: re.Match[str], reading: Reading, reader: ClaimReader
) -> bool:
    """Whether the sentence leaves no doubt that the number is the verdict.

    "It gets 2" may be about a sum, and "I'd give 3" about reasons: there an article, a scale or a
    word such as "score" has to say what the number is.
    """
    if reader.is_other_scale(match["on"] or ""):
        return False
    if match["is"] or match["noun"] is not None:  # "It's a 7" may be about a digit
        mine = match["is"] and (match["on"] or _FROM_ME.match(text, reading.end))
        return reading.scaled or bool(match["lead"] or mine)
    ends = match["ends"] and text[match.end()].isalnum() and _STOPS.match(text, reading.end)
    if ends or _IN_POINTS.search(text, match.end(), reading.end):
        return True
    if match["earns"] and match[0].startswith(",") and not (match["lead"] or _SO.match(match[0])):
        return reading.scaled  # "on the second roll, it gets a 2"
    known = ("of", "on", "object", "deserves", "puts", "solid", "mark", "article")
    return reading.scaled or any(match[name] for name in known)


def _fitting_claims(text: str, reader: ClaimReader, skip: Spans) -> Iterator[VerdictClaim]:
    """The numbers that are called appropriate: "A score of 7 seems fair."."""
    if " is " not in text and " seems " not in text and " feels " not in text:
        return
    for match in _FITTING.finditer(text):
        if is_within(match.start(), skip) or introduced_as_other(text, match.start() + 1):
            continue
        scale = f"{match['on'] or ''} {match['out'] or ''}"
        verdict = (
            None if reader.is_other_scale(scale) else reader.from_number(float(match["number"]))
        )
        if isinstance(verdict, float):
            yield VerdictClaim(verdict, match.start(), match.end(), final=False)


def _unworded_claims(text: str, reader: ClaimReader, skip: Spans) -> Iterator[VerdictClaim]:
    """The numbers behind a scale ("Out of 10: 7"), or that another language gives."""
    for match in chain(
        _ON_A_SCALE.finditer(text), _GIVES_ABROAD.finditer(text), _GIVES_CHINESE.finditer(text)
    ):
        start = match.start()
        if is_within(start, skip) or introduced_as_other(text, start + 1):
            continue
        reading = reader.read_at(text, match.end())
        if reading is None or not isinstance(reading.verdict, float):
            continue
        if match.re.pattern == _ON_A_SCALE.pattern:
            ends = not match["comma"] or _STOPS.match(text, reading.end) is not None
            known = ends and not reader.is_other_scale(match["on"])
        elif match.re.pattern == _GIVES_ABROAD.pattern:
            known = reading.scaled
        else:
            begin = max(text.rfind(stop, 0, start + 1) for stop in "\n。") + 1
            known = _DOUBT_CHINESE.search(text, begin, match.end()) is None
        if known:
            yield VerdictClaim(reading.verdict, start, reading.end, final=False)
