"""Writes judgements and events in a thread of its own, so that no judgement waits for a disk.

A judgement becomes a line as soon as it is settled, while its request and reply are in the
processor's caches: in the thread, up to 200 ms later, the same takes twice as long. What takes
long itself, such as pictures and hashes of texts, is left to the thread.
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
from zerowait.record.lines import Lines, RotatingFile, to_builtin
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
_BLOCK_BYTES: Final = 192 * 2**10  # with one more line it fits into the memory of `Lines`
_MOST_QUEUED_BYTES: Final = 128 * 2**20
_EVENT_BYTES: Final = 1024  # about what a queued event takes beside its bodies
_LONG_BYTES: Final = 64 * 2**10
_LOOK_BYTES: Final = 64 * 2**10
_MOST_SPARE: Final = 32
_CLOSE_S: Final = 10.0
_MOST_KEYS: Final = 65_536
_MOST_REPLY_BYTES: Final = 2**20

_log = logging.getLogger(__name__)

_line: Final[Callable[..., JudgementLine]] = JudgementLine
_of_event: Final[Callable[[JudgementSettled], tuple[Any, ...]]] = attrgetter(
    *JudgementLine.__struct_fields__[1 : JudgementLine.__struct_fields__.index("request")]
)
"""What a line has as its event has it: all between `at` and the bodies, in the line's order."""


class _Late(NamedTuple):
    """An event of which the thread makes a line.

    Args:
        event: what happened.
        at: Unix time in seconds.
        size_bytes: about what it takes in memory.
        step: of the training.
        request, reply: of a judgement; empty where they were written before.
    """

    event: Event
    at: float
    size_bytes: int = _EVENT_BYTES
    step: int | None = None
    request: bytes = b""
    reply: bytes = b""


