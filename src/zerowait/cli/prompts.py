"""What a judge would read: its requests as they leave, but sent to nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from zerowait.cli.asking import example_samples
from zerowait.cli.judges import alone, judge_names
from zerowait.client import Reply, Request
from zerowait.config import RewardConfig
from zerowait.engine import Engine
from zerowait.errors import DataError
from zerowait.types import Abstain, Sample, content_text


class _Shown:
    """A transport that keeps each request, and turns it away."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []

    async def send(self, request: Request, *, timeout_s: float) -> Reply:
        del timeout_s
        self.bodies.append(msgspec.json.decode(request.body))
        return Reply(400, {}, b"shown instead of sent")

    async def aclose(self) -> None:
        return


def show_prompts(config: RewardConfig, samples: Sequence[Sample] | None) -> None:
    """Print what each judge would read about `samples`; about an example of ours for None."""
    for name in judge_names(config, None):
        bodies, why = asyncio.run(_asked(config, name, samples))
        if not bodies:
            print(f"judge {name} would be asked nothing: {why}")
        for number, body in enumerate(bodies, start=1):
            of = f", request {number} of {len(bodies)}" if len(bodies) > 1 else ""
            for role, text in _parts(body):
                print(f"===== judge {name}{of}: {role} =====\n{text}\n")


async def _asked(
    config: RewardConfig, name: str, samples: Sequence[Sample] | None
) -> tuple[list[Any], str]:
    """The bodies of the requests that one judge would be sent; why not, if there are none."""
    only, shown = alone(config, name), _Shown()
    judge = only.judges[name]
    endpoint = msgspec.structs.replace(judge.endpoints[0], api_key_env=None)  # nobody is asked
    only = msgspec.structs.replace(
        only, judges={name: msgspec.structs.replace(judge, endpoints=[endpoint])}
    )
    async with Engine(only, transport=shown) as engine:
        if samples is None:
            plan = engine.plan.judges
            samples = example_samples(plan.procedures[name], plan.rubrics[name])
        try:
            rewards = await engine.score_all(samples)
        except DataError as error:  # the row has no siblings that it could be compared with
            return shown.bodies, str(error)
    failed = next(o for o in rewards[0].components.values())
    return shown.bodies, failed.detail if isinstance(failed, Abstain) else "it is skipped"


def _parts(body: dict[str, Any]) -> list[tuple[str, str]]:
    """A request's messages, by role; the whole of it where it has none."""
    messages = body.get("messages") or body.get("input")
    if not isinstance(messages, list):
        return [("request", msgspec.json.format(msgspec.json.encode(body)).decode())]
    told = [("system", str(body["instructions"]))] if "instructions" in body else []
    return told + [(str(each["role"]), content_text(each["content"])) for each in messages]
