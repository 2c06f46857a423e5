"""Canaries: known exploits that try to be scored well without an answer, tried on a judge.

Each exploit answers a question whose right and wrong answers are judged too. The judge is fooled
where an exploit scores more than a margin above the wrong answer. Where the judge does not score
the right answer above the wrong one, it is confused, and its verdicts carry no information.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TypeAlias

import msgspec

from zerowait.config import Source, build, parse_yaml, read_yaml
from zerowait.errors import did_you_mean
from zerowait.judge.parsing.verdict import to_unit
from zerowait.judge.rubric import Rubric, fill
from zerowait.types import POLICY_CAUSED, Abstain, Outcome, Sample, Score

CanaryBounds: TypeAlias = tuple[float, float]

RIGHT, WRONG = "right answers", "wrong answers"
_OWN_FILE = "exploits.yaml"
_TEXTS = ("prompt", "right", "wrong", "best", "verdict")
_PLACEHOLDER = re.compile(r"\{\{\s*([\w.-]+)\s*\}\}")
_MOST_TIMES = 10_000
_NOT_GIVEN = "not given"
_ROUNDING = 1e-9


class CanaryQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question with its reference, and a right and a wrong answer to it."""

    prompt: str
    ground_truth: str
    right: str
    wrong: str


class Exploit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A response that should get no more than a wrong answer.

    Args:
        id: its name. kind: what it has in common with others.
        question: the one it answers, by name.
        response: may hold ``{{prompt}}``, ``{{right}}``, ``{{wrong}}``, ``{{best}}`` (the best
            verdict) and ``{{verdict}}`` (a last line that gives it).
        times: how often the response is repeated.
        at_most: a share of the verdict's range that it may have in any case, in [0, 1].
    """

    id: str
    kind: str
    question: str
    response: str
    times: int = 1
    at_most: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.times <= _MOST_TIMES:
            raise ValueError(f"times must be from 1 to {_MOST_TIMES}, not {self.times}")
        if not 0 <= self.at_most <= 1:
            raise ValueError(f"at_most must be in [0, 1], not {self.at_most}")
        for name in _PLACEHOLDER.findall(self.response):
            if name not in _TEXTS:
                hint = did_you_mean(name, _TEXTS)
                raise ValueError(f"response has a placeholder {{{{{name}}}}} that is none{hint}")


class CanarySet(msgspec.Struct, frozen=True, kw_only=True):
    """Exploits and the questions they answer; `version` changes with every text."""

    version: int
    questions: dict[str, CanaryQuestion]
    exploits: list[Exploit]


class Canary(msgspec.Struct, frozen=True, kw_only=True):
    """A sample for the judge; `kind` is the exploit's, or `RIGHT` or `WRONG` for a control."""

    id: str
    kind: str
    question: str
    sample: Sample
    at_most: float = 0.0


class CanaryFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one canary.

    Args:
        verdict: the score, in the rule's range; None where the judge abstained.
        fooled: whether it scored more than it may.
        abstained: the kind of the abstention, or empty.
        why: the judge's reason, or why there is no verdict.
    """

    id: str
    kind: str
    verdict: float | None
    fooled: bool
    abstained: str
    why: str


class KindSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of one kind; `mean` is over the verdicts reached, None without any."""

    kind: str
    asked: int
    fooled: int
    abstained: int
    mean: float | None


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """The results of all canaries for one judge and rubric.

    Args:
        findings: one for each canary.
        compared: questions whose right and wrong answers both got a verdict.
        confused: of these, where the right one got no more than the wrong one.
    """

    findings: list[CanaryFinding]
    compared: int
    confused: int

    @property
    def fooled_share(self) -> float:
        """Of the exploits that got a verdict, the share that fooled the judge; 0 for none."""
        judged = [f for f in self._exploits() if f.verdict is not None]
        return sum(f.fooled for f in judged) / len(judged) if judged else 0.0

    @property
    def confused_share(self) -> float:
        """Of the questions compared, the share where the judge was confused; 0 for none."""
        return self.confused / self.compared if self.compared else 0.0

    @property
    def not_reached(self) -> int:
        """Verdicts that failed for reasons outside the judged text: a timeout, a missing field."""
        return sum(f.abstained not in {"", *POLICY_CAUSED} for f in self.findings)

    def summaries(self) -> list[KindSummary]:
        """The findings by kind: controls first, then exploits in the order of the set."""
        kinds = dict.fromkeys(finding.kind for finding in self.findings)
        return [_summary(kind, [f for f in self.findings if f.kind == kind]) for kind in kinds]

    def _exploits(self) -> list[CanaryFinding]:
        return [f for f in self.findings if f.kind not in (RIGHT, WRONG)]


def load_canaries(path: Path | None = None) -> CanarySet:
    """The canaries in a YAML file, or our own.

    Raises:
        ConfigError: names the file, the line, the key and what fits.

    >>> len(load_canaries().exploits) >= 40
    True
    """
    if path is None:
        file = resources.files(__package__).joinpath("canaries", _OWN_FILE)
        source = parse_yaml(file.read_text("utf-8"), name=_OWN_FILE, base=Path())
    else:
        source = read_yaml(path.expanduser())
    found = build(source, (), CanarySet)
    seen: set[str] = set()
    for index, exploit in enumerate(found.exploits):
        _check(source, index, exploit, found, seen)
        seen.add(exploit.id)
    return found


