"""Request log of the fake judge: counts of requests, replies, faults and repeats."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from zerowait.pictures import is_picture, picture_data, picture_url


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of the counts.

    Args:
        requests: for a completion, in either API, answered or not.
        answered: complete replies with a verdict.
        by_status: complete replies by HTTP status.
        by_fault: replies with a fault, by its name; ``capacity`` is a 429 for lack of capacity.
        in_flight: requests without a reply so far.
        peak_in_flight: maximum of these.
        distinct_bodies: number of distinct request bodies.
        repeats: requests whose body had already been answered with a verdict.
        asked_per_body: requests for each body, by the hexadecimal sha-256 of its bytes.
        cancelled_by_client: requests whose client disconnected before the end of the reply.
        with_key: requests with an API key; its value is not kept.
        pictures: requests that showed each picture, by the hexadecimal sha-256 of its bytes; of its
            URL where it was not sent along.
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
    pictures: dict[str, int] = {}


class BodyHistory:
    """Counts of one body's requests and admissions, and whether one was answered."""

    __slots__ = ("admitted", "answered", "asked")

    def __init__(self) -> None:
        self.asked = 0
        self.admitted = 0
        self.answered = False


class RequestLog:
    """The counts; written by the judge's loop, read by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._questions: dict[bytes, BodyHistory] = {}
        self._by_status: Counter[int] = Counter()
        self._by_fault: Counter[str] = Counter()
        self._requests = 0
        self._answered = 0
        self._in_flight = 0
        self._peak = 0
        self._repeats = 0
        self._cancelled = 0
        self._with_key = 0
        self._pictures: Counter[str] = Counter()

    @property
    def at_peak(self) -> bool:
        """Whether one more request in flight would be a new peak."""
        return self._in_flight >= self._peak

    def arrived(self, *, with_key: bool) -> None:
        """Count a request that arrived."""
        with self._lock:
            self._requests += 1
            self._with_key += with_key
            self._in_flight += 1
            self._peak = max(self._peak, self._in_flight)

    def asked(self, key: bytes) -> BodyHistory:
        """Count a request with this body; the body's history."""
        with self._lock:
            question = self._questions.get(key)
            if question is None:
                question = self._questions[key] = BodyHistory()
            question.asked += 1
            self._repeats += question.answered
            return question

    def showed(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Count the pictures in a request's messages."""
        contents = (message.get("content") for message in messages)
        parts = [part for content in contents if isinstance(content, list) for part in content]
        urls = [url for part in parts if is_picture(part) and (url := picture_url(part))]
        with self._lock:
            for url in urls:
                found = picture_data(url)
                self._pictures[sha256(url.encode() if found is None else found[0]).hexdigest()] += 1

    def lost(self, *, by_client: bool) -> None:
        """Count a request that ended without a reply."""
        with self._lock:
            self._in_flight -= 1
            self._cancelled += by_client

    def broken(self, fault: str) -> None:
        """Count a request whose connection a fault broke."""
        with self._lock:
            self._in_flight -= 1
            self._by_fault[fault] += 1

    def sent(self, status: int, fault: str, answers: BodyHistory | None) -> None:
        """Count a reply that is about to be sent.

        Args:
            status: of HTTP.
            fault: name of its fault, or empty.
            answers: the body that it gives a verdict on, if it has one.
        """
        with self._lock:
            self._in_flight -= 1
            self._by_status[status] += 1
            if fault:
                self._by_fault[fault] += 1
            if answers is not None:
                answers.answered = True
                self._answered += 1

    def not_sent(self, status: int, fault: str, answers: BodyHistory | None) -> None:
        """Undo `sent`, since the client disconnected while the reply was being sent."""
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
                pictures=dict(self._pictures),
            )
