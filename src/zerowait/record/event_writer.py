"""Writes judgements and events in a thread of its own, so that no judgement waits for a disk.

A judgement becomes a line as soon as it is settled, while its request and reply are in the
processor's caches: later, in the thread, the same takes three times as long. What may take long,
such as pictures and hashes of texts, is left to the thread.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

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
from zerowait.record.lines import RotatingFile, add_line, to_builtin
from zerowait.record.room import Room
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
_BLOCK_BYTES: Final = 64 * 2**10
_BYTES_AT_ONCE: Final = 2**20
_MOST_QUEUED_BYTES: Final = 128 * 2**20
_EVENT_BYTES: Final = 1024  # about what a queued event takes beside its bodies
_LONG_BYTES: Final = 64 * 2**10
_CLOSE_S: Final = 10.0
_MOST_KEYS: Final = 65_536
_MOST_REPLY_BYTES: Final = 2**20

_log = logging.getLogger(__name__)

_line: Final[Callable[..., JudgementLine]] = JudgementLine
_of_event: Final[Callable[[JudgementSettled], tuple[Any, ...]]] = attrgetter(
    *JudgementLine.__struct_fields__[1 : JudgementLine.__struct_fields__.index("request")]
)
"""What a line takes from its event as it is: all between `at` and the bodies, in its order."""


class _Late(NamedTuple):
    """An event that the thread makes a line of.

    Args:
        event: what happened.
        at: Unix time in seconds.
        step: of the training.
        request, reply: of a judgement, where they were not written before.
        size_bytes: about what it takes in memory.
    """

    event: Event
    at: float
    step: int | None = None
    request: bytes = b""
    reply: bytes = b""
    size_bytes: int = _EVENT_BYTES


_Queued: TypeAlias = bytearray | _Late
"""Lines of judgements, or an event that becomes one."""


class EventWriter:
    """Appends events to ``judgements.jsonl`` and ``events.jsonl`` soon after they happened.

    `put` only queues. A thread writes what was queued every 200 ms; a killed process loses no more
    than that. Where the disk is so slow that 128 MiB are waiting, or full, lines are lost: that is
    told once, counted, and written down as soon as there is room. Training goes on.

    Args:
        folder: of the record.
        settings: what is recorded.
        room: of the record.
        wall: Unix time in seconds.
    """

    def __init__(
        self,
        folder: Path,
        settings: Recording,
        room: Room,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._room = room
        self._wall = wall
        self._queue: deque[_Queued] = deque()
        self._queued_bytes = 0
        self._block = bytearray()  # of lines, to which `put` adds; then it goes into the queue
        self._lock = threading.Lock()  # of the three above
        self._is_full = room.is_full
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._lost = 0
        self._told: set[str] = set()
        self._texts = _WrittenTexts(folder, settings, room)

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
        if self._queued_bytes > _MOST_QUEUED_BYTES:
            self._lost += 1
            return
        if isinstance(event, JudgementSettled):
            if not self._settings.has_judgements:
                return
            if not self._is_full:
                self._put_judgement(event)
        else:
            self._put_late(_Late(event, self._wall(), step))
        if not self._wake.is_set():
            self._wake.set()

    def _put_judgement(self, event: JudgementSettled) -> None:
        """Add a judgement's line to the block, or queue the event where that may take long."""
        at = self._wall()
        request, reply = self._texts.new(event)
        if not self._texts.are_quick(event):
            size_bytes = _EVENT_BYTES + len(request) + len(reply)
            size_bytes += sum(len(each.reply) for each in event.failed)
            self._put_late(_Late(event, at, None, request, reply, size_bytes))
            return
        line = _line(
            at,
            *_of_event(event),
            request=msgspec.Raw(request) if request else UNSET,
            reply=encoded_body(reply) if reply else UNSET,
            replied=bool(event.reply),
        )
        with self._lock:
            block = self._block
            before_bytes = len(block)
            try:
                add_line(block, line)
            except Exception:  # noqa: BLE001 - costs no judgement
                self._not_encoded()
            self._queued_bytes += len(block) - before_bytes
            if len(block) >= _BLOCK_BYTES:
                self._queue_block()

    def _put_late(self, late: _Late) -> None:
        with self._lock:
            self._queue_block()  # lines of one key stay in order
            self._queued_bytes += late.size_bytes
            self._queue.append(late)

    def _queue_block(self) -> None:
        """Queue the lines in the block, and begin another one; the caller has the lock."""
        block = self._block
        if not block:
            return
        self._queue.append(block)
        self._block = bytearray()
        self._add_to_room(len(block))

    def _add_to_room(self, size_bytes: int) -> None:
        self._room.add(size_bytes)
        # looked up once for each block: for each line it would cost CPU time
        self._is_full = self._room.is_full
        self._texts.look()

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
        with self._lock:
            self._queue_block()
        while self._queue:
            judgements: list[bytearray] = []
            events = bytearray()
            taken_bytes = 0
            while self._queue and taken_bytes < _BYTES_AT_ONCE:
                queued = self._queue.popleft()
                if isinstance(queued, bytearray):
                    judgements.append(queued)
                    taken_bytes += len(queued)
                    continue
                taken_bytes += queued.size_bytes
                try:
                    self._add_late(queued, judgements, events)
                except Exception:  # noqa: BLE001 - one event must not cost the others
                    self._not_encoded()
            with self._lock:
                self._queued_bytes -= taken_bytes
            self._append(self._judgements, judgements)
            self._append(self._events, [events] if events else [])
        self._room.measure()
        self._tell_of_room()

    def _add_late(self, late: _Late, judgements: list[bytearray], events: bytearray) -> None:
        event = late.event
        if not isinstance(event, JudgementSettled):
            add_line(events, _event_line(event, late.at, late.step))
        elif not self._is_full:
            lines = bytearray()
            add_line(lines, self._judgement(event, late))
            judgements.append(lines)
            self._add_to_room(len(lines))

    def _judgement(self, event: JudgementSettled, late: _Late) -> JudgementLine:
        texts = self._texts
        request, reply = texts.request(late.request), texts.written(late.reply)
        failed = []
        if event.failed and event.source == "asked":
            # those who joined the call waited for the same attempts
            failed = [self._failed(each) for each in event.failed]
        if not texts.are_kept:
            outcome = outcome_without_words(event.outcome)
            event = msgspec.structs.replace(event, outcome=outcome)
        return _line(
            late.at,
            *_of_event(event),
            request=request,
            reply=reply,
            replied=bool(event.reply),
            failed=failed,
        )

    def _failed(self, attempt: FailedAttempt) -> FailedLine:
        return FailedLine(
            number=attempt.number,
            at=attempt.at,
            endpoint=attempt.endpoint,
            status=attempt.status,
            latency_s=attempt.latency_s,
            why=attempt.why,
            reply=self._texts.written(attempt.reply),
        )

    def _append(self, file: RotatingFile, parts: list[bytearray]) -> None:
        if not parts:
            return
        try:
            file.append(parts)
        except OSError as error:
            self._lost += sum(part.count(b"\n") for part in parts)
            self._texts.forget()  # what these lines brought is written again
            why = f"{error.filename}: {error.strerror}"
            self._tell("disk", f"judgements are not recorded until there is room ({why})")
            return
        lost, self._lost = self._lost, 0
        if lost:
            self._append_event("record_lost", lines=lost, why="the disk was full or too slow")

    def _append_event(self, kind: str, **fields: Any) -> None:
        """Append an event about the record itself."""
        lines = bytearray()
        add_line(lines, EventLine(at=self._wall(), kind=kind, fields=fields))
        self._append(self._events, [lines])

    def _not_encoded(self) -> None:
        self._lost += 1
        self._tell("line", "an event could not be recorded", exc_info=True)

    def _tell_of_room(self) -> None:
        room = self._room
        if room.keeps_texts:
            return
        reached = f"the record's {room.most_bytes} bytes (record: max_bytes)"
        self._tell(
            "texts",
            f"prompts and replies are no longer recorded: {reached} are nearly reached",
            kind="record_cut",
        )
        if room.is_full:
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

    Attributes:
        are_kept: whether texts are written as they are, by the latest `look`.
    """

    def __init__(self, folder: Path, settings: Recording, room: Room) -> None:
        self._folder = folder
        self._settings = settings
        self._room = room
        self._replies: dict[str, int] = {}  # by key: a hash of the last one
        self.look()

    def look(self) -> None:
        """Look whether the settings want texts, and the record has room for them."""
        self.are_kept = self._settings.texts == "keep" and self._room.keeps_texts

    def new(self, event: JudgementSettled) -> tuple[bytes, bytes]:
        """Request and reply of a judgement; each empty where it was written before."""
        key, reply = event.key, event.reply
        number = hash(reply) if reply else 0  # bytes keep theirs
        before = self._replies.get(key)
        if before is None:
            if not event.request:  # written in an earlier process, or so long ago
                return b"", reply
            if len(self._replies) >= _MOST_KEYS:
                self._replies.clear()
            self._replies[key] = number
            return event.request, reply
        if number in (0, before):
            return b"", b""
        self._replies[key] = number
        return b"", reply

    def are_quick(self, event: JudgementSettled) -> bool:
        """Whether request and reply go into the line as they are, so that it is made at once."""
        return (
            self.are_kept
            and not event.failed
            and not event.pictures
            and len(event.reply) <= _LONG_BYTES
            # a comparison, which has no question, does not count its members' pictures
            and (event.question is not None or b";base64," not in event.request)
        )

    def request(self, body: bytes) -> msgspec.Raw:
        """A request as far as the settings allow: our own JSON, on one line."""
        if not body:
            return UNSET
        if self.are_kept:
            return msgspec.Raw(with_picture_files(body, self._folder))
        return self._hashed(with_picture_files(body, None))

    def written(self, reply: bytes) -> msgspec.Raw:
        """A reply as far as the settings allow."""
        if not reply:
            return UNSET
        if len(reply) > _MOST_REPLY_BYTES:
            reply = reply[:_MOST_REPLY_BYTES] + b" (cut)"
        return encoded_body(reply) if self.are_kept else self._hashed(reply)

    def _hashed(self, body: bytes) -> msgspec.Raw:
        if self._settings.texts == "drop" or not self._room.keeps_texts:
            return UNSET
        return msgspec.Raw(b'"%b%b"' % (HASHED.encode(), sha256(body).hexdigest().encode()))

    def forget(self) -> None:
        """Nothing is known to be written any more."""
        self._replies.clear()
