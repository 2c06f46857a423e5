"""verl's data set with the stamps that rewards need: split and group size.

What verl 0.9.1 does, as read and run:

* ``PPOTrainer._init_dataloader`` builds two objects of this class, first with ``data.train_files``,
  then with ``data.val_files``, from the same ``data`` section: nothing else tells the two apart.
* A row has no identity of its own. The trainer gives every fetched row a fresh ``uid`` (a UUID) for
  training and for validation alike; it reaches the reward manager in ``non_tensor_batch["uid"]``
  beside ``session_id`` (0 to n - 1) and ``global_steps``, so that (split, uid) names a group and
  (split, uid, session_id) a response.
* The manager is told neither whether it scores validation nor how many responses a prompt has.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omegaconf import ListConfig, OmegaConf
from omegaconf.errors import ConfigKeyError
from verl.utils.dataset.rl_dataset import RLHFDataset

from zerowait.errors import ConfigError
from zerowait.verl.columns import check_data_file

TRAIN, VALIDATION = "train", "validation"
_SIZE_OF = {
    TRAIN: "actor_rollout_ref.rollout.n",
    VALIDATION: "actor_rollout_ref.rollout.val_kwargs.n",
}


class RewardDataset(RLHFDataset):
    """Rows whose ``extra_info`` says ``split``, ``group_size`` and a unique ``index``.

    Chosen with ``data.custom_cls.path=pkg://zerowait.verl.dataset`` and
    ``data.custom_cls.name=RewardDataset``. The files' own ``split``, if there is one, is replaced:
    what matters to a reward is what the row is used for.

    Raises:
        DataError: a file lacks messages or a ground truth.
        ConfigError: training and validation cannot be told apart.
    """

    def __init__(
        self, data_files: Any, tokenizer: Any, config: Any, *args: Any, **kwargs: Any
    ) -> None:
        for path in _paths(data_files):
            if "://" not in path:
                check_data_file(
                    Path(path).expanduser(), prompt_key=config.get("prompt_key", "prompt")
                )
        self.split = split_of(data_files, config)
        self.group_size = group_size_of(self.split, config)
        super().__init__(data_files, tokenizer, config, *args, **kwargs)

    def __getitem__(self, item: int) -> dict[str, Any]:
        row: dict[str, Any] = super().__getitem__(item)
        given = row["extra_info"]
        if given.get("index") is None:
            row["index"] = item
        row["extra_info"] = {
            **given,
            "index": row["index"],
            "split": self.split,
            # verl's own column for a prompt that is to have another number of responses
            "group_size": int(row.get("__rollout_n__", self.group_size)),
        }
        return row


def split_of(data_files: Any, config: Any) -> str:
    """``train`` or ``validation``, by which of the configuration's files `data_files` are.

    Raises:
        ConfigError: they are both, or neither.
    """
    matching = [
        split
        for split, key in ((TRAIN, "train_files"), (VALIDATION, "val_files"))
        if _paths(config.get(key)) == _paths(data_files)
    ]
    if len(matching) == 1:
        return matching[0]
    if matching and isinstance(data_files, ListConfig):
        # The same files in both places: the list itself knows where in the configuration it is.
        return VALIDATION if data_files._key() == "val_files" else TRAIN  # noqa: SLF001
    raise ConfigError(
        "data.train_files and data.val_files name the same files: write both as lists, such as "
        "data.val_files=[val.parquet], so that rewards can tell validation from training"
        if matching
        else f"{_paths(data_files)} are neither data.train_files nor data.val_files"
    )


def group_size_of(split: str, config: Any) -> int:
    """How many responses each prompt of `split` gets.

    Args:
        split: ``train`` or ``validation``.
        config: the ``data`` section, still in its place in verl's whole configuration.

    Raises:
        ConfigError: the whole configuration cannot be reached from it.
    """
    try:
        size = OmegaConf.select(config, f"..{_SIZE_OF[split]}")
    except ConfigKeyError:
        size = None
    if size is None:
        raise ConfigError(
            f"the data set cannot see {_SIZE_OF[split]}: it has to be built from verl's whole "
            "configuration"
        )
    return int(size)


def _paths(files: Any) -> list[str]:
    if files is None:
        return []
    if isinstance(files, str) or not isinstance(files, Iterable):
        return [str(files)]
    return [str(path) for path in files]
