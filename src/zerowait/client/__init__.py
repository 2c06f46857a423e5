"""The client of judge endpoints: transport, retries, limits, circuit breaker, hedging and cost.

It knows no judge, rubric or verdict: of zerowait it imports `types`, `errors`, `events`, `config`,
`attribution` and `completion` only (tests/test_architecture.py).
"""

from zerowait.client.client import JudgeClient, JudgeReply
from zerowait.client.cost import (
    NANO_USD,
    BudgetSpentError,
    CostMeter,
    Ledger,
    MemoryLedger,
    MeteringTransport,
    budget_exceeded,
    nano_usd,
    worst_case_usd,
)
from zerowait.client.endpoint_state import EndpointState, EndpointStates
from zerowait.client.http.transport import HttpTransport
from zerowait.client.limits.adaptive import AdaptiveLimit
from zerowait.client.limits.limiter import (
    AttemptOutcome,
    AttemptSample,
    FixedLimit,
    Gauge,
    Limit,
    Limiter,
    Slot,
)
from zerowait.client.limits.quota import Quota, Reservation
from zerowait.client.request_state import FormRefusedError, RequestCounts
from zerowait.client.retry import GiveUp, Retry, RetryContext, decide
from zerowait.client.secret import Secret
from zerowait.client.target import Target, target
from zerowait.client.transport import Reply, ReplyTooLongError, Request, Transport, TransportError

__all__ = [
    "NANO_USD",
    "AdaptiveLimit",
    "AttemptOutcome",
    "AttemptSample",
    "BudgetSpentError",
    "CostMeter",
    "EndpointState",
    "EndpointStates",
    "FixedLimit",
    "FormRefusedError",
    "Gauge",
    "GiveUp",
    "HttpTransport",
    "JudgeClient",
    "JudgeReply",
    "Ledger",
    "Limit",
    "Limiter",
    "MemoryLedger",
    "MeteringTransport",
    "Quota",
    "Reply",
    "ReplyTooLongError",
    "Request",
    "RequestCounts",
    "Reservation",
    "Retry",
    "RetryContext",
    "Secret",
    "Slot",
    "Target",
    "Transport",
    "TransportError",
    "budget_exceeded",
    "decide",
    "nano_usd",
    "target",
    "worst_case_usd",
]
