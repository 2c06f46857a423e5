"""``zerowait doctor judge``: known exploits against a judge and its rubric."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from zerowait.cli.app import SOME_ABSTAINED
from zerowait.cli.doctor import doctor
from zerowait.cli.json_output import JsonOption, print_json
from zerowait.cli.judges import COMPONENT, judge_names, single_judge_config
from zerowait.cli.preflight import check_reward
from zerowait.cli.tables import show
from zerowait.client import worst_case_usd
from zerowait.config import RewardConfig, load_config
from zerowait.engine import Engine, Progress
from zerowait.engine.judging.plan import compile_judges
from zerowait.errors import ConfigError
from zerowait.judge import ChatRequest, Procedure, request_for
from zerowait.judge.canary import (
    RIGHT,
    WRONG,
    Canary,
    CanarySet,
    Examination,
    canaries_for,
    examined,
    load_canaries,
)
from zerowait.types import Outcome, Reward

_FOOLED = 1


class _Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One judge and the canaries that it is asked about.

    Args:
        name: the judge's name.
        config: a configuration of this judge alone.
        rubric: name and version.
        canaries: the questions.
        bounds: lowest and highest verdict.
        at_most_usd: highest cost in dollars, without retries; None where the model has no price.
    """

    name: str
    config: RewardConfig
    rubric: str
    canaries: list[Canary]
    bounds: tuple[float, float]
    at_most_usd: float | None

    @property
    def heading(self) -> str:
        model = self.config.judges[self.name].endpoints[0].model
        cost = "" if self.at_most_usd is None else f", at most ${self.at_most_usd:.4f}"
        questions = f"{len(self.canaries)} questions{cost}"
        return f"{self.name}: model {model}, rubric {self.rubric}, {questions}"


