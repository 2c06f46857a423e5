"""Random replies against the parser: it never raises, never invents a verdict, and stays linear.

    python benchmarks/fuzz_parser.py --minutes 10

Replies are those of the corpus in tests/judge, cut, joined and changed at random; where atheris is
installed, it changes them, guided by the parser's branches that they reach (`--random`: not so).
Whether a verdict was invented is decided by an oracle of its own, which knows nothing of the
parser: a verdict has to be written in the visible text, whole, and alone on the last line, behind a
label, in a sentence that gives it, or at the beginning with its scale or its reason. A reply that
breaks a rule is made as short as it can be and printed; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
import unicodedata
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from inspect import isfunction
from pathlib import Path
from typing import NoReturn

from zerowait.config import VerdictRule
from zerowait.judge import parse, read_reply
from zerowait.judge.parsing import (
    answer,
    claims,
    context,
    loose_json,
    readers,
    sentences,
    verdict,
)
from zerowait.types import Score

CORPUS = Path(__file__).parents[1] / "tests" / "judge" / "corpus.jsonl"
RULES = {
    "1-10": VerdictRule(integer=(1, 10)),
    "0-1": VerdictRule(number=(0, 1)),
    "-1..1": VerdictRule(number=(-1, 1)),
    "0-100": VerdictRule(integer=(0, 100)),
    "yes/no": VerdictRule(choice=["yes", "no"]),
    "A/B/tie": VerdictRule(choice=["A", "B", "tie"]),
}
PIECES = [
    *("Score: ", "**Rating:** ", "7", "10", "3.5", "0.5", "-1", "/10", "/5", " out of 10", "7-8"),
    *("\n", "\n\n", " ", "yes", "no", "not yes", "A", "tie", "{", "}", '"score": ', '"verdict": '),
    *(
        "<think>",
        "</think>",
        "```json\n",
        "```",
        "**",
        "[[",
        "]]",
        "\\boxed{",
        "评分",
        "\uff1a",
        "分",
    ),
    *("\uff17", "\u200b", "\u0667", "²", "%", "Verdict: ", "Answer: ", "is ", "to ", "or ", "1. "),
    *("Step 2 of 3 is right.", "<|channel|>final<|message|>", "</s>", ",", ".", "=", "|", "#"),
]

# The oracle. Words that name a verdict, and what may stand between such a word and its value.
LABELS = [
    *("score", "scores", "rating", "grade", "mark", "verdict", "judgement", "judgment"),
    *("evaluation", "assessment", "overall", "bewertung", "punktzahl", "puntuación", "puntuacion"),
    *("calificación", "calificacion", "оценка", "评分", "得分", "分数", "打分", "评级", "评价"),
    *("总分", "スコア", "評価", "得点", "点数", "점수", "평점"),
    *("gesamtbewertung", "gesamtpunktzahl", "балл", "ocena", "punteggio", "valutazione", "puan"),
    *("pontuação", "pontuacao", "avaliação", "avaliacao", "évaluation", "beoordeling", "điểm"),
    *("final", "rated", "note", "notes", "nota", "voto", "cijfer", "punkte", "points", "result"),
    *("overall quality", "overall impression", "answer quality", "response quality", "total"),
    *("总评", "scale", "out of 10", "10"),
]
CHOICE_LABELS = [
    *("winner", "preference", "yes/no", "correct/incorrect", "a/b/tie"),
    *("answer", "choice", "decision", "prediction", "conclusion", "result", "label"),
    *("classification", "antwort", "urteil", "respuesta", "判断", "判定", "结论", "答案", "预测"),
    "结果",
]
BETWEEN_WORDS = {
    *("is", "are", "of", "for", "the", "this", "response", "answer", "reply", "solution"),
    *("output", "out", "to", "from", "points", "point", "boxed", "text", "mathbf", "mathrm"),
    *("为", "是", "满分", "分"),
}
LETTER = r"[^\W_\u3040-\u9fff\uac00-\ud7a3]"  # Chinese, Japanese and Korean have no spaces
NUMBER = re.compile(
    rf"(?<!{LETTER})(?<![.,])[-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?(?![.,]?\d)"
)
# A tag inside a sentence is only mentioned; one at the edge of a line, or with the answer right
# behind it, ends what was thought, and so does any other where the text begins with its opening.
# What stands before its name may be in full width, and behind it there may be attributes.
TAG = (
    r"(?:[a-z0-9\uff10-\uff19\uff21-\uff3a\uff41-\uff5a]+[:_-])?"
    r"(?:think|thought|reasoning|reflection|analysis|scratchpad|cot|monologue|chain)"
    r"(?:ing|s|_of_thought)?(?:[ _-]\w*)?(?:\s[^<>\n]*)?>"
)
TOKEN = "|".join(
    (
        *(
            r"<\|(?:end_|/)(?:of_)?(?:think(?:ing)?|thoughts?|reasoning|reflection|analysis)\|>",
            r"<\|inner_suffix\|>",
            r"<channel\|>",
            "<unused95>",
        ),
        *(r"^\.\.\.done thinking\.", r"\[BEGIN FINAL RESPONSE\]", "^here is my response:"),
    )
)
CLOSES = rf"(?:< ?/{TAG}|\[/THINK(?:ING)?\])"
AT_EDGE = re.compile(
    rf"^[ \t]*{CLOSES}|{CLOSES}(?:[ \t]*$|(?=[\w*#{{\[]))|{TOKEN}", re.IGNORECASE | re.MULTILINE
)
OPENING_TAG = re.compile(rf"\s*(?:< ?{TAG}|\[THINK)", re.IGNORECASE)
CLOSING_TAG = re.compile(CLOSES, re.IGNORECASE)
CONTROL = re.compile(r"<\|\w+\|>|</s>")
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
WORD = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)
SOLID = "solid|strong|firm|clear|generous|fair|respectable|decent|weak|low|high|modest|comfortable"
SOLID += "|easy|good|definite|borderline"
CANDIDATE = re.compile(
    r"(?:the )?(?:response|answer|assistant|option|model|candidate|output|summary)[ *_`\"]*\Z",
    re.IGNORECASE,
)
GIVES = re.compile(
    r"(?:\b(?:rate|give|score|grade|assign|award|deserves|earns|gets|merits|receives|scores|rated"
    r"|rating|giving|awarding|scoring|settl(?:e|ing) on|land on|go|going with|call it|put|place"
    r"|say|(?:this|it|that)(?:'s| is)|(?:would|should) be|warrants|worth|easily|definitely|clearly"
    r"|honestly|gebe|vergebe|bewerte"
    r"|all in all|donne"
    r"|donnerais|mets|attribue|doy|daría|otorgo|asigno|do|darei|assegno|dou|daria|atribuo"
    r"|ставлю|даю|оцениваю)\b[^.\n]*|[打评给值得][^。\n]{0,16}|\[result\]\W*)\Z",
    re.IGNORECASE,
)
FITS = re.compile(
    r"(?:/\d+)? (?:is|seems|feels) (?:(?:most|quite|only|well) )?(?:appropriate|fair|warranted"
    r"|justified|reasonable|fitting|suitable|deserved)\b",
    re.IGNORECASE,
)
ARTICLE = re.compile(rf"(?:\ban? )?(?:\b(?:{SOLID}) )?[\s*_\"'`(\[$]*\Z|\ban? \Z", re.IGNORECASE)
OPENING_GROUND = re.compile(
    r"[\W_]*(?:/|out of\b|of\b|von\b|sur\b|on an?\b|because\b|since\b|as\b|due to\b"
    r"|\w+ (?:response|answer)|[a-z]{2,}\b)",
    re.IGNORECASE,
)
CLOSES = re.compile(r"[*_]* ?(?:/|out of) ?\d+[*_]*(?: (?:from|for) me)?[\s.!*_]*\Z", re.IGNORECASE)
EMPTY = "\u2606"
STARS = re.compile(f"[\u2605\u2b50\U0001f31f]+{EMPTY}*")
BETTER = re.compile(r"[\W_]* (?:is|was) (?:\w+ )?(?:better|best|stronger)\b", re.IGNORECASE)
IS_TRUE = re.compile(r"[\"']\s*:\s*true\b", re.IGNORECASE)
RANGE = re.compile(
    rf"[ \t]*(?:-[ \t]*\d|(?:to\b|or\b|至|到|或)[ \t]*(?:\d|{WORD.pattern}))", re.IGNORECASE
)
UNITS = re.compile(
    r"(?:/|out of|of|von|sur)[\s*_`]*[\d.]+|%|points?|pts|stars?|[分点점]|</?[a-z_]+>"
    r"|\\?(?:boxed|text|math..)",
    re.IGNORECASE,
)


def seen(text: str) -> str:
    """What a reader sees of the judge's answer, in compatible characters, without its thinking."""
    text = "".join(c for c in text if unicodedata.category(c) != "Cf" and c != "\ufe0f")
    text = re.sub("\r\n?|[\x85\u2028\u2029]", "\n", text)
    text = text.replace("\u25c1", "<").replace("\u25b7", ">")  # Kimi's tags
    text = unicodedata.normalize("NFKC", answered(text)).replace("\u2212", "-")
    text = STARS.sub(lambda run: f" {len(run[0].rstrip(EMPTY))} ", text)
    text = re.sub(r"(?<=\d),(?=\d{1,2} ?/)", ".", text)
    return CONTROL.sub(" ", re.sub("[\u2010-\u2013]", "-", text))


