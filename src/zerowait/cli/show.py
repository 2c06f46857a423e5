"""``zerowait show``: samples of a run, with what their judges read and said."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Final, Literal

import typer

from zerowait.cli.app import app
from zerowait.cli.json_output import JsonOption, print_json
from zerowait.cli.run_folder import opened_record, run_folder
from zerowait.cli.tables import counted, printable
from zerowait.errors import ConfigError
from zerowait.observe import (
    FoundJudgement,
    FoundSample,
    SampleFilter,
    find_samples,
    outcome_words,
)
from zerowait.types import Abstain, Outcome, Score

_WIDTH: Final = 80
_WIDEST: Final = 120
_LINES: Final = 12
"""So many lines of a text are shown without --full."""
_Line = tuple[str, str]
"""A line of output, and its style on a terminal."""


@app.command("show")
def show_samples(  # noqa: PLR0913, PLR0917 - typer reads options from parameters
    run: Annotated[Path, typer.Argument(help="The run's folder, with its rewards.jsonl.")],
    abstained: Annotated[
        bool, typer.Option("--abstained", help="Where the reward or a component abstained.")
    ] = False,
    worst: Annotated[
        int | None, typer.Option(min=1, help="The N lowest rewards, or values of --component.")
    ] = None,
    best: Annotated[int | None, typer.Option(min=1, help="The N highest.")] = None,
    group: Annotated[str | None, typer.Option(help="Of this prompt group.")] = None,
    step: Annotated[int | None, typer.Option(help="Of this training step.")] = None,
    split: Annotated[str | None, typer.Option(help="train, validation, ...")] = None,
    judge: Annotated[str | None, typer.Option(help="With a judgement of this judge.")] = None,
    component: Annotated[str | None, typer.Option(help="That have this component.")] = None,
    kind: Annotated[
        str | None, typer.Option(help="With an abstention of this kind, such as timeout.")
    ] = None,
    row: Annotated[
        int | None, typer.Option(help="Of this number in the order of recording, from 1.")
    ] = None,
    id_: Annotated[
        str | None, typer.Option("--id", help="Of this id, where the rows have a column id.")
    ] = None,
    grep: Annotated[
        str | None, typer.Option(help="With this text in prompt, response or a judge's reply.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="The most samples to show.")] = 10,
    full: Annotated[bool, typer.Option("--full", help="Show long texts whole.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Show samples of a run: prompt, response, outcomes, and what each judge read and replied."""
    if worst is not None and best is not None:
        raise ConfigError("--best: is given beside --worst; run the command twice")
    folder = run_folder(run)
    by: Literal["row", "worst", "best"] = (
        "worst" if worst is not None else "best" if best is not None else "row"
    )
    wanted = SampleFilter(
        abstained=abstained,
        group=group,
        step=step,
        split=split,
        row=row,
        id=id_,
        judge=judge,
        component=component,
        kind=kind,
        grep=grep,
        by=by,
        limit=worst or best or limit,
    )
    with opened_record(folder) as connection:
        count, samples = find_samples(connection, wanted)
        [judgements] = connection.execute("SELECT count(*) FROM judgements").fetchone()
    if as_json:
        print_json({"run": str(folder), "matching": count, "samples": samples})
        return 0
    lines = _Printer()
    lines.print([(f"{folder}: {counted(count, 'sample')}, {len(samples)} shown", "bold")])
    if not judgements and any(each.components for each in samples):
        lines.print([("the record has no judgements, only the outcomes of components", "dim")])
    for each in samples:
        lines.print(_sample_lines(each, lines.width, whole=full))
    if count > len(samples):
        lines.print([("", ""), (f"{count - len(samples)} more: --limit {count} shows all", "dim")])
    return 0


