r"""The scorer ``multiple_choice``: which letter, or letters, a response decides on.

Letters are words too: "A dog" and "I think" decide nothing, and "A) Paris B) Rome" only repeats
the question. A text that leaves it open, or could mean two letters, chooses no single letter.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from zerowait.patterns import lazy_pattern
from zerowait.scorers.answers import last_answer, no_gold
from zerowait.scorers.boxed import last_boxes
from zerowait.scorers.thinking import spoken
from zerowait.types import Abstain, Sample, Score

# What may surround a letter: brackets, emphasis, quotes, formulas.
_OPEN = (
    r"(?:[\s:*_(\[{\"'`$]|\\[(\[]"
    r"|\\(?:text|math|bold|operatorname|rm\b|bf\b|it\b|sf\b|tt\b)\w*\s*\{?)*+"
)
_CLOSE = r"(?:[)\]}*_\"'`$])*+"
_WORD = r"[A-Za-z0-9_\u00c0-\u024f]"  # Chinese puts no space around a letter
# Not the A of A's, A-level, C++ and U.S.
_WHOLE = rf"(?!{_WORD}|['\u2019.-]{_WORD}|[+#])"
_REASON = r"because|since|as|for|and|or|is|was|due|which|with|given|by|in|not|but|rather"
_OR_AND = (
    r"or|and|oder|und|ou|et|o|oppure|u|y|e|of|en|eller|och|og|veya|ve|lub|nebo"
    r"|\u0438\u043b\u0438|\u0438"
)
# A word of the language (a, A, I) or a small letter counts where no noun can follow.
_FIRM = (
    r"(?=[^\S\n]*+(?:\Z|[\n,;:!?)\]}*_\"'`$|/&\u3002\u3001<]|\.(?!\w)|[\u3040-\u9fff\uac00-\ud7a3]"
    rf"|[-\u2013\u2014](?:\s|\Z)|(?i:{_REASON}|(?:{_OR_AND})(?=\s+[(\"'*]*[A-Z]\b))\b))"
)
_BARE = rf"(?:(?<!{_WORD})(?<!{_WORD}['\u2019])(?:[B-HJ-Z]{_WHOLE}|[AIa-z]{_WHOLE}{_FIRM}))"
_NOUN = (
    r"(?i:option|choice|letter|answer|opci[o\xf3]n|opzione|op[c\xe7][a\xe3]o|lettre|lettera|letra"
    r"|buchstabe|variante?|\u0432\u0430\u0440\u0438\u0430\u043d\u0442)"
)
_NOUNS = rf"(?:(?:the|la|el|die|der|das|o)\s+{_OPEN})?(?:{_NOUN}s?\b{_OPEN})?"
_CHOICE = lazy_pattern(rf"{_OPEN}(?i:{_NOUNS})({_BARE})")
# "Answer" in the languages in which models are examined, as far as letters are the choices there.
_ANSWER = (
    r"answer|ans\.?|solution|antwort|l\xf6sung|r[e\xe9]ponse|respuesta|risposta|resposta|antwoord|svar(?:et)?"
    r"|odpowied[z\u017a]|odpov[e\u011b][d\u010f]|cevap|yan[\u0131i]t|vastaus|r[a\u0103]spuns(?:ul)?"
    r"|v\xe1lasz|\u0111\xe1p \xe1n|jawaban(?:nya)?|jibu|[i\xec]d[a\xe1]h[u\xf9]n"
    r"|\u043e\u0442\u0432\u0435\u0442|\u0432\u0456\u0434\u043f\u043e\u0432\u0456\u0434\u044c"
    r"|\u03b1\u03c0\u03ac\u03bd\u03c4\u03b7\u03c3\u03b7"
)
# Arabic, Bengali, Hindi and Thai.
_ANSWER_UNCASED = (
    r"(?:\u0627\u0644)?(?:\u0625\u062c\u0627\u0628\u0629|\u062c\u0648\u0627\u0628)"
    r"(?:\s+(?:\u0627\u0644\u0635\u062d\u064a\u062d\u0629|\u0627\u0644\u0646\u0647\u0627\u0626\u064a\u0629"
    r"|\u0627\u0644\u0646\u0647\u0627\u0626\u064a))?(?:\s*:|\s+\u0647\u064a\b|\s+\u0647\u0648\b)"
    r"|(?:\u0989\u09a4\u09cd\u09a4\u09b0|\u0909\u0924\u094d\u0924\u0930"
    r"|\u0e04\u0e4d\u0e32\u0e15\u0e2d\u0e1a)\s*[:\u0983]"
)
# Chinese, Japanese and Korean.
_ANSWER_UNSPACED = (
    r"\u7b54\u6848\s*(?:\u5e94?[\u662f\u4e3a\u9009:]|\u5e94\u8be5\u662f)"
    r"|(?<![\u4e0d\u80fd])\u9009\u62e9?\s*:?|(?:\u7b54\u3048|\u6b63\u89e3|\u89e3\u7b54|\u56de\u7b54)\s*(?:\u306f|:)"
    r"|\u7b54(?:\u590d|\u66f0)?\s*:|(?:\uc815\ub2f5|\ub2f5\ubcc0|\ub2f5)\s*(?:\uc740|\ub294|\uc774|:)"
)
_RIGHTLY = (
    r"(?:\s+(?:correct[ae]?|corret[ao]|corretta|finale?|juste|exacte|giusta|certa|esatta|lautet))?"
)
_IS = (
    r"(?:(?:is|was|are|ist|sind|lautet|est|sont|es|son|sono|s\xe3o|ser[i\xed]a|\xe8|\xe9|\xe4r|er|jest)\b"
    r"|(?:must|should|would|will|could\s+only|has\s+to)\s+be\b)"
)
_STATED = lazy_pattern(
    rf"(?i:\b(?:(?:{_ANSWER})s?(?!\w)(?:\s+choices?\b)?|(?:correct|right|best|final|my|chosen)\s+(?:{_NOUN}s?|one)\b)"
    rf"{_RIGHTLY}(?:\s+(?:to|for)(?:\s+[\w-]+){{1,6}}?)?[\s*_]*+"
    rf"(?:{_IS}(?:\s+(?:clearly|definitely|therefore|thus|indeed))?|[-=]>|[:=]|[-\u2013\u2014](?=\s)"
    rf"|(?<=\s)(?=[(\[]?[A-Z][)\]]?[.\s*]*(?:\n|\Z)))"
    # a member of a JSON object
    r"|[\"'](?:(?:final|correct|chosen|selected)[_ ]?)?(?:answers?|choice|option|letters?"
    r"|selections?|prediction)(?:[_ ]?(?:letter|choice|option|key|id)s?)?[\"']\s*:"
    rf"|{_ANSWER_UNCASED}|{_ANSWER_UNSPACED}"
    r"|(?<!not )\b(?:result|choice|option|selection|verdict|conclusion|correct|selected|chosen)"
    rf"[*_]*\s*[:=]"
    rf"|\b(?:choose|pick|select|(?:go|going)\s+with|opt\s+for))"
)
# A sentence with nothing but the letter: "Hence, (B)." and "It's B."
_CONCLUDED = lazy_pattern(
    r"(?i:(?:\A|[\n.;,])[^\S\n]*+(?:(?:so|thus|hence|therefore)"
    r"(?!,?[^\S\n]+(?:it|that)\b)|\u2234|\u2192|=>|->"
    r"|(?:(?:so|thus|hence|therefore),?[^\S\n]+)?(?:it|that)(?:['\u2019]s|\s+is|\s+must\s+be))),?(?=[^\S\n(*])"
)
_ENDS_LINE = lazy_pattern(rf"{_CLOSE}[.!]?{_CLOSE}[^\S\n]*(?:\n|\Z)")
# GSM8K's mark of the final answer, on models that were trained on it.
_MARKED = lazy_pattern(r"\#{4}[ \t]*+([^\n#]*)")
_TAG = lazy_pattern(r"<(/?)[ ]?(?:final[_ ]?)?(?:answer|choice|option|letter)[ ]?>", re.IGNORECASE)
_NAMED = (
    "plan",
    "team",
    "type",
    "part",
    "case",
    "group",
    "vitamin",
    "hepatitis",
    "grade",
    "company",
)
_NOT_NAMED = "".join(rf"(?<!(?i:{word}) )" for word in _NAMED)  # not "Plan B is best"
_RIGHT = lazy_pattern(
    rf"{_NOT_NAMED}({_BARE}){_CLOSE}\s+(?i:is\s+(?:(?:therefore|clearly|thus)\s+)?"
    rf"(?:the\s+)?(?:correct|right|best)\b)"
)
_LEFT_OPEN = lazy_pattern(
    rf"(?i:\b(?:if|whether|unless|neither|nor|not|or|and|that)\s+|\b[A-Z]\)?\s*[,/&]\s*)(?:{_NOUN}\s+)?{_OPEN}\Z"
)
_AND_ANOTHER = lazy_pattern(
    rf"{_CLOSE}(?:\s*+(?:[,/;&、]|\b(?i:{_OR_AND})\b|[或和及与]|または|또는)\s*+(?:(?i:or|and)\s+)?|[^\S\n]+)"
    rf"{_OPEN}(?:{_NOUN}\s+)?{_BARE}(?!{_CLOSE}\s+(?i:is|was|are|isn't|would|can|cannot|does)\b)"
)
# Japanese and Korean deny behind the letter.
_DENIED = lazy_pattern(
    rf"{_CLOSE}\s*+(?:\u3067\u306f\u306a|\u3067\u306f\u3042\u308a|\u3058\u3083\u306a|[\uac00\uc774]?\s*+\uc544\ub2c8|[\uac00\uc774]?\s*+\uc544\ub2d9)"
)
_LABEL = lazy_pattern(
    r"(?:(?<=\s)|\A)\(?([A-Z])[).:](?=\s)(?!\s+(?:is|was|are|and|or|would|can)\b)"
)
_GIVES_A_REASON = lazy_pattern(
    r"(?i)\b(?:because|since|as|while|whereas|but|rather|than|unlike|instead|not|wrong|incorrect)\b"
)
# "B", "(b)." and "**Option B**": nothing else on the line
_ALONE = lazy_pattern(
    rf"(?:[>#-]++\s)?+{_OPEN}(?:{_NOUN}\b{_OPEN})?([A-Za-z])(?:[\s.)\]}}*_\"'`$]|<\|im_end\|>|</s>)*+"
)
_LEADING = lazy_pattern(
    rf"{_OPEN}(?:{_NOUN}\b{_OPEN})?([A-Z](?=[).:,\]*]|\s+(?:because|since)\b)|[a-z](?=\)))"
)
_LEADING_WORD = lazy_pattern(rf"{_OPEN}([B-HJ-Z])\s")
_LIST_CHARS = 300
_LIST_CHARS_BEFORE = 80
# The letters of an answer that names several: "A, C", "(a) and (c)", ["A", "C"], "AC".
_MOST_LETTERS = 10
_JOINT = (
    rf"{_CLOSE}(?:\s*+(?:[,;&+\u3001]|\b(?i:and|und|et|y|e)\b|[\u548c\u53ca\u4e0e])\s*+(?:(?i:and)\b\s*+)?|[^\S\n]+)"
    rf"{_OPEN}(?:{_NOUN}\b{_OPEN})?"
)
_ITEM = rf"(?:{_BARE}|(?<!{_WORD})A(?=[^\S\n]+[B-J](?!{_WORD})))"
_LETTERS = lazy_pattern(
    rf"{_OPEN}(?i:(?:both\s+)?{_NOUNS})(?P<all>(?<!{_WORD})[A-J]{{2,{_MOST_LETTERS}}}(?!{_WORD})"
    rf"|{_ITEM}(?:{_JOINT}{_ITEM}){{1,{_MOST_LETTERS - 1}}}){_CLOSE}"
)
_ARE_RIGHT = lazy_pattern(
    r"\s(?i:are\s++(?:(?:both|all)\s++)?(?:the\s++)?(?:correct|right|true|best)\b)"
)
_LIST_BEFORE = lazy_pattern(rf"(?P<all>{_ITEM}(?:{_JOINT}{_ITEM})+){_CLOSE}\s*\Z")
_LETTER = lazy_pattern(rf"(?<!{_WORD})[A-Za-z](?!{_WORD})")
_SPACES = lazy_pattern(r"\\(?:[ ,;!]|quad\b)")
_OR_BOX = lazy_pattern(r"\}[\s$]*+or[\s$]*+\\(?:boxed|fbox)", re.IGNORECASE)
_REST = lazy_pattern(r"(?:\s+only\b)?[\s.)\]}*_\"'`$]*+")
# The letters with which Arabic and Bengali count choices, as OpenAI's simple-evals reads them.
_COUNTED = dict(zip("\u0623\u0628\u062c\u062f\u0985\u09ac\u09a1\u09a2", "ABCDABCD", strict=True))
_COUNTED_ALONE = lazy_pattern(rf"(?<!\w)[{''.join(_COUNTED)}](?!\w)")


def multiple_choice(
    sample: Sample, *, score: float = 1.0, format_score: float = 0.0
) -> Score | Abstain:
    """`score` when the response chooses the gold letter, `format_score` for another letter.

    A response without a choice is worth 0, and so is one that chooses several letters where the
    gold is one.

    Args:
        sample: its ground truth is a letter, alone or as in ``(B)``, or several (``["A", "C"]``,
            ``AC``, ``A and C``); of several, the response has to choose exactly these in any order.
        score: of the right choice.
        format_score: of a wrong choice.

    >>> multiple_choice(Sample("", "The answer is (B).", "B")).value
    1.0
    >>> multiple_choice(Sample("", "The answers are C and A.", "AC")).value
    1.0
    """
    golds = gold_letters(sample.ground_truth)
    if not golds:
        return no_gold(sample.ground_truth, wanted="the letter of a choice, or several")
    text = spoken(sample)
    if len(golds) > 1:
        chosen = chosen_letters(text)
    else:
        letter = chosen_letter(text)
        chosen = frozenset({letter}) if letter else frozenset()
    if not chosen:
        many = "letters" if len(golds) > 1 else "single letter"
        return Score(0.0, f"the response chooses no {many}")
    return Score(score if chosen == golds else format_score, f"chose {', '.join(sorted(chosen))}")


def gold_letters(ground_truth: Any) -> frozenset[str]:
    """The letters of a gold; none where it is not made of letters.

    >>> sorted(gold_letters(["a", "(C)"])), gold_letters("Paris")
    (['A', 'C'], frozenset())
    """
    if isinstance(ground_truth, str):
        return letters_of(ground_truth)
    if isinstance(ground_truth, Mapping):
        return gold_letters(ground_truth.get("target"))
    if hasattr(ground_truth, "tolist"):  # columns of Parquet files arrive as arrays
        return gold_letters(ground_truth.tolist())
    if not isinstance(ground_truth, list | tuple | set | frozenset):
        return frozenset()
    letters = [letter_of(each) if isinstance(each, str) else None for each in ground_truth]
    return frozenset(each for each in letters if each) if all(letters) else frozenset()


def chosen_letter(text: str) -> str | None:
    r"""The capital letter a text decides on; None when it names none, or leaves it open.

    The first of these that is there: the last ``<answer>``, the last ``\boxed{}``, the last
    statement ("answer is X", "answer: X", ``{"answer": "X"}``, ``#### X``, "choose X", "X is
    correct", and "answer" in other languages), a text that begins with the letter as with a label,
    a last line that is nothing but a letter. The letter may be small or full-width, in brackets,
    bold or quotes, and be followed by the choice's text. A list of choices, "X or Y" and "not X"
    decide nothing.

    Reference:
        Hendrycks et al. 2021, MMLU (arXiv:2009.03300).

    >>> chosen_letter("<answer>(B) Paris</answer>"), chosen_letter("So the answer is **c**.")
    ('B', 'C')
    >>> [chosen_letter(f"The answer is {said}") for said in ("a dog", "A or B", "not B")]
    [None, None, None]
    """
    text = _plain(text)
    given = _given(text)
    if given is not None:
        return letter_of(given) or _decided(given) or _leading(given, _LEADING_WORD)
    return _decided(text)


def chosen_letters(text: str) -> frozenset[str]:
    """The capital letters that a text decides on together; none where it leaves that open.

    It looks where `chosen_letter` does. "A or C" leaves it open.

    >>> sorted(chosen_letters("The answers are A, C and D.")), chosen_letters("A or C")
    (['A', 'C', 'D'], frozenset())
    """
    text = _plain(text)
    given = _given(text)
    said = text if given is None else given
    for found in (letters_of(said), _stated_letters(said), letters_of(_last_line(said))):
        if len(found) > 1:
            return found
    letter = chosen_letter(text)
    return frozenset({letter}) if letter else frozenset()


def letter_of(text: str) -> str | None:
    """The capital letter of which `text` consists, in brackets or not; else None.

    >>> letter_of(" (b). "), letter_of("Option C"), letter_of("Paris")
    ('B', 'C', None)
    """
    alone = _ALONE.fullmatch(unicodedata.normalize("NFKC", text))
    return alone[1].upper() if alone else None


def letters_of(text: str) -> frozenset[str]:
    """The capital letters of which `text` consists; none where it says anything else.

    >>> [sorted(letters_of(text)) for text in ("b", "A, C", "(a) and (c)", "AC", "A or C", "AA")]
    [['B'], ['A', 'C'], ['A', 'C'], ['A', 'C'], [], []]
    """
    text = _SPACES.sub(" ", unicodedata.normalize("NFKC", text))
    letter = letter_of(text)
    if letter is not None:
        return frozenset({letter})
    several = _LETTERS.match(text)
    if several is None or not _REST.fullmatch(text, several.end()):
        return frozenset()
    return _members(several["all"])


def _plain(text: str) -> str:
    """`text` in compatible characters, its tags and letters those that are looked for."""
    text = unicodedata.normalize("NFKC", text)
    text = _COUNTED_ALONE.sub(lambda found: _COUNTED[found[0]], text)
    return _TAG.sub(r"<\1answer>", text)


def _given(text: str) -> str | None:
    """The text marked as the answer: the last tag, or the last boxes; None without one."""
    answer = last_answer(text)
    if answer is not None:
        return answer
    boxes = last_boxes(text)
    return boxes.replace(",", " or ") if boxes and _OR_BOX.search(text) else boxes


def _members(said: str) -> frozenset[str]:
    """The letters of a list, or of a word of letters; none where one is named twice."""
    found = list(said) if said.isascii() and said.isalpha() else _LETTER.findall(said)
    letters = frozenset(letter.upper() for letter in found)
    return letters if len(letters) == len(found) else frozenset()


def _stated_letters(text: str) -> frozenset[str]:
    """The letters of the last statement; none where that is of one letter, or leaves it open."""
    found, end = frozenset[str](), -1
    for stated in _STATED.finditer(text):
        several = _LETTERS.match(text, stated.end())
        if several is not None or _CHOICE.match(text, stated.end()):
            left_open = several is None or _AND_ANOTHER.match(text, several.end("all"))
            found = frozenset() if several is None or left_open else _members(several["all"])
            end = stated.end()
    for right in _ARE_RIGHT.finditer(text, max(end, 0)):
        begin = max(right.start() - _LIST_CHARS_BEFORE, 0)
        several = _LIST_BEFORE.search(text[begin : right.start()])
        if several is not None and not _left_open(text, begin + several.start()):
            found = _members(several["all"])
    marked = [letters_of(mark[1]) for mark in _MARKED.finditer(text, max(end, 0))]
    return next((letters for letters in reversed(marked) if letters), found)


def _last_line(text: str) -> str:
    return text.rstrip().rpartition("\n")[2]


def _decided(text: str) -> str | None:
    stated = _last_stated(text)
    if stated is not None:
        return stated or None
    return letter_of(text) or _leading(text, _LEADING) or _own_line(text) or _concluded(text)


def _last_stated(text: str) -> str | None:
    """The letter of the last statement; empty where that leaves it open, None without one."""
    found: tuple[int, str] | None = None
    for stated in _STATED.finditer(text):
        choice = _CHOICE.match(text, stated.end())
        if choice:
            found = choice.end(), _single(text, choice)
    for right in _RIGHT.finditer(text):
        if (found is None or right.end() > found[0]) and not _left_open(text, right.start()):
            found = right.end(), right[1].upper()
    for marked in _MARKED.finditer(text):
        letter = letter_of(marked[1])
        if letter and (found is None or marked.end() > found[0]):
            found = marked.end(), letter
    return found[1] if found else None


def _left_open(text: str, position: int) -> bool:
    return _LEFT_OPEN.search(text[max(position - 30, 0) : position]) is not None


def _concluded(text: str) -> str | None:
    """The letter of the last sentence that has nothing but it and "hence", or "it is"."""
    found = None
    for concluded in _CONCLUDED.finditer(text):
        choice = _CHOICE.match(text, concluded.end())
        if choice and _ENDS_LINE.match(text, choice.end()):
            found = choice[1].upper()
    return found


def _single(text: str, choice: re.Match[str]) -> str:
    """The letter in capitals; empty where others follow as if they were chosen, too."""
    end = choice.end(1)
    if _AND_ANOTHER.match(text, end) or _DENIED.match(text, end) or _begins_a_list(text, choice):
        return ""
    return choice[1].upper()


def _begins_a_list(text: str, choice: re.Match[str]) -> bool:
    """Whether the letter labels the first of several choices that are only listed."""
    after = text[choice.end(1) : choice.end(1) + _LIST_CHARS]
    if not after.startswith((")", ".", ":")):
        return False
    label = _LABEL.search(after, 1)
    if label is None or label[1] != chr(ord(choice[1].upper()) + 1):
        return False
    return not _GIVES_A_REASON.search(after[: label.start()])


def _leading(text: str, pattern: re.Pattern[str]) -> str | None:
    choice = pattern.match(text)
    return _single(text, choice) or None if choice else None


def _own_line(text: str) -> str | None:
    """The letter that is all of the last line, or of the first; not one of letters line by line."""
    lines = [letter_of(line) for line in text.splitlines() if line.strip()]
    ends = ((lines[-1], lines[-2]), (lines[0], lines[1])) if len(lines) > 1 else ()
    return next((own for own, neighbour in ends if own and not neighbour), None)
