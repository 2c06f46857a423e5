"""The procedure of a judge: which requests one judgement sends, and how their answers are read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from zerowait.completion import Completion
from zerowait.config.group_verdict import Comparison
from zerowait.config.judgement import Monitor, Votes
from zerowait.config.row_rubric import Batches
from zerowait.config.schema import Judge
from zerowait.errors import ConfigError
from zerowait.judge.comparing.lineup import check_rubric
from zerowait.judge.monitor import MEASURES, monitor_bounds
from zerowait.judge.parsing.criteria import CriteriaForm
from zerowait.judge.parsing.form import SingleVerdict, VerdictForm
from zerowait.judge.parsing.probability import OUTSIDE, ProbabilityForm
from zerowait.judge.parsing.row_criteria import MET, measure_of
from zerowait.judge.parsing.schema import SchemaForm
from zerowait.judge.parsing.structured import StructuredCriteria, StructuredVerdict
from zerowait.judge.pooling import measure
from zerowait.judge.reply import read_completion
from zerowait.judge.request import CUT_CHARS, check_judge, own_constraint
from zerowait.judge.reward_model import CONVERSATION_ALONE, RewardForm
from zerowait.judge.rubric import Criterion, Rubric
from zerowait.types import Outcome


class JudgeQuestion(msgspec.Struct, frozen=True):
    """One request of a judgement, and how its answer is read.

    Args:
        rubric: the prompt.
        form: of the answer.
        read: the verdict in a decoded reply, by `form`.
        fallback: the same question by the prompt alone, for an endpoint that refuses to enforce
            the form; None where that is an error, or where the prompt alone says it.
    """

    rubric: Rubric
    form: VerdictForm
    read: Callable[[Completion], Outcome]
    fallback: JudgeQuestion | None = None


class Procedure(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one judgement.

    Args:
        questions: one; or one for each criterion that is asked apart; empty for a comparison.
        comparison: how responses are compared; None for a verdict on each response.
        criteria: of the rubric; empty for one verdict on the whole.
        apart: whether each criterion is a call of its own.
        votes: how often all questions are asked.
        monitor: the rewards of a verdict that is a prediction.
        bounds: the least and the greatest score; None where the form does not declare them.
        measures: names of the numbers in a score's ``detail["measured"]``.
        of_row: whether the questions are about the row's own criteria.
        row_calls: how many calls these are; 0 where it depends on how many criteria there are.
    """

    questions: tuple[JudgeQuestion, ...]
    comparison: Comparison | None = None
    criteria: tuple[Criterion, ...] = ()
    apart: bool = False
    votes: Votes | None = None
    monitor: Monitor | None = None
    bounds: tuple[float, float] | None = None
    measures: tuple[str, ...] = ()
    of_row: bool = False
    row_calls: int = 0

    @property
    def calls(self) -> int:
        """How many calls a judgement makes without cache hits and retries.

        0 where it depends on how many there are: responses in a group to compare, or criteria of a
        row that are not asked about together.
        """
        if self.of_row:
            return self.row_calls * (1 if self.votes is None else self.votes.n)
        if self.comparison is not None:
            return 2 if self.comparison.against == "reference" else 0
        return len(self.questions) * (1 if self.votes is None else self.votes.n)


def procedure_for(judge: Judge, rubric: Rubric, *, base: Path) -> Procedure:
    """The procedure of `judge` by `rubric`.

    Args:
        judge: its settings.
        rubric: its prompt.
        base: the folder that a schema's relative path starts from.

    Raises:
        ConfigError: two settings do not go together; the message names both.
    """
    check_judge(judge)
    check_rubric(rubric, judge.verdict)
    _check_images(judge, rubric)
    if judge.verdict.comparison is not None:
        return _comparing(judge, rubric, judge.verdict.comparison)
    if judge.verdict.rubric is not None:
        return _of_row(judge, rubric)
    _check_criteria(judge, rubric)
    _check_votes(judge, rubric)
    _check_monitor(judge, rubric)
    if judge.verdict.by_tokens:
        _check_by_tokens(judge, rubric)
    questions = _questions(judge, rubric, base)
    measures = [criterion.name for criterion in rubric.criteria]
    if questions[0].rubric.shows_messages:
        measures.append(CUT_CHARS)
    bounds = questions[0].form.bounds
    if judge.verdict.by_tokens and not rubric.criteria:
        measures.append(OUTSIDE)
    if judge.votes is not None:
        measures.append(measure(judge.votes.by))
    if judge.monitor is not None:
        measures.extend(MEASURES)
        bounds = monitor_bounds(judge.monitor)
    return Procedure(
        questions=questions,
        criteria=rubric.criteria,
        apart=judge.ask == "apart",
        votes=judge.votes,
        monitor=judge.monitor,
        bounds=bounds,
        measures=tuple(measures),
    )


