"""The shell around the network: the transport port, retries, the limiter, and the client.

`aiohttp` is loaded when an `AiohttpTransport` is made, not before.
"""

from zerowait.client.adaptive import AdaptiveLimit
from zerowait.client.aiohttp_transport import AiohttpTransport
from zerowait.client.client import Answer, JudgeClient
from zerowait.client.cost import (
    NANO_USD,
    BudgetSpentError,
    Ledger,
    MemoryLedger,
    Metered,
    nano_usd,
    worst_case_usd,
)
from zerowait.client.endpoints import Target, target
from zerowait.client.http_transport import HttpTransport
from zerowait.client.lanes import Lane, Lanes
from zerowait.client.limiter import Ending, FixedLimit, Gauge, Limit, Limiter, Sample, Slot
from zerowait.client.port import Reply, ReplyTooLongError, Request, Transport, TransportError
from zerowait.client.quota import Claim, Quota
from zerowait.client.retry import Effort, GiveUp, Retry, decide
from zerowait.client.secret import Secret

__all__ = [
    "NANO_USD",
    "AdaptiveLimit",
    "AiohttpTransport",
    "Answer",
    "BudgetSpentError",
    "Claim",
    "Effort",
    "Ending",
    "FixedLimit",
    "Gauge",
    "GiveUp",
    "HttpTransport",
    "JudgeClient",
    "Lane",
    "Lanes",
    "Ledger",
    "Limit",
    "Limiter",
    "MemoryLedger",
    "Metered",
    "Quota",
    "Reply",
    "ReplyTooLongError",
    "Request",
    "Retry",
    "Sample",
    "Secret",
    "Slot",
    "Target",
    "Transport",
    "TransportError",
    "decide",
    "nano_usd",
    "target",
    "worst_case_usd",
]