def answered(text: str) -> str:
    """What follows the thinking; a mark in characters that only look like one is text."""
    _, final, text = text.rpartition("<|channel|>final<|message|>")
    if final:
        return re.split(r"<\|(?:end|return|call|start)\|>", text)[0]
    if re.match(r"\s*analysis[^\s:.,;*_<-]", unicodedata.normalize("NFKC", text)):
        text = text.rpartition("assistantfinal")[2]
    if AT_EDGE.search(text) or not OPENING_TAG.match(text):
        return AT_EDGE.split(text)[-1]
    return CLOSING_TAG.split(text, maxsplit=1)[-1]


def is_named(text: str, given: float | str, rule: VerdictRule) -> bool:
    """Whether a reader finds `given` in `text` as the judge's verdict."""
    text = seen(text)
    if isinstance(given, str):
        return _is_word_named(text, unicodedata.normalize("NFKC", given))
    high = (rule.integer or rule.number or (0, 0))[1]
    in_digits = WORD.sub(lambda word: str(WORDS.index(word[0].lower())), text)
    return any(
        _is_verdict(written, match, LABELS)
        for written in (text, in_digits)
        for match in NUMBER.finditer(written)
        if float(match[0]) == given and not _is_spoilt(written, match, high)
    )


def _is_word_named(text: str, given: str) -> bool:
    pattern = rf"(?<!{LETTER}){re.escape(given)}(?!{LETTER})"
    return any(
        _is_verdict(text, match, LABELS + CHOICE_LABELS)
        or (text[: match.start()].endswith(('"', "'")) and IS_TRUE.match(text, match.end()))
        for match in re.finditer(pattern, text, re.IGNORECASE)
        if not re.search(r"\bnot[ \t]*\Z", text[: match.start()], re.IGNORECASE)
    )


