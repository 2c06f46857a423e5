"""One test question to every endpoint of every judge: ``zerowait doctor config --ask``."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from zerowait.cli.judges import COMPONENT, single_judge_config
from zerowait.cli.tables import show
from zerowait.config import RewardConfig, VerdictRule
from zerowait.config.urls import shown_url
from zerowait.engine import Engine
from zerowait.events import Event, FormRefused, JudgementSettled
from zerowait.judge import Procedure, Rubric, own_constraint
from zerowait.judge.canary import plain_answers
from zerowait.types import Abstain, Outcome, Sample, Score, prompt_text

_PICTURE: Final = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAAS0lEQVR42u3PMQ0AAAwDoEqv9ErYvQQckD4XAQEB"
    "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAYHLAB8+AWnmfUycAAAAAElFTkSuQmCC"
)
"""A grey square of 64 by 64 pixels."""


class EndpointAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of one endpoint of one judge on the test question.

    Args:
        judge: the judge's name.
        endpoint: the URL, without credentials.
        outcome: the verdict, or why there is none.
        calls: one for each vote, or for each criterion.
        priced: whether the configuration has a price for the model.
        form: how the verdict was asked for: ``json_schema``, which the endpoint enforces, or
            ``prompt``; empty for a reward model.
        refusal: the endpoint's words, where it refuses to enforce a form.
    """

    judge: str
    endpoint: str
    outcome: Outcome
    calls: list[JudgementSettled]
    priced: bool
    form: str = ""
    refusal: str = ""

    def as_json(self) -> dict[str, Any]:
        """The answer for ``--json``; None for what is not known."""
        outcome, calls = self.outcome, self.calls
        latencies = [call.latency_s for call in calls if call.latency_s]
        return {
            "judge": self.judge,
            "endpoint": self.endpoint,
            "verdict": outcome.detail.get("verdict", outcome.value)
            if isinstance(outcome, Score)
            else None,
            "abstained": outcome.kind.value if isinstance(outcome, Abstain) else None,
            "why": outcome.detail if isinstance(outcome, Abstain) else None,
            "form": self.form,
            "refusal": self.refusal or None,
            "latency_s": max(latencies) if latencies else None,
            "models": sorted({call.model for call in calls if call.model}),
            "prompt_tokens": sum(call.prompt_tokens for call in calls),
            "completion_tokens": sum(call.completion_tokens for call in calls),
            "cost_usd": sum(call.cost_usd for call in calls) if self.priced else None,
        }


def ask_endpoints(config: RewardConfig) -> list[EndpointAnswer]:
    """The verdict of each endpoint of each judge on one question, without gates and cache."""
    return asyncio.run(_ask_all(config))


def show_answers(answers: list[EndpointAnswer]) -> None:
    """Print a table of the verdicts, and below it why some are missing."""
    header = ("judge", "endpoint", "verdict", "form", "latency s", "model served", "tokens", "cost")
    show([header, *(_table_row(answer) for answer in answers)])
    for answer in answers:
        if isinstance(answer.outcome, Abstain):
            outcome = answer.outcome
            print(f"{answer.judge} at {answer.endpoint}: {outcome.kind.value}: {outcome.detail}")
        elif answer.refusal:
            print(
                f"{answer.judge} at {answer.endpoint}: asked by the prompt alone, because the "
                f"endpoint refuses structured output: {answer.refusal}"
            )


async def _ask_all(config: RewardConfig) -> list[EndpointAnswer]:
    async with asyncio.TaskGroup() as tasks:
        asked = [
            tasks.create_task(_ask(config, name, index))
            for name, judge in config.judges.items()
            for index in range(len(judge.endpoints))
        ]
    return [task.result() for task in asked]


async def _ask(config: RewardConfig, name: str, index: int) -> EndpointAnswer:
    only = single_judge_config(config, name, endpoint=index)
    traffic = msgspec.structs.replace(only.traffic, give_up_after="off")  # every answer is shown
    only = msgspec.structs.replace(only, traffic=traffic)
    judge = only.judges[name]
    events: list[Event] = []
    async with Engine(only, listener=events.append) as engine:
        plan = engine.plan.judges
        samples = example_samples(plan.procedures[name], plan.rubrics[name], judge.verdict)
        if judge.images:
            samples = [_with_picture(sample) for sample in samples]
        reward = (await engine.score_all(samples))[0]
    settled = [event for event in events if isinstance(event, JudgementSettled)]
    refusals = [event for event in events if isinstance(event, FormRefused)]
    return EndpointAnswer(
        judge=name,
        endpoint=shown_url(judge.endpoints[0].base_url),
        outcome=reward.components[COMPONENT],
        calls=settled,
        priced=judge.endpoints[0].model in only.prices,
        form=_form(only, refused=bool(refusals)),
        refusal=refusals[0].why if refusals else "",
    )


def _form(config: RewardConfig, *, refused: bool) -> str:
    """How the only judge of `config` was asked for its verdict."""
    judge = next(iter(config.judges.values()))
    if judge.verdict.reward is not None:
        return ""
    compares = judge.verdict.comparison is not None
    is_plain = compares or judge.verdict.enforced == "off" or own_constraint(judge) is not None
    return "prompt" if is_plain or refused else "json_schema"


def example_samples(procedure: Procedure, rubric: Rubric, rule: VerdictRule) -> list[Sample]:
    """The test question: one sample, or two siblings for a judge that compares responses.

    Args:
        procedure: of the judge; decides what the sample needs beside prompt and response.
        rubric: of the judge; decides the language of the question.
        rule: of its verdict; names the column of a row's own criteria.
    """
    right, wrong = plain_answers(rubric)
    comparison, monitor = procedure.comparison, procedure.monitor
    replace = msgspec.structs.replace
    if comparison is not None and comparison.against == "group":
        return [replace(sample, group="doctor") for sample in (right, wrong)]
    if comparison is not None:
        extra = {**right.extra, comparison.reference_key: wrong.response}
        return [replace(right, extra=extra)]
    if rule.rubric is not None:
        criteria = ["Answers the question.", "Is about something else than the question."]
        return [replace(right, extra={**right.extra, rule.rubric_column: criteria})]
    if monitor is not None:
        tag, text = monitor.within or "think", right.response
        thinking = f"<{tag}>{text}</{tag}>" if monitor.before is None else text + monitor.before
        return [replace(right, response=thinking + text, extra={monitor.truth: True})]
    return [right]


def _with_picture(sample: Sample) -> Sample:
    """The sample with a picture behind its prompt, which a model that sees none refuses."""
    parts = [
        {"type": "text", "text": prompt_text(sample.prompt)},
        {"type": "image_url", "image_url": {"url": _PICTURE}},
    ]
    return msgspec.structs.replace(sample, prompt=[{"role": "user", "content": parts}])


def _table_row(answer: EndpointAnswer) -> tuple[str, ...]:
    found = answer.as_json()
    verdict, latency_s, cost = found["verdict"], found["latency_s"], found["cost_usd"]
    shown = f"{verdict:g}" if isinstance(verdict, float) else str(verdict)
    if not answer.calls:
        return (answer.judge, answer.endpoint, "-" if verdict is None else shown, *"-----")
    return (
        answer.judge,
        answer.endpoint,
        "-" if verdict is None else shown,
        answer.form or "-",
        "-" if latency_s is None else f"{latency_s:.2f}",
        ", ".join(found["models"]) or "-",
        f"{found['prompt_tokens']} + {found['completion_tokens']}",
        "no price" if cost is None else f"${cost:.6f}",
    )