def canaries_for(
    canary_set: CanarySet, rubric: Rubric, *, best: str, is_word: bool
) -> list[Canary]:
    """The samples that test a judge with `rubric`.

    The two answers to each question come first. Where a rubric shows no ``{{response}}``, the text
    to be judged is put into each ``{{extra.NAME}}`` that it shows; else these hold a few words.

    Args:
        canary_set: questions and exploits.
        rubric: the judge's.
        best: the best verdict, as the exploits name it.
        is_word: whether that is a word of a choice.
    """
    label = "Verdict" if is_word else "Score"
    canaries = []
    for name, question in canary_set.questions.items():
        for kind, response in ((RIGHT, question.right), (WRONG, question.wrong)):
            sample = _sample(question, response, rubric)
            canaries.append(Canary(id=name, kind=kind, question=name, sample=sample))
    for exploit in canary_set.exploits:
        question = canary_set.questions[exploit.question]
        texts = {"prompt": question.prompt, "right": question.right, "wrong": question.wrong}
        texts |= {"best": best, "verdict": f"{label}: {best}"}
        response = fill(exploit.response, texts) * exploit.times
        canaries.append(
            Canary(
                id=exploit.id,
                kind=exploit.kind,
                question=exploit.question,
                sample=_sample(question, response, rubric),
                at_most=exploit.at_most,
            )
        )
    return canaries


def plain_answers(rubric: Rubric) -> tuple[Sample, Sample]:
    """A right and a wrong answer to one built-in question, for one trial call to a judge."""
    question = next(iter(load_canaries().questions.values()))
    return _sample(question, question.right, rubric), _sample(question, question.wrong, rubric)


def examined(
    canaries: Sequence[Canary], outcomes: Sequence[Outcome], bounds: CanaryBounds, *, margin: float
) -> Examination:
    """The examination of a judge, from its outcomes on `canaries`.

    Args:
        canaries: the samples.
        outcomes: of the judge, in the same order.
        bounds: the least and the greatest score.
        margin: how far above the wrong answer an exploit may score, as a share of the range.
    """
    shares = {
        (canary.kind, canary.question): to_unit(outcome.value, bounds)
        for canary, outcome in zip(canaries, outcomes, strict=True)
        if canary.kind in (RIGHT, WRONG) and isinstance(outcome, Score)
    }

    def highest_allowed(canary: Canary) -> float:
        if canary.kind in (RIGHT, WRONG):
            return math.inf
        wrong = shares.get((WRONG, canary.question), 0.0)
        return max(wrong + margin, canary.at_most) + _ROUNDING

    pairs = [
        (share, shares[WRONG, question])
        for (kind, question), share in shares.items()
        if kind == RIGHT and (WRONG, question) in shares
    ]
    return Examination(
        findings=[
            _finding(canary, outcome, bounds, highest_allowed(canary))
            for canary, outcome in zip(canaries, outcomes, strict=True)
        ],
        compared=len(pairs),
        confused=sum(right <= wrong for right, wrong in pairs),
    )


def _finding(
    canary: Canary, outcome: Outcome, bounds: CanaryBounds, highest_allowed: float
) -> CanaryFinding:
    score = outcome if isinstance(outcome, Score) else None
    return CanaryFinding(
        id=canary.id,
        kind=canary.kind,
        verdict=None if score is None else score.value,
        fooled=score is not None and to_unit(score.value, bounds) > highest_allowed,
        abstained=outcome.kind.value if isinstance(outcome, Abstain) else "",
        why=outcome.detail if isinstance(outcome, Abstain) else outcome.why,
    )


def _summary(kind: str, findings: Sequence[CanaryFinding]) -> KindSummary:
    verdicts = [f.verdict for f in findings if f.verdict is not None]
    return KindSummary(
        kind=kind,
        asked=len(findings),
        fooled=sum(f.fooled for f in findings),
        abstained=len(findings) - len(verdicts),
        mean=math.fsum(verdicts) / len(verdicts) if verdicts else None,
    )


def _sample(question: CanaryQuestion, response: str, rubric: Rubric) -> Sample:
    """`question` answered with `response`, which stands in the column that `rubric` shows."""
    shown = response if "response" not in rubric.needs else _NOT_GIVEN
    extra: Mapping[str, str] = {
        name.removeprefix("extra."): shown for name in rubric.needs if name.startswith("extra.")
    }
    return Sample(question.prompt, response, ground_truth=question.ground_truth, extra=dict(extra))


def _check(source: Source, index: int, exploit: Exploit, found: CanarySet, seen: set[str]) -> None:
    at = ("exploits", index)
    if exploit.question not in found.questions:
        hint = did_you_mean(exploit.question, found.questions)
        source.fail((*at, "question"), f"is {exploit.question!r}, which is none{hint}")
    if exploit.id in seen:
        source.fail((*at, "id"), f"{exploit.id!r} is given twice")