def _is_verdict(text: str, match: re.Match[str], labels: list[str]) -> bool:
    """Whether what stands there stands for itself, or is said to be the verdict."""
    if _is_alone(text, match) or _has_label(text, match, labels):
        return True
    said = text[max(0, match.start() - 160) : match.start()]
    if GIVES.search(said) or FITS.match(text, match.end()):
        return True
    if CLOSES.match(text, match.end()) or BETTER.match(text, match.end()):
        return True
    begins = not re.search(r"[^\W_]", ARTICLE.sub("", text[: match.start()]))
    return begins and OPENING_GROUND.match(text, match.end()) is not None


def _is_spoilt(text: str, match: re.Match[str], high: float) -> bool:
    """Whether the number is on another scale, or one end of a range."""
    after = text[match.end() : match.end() + 40].partition("\n")[0]
    if re.match(r"\"?[ \t]*\}", after) and "boxed" not in text[: match.start()][-12:]:
        return False  # a JSON object ends here, and its value with it
    scale = re.match(r"[ \t*_`\"')\]}$]*(?:/|out of\b|of\b)[ \t]*[*_`]*(\d+(?:\.\d+)?)", after)
    if scale is not None and float(scale[1]) != high:
        return True
    if re.match(r"[ \t]*%", after) and high != 100:
        return True
    return RANGE.match(after) is not None


def _is_alone(text: str, match: re.Match[str]) -> bool:
    """Whether the verdict is all there is on the last line that has anything on it."""
    end = text.find("\n", match.end())
    line = text[text.rfind("\n", 0, match.start()) + 1 : end if end >= 0 else len(text)]
    before = ARTICLE.sub("", line[: line.find(match[0])])
    before = CANDIDATE.sub("", before)
    rest = UNITS.sub("", before + line[line.find(match[0]) + len(match[0]) :])
    below = "" if end < 0 else text[end:]
    return not re.search(r"[^\W_]", rest + UNITS.sub("", below))


def _has_label(text: str, match: re.Match[str], labels: list[str]) -> bool:
    """Whether a label stands before the verdict with nothing between that says anything else."""
    before = text[max(0, match.start() - 160) : match.start()].lower()
    found = [(before.rfind(label), len(label)) for label in labels if label in before]
    for at, length in found:
        between = ARTICLE.sub(" ", before[at + length :])
        between = re.sub(r"[(\[][^()\[\]]*[)\]]|(?:out of|/)\s*\d+|\d+\s*to\s*\d+", " ", between)
        words = re.findall(r"[^\W_]+", between)
        if all(word in BETWEEN_WORDS or word in labels for word in words):
            return True
    return False


# What has to hold for every text.


