"""``zerowait score --watch``: the files of a folder are scored while they grow, each row once.

Each file of JSON lines in the folder gets a file of the same name in the output folder, to which
its rows are appended with their rewards. How far a file has been read is kept there too, after each
batch, so that a watch that was killed goes on where it was: rows that it had appended without
keeping that are cut off, and scored again from the judges' cache.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, Final

import msgspec

from zerowait.cli.output_file import open_output
from zerowait.cli.rewarded_rows import RewardCounts, reward_columns
from zerowait.cli.row_files import (
    BYTE_ORDER_MARK,
    RowFile,
    decode_row,
    encode_json,
    write_json_lines,
)
from zerowait.cli.samples import UsableRows, problems_of_rows, usable_samples
from zerowait.cli.tables import counted
from zerowait.config import RewardConfig
from zerowait.engine import Engine, Rewards
from zerowait.engine.portal import Submitted
from zerowait.errors import ConfigError, DataError
from zerowait.judge import load_rubric
from zerowait.types import Reward

_SUFFIXES: Final = (".jsonl", ".ndjson")
_STATE: Final = ".watch"
"""The folder inside the output folder with the positions, the lock and the configuration's hash."""
_POLL_S: Final = 0.25
_FILES_AT_ONCE: Final = 8
_BATCH_BYTES: Final = 4 * 2**20
_HEAD_BYTES: Final = 64 * 2**10


class Position(msgspec.Struct, frozen=True):
    """How far a file has been read, and how long its output was then.

    Args:
        offset: bytes that have been scored.
        lines: lines among them.
        output_bytes: of the output with their rewards.
        digest: of the file's beginning and of the bytes before `offset`, by which a file that was
            written anew is told from one that has grown.
        inode: device and inode of the file, by which a renamed file is known.
    """

    offset: int = 0
    lines: int = 0
    output_bytes: int = 0
    digest: str = ""
    inode: tuple[int, int] = (0, 0)


class NewRow(msgspec.Struct, frozen=True):
    """A complete line: its number, where it ends, and its row, or what is wrong with it."""

    line: int
    end: int
    row: dict[str, Any] | None
    error: DataError | None = None


class Batch(msgspec.Struct, frozen=True):
    """Rows of one file that are being scored.

    Args:
        name: of the file.
        end: the offset behind them.
        lines: the number of the last one.
        digest: of the file up to there, see `Position`.
        inode: device and inode of the file.
        usable: those that can be scored.
        rewards: of their samples, once they are known.
    """

    name: str
    end: int
    lines: int
    digest: str
    inode: tuple[int, int]
    usable: UsableRows
    rewards: Submitted[list[Reward]]


