"""The requests that judges would be sent: ``zerowait doctor config --show-prompt``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from zerowait.cli.endpoint_check import example_samples
from zerowait.cli.judges import judge_names, single_judge_config
from zerowait.client import Reply, Request
from zerowait.config import RewardConfig
from zerowait.engine import Engine
from zerowait.errors import DataError
from zerowait.types import Abstain, Sample, content_text


class JudgePrompts(msgspec.Struct, frozen=True, kw_only=True):
    """The requests that one judge would be sent about some samples.

    Args:
        judge: the judge's name.
        requests: of each request its messages, as (role, text).
        why_none: why there is no request; None where there are some.
    """

    judge: str
    requests: list[list[tuple[str, str]]]
    why_none: str | None


def judge_prompts(config: RewardConfig, samples: Sequence[Sample] | None) -> list[JudgePrompts]:
    """What each judge would be asked about `samples`; None takes a built-in example."""
    return [asyncio.run(_prompts(config, name, samples)) for name in judge_names(config, None)]


def show_prompts(prompts: Sequence[JudgePrompts]) -> None:
    """Print each message of each request under a heading with its judge and role."""
    for each in prompts:
        if each.why_none is not None:
            print(f"judge {each.judge} would be asked nothing: {each.why_none}")
        count = len(each.requests)
        for number, messages in enumerate(each.requests, start=1):
            of = f", request {number} of {count}" if count > 1 else ""
            for role, text in messages:
                print(f"===== judge {each.judge}{of}: {role} =====\n{text}\n")


class _RecordingTransport:
    """A transport that keeps the body of each request and sends nothing."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []

    async def send(self, request: Request, *, timeout_s: float) -> Reply:
        del timeout_s
        self.bodies.append(msgspec.json.decode(request.body))
        return Reply(400, {}, b"shown instead of sent")

    async def aclose(self) -> None:
        return


async def _prompts(
    config: RewardConfig, name: str, samples: Sequence[Sample] | None
) -> JudgePrompts:
    only, transport = single_judge_config(config, name, endpoint=0), _RecordingTransport()
    judge = only.judges[name]
    # Without the name of its key, which need not be set where nothing is sent
    endpoint = msgspec.structs.replace(judge.endpoints[0], api_key_env=None)
    only = msgspec.structs.replace(
        only, judges={name: msgspec.structs.replace(judge, endpoints=[endpoint])}
    )
    async with Engine(only, transport=transport) as engine:
        if samples is None:
            plan = engine.plan.judges
            samples = example_samples(plan.procedures[name], plan.rubrics[name], judge.verdict)
        try:
            rewards = await engine.score_all(samples)
        except DataError as error:  # the row has no siblings that it could be compared with
            why = str(error)
        else:
            outcome = next(iter(rewards[0].components.values()))
            why = outcome.detail if isinstance(outcome, Abstain) else "it is skipped"
    return JudgePrompts(
        judge=name,
        requests=[_messages(body) for body in transport.bodies],
        why_none=None if transport.bodies else why,
    )


def _messages(body: dict[str, Any]) -> list[tuple[str, str]]:
    """A request's messages as (role, text); the whole body where the API has no messages."""
    messages = body.get("messages") or body.get("input")
    if not isinstance(messages, list):
        return [("request", msgspec.json.format(msgspec.json.encode(body)).decode())]
    system = [("system", str(body["instructions"]))] if "instructions" in body else []
    return system + [(str(each["role"]), content_text(each["content"])) for each in messages]
