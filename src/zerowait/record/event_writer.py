"""Writes judgements and events in a thread of its own, so that no judgement waits for a disk."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeAlias
from zlib import crc32

import msgspec

from zerowait.config import Recording
from zerowait.events import (
    AccountExhausted,
    AnchorsMeasured,
    EndingUnknown,
    EndpointEjected,
    EndpointReturned,
    Event,
    FailedAttempt,
    FormRefused,
    HealthAlarm,
    JudgeDrifted,
    JudgementSettled,
    LimitChanged,
    LoopLagged,
    ModelChanged,
    NothingMoves,
    QuotaLearned,
    StoreFailed,
    StoreReturned,
    TimeoutTooShort,
)
from zerowait.record.judgements import (
    EVENTS,
    JUDGEMENTS,
    UNSET,
    EventLine,
    FailedLine,
    JudgementLine,
    encoded_body,
)
from zerowait.record.lines import RotatingFile, encoded_lines, to_builtin
from zerowait.record.size_limit import SizeLimit
from zerowait.record.texts import HASHED, outcome_without_words, with_picture_files

EVENT_KINDS: Final[Mapping[type[Any], str]] = {
    kind: re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
    for kind in (
        *(LimitChanged, QuotaLearned, AccountExhausted, FormRefused, EndingUnknown),
        *(EndpointEjected, EndpointReturned, ModelChanged, AnchorsMeasured, JudgeDrifted),
        *(HealthAlarm, StoreFailed, StoreReturned, LoopLagged, NothingMoves, TimeoutTooShort),
    )
}
"""The kinds of events in ``events.jsonl``, with their names there."""
RECORDED: Final = frozenset({JudgementSettled, *EVENT_KINDS})
"""The events that a record keeps."""

_BATCH_S: Final = 0.2
_BYTES_AT_ONCE: Final = 256 * 2**10
_SHARE_AT_ONCE: Final = 1 / 16  # of a record's limit, which is looked at before each write
_MOST_QUEUED_BYTES: Final = 128 * 2**20
_EVENT_BYTES: Final = 1024  # about what a queued event takes beside its bodies
_CLOSE_S: Final = 10.0
_MOST_KEYS: Final = 65_536
_MOST_REPLY_BYTES: Final = 2**20

_log = logging.getLogger(__name__)

_line: Final[Callable[..., JudgementLine]] = JudgementLine
_fields: Final[Callable[[JudgementSettled], tuple[Any, ...]]] = msgspec.structs.astuple
_SHARED: Final = JudgementSettled.__struct_fields__.index("request")
"""How many fields a line has, after `at`, as its event has them and in the same order."""

_Queued: TypeAlias = tuple[Event, float, int | None, int]
"""An event, when it came, the training step at that time, and its size in bytes."""


class EventWriter:
    """Appends events to ``judgements.jsonl`` and ``events.jsonl`` soon after they happened.

    `put` only queues. A thread writes what was queued every 200 ms; a killed process loses no more
    than that. Where the disk is so slow that 128 MiB are waiting, or full, lines are lost: that is
    told once, counted, and written down as soon as there is room. Training goes on.

    Args:
        folder: of the record.
        settings: what is recorded.
        size_limit: of the record.
        wall: Unix time in seconds.
    """

    def __init__(
        self,
        folder: Path,
        settings: Recording,
        size_limit: SizeLimit,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._has_judgements = settings.has_judgements
        self._size_limit = size_limit
        self._wall = wall
        self._queue: deque[_Queued] = deque()
        # two counters, because each thread adds to its own
        self._queued_bytes = 0
        self._taken_bytes = 0
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._lost = 0
        self._told: set[str] = set()
        self._texts = _WrittenTexts(folder, settings, size_limit)

    def open(self) -> None:
        """Open the files and start the thread.

        Raises:
            OSError: a file cannot be opened.
        """
        self._events = RotatingFile(self._folder, EVENTS)
        try:
            self._judgements = RotatingFile(self._folder, JUDGEMENTS)
        except OSError:
            self._events.close()
            raise
        # a daemon, as the threads of loops are: `close` ends it in any orderly end
        self._thread = threading.Thread(target=self._run, name="zerowait-record", daemon=True)
        self._thread.start()

    def put(self, event: Event, *, step: int | None) -> None:
        """Queue an event; from the loop's thread.

        Args:
            event: one of `RECORDED`.
            step: of the training.
        """
        size_bytes = _EVENT_BYTES
        if isinstance(event, JudgementSettled):
            if not self._has_judgements:
                return
            size_bytes += len(event.request) + len(event.reply)
            if event.failed:
                size_bytes += sum(len(each.reply) for each in event.failed)
        if self._queued_bytes - self._taken_bytes > _MOST_QUEUED_BYTES:
            self._lost += 1
            return
        self._queued_bytes += size_bytes
        queue = self._queue
        queue.append((event, self._wall(), step, size_bytes))
        if len(queue) == 1:  # the thread goes on until the queue is empty
            self._wake.set()

    def close(self) -> None:
        """Write what is queued, within 10 s, and close the files. Idempotent."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._closing.set()
        self._wake.set()
        thread.join(_CLOSE_S)
        if thread.is_alive():
            _log.warning(
                "%s: %d events were not written within %g s: the disk does not answer",
                *(self._folder, len(self._queue), _CLOSE_S),
            )

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._wake.wait()
                self._closing.wait(_BATCH_S)
                self._wake.clear()
                self._write_queued()
            self._write_queued()
        finally:
            self._judgements.close()
            self._events.close()

    def _write_queued(self) -> None:
        size_limit, queue = self._size_limit, self._queue
        bytes_at_once = min(_BYTES_AT_ONCE, size_limit.most_bytes * _SHARE_AT_ONCE)
        while queue:
            judgements: list[JudgementLine] = []
            events: list[EventLine] = []
            # looked up once for several lines: for each it would cost CPU time
            is_full, are_kept = size_limit.is_full, self._texts.are_kept
            taken_bytes = 0
            while queue and taken_bytes < bytes_at_once:
                event, at, step, size_bytes = queue.popleft()
                taken_bytes += size_bytes
                try:
                    if not isinstance(event, JudgementSettled):
                        events.append(_event_line(event, at, step))
                    elif not is_full:
                        judgements.append(self._judgement(event, at, are_kept=are_kept))
                except Exception:  # noqa: BLE001 - one event must not cost the others
                    self._not_encoded()
            self._taken_bytes += taken_bytes
            size_limit.add(self._append(self._judgements, judgements))
            self._append(self._events, events)
        size_limit.measure()
        self._tell_of_limit()

    def _not_encoded(self) -> None:
        self._lost += 1
        self._tell("line", "an event could not be recorded", exc_info=True)

    def _judgement(self, event: JudgementSettled, at: float, *, are_kept: bool) -> JudgementLine:
        request, reply = self._texts.of(event, are_kept=are_kept)
        if are_kept and not event.failed:
            return _line(at, *_fields(event)[:_SHARED], request, reply, bool(event.reply))
        if not are_kept:
            outcome = outcome_without_words(event.outcome)
            event = msgspec.structs.replace(event, outcome=outcome)
        failed = []
        if event.source == "asked":
            # those who joined the call waited for the same attempts
            failed = [self._failed(each, are_kept=are_kept) for each in event.failed]
        return _line(at, *_fields(event)[:_SHARED], request, reply, bool(event.reply), failed)

    def _failed(self, attempt: FailedAttempt, *, are_kept: bool) -> FailedLine:
        return FailedLine(
            number=attempt.number,
            at=attempt.at,
            endpoint=attempt.endpoint,
            status=attempt.status,
            latency_s=attempt.latency_s,
            why=attempt.why,
            reply=self._texts.written(attempt.reply, are_kept=are_kept),
        )

    def _append(self, file: RotatingFile, lines: Sequence[msgspec.Struct]) -> int:
        """Append lines. Returns their size in bytes, written or not."""
        if not lines:
            return 0
        encoded = self._encoded(lines)
        try:
            file.append(encoded)
        except OSError as error:
            self._lost += encoded.count(b"\n")
            self._texts.forget()  # what these lines brought is written again
            why = f"{error.filename}: {error.strerror}"
            self._tell("disk", f"judgements are not recorded until there is room ({why})")
            return len(encoded)
        lost, self._lost = self._lost, 0
        if lost:
            self._append_event("record_lost", lines=lost, why="the disk was full or too slow")
        return len(encoded)

    def _encoded(self, lines: Sequence[msgspec.Struct]) -> bytes:
        try:
            return encoded_lines(lines)
        except Exception:  # noqa: BLE001 - one line must not cost the others
            if len(lines) == 1:
                self._not_encoded()
                return b""
            return b"".join(self._encoded([line]) for line in lines)

    def _append_event(self, kind: str, **fields: Any) -> None:
        """Append an event about the record itself."""
        self._append(self._events, [EventLine(at=self._wall(), kind=kind, fields=fields)])

    def _tell_of_limit(self) -> None:
        size_limit = self._size_limit
        if size_limit.keeps_texts:
            return
        reached = f"the record's {size_limit.most_bytes} bytes (record: max_bytes)"
        self._tell(
            "texts",
            f"prompts and replies are no longer recorded: {reached} are nearly reached",
            kind="record_cut",
        )
        if size_limit.is_full:
            self._tell(
                "full",
                f"judgements are no longer recorded: {reached} are reached",
                kind="record_cut",
            )

    def _tell(self, about: str, why: str, *, kind: str = "", exc_info: bool = False) -> None:
        """Warn once; with a `kind` it is an event, too."""
        if about in self._told:
            return
        self._told.add(about)
        _log.warning("%s: %s", self._folder, why, exc_info=exc_info)
        if kind:
            self._append_event(kind, why=why)


