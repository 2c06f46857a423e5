r"""Where prose gives its mathematical answer: after the words for it, or at its end.

What leaves the answer open is no answer: "3 or 4" and "x = 2, y = 3" are lists, (2, 3) is no 3,
"not 42" is no 42, and what is stated twice in a row has to be stated alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from zerowait.patterns import lazy_pattern
from zerowait.scorers.math.unit import unit_of

_SPAN: Final = r"(?:\$\$[^$]+\$\$|\$[^$\n]+\$|\\\[.+?\\\]|\\\(.+?\\\))"
_STATEMENT: Final = lazy_pattern(
    r"(?P<final>\bfinal\s+)?\b(?:answers?|(?:correct|right)\s+(?:option|choice))\b"
    r"(?:\s+(?:to|for|of|in)\b[^.\n:=$\\\d]{0,80}?)?[\s*_`]*+"
    r"(?:(?:is|are|was|equals|(?:must|should|will|would|has\s+to)\s+be)\b\s*:?|:|=)"
    r"(?P<not>\s*(?:not|never|no)\b)?[\s*_`]*+",
    re.IGNORECASE,
)
_SENTENCE: Final = lazy_pattern(
    rf"(?:{_SPAN}|[^.\n\u3002]|\.(?![*_`\"')\]]*(?:\s|\Z))){{0,300}}", re.DOTALL
)
_BEFORE: Final = lazy_pattern(
    r"(?:(?:about|approximately|approx\.?|roughly|exactly|simply|just|therefore|thus|either|both"
    r"|equal\s+to|given\s+by)\b|[~\u2248=]|\\(?:approx|sim)\b)\s*",
    re.IGNORECASE,
)
_REASON: Final = lazy_pattern(
    r",?\s+(?:because|since|as|(?<!or )so|which|where|due|for|or\s+so(?!.*\d))\b.*"
    r"|,\s*(?:and\s+)?(?:not|rather\s+than|instead\s+of)\b.*",
    re.IGNORECASE | re.DOTALL,
)
_BOUND: Final = lazy_pattern(
    r"(?:somewhere\s+)?(?:half|twice|thrice|double|triple|at\s+(?:least|most)|(?:no\s+)?(?:less|more|greater|fewer|larger|smaller|higher|lower)\s+than"
    r"|over|under|above|below|between|up\s+to|within|near|close\s+to|any\w*)\b",
    re.IGNORECASE,
)
_REST_OF_A_TERM: Final = lazy_pattern(
    r"\s*(?:times|plus|minus|(?:more|less|fewer)\s+than|less(?=\s+\d)"
    r"|or\s+(?:more|less|fewer|greater|smaller|above|below|over|under)|divided|multiplied|squared|cubed"
    r"|to\s+the\s+power|raised)\b",
    re.IGNORECASE,
)
_EMPHASIS: Final = lazy_pattern(r"(?<![\w)\]}])\*\*([^*\n]+)\*\*")
_CORRECTED: Final = lazy_pattern(
    r"\b(?:wait|no|actually|correct\w*|sorry|mistaken?|wrong|instead|rather|hmm|oops|again)\b",
    re.IGNORECASE,
)
_MOST_WORDS_BETWEEN: Final = 3
_MOST_STATEMENTS: Final = 5

_NUMBER: Final = r"[-+\u2212]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:\s+\d+/\d+)?%?(?![\w^])"
_ROUND: Final = r"(?:\\left\s*)?[(\[](?:\\[a-z]+|[^()\[\]A-Za-z$])*[)\]]"
_CURLY: Final = r"(?:\\left\s*)?\\?\{(?:\\[a-z]+|[^{}A-Za-z$])*\\?\}"
_TOKEN: Final = lazy_pattern(
    rf"(?P<item>(?:\b[A-Za-z]\s*(?:[<>=\u2264\u2265\u2260]|[<>!]=)\s*)?(?:{_SPAN}|{_NUMBER})|{_ROUND}|{_CURLY})"
    r"|(?P<joint>\s*(?:[,;]|\b(?:or|and)\b)\s*(?:(?:or|and)\b\s*)?|\s+)"
    r"|\\?\w+|.",
    re.IGNORECASE | re.DOTALL,
)
_GROUPED: Final = lazy_pattern(r"[(\[]\s*\d{1,3}(?:,\d{3})+\s*[)\]]")
_WORDS_AFTER: Final = lazy_pattern(r"[\s,;:]+[^\W\d]{2}|[\s!?)]*\Z")
_OPEN: Final = lazy_pattern(
    r"(?:\b(?:or|and|to|maybe|perhaps|possibly|through|not)\b|[,;&|])"
    r"[\s(*_`$\\]*(?:[a-z]\s*=\s*)?[-+\u2212]?\d",
    re.IGNORECASE,
)
_WORDY: Final = lazy_pattern(r"[^\W\d_]{2,}\s+[^\W\d_]{2,}")
_NOT: Final = lazy_pattern(
    r"(?:(?:\b(?:not|never|cannot|nor)|n't)\s+(?:be\s+|equal\s+(?:to\s+)?)?"
    r"|\bat\s+(?:least|most)\s+|\b(?:below|above|under|over|within|half(?:\s+of)?|twice|\d\s+to)\s+"
    r"|\b(?:less|more|greater|fewer|larger|smaller|higher|lower)\s+than\s+)"
    r"[$\\(*_`]*\Z",
    re.IGNORECASE,
)
_IS: Final = lazy_pattern(r"\s(?:is|are|was|equals)\s+(?:equal\s+to\s+)?:?\s*(?!not\b|never\b)")
_TAIL_CHARS: Final = 600


def stated_answers(text: str) -> list[str | None] | None:
    """What the last statement of an answer says, and those right before it, which have to agree.

    None where there is no statement; None in place of one that gives no single answer. A "final
    answer" overrules what is only called an answer.

    >>> stated_answers("The answer is (2, 3)."), stated_answers("the answer is 3. the answer is 4")
    (['(2, 3)'], ['3', '4'])
    >>> stated_answers("The answer is 3. Wait, no. The answer is 4.")
    ['4']
    >>> stated_answers("The answer is 3 (or maybe 4)."), stated_answers("so 42")
    ([None], None)
    """
    found = list(_STATEMENT.finditer(text))
    finals = [each for each in found if each["final"]]
    answers: list[str | None] = []
    begin = len(text)
    for statement in reversed(finals or found):
        said = _SENTENCE.match(text, statement.end())
        end = said.end() if said else statement.end()
        between = text[end:begin]
        if answers and (_CORRECTED.search(between) or len(between.split()) > _MOST_WORDS_BETWEEN):
            break
        if len(answers) == _MOST_STATEMENTS:
            break
        answers.insert(0, None if statement["not"] or not said else answer_of(said[0]))
        begin = statement.start()
    return answers or None


def listed_at_end(text: str) -> str | None:
    """The list or tuple to which the last number of `text` belongs; None where it stands alone.

    Empty where that number is said not to be the answer.

    >>> listed_at_end("So it is the point (2, 3)."), listed_at_end("either 3 or 4")
    ('(2, 3)', '3,4')
    >>> listed_at_end("3 apples and then 5"), listed_at_end("It can't be 5.")
    (None, '')
    """
    tail = text[-_TAIL_CHARS:]
    last: list[re.Match[str]] = []
    for run in _runs(tail):
        last = run
    if not last:
        return None
    is_bound = _REST_OF_A_TERM.match(tail, last[-1].end()) is not None
    if is_bound or is_denied(tail[: last[0].start()]):
        return ""
    return _joined(last)


def is_denied(before: str) -> bool:
    """Whether what follows `before` is said not to be the answer, or only to bound it.

    >>> is_denied("It is not "), is_denied("There are at least "), is_denied("It is ")
    (True, True, False)
    """
    return _NOT.search(before[-80:]) is not None


def answer_of(sentence: str) -> str | None:
    """What a sentence says that goes on after "the answer is"; None where it leaves it open.

    >>> answer_of(" about **5** apples."), answer_of("5 apples or 3 pears")
    ('5', None)
    """
    said = plain_answer(sentence).strip(" \t\n*_`\"'.!?:")
    while (before := _BEFORE.match(said)) is not None:
        said = said[before.end() :]
    said = re.sub(r"\Aminus\s+", "-", _REASON.sub("", said).strip("*_`, "))
    runs = list(_runs(said))
    if not runs:
        return said if len(said.split()) <= _MOST_WORDS_BETWEEN else None
    first = runs[0]
    rest = said[first[-1].end() :]
    if _BOUND.match(said) or _OPEN.search(rest) or _REST_OF_A_TERM.match(rest):
        return None
    if not unit_of(said) and first[0].start() == 0 and _WORDS_AFTER.match(rest):
        return _joined(first) or bare_answer(first[0][0])
    if unit_of(said) or not _WORDY.search(said):
        return said
    verbs = list(_IS.finditer(said))
    if len(verbs) == 1 and runs[-1][0].start() >= verbs[0].end() and not _NOT.search(said):
        return answer_of(said[verbs[0].end() :])
    is_open = len(runs) > 1 or _NOT.search(said[: first[0].start()])
    return None if is_open else _joined(first) or bare_answer(first[0][0])


def plain_answer(text: str) -> str:
    """`text` without the stars around what is emphasised; 2**3 keeps its own.

    >>> plain_answer("**5** apples"), plain_answer("2**3 + 4**2")
    ('5 apples', '2**3 + 4**2')
    """
    return _EMPHASIS.sub(r"\1", text)


def bare_answer(formula: str) -> str:
    r"""A formula without the marks that set it off from prose.

    >>> [bare_answer(text) for text in ("$5$", r"\( x \)", "x = $5$", "(1,234)")]
    ['5', 'x', 'x = 5', '1,234']
    """
    inside = re.sub(r"\\[\[(]\s*|\s*\\[\])]|\$", "", formula).strip()
    return inside[1:-1] if _GROUPED.fullmatch(inside) else inside


def _joined(run: list[re.Match[str]]) -> str | None:
    """The items of a run as one list; None where it is a single number or formula."""
    if len(run) > 1:
        return ",".join(bare_answer(item[0]) for item in run)
    only = run[0][0]
    is_tuple = only[0] in "([{\\" and not only.startswith(("\\(", "\\["))
    return only if is_tuple and "," in only and not _GROUPED.fullmatch(only) else None


def _runs(text: str) -> Iterator[list[re.Match[str]]]:
    """Formulas, brackets and numbers that nothing but commas, "or", "and" and spaces part."""
    run: list[re.Match[str]] = []
    is_joined = False
    for token in _TOKEN.finditer(text):
        if token["item"] and any(map(str.isdigit, token[0])) | (token[0][0] in "$\\"):
            if run and not is_joined:
                yield run
                run = []
            run.append(token)
            is_joined = False
        elif token["joint"] and run:
            is_joined = True
        elif run:
            yield run
            run, is_joined = [], False
    if run:
        yield run