@doctor.command("judge")
def judge(  # noqa: PLR0913, PLR0917 - a command's options are parameters
    file: Annotated[str, typer.Argument(help="reward.yaml, or recipe.yaml#reward.")],
    name: Annotated[
        str | None, typer.Option("--judge", help="Only this one of its judges.")
    ] = None,
    canaries: Annotated[
        Path | None, typer.Option(help="A YAML file of exploits instead of our own.")
    ] = None,
    margin: Annotated[
        float,
        typer.Option(help="Share of the range by which an exploit may be above a wrong answer."),
    ] = 0.2,
    allow: Annotated[
        float, typer.Option(help="Share of exploits that may fool it before the exit code is 1.")
    ] = 0.0,
    as_json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> int:
    """Send known exploits, right and wrong answers to the judges; show which exploits fooled them.

    Exit code 0 when no judge was fooled beyond --allow, 1 when one was or rated wrong answers above
    right ones, 3 when some verdicts are missing, 2 when the input is wrong.
    """
    for option, share in (("--margin", margin), ("--allow", allow)):
        if not 0 <= share <= 1:
            raise ConfigError(f"{option} {share}: must be in [0, 1]")
    config = load_config(file)
    exploits = load_canaries(canaries)
    trials = [_trial(config, each, exploits) for each in judge_names(config, name)]
    found: dict[str, Examination] = {}
    for trial in trials:
        print(trial.heading, file=sys.stderr if as_json else sys.stdout, flush=True)
        outcomes = asyncio.run(_ask(trial, quiet=quiet))
        found[trial.name] = examined(trial.canaries, outcomes, trial.bounds, margin=margin)
        if not as_json:
            _show(found[trial.name])
    if as_json:
        print_json(_as_json(found, exploits.version))
    return _exit_code(list(found.values()), allow)


def _trial(config: RewardConfig, name: str, exploits: CanarySet) -> _Trial:
    only = single_judge_config(config, name)
    check_reward(only)
    plan = compile_judges(only)
    procedure, rubric, bounds = plan.procedures[name], plan.rubrics[name], plan.bounds[name]
    if procedure.monitor is not None:
        config.fail(("judges", name), "is a monitor: its verdict is a prediction, not a mark")
    if procedure.comparison is not None:
        config.fail(("judges", name), "compares responses; canaries need a verdict on one response")
    if procedure.of_row:
        config.fail(
            ("judges", name, "verdict"), "is by each row's own rubric, which the canaries have not"
        )
    if bounds is None:
        config.fail(
            ("judges", name, "verdict"),
            "has a schema without minimum and maximum, so its best verdict is not known",
        )
    words = only.judges[name].verdict.choice
    best = f"{bounds[1]:.15g}" if words is None else words[0]
    canaries = canaries_for(exploits, rubric, best=best, is_word=words is not None)
    return _Trial(
        name=name,
        config=only,
        rubric=f"{rubric.name} {rubric.version}",
        canaries=canaries,
        bounds=bounds,
        at_most_usd=_at_most_usd(only, name, procedure, canaries),
    )


def _at_most_usd(
    config: RewardConfig, name: str, procedure: Procedure, canaries: Sequence[Canary]
) -> float | None:
    """Highest cost of the canaries in dollars, without retries; None without a price."""
    judge_ = config.judges[name]
    price = config.prices.get(judge_.endpoints[0].model)
    if price is None:
        return None
    requests = [
        request_for(canary.sample, judge_, question.rubric, form=question.form)
        for canary in canaries
        for question in procedure.questions
    ]
    bodies = [request.body() for request in requests if isinstance(request, ChatRequest)]
    votes = 1 if procedure.votes is None else procedure.votes.n
    return votes * sum(worst_case_usd(price, body) for body in bodies)


async def _ask(trial: _Trial, *, quiet: bool) -> list[Outcome]:
    samples = [canary.sample for canary in trial.canaries]
    with Progress(len(samples), shown=not quiet, what=trial.name) as bar:

        def tell(_index: int, _reward: Reward) -> None:
            bar.advance()

        async with Engine(trial.config) as engine:
            rewards = await engine.score_all(samples, on_reward=tell)
    return [reward.components[COMPONENT] for reward in rewards]


def _show(found: Examination) -> None:
    failed = [f for f in found.findings if f.abstained]
    abstained = "".join(
        f"abstained: {len(failed)}, the first: {first.abstained}: {first.why}"
        for first in failed[:1]
    )
    if failed and len(failed) == len(found.findings):
        print(f"no verdict at all, so nothing is known about this judge; {abstained}")
        return
    rows = [("what", "asked", "fooled", "abstained", "mean verdict")]
    for kind in found.summaries():
        is_control = kind.kind in (RIGHT, WRONG)
        mean = "-" if kind.mean is None else f"{kind.mean:.2f}"
        fooled = "" if is_control else str(kind.fooled)
        rows.append((kind.kind, str(kind.asked), fooled, str(kind.abstained), mean))
    show(rows)
    print(
        f"fooled by {found.fooled_share:.0%} of the exploits that got a verdict; right answer "
        f"above the wrong one in {found.compared - found.confused} of {found.compared} questions"
    )
    for kind in found.summaries():
        names = [f.id for f in found.findings if f.kind == kind.kind and f.fooled]
        if names:
            print(f"{kind.kind} that fooled it: {', '.join(names)}")
    if failed:
        print(abstained)


def _as_json(found: dict[str, Examination], version: int) -> dict[str, object]:
    return {
        "canaries": version,
        "judges": {
            name: {
                "fooled_share": examination.fooled_share,
                "compared": examination.compared,
                "confused": examination.confused,
                "kinds": examination.summaries(),
                "findings": examination.findings,
            }
            for name, examination in found.items()
        },
    }


def _exit_code(found: Sequence[Examination], allow: float) -> int:
    if any(each.fooled_share > allow or each.confused_share > allow for each in found):
        return _FOOLED
    return SOME_ABSTAINED if any(each.not_reached or not each.compared for each in found) else 0
