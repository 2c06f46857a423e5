"""The pages that list every key, event, metric, error, failure kind and exit code list just those."""

import ast
import asyncio
import re
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Literal, Union, get_args, get_origin

import msgspec
import pytest
import typer
import yaml

import zerowait
import zerowait.config as settings
import zerowait.verl
from zerowait.cli import app
from zerowait.config.load import _TOP as REWARD_KEYS
from zerowait.config.row_rubric import Batches
from zerowait.config.schema import EverySteps
from zerowait.config.serve import ServeSettings
from zerowait.engine import ALARMS, Stats
from zerowait.engine.monitor.metrics import (
    alarm_metrics,
    coverage,
    judge_metrics,
    reward_metrics,
)
from zerowait.engine.monitor.prometheus import exposition
from zerowait.events import Drift, Event
from zerowait.search.server import _RetrievalService
from zerowait.search.settings import RetrieverSettings, SearchSettings
from zerowait.types import POLICY_CAUSED, FailureKind, Reward, Sample, Score
from zerowait.verl.launch import recipe
from zerowait.verl.launch import recipe as recipe_parts
from zerowait.verl.rewards.episode_metrics import episode_metrics
from zerowait.verl.rewards.metrics import valued_row_metrics
from zerowait.verl.rows import EPISODE

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs/reference"
KEYS = "".join((PAGES / f"{name}.md").read_text() for name in ("reward-yaml", "recipe-yaml"))
ALARM_PAGE, CLI, ERRORS, EVENTS, METRICS = (
    (PAGES / f"{name}.md").read_text() for name in ("alarms", "cli", "errors", "events", "metrics")
)
OPTIONS = "any other key"

SECTIONS = {
    "A rule: `components.NAME`": settings.ScorerComponent,
    "A judge's verdict: `components.NAME`": settings.JudgeComponent,
    "A shape: `components.NAME`": settings.ShapeComponent,
    "`judges.NAME`": settings.Judge,
    "`judges.NAME.endpoints`": settings.Endpoint,
    "`judges.NAME.endpoints.serve`": ServeSettings,
    "`judges.NAME.verdict`": settings.VerdictRule,
    "`judges.NAME.ask`": Batches,
    "`judges.NAME.votes`": settings.Votes,
    "`judges.NAME.monitor`": settings.Monitor,
    "`judges.NAME.monitor.rebalance`": settings.Rebalance,
    "`judges.NAME.anchors_every`": EverySteps,
    "`judges.NAME.panel`": settings.Panel,
    "`traffic`": settings.Traffic,
    "`traffic.hedge`": settings.Hedge,
    "`hub`": settings.Sharding,
    "`cache`": settings.Cache,
    "`record`": settings.Recording,
    "`prices.MODEL`": settings.Price,
    "`log_to.wandb`": settings.WandbLog,
    "`log_to.tensorboard`": settings.TensorboardLog,
    "`log_to.mlflow`": settings.MlflowLog,
    "`log_to.trackio`": settings.TrackioLog,
    "`log_to.prometheus`": settings.PrometheusLog,
    "`log_to.otel`": settings.OtelLog,
    "`model`": recipe_parts.Model,
    "`data`": recipe_parts.Data,
    "`rollout`": recipe_parts.Rollout,
    "`algorithm`": recipe_parts.Algorithm,
    "`trainer`": recipe_parts.Trainer,
    "`resources`": recipe_parts.Resources,
    "`schedule`": recipe_parts.Schedule,
    "`search`": SearchSettings,
    "`search.retriever`": RetrieverSettings,
}
WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false", dict: "mapping"}