def _of_row(judge: Judge, rubric: Rubric) -> Procedure:
    """The procedure by the row's own criteria; what is asked is known when the row comes."""
    rule, is_whole = judge.verdict, judge.verdict.aggregation == "implicit"
    if not rubric.of_row or not rubric.shares_a_prefix:
        raise ConfigError(
            f"the rubric {rubric.name!r} does not show the row's own criteria: say 'criteria: row' "
            "in its settings, and put {{criteria}} behind every value of the sample"
        )
    if judge.monitor is not None:
        raise ConfigError("monitor makes one prediction, and the verdict is by the row's rubric")
    if is_whole and judge.ask is not None:
        raise ConfigError("ask is for verdicts on each criterion; aggregate: implicit asks for one")
    _check_votes(judge, rubric)
    measures = [] if is_whole else [MET, *map(measure_of, rule.tags or ())]
    if judge.votes is not None:
        measures.append(measure(judge.votes.by))
    return Procedure(
        questions=(),
        votes=judge.votes,
        bounds=None if rule.clip is False else (0.0, 1.0),
        measures=tuple(measures),
        of_row=True,
        row_calls=int(is_whole or judge.ask in (None, "together")),
    )


def _comparing(judge: Judge, rubric: Rubric, comparison: Comparison) -> Procedure:
    for name in ("ask", "votes", "monitor"):
        if getattr(judge, name) is not None:
            raise ConfigError(f"{name} is for verdicts on one response, and this one compares")
    if rubric.criteria:
        raise ConfigError(f"the verdict compares responses, and {rubric.name!r} has criteria")
    return Procedure(
        questions=(),
        comparison=comparison,
        bounds=(0.0, 1.0),
        measures=("comparisons", "inconsistent"),
    )


def question_by(
    judge: Judge,
    rubric: Rubric,
    *,
    enforced: VerdictForm,
    prompted: VerdictForm,
) -> JudgeQuestion:
    """The question in the form that `judge` is configured for.

    Args:
        judge: says whether the endpoint is asked to enforce the form; one that constrains its
            answers by parameters of its own is not.
        rubric: the prompt.
        enforced: the form that the endpoint is asked to enforce.
        prompted: the same by the prompt alone.
    """
    plain = _question(rubric, prompted)
    wanted = judge.verdict.enforced
    if wanted == "off" or own_constraint(judge) is not None:
        return plain
    fallback = plain if wanted == "auto" else None
    return msgspec.structs.replace(_question(rubric, enforced), fallback=fallback)


def _question(rubric: Rubric, form: VerdictForm) -> JudgeQuestion:
    return JudgeQuestion(rubric, form, partial(read_completion, read=form.read))


def _single(judge: Judge, rubric: Rubric) -> JudgeQuestion:
    """The question after one number or word."""
    rule = judge.verdict
    if rule.by_tokens:
        form = ProbabilityForm(rule, reason_first=rubric.reason_first)
        return JudgeQuestion(rubric, form, form.read_reply)
    enforced = StructuredVerdict(rule, reason_first=rubric.reason_first)
    return question_by(judge, rubric, enforced=enforced, prompted=SingleVerdict(rule))


def _questions(judge: Judge, rubric: Rubric, base: Path) -> tuple[JudgeQuestion, ...]:
    rule = judge.verdict
    if rule.reward is not None:
        return (_question(CONVERSATION_ALONE, RewardForm(rule)),)
    if rule.schema is not None:
        form = SchemaForm(rule, base=base)
        if rubric.reason_first and rule.enforced != "off":
            form.check_reason()
        prompted = SchemaForm(rule, base=base, structured=False)
        return (question_by(judge, rubric, enforced=form, prompted=prompted),)
    if not rubric.criteria:
        return (_single(judge, rubric),)
    if judge.ask == "apart":
        return tuple(_single(judge, rubric.with_criteria([c])) for c in rubric.criteria)
    lines = CriteriaForm(rule, rubric.criteria)
    listed = rubric.with_criteria(rubric.criteria)
    whole = StructuredCriteria(lines, rubric.reason_first)
    return (question_by(judge, listed, enforced=whole, prompted=lines),)


