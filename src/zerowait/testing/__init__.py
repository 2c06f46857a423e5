"""Test tools for judges and trainers: a fake judge server with faults, and a virtual clock."""

from zerowait.testing.completions import AssistantMessage
from zerowait.testing.fake_judge import FakeJudge, serve_forever
from zerowait.testing.faults import (
    Empty,
    Ending,
    ErrorInBody,
    Exhausted,
    Garbage,
    Hang,
    Length,
    Moderation,
    OutOfRange,
    Refusal,
    Reset,
    Status,
    TruncatedJson,
    WrongTypes,
)
from zerowait.testing.request_log import Seen
from zerowait.testing.script import Capacity, Change, Latency, Script, load_script
from zerowait.testing.verdicts import verdict_for
from zerowait.testing.virtual import DeadlockError, virtually

__all__ = [
    "AssistantMessage",
    "Capacity",
    "Change",
    "DeadlockError",
    "Empty",
    "Ending",
    "ErrorInBody",
    "Exhausted",
    "FakeJudge",
    "Garbage",
    "Hang",
    "Latency",
    "Length",
    "Moderation",
    "OutOfRange",
    "Refusal",
    "Reset",
    "Script",
    "Seen",
    "Status",
    "TruncatedJson",
    "WrongTypes",
    "load_script",
    "serve_forever",
    "verdict_for",
    "virtually",
]