def _event_line(event: Event, at: float, step: int | None) -> EventLine:
    fields = msgspec.to_builtins(event, enc_hook=to_builtin)
    return EventLine(at=at, kind=EVENT_KINDS[type(event)], step=step, fields=fields)


class _WrittenTexts:
    """Bodies of judgements as a line holds them, where they were not written before.

    It remembers up to 65,536 keys, and then begins anew: texts may be written again.
    """

    def __init__(self, folder: Path, settings: Recording, size_limit: SizeLimit) -> None:
        self._folder = folder
        self._settings = settings
        self._size_limit = size_limit
        self._replies: dict[str, int] = {}  # by key: a checksum of the last one

    @property
    def are_kept(self) -> bool:
        """Whether texts are written as they are."""
        return self._settings.texts == "keep" and self._size_limit.keeps_texts

    def of(self, event: JudgementSettled, *, are_kept: bool) -> tuple[msgspec.Raw, msgspec.Raw]:
        """Request and reply of a judgement; each unset where it was written before.

        Args:
            event: of the judgement.
            are_kept: whether texts are written as they are.
        """
        key, request, reply = event.key, event.request, event.reply
        number = crc32(reply)  # 0 without a reply
        before = self._replies.get(key)
        if before is None:
            if not request:  # written in an earlier process, or so long ago
                return UNSET, self.written(reply, are_kept=are_kept)
            if len(self._replies) >= _MOST_KEYS:
                self._replies.clear()
            self._replies[key] = number
            # a comparison, which has no question, does not count its members' pictures
            if are_kept and not event.pictures and event.question is not None:
                return msgspec.Raw(request), self.written(reply, are_kept=are_kept)
            return (
                self._request(request, are_kept=are_kept),
                self.written(reply, are_kept=are_kept),
            )
        if number in (0, before):
            return UNSET, UNSET
        self._replies[key] = number
        return UNSET, self.written(reply, are_kept=are_kept)

    def written(self, reply: bytes, *, are_kept: bool) -> msgspec.Raw:
        """A reply as far as the settings allow."""
        if not reply:
            return UNSET
        if len(reply) > _MOST_REPLY_BYTES:
            reply = reply[:_MOST_REPLY_BYTES] + b" (cut)"
        return encoded_body(reply) if are_kept else self._hashed(reply)

    def _request(self, body: bytes, *, are_kept: bool) -> msgspec.Raw:
        """A request as far as the settings allow: our own JSON, on one line."""
        if are_kept:
            return msgspec.Raw(with_picture_files(body, self._folder))
        return self._hashed(with_picture_files(body, None))

    def _hashed(self, body: bytes) -> msgspec.Raw:
        if self._settings.texts == "drop" or not self._size_limit.keeps_texts:
            return UNSET
        return msgspec.Raw(b'"%b%b"' % (HASHED.encode(), sha256(body).hexdigest().encode()))

    def forget(self) -> None:
        """Nothing is known to be written any more."""
        self._replies.clear()
