"""Names and types that verl 0.9.1 accepts, read from its files without importing it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from zerowait.verl.estimators import ESTIMATORS
from zerowait.verl.trainer_modes import BASE_MODES

INT, FLOAT, BOOL, TEXT, LIST, MAPPING, NULL = (
    "a whole number",
    "a number",
    "true or false",
    "text",
    "a list",
    "a mapping",
    "null",
)
_ANY: Final = frozenset({INT, FLOAT, BOOL, TEXT, LIST, MAPPING, NULL})
_NAMED: Final = {
    "int": frozenset({INT}),
    "float": frozenset({FLOAT}),
    "bool": frozenset({BOOL}),
    "str": frozenset({TEXT}),
    "Literal": frozenset({TEXT}),
    **dict.fromkeys(("list", "tuple", "List", "Tuple"), frozenset({LIST})),
    **dict.fromkeys(("dict", "Dict"), frozenset({MAPPING})),
    "Any": _ANY,
}


@cache
def verl_folder() -> Path:
    """The folder of the installed package verl."""
    spec = find_spec("verl")
    places = (spec and spec.submodule_search_locations) or ()
    return Path(next(iter(places)))


@cache
def declared_fields(target: str) -> dict[str, frozenset[str]] | None:
    """The kinds of value of a dataclass's fields, by name; None if they cannot be determined.

    Args:
        target: the dotted name of one of verl's dataclasses.
    """
    module, _, name = target.rpartition(".")
    return _fields(name, _classes(_place(module)))


@cache
def declared_choices(target: str) -> dict[str, tuple[str, ...]]:
    """By field, the names that a dataclass allows with ``assert self.field in [...]``."""
    module, _, name = target.rpartition(".")
    classes = _classes(_place(module))
    return {
        field: tuple(str(option) for option in options)
        for owner in _lineage(name, classes)
        for node in ast.walk(owner)
        if isinstance(node, ast.Assert)
        for field, options in _allowed_values(node.test)
    }


def _allowed_values(test: ast.expr) -> Iterator[tuple[str, list[Any]]]:
    match test:
        case ast.Compare(
            left=ast.Attribute(value=ast.Name(id="self"), attr=field),
            ops=[ast.In()],
            comparators=[ast.List() as options],
        ):
            yield field, ast.literal_eval(options)


def _lineage(name: str, classes: dict[str, ast.ClassDef]) -> Iterator[ast.ClassDef]:
    """The class and its base classes, the topmost first."""
    if name in classes:
        for base in classes[name].bases:
            yield from _lineage(ast.unparse(base), classes)
        yield classes[name]


def _place(module: str) -> Path:
    where = verl_folder().joinpath(*module.split(".")[1:])
    return where if where.is_dir() else where.with_suffix(".py")


def _fields(name: str, classes: dict[str, ast.ClassDef]) -> dict[str, frozenset[str]] | None:
    if name == "BaseConfig":
        return {"_target_": frozenset({TEXT})}
    found = classes.get(name)
    if found is None:
        return None
    fields: dict[str, frozenset[str]] = {}
    for base in found.bases:
        inherited = _fields(ast.unparse(base), classes)
        if inherited is None:
            return None
        fields |= inherited
    for node in found.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return None
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            fields[node.target.id] = _kinds(node.annotation)
    return fields


@cache
def _classes(where: Path) -> dict[str, ast.ClassDef]:
    files = sorted(where.glob("*.py")) if where.is_dir() else [where]
    return {
        node.name: node
        for file in files
        if file.is_file()
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }


def _kinds(annotation: ast.expr) -> frozenset[str]:
    """The kinds of value for an annotation; other classes are written as mappings."""
    if isinstance(annotation, ast.Constant) and annotation.value is None:
        return frozenset({NULL})
    if isinstance(annotation, ast.BinOp):
        return _kinds(annotation.left) | _kinds(annotation.right)
    if isinstance(annotation, ast.Name):
        return _NAMED.get(annotation.id, frozenset({MAPPING, NULL}))
    if isinstance(annotation, ast.Subscript):
        return _subscripted(ast.unparse(annotation.value), annotation.slice)
    return _ANY


def _subscripted(outer: str, inner: ast.expr) -> frozenset[str]:
    options = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if outer in {"Optional", "Union"}:
        also = {NULL} if outer == "Optional" else set()
        return frozenset(also).union(*map(_kinds, options))
    return _NAMED.get(outer, _ANY)


LOGGERS = (
    "clearml",
    "console",
    "file",
    "mlflow",
    "rl_insight",
    "swanlab",
    "tensorboard",
    "trackio",
    "vemlp_wandb",
    "wandb",
)
"""verl 0.9.1's trackers, ``verl.utils.tracking.Tracking.supported_backend``."""