def _check_criteria(judge: Judge, rubric: Rubric) -> None:
    if rubric.of_row:
        raise ConfigError(
            f"the rubric {rubric.name!r} shows the row's own criteria: give "
            "verdict: {rubric: extra.NAME}, with the column that has them"
        )
    if isinstance(judge.ask, Batches):
        raise ConfigError("ask: {batch: k} is for the row's own criteria, by verdict.rubric")
    if judge.ask is not None and not rubric.criteria:
        raise ConfigError(f"ask: {judge.ask} is for criteria, and {rubric.name!r} has none")
    if rubric.criteria and judge.verdict.schema is not None:
        raise ConfigError(
            f"the rubric {rubric.name!r} has criteria, and so has a schema verdict: give "
            "'integer', 'number' or 'choice', or weigh several places of the schema in 'value'"
        )
    if judge.ask == "apart" and not rubric.shares_a_prefix:
        raise ConfigError(
            f"ask: apart needs {{{{criteria}}}} in the user section of {rubric.name!r}, behind "
            "every value of the sample: then all calls begin alike, and the provider reads the "
            "sample once"
        )


def _check_images(judge: Judge, rubric: Rubric) -> None:
    if judge.images and not rubric.shows_pictures:
        raise ConfigError(
            f"images: true, and the rubric {rubric.name!r} shows no message that may hold a "
            "picture: it needs {{prompt}}, {{conversation}} or {{turns}}"
        )


def _check_votes(judge: Judge, rubric: Rubric) -> None:
    if judge.votes is None:
        return
    temperature = judge.parameters.get("temperature", judge.temperature)
    if temperature == 0 and judge.parameters.get("seed") is None:
        raise ConfigError(
            f"votes: at temperature 0 all {judge.votes.n} votes are the same answer, paid "
            f"{judge.votes.n} times: set the judge's temperature, or a seed in its parameters"
        )
    if judge.votes.by == "majority":
        check_majority(judge, rubric, "votes.by")


def check_majority(judge: Judge, rubric: Rubric, key: str) -> None:
    """Raise a ConfigError where verdicts of `judge` hardly ever coincide."""
    if judge.verdict.number is not None or judge.verdict.by_tokens:
        raise ConfigError(f"{key}: majority needs verdicts that can be equal, not decimal numbers")
    if rubric.criteria or rubric.of_row:
        raise ConfigError(f"{key}: majority needs one verdict, not a mean of criteria")


def _check_by_tokens(judge: Judge, rubric: Rubric) -> None:
    by = f"by: {judge.verdict.by}"
    temperature = judge.parameters.get("temperature", judge.temperature)
    if temperature not in (0, 1):
        raise ConfigError(
            f"{by} needs temperature 0, or 1 for votes: at {temperature} some servers scale the "
            "probabilities that they send"
        )
    if judge.ask != "apart" and rubric.criteria:
        raise ConfigError(f"{by} reads one verdict per reply: {rubric.name!r} needs ask: apart")
    if judge.monitor is not None:
        raise ConfigError(f"monitor predicts yes or no, and {by} gives a number between")
    if judge.votes is not None and not rubric.reason_first:
        raise ConfigError(
            f"votes: without reasons before the verdict, {by} reads the same probabilities from "
            "each vote; let the rubric ask for reasons, or leave the votes out"
        )
    if "logprobs" in judge.parameters:
        raise ConfigError(f"parameters cannot set 'logprobs', which {by} sends itself")


def _check_monitor(judge: Judge, rubric: Rubric) -> None:
    if judge.monitor is None:
        return
    if len(judge.verdict.choice or ()) != 2:
        raise ConfigError(
            "monitor predicts yes or no: give verdict: {choice: [yes, no]}, the first for yes"
        )
    if rubric.criteria:
        raise ConfigError(f"monitor makes one prediction, and {rubric.name!r} has criteria")
    if judge.votes is not None and judge.votes.by != "majority":
        raise ConfigError(f"monitor needs votes.by: majority, not {judge.votes.by}")
    leaks = [name for name in rubric.needs if name != "response"]
    if leaks:
        raise ConfigError(
            f"monitor reads the reasoning alone, as {{{{response}}}}, and {rubric.name!r} also "
            f"shows {', '.join(f'{{{{{name}}}}}' for name in leaks)}"
        )