class FolderWatch:
    """A folder of growing files, and the output folder with their rewards.

    Args:
        folder: with the files; it may not exist yet.
        out: the output folder.
        config: of the rewards.
        columns: the files' column for a field of `Sample`.
        skip_unusable: leaves out rows that cannot be scored, instead of ending there.
        limit: ends after so many rows; a group is not divided. None: does not end by itself.
        settle_s: seconds without growth after which the last group of a file is complete, where
            its rows do not say ``group_size``.
        on_batch: called with a file's name and its newly scored rows' counts.

    Raises:
        ConfigError: the folders cannot be used.
    """

    def __init__(  # noqa: PLR0913 - the command's options
        self,
        folder: Path,
        out: Path,
        config: RewardConfig,
        *,
        columns: Mapping[str, str],
        skip_unusable: bool,
        limit: int | None,
        settle_s: float,
        on_batch: Callable[[str, RewardCounts], None],
    ) -> None:
        _check_folders(folder, out)
        engine = Engine(config)
        self._check = engine.check
        self._whole_groups = bool(engine.plan.waits_for_siblings) or config.on_failure.can_drop
        self._folder = folder
        self.out = out
        self.config = config
        self._columns = columns
        self._skip_unusable = skip_unusable
        self._left = limit
        self._settle_s = settle_s
        self._on_batch = on_batch
        self._digest = _config_digest(config, columns)
        self._positions: dict[str, Position] = {}
        self._seen: dict[str, tuple[tuple[int, ...], float]] = {}
        self._fruitless: dict[str, tuple[tuple[int, ...], bool]] = {}
        self._running: dict[str, Batch] = {}
        self._stopping = False
        self.counts = RewardCounts()
        self.unusable: list[DataError] = []

    @property
    def rows_in_flight(self) -> int:
        """The number of rows that are being scored, whose rewards are not written."""
        return sum(len(batch.usable.file.rows) for batch in self._running.values())

    def run(self, rewards: Rewards, drain_s: float) -> None:
        """Score what comes, until SIGINT, SIGTERM or the limit.

        Rows that are being scored then are waited for; a second signal ends at once.

        Args:
            rewards: open ones.
            drain_s: how long rows are waited for at the end.

        Raises:
            DataError: a row cannot be scored, and `skip_unusable` is not set.
            JudgementError: see `Engine.score`.
            ConfigError: another watch writes to the output folder, or one with another
                configuration did.
        """
        with self._opened(), self._signals():
            error: DataError | None = None
            while not self._stopping and self._left != 0:
                self._write_finished()
                try:
                    self._begin_batches(rewards)
                except DataError as found:
                    error = found  # after what is being scored
                    break
                self._wait(_POLL_S)
            self._finish(drain_s)
            if error is not None:
                raise error

    def _finish(self, drain_s: float) -> None:
        """Wait for rows in flight, after a signal for `drain_s` seconds at most."""
        give_up_at: float | None = None
        while self._running and (give_up_at is None or time.monotonic() < give_up_at):
            if self._stopping and give_up_at is None:
                give_up_at = time.monotonic() + drain_s
                print(
                    f"zerowait: waiting for {counted(self.rows_in_flight, 'row')} in flight; "
                    "interrupt again to give them up",
                    file=sys.stderr,
                )
            self._wait(_POLL_S)
            self._write_finished()

    def _wait(self, timeout_s: float) -> None:
        futures = [batch.rewards for batch in self._running.values()]
        if futures:
            wait(futures, timeout=timeout_s, return_when=FIRST_COMPLETED)
        else:
            time.sleep(timeout_s)

    def _begin_batches(self, rewards: Rewards) -> None:
        for name, known in self._files():
            if self._left == 0 or len(self._running) >= _FILES_AT_ONCE:
                return
            found = self._new_rows(name, known)
            if not found:
                self._fruitless[name] = self._state_of(name)
                continue
            usable, unusable = self._usable(name, found)
            if unusable and not self._skip_unusable:
                raise DataError(
                    problems_of_rows(usable.file, unusable) + "\n--skip-unusable leaves them out"
                )
            self.unusable += unusable
            if self._left is not None:
                self._left = max(0, self._left - len(found))
            last = found[-1]
            identity = _identity(self._folder / name, last.end)
            future = rewards.submit_all(usable.samples)
            self._running[name] = Batch(name, last.end, last.line, *identity, usable, future)

    def _files(self) -> Iterator[tuple[str, Position]]:
        """The files with something unread, in natural order, that are not being scored."""
        try:
            found = {
                entry.name: entry.stat()
                for entry in os.scandir(self._folder)
                if entry.name.lower().endswith(_SUFFIXES)
                and not entry.name.startswith(".")
                and entry.is_file()
            }
        except FileNotFoundError:
            return  # the folder does not exist yet, or a file has just gone
        for name in sorted(found, key=_natural):
            if name in self._running:
                continue
            state = found[name]
            signature = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns)
            if name not in self._seen or self._seen[name][0] != signature:
                if name not in self._positions and signature[:2] in self._inodes_in_flight():
                    continue  # it is being scored under its old name
                self._seen[name] = signature, time.monotonic()
                self._recognise(name, state, found)
            known = self._positions.get(name, Position())
            if state.st_size > known.offset and self._fruitless.get(name) != self._state_of(name):
                yield name, known

    def _state_of(self, name: str) -> tuple[tuple[int, ...], bool]:
        """What reading the file again depends on: its state, and whether it has settled."""
        signature, since = self._seen[name]
        return signature, time.monotonic() - since >= self._settle_s

    def _inodes_in_flight(self) -> set[tuple[int, ...]]:
        return {batch.inode for batch in self._running.values()}

    def _recognise(self, name: str, state: os.stat_result, found: Mapping[str, Any]) -> None:
        """Find out whether a file has grown, has another name, or was written anew."""
        path, inode = self._folder / name, (state.st_dev, state.st_ino)
        known = self._positions.get(name)
        if known is None:
            renamed = (
                old
                for old, position in self._positions.items()
                if position.inode == inode and old not in found and old not in self._running
            )
            for old in renamed:
                if _is_continued(path, self._positions[old]):
                    self._rename(old, name)
                    return
        elif not _is_continued(path, known):
            print(f"zerowait: {name} was written anew, and is scored again", file=sys.stderr)
            self._keep(name, Position(inode=inode))

    def _rename(self, old: str, name: str) -> None:
        if (self.out / old).exists():
            (self.out / old).replace(self.out / name)
        self._keep(name, self._positions.pop(old))
        self._state_file(old).unlink(missing_ok=True)

    def _new_rows(self, name: str, known: Position) -> list[NewRow]:
        """The rows behind `known` that can be scored now."""
        most = None if self._whole_groups else _BATCH_BYTES
        found = list(_lines(self._folder / name, known, most))
        ends: Sequence[int] = range(len(found) + 1)
        if self._whole_groups:
            _, settled = self._state_of(name)
            ends = _whole_group_ends([self._group(each) for each in found], settled=settled)
        wanted = len(found) if self._left is None else self._left
        return found[: next((end for end in ends if end >= wanted), ends[-1])]

    def _group(self, found: NewRow) -> tuple[str, int | None, int] | None:
        """A row's group, its size if the row says it, and how many responses the row has.

        None for a row that is no part of a group with others.
        """
        usable, _ = self._usable("", [found])
        if not usable.samples or usable.samples[0].group in (None, *usable.file.places):
            return None
        group, size = usable.samples[0].group, usable.samples[0].group_size
        return None if group is None else (group, size, len(usable.samples))

    def _usable(self, name: str, found: Sequence[NewRow]) -> tuple[UsableRows, list[DataError]]:
        path = self._folder / name
        unusable = [each.error for each in found if each.error is not None]
        read = [(each.line, each.row) for each in found if each.row is not None]
        places = [f"{path}:{line}" for line, _ in read]
        rows = RowFile(path, [row for _, row in read], places)
        return usable_samples(rows, self._columns, self._check, unusable), unusable

    def _write_finished(self) -> None:
        for name, batch in list(self._running.items()):
            if not batch.rewards.done():
                continue
            try:
                self._write(batch, batch.rewards.result())
            except OSError as error:
                raise DataError(
                    f"{self.out / name} cannot be written: {error.strerror}; make room and run "
                    "the same command again"
                ) from None
            del self._running[name]

    def _write(self, batch: Batch, rewards: list[Reward]) -> None:
        """Append a batch's rows to the output, then keep how far the file has been read."""
        known = self._positions.get(batch.name, Position())
        path = self._folder / batch.name
        rows = zip(batch.usable.file.rows, batch.usable.by_row(rewards), strict=True)
        with _open_at(self.out / batch.name, known.output_bytes, _mode_of(path)) as file:
            write_json_lines(file, ({**row, **reward_columns(reward)} for row, reward in rows))
            file.flush()
            os.fsync(file.fileno())
            output_bytes = file.tell()
        self._keep(
            batch.name, Position(batch.end, batch.lines, output_bytes, batch.digest, batch.inode)
        )
        counts = RewardCounts()
        counts.add(rewards, rows=len(batch.usable.file.rows))
        self.counts.add(rewards, rows=len(batch.usable.file.rows))
        if counts.rows:
            self._on_batch(batch.name, counts)

    def _keep(self, name: str, position: Position) -> None:
        self._positions[name] = position
        with open_output(self._state_file(name)) as file:
            file.write(encode_json(position))

    def _state_file(self, name: str) -> Path:
        return self.out / _STATE / f"{name}.json"

    @contextmanager
    def _opened(self) -> Iterator[None]:
        """The output folder, locked, with the positions of an earlier watch."""
        state = self.out / _STATE
        state.mkdir(parents=True, exist_ok=True)
        with (state / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(f"--out {self.out}: another watch writes to it") from None
            known = state / "config"
            if not known.exists():
                with open_output(known) as written:  # whole or not at all, also on a full disk
                    written.write(self._digest.encode())
            elif known.read_text() != self._digest:
                raise ConfigError(
                    f"--out {self.out}: holds rewards of another configuration, or of other "
                    "columns; choose another folder"
                )
            for file in state.glob("*.json"):
                self._positions[file.name.removesuffix(".json")] = _decode_position(file)
            yield

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """The first SIGINT or SIGTERM ends the watch, a second one is a KeyboardInterrupt."""

        def stop(_signal: int, _frame: FrameType | None) -> None:
            if self._stopping:
                raise KeyboardInterrupt
            self._stopping = True

        before = {
            number: signal.signal(number, stop)
            for number in (signal.SIGINT, signal.SIGTERM)
            if signal.getsignal(number) is not signal.SIG_IGN  # as in the background of a script
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _check_folders(folder: Path, out: Path) -> None:
    """Raise a ConfigError unless the files of `folder` can be scored into `out`."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--watch: {folder} is no folder; it watches the files of a folder")
    if not folder.exists():
        if not folder.parent.is_dir():
            raise ConfigError(f"--watch: there is no folder {folder.parent}")
        print(f"zerowait: waiting for {folder}, which does not exist yet", file=sys.stderr)
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out}: with --watch it is a folder, and this is a file")
    if not out.parent.is_dir():
        raise ConfigError(f"--out {out}: there is no folder {out.parent}")
    if out.exists() and folder.exists() and out.samefile(folder):
        raise ConfigError(f"--out {out}: is the watched folder, whose files would be lost")
    if out.exists() and not (out / _STATE).is_dir() and any(out.iterdir()):
        raise ConfigError(f"--out {out}: has files that no watch wrote; choose another folder")


def _config_digest(config: RewardConfig, columns: Mapping[str, str]) -> str:
    """A hash of what decides rewards: components, judges but for their addresses, columns."""

    def readable(value: object) -> object:
        return msgspec.to_builtins(value, enc_hook=str, str_keys=True)

    judges: Any = readable(config.judges)
    for name, judge in judges.items():
        judge["endpoints"] = [endpoint.get("model") for endpoint in judge["endpoints"]]
        judge["rubric"] = str(load_rubric(config.judges[name].rubric, base=config.base))
    parts = [config.components, judges, config.panels, config.on_failure, dict(columns)]
    return sha256(encode_json([readable(part) for part in parts])).hexdigest()


def _decode_position(file: Path) -> Position:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Position)
    except (msgspec.MsgspecError, OSError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}; remove the output folder") from None


def _lines(path: Path, known: Position, most_bytes: int | None) -> Iterator[NewRow]:
    """The complete lines behind a position; a last one without its end is complete as an object."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, known.offset - 1))
            ended = known.offset == 0 or file.read(1) == b"\n"
            text, at_end = _read(file, most_bytes)
    except FileNotFoundError:
        return  # renamed or removed in this moment
    # the end of a last line that was scored without it is still part of that line
    line, end = known.lines if ended else known.lines - 1, known.offset
    for part in _split(text):
        line += 1
        end += len(part)
        if end == len(part):  # the first one of the file
            part = part.removeprefix(BYTE_ORDER_MARK)  # noqa: PLW2901 - it is no part of the row
        if not part.strip():
            continue
        complete = part.endswith(b"\n")
        try:
            row = decode_row(part, f"{path}:{line}")
        except DataError as error:
            if complete:
                yield NewRow(line, end, None, error)
        else:
            if complete or at_end:
                yield NewRow(line, end, row)


def _read(file: BinaryIO, most_bytes: int | None) -> tuple[bytes, bool]:
    """Whole lines of about `most_bytes`, and whether the file ends behind them."""
    text = file.read() if most_bytes is None else file.read(most_bytes)
    while most_bytes is not None and b"\n" not in text:
        more = file.read(most_bytes)
        text += more
        if not more:
            return text, True
    if most_bytes is None or len(text) < most_bytes:
        return text, True
    return text[: text.rindex(b"\n") + 1], False


def _split(text: bytes) -> list[bytes]:
    """Lines that end in a line feed, with it; a carriage return alone ends none."""
    parts = [part + b"\n" for part in text.split(b"\n")]
    parts[-1] = parts[-1][:-1]
    return parts if parts[-1] else parts[:-1]


def _whole_group_ends(
    groups: Sequence[tuple[str, int | None, int] | None], *, settled: bool
) -> list[int]:
    """The numbers of first rows that hold whole groups only.

    Args:
        groups: of the rows in order: the group, its size if it is known, the row's responses.
        settled: whether nothing more is expected, so that every group is whole.

    >>> _whole_group_ends([("a", 2, 1), ("a", 2, 1), None, ("b", None, 1)], settled=False)
    [0, 2, 3]
    """
    last: dict[str, int] = {}
    responses: Counter[str] = Counter()
    for index, group in enumerate(groups):
        if group is not None:
            last[group[0]] = index
            responses[group[0]] += group[2]
    ends, open_until = [0], -1
    for index, group in enumerate(groups):
        if group is not None:
            name, size, _ = group
            if not settled and (size is None or responses[name] < size):
                break
            open_until = max(open_until, last[name])
        if open_until <= index:
            ends.append(index + 1)
    return ends


def _identity(path: Path, offset: int) -> tuple[str, tuple[int, int]]:
    """The digest of a file up to `offset`, and its device and inode; empty when it has gone."""
    try:
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
            digest = sha256(file.read(min(offset, _HEAD_BYTES)))
            file.seek(max(0, offset - _HEAD_BYTES))
            digest.update(file.read(offset - file.tell()))
    except FileNotFoundError:
        return "", (0, 0)
    return digest.hexdigest(), (state.st_dev, state.st_ino)


def _is_continued(path: Path, known: Position) -> bool:
    """Whether the file begins with what has been scored."""
    try:
        if path.stat().st_size < known.offset:
            return False
    except FileNotFoundError:
        return True  # it has gone in this moment; the next look tells
    return known.offset == 0 or _identity(path, known.offset)[0] == known.digest


@contextmanager
def _open_at(path: Path, size: int, mode: int) -> Iterator[BinaryIO]:
    """A file to append to, cut to `size` bytes."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, mode)
    with os.fdopen(descriptor, "r+b") as file:
        file.truncate(size)
        file.seek(size)
        yield file


def _mode_of(path: Path) -> int:
    """The permissions of an output that is as private as its input."""
    try:
        return path.stat().st_mode & 0o666 | stat.S_IWUSR
    except FileNotFoundError:
        return 0o600


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """The key by which step 2 comes before step 10.

    >>> sorted(["10.jsonl", "2.jsonl"], key=_natural)
    ['2.jsonl', '10.jsonl']
    """
    parts = re.split(r"(\d+)", name)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]