_ACTOR, _CRITIC, _ROLLOUT = "actor_rollout_ref.actor", "critic", "actor_rollout_ref.rollout"
_AGGREGATIONS: Final = (
    "token-mean",
    "token-sum",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum-norm",
)
_KL: Final = ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3")
_PENALTIES: Final = (*_KL, *(f"{name}+" for name in _KL))
_ENGINES: Final = ("fsdp", "fsdp2", "fsdp_turbo", "megatron", "torchtitan", "veomni", "automodel")

CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "trainer.resume_mode": ("auto", "disable", "resume_path"),
    "trainer.device": ("cpu", "cuda", "npu"),
    "trainer.v1.sampler.max_off_policy_strategy": ("drop", "wait"),
    "algorithm.kl_penalty": _PENALTIES,
    "algorithm.kl_ctrl.type": ("fixed", "adaptive"),
    "algorithm.pf_ppo.reweight_method": ("pow", "max_min", "max_random"),
    f"{_ACTOR}.kl_loss_type": _PENALTIES,
    f"{_ACTOR}.loss_agg_mode": _AGGREGATIONS,
    f"{_CRITIC}.loss_agg_mode": _AGGREGATIONS,
    f"{_ROLLOUT}.mode": ("async",),
    "data.truncation": ("error", "left", "right", "middle"),
}
"""Allowed values by key."""

REGISTRIES: Final[Mapping[str, tuple[str, ...]]] = {
    "trainer.v1.trainer_mode": (*BASE_MODES.values(), *BASE_MODES),
    "algorithm.adv_estimator": ESTIMATORS,
    f"{_ACTOR}.policy_loss.loss_mode": (
        "vanilla",
        "bypass_mode",
        "cispo",
        "clip_cov",
        "dppo_kl",
        "dppo_tv",
        "dro",
        "geo_mean",
        "gpg",
        "gspo",
        "kl_cov",
        "sapo",
    ),
    f"{_ACTOR}.strategy": _ENGINES,
    "actor_rollout_ref.ref.strategy": _ENGINES,
    f"{_CRITIC}.strategy": _ENGINES,
    f"{_ROLLOUT}.name": ("transformers", "vllm", "sglang", "trtllm"),
}
"""Registered names by key, to which an imported module or another plug-in may add."""

_COUNT, _PATH = frozenset({INT, NULL}), frozenset({TEXT, NULL})
FURTHER_KINDS: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(
        (
            "data.gen_batch_size",
            "data.seed",
            "data.val_batch_size",
            "trainer.max_actor_ckpt_to_keep",
            "trainer.max_critic_ckpt_to_keep",
            "trainer.total_training_steps",
            "trainer.v1.sampler.max_off_policy_threshold",
        ),
        _COUNT,
    ),
    **dict.fromkeys(
        (
            "trainer.default_hdfs_dir",
            "trainer.resume_from_path",
            "trainer.rollout_data_dir",
            "trainer.validation_data_dir",
        ),
        _PATH,
    ),
    **dict.fromkeys(("data.train_files", "data.val_files"), frozenset({LIST})),
    "trainer.esi_redundant_time": frozenset({FLOAT}),
    "trainer.ray_wait_register_center_timeout": frozenset({FLOAT}),
    "actor_rollout_ref.model.lora.alpha": frozenset({FLOAT}),
}
"""Further kinds of value by key, where verl's YAML has another kind and no dataclass says more."""

COUNTS: Final = frozenset(
    {
        "data.max_prompt_length",
        "data.max_response_length",
        "data.train_batch_size",
        "reward.num_workers",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu",
        "trainer.n_gpus_per_node",
        "trainer.nnodes",
        "trainer.total_epochs",
        "trainer.total_training_steps",
        "trainer.v1.separate_async.parameter_sync_step",
        f"{_ACTOR}.fsdp_config.ulysses_sequence_parallel_size",
        f"{_ACTOR}.ppo_epochs",
        f"{_ACTOR}.ppo_max_token_len_per_gpu",
        f"{_ACTOR}.ppo_micro_batch_size_per_gpu",
        f"{_ACTOR}.ppo_mini_batch_size",
        f"{_CRITIC}.ppo_epochs",
        f"{_ROLLOUT}.agent.num_workers",
        f"{_ROLLOUT}.log_prob_max_token_len_per_gpu",
        f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu",
        f"{_ROLLOUT}.n",
        f"{_ROLLOUT}.tensor_model_parallel_size",
        f"{_ROLLOUT}.val_kwargs.n",
    }
)
"""Keys of numbers that must be at least 1."""

NOT_INSTANTIATED: Final = ("algorithm", "distillation", "global_profiler", "reward", "skip")
"""Sections whose dataclass verl's trainer never instantiates."""
