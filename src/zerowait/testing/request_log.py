"""What the fake judge saw, counted on its side of the wire."""

from __future__ import annotations

import threading
from collections import Counter

import msgspec


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of the counts.

    Args:
        requests: for a completion, in either API, answered or not.
        answered: replies with a verdict that were sent to the end.
        by_status: replies that were sent to the end, by HTTP status.
        by_fault: replies with a fault in them, by the fault's name; ``capacity`` is a 429 of it.
        in_flight: requests that came in and have neither been answered nor been lost.
        peak_in_flight: the most of them at once.
        distinct_bodies: how many different bodies came.
        repeats: requests whose body had already been answered with a verdict.
        asked_per_body: how often each body came, by the hexadecimal sha-256 of its bytes.
        cancelled_by_client: requests whose client went away before the end of the reply.
        with_key: requests that carried a key; its value is not kept.
    """

    requests: int
    answered: int
    by_status: dict[int, int]
    by_fault: dict[str, int]
    in_flight: int
    peak_in_flight: int
    distinct_bodies: int
    repeats: int
    asked_per_body: dict[str, int]
    cancelled_by_client: int
    with_key: int


class SeenQuestion:
    """The history of one body."""

    __slots__ = ("admitted", "answered", "asked")

    def __init__(self) -> None:
        self.asked = 0
        self.admitted = 0
        self.answered = False


class RequestLog:
    """The counts; written by the judge's loop, read by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._questions: dict[bytes, SeenQuestion] = {}
        self._by_status: Counter[int] = Counter()
        self._by_fault: Counter[str] = Counter()
        self._requests = 0
        self._answered = 0
        self._in_flight = 0
        self._peak = 0
        self._repeats = 0
        self._cancelled = 0
        self._with_key = 0

    @property
    def at_peak(self) -> bool:
        """Whether one more request in flight would be a new record."""
        return self._in_flight >= self._peak

    def arrived(self, *, with_key: bool) -> None:
        """A request came in."""
        with self._lock:
            self._requests += 1
            self._with_key += with_key
            self._in_flight += 1
            self._peak = max(self._peak, self._in_flight)

    def asked(self, key: bytes) -> SeenQuestion:
        """The history of the body with this key, which was just asked once more."""
        with self._lock:
            question = self._questions.get(key)
            if question is None:
                question = self._questions[key] = SeenQuestion()
            question.asked += 1
            self._repeats += question.answered
            return question

    def lost(self, *, by_client: bool) -> None:
        """A request in flight ended without a reply."""
        with self._lock:
            self._in_flight -= 1
            self._cancelled += by_client

    def broken(self, fault: str) -> None:
        """A request in flight ended with a connection that the judge broke on purpose."""
        with self._lock:
            self._in_flight -= 1
            self._by_fault[fault] += 1

    def sent(self, status: int, fault: str, answers: SeenQuestion | None) -> None:
        """A reply is about to be sent; `answers` is what it gives a verdict on."""
        with self._lock:
            self._in_flight -= 1
            self._by_status[status] += 1
            if fault:
                self._by_fault[fault] += 1
            if answers is not None:
                answers.answered = True
                self._answered += 1

    def not_sent(self, status: int, fault: str, answers: SeenQuestion | None) -> None:
        """The client went away while the reply was being sent: takes `sent` back."""
        with self._lock:
            self._cancelled += 1
            self._by_status[status] -= 1
            if fault:
                self._by_fault[fault] -= 1
            if answers is not None:
                answers.answered = False
                self._answered -= 1

    def snapshot(self) -> Seen:
        """The counts as they are now."""
        with self._lock:
            return Seen(
                requests=self._requests,
                answered=self._answered,
                by_status={status: n for status, n in self._by_status.items() if n},
                by_fault={fault: n for fault, n in self._by_fault.items() if n},
                in_flight=self._in_flight,
                peak_in_flight=self._peak,
                distinct_bodies=len(self._questions),
                repeats=self._repeats,
                asked_per_body={key.hex(): q.asked for key, q in self._questions.items()},
                cancelled_by_client=self._cancelled,
                with_key=self._with_key,
            )