_Queued: TypeAlias = Lines | _Late
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
        self._block = Lines()  # to which `put` adds judgements until it is queued
        self._spare: list[Lines] = []  # written, for later blocks
        self._late = 0  # judgements in the queue that are not lines yet
        self._lock = threading.Lock()  # of the five above
        self._added_bytes = 0  # since the last look at the room
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._lost = 0
        self._told: set[str] = set()
        self._texts = _WrittenTexts(folder, settings, room)
        self._are_texts_kept = self._texts.are_kept  # at that look
        self._late_lines = Lines()  # of judgements
        self._event_lines = Lines()

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
        if not isinstance(event, JudgementSettled):
            self._put_late(_Late(event, self._wall(), step=step))  # its line is in another file
        elif self._settings.has_judgements:
            self._put_judgement(event)
        if not self._wake.is_set():
            self._wake.set()

    def _put_judgement(self, event: JudgementSettled) -> None:
        """Add a judgement's line to the block; queue it where its line may take long.

        So are those that come after it until the thread has made its line: the first line of a key
        has the texts of the others, and stays before them.
        """
        at = self._wall()
        request, reply = self._texts.new(event)
        takes_long = (
            self._late
            or not self._are_texts_kept
            or event.failed
            or event.pictures
            or len(reply) > _LONG_BYTES
            # a comparison, which has no question, does not count its members' pictures
            or (event.question is None and b";base64," in request)
        )
        if takes_long:
            size_bytes = _EVENT_BYTES + len(request) + len(reply)
            size_bytes += sum(len(each.reply) for each in event.failed)
            with self._lock:
                self._queue_block()
                self._late += 1
            self._put_late(_Late(event, at, size_bytes, request=request, reply=reply))
            return
        line = _line(
            at,
            *_of_event(event),
            msgspec.Raw(request) if request else UNSET,
            encoded_body(reply) if reply else UNSET,
            bool(event.reply),
        )
        with self._lock:
            block = self._block
            before_bytes = block.size_bytes
            try:
                block.add(line)
            except Exception:  # noqa: BLE001 - it must not cost the judgement
                self._not_encoded()
            added_bytes = block.size_bytes - before_bytes
            self._queued_bytes += added_bytes
            if block.size_bytes >= _BLOCK_BYTES:
                self._queue_block()
        self._added_bytes += added_bytes
        if self._added_bytes >= _LOOK_BYTES:
            self._look_at_room()

    def _look_at_room(self) -> None:
        """See whether there is room for texts; to look for each line would cost CPU time."""
        self._room.add(self._added_bytes)
        self._added_bytes = 0
        self._are_texts_kept = self._texts.are_kept

    def _put_late(self, late: _Late) -> None:
        with self._lock:
            self._queued_bytes += late.size_bytes
            self._queue.append(late)

    def _queue_block(self) -> None:
        """Queue the block, if it has lines, and begin another one; the caller has the lock."""
        if self._block.size_bytes:
            self._queue.append(self._block)
            self._block = self._spare.pop() if self._spare else Lines()

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
            queued = self._queue.popleft()
            size_bytes = queued.size_bytes
            if isinstance(queued, Lines):
                self._append(self._judgements, self._late_lines)
                self._append(self._judgements, queued)
                if len(self._spare) < _MOST_SPARE:
                    self._spare.append(queued)
            else:
                self._add_late(queued)
            with self._lock:
                self._queued_bytes -= size_bytes
                self._late -= isinstance(queued, _Late) and isinstance(
                    queued.event, JudgementSettled
                )
        self._append(self._judgements, self._late_lines)
        self._append(self._events, self._event_lines)
        self._room.measure()
        self._are_texts_kept = self._texts.are_kept
        self._tell_of_room()

    def _add_late(self, late: _Late) -> None:
        """Make the line of an event, and write the lines so far when they are many."""
        event, lines = late.event, self._late_lines
        before_bytes = lines.size_bytes
        try:
            if not isinstance(event, JudgementSettled):
                self._event_lines.add(_event_line(event, late.at, late.step))
            elif not self._room.is_full:
                lines.add(self._judgement(event, late))
        except Exception:  # noqa: BLE001 - one event must not cost the others
            self._not_encoded()
        self._room.add(lines.size_bytes - before_bytes)
        if lines.size_bytes >= _BLOCK_BYTES:
            self._append(self._judgements, lines)

    def _judgement(self, event: JudgementSettled, late: _Late) -> JudgementLine:
        texts = self._texts
        are_kept = texts.are_kept
        request = texts.request(late.request, are_kept=are_kept)
        reply = texts.written(late.reply, are_kept=are_kept)
        if not are_kept:
            outcome = outcome_without_words(event.outcome)
            event = msgspec.structs.replace(event, outcome=outcome)
        failed = []
        if event.source == "asked":
            # those who joined the call waited for the same attempts
            failed = [self._failed(each, are_kept=are_kept) for each in event.failed]
        return _line(late.at, *_of_event(event), request, reply, bool(event.reply), failed)

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

    def _append(self, file: RotatingFile, added: Lines) -> None:
        if not added.size_bytes:
            return
        lines = added.take()
        try:
            file.append(lines)
        except OSError as error:
            self._lost += bytes(lines).count(b"\n")
            self._texts.forget()  # what these lines brought is written again
            why = f"{error.filename}: {error.strerror}"
            self._tell("disk", f"judgements are not recorded until there is room ({why})")
            return
        lost, self._lost = self._lost, 0
        if lost:
            self._append_event("record_lost", lines=lost, why="the disk was full or too slow")

    def _append_event(self, kind: str, **fields: Any) -> None:
        """Append an event about the record itself."""
        self._event_lines.add(EventLine(at=self._wall(), kind=kind, fields=fields))
        self._append(self._events, self._event_lines)

    def _not_encoded(self) -> None:
        self._lost += 1
        self._texts.forget()  # what its line brought is written again
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
    """

    def __init__(self, folder: Path, settings: Recording, room: Room) -> None:
        self._folder = folder
        self._settings = settings
        self._room = room
        self._replies: dict[str, int] = {}  # by key: a hash of the last one

    @property
    def are_kept(self) -> bool:
        """Whether texts are written as they are."""
        return self._settings.texts == "keep" and self._room.keeps_texts

    def new(self, event: JudgementSettled) -> tuple[bytes, bytes]:
        """Request and reply of a judgement; each empty where it was written before."""
        key, reply = event.key, event.reply
        number = hash(reply) if reply else 0  # bytes keep theirs
        before = self._replies.get(key)
        if before is None:
            if event.request:  # else it was written in an earlier process, or so long ago
                if len(self._replies) >= _MOST_KEYS:
                    self._replies.clear()
                self._replies[key] = number
            return event.request, reply
        if number in (0, before):
            return b"", b""
        self._replies[key] = number
        return b"", reply

    def written(self, reply: bytes, *, are_kept: bool) -> msgspec.Raw:
        """A reply as far as the settings allow."""
        if not reply:
            return UNSET
        if len(reply) > _MOST_REPLY_BYTES:
            reply = reply[:_MOST_REPLY_BYTES] + b" (cut)"
        return encoded_body(reply) if are_kept else self._hashed(reply)

    def request(self, body: bytes, *, are_kept: bool) -> msgspec.Raw:
        """A request as far as the settings allow: our own JSON, on one line."""
        if not body:
            return UNSET
        if are_kept:
            return msgspec.Raw(with_picture_files(body, self._folder))
        return self._hashed(with_picture_files(body, None))

    def _hashed(self, body: bytes) -> msgspec.Raw:
        if self._settings.texts == "drop" or not self._room.keeps_texts:
            return UNSET
        return msgspec.Raw(b'"%b%b"' % (HASHED.encode(), sha256(body).hexdigest().encode()))

    def forget(self) -> None:
        """Nothing is known to be written any more."""
        self._replies.clear()
