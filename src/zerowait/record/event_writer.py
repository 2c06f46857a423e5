"""Writes judgements and events in a thread of its own, so that no judgement waits for a disk."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

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
from zerowait.record.judgements import EVENTS, JUDGEMENTS, EventLine, FailedLine, JudgementLine
from zerowait.record.lines import RotatingFile, to_builtin
from zerowait.record.room import Room
from zerowait.record.texts import outcome_without_words, with_picture_files

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
_LINES_AT_ONCE: Final = 64
_MOST_QUEUED_BYTES: Final = 128 * 2**20
_EVENT_BYTES: Final = 1024  # about what a queued event takes beside its bodies
_CLOSE_S: Final = 10.0
_MOST_KEYS: Final = 65_536
_MOST_REPLY_BYTES: Final = 2**20
_STEP_OF_EVENT: Final = "step"

_log = logging.getLogger(__name__)


class _Queued(NamedTuple):
    """An event, when it came, the training step at that time, and its size in bytes."""

    event: Event
    at: float
    step: int | None
    size_bytes: int


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
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._lost = 0
        self._told: set[str] = set()
        self._texts = _WrittenTexts(folder, settings, room)
        self._encode = msgspec.json.Encoder(enc_hook=to_builtin).encode

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
            if not self._settings.has_judgements:
                return
            size_bytes += len(event.request) + len(event.reply)
            size_bytes += sum(len(each.reply) for each in event.failed)
        if self._queued_bytes > _MOST_QUEUED_BYTES:
            self._lost += 1
            return
        self._queued_bytes += size_bytes
        self._queue.append(_Queued(event, self._wall(), step, size_bytes))
        if not self._wake.is_set():
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
        while self._queue:
            judgements: list[bytes] = []
            events: list[bytes] = []
            while self._queue and len(judgements) + len(events) < _LINES_AT_ONCE:
                queued = self._queue.popleft()
                self._queued_bytes -= queued.size_bytes
                lines = judgements if isinstance(queued.event, JudgementSettled) else events
                try:
                    line = self._line(queued)
                except Exception:  # noqa: BLE001 - one event must not cost the others
                    self._lost += 1
                    self._tell("line", "an event could not be recorded", exc_info=True)
                    continue
                if line is not None:
                    self._room.add(len(line))
                    lines.append(line)
            self._append(self._judgements, judgements)
            self._append(self._events, events)
        self._room.measure()
        self._tell_of_room()

    def _line(self, queued: _Queued) -> bytes | None:
        event = queued.event
        if isinstance(event, JudgementSettled):
            if self._room.is_full:
                return None
            return self._encode(self._judgement(event, queued.at))
        fields = msgspec.to_builtins(event, enc_hook=to_builtin)
        kind = EVENT_KINDS[type(event)]
        return self._encode(EventLine(at=queued.at, kind=kind, step=queued.step, fields=fields))

    def _judgement(self, event: JudgementSettled, at: float) -> JudgementLine:
        texts = self._texts
        request_sha256, request = texts.request(event.key, event.request)
        reply_sha256, reply = texts.reply(event.key, event.reply)
        outcome = event.outcome
        if not texts.are_kept:
            outcome = outcome_without_words(outcome)
        return JudgementLine(
            at=at,
            judge=event.judge,
            component=event.component,
            uids=list(event.uids),
            question=event.question,
            vote=event.vote,
            key=event.key,
            source=event.source,
            outcome=outcome,
            attempts=event.attempts,
            hedges=event.hedges,
            status=event.status,
            endpoint=event.endpoint,
            model=event.model,
            form=event.form,
            latency_s=event.latency_s,
            queue_s=event.queue_s,
            prompt_tokens=event.prompt_tokens,
            completion_tokens=event.completion_tokens,
            cost_usd=event.cost_usd,
            request_sha256=request_sha256,
            reply_sha256=reply_sha256,
            request=request,
            reply=reply,
            # those who joined the call waited for the same attempts
            failed=[self._failed(each) for each in event.failed] if event.source == "asked" else [],
        )

    def _failed(self, attempt: FailedAttempt) -> FailedLine:
        reply_sha256, reply = self._texts.text(attempt.reply)
        return FailedLine(
            number=attempt.number,
            at=attempt.at,
            endpoint=attempt.endpoint,
            status=attempt.status,
            latency_s=attempt.latency_s,
            why=attempt.why,
            reply_sha256=reply_sha256,
            reply=reply,
        )

    def _append(self, file: RotatingFile, lines: list[bytes]) -> None:
        if not lines:
            return
        try:
            file.write(b"\n".join(lines))
        except OSError as error:
            self._lost += len(lines)
            self._texts.forget()  # what these lines brought is written again
            why = f"{error.filename}: {error.strerror}"
            self._tell("disk", f"judgements are not recorded until there is room ({why})")
            return
        lost, self._lost = self._lost, 0
        if lost:
            fields = {"lines": lost, "why": "the disk was full or too slow"}
            self._append(self._events, [self._own_line("record_lost", fields)])

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
            self._append(self._events, [self._own_line(kind, {"why": why})])

    def _own_line(self, kind: str, fields: dict[str, Any]) -> bytes:
        return self._encode(EventLine(at=self._wall(), kind=kind, fields=fields))


class _Written(msgspec.Struct):
    """What was written of a key's texts: their hashes, and Python's own hash of the reply."""

    request_sha256: str = ""
    reply_sha256: str = ""
    reply: int = 0


class _WrittenTexts:
    """The hash of each text, and the text itself where it was not written before.

    It remembers the latest 65,536 keys; texts of older ones are written again.
    """

    def __init__(self, folder: Path, settings: Recording, room: Room) -> None:
        self._folder = folder
        self._settings = settings
        self._room = room
        self._written: OrderedDict[str, _Written] = OrderedDict()

    @property
    def are_kept(self) -> bool:
        """Whether texts are written as they are."""
        return self._settings.texts == "keep" and self._room.keeps_texts

    def request(self, key: str, body: bytes) -> tuple[str, str | None]:
        """The hash of a request, empty where it is not known, and its text or None."""
        written = self._of(key)
        if written.request_sha256 or not body:
            return written.request_sha256, None
        written.request_sha256, text = self.text(body, is_request=True)
        return written.request_sha256, text

    def reply(self, key: str, body: bytes) -> tuple[str, str | None]:
        """The hash of a reply, empty where there is none, and its text or None."""
        if not body:
            return "", None
        written = self._of(key)
        number = hash(body)  # bytes keep theirs, and a cached reply is one object
        if written.reply_sha256 and written.reply == number:
            return written.reply_sha256, None
        written.reply = number
        written.reply_sha256, text = self.text(body)
        return written.reply_sha256, text

    def text(self, body: bytes, *, is_request: bool = False) -> tuple[str, str | None]:
        """The hash of a body and its text, as far as the settings allow."""
        if not body or self._settings.texts == "drop":
            return "", None
        if is_request:
            body = with_picture_files(body, self._folder if self.are_kept else None)
        elif len(body) > _MOST_REPLY_BYTES:
            body = body[:_MOST_REPLY_BYTES] + b" (cut)"
        text = body.decode("utf-8", "replace")
        if "\ufffd" in text:
            body = text.encode()
        return sha256(body).hexdigest(), text if self.are_kept else None

    def forget(self) -> None:
        """Nothing is known to be written any more."""
        self._written.clear()

    def _of(self, key: str) -> _Written:
        written = self._written.get(key)
        if written is None:
            written = self._written[key] = _Written()
            if len(self._written) > _MOST_KEYS:
                self._written.popitem(last=False)
        return written
