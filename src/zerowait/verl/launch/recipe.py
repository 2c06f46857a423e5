"""``recipe.yaml``: model, data, rollout, algorithm, reward and resources of one training."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from zerowait.config import FailurePolicy, RewardConfig, Source, build, read_config, read_yaml
from zerowait.config.checks import at_least, at_most, not_negative, positive
from zerowait.errors import ConfigError, did_you_mean
from zerowait.search import SearchSettings
from zerowait.types import POLICY_CAUSED
from zerowait.verl.early_gradients import MODE, EarlyGradients
from zerowait.verl.estimators import ESTIMATORS, not_run
from zerowait.verl.launch.verl_names import LOGGERS
from zerowait.verl.rewards.settings import (
    MAX_ABSTAINED,
    MAX_SAMPLED_BATCHES,
    REDEEM_S,
    check_limits,
)
from zerowait.verl.trainer_modes import BASE_MODES, SEPARATE_MODES, STOPPABLE_MODES

_MOST = 10**9  # a larger count is a typing error


def _count(name: str, value: int, *, least: int = 1) -> None:
    at_least(name, value, least)
    at_most(name, value, _MOST)


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The policy.

    Args:
        path: a folder in Hugging Face format, or a model's name on the Hugging Face Hub.
        flash_attention: train with the flash-attn package, which must be installed on the machines
            with GPUs. A critic on GPUs needs it.
    """

    path: str
    flash_attention: bool = False


