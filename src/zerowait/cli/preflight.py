"""Checks before a training, with one line for each error: names, keys, judges, data, model."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

import msgspec

from zerowait.client.http.proxy import proxy_for
from zerowait.config import RewardConfig
from zerowait.config.urls import shown_url
from zerowait.engine.credentials import credentials
from zerowait.engine.judging.plan import check_row_rubrics
from zerowait.engine.plan import compile_plan
from zerowait.engine.serving.servers import check_servers, gpus_of, visible_gpus
from zerowait.errors import ConfigError
from zerowait.judge import RowCriterion
from zerowait.search import Failed, Retriever, RetrieverSettings
from zerowait.types import Sample
from zerowait.verl.estimators import refuse_turns
from zerowait.verl.launch.data_columns import check_data_file
from zerowait.verl.launch.hydra_syntax import flattened, read
from zerowait.verl.launch.recipe import Recipe
from zerowait.verl.launch.steps import steps_of
from zerowait.verl.rewards.filter_metric import check_filter_metric
from zerowait.verl.rewards.streaming_rules import refuse_lone_comparison, refuse_unstreamable
from zerowait.verl.rows import mapping_in

_CONNECT_S: Final = 5.0
_RETRIEVER_S: Final = 5.0
_RETRIEVER_QUERY: Final = "test"
_TOKENIZERS: Final = ("tokenizer*", "vocab*", "*.model", "*.tiktoken", "tekken.json")


def check_recipe(recipe: Recipe, extra: Mapping[str, str], *, connect: bool) -> None:
    """Raise a ConfigError or DataError for what would otherwise fail after models are loaded.

    Args:
        recipe: the recipe.
        extra: overrides of verl's configuration from the command line, which have priority.
        connect: whether API keys must be set, and judges and the retriever must be reachable.
    """
    if not recipe.trainer.gives_tickets:
        refuse_unstreamable(recipe.reward, redraws=recipe.trainer.mode != "sync")
    overrides = flattened({**recipe.verl, **extra})
    refuse_lone_comparison(recipe.reward, _responses(recipe, overrides))
    estimator = overrides.get("algorithm.adv_estimator", recipe.algorithm.estimator)
    refuse_turns(recipe.reward, str(estimator))
    is_local = recipe.resources.ray_address is None
    check_reward(recipe.reward, connect=connect, here=is_local)
    if connect and is_local:
        _check_gpus(recipe)
    fail = partial(recipe.source.fail, ("model", "path"))
    check_model(recipe.path(recipe.model.path), recipe.model.path, fail)
    if "actor_rollout_ref.model.tokenizer_path" not in overrides:
        check_tokenizer(recipe.path(recipe.model.path), recipe.model.path, fail)
    filtered = "algorithm.filter_groups."
    given = {k.removeprefix(filtered): v for k, v in overrides.items() if k.startswith(filtered)}
    check_filter_metric(recipe.reward, given, streaming=not recipe.trainer.gives_tickets)
    key = str(overrides.get("data.prompt_key", recipe.data.prompt_key))
    data = recipe.data
    train = _files(recipe, data.train, overrides.get("data.train_files"))
    check = partial(check_rubrics_of, recipe.reward) if has_row_rubrics(recipe.reward) else None
    rows = sum(check_data_file(file, prompt_key=key, check=check) for file in train)
    for file in _files(recipe, data.validation, overrides.get("data.val_files")):
        check_data_file(file, prompt_key=key, check=check)
    batch = overrides.get("data.train_batch_size")
    if batch is not None:
        _check_batch(batch, rows)
    elif rows < data.batch:
        recipe.source.fail(
            ("data", "batch"), f"is {data.batch}, and the training files have {rows} rows"
        )
    named = _names(data.train, overrides.get("data.train_files"))
    steps_of(recipe, extra, rows=rows if len(train) == len(named) else None)
    if connect:
        check_retriever(recipe, {key.lstrip("+"): value for key, value in overrides.items()})


def has_row_rubrics(config: RewardConfig) -> bool:
    """Whether some judge of `config` reads the row's own rubric."""
    return any(judge.verdict.rubric is not None for judge in config.judges.values())


def check_rubrics_of(
    config: RewardConfig, row: Mapping[str, Any]
) -> list[tuple[RowCriterion, ...]]:
    """The rubrics in a row to train on or to score, one for each judge that reads one.

    Raises:
        DataError: a rubric is missing or malformed; names the column and the criterion.
    """
    given = mapping_in(row.get("extra", row.get("extra_info")))
    given = given if isinstance(given, dict) else {}
    # of a row to train on, verl hands on extra_info alone
    extra = given if "reward_model" in row else {**row, **given}
    source = row.get("data_source")
    sample = Sample("", "", data_source=source if isinstance(source, str) else "", extra=extra)
    return check_row_rubrics(config, sample)


