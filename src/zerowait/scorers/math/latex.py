r"""One plain spelling of mathematics in LaTeX, Unicode or plain text, and its tokens.

Only marks that carry no meaning are dropped: spacing, dollar signs, ``\left``, fonts. What is in
words stays, in `WORDS_BEGIN` and `WORDS_END`, so that the reader has to account for it.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final, NamedTuple

from zerowait.patterns import lazy_pattern

WORDS_BEGIN: Final = "\ue000"
WORDS_END: Final = "\ue001"
FUNCTIONS: Final = frozenset(
    [
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "arcsin",
        "arccos",
        "arctan",
        "sinh",
        "cosh",
        "tanh",
        "sqrt",
        "cbrt",
        "ln",
        "log",
        "lg",
        "exp",
        "abs",
        "gcd",
        "lcm",
        "max",
        "min",
        "floor",
        "ceil",
        "zeta",
        "gamma",
    ]
)
_SPELT_OUT: Final = {
    "pi": "\\pi",
    "inf": "\\infty",
    "infty": "\\infty",
    "infinity": "\\infty",
    "oo": "\\infty",
    "asin": "\\arcsin",
    "acos": "\\arccos",
    "atan": "\\arctan",
    "theta": "\\theta",
    "alpha": "\\alpha",
    "beta": "\\beta",
    "phi": "\\phi",
}

_CHARS: Final = {
    "\u221a": "\\surd ",
    "\u221b": "\\cbrt ",
    "\u221e": "\\infty ",
    "\u00d7": "\\times ",
    "\u2715": "\\times ",
    "\u00f7": "\\div ",
    "\u00b7": "\\cdot ",
    "\u22c5": "\\cdot ",
    "\u2217": "\\cdot ",
    "\u2219": "\\cdot ",
    "\u2212": "-",
    "\u2013": "-",
    "\u2010": "-",
    "\u2011": "-",
    "\u2044": "/",
    "\u2215": "/",
    "\u2236": ":",
    "\u2264": "\\le ",
    "\u2a7d": "\\le ",
    "\u2265": "\\ge ",
    "\u2a7e": "\\ge ",
    "\u2260": "\\ne ",
    "\u2248": "\\approx ",
    "\u2243": "\\approx ",
    "\u2261": "\\equiv ",
    "\u00b1": "\\pm ",
    "\u2213": "\\mp ",
    "\u2208": "\\in ",
    "\u2209": "\\notin ",
    "\u222a": "\\cup ",
    "\u2229": "\\cap ",
    "\u2205": "\\emptyset ",
    "\u00f8": "\\emptyset ",
    "\u2216": "\\setminus ",
    "\u00b0": "^\\circ ",
    "\u00ba": "^\\circ ",
    "\u2032": "'",
    "\u2019": "'",
    "\u2228": " or ",
    "\u2227": " and ",
    "\u27e8": "\\langle ",
    "\u2329": "\\langle ",
    "\u27e9": "\\rangle ",
    "\u232a": "\\rangle ",
    "\u230a": "\\lfloor ",
    "\u230b": "\\rfloor ",
    "\u2308": "\\lceil ",
    "\u2309": "\\rceil ",
    "\u2026": "\\ldots ",
    "\u22ef": "\\ldots ",
    "\u211d": "\\mathbb{R}",
    "\u2124": "\\mathbb{Z}",
    "\u2115": "\\mathbb{N}",
    "\u211a": "\\mathbb{Q}",
    "\u2102": "\\mathbb{C}",
    "\u066b": ".",
    "\u066c": ",",
    "\u066a": "%",
    "\u060c": ",",
    "\u3001": ",",
    "\u3002": " ",
    "\u2220": "\\angle ",
    "\u25b3": "\\triangle ",
    "\u2030": "\\permille ",
    "\u3008": "\\langle ",
    "\u3009": "\\rangle ",
}
_RAISED: Final = lazy_pattern(r"[\u2070\u00b9\u00b2\u00b3\u2074-\u207f]+")
_LOWERED: Final = lazy_pattern(r"[\u2080-\u208e]+")

_NO_MEANING: Final = lazy_pattern(
    r"\\(?:displaystyle|textstyle|scriptstyle|limits|nonumber|hfill|strut|left|right"
    r"|[bB]igg?[lrm]?|mathstrut|thinspace|enspace|par|newline|centering|therefore"
    r"|tiny|small|normalsize|large|Large|LARGE|huge|Huge)(?![A-Za-z])\s?"
    r"|\\q?quad|\\(?:hspace|vspace|phantom|hphantom)\*?\{[^{}]*\}|(?<!\\)\\[,;:> ]|\\!|~"
)
_GROUPED: Final = lazy_pattern(
    r"(?<=\d)\s*(?:\\[,!;: ]|~|\{\s*,\s*\}|,\\!|\\thinspace)\s*(?=\d{3}(?!\d))"
)
_DECIMAL_COMMA: Final = lazy_pattern(r"(?<=\d)\{\s*,\s*\}(?=\d)")
_REPLACED: Final = {
    "dfrac": "\\frac", "tfrac": "\\frac", "cfrac": "\\frac", "dbinom": "\\binom",
    "tbinom": "\\binom", "choose": "\\choose", "leq": "\\le", "leqslant": "\\le", "geq": "\\ge",
    "geqslant": "\\ge", "lt": "<", "gt": ">", "neq": "\\ne", "lvert": "|", "rvert": "|",
    "vert": "|", "mid": "|", "lbrace": "\\{", "rbrace": "\\}", "lbrack": "[", "rbrack": "]",
    "times": "*", "cdot": "*", "ast": "*", "bullet": "*", "div": "/", "varnothing": "\\emptyset",
    "O": "\\emptyset", "dots": "\\ldots", "cdots": "\\ldots", "dotsc": "\\ldots",
    "lor": " or ", "vee": " or ", "land": " and ", "wedge": " and ", "varphi": "\\phi",
    "varepsilon": "\\epsilon", "vartheta": "\\theta", "degree": "^\\circ", "degrees": "^\\circ",
    "measuredangle": "\\angle", "simeq": "\\approx", "doteq": "\\approx", "backslash": "\\setminus",
    "smallsetminus": "\\setminus",
    "R": "\\mathbb{R}", "euro": "\u20ac", "pounds": "\u00a3", "arctg": "\\arctan", "tg": "\\tan",
    "ctg": "\\cot", "colon": ":", "lg": "\\lg", "percent": "%",
    "infin": "\\infty", "lnot": "\\lnot",
    "Longrightarrow": "\\implies", "Rightarrow": "\\implies", "vec": "\\vec",
    "overrightarrow": "\\vec",
    "inf": "\\infty", "textdollar": "\\$", "textdegree": "^\\circ", "textbackslash": "\\setminus",
}  # fmt: skip
_COMMAND: Final = lazy_pattern(r"\\([A-Za-z]+)")
_FONT: Final = lazy_pattern(
    r"\\(?:text|textbf|textit|textrm|textsf|texttt|textup|textnormal|mathrm|mathbf|mathit|mathsf|mathtt"
    r"|mathnormal|mbox|hbox|operatorname|emph|boldsymbol|bold|bm|rm|bf|it|underline|boxed|fbox|ensuremath"
    r"|unit|si|mathop)\*?"
    r"\s*\{([^{}]*)\}"
)
_FONT_OF_GROUP: Final = lazy_pattern(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|mbox|boldsymbol|bold|bm|underline|ensuremath"
    r"|boxed|fbox|operatorname|textnormal|mathop)\*?\s*(?=\{)"
)
_JOINED: Final = lazy_pattern(r"\s+(and|or)\s+")
_LEAD: Final = lazy_pattern(
    rf"\A\s*{WORDS_BEGIN}?\s*(?:(?:the\s+)?(?:final\s+|correct\s+)?(?:answer|option|choice)(?:\s+is\b|\s*:)?\s*"
    rf"|答案\s*[是为]?\s*:?|(?:about|approximately|roughly|exactly)(?=[\s{WORDS_END}]))(?={WORDS_END}|[\s\d(\\$-])"
    rf"{WORDS_END}?",
    re.IGNORECASE,
)
_OUTWARD: Final = lazy_pattern(r"([\[\]])([^\[\]]*,[^\[\]]*)([\[\]])")
_LABELLED: Final = lazy_pattern(r"\s*[A-J][.:]\s.*", re.DOTALL)
_FONT_SWITCH: Final = lazy_pattern(r"\{?\\(?:rm|bf|it|sf|tt|cal)(?![A-Za-z])\s*([A-Za-z]*)\}?")
_NO_BRACKET: Final = lazy_pattern(r"\\(?:left|right)\s*\.(?!\d)")
_COLOUR: Final = lazy_pattern(r"\\(?:text)?color\s*\{[A-Za-z]*\}")
_ESCAPED_TWICE: Final = lazy_pattern(
    r"(?<!\\)\\\\(?=(?:left|right|[dt]?frac|sqrt|leq?|geq?|pi|infty|cup|text|boxed|cdot|times)(?![a-z]))"
)
_MATH_MODE: Final = lazy_pattern(r"(?<!\\)\\[()\[\]]")
_GOES_ON: Final = lazy_pattern(r",\s*\.\.+\Z")
_DOTTED: Final = lazy_pattern(r"\\dot\s*\{?(\d)\}?(?:(\d*)\\dot\s*\{?(\d)\}?)?")
_REPEATING: Final = lazy_pattern(
    r"(?<![\d.])(\d{0,30})\.(\d{0,30})\s*\\(?:overline|bar|overbar)\s*(?:\{\s*(\d{1,30})\s*\}|(\d))"
)
_REPEATING_PLAINLY: Final = lazy_pattern(
    r"(?<![\d.])(\d{0,30})\.(\d{0,30}?)"
    r"(?:\((\d{1,30})\)|(?:(\d)\4{2,}|(\d{2,6}?)\5+)(?:\.\.\.+|\\ldots))(?=\W*\Z)"
)
_LINE_SPACE: Final = lazy_pattern(r"(\\\\)\s*\[\s*-?[\d.]+\s*(?:pt|em|ex|mm|cm|in)\s*\]")
_RAISED_O: Final = lazy_pattern(
    r"(?<=\d)\s*\^\s*(?:\{\s*o\s*\}|\{?\\(?:text|mathrm|textrm)\s*\{\s*o\s*\}\}?|o(?![A-Za-z]))"
)
_END_OF_PROOF: Final = lazy_pattern(
    r"(?:\s*+\\(?:checkmark|blacksquare|square|Box|qed)(?![A-Za-z])(?:\{\})?)+\s*\Z"
)
_MINUTES: Final = lazy_pattern(
    r"(?<=[\d}])(?:[\s~]|\\[,;: ])*"
    r"(?:\\(?:text|mathrm|textrm|mbox|rm)\s*\{[\s~]*min\.?\s*\}|(?<![A-Za-z\\])min\.?)\s*\Z"
)
_IN_ROUND: Final = lazy_pattern(
    rf"(?<=[\d}}])[\s{WORDS_BEGIN}]*\([\s{WORDS_BEGIN}]*"
    rf"([A-Za-z]{{4,}}(?:[ -][A-Za-z]+)?)[\s{WORDS_END}]*\)[\s{WORDS_END}]*\Z"
)
_NEGATIVE: Final = lazy_pattern(
    rf"\A{WORDS_BEGIN}?\s*(?:negative|minus)\s*{WORDS_END}?\s*(?=[\d.(\\])", re.IGNORECASE
)
_FOR_ALL: Final = lazy_pattern(
    rf"(?<=[^\s,])[\s,]*+{WORDS_BEGIN}?[\s(]*+for\s+(?:all|any|every|each)\b[^\d=<>]{{0,60}}\Z"
)
_FOR_INTEGERS: Final = lazy_pattern(
    rf"(?<=[^\s,])[\s,]*+(?:{WORDS_BEGIN}\s*(?:where|for|with)\s*{WORDS_END})?\s*"
    rf"\(?\s*([A-Za-z])\s*\\in\s*\\mathbb\s*\{{?([ZN])\}}?\s*\)?\Z"
)
_DOLLARS: Final = lazy_pattern(r"\A(?:USD?\s*(?=\\?\$)|USD\s*(?=\d))")
_COMBINATIONS: Final = [
    lazy_pattern(r"(?:\{\s*\})?[_^]\{?(\d{1,5})\}?\s*C\s*_\s*\{?(\d{1,5})\}?"),
    lazy_pattern(r"(?<![A-Za-z\\])C\s*_\s*\{?(\d{1,5})\}?\s*\^\s*\{?(\d{1,5})\}?"),
    lazy_pattern(r"(?<![A-Za-z\\])C\s*\^\s*\{?(\d{1,5})\}?\s*_\s*\{?(\d{1,5})\}?"),
]
_JOINT: Final = lazy_pattern(r"[\s,;]*(?:or|and|或|和|或者)[\s,;:]*", re.IGNORECASE)
_TIMES: Final = lazy_pattern(r"(?<=\d)\s*[xX]\s*(?=10\s*\^)|(?<=\d)\s+[xX]\s+(?=\d)")
_STARS: Final = lazy_pattern(r"\A(\*\*|__|`)(.+)\1\Z", re.DOTALL)

_TOKEN: Final = lazy_pattern(
    r"(?P<space>\s+)"
    r"|(?P<number>(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d{1,2}(?:,\d{2})+,\d{3}(?![\d,])|\d+)(?:\.\d+)?|\.\d+)"
    rf"|(?P<words>{WORDS_BEGIN}[^{WORDS_END}]*{WORDS_END})"
    r"|(?P<command>\\[A-Za-z]+|\\.)"
    r"|(?P<letters>[A-Za-z]+)"
    r"|(?P<foreign>[^\W\d_]+)"
    r"|(?P<mark>==|<=|>=|!=|=<|=>|\.\.+|.)",
    re.DOTALL,
)
_APART: Final = lazy_pattern(r"\d+(?:\.\d+)?|\.\d+")
_RELATIONS: Final = {"==": "=", "<=": "\\le", ">=": "\\ge", "!=": "\\ne", "=<": "\\le"}


class Token(NamedTuple):
    """A piece of a formula; `kind` is the name of its group in the pattern, or ``symbol``."""

    kind: str
    text: str
    spaced: bool
    """Whether white space stood before it."""


def plain_spelling(text: str) -> str:
    r"""`text` with one spelling for what can be spelt in several ways.

    >>> print(plain_spelling(r"$\dfrac{1}{2}$"), plain_spelling("x**2 \\leq 3."))
    \frac {1}{2} x^2 \le  3
    """
    text = _unpunctuated(text if text.isascii() else _from_unicode(text))
    if (starred := _STARS.match(text)) is not None:
        text = starred[2].strip()
    if "$" in text:
        text = _without_dollars(text)
    text = _unframed(_in_one_notation(text))
    if text[:1] == "]" or text[-1:] == "[":  # ]1, 2[ is how some countries write (1, 2)
        text = _OUTWARD.sub(
            lambda ends: {"]": "(", "[": "["}[ends[1]] + ends[2] + {"[": ")", "]": "]"}[ends[3]],
            text,
        )
    return text


def _unpunctuated(text: str) -> str:
    text = text.strip()
    if text.endswith("\\") and not text.endswith("\\\\"):
        text = text[:-1]
    text = text.lstrip(" \t\n;")
    if not text.endswith("\\;"):
        text = text.rstrip(" \t\n;")
    return text.removesuffix("." if not text.endswith("..") else "\0")


def _in_one_notation(text: str) -> str:
    if "min" in text:
        text = _MINUTES.sub(f" {WORDS_BEGIN}minutes{WORDS_END}", text)
    if "^" in text and "o" in text:
        text = _RAISED_O.sub(r"^\\circ ", text)
    if "\\" in text or "{,}" in text or "{:}" in text or "~" in text:
        text = _from_latex(text)
    if "C" in text:
        for pattern in _COMBINATIONS:
            text = pattern.sub(_combination, text)
    if "..." in text or "ldots" in text or ".(" in text or "(" in text:
        text = _REPEATING_PLAINLY.sub(_fraction, text)
    if "x" in text or "X" in text:
        text = _TIMES.sub("*", text)
    return text


def _unframed(text: str) -> str:
    """Without what ends a proof and "for all x", minus 5 as -5 and 13 (ways) as 13 ways."""
    text = _LEAD.sub("", text.replace("**", "^")).lstrip(" ,;:")
    text = text if _GOES_ON.search(text) else text.rstrip(" .,;:")
    if not text[:1].isdigit():
        text = _DOLLARS.sub(r"\\$", _NEGATIVE.sub("-", text)).replace("\\$\\$", "\\$")
    if text[-1:].isdigit():
        return text
    if "\\in" in text:
        text = _FOR_INTEGERS.sub(r", \1\\in\\mathbb{\2}", text)
    text = _FOR_ALL.sub("", _END_OF_PROOF.sub("", text))
    return _IN_ROUND.sub(rf" {WORDS_BEGIN}\1{WORDS_END}", text)


def _combination(numbers: re.Match[str]) -> str:
    """The letter C between two numbers, which some countries write in this order, some in that."""
    above, below = sorted(map(int, numbers.groups()), reverse=True)
    return rf"\binom{{{above}}}{{{below}}}"


def latex_tokens(text: str, *, grouped: bool = True) -> list[Token]:
    """The tokens of a plain spelling, its last one included: nothing is skipped but white space.

    Args:
        text: a plain spelling.
        grouped: read 1,234 as one number; otherwise as two.
    """
    found: list[Token] = []
    spaced = False
    for match in _TOKEN.finditer(text):
        kind, piece = str(match.lastgroup), match[0]
        if kind == "space":
            spaced = True
            continue
        if kind == "number" and not grouped and "," in piece:
            found += _numbers_apart(piece, spaced=spaced)
        elif kind == "letters":
            found += _letters(piece, spaced=spaced)
        elif kind == "foreign":
            found.append(Token("words", piece, spaced))
        elif kind == "words":
            found.append(Token("words", piece[1:-1].strip(), spaced or piece[1:2].isspace()))
        else:
            found.append(Token(kind, _RELATIONS.get(piece, piece), spaced))
        spaced = False
    return found


def _numbers_apart(piece: str, *, spaced: bool) -> list[Token]:
    parts = piece.split(",")
    found = [Token("number", parts[0], spaced)]
    for part in parts[1:]:
        found += [Token("mark", ",", spaced=False), Token("number", part, spaced=False)]
    return found


def _letters(piece: str, *, spaced: bool) -> list[Token]:
    if piece in _SPELT_OUT or piece.lower() in ("infinity", "inf"):
        return [Token("command", _SPELT_OUT.get(piece, "\\infty"), spaced)]
    if piece in FUNCTIONS:
        return [Token("command", f"\\{piece}", spaced)]
    if len(piece) == 1:
        return [Token("symbol", piece, spaced)]
    return [Token("letters", piece, spaced)]


def _from_unicode(text: str) -> str:
    text = _RAISED.sub(lambda run: f"^{{{_ascii(run[0])}}}", text)
    text = _LOWERED.sub(lambda run: f"_{{{_ascii(run[0])}}}", text)
    return "".join(char if char.isascii() else _one_char(char) for char in text)


def _ascii(run: str) -> str:
    return unicodedata.normalize("NFKC", run).replace("\u2212", "-")


def _one_char(char: str) -> str:
    if char in _CHARS:
        return _CHARS[char]
    if "\u03b1" <= char <= "\u03c9" or "\u0391" <= char <= "\u03a9":
        letter = unicodedata.name(char).rpartition(" ")[2]
        case = str.lower if char >= "\u03b1" else str.capitalize
        return f"\\{case(letter.replace('LAMDA', 'LAMBDA'))} "
    if (digit := unicodedata.decimal(char, None)) is not None:
        return str(digit)
    if unicodedata.decomposition(char).startswith("<fraction>"):
        top, _, bottom = unicodedata.normalize("NFKC", char).partition("\u2044")
        return rf"\frac{{{top}}}{{{bottom}}}"
    if unicodedata.category(char) == "Cf":
        return ""
    seen = unicodedata.normalize("NFKC", char)
    return seen if seen == char else "".join(_CHARS.get(each, each) for each in seen)


def _without_dollars(text: str) -> str:
    """Dollar signs around a formula are dropped; a single one, or an escaped one, is money."""
    text = text.replace(r"\$", "\ue002")
    if text.count("$") % 2:
        text = text.replace("$", "\ue002") if text.count("$") == 1 else text
    text = text.replace("$", " " if "\\" not in text else "")
    return text.replace("\ue002", "\\$")


def _from_latex(text: str) -> str:
    text = _NO_BRACKET.sub("", _COLOUR.sub("", _LINE_SPACE.sub(r"\1", text)))
    text = _GROUPED.sub("", _ESCAPED_TWICE.sub(r"\\", text))
    text = _DECIMAL_COMMA.sub(".", text).replace("{:}", ":")
    text = _NO_MEANING.sub(lambda mark: "" if mark[0] == "\\!" else " ", text)
    text = _MATH_MODE.sub(" ", text)
    text = _REPEATING.sub(_fraction, _DOTTED.sub(r"\\overline{\1\2\3}", text))
    text = text.replace("\\%", "%").replace("\\#", "#").replace("\\&", " and ").replace("\\_", "_")
    for _ in range(4):  # fonts may be nested
        changed = _FONT_SWITCH.sub(r"\\text{\1}", _FONT.sub(_unwrapped, text))
        if changed == text:
            break
        text = changed
    text = _FONT_OF_GROUP.sub("", text)
    return _COMMAND.sub(
        lambda name: f"{_REPLACED[name[1]]} " if name[1] in _REPLACED else name[0], text
    )


def _fraction(repeating: re.Match[str]) -> str:
    """A repeating decimal as the fraction that it is."""
    whole, head, *tails = repeating.groups()
    tail = next(each for each in tails if each)
    nines = int("9" * len(tail) + "0" * len(head))
    top = int((whole or "0") + head + tail) - int((whole or "0") + head)
    return rf"(\frac{{{top}}}{{{nines}}})"


def _unwrapped(font: re.Match[str]) -> str:
    inside = font[1].replace("~", " ").replace(WORDS_BEGIN, "").replace(WORDS_END, "")
    bare = inside.strip()
    if _JOINT.fullmatch(inside):
        return " or " if "or" in bare.lower() or "或" in bare else " and "
    if _JOINED.search(inside):
        pieces = _JOINED.split(inside)
        return "".join(
            f" {piece} " if index % 2 or len(piece) < 2 else f"{WORDS_BEGIN}{piece}{WORDS_END}"
            for index, piece in enumerate(pieces)
        )
    if (
        len(bare) <= 1
        or _LABELLED.fullmatch(inside)
        or not all(char.isalpha() or char in " .'-" for char in bare)
    ):
        return f" {inside} " if not font[0].startswith(("\\boxed", "\\fbox")) else f"{{{inside}}}"
    if bare in FUNCTIONS:
        return f"\\{bare} "
    if bare.lower() == "infinity":
        return "\\infty "
    return f"{WORDS_BEGIN}{inside}{WORDS_END}"
