"""Reward function for TRL's trainers, made by `reward`.

``GRPOTrainer(reward_funcs=zerowait.trl.reward("reward.yaml"), ...)``

TRL calls a reward function with a batch's prompts, completions and data columns. This one makes a
`Sample` of each row, and returns the reward's value, or None where the reward abstained: TRL leaves
such a row out of its group's baseline and gives it advantage 0, which is the policy ``neutral``.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, TypeAlias

from zerowait.client import Secret
from zerowait.config import RewardConfig, load_config
from zerowait.engine import Rewards, settle_groups
from zerowait.engine import open as open_rewards
from zerowait.engine.concurrent_tasks import first_of, side_by_side
from zerowait.engine.plan import compile_plan
from zerowait.engine.portal import Submitted
from zerowait.errors import ConfigError, DataError, did_you_mean
from zerowait.hub.http import RemoteRewards, connect
from zerowait.hub.http.shared import SharedService
from zerowait.loggers import check_installed
from zerowait.types import Abstain, Reward, Sample, Score, content_text

RewardFunction: TypeAlias = Callable[..., Any]
"""Another reward function of TRL's: called with keyword arguments, returns a value per row."""

GenerateRows: TypeAlias = Callable[[list[Any], Any], Iterable[tuple[int, dict[str, Any]]]]
"""Generates completions: of prompts and trainer, each row's index and fields as it ends."""

OLDEST: Final = (1, 14)
"""The first release that awaits reward functions that are objects, and, since 1.6, does not count
a row without any reward as 0 (huggingface/trl#5902)."""
_GROUND_TRUTH: Final = ("ground_truth", "solution", "answer")
_FIELDS: Final = ("ground_truth", "data_source", "id")
_ROLLOUT: Final = {"prompt_ids", "completion_ids", "logprobs", "env_mask"}
_NO_COLUMNS: Final = {"prompt", "completion", "completion_ids"}
_OF_TRL: Final = {"trainer_state", "log_extra", "log_metric", "environments"}


def reward(  # noqa: PLR0913 - each is a choice of the user's
    config: str | Path | Mapping[str, Any] | RewardConfig,
    *,
    columns: Mapping[str, str] | None = None,
    others: Sequence[RewardFunction | tuple[RewardFunction, float]] = (),
    num_generations: int | None = None,
    url: str | None = None,
    token: str | None = None,
    record: str | Path | None = None,
    name: str = "zerowait",
) -> TrlReward:
    """A reward function for TRL, computed as `config` says.

    With several processes (accelerate) all share one service, which rank 0 runs, or the one at
    `url`: each distinct judgement is asked once, and the limits are those of the whole job.

    Args:
        config: a path to a ``reward.yaml``, a mapping, or a `RewardConfig`.
        columns: by field of `Sample` (``ground_truth``, ``data_source``, ``id``), the data set's
            column it is read from. Without it, ``ground_truth`` is read from the first that exists
            of ``ground_truth``, ``solution`` and ``answer``. All other columns go into ``extra``.
        others: further reward functions, alone or with a weight, whose values are added. Give them
            here, not to the trainer: TRL would add them up as if an abstained reward were 0.
        num_generations: responses to each prompt; None: as the trainer has it.
        url: a running ``zerowait serve`` with the same configuration; None: none is needed.
        token: the value of the service's ``--token-env`` variable.
        record: the folder of the run's record, which gets every reward and judgement; None keeps
            none. A service at `url` has its own ``--record``.
        name: under which TRL logs the reward.

    Raises:
        ConfigError: the configuration is wrong, asks for the policy ``mask``, which TRL cannot do,
            or this TRL is too old; or a record is asked for beside `url`.
        MissingExtraError: a logger's package is not installed.
    """
    try:
        _check_trl()
        loaded = load_config(config)
        compile_plan(loaded)  # raises what is wrong before the model is loaded
        _check_policies(loaded)
        if url is not None and record is not None:
            raise ConfigError(
                "record: goes without url; the service there keeps the record, of all its clients: "
                "start it with zerowait serve --record DIR"
            )
        if url is None:
            check_installed(loaded.log_to.wanted)
        return TrlReward(
            loaded,
            columns=_checked_columns(columns),
            others=[each if isinstance(each, tuple) else (each, 1.0) for each in others],
            num_generations=num_generations,
            service=None if url is None else (url, Secret(token) if token else None),
            record=None if record is None else Path(record).expanduser(),
            name=name,
        )
    finally:
        del config, token  # a traceback may show local variables


