"""Asking each endpoint of each judge one question, as ``zerowait doctor config --ask`` does."""

from __future__ import annotations

import asyncio

import msgspec

from zerowait.cli.judges import COMPONENT, alone
from zerowait.cli.tables import show
from zerowait.config import RewardConfig
from zerowait.config.urls import shown_url
from zerowait.engine import Engine
from zerowait.events import Event, JudgementSettled
from zerowait.judge import Procedure, Rubric
from zerowait.judge.canary import plain_answers
from zerowait.types import Abstain, Outcome, Sample, Score


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What one endpoint of one judge answered; a call for each vote, or for each criterion."""

    judge: str
    endpoint: str
    outcome: Outcome
    calls: list[JudgementSettled]
    priced: bool


def ask_judges(config: RewardConfig) -> list[Asked]:
    """What each endpoint of each judge says to one question, past gates and cache."""
    return asyncio.run(_all(config))


def show_answers(answers: list[Asked]) -> None:
    """Print a table of the answers, and why there are none below it."""
    header = ("judge", "endpoint", "verdict", "latency s", "model served", "tokens", "cost")
    show([header, *(_row(answer) for answer in answers)])
    for answer in answers:
        if isinstance(answer.outcome, Abstain):
            outcome = answer.outcome
            print(f"{answer.judge} at {answer.endpoint}: {outcome.kind.value}: {outcome.detail}")


async def _all(config: RewardConfig) -> list[Asked]:
    places = [
        (name, index)
        for name, judge in config.judges.items()
        for index in range(len(judge.endpoints))
    ]
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(_one(config, name, index)) for name, index in places]
    return [task.result() for task in asked]


async def _one(config: RewardConfig, name: str, index: int) -> Asked:
    only = alone(config, name, endpoint=index)
    judge = only.judges[name]
    events: list[Event] = []
    async with Engine(only, listener=events.append) as engine:
        plan = engine.plan.judges
        samples = example_samples(plan.procedures[name], plan.rubrics[name])
        reward = (await engine.score_all(samples))[0]
    settled = [event for event in events if isinstance(event, JudgementSettled)]
    return Asked(
        judge=name,
        endpoint=shown_url(judge.endpoints[0].base_url),
        outcome=reward.components[COMPONENT],
        calls=settled,
        priced=judge.endpoints[0].model in only.prices,
    )


def example_samples(procedure: Procedure, rubric: Rubric) -> list[Sample]:
    """What a judge that follows `procedure` can be asked: a sample, or two that it compares."""
    right, wrong = plain_answers(rubric)
    comparison, monitor = procedure.comparison, procedure.monitor
    replace = msgspec.structs.replace
    if comparison is not None and comparison.against == "group":
        return [replace(sample, group="doctor") for sample in (right, wrong)]
    if comparison is not None:
        extra = {**right.extra, comparison.reference_key: wrong.response}
        return [replace(right, extra=extra)]
    if monitor is not None:
        tag, text = monitor.within or "think", right.response
        thinking = f"<{tag}>{text}</{tag}>" if monitor.before is None else text + monitor.before
        return [replace(right, response=thinking + text, extra={monitor.truth: True})]
    return [right]


def _row(answer: Asked) -> tuple[str, ...]:
    outcome, calls = answer.outcome, answer.calls
    verdict = "-"
    if isinstance(outcome, Score):
        verdict = str(outcome.detail.get("verdict", f"{outcome.value:g}"))
    if not calls:
        return (answer.judge, answer.endpoint, verdict, "-", "-", "-", "-")
    prompt_tokens = sum(call.prompt_tokens for call in calls)
    completion_tokens = sum(call.completion_tokens for call in calls)
    answered = [call.latency_s for call in calls if call.attempts]
    return (
        answer.judge,
        answer.endpoint,
        verdict,
        f"{max(answered):.2f}" if answered else "-",
        ", ".join(sorted({call.model for call in calls if call.model})) or "-",
        f"{prompt_tokens} + {completion_tokens}",
        f"${sum(call.cost_usd for call in calls):.6f}" if answer.priced else "no price",
    )