def broken(rule: VerdictRule, text: str) -> str:
    """The rule that the parser breaks on `text`, or nothing."""
    try:
        outcome = parse(text, rule)
        body = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
        read_reply(body, rule)
        read_reply(body[: len(body) // 2], rule)
    except Exception as error:  # noqa: BLE001 - a finding, whatever it is
        return f"raises {type(error).__name__}: {error}"
    if not isinstance(outcome, Score):
        return ""
    given = outcome.detail["verdict"]
    low, high = rule.integer or rule.number or (0, 1)
    if not low <= outcome.value <= high:
        return f"gives {outcome.value}, which is out of range"
    if not is_named(text, given, rule):
        return f"invents {given!r}"
    if rule.choice is None and isinstance(parse(_without_digits(text), rule), Score):
        return "finds a number in a text without digits"
    return ""


def _without_digits(text: str) -> str:
    text = WORD.sub("x", seen(text))
    return "".join("x" if unicodedata.normalize("NFKC", c).isnumeric() else c for c in text)


def is_slow(rule: VerdictRule, text: str) -> bool:
    """Whether eight times the text takes far more than eight times as long, three times over."""
    once = (text or "x") * (1 + 20_000 // max(1, len(text)))

    def cpu_s(given: str) -> float:
        began = time.thread_time()
        parse(given, rule)
        return time.thread_time() - began

    return all((long := cpu_s(once * 8)) > 0.05 and long > 24 * cpu_s(once) for _ in range(3))


def changed(chance: random.Random, replies: list[str]) -> str:
    """A reply of the corpus, changed in a few places."""
    text = chance.choice(replies)
    for _ in range(chance.choice((0, 1, 1, 2, 3, 5, 8))):
        at = chance.randint(0, len(text))
        to = min(len(text), at + chance.choice((0, 1, 1, 2, 5, 20)))
        other = chance.choice(replies)
        begin = chance.randint(0, len(other))
        new = chance.choice(
            (
                "",
                chance.choice(PIECES),
                chance.choice(PIECES),
                chr(chance.choice((chance.randint(0, 127), chance.randint(0, 0x2FFFF)))),
                other[begin : begin + chance.randint(0, 30)],
                text[at:to] * 2,
            )
        )
        text = text[:at] + new + text[to:]
    return text


def shortest(text: str, fails: Callable[[str], bool]) -> str:
    """`text` with all left out that the failure does not need."""
    size = len(text)
    while size:
        at = 0
        while at < len(text):
            without = text[:at] + text[at + size :]
            text, at = (without, at) if fails(without) else (text, at + size)
        size //= 2
    return text


def guided(replies: list[str], minutes: float, seed: int) -> NoReturn:
    """Let atheris change the replies; it ends the process, with 0 where nothing was found."""
    import atheris

    rules = list(RULES.values())

    def try_one(data: bytes) -> None:
        rule = rules[data[0] % len(rules)] if data else rules[0]
        text = data[1:].decode("utf-8", "replace")
        problem = broken(rule, text)
        if problem:
            raise AssertionError(f"{problem}: {text!r} by {rule}")

    for module in (answer, claims, context, loose_json, readers, sentences, verdict):
        for function in filter(isfunction, vars(module).values()):
            atheris.instrument_func(function)
    with tempfile.TemporaryDirectory() as folder:
        for number, reply in enumerate(replies):
            start = bytes([number % len(rules)]) + reply.encode("utf-8", "replace")
            (Path(folder) / f"{number}").write_bytes(start)
        limits = [f"-max_total_time={round(60 * minutes)}", f"-seed={seed + 1}", "-max_len=2000"]
        atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={folder}/", folder], try_one)
        atheris.Fuzz()
    raise AssertionError  # pragma: no cover - Fuzz does not come back


def main() -> int:
    """Print what was tried, and every finding."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=10.0)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--random", action="store_true", help="without atheris")
    given = options.parse_args()
    chance = random.Random(given.seed)
    lines = CORPUS.read_text("utf-8").splitlines()
    replies = [json.loads(line)["reply"] for line in lines]
    if not given.random and find_spec("atheris"):
        guided(replies, given.minutes, given.seed)
    until = time.monotonic() + 60 * given.minutes
    tried: Counter[str] = Counter()
    findings: dict[str, str] = {}
    while time.monotonic() < until and len(findings) < 20:
        name, rule = chance.choice(list(RULES.items()))
        text = changed(chance, replies)
        tried["replies"] += 1
        tried["scores"] += isinstance(parse(text, rule), Score)
        problem = broken(rule, text)
        if problem:
            kind = problem.split()[0]
            short = shortest(text, lambda t, r=rule, k=kind: broken(r, t).startswith(k))
            findings[f"{name}: {broken(rule, short)}: {short!r}"] = problem
        if tried["replies"] % 500 == 0:
            tried["timed"] += 1
            if is_slow(rule, text):
                findings[f"{name}: is slow on {text!r} repeated"] = "slow"
    for finding in findings:
        print(finding)
    print(
        f"seed {given.seed}: {tried['replies']} replies, {tried['scores']} with a verdict, "
        f"{tried['timed']} timed, {len(findings)} findings"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
