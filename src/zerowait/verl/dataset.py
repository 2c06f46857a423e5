"""verl's data set, with the split and group size that rewards need in every row.

How verl 0.9.1 works:

* ``PPOTrainer._init_dataloader`` builds two objects of this class, first with ``data.train_files``,
  then with ``data.val_files``, from the same ``data`` section: nothing else tells the two apart.
* A row has no identity of its own. The trainer gives every fetched row a fresh ``uid`` (a UUID) for
  training and validation alike; it reaches the reward manager in ``non_tensor_batch["uid"]``
  beside ``session_id`` (0 to n - 1) and ``global_steps``, so that (split, uid) names a group and
  (split, uid, session_id) a response.
* The manager is told neither whether it scores validation nor how many responses a prompt has.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import ListConfig, OmegaConf
from omegaconf.errors import ConfigKeyError
from verl.utils.dataset.rl_dataset import RLHFDataset

from zerowait.errors import ConfigError, DataError
from zerowait.verl.launch.data_columns import check_data_file
from zerowait.verl.rows import mapping_in

TRAIN, VALIDATION = "train", "validation"
_MAPPINGS = ("extra_info", "reward_model")
_SIZE_OF = {
    TRAIN: "actor_rollout_ref.rollout.n",
    VALIDATION: "actor_rollout_ref.rollout.val_kwargs.n",
}


class RewardDataset(RLHFDataset):
    """Rows whose ``extra_info`` has ``split``, ``group_size`` and a unique ``index``.

    Selected with ``data.custom_cls.path=pkg://zerowait.verl.dataset`` and
    ``data.custom_cls.name=RewardDataset``. ``split`` says what the row is used for, and replaces a
    ``split`` in the files. The files' ``index`` is kept if it is unique; otherwise, as with several
    files that each count from 0, rows are numbered and the old one becomes ``file_index``.

    Prompts longer than ``data.max_prompt_length`` tokens are left out with
    ``data.filter_overlong_prompts=True``. Otherwise they raise with ``data.truncation=error``,
    verl's default, and lose their beginning with ``left``; verl 0.9.1 itself always cuts them, and
    only warns.

    Args:
        data_files: ``data.train_files`` or ``data.val_files``.
        tokenizer: the policy's.
        config: the section ``data``, in its place in verl's whole configuration.
        *args: further arguments of verl's data set.
        **kwargs: as `args`.

    Raises:
        DataError: a file lacks messages or a ground truth, a prompt is too long, or all are.
        ConfigError: training and validation cannot be told apart, or ``data.truncation`` is
            something that verl's rollouts do not do.
    """

    dataframe: Any

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
        self._check_lengths(_paths(data_files))
        self._renumbered = not _unique(self._file_indices())

    def _read_files_and_tokenize(self) -> None:
        """Read the files as verl does, and decode columns that hold mappings as JSON text."""
        super()._read_files_and_tokenize()
        texts = {
            name
            for name in _MAPPINGS
            if getattr(self.dataframe.features.get(name), "dtype", "") in ("string", "large_string")
        }
        if texts:
            self.dataframe = self.dataframe.with_transform(partial(_read, names=texts))

    def __getitem__(self, item: int) -> dict[str, Any]:
        row: dict[str, Any] = super().__getitem__(item)
        extra_info = row["extra_info"]
        file_index = extra_info.get("index")
        row["index"] = item if self._renumbered else file_index
        row["extra_info"] = {
            **extra_info,
            **({"file_index": file_index} if self._renumbered and file_index is not None else {}),
            "index": row["index"],
            "split": self.split,
            # verl's column for a prompt that gets another number of responses
            "group_size": int(row.get("__rollout_n__", self.group_size)),
        }
        return row

    def _file_indices(self) -> list[Any]:
        if "extra_info" not in self.dataframe.column_names:
            return []
        return [(info or {}).get("index") for info in self.dataframe["extra_info"]]

    def _check_lengths(self, paths: list[str]) -> None:
        files = ", ".join(paths)
        if not len(self.dataframe):
            raise DataError(
                f"{files}: no prompt has at most data.max_prompt_length={self.max_prompt_length} "
                "tokens, so that every row was left out"
            )
        if self.filter_overlong_prompts or self.truncation == "left":
            return
        if self.truncation != "error":
            raise ConfigError(
                f"data.truncation={self.truncation}: verl's rollouts cut prompts at the left or "
                "not at all; write left, error, or data.filter_overlong_prompts=True"
            )
        for number, row in enumerate(self.dataframe, start=1):
            tokens = self.tokenizer.apply_chat_template(
                row[self.prompt_key],
                add_generation_prompt=True,
                tokenize=True,
                return_dict=False,
                **self.apply_chat_template_kwargs,
            )
            if len(tokens) > self.max_prompt_length:
                raise DataError(
                    f"{files}, row {number}: the prompt has {len(tokens)} tokens and "
                    f"data.max_prompt_length is {self.max_prompt_length}: make it larger, or "
                    "write data.filter_overlong_prompts=True or data.truncation=left"
                )


def _read(rows: dict[str, list[Any]], *, names: set[str]) -> dict[str, list[Any]]:
    """Rows of a data frame, with the JSON text in the columns `names` decoded."""
    return {
        name: [mapping_in(value) for value in column] if name in names else column
        for name, column in rows.items()
    }


def _unique(indices: list[Any]) -> bool:
    return bool(indices) and None not in indices and len(set(indices)) == len(indices)


def split_of(data_files: Any, config: Any) -> str:
    """``train`` or ``validation``.

    Args:
        data_files: the files of a data set.
        config: the section ``data``, which names both splits' files.

    Raises:
        ConfigError: `data_files` are the files of both splits, or of neither.
    """
    matching = [
        split
        for split, key in ((TRAIN, "train_files"), (VALIDATION, "val_files"))
        if _paths(config.get(key)) == _paths(data_files)
    ]
    if len(matching) == 1:
        return matching[0]
    if matching and isinstance(data_files, ListConfig):
        # The same files for both splits: the list knows its own place in the configuration.
        return VALIDATION if data_files._key() == "val_files" else TRAIN  # noqa: SLF001
    raise ConfigError(
        "data.train_files and data.val_files name the same files: write both as lists, such as "
        "data.val_files=[val.parquet], so that rewards can tell validation from training"
        if matching
        else f"{_paths(data_files)} are neither data.train_files nor data.val_files"
    )


def group_size_of(split: str, config: Any) -> int:
    """Number of responses to each prompt of `split`.

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