class Data(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The prompts: Parquet or JSONL files in verl's columns.

    Args:
        train: files to train on.
        validation: files to validate on.
        batch: prompts per step.
        max_prompt_tokens, max_response_tokens: longer prompts are left out; responses are cut.
        prompt_key: the column of chat messages.
    """

    train: list[str]
    validation: list[str]
    batch: int
    max_prompt_tokens: int = 512
    max_response_tokens: int = 512
    prompt_key: str = "prompt"

    def __post_init__(self) -> None:
        for name in ("train", "validation"):
            if not getattr(self, name):
                raise ValueError(f"{name} must name at least one file")
        for name in ("batch", "max_prompt_tokens", "max_response_tokens"):
            _count(name, getattr(self, name))


class Rollout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How responses are sampled.

    Args:
        engine: ``transformers`` is zerowait's and runs anywhere; ``vllm`` and ``sglang`` need a
            GPU.
        n: responses per prompt.
        temperature: of training responses; validation is greedy.
        max_num_seqs: responses that one engine generates at a time; default: as many as are asked
            for at once, between 256 and 1024.
    """

    engine: Literal["auto", "transformers", "vllm", "sglang"] = "auto"
    n: int = 8
    temperature: float = 1.0
    max_num_seqs: int | None = None

    def __post_init__(self) -> None:
        _count("n", self.n)
        if self.max_num_seqs is not None:
            _count("max_num_seqs", self.max_num_seqs)
        not_negative("temperature", self.temperature)


class Algorithm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The RL algorithm.

    Args:
        estimator: verl's name of the advantage estimator.
        steps: training steps.
        learning_rate: of AdamW.
        kl_loss: coefficient of the KL term in the loss; 0 needs no reference model.
        micro_batch: sequences per forward and backward pass on one device.
    """

    steps: int
    learning_rate: float = 1e-6
    estimator: str = "grpo"
    kl_loss: float = 0.0
    micro_batch: int = 8

    def __post_init__(self) -> None:
        _count("steps", self.steps)
        _count("micro_batch", self.micro_batch)
        positive("learning_rate", self.learning_rate)
        not_negative("kl_loss", self.kl_loss)
        if self.estimator not in ESTIMATORS:
            raise ValueError(
                f"estimator must be one of verl's, not {self.estimator!r}"
                f"{did_you_mean(self.estimator, ESTIMATORS)}; one that you registered yourself "
                "goes into verl: {algorithm.adv_estimator: name}"
            )
        wrong = not_run(self.estimator)
        if wrong is not None:
            raise ValueError(f"estimator {self.estimator} {'; '.join(wrong)}")


_NO_STOP = "verl's own trainers neither give up waiting nor can they be stopped from here"


class Trainer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The trainer mode and its limits.

    Args:
        mode: ``sync`` is verl's own synchronous trainer, in which a step waits for its rewards;
            ``zerowait`` computes log-probabilities and values meanwhile, and applies failure
            policies to advantages and losses. ``colocate_async`` and ``separate_async`` are verl's
            own asynchronous trainers; ``zerowait_colocate_async`` and ``zerowait_separate_async``
            extend them as ``zerowait`` extends ``sync``.
        redeem_s: seconds that a step of a ``zerowait`` mode waits for a reward before it abstains;
            default 600.
        max_abstained: the largest share of a step's rewards that may abstain, in (0, 1]; beyond it
            a ``zerowait`` mode stops training; default 0.5. verl's own modes cannot be stopped.
        max_sampled_batches: where ``algorithm.filter_groups`` drops groups whose rewards are all
            equal, the batches that may be sampled for one step before training stops; default 20.
            verl's own asynchronous trainers cannot be stopped.
        updates_per_sync: in the modes ``separate_async``, updates of the policy in a step, after
            which rollouts get the new weights; default 1.
        early_gradients: in the mode ``zerowait``, whether gradients of groups whose rewards are
            known are computed while others are judged: ``auto`` (the default) where that gives the
            gradient of one update, ``on`` to be told where it does not, ``off`` never.
    """

    mode: Literal[
        "sync",
        "colocate_async",
        "separate_async",
        "zerowait",
        "zerowait_colocate_async",
        "zerowait_separate_async",
    ] = "sync"
    redeem_s: float | None = None
    max_abstained: float | None = None
    max_sampled_batches: int | None = None
    updates_per_sync: int | None = None
    early_gradients: EarlyGradients | None = None

    def __post_init__(self) -> None:
        if self.early_gradients is not None and self.mode != MODE:
            raise ValueError(f"early_gradients is read in {MODE} only")
        for name in ("redeem_s", "max_abstained"):
            if getattr(self, name) is not None and not self.gives_tickets:
                raise ValueError(f"{name} is read in {' and '.join(BASE_MODES)} only: {_NO_STOP}")
        if self.max_sampled_batches is not None and not self.stops_sampling:
            stopped = " and ".join(STOPPABLE_MODES)
            raise ValueError(f"max_sampled_batches is read in {stopped} only: {_NO_STOP}")
        check_limits(
            redeem_s=self.redeem_s_or_default,
            max_abstained=self.max_abstained_or_default,
            max_sampled_batches=self.max_sampled_batches_or_default,
        )
        if self.updates_per_sync is not None:
            _count("updates_per_sync", self.updates_per_sync)
            if not self.is_separate:
                raise ValueError(f"updates_per_sync is read in {' and '.join(SEPARATE_MODES)} only")

    @property
    def redeem_s_or_default(self) -> float:
        """`redeem_s`, or its default."""
        return REDEEM_S if self.redeem_s is None else self.redeem_s

    @property
    def max_abstained_or_default(self) -> float:
        """`max_abstained`, or its default."""
        return MAX_ABSTAINED if self.max_abstained is None else self.max_abstained

    @property
    def max_sampled_batches_or_default(self) -> int:
        """`max_sampled_batches`, or its default."""
        given = self.max_sampled_batches
        return MAX_SAMPLED_BATCHES if given is None else given

    @property
    def stops_sampling(self) -> bool:
        """Whether an error stops a step that samples without end."""
        return self.mode in STOPPABLE_MODES

    @property
    def gives_tickets(self) -> bool:
        """Whether rows get tickets, which the trainer redeems when a step needs the rewards."""
        return self.mode in BASE_MODES

    @property
    def is_separate(self) -> bool:
        """Whether rollouts run on devices of their own."""
        return self.mode in SEPARATE_MODES


SEPARATE_ONLY: Final = ("rollout_devices", "rollout_nodes")


class Resources(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machines and devices of the training.

    Args:
        device: ``auto`` uses the GPU if there is one.
        backend: shards the models for training; ``megatron`` needs GPUs and its own packages.
        devices: GPUs per node, or logical devices on the CPU.
        nodes: number of machines.
        rollout_devices, rollout_nodes: as `devices` and `nodes`, for rollouts in the trainer modes
            ``separate_async``, where they have devices of their own; default 1.
        weight_transfer: how new weights get to those rollouts: ``gloo`` is zerowait's and runs
            anywhere; ``nccl`` is verl's and needs GPUs and the package cupy. ``auto`` is ``nccl``
            for ``vllm`` and ``sglang``.
        reward_workers: number of verl's reward processes, which pass samples on to the hub;
            default: as many as hold the rows that wait for their siblings.
        ray_address: of a running Ray cluster; None starts a Ray of its own on this machine.
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    backend: Literal["fsdp2", "megatron"] = "fsdp2"
    devices: int = 1
    nodes: int = 1
    rollout_devices: int | None = None
    rollout_nodes: int | None = None
    weight_transfer: Literal["auto", "gloo", "nccl"] = "auto"
    reward_workers: int | None = None
    ray_address: str | None = None

    def __post_init__(self) -> None:
        for name in ("devices", "nodes", "reward_workers", *SEPARATE_ONLY):
            if getattr(self, name) is not None:
                _count(name, getattr(self, name))


class Schedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often to validate and to save a checkpoint.

    Args:
        validate_every: in steps; 0 is never. Validation always runs before the first step and after
            the last.
        save_every: in steps; 0 is never.
        logger: names of verl's trackers.
    """

    validate_every: int = 0
    save_every: int = 0
    logger: tuple[str, ...] = ("console",)

    def __post_init__(self) -> None:
        for name in ("validate_every", "save_every"):
            _count(name, getattr(self, name), least=0)
        for name in self.logger:
            if name not in LOGGERS:
                raise ValueError(
                    f"logger must list verl's, not {name!r}{did_you_mean(name, LOGGERS)}"
                )


_NAME = re.compile(r"\w[^/\\\x00-\x1f\x7f]{0,59}")
_SEEDS = 2**32  # numpy accepts smaller seeds only


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """A whole training recipe.

    Args:
        name: of the run.
        model, data, algorithm, rollout, trainer, resources, schedule: the sections of that name.
        reward: the reward configuration.
        reward_path: of its file, or ``recipe.yaml#reward``.
        output: the run's folder; a relative path starts at the current directory.
        seed: of data order and sampling.
        search: settings of a search agent; None rolls out single turns.
        verl: overrides of verl's configuration by Hydra key, which take precedence.
        source: the file, for messages.
    """

    name: str
    model: Model
    data: Data
    algorithm: Algorithm
    reward: RewardConfig
    reward_path: str
    output: str
    seed: int = 0
    rollout: Rollout = Rollout()
    trainer: Trainer = Trainer()
    resources: Resources = Resources()
    schedule: Schedule = Schedule()
    search: SearchSettings | None = None
    verl: dict[str, Any] = {}
    source: Source

    def path(self, text: str) -> Path:
        """An absolute path; a relative `text` starts at the recipe's folder."""
        return (self.source.base / Path(text).expanduser()).resolve()


_PARTS: dict[str, type[msgspec.Struct]] = {
    "model": Model,
    "data": Data,
    "algorithm": Algorithm,
    "rollout": Rollout,
    "trainer": Trainer,
    "resources": Resources,
    "schedule": Schedule,
    "search": SearchSettings,
}
_NEEDED = ("model", "data", "algorithm", "reward")
_TOP = ["name", "seed", "output", *_PARTS, "reward", "verl"]


def load_recipe(path: Path, *, output: Path | None = None, seed: int | None = None) -> Recipe:
    """The recipe in a file.

    Args:
        path: of the file.
        output: in place of the recipe's ``output``.
        seed: in place of the recipe's ``seed``.

    Raises:
        ConfigError: names the file, the line, the key and the nearest valid one.
    """
    source = read_yaml(path)
    tree = source.tree
    if not isinstance(tree, dict):
        source.fail((), f"a recipe is a mapping with the keys {', '.join(_NEEDED)}")
    for key in tree:
        if key == "components":
            source.fail((), "this is a reward.yaml; a recipe names one, as `reward: reward.yaml`")
        if key not in _TOP:
            source.unknown_key((), key, _TOP)
    for key in _NEEDED:
        if key not in tree:
            source.fail((key,), "is missing")
    parts = {key: build(source, (key,), kind) for key, kind in _PARTS.items() if key in tree}
    _check_rollout_devices(source, parts)
    reward, reward_path = _reward(source, path)
    _check_policy_caused_failures(reward)
    name = _name(source, path)
    recipe: dict[str, Any] = {
        "name": name,
        "seed": _seed(source, seed),
        "output": str(Path(output or _text(source, "output", f"runs/{name}")).resolve()),
        "reward": reward,
        "reward_path": reward_path,
        "verl": _overrides(source),
        "source": source,
        **parts,
    }
    return Recipe(**recipe)


def _check_rollout_devices(source: Source, parts: dict[str, Any]) -> None:
    """Raise a ConfigError for rollout devices without their mode, or updates that do not divide."""
    trainer, resources = parts.get("trainer", Trainer()), parts.get("resources", Resources())
    given = [name for name in SEPARATE_ONLY if getattr(resources, name) is not None]
    given += ["weight_transfer"] if resources.weight_transfer != "auto" else []
    if given and not trainer.is_separate:
        source.fail(
            ("resources", given[0]),
            f"is read with trainer: {{mode: {SEPARATE_MODES[-1]}}} or {SEPARATE_MODES[0]} only, "
            "where rollouts have devices of their own",
        )
    updates, batch = trainer.updates_per_sync or 1, parts["data"].batch
    if batch % updates:
        source.fail(
            ("trainer", "updates_per_sync"),
            f"is {updates}, which does not divide data.batch: {batch} prompts of a step are shared "
            "out evenly among its updates",
        )


def _reward(source: Source, path: Path) -> tuple[RewardConfig, str]:
    reward = source.tree["reward"]
    if isinstance(reward, dict):
        return read_config(source, ("reward",)), f"{path.resolve()}#reward"
    if not isinstance(reward, str):
        source.fail(("reward",), "must be the path of a reward.yaml, or what such a file holds")
    file = (source.base / Path(reward).expanduser()).resolve()
    return read_config(read_yaml(file)), str(file)


def _check_policy_caused_failures(reward: RewardConfig) -> None:
    """Raise a ConfigError for a failure that the policy can cause and whose cost is not chosen.

    A policy that can make its judge fail at no cost learns to do so.
    """
    judged = [name for name, part in reward.components.items() if hasattr(part, "judge")]
    for name in judged:
        own = reward.on_failure.components.get(name, FailurePolicy())
        for level in (own, reward.on_failure):
            if level.default is not None:
                break
        else:
            chosen = own.kinds.keys() | reward.on_failure.kinds.keys()
            silent = sorted(kind.value for kind in POLICY_CAUSED - chosen)
            if silent:
                reward.fail(
                    ("on_failure",),
                    f"does not say what {', '.join(silent)} of {name!r} are worth: the trained "
                    "model can cause them with its own text. Say `on_failure: neutral`, or give "
                    "each kind neutral, raise or {value: x}",
                )


def _name(source: Source, path: Path) -> str:
    """The name of the run, which is also its folder's: one path component."""
    folder = path.resolve().parent.name or "run"
    name = _text(source, "name", path.stem if path.stem != "recipe" else folder)
    if not _NAME.fullmatch(name):
        source.fail(
            ("name",),
            f"is {name[:60]!r}, and has to be the name of one folder: a letter or digit first, no "
            "slash, at most 60 characters; `output` may be any path",
        )
    return name


def _text(source: Source, key: str, default: str) -> str:
    value = source.tree.get(key, default)
    if not isinstance(value, str) or not value:
        source.fail((key,), f"must be text, not {value!r}")
    return value


def _seed(source: Source, given: int | None) -> int:
    value = source.tree.get("seed", 0) if given is None else given
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _SEEDS:
        problem = f"must be a whole number from 0 to {_SEEDS - 1}, not {value!r}"
        if given is not None:
            raise ConfigError(f"--seed {given}: {problem}")
        source.fail(("seed",), problem)
    return value


def _overrides(source: Source) -> dict[str, Any]:
    tree = source.tree.get("verl") or {}
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        source.fail(("verl",), "must be a mapping of verl's Hydra keys to values")
    return dict(tree)


def parse_override(text: str) -> tuple[str, str]:
    """A ``key=value`` from the command line, the value as Hydra reads it.

    Raises:
        ConfigError: there is no ``=``.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(f"{text!r}: an override of verl's configuration is key=value")
    return key, value
