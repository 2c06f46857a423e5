"""The record that a process keeps of its part of a run: rewards, judgements, events, counters."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from zerowait.config import Recording, RewardConfig
from zerowait.errors import ConfigError, DataError
from zerowait.events import Event
from zerowait.pictures import holds_pictures, is_picture, picture_data, picture_url
from zerowait.record.configuration import keep_configuration
from zerowait.record.event_writer import EventWriter
from zerowait.record.lines import AppendOnlyFile, encoded_lines
from zerowait.record.rewards import REWARDS, STATS, RewardRecord, StatsRecord
from zerowait.record.size_limit import SizeLimit
from zerowait.record.texts import (
    reasons_without_words,
    reward_without_words,
    sample_without_texts,
    store_picture,
)
from zerowait.types import Sample, has_parts

_STATS_EVERY_S: Final = 1.0
_QUIET_S: Final = 0.05
_UID_CHARS: Final = 12

_log = logging.getLogger(__name__)


class Records:
    """Appends records to a run's folder; every line is written to the file before it returns.

    A killed process loses no appended line. Folder and files are readable by their owner only,
    because they hold prompts and responses.

    Args:
        folder: of the record.
        hub: a random id of this hub; empty makes one.
        texts: whether prompts and responses are kept, hashed or dropped.
        size_limit: of the record, from which on texts are left out; None for no limit.

    Raises:
        ConfigError: the folder or a file in it cannot be written to.
    """

    def __init__(
        self,
        folder: Path,
        *,
        hub: str = "",
        texts: Literal["keep", "hash", "drop"] = "keep",
        size_limit: SizeLimit | None = None,
    ) -> None:
        with ExitStack() as stack:
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._rewards = AppendOnlyFile(folder / REWARDS)
                stack.callback(self._rewards.close)
                self._stats = AppendOnlyFile(folder / STATS)
            except OSError as error:
                why = f"{error.filename} cannot be written to ({error.strerror})"
                raise ConfigError(f"the record {folder}: {why}: name another folder") from None
            stack.pop_all()
        self._hub = hub or uuid.uuid4().hex
        self._texts = texts
        self._size_limit = size_limit
        self._folder = folder
        self._last_stats = 0.0
        self._split_and_step: tuple[str, int | None] | None = None

    def reward(self, record: RewardRecord) -> None:
        """Append one reward.

        Raises:
            OSError: it was not written, because the disk is full, say; names the file.
        """
        self.rewards([record])

    def rewards(self, records: Sequence[RewardRecord]) -> None:
        """Append several rewards, with one write.

        Raises:
            OSError: not all of them were written, because the disk is full, say; names the file.
        """
        texts = self._texts
        if self._size_limit is not None and not self._size_limit.keeps_texts and texts == "keep":
            texts = "drop"
        if texts != "keep" or not all(isinstance(r.sample.prompt, str) for r in records):
            records = [self._allowed(record, texts) for record in records]
        lines = encoded_lines(records)
        self._rewards.append(lines)
        if self._size_limit is not None:
            self._size_limit.add(len(lines))

    def _allowed(
        self, record: RewardRecord, texts: Literal["keep", "hash", "drop"]
    ) -> RewardRecord:
        """A reward as far as it may be written, its pictures as files."""
        if texts != "keep":
            return msgspec.structs.replace(
                record,
                sample=sample_without_texts(record.sample, texts),
                reward=reward_without_words(record.reward),
                response_chars=len(record.sample.response),
            )
        if has_parts(record.sample.prompt) and holds_pictures(record.sample.prompt):
            return msgspec.structs.replace(record, sample=self._with_files(record.sample))
        return record

    def _with_files(self, sample: Sample) -> Sample:
        """The sample with each picture as a file of the folder, where it is stored once."""
        messages = []
        for message in sample.prompt:
            if isinstance(message, Mapping):
                message = {**message, "content": self._filed(message.get("content"))}  # noqa: PLW2901 - with files
            messages.append(message)
        return msgspec.structs.replace(sample, prompt=messages)

    def _filed(self, content: Any) -> Any:
        if not isinstance(content, list | tuple):
            return content
        parts = []
        for part in content:
            found = _data_of(part)
            if found is None:
                parts.append(part)
                continue
            data, suffix = found
            name = store_picture(self._folder, data, suffix)
            parts.append({"type": "image", "path": name})
        return parts

    def stats(
        self,
        stats: Callable[[], msgspec.Struct],
        *,
        split: str,
        step: int | None,
        last: bool = False,
    ) -> bool:
        """Append the counters if the step is new or the last ones are a second old.

        Args:
            stats: gives the counters; called only when they are written.
            split: of the latest rewarded sample.
            step: of the same sample.
            last: write them in any case.

        Returns:
            Whether they were appended.
        """
        now = time.time()
        split_and_step = (split, step)
        if (
            split_and_step == self._split_and_step
            and not last
            and now - self._last_stats < _STATS_EVERY_S
        ):
            return False
        self._split_and_step, self._last_stats = split_and_step, now
        counted = msgspec.to_builtins(stats())
        if self._texts != "keep":
            counted["reasons"] = reasons_without_words(counted.get("reasons", {}))
        row = StatsRecord(at=now, split=split, step=step, stats=counted, hub=self._hub)
        self._stats.append(encoded_lines([row]))
        return True

    def close(self) -> None:
        """Close the files."""
        self._rewards.close()
        self._stats.close()


def _data_of(part: Any) -> tuple[bytes, str] | None:
    """Bytes and file ending of a picture; None for another part, or one without usable data."""
    try:
        url = picture_url(part) if is_picture(part) else None
    except DataError:  # its sample abstained for it
        return None
    return None if url is None else picture_data(url)


class RunRecord:
    """Keeps a run's record; `open` and `close` it on the loop that it is used on.

    Rewards are on the disk when `reward` returns. Judgements and events, which it is called with as
    a listener, are written soon after, by a thread. Several processes may keep one record in the
    same folder.

    Args:
        folder: of the record.
        settings: what is recorded.
        stats: gives the run's counters; None where another process records them.
        config: of the rewards, of which ``reward.json`` keeps what they are made of.
    """

    def __init__(
        self,
        folder: Path,
        settings: Recording = Recording(),  # noqa: B008 - frozen
        *,
        stats: Callable[[], msgspec.Struct] | None = None,
        config: RewardConfig | None = None,
    ) -> None:
        self.folder = folder
        self._config = config
        self._hub = uuid.uuid4().hex
        self._uids = f"{self._hub[:_UID_CHARS]}-"
        self._numbers = count(1)
        self._stats = stats
        self._size_limit = SizeLimit(folder, settings.max_bytes)
        self._size_limit.measure()
        self._settings = settings
        self._events = EventWriter(folder, settings, self._size_limit)
        self._records: Records | None = None
        self._split_and_step: tuple[str, int | None] = ("", None)
        self._recorded_at = 0.0
        self._flushing: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Open the files.

        Raises:
            ConfigError: the folder or a file in it cannot be written to.
        """
        with ExitStack() as stack:
            self._records = Records(
                self.folder, hub=self._hub, texts=self._settings.texts, size_limit=self._size_limit
            )
            stack.callback(self._records.close)
            try:
                if self._config is not None:
                    keep_configuration(self.folder, self._config)
                self._events.open()
            except OSError as error:
                why = f"{error.filename} cannot be written to ({error.strerror})"
                raise ConfigError(f"the record {self.folder}: {why}: name another folder") from None
            stack.pop_all()

    def close(self) -> None:
        """Write the last counters and what is queued, and close the files. Idempotent.

        Raises:
            OSError: the counters were not written.
        """
        if self._flushing is not None:
            self._flushing.cancel()
        records, self._records = self._records, None
        if records is None:
            return
        try:
            if self._stats is not None:
                split, step = self._split_and_step
                records.stats(self._stats, split=split, step=step, last=True)
        finally:
            records.close()
            self._events.close()

    def __call__(self, event: Event) -> None:
        """Record an event; one of `zerowait.record.RECORDED`."""
        self._events.put(event, step=self._split_and_step[1])

    def new_uid(self) -> str:
        """A name for a sample, which no other in this run has."""
        return f"{self._uids}{next(self._numbers)}"

    def reward(self, record: RewardRecord) -> None:
        """Append a reward, and the counters when they are due.

        Raises:
            OSError: it was not written, because the disk is full, say; names the file.
        """
        self.rewards([record])

    def rewards(self, records: Sequence[RewardRecord]) -> None:
        """Append several rewards at once, and the counters when they are due.

        Raises:
            OSError: not all of them were written, because the disk is full, say; names the file.
        """
        if self._records is None or not records:
            return
        sample = records[-1].sample
        split, step = self._split_and_step = (sample.split, sample.step)
        self._records.rewards(records)
        if self._stats is None:
            return
        loop = asyncio.get_running_loop()
        self._recorded_at = loop.time()
        written = self._records.stats(self._stats, split=split, step=step)
        if not written and self._flushing is None:
            self._flushing = loop.call_later(_QUIET_S, self._flush_when_quiet)

    def _flush_when_quiet(self) -> None:
        """Record the counters once no reward has come for 50 ms.

        A hub under Ray is killed with its job, and the counters must include the last rewards.
        """
        loop = asyncio.get_running_loop()
        self._flushing = None
        left_s = self._recorded_at + _QUIET_S - loop.time()
        if left_s > 0:
            # timers have whole milliseconds, and one that comes too early would come many times
            self._flushing = loop.call_later(max(left_s, _QUIET_S / 5), self._flush_when_quiet)
        elif self._records is not None and self._stats is not None:
            split, step = self._split_and_step
            try:
                self._records.stats(self._stats, split=split, step=step, last=True)
            except OSError as error:  # the next `reward` raises it to its caller
                _log.warning("the counters could not be recorded: %s", error)