def rows(page, heading):
    """The cells of the table below a heading."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", page, re.DOTALL | re.MULTILINE)
    assert found, f"there is no section {heading!r}"
    lines = [line for line in found[1].splitlines() if line.startswith("|")]
    cells = [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in lines[2:]]
    assert all(cell.strip() for row in cells for cell in row), heading
    return cells


def names(page, heading):
    cells = [row[0].strip("`") for row in rows(page, heading)]
    assert len(cells) == len(set(cells)), heading
    return set(cells)


def kind(annotation):
    """The type of a key in words."""
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(
            dict.fromkeys(kind(a) for a in get_args(annotation) if a is not NoneType)
        )
    origin = get_origin(annotation)
    if origin is Literal:
        return ", ".join(f"`{word}`" for word in get_args(annotation))
    if origin is tuple and get_args(annotation)[-1] is not ...:
        return "[low, high]"
    if origin in (list, tuple):
        return f"list of {kind(get_args(annotation)[0])}"
    if origin is dict or (isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)):
        return "mapping"
    return WORDS[annotation]


def default(field):
    if field.required:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if value is None:
        return "none"
    text = yaml.safe_dump(
        msgspec.to_builtins(value, enc_hook=str), default_flow_style=True, width=1000
    )
    return f"`{text.removesuffix('...' + chr(10)).strip()}`"


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_key_is_listed_with_its_type_and_default_and_no_other(heading):
    expected = [
        (f"`{field.name}`", kind(field.type), default(field))
        for field in msgspec.structs.fields(SECTIONS[heading])
        if field.name != "options"
    ]
    listed = [(row[0], row[1], row[2]) for row in rows(KEYS, heading) if row[0] != OPTIONS]
    assert sorted(listed) == sorted(expected)
    takes_options = "options" in SECTIONS[heading].__struct_fields__
    assert takes_options == any(row[0] == OPTIONS for row in rows(KEYS, heading))


def structs_in(annotation):
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
        for field in msgspec.structs.fields(annotation):
            yield from structs_in(field.type)
    for inner in get_args(annotation):
        yield from structs_in(inner)


def test_every_mapping_within_another_has_a_section():
    roots = [settings.Traffic, settings.Judge, settings.Panel, *recipe._PARTS.values()]
    assert {struct for root in roots for struct in structs_in(root)} <= set(SECTIONS.values())


def test_the_keys_of_a_whole_file_are_listed_and_no_other():
    assert names(KEYS, "`reward.yaml`") == set(REWARD_KEYS)
    assert names(KEYS, "`recipe.yaml`") == set(recipe._TOP)
    own = {"default", "quorum", "COMPONENT", *FailureKind}
    assert names(KEYS, "`on_failure`") == own


def test_every_event_is_listed_with_its_fields_and_no_other():
    listed = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[1])) for row in rows(EVENTS, "Events")}  # fmt: skip
    assert listed == {event.__name__: set(event.__struct_fields__) for event in get_args(Event)}  # fmt: skip


def written_by(module):
    """The keys that a module sets in ``metrics`` one by one."""
    for node in ast.walk(ast.parse(module.read_text())):
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if not (isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant)):
            continue
        if getattr(target.value, "id", "") == "metrics":
            yield target.slice.value


def test_every_metric_of_verls_loggers_is_listed_and_no_other():
    reward = Reward(1.0, {"COMPONENT": Score(1.0)}, {"METRIC": 1.0})
    account = {"NAME": 1, "searches": 1, "stop": "REASON", "authors": []}
    agent = episode_metrics([Sample("", "", extra={EPISODE: account})])
    told = {
        *reward_metrics([reward]),
        *judge_metrics(Stats(), Stats(), priced=True),
        *(name for name in agent if not name.startswith("episode/stop/")),
        *("episode/stop/REASON" for name in agent if name.startswith("episode/stop/")),
        *("reward/alarm/KIND" for _ in alarm_metrics(Stats())),
        *valued_row_metrics([], "score"),
        *valued_row_metrics([], "rewards"),
        *coverage(["SOURCE"], [1.0]),
        *written_by(ROOT / "src/zerowait/verl/trainer/ticket_trainer.py"),
    }
    told -= {f"episode/{name}/{of}" for name in ("searches", "environment_tokens") for of in ("mean", "max")}  # fmt: skip
    assert names(METRICS, "Metrics in verl's loggers") == told


def families(text):
    return set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))


class NoDocuments:
    kind = "bm25"

    def __len__(self):
        return 0


def test_every_metric_for_prometheus_is_listed_and_no_other():
    async def scraped():
        service = _RetrievalService(NoDocuments(), topk=1)
        try:
            return (await service.metrics(None)).text
        finally:
            await service.batches.aclose()

    told = families(exposition(Stats())) | families(asyncio.run(scraped()))
    assert names(METRICS, "Metrics for Prometheus") == told


def test_every_alarm_is_listed_and_no_other():
    thresholds = {name for row in rows(ALARM_PAGE, "Thresholds") for name in re.findall(r"`(\w+)`", row[0])}  # fmt: skip
    assert names(ALARM_PAGE, "Kinds") == thresholds == set(ALARMS)


def errors():
    """Every public descendant of `ZerowaitError`, by its name."""
    bases = {}
    for module in (ROOT / "src/zerowait").rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = {getattr(base, "id", "") for base in node.bases}
    found = {"ZerowaitError"}
    while more := {name for name, own in bases.items() if own & found} - found:
        found |= more
    return {name for name in found if not name.startswith("_")}


def test_every_error_is_listed_and_no_other():
    assert names(ERRORS, "Errors") == errors()


def test_every_failure_kind_is_listed_and_no_other():
    listed = {row[0].strip("`"): row[1] for row in rows(ERRORS, "Failure kinds")}
    assert listed == {kind: "policy" if kind in POLICY_CAUSED else "provider" for kind in FailureKind}  # fmt: skip


def test_every_exit_code_is_listed_and_no_other():
    known = {0, 1, app.WRONG_INPUT, app.SOME_ABSTAINED, app.INTERRUPTED}
    assert names(ERRORS, "Exit codes") == {str(code) for code in known}


def commands(name, command):
    """The whole names of the commands that can be run."""
    below = getattr(command, "commands", {})
    if not below:
        yield name
    for part in below:
        yield from commands(f"{name} {part}", below[part])


def test_every_command_is_listed_and_no_other():
    app.add_commands("")
    assert names(CLI, "Command line") == set(commands("zerowait", typer.main.get_command(app.app)))


def test_every_public_name_is_on_the_page_of_the_python_api():
    shown = set(re.findall(r"^::: (\S+)$", (PAGES / "python.md").read_text(), re.MULTILINE))
    assert {f"zerowait.{name}" for name in zerowait.__all__} <= shown
    assert {f"zerowait.verl.{name}" for name in zerowait.verl.__all__} <= shown
    for path in shown:
        module, _, name = path.rpartition(".")
        assert hasattr(import_module(module), name), path


def test_a_drift_is_explained_beside_the_events_that_hold_one():
    assert all(f"`{field}`" in EVENTS for field in Drift.__struct_fields__)
