"""The procedure of a judge: which requests one judgement sends, and how their answers are read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from zerowait.completion import Completion
from zerowait.config.group_verdict import Comparison
from zerowait.config.judgement import Monitor, Votes
from zerowait.config.schema import Judge
from zerowait.errors import ConfigError
from zerowait.judge.comparing.lineup import check_rubric
from zerowait.judge.monitor import MEASURES, monitor_bounds
from zerowait.judge.parsing.criteria import CriteriaForm
from zerowait.judge.parsing.form import SingleVerdict, VerdictForm
from zerowait.judge.parsing.schema import SchemaForm
from zerowait.judge.pooling import measure
from zerowait.judge.reply import read_completion
from zerowait.judge.request import CUT_CHARS, check_judge
from zerowait.judge.reward_model import CONVERSATION_ALONE, RewardForm
from zerowait.judge.rubric import Criterion, Rubric
from zerowait.types import Outcome


class JudgeQuestion(msgspec.Struct, frozen=True):
    """One request of a judgement, and how its answer is read.

    Args:
        rubric: the prompt.
        form: of the answer.
        read: the verdict in a decoded reply, by `form`.
    """

    rubric: Rubric
    form: VerdictForm
    read: Callable[[Completion], Outcome]


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
    """

    questions: tuple[JudgeQuestion, ...]
    comparison: Comparison | None = None
    criteria: tuple[Criterion, ...] = ()
    apart: bool = False
    votes: Votes | None = None
    monitor: Monitor | None = None
    bounds: tuple[float, float] | None = None
    measures: tuple[str, ...] = ()

    @property
    def calls(self) -> int:
        """How many calls a judgement makes without cache hits and retries.

        0 where the responses of a group are compared: it depends on how many there are.
        """
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
    _check_criteria(judge, rubric)
    _check_votes(judge, rubric)
    _check_monitor(judge, rubric)
    questions = _questions(judge, rubric, base)
    measures = [criterion.name for criterion in rubric.criteria]
    if questions[0].rubric.shows_messages:
        measures.append(CUT_CHARS)
    bounds = questions[0].form.bounds
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


def _question(rubric: Rubric, form: VerdictForm) -> JudgeQuestion:
    return JudgeQuestion(rubric, form, partial(read_completion, read=form.read))


def _questions(judge: Judge, rubric: Rubric, base: Path) -> tuple[JudgeQuestion, ...]:
    rule = judge.verdict
    if rule.reward is not None:
        return (_question(CONVERSATION_ALONE, RewardForm(rule)),)
    if rule.schema is not None:
        form = SchemaForm(rule, base=base)
        if rubric.reason_first:
            form.check_reason()
        return (_question(rubric, form),)
    if not rubric.criteria:
        return (_question(rubric, SingleVerdict(rule)),)
    if judge.ask == "apart":
        return tuple(
            _question(rubric.with_criteria([c]), SingleVerdict(rule)) for c in rubric.criteria
        )
    return (_question(rubric.with_criteria(rubric.criteria), CriteriaForm(rule, rubric.criteria)),)


def _check_criteria(judge: Judge, rubric: Rubric) -> None:
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
    if judge.verdict.number is not None:
        raise ConfigError(f"{key}: majority needs verdicts that can be equal, not decimal numbers")
    if rubric.criteria:
        raise ConfigError(f"{key}: majority needs one verdict, not a mean of criteria")


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