class TrlReward:
    """The reward function that `reward` returns.

    It opens the rewards with the first batch, and once more in each process that it is pickled to.
    """

    def __init__(  # noqa: PLR0913 - see `reward`
        self,
        config: RewardConfig,
        *,
        columns: dict[str, str],
        others: list[tuple[RewardFunction, float]],
        num_generations: int | None,
        service: tuple[str, Secret | None] | None,
        record: Path | None,
        name: str,
    ) -> None:
        self.__name__ = name
        self._config = config
        self._columns = columns
        self._others = others
        self._num_generations = num_generations
        self._service = service
        self._record = record
        self._batches = 0
        self._early: _EarlyRows | None = None
        self._data: dict[str, dict[str, Any] | None] | None = None
        self._opened: tuple[int, Rewards | RemoteRewards] | None = None
        self._shared: SharedService | None = None

    async def __call__(
        self,
        *,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """The value of each row; None where the reward abstained.

        Args:
            prompts: text, or lists of chat messages.
            completions: text, or lists of chat messages.
            completion_ids: the tokens of each completion.
            columns: the data set's columns, and what TRL adds (``trainer_state``, ``log_metric``).

        Raises:
            JudgementError: a judgement failed under the policy ``raise``, or none was ever reached.
            DataError: a row lacks what the configuration needs, or the batch is not made of groups.
            ConfigError: the trainer has other reward functions beside this one.
        """
        trainer = getattr(columns.get("log_metric"), "__self__", None)
        if self._batches == 0:
            self._check_alone(trainer)
        batch = self._early.batch if self._early is not None else None
        if batch is None or list(batch.prompts) != list(prompts):
            batch = _Batch(trainer, self._num_generations, prompts, self._batch_name(trainer))
            self._early = None
        self._batches += 1
        samples = self._samples(batch, completions, completion_ids, columns)
        try:
            async with asyncio.TaskGroup() as both:
                own = both.create_task(self._rewards_of(batch, samples))
                of_others = both.create_task(
                    self._values_of_others(
                        prompts=prompts,
                        completions=completions,
                        completion_ids=completion_ids,
                        **columns,
                    )
                )
        except* BaseException as errors:  # noqa: BLE001 - one cause says more than a group of them
            raise first_of(errors) from None
        rewards, added = own.result(), of_others.result()
        _log(rewards, columns)
        return [
            None if reward.value is None else reward.value + more
            for reward, more in zip(rewards, added, strict=True)
        ]

    def close(self) -> None:
        """Close the rewards, and the service if this process runs it. Idempotent."""
        opened, self._opened = self._opened, None
        if opened is not None and opened[0] == os.getpid():
            opened[1].close()
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.close()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {
            "_opened": None,
            "_shared": None,
            "_batches": 0,
            "_early": None,
            "_data": None,
        }

    def _batch_name(self, trainer: Any) -> str:
        """A name that this batch has on every rank, and that no other batch of the job has."""
        if _process_count(trainer) == 1:
            return uuid.uuid4().hex
        return str(self._batches)  # all ranks score each batch in step

    def rollout(self, generate: GenerateRows) -> Callable[[list[Any], Any], dict[str, list[Any]]]:
        """TRL's ``rollout_func``, whose rows are judged while others are still being generated.

        Args:
            generate: called with the prompts and the trainer; yields a row's index and what
                TRL wants of it (``prompt_ids``, ``completion_ids``, ``logprobs``, and further
                columns) as soon as it ends.

        The function raises a DataError where `generate` leaves out a row.

        >>> def generate(prompts, trainer):
        ...     for row, prompt in enumerate(prompts):
        ...         yield row, {"prompt_ids": [1], "completion_ids": [2], "logprobs": [-0.1]}
        """

        def rollout_func(prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
            batch = _Batch(trainer, self._num_generations, prompts, self._batch_name(trainer))
            self._early = _EarlyRows(batch)
            ended: list[dict[str, Any]] = [{}] * len(prompts)
            for row, generated in generate(prompts, trainer):
                ended[row] = generated
                self._begin(self._early, row, generated)
            if not all(ended):
                missing = next(row for row, each in enumerate(ended) if not each)
                raise DataError(f"the rollout of {len(prompts)} prompts yielded no row {missing}")
            return {key: [each[key] for each in ended] for key in ended[0]}

        return rollout_func

    def _begin(self, early: _EarlyRows, row: int, generated: Mapping[str, Any]) -> None:
        """Begin to judge a row that the rollout has ended, if its data is known by its prompt."""
        trainer = early.batch.trainer
        data = self._rows_by_prompt(trainer).get(_key(early.batch.prompts[row]))
        if data is None or not trainer.model.training:
            return
        data = data | {key: value for key, value in generated.items() if key not in _ROLLOUT}
        ids = generated["completion_ids"]
        text = trainer.processing_class.decode(ids, skip_special_tokens=True)
        conversational = not isinstance(early.batch.prompts[row], str)
        completion = [{"role": "assistant", "content": text}] if conversational else text
        sample = self._sample(
            early.batch, row, completion, ids, data, int(trainer.state.global_step)
        )
        early.rows[row] = sample, self._rewards(trainer).submit(sample)

    def _rows_by_prompt(self, trainer: Any) -> dict[str, dict[str, Any] | None]:
        """The columns of each prompt in the training data; None of one whose rows differ."""
        if self._data is None:
            self._data = {}
            for row in trainer.train_dataset:
                columns = {key: value for key, value in row.items() if key not in _NO_COLUMNS}
                key = _key(row["prompt"])
                if self._data.setdefault(key, columns) != columns:
                    self._data[key] = None
        return self._data

    async def _rewards_of(self, batch: _Batch, samples: list[Sample]) -> list[Reward]:
        rewards = await asyncio.to_thread(self._rewards, batch.trainer)
        early, self._early = self._early, None
        if early is None and not batch.divides_groups:
            return await rewards.submit_all(samples)
        if batch.divides_groups and self._config.on_failure.can_drop:
            raise ConfigError(
                f"on_failure drop_group: the {batch.num_generations} responses to a prompt are on "
                "several processes, none of which sees the whole group: write neutral, or let "
                "per_device_train_batch_size be a multiple of num_generations"
            )
        begun = {} if early is None else early.rows
        submitted = []
        for row, sample in enumerate(samples):
            known, future = begun.get(row, (None, None))
            same = future is not None and known == sample
            submitted.append(future if same and future is not None else rewards.submit(sample))
        each = await side_by_side([_awaited(future) for future in submitted])
        groups = [sample.group for sample in samples]
        return settle_groups(each, groups, self._config.on_failure.quorum)

    def _rewards(self, trainer: Any) -> Rewards | RemoteRewards:
        """The rewards of this process, opened with its first batch."""
        if self._opened is None or self._opened[0] != os.getpid():
            if self._service is None and _process_count(trainer) > 1:
                rank = trainer.accelerator.process_index
                self._shared = SharedService.of_job(self._config, rank, record=self._record)
                self._service = self._shared.url, self._shared.token
            if self._service is None:
                self._opened = os.getpid(), open_rewards(self._config, record=self._record)
            else:
                url, token = self._service
                self._opened = os.getpid(), connect(url, token=token)
        return self._opened[1]

    def _samples(
        self,
        batch: _Batch,
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None,
        columns: Mapping[str, Any],
    ) -> list[Sample]:
        data = {
            key: values
            for key, values in columns.items()
            if key not in _OF_TRL and isinstance(values, Sequence) and not isinstance(values, str)
        }
        state = columns.get("trainer_state")
        step = None if state is None else int(state.global_step)
        ids: Sequence[Sequence[int] | None] = completion_ids or [None] * len(completions)
        return [
            self._sample(
                batch, row, completion, ids[row], {k: v[row] for k, v in data.items()}, step
            )
            for row, completion in enumerate(completions)
        ]

    def _sample(  # noqa: PLR0917 - what TRL knows of a row
        self,
        batch: _Batch,
        row: int,
        completion: Any,
        token_ids: Sequence[int] | None,
        data: dict[str, Any],
        step: int | None,
    ) -> Sample:
        given = {field: data[column] for field, column in self._fields_of(data).items()}
        if given.get("id") is not None:
            given["id"] = str(given["id"])
        return Sample(
            prompt=batch.prompts[row],
            response=_response(completion),
            response_tokens=_token_count(completion, token_ids),
            group=batch.group_of(row),
            group_size=batch.num_generations,
            split=batch.split,
            step=step,
            extra=data,
            **given,
        )

    def _fields_of(self, data: Mapping[str, Any]) -> dict[str, str]:
        """By field of `Sample`, the column that it is read from."""
        for field, column in self._columns.items():
            if column not in data:
                hint = did_you_mean(column, list(data))
                raise DataError(f"columns: {field}: the data set has no column {column!r}{hint}")
        found = {field: field for field in _FIELDS if field in data}
        truth = next((column for column in _GROUND_TRUTH if column in data), None)
        if truth is not None:
            found["ground_truth"] = truth
        return found | self._columns

    async def _values_of_others(self, **arguments: Any) -> list[float]:
        """By row, the weighted sum of what the other reward functions say; None counts as 0."""
        sums = [0.0] * len(arguments["prompts"])
        for function, weight in self._others:
            values = function(**arguments)
            if inspect.isawaitable(values):
                values = await values
            if len(values) != len(sums):
                said = getattr(function, "__name__", type(function).__name__)
                raise DataError(f"{said} returned {len(values)} rewards for {len(sums)} rows")
            for row, value in enumerate(values):
                if value is not None and not math.isnan(value):
                    sums[row] += weight * float(value)
        return sums

    def _check_alone(self, trainer: Any) -> None:
        """Refuse other reward functions: TRL adds theirs up as if an abstention were 0."""
        functions = getattr(trainer, "reward_funcs", [])
        names = getattr(trainer, "reward_func_names", ["another"] * len(functions))
        beside = [name for name, each in zip(names, functions, strict=False) if each is not self]
        if beside:
            raise ConfigError(
                f"the trainer has the reward function {beside[0]!r} beside {self.__name__!r}: TRL "
                "would add up the others as if this one were 0 where it abstains; give them to it: "
                "zerowait.trl.reward(..., others=[(function, weight)])"
            )


class _EarlyRows:
    """The rows of a batch whose rewards were asked for during its rollout."""

    def __init__(self, batch: _Batch) -> None:
        self.batch = batch
        self.rows: dict[int, tuple[Sample, Submitted[Reward]]] = {}


class _Batch:
    """What TRL's batch says about its rows: their groups, and the part of the data.

    Args:
        trainer: TRL's, or None where the function is called without one.
        num_generations: as the user gave it, or None.
        prompts: of this process's rows.
        name: of the batch, the same on every rank.
    """

    def __init__(
        self, trainer: Any, num_generations: int | None, prompts: Sequence[Any], name: str
    ) -> None:
        self.trainer = trainer
        self.prompts = prompts
        training = trainer is None or bool(trainer.model.training)
        self.split = "train" if training else "validation"
        size = num_generations or _generations_of(trainer, training=training)
        self.num_generations = size if size is not None else _run_length(prompts)
        self._name = name
        accelerator = getattr(trainer, "accelerator", None)
        rank = 0 if accelerator is None else int(accelerator.process_index)
        self._first = rank * len(prompts)
        self._check_groups()

    @property
    def divides_groups(self) -> bool:
        """Whether other processes have rows of this one's groups."""
        size = self.num_generations
        return bool(self._first % size or len(self.prompts) % size)

    def group_of(self, row: int) -> str:
        """The name of a row's prompt group, the same on every rank."""
        return f"{self._name}/{(self._first + row) // self.num_generations}"

    def _check_groups(self) -> None:
        """Raise a DataError unless the rows of each group have the same prompt."""
        for row in range(1, len(self.prompts)):
            same_group = self.group_of(row) == self.group_of(row - 1)
            if same_group and self.prompts[row] != self.prompts[row - 1]:
                raise DataError(
                    f"rows {row - 1} and {row} should answer one prompt, as num_generations is "
                    f"{self.num_generations}, and their prompts differ: pass num_generations= as "
                    "the trainer repeats prompts"
                )


def _key(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else repr(prompt)


async def _awaited(future: Submitted[Reward]) -> Reward:
    return await future


def _generations_of(trainer: Any, *, training: bool) -> int | None:
    if trainer is None:
        return None
    evaluated = getattr(trainer, "num_generations_eval", None)
    size = getattr(trainer, "num_generations", None)
    return size if training or evaluated is None else evaluated


def _run_length(prompts: Sequence[Any]) -> int:
    """How often the first prompt stands at the beginning, where nothing else tells the group."""
    length = 1
    while length < len(prompts) and prompts[length] == prompts[0]:
        length += 1
    return length


def _process_count(trainer: Any) -> int:
    accelerator = getattr(trainer, "accelerator", None)
    return 1 if accelerator is None else int(accelerator.num_processes)


def _response(completion: Any) -> str:
    """The text of the policy's last turn."""
    if isinstance(completion, str):
        return completion
    said = [message for message in completion if message.get("role") == "assistant"]
    return content_text(said[-1].get("content")) if said else ""


def _token_count(completion: Any, token_ids: Sequence[int] | None) -> int | None:
    """The tokens that the policy wrote; None where tools wrote some of them."""
    if token_ids is None or (not isinstance(completion, str) and len(completion) > 1):
        return None
    return len(token_ids)


def _log(rewards: Sequence[Reward], columns: Mapping[str, Any]) -> None:
    """Each component as a column of TRL's table of completions, and the metrics' means."""
    log_extra, log_metric = columns.get("log_extra"), columns.get("log_metric")
    if log_extra is not None and rewards:
        for component in rewards[0].components:
            log_extra(component, [_shown(reward, component) for reward in rewards])
    if log_metric is not None and rewards:
        log_metric("zerowait/abstained", sum(r.abstained for r in rewards) / len(rewards))
        for metric in rewards[0].metrics:
            measured = [r.metrics.get(metric) for r in rewards]
            numbers = [number for number in measured if number is not None]
            if numbers:
                log_metric(f"zerowait/{metric}", math.fsum(numbers) / len(numbers))


def _shown(reward: Reward, component: str) -> float | str:
    match reward.components[component]:
        case Score(value=value):
            return value
        case Abstain(kind=kind):
            return f"abstained: {kind.value}"
        case skipped:
            return f"skipped: {skipped.why}"


def _check_trl() -> None:
    try:
        found = version("trl")
    except PackageNotFoundError:
        return  # the function may be called by something that behaves as TRL does
    with suppress(ValueError):
        if tuple(int(part) for part in found.split(".")[:2]) < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            raise ConfigError(
                f"trl {found} cannot leave a row without a reward out of the training, or await "
                f"this function: install trl>={oldest}"
            )


def _check_policies(config: RewardConfig) -> None:
    for path, policy in config.on_failure.listed():
        if policy == "mask":
            config.fail(
                ("on_failure", *path),
                "is 'mask', which TRL cannot do (it keeps the row in its KL and entropy terms); "
                "it can do neutral, drop_group, raise and {value: x}",
            )


def _checked_columns(columns: Mapping[str, str] | None) -> dict[str, str]:
    for field in columns or {}:
        if field not in _FIELDS:
            hint = did_you_mean(field, list(_FIELDS))
            raise ConfigError(
                f"columns: there is no field {field!r}{hint}; the fields are {', '.join(_FIELDS)}"
            )
    return dict(columns or {})
