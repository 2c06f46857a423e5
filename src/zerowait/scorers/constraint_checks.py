r"""The 25 verifiable instructions of IFEval, and those of RLVR-IFeval under their own names.

Each is a predicate of a response. Where the published code has a flaw that a policy could learn
from, the check does what the instruction says instead: keywords are texts and no patterns, a
paragraph's number does not count blank ones, a text without a letter is in no language, and nothing
is drawn at random for a parameter that the row does not have.

References:
    Zhou et al. 2023, IFEval (arXiv:2311.07911).
    Lambert et al. 2024, Tulu 3 (arXiv:2411.15124), for the names that begin with verify_ and
    validate_.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from zerowait.errors import MissingExtraError

_PARAGRAPH_MARK = re.compile(r"\s?\*\*\*\s?")
_WORD = re.compile(r"\w+")
_WHOLE_WORD = re.compile(r"[^\W_]+(?:[-'\u2019.&/][^\W_]+)*")
_PLACEHOLDER = re.compile(r"\[[^\[\]\n]*\]")
_HIGHLIGHT = re.compile(r"\*([^\n*]*)\*")
_DOUBLE_HIGHLIGHT = re.compile(r"\*\*([^\n*]*)\*\*")
_FENCE = re.compile(r"\A```(?:json)?\s*(.*?)\s*(?:```)?\Z", re.DOTALL | re.IGNORECASE)
_SENTENCE_END = re.compile(
    r"""
    (?<![.!?]) [.!?]+ [)\]"'\u201d\u2019*_]* (?= \s | \Z ) | [\u3002\uff01\uff1f]+
    """,
    re.VERBOSE,
)
_ABBREVIATION = re.compile(
    r"""(?: \b (?: Mr | Mrs | Ms | Dr | Prof | Sr | Jr | St | vs | e\.g | i\.e | cf | Fig | Vol
        | No | Inc | Ltd | Co | Corp | a\.m | p\.m | approx | dept | est | Gen | Rep | Sen | Gov
        | [A-Z] (?: \.[A-Z] )* ) )\Z""",
    re.VERBOSE,
)
_CLOSING = ")]\"'\u201d\u2019*_"
_ABBREVIATION_CHARS = 24
_NEXT = re.compile(r"\s*(\S?)")
_OPTIONS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


class Constraint(NamedTuple):
    """A check and what a row has to give it.

    Args:
        check: of the response, with the parameters in this order.
        needs: name and type of each parameter.
    """

    check: Callable[..., bool]
    needs: dict[str, type]


def _compares(count: int, relation: str, limit: int, *, around: int = 0) -> bool:
    """Whether a count is as the relation says.

    Raises:
        ValueError: the relation is none of the published ones.
    """
    match relation:
        case "at least":
            return count >= limit
        case "less than":
            return count < limit
        case "at most":
            return count <= limit
        case "around":
            return abs(count - limit) <= around
    raise ValueError(f"relation is {relation!r}, expected at least, less than, at most or around")


def _occurrences(text: str, keyword: str) -> int:
    return len(re.findall(re.escape(keyword.strip()), text, re.IGNORECASE))


def _has_word(text: str, word: str) -> bool:
    pattern = rf"(?<!\w){re.escape(word.strip())}(?!\w)"
    return re.search(pattern, text, re.IGNORECASE) is not None


def _keywords(text: str, keywords: Sequence[str]) -> bool:
    return all(_occurrences(text, keyword) for keyword in keywords)


def _keyword_frequency(text: str, keyword: str, frequency: int, relation: str) -> bool:
    return _compares(_occurrences(text, keyword), relation, frequency)


def _forbidden_words(text: str, forbidden_words: Sequence[str]) -> bool:
    return not any(_has_word(text, word) for word in forbidden_words)


def _letter_frequency(text: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    if len(letter) != 1:
        raise ValueError(f"letter is {letter!r}, expected one character")
    return _compares(text.lower().count(letter.lower()), let_relation, let_frequency)


def _response_language(text: str, language: str) -> bool:
    found, wanted = language_of(text), language.strip().lower()
    if wanted not in _languages():
        known = ", ".join(sorted(_languages()))
        raise ValueError(f"language is {language!r}, expected a code: {known}")
    return wanted in (found, found.partition("-")[0])


def sentences(text: str) -> int:
    """The number of sentences in a text.

    A sentence ends with a mark that white space follows, but for abbreviations and initials; a text
    behind the last mark is one more.

    >>> sentences("Dr. Smith paid $3.50. Why? He said: 'No!'"), sentences("one")
    (3, 1)
    """
    count, start = 0, 0
    for end in _SENTENCE_END.finditer(text):
        at, mark = end.start(), end[0]
        follows = _NEXT.match(text, end.end())
        is_inside = follows is not None and follows[1].islower()
        before = text[max(start, at - _ABBREVIATION_CHARS) : at]
        if (mark == "." and _ABBREVIATION.search(before)) or (
            is_inside and (mark[0] == "." or mark[-1] in _CLOSING)
        ):
            continue
        count, start = count + 1, end.end()
    return count + bool(_WORD.search(text, start))


def _number_sentences(text: str, num_sentences: int, relation: str) -> bool:
    return _compares(sentences(text), relation, num_sentences)


def _number_words(text: str, num_words: int, relation: str) -> bool:
    return _compares(len(_WORD.findall(text)), relation, num_words)


def _number_paragraphs(text: str, num_paragraphs: int) -> bool:
    """Between ``***``; a blank one counts for nothing at the ends, and is wrong elsewhere."""
    paragraphs = _PARAGRAPH_MARK.split(text)
    if any(not paragraph.strip() for paragraph in paragraphs[1:-1]):
        return False
    return sum(bool(paragraph.strip()) for paragraph in paragraphs) == num_paragraphs


def _nth_paragraph_first_word(
    text: str, num_paragraphs: int, nth_paragraph: int, first_word: str
) -> bool:
    paragraphs = [each for each in text.split("\n\n") if each.strip()]
    if len(paragraphs) != num_paragraphs or not 1 <= nth_paragraph <= num_paragraphs:
        return False
    word = paragraphs[nth_paragraph - 1].split()[0].lstrip("'\"").lower()
    return re.split(r"[.,?!'\"]", word, maxsplit=1)[0] == first_word.lower()


def _number_placeholders(text: str, num_placeholders: int) -> bool:
    return len(_PLACEHOLDER.findall(text)) >= num_placeholders


def _postscript(text: str, postscript_marker: str) -> bool:
    """Blanks may stand behind the dots of the marker: P. S."""
    marker = r"\.\s?".join(map(re.escape, postscript_marker.strip().split(".")))
    return re.search(rf"(?<!\w){marker}", text, re.IGNORECASE) is not None


def _bullets(text: str) -> int:
    lines = [line.strip() for line in text.split("\n")]
    return sum(
        line.startswith("-") or (len(line) > 1 and line[0] == "*" and line[1] != "*")
        for line in lines
    )


def _number_bullet_lists(text: str, num_bullets: int) -> bool:
    return _bullets(text) == num_bullets


def _constrained_response(text: str) -> bool:
    return any(option in text for option in _OPTIONS)


def _number_highlighted_sections(text: str, num_highlights: int) -> bool:
    found = [*_HIGHLIGHT.findall(text), *_DOUBLE_HIGHLIGHT.findall(text)]
    return sum(bool(each.strip()) for each in found) >= num_highlights


def _multiple_sections(text: str, section_spliter: str, num_sections: int) -> bool:
    mark = re.escape(section_spliter.strip())
    return len(re.findall(rf"{mark}\s?\d+", text)) >= num_sections


def _json_format(text: str) -> bool:
    fenced = _FENCE.match(text.strip())
    try:
        json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        return False
    return True


def _title(text: str) -> bool:
    """Between the first ``<<`` and the last ``>>`` of a line."""
    lines = (line for line in text.split("\n") if "<<" in line)
    return any(line.partition("<<")[2].rpartition(">>")[0].strip("<> \t") for line in lines)


def _two_responses(text: str) -> bool:
    parts = text.split("******")
    if any(not part.strip() for part in parts[1:-1]):
        return False
    found = [part.strip() for part in parts if part.strip()]
    return len(found) == 2 and found[0] != found[1]


def _repeat_prompt(text: str, prompt_to_repeat: str) -> bool:
    return text.strip().lower().startswith(prompt_to_repeat.strip().lower())


def _end_checker(text: str, end_phrase: str) -> bool:
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def _capital_words(text: str) -> int:
    return sum(word.isupper() for word in _WHOLE_WORD.findall(text))


def _capital_word_frequency(text: str, capital_frequency: int, capital_relation: str) -> bool:
    return _compares(_capital_words(text), capital_relation, capital_frequency)


def _english_capital(text: str) -> bool:
    return text.isupper() and language_of(text) == "en"


def _english_lowercase(text: str) -> bool:
    return text.islower() and language_of(text) == "en"


def _no_comma(text: str) -> bool:
    return "," not in text


def _quotation(text: str) -> bool:
    text = text.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


_IFEVAL: Final[dict[str, Constraint]] = {
    "keywords:existence": Constraint(_keywords, {"keywords": list}),
    "keywords:frequency": Constraint(
        _keyword_frequency, {"keyword": str, "frequency": int, "relation": str}
    ),
    "keywords:forbidden_words": Constraint(_forbidden_words, {"forbidden_words": list}),
    "keywords:letter_frequency": Constraint(
        _letter_frequency, {"letter": str, "let_frequency": int, "let_relation": str}
    ),
    "language:response_language": Constraint(_response_language, {"language": str}),
    "length_constraints:number_sentences": Constraint(
        _number_sentences, {"num_sentences": int, "relation": str}
    ),
    "length_constraints:number_paragraphs": Constraint(_number_paragraphs, {"num_paragraphs": int}),
    "length_constraints:number_words": Constraint(
        _number_words, {"num_words": int, "relation": str}
    ),
    "length_constraints:nth_paragraph_first_word": Constraint(
        _nth_paragraph_first_word,
        {"num_paragraphs": int, "nth_paragraph": int, "first_word": str},
    ),
    "detectable_content:number_placeholders": Constraint(
        _number_placeholders, {"num_placeholders": int}
    ),
    "detectable_content:postscript": Constraint(_postscript, {"postscript_marker": str}),
    "detectable_format:number_bullet_lists": Constraint(_number_bullet_lists, {"num_bullets": int}),
    "detectable_format:constrained_response": Constraint(_constrained_response, {}),
    "detectable_format:number_highlighted_sections": Constraint(
        _number_highlighted_sections, {"num_highlights": int}
    ),
    "detectable_format:multiple_sections": Constraint(
        _multiple_sections, {"section_spliter": str, "num_sections": int}
    ),
    "detectable_format:json_format": Constraint(_json_format, {}),
    "detectable_format:title": Constraint(_title, {}),
    "combination:two_responses": Constraint(_two_responses, {}),
    "combination:repeat_prompt": Constraint(_repeat_prompt, {"prompt_to_repeat": str}),
    "startend:end_checker": Constraint(_end_checker, {"end_phrase": str}),
    "startend:quotation": Constraint(_quotation, {}),
    "change_case:capital_word_frequency": Constraint(
        _capital_word_frequency, {"capital_frequency": int, "capital_relation": str}
    ),
    "change_case:english_capital": Constraint(_english_capital, {}),
    "change_case:english_lowercase": Constraint(_english_lowercase, {}),
    "punctuation:no_comma": Constraint(_no_comma, {}),
}


def _exact_keyword(text: str, count: int, word: str) -> bool:
    pattern = rf"(?<!\w){re.escape(word.strip())}(?!\w)"
    return len(re.findall(pattern, text, re.IGNORECASE)) == count


def _exact_letter(text: str, count: int, letter: str) -> bool:
    if len(letter) != 1:
        raise ValueError(f"letter is {letter!r}, expected one character")
    return text.count(letter) == count


def _starred_paragraphs(text: str, count: int) -> bool:
    paragraphs = text.strip().split("* * *")
    return len(paragraphs) == count and all(paragraph.strip() for paragraph in paragraphs)


def _words(text: str, count: int, quantifier: str) -> bool:
    return _compares(len(text.split()), quantifier, count, around=max(round(count * 0.1), 1))


def _some_sentences(text: str, count: int, quantifier: str) -> bool:
    return _compares(sentences(text), quantifier, count, around=1)


def _paragraph_start(text: str, count: int, first_word: str, i: int) -> bool:
    paragraphs = text.strip().split("\n\n")
    if len(paragraphs) != count or not 1 <= i <= count:
        return False
    return paragraphs[i - 1].strip().startswith(first_word)


def _ends_with_postscript(text: str, postscript_marker: str) -> bool:
    _, found, after = text.partition(postscript_marker)
    return bool(found and after.strip())


def _sections(text: str, count: int, section_splitter: str) -> bool:
    parts = text.split(section_splitter)
    return len(parts) - (not parts[0].strip()) == count


def _some_capital_words(text: str, count: int, quantifier: str) -> bool:
    return _compares(_capital_words(text), quantifier, count)


def _one_of(text: str, options: Sequence[str]) -> bool:
    return any(text.strip() == option.strip() for option in options)


_COUNT: Final[dict[str, type]] = {"N": int}
_RLVR: Final[dict[str, Constraint]] = {
    "verify_keywords": Constraint(_keywords, {"keyword_list": list}),
    "verify_keyword_frequency": Constraint(_exact_keyword, _COUNT | {"word": str}),
    "validate_forbidden_words": Constraint(_forbidden_words, {"forbidden_words": list}),
    "verify_letter_frequency": Constraint(_exact_letter, _COUNT | {"letter": str}),
    "validate_response_language": Constraint(_response_language, {"language": str}),
    "verify_paragraph_count": Constraint(_starred_paragraphs, _COUNT),
    "validate_word_constraint": Constraint(_words, _COUNT | {"quantifier": str}),
    "verify_sentence_constraint": Constraint(_some_sentences, _COUNT | {"quantifier": str}),
    "validate_paragraphs": Constraint(_paragraph_start, _COUNT | {"first_word": str, "i": int}),
    "verify_postscript": Constraint(_ends_with_postscript, {"postscript_marker": str}),
    "validate_placeholders": Constraint(_number_placeholders, _COUNT),
    "verify_bullet_points": Constraint(_number_bullet_lists, _COUNT),
    "validate_title": Constraint(_title, {}),
    "validate_choice": Constraint(_one_of, {"options": list}),
    "validate_highlighted_sections": Constraint(_number_highlighted_sections, _COUNT),
    "validate_sections": Constraint(_sections, _COUNT | {"section_splitter": str}),
    "validate_json_format": Constraint(_json_format, {}),
    "validate_repeat_prompt": Constraint(
        lambda text, original_prompt: text.strip().startswith(original_prompt.strip()),
        {"original_prompt": str},
    ),
    "validate_two_responses": Constraint(_two_responses, {}),
    "validate_uppercase": Constraint(lambda text: text == text.upper(), {}),
    "validate_lowercase": Constraint(lambda text: text == text.lower(), {}),
    "validate_frequency_capital_words": Constraint(
        _some_capital_words, _COUNT | {"quantifier": str}
    ),
    "validate_end": Constraint(
        lambda text, end_phrase: text.strip().endswith(end_phrase.strip()), {"end_phrase": str}
    ),
    "validate_quotation": Constraint(_quotation, {}),
    "validate_no_commas": Constraint(_no_comma, {}),
}

CONSTRAINTS: Final[dict[str, Constraint]] = _IFEVAL | _RLVR
"""By the ids of IFEval, and by the function names of RLVR-IFeval."""


@cache
def language_detector() -> Any:
    """Langdetect's factory, its profiles loaded and its draws fixed.

    By itself it answers differently each time on short texts.

    Raises:
        MissingExtraError: langdetect is not installed.
    """
    try:
        from langdetect import detector_factory  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise MissingExtraError("the language of a response", extra="constraints") from None
    detector_factory.DetectorFactory.seed = 0
    detector_factory.init_factory()
    return detector_factory


@cache
def _languages() -> frozenset[str]:
    """The codes that a language may have in a row; ``zh`` is Chinese of either script."""
    codes = language_detector()._factory.get_lang_list()  # noqa: SLF001 - as in `language_of`
    return frozenset(part for code in codes for part in (code, code.partition("-")[0]))


def language_of(text: str) -> str:
    """The ISO 639-1 code of a text's language (Chinese: ``zh-cn`` or ``zh-tw``); "" for no letters.

    A text in capitals is looked at in lower case, since capitals alone look like another language.
    """
    factory = language_detector()
    detector = factory._factory.create()  # noqa: SLF001 - `detect` hides whether there was a letter
    detector.append(text.lower() if text.isupper() else text)
    try:
        return str(detector.detect())
    except factory.LangDetectException:
        return ""