class _Printer:
    """Prints lines, in colours on a terminal only."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        is_terminal = sys.stdout.isatty()
        self.width = min(self._console.width, _WIDEST) if is_terminal else _WIDTH

    def print(self, lines: Iterator[_Line] | list[_Line]) -> None:
        for line, style in lines:
            self._console.print(line, style=style or None)


def _sample_lines(sample: FoundSample, width: int, *, whole: bool) -> Iterator[_Line]:
    named = {"step": sample.step, "group": sample.group, "id": sample.id, "ticket": sample.ticket}
    where = [f"row {sample.row}", sample.split]
    where += [f"{name} {value}" for name, value in named.items() if value is not None]
    yield "", ""
    yield from _wrapped(", ".join(where), width, "bold cyan")
    if sample.value is not None:
        yield f"reward {sample.value:.6g}", "bold green"
    else:
        yield from _wrapped(f"no reward ({sample.policy}): {sample.why}", width, "bold red")
    yield from _text("prompt", sample.prompt, width, whole=whole)
    yield from _text("response", sample.response, width, whole=whole)
    if sample.ground_truth is not None:
        yield from _text("ground truth", str(sample.ground_truth), width, whole=whole)
    for name, outcome in sample.components.items():
        yield from _wrapped(f"{name}: {_outcome(outcome)}", width, _style(outcome))
    for each in sample.judgements:
        yield from _judgement_lines(each, width, whole=whole)


def _judgement_lines(judgement: FoundJudgement, width: int, *, whole: bool) -> Iterator[_Line]:
    component = judgement.component
    purpose = f" for {component}" if component not in {"", judgement.judge} else ""
    parts = [f"question {judgement.question + 1}" if judgement.question else ""]
    parts += [f"vote {judgement.vote + 1}" if judgement.vote else "", *_traffic(judgement)]
    title = f"judge {judgement.judge}{purpose}: {', '.join(filter(None, parts))}"
    yield from _wrapped(title, width, "bold magenta")
    for attempt in judgement.failed:
        status = f"status {attempt.status}" if attempt.status else "no reply"
        took = "" if attempt.latency_s is None else f" after {attempt.latency_s:.2f} s"
        said = f"attempt {attempt.number}: {status}{took}: {attempt.why or ''}"
        yield from _wrapped(said, width, "yellow", indent="  ")
        if whole and attempt.reply:
            yield from _text("its body", attempt.reply, width, whole=True, indent="  ")
    if not judgement.shown:
        yield "  its prompt was not kept", "dim"
    for role, text in judgement.shown:
        yield from _text(f"read ({role})", text, width, whole=whole, indent="  ")
    yield from _text("replied", judgement.said, width, whole=whole, indent="  ")
    yield from _wrapped(
        f"verdict: {_outcome(judgement.outcome)}", width, _style(judgement.outcome), indent="  "
    )


def _traffic(judgement: FoundJudgement) -> Iterator[str]:
    """How a judgement was reached, in words."""
    yield judgement.source
    if judgement.attempts > 1:
        yield counted(judgement.attempts, "attempt")
    if judgement.hedges:
        yield f"{judgement.hedges} hedged"
    if judgement.latency_s:
        yield f"{judgement.latency_s:.2f} s"
    if judgement.queue_s >= 0.005:
        yield f"{judgement.queue_s:.2f} s in our queue"
    if judgement.prompt_tokens or judgement.completion_tokens:
        yield f"{judgement.prompt_tokens} + {judgement.completion_tokens} tokens"
    if judgement.cost_usd:
        yield f"${judgement.cost_usd:.6f}"
    if judgement.model:
        yield f"model {judgement.model}"
    if judgement.endpoint:
        yield judgement.endpoint


def _outcome(outcome: Outcome) -> str:
    if isinstance(outcome, Score):
        return f"{outcome_words(outcome)}  {outcome.why}".rstrip()
    if isinstance(outcome, Abstain):
        return f"abstained: {outcome.kind.value}: {outcome.detail}"
    return f"skipped: {outcome.why}"


def _style(outcome: Outcome) -> str:
    if isinstance(outcome, Score):
        return "green"
    return "red" if isinstance(outcome, Abstain) else "dim"


def _text(
    name: str, text: str | None, width: int, *, whole: bool, indent: str = ""
) -> Iterator[_Line]:
    """A text under its name, wrapped, and cut unless it is wanted whole."""
    if text is None:
        yield f"{indent}{name}: none kept", "dim"
        return
    inner = f"{indent}  "
    lines = [
        part
        for line in printable(text).split("\n")
        for part in wrap(line, width - len(inner)) or [""]
    ]
    yield f"{indent}{name}", "bold"
    shown = lines if whole or len(lines) <= _LINES + 1 else [*lines[: _LINES - 4], "", *lines[-4:]]
    for number, line in enumerate(shown):
        if len(shown) < len(lines) and number == _LINES - 4:
            cut = f"[{len(lines) - _LINES} lines more: --full]"
            yield f"{inner}{cut}", "dim"
        else:
            yield f"{inner}{line}".rstrip(), ""


def _wrapped(text: str, width: int, style: str, *, indent: str = "") -> Iterator[_Line]:
    for line in wrap(
        printable(text), width, initial_indent=indent, subsequent_indent=f"{indent}  "
    ) or [indent]:
        yield line, style