def check_reward(
    config: RewardConfig,
    environ: Mapping[str, str] | None = None,
    *,
    connect: bool = True,
    here: bool = True,
) -> None:
    """Raise a ConfigError unless names resolve, API keys are set and judges accept connections.

    Of judges that will be served for the job, the program and the weights have to be there.

    Args:
        config: the configuration of the rewards.
        environ: environment variables with the keys; None takes those of the process.
        connect: False checks names only.
        here: whether judges are served on this machine, which has to have their program and GPUs.
    """
    compile_plan(config)
    if not connect:
        return
    credentials(config, environ)
    check_servers(config, here=here)
    for name, judge in config.judges.items():
        for index, endpoint in enumerate(judge.endpoints):
            if endpoint.serve is not None or endpoint.is_verls:
                continue
            proxy = proxy_for(endpoint, config.traffic.proxy)
            problem = unreachable(proxy or endpoint.base_url)
            if problem:
                through = "" if proxy is None else f" through the proxy {shown_url(proxy)}"
                config.fail(
                    ("judges", name, "endpoints", index, "base_url"),
                    f"{shown_url(endpoint.base_url)} cannot be reached{through}: {problem}",
                )


def _check_gpus(recipe: Recipe) -> None:
    """Raise a ConfigError where this machine has too few GPUs for the training and its judges."""
    wanted, resources = gpus_of(recipe.reward), recipe.resources
    if not wanted or resources.device == "cpu":
        return
    training = resources.devices + (resources.rollout_devices or int(recipe.trainer.is_separate))
    there = len(visible_gpus())
    if wanted + training > there:
        recipe.source.fail(
            ("resources", "devices"),
            f"is {resources.devices}: the training needs {training} GPUs and its served judges "
            f"{wanted}, and this machine has {there}",
        )


def unreachable(url: str) -> str | None:
    """Why the host and port of a URL accept no connection; None when they do."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=_CONNECT_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def check_retriever(recipe: Recipe, overrides: Mapping[str, Any]) -> None:
    """Raise a ConfigError when a recipe's agent searches and its retriever does not answer.

    Skipped for a running Ray cluster, whose nodes may reach a retriever that this machine cannot.
    """
    search = recipe.search
    if search is None or not (search.do_search and search.max_turns):
        return
    if recipe.resources.ray_address is not None:
        return
    url = overrides.get("search.retriever.url", search.retriever.url)
    timeout_s = min(_RETRIEVER_S, search.retriever.deadline_s)
    try:
        settings = msgspec.structs.replace(
            search.retriever, url=str(url), deadline_s=timeout_s, timeout_s=timeout_s
        )
    except ValueError as error:
        raise ConfigError(f"search.retriever: {error}") from None
    found = asyncio.run(_test_search(settings))
    if isinstance(found, Failed):
        raise ConfigError(
            f"search.retriever.url {url} answers no search: {found.why}; "
            "zerowait retriever serve INDEX starts one"
        )


async def _test_search(settings: RetrieverSettings) -> Any:
    async with Retriever(settings) as retriever:
        [found] = await retriever.find([_RETRIEVER_QUERY])
        return found


def check_model(path: Path, text: str, fail: Callable[[str], NoReturn]) -> None:
    """Call `fail` when a model's folder has no model; hub names are not checked."""
    if path.is_dir():
        if not (path / "config.json").is_file():
            fail(f"{text}: there is no config.json in {path}")
        return
    looks_like_a_hub_name = text.count("/") == 1 and not text.startswith((".", "/", "~"))
    if not looks_like_a_hub_name or os.environ.get("HF_HUB_OFFLINE") == "1":
        fail(f"{text}: there is no folder {path}")


def check_tokenizer(path: Path, text: str, fail: Callable[[str], NoReturn]) -> None:
    """Call `fail` when a model's folder has no tokenizer file."""
    names = [file.name for file in path.iterdir()] if path.is_dir() else ["tokenizer.json"]
    if not any(fnmatch(name, pattern) for name in names for pattern in _TOKENIZERS):
        fail(f"{text}: there is no tokenizer (tokenizer.json) in {path}")


def _files(recipe: Recipe, own: list[str], override: Any) -> list[Path]:
    """Data files of this machine; paths of an override are relative to the working directory."""
    if override is None:
        return [recipe.path(file) for file in own]
    return [Path(name).expanduser() for name in _names(own, override) if "://" not in name]


def _names(own: list[str], override: Any) -> list[str]:
    if override is None:
        return own
    given = read(override) if isinstance(override, str) else override
    return list(map(str, given if isinstance(given, list | tuple) else [given]))


def _responses(recipe: Recipe, overrides: Mapping[str, Any]) -> int:
    """Responses per prompt in training; an override that is no number is left to verl's check."""
    given = overrides.get("actor_rollout_ref.rollout.n", recipe.rollout.n)
    number = read(given) if isinstance(given, str) else given
    return number if isinstance(number, int) else recipe.rollout.n


def _check_batch(override: Any, rows: int) -> None:
    batch = read(override) if isinstance(override, str) else override
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise ConfigError(f"data.train_batch_size must be a whole number from 1 on, not {batch!r}")
    if rows and batch > rows:
        raise ConfigError(
            f"data.train_batch_size is {batch}, and the training files have {rows} rows"
        )
