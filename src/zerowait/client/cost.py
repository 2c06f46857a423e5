"""What requests cost, and a budget that they cannot exceed.

`CostMeter` estimates; `MeteringTransport` books. Every request passes the transport, retries and
hedged copies included: its worst case is reserved in the ledger before it is sent, and settled by
the usage that the reply bills. Money is counted in whole nano-dollars, so that sums are exact.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from zerowait.client.transport import Reply, Request, Transport, TransportError
from zerowait.completion import Completion
from zerowait.config import Price
from zerowait.errors import ClosedError, ZerowaitError
from zerowait.events import Listener, RequestCharged, ignore_event
from zerowait.pictures import pictures_in
from zerowait.types import Account

BUDGET: Final = "traffic.budget_usd"
NANO_USD: Final = 1_000_000_000
_NANO_PER_TOKEN: Final = 1000  # for each dollar per million tokens
_TEMPLATE_TOKENS: Final = 256
_PROMPT_AT_MOST: Final = 2
_ANSWER_AT_MOST: Final = 8  # some let a judge think on top of its max_tokens
_PICTURE_TOKENS: Final = 50_000
"""More than a picture costs at any provider: gpt-4o-mini bills the largest as 48,000 tokens."""
_UNBOUNDED_ANSWER: Final = 2**20
_LOG: Final = logging.getLogger(__name__)
_NOT_BILLED: Final = frozenset({503, 529})


class BudgetSpentError(ZerowaitError):
    """The budget has no room for the worst case of a request, which was not sent."""


class Ledger(Protocol):
    """Keeps one budget's account. A reservation that was never settled stays reserved."""

    @property
    def key(self) -> str:
        """Under which the budget is configured, for messages."""
        ...

    @property
    def account(self) -> Account:
        """The account as it is known here."""
        ...

    async def affords(self, amount: int) -> bool:
        """Whether a reservation of `amount` would be granted now."""
        ...

    async def reserve(self, amount: int) -> bool:
        """Whether `amount` was reserved; a killed process cannot lose what was.

        Raises:
            ZerowaitError: it could not be written down, and so was not reserved.
        """
        ...

    def settle(self, reserved: int, spent: int) -> None:
        """Put what was really spent in the place of a reservation."""
        ...

    async def aclose(self) -> None:
        """Write down what is settled, then close. Idempotent."""
        ...


class MemoryLedger:
    """An account that ends with its engine."""

    def __init__(self, limit: int | None, *, key: str = BUDGET) -> None:
        self.key = key
        self.account = Account(limit)

    async def affords(self, amount: int) -> bool:
        """See `Ledger`."""
        return self.account.affords(amount)

    async def reserve(self, amount: int) -> bool:
        """See `Ledger`."""
        limit, spent, reserved = self.account
        if not self.account.affords(amount):
            return False
        self.account = Account(limit, spent, reserved + amount)
        return True

    def settle(self, reserved: int, spent: int) -> None:
        """See `Ledger`."""
        limit, spent_before, reserved_before = self.account
        self.account = Account(limit, spent_before + spent, reserved_before - reserved)

    async def aclose(self) -> None:
        """Nothing to close."""


class _PricedFields(msgspec.Struct, frozen=True):
    """The fields of a request's body that bear on its price."""

    model: str = ""
    max_tokens: int = 0
    max_completion_tokens: int = 0
    max_output_tokens: int = 0


_priced_fields: Final = msgspec.json.Decoder(_PricedFields).decode


class CostMeter:
    """Estimates what one judge's requests cost, before they are sent and by what replies bill.

    Args:
        judge: its name, for warnings.
        prices: by the model that a request names; a model without a price costs nothing.
    """

    def __init__(self, judge: str, prices: Mapping[str, Price]) -> None:
        self.judge = judge
        self.prices = prices
        self._has_warned = False

    def worst(self, body: bytes) -> int | None:
        """The most that one send of `body` can cost, in nano-dollars; None without a price."""
        if not self.prices:
            return None
        fields = _priced_fields(body)
        price = self.prices.get(fields.model)
        return None if price is None else _worst(price, fields, body)

    def usage(self, request: bytes, completion: Completion) -> tuple[int, int]:
        """The prompt and completion tokens that a reply bills for the body `request`; or zeros.

        A bill that cannot be right (more than 2 prompt tokens for each byte of the request, or 8
        times its ``max_tokens``) counts as none, and the first one is warned of.
        """
        prompt, answer = completion.prompt_tokens, completion.completion_tokens
        if not (prompt or answer):
            return 0, 0
        asked = _priced_fields(request)
        allowed = max(asked.max_tokens, asked.max_completion_tokens, asked.max_output_tokens)
        longest = _ANSWER_AT_MOST * allowed or _UNBOUNDED_ANSWER
        excess = prompt - _PROMPT_AT_MOST * (len(request) + _TEMPLATE_TOKENS)
        if answer <= longest and (
            excess <= 0 or excess <= _PICTURE_TOKENS * pictures_in(request)[0]
        ):
            return prompt, answer
        if not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "judge %r: a reply bills %d prompt and %d completion tokens, more than its request "
                "can have cost; such bills count as none",
                self.judge,
                prompt,
                answer,
            )
        return 0, 0

    def cost(self, model: str, usage: tuple[int, int]) -> int:
        """What `usage` of `model` costs in nano-dollars; 0 without a price."""
        price = self.prices.get(model)
        return 0 if price is None else _cost(price, *usage)

    def usd(self, model: str, usage: tuple[int, int]) -> float:
        """The same in dollars."""
        return self.cost(model, usage) / NANO_USD


class MeteringTransport:
    """A transport that books what every request costs, and rejects those beyond the budget.

    Args:
        inner: sends.
        meter: the cost estimate of the judge whose requests these are.
        decode: the typed completion in a reply's body, or None.
        ledger: the budget, shared by all judges of a job.
        listener: receives a `RequestCharged` for every request that cost something.
    """

    def __init__(
        self,
        inner: Transport,
        meter: CostMeter,
        *,
        decode: Callable[[bytes], Completion | None],
        ledger: Ledger,
        listener: Listener = ignore_event,
    ) -> None:
        self._inner = inner
        self._meter = meter
        self._decode = decode
        self._ledger = ledger
        self._listener = listener

    async def send(self, request: Request, *, timeout_s: float) -> Reply:
        """The reply to `request`, decoded if it has a price; see `Transport.send`.

        A request that was sent and brought no bill is charged its worst case: how far the judge
        came is unknown.

        Raises:
            BudgetSpentError: it was not sent, because its worst case does not fit the budget.
            TransportError: no complete reply came.
        """
        worst = self._meter.worst(request.body)
        if worst is None:
            return await self._inner.send(request, timeout_s=timeout_s)
        await self._reserve(worst)
        charge, usage = worst, (0, 0)
        try:
            reply = await self._inner.send(request, timeout_s=timeout_s)
            if 200 <= reply.status < 300:
                reply = Reply(reply.status, reply.headers, reply.body, self._decode(reply.body))
            charge, usage = self._charge(reply, request.body, worst)
        except TransportError as error:
            charge = worst if error.sent else 0
            raise
        except ClosedError:
            charge = 0
            raise
        finally:
            self._ledger.settle(worst, charge)
            if charge or usage != (0, 0):
                self._tell(_priced_fields(request.body).model, charge, usage)
        return reply

    async def aclose(self) -> None:
        """Close the transport within. Idempotent."""
        await self._inner.aclose()

    async def _reserve(self, worst: int) -> None:
        try:
            granted = await self._ledger.reserve(worst)
        except ZerowaitError as error:
            raise BudgetSpentError(_not_written(error)) from error
        if not granted:
            raise BudgetSpentError(_spent(self._ledger, worst))

    def _charge(self, reply: Reply, body: bytes, worst: int) -> tuple[int, tuple[int, int]]:
        """What `reply` to the request `body` costs, and its usage.

        Rejections (4xx, and the two statuses that say overload) are not billed. Another 5xx may
        hide an answer that a gateway lost.
        """
        if 400 <= reply.status < 500 or reply.status in _NOT_BILLED:
            return 0, (0, 0)
        known = reply.completion
        usage = (0, 0) if known is None else self._meter.usage(body, known)
        if not all(usage):  # a half of a bill is none
            return worst, (0, 0)
        return self._meter.cost(_priced_fields(body).model, usage), usage

    def _tell(self, model: str, charge: int, usage: tuple[int, int]) -> None:
        self._listener(
            RequestCharged(
                judge=self._meter.judge,
                model=model,
                usd=charge / NANO_USD,
                prompt_tokens=usage[0],
                completion_tokens=usage[1],
                estimated=not any(usage),
            )
        )


async def budget_exceeded(ledger: Ledger, meter: CostMeter, body: bytes) -> str | None:
    """Why the budget has no room for the request `body` now; None when it has.

    Reserves nothing. Checked before a request is queued, so that a spent budget shows at once.

    Args:
        ledger: of the budget.
        meter: estimates the cost.
        body: the encoded request.
    """
    worst = meter.worst(body)
    try:
        fits = worst is None or await ledger.affords(worst)
    except ZerowaitError as error:
        return _not_written(error)
    return None if fits else _spent(ledger, worst or 0)


def _not_written(error: ZerowaitError) -> str:
    return f"the spend cannot be written down: {error}"


def _spent(ledger: Ledger, worst: int) -> str:
    limit, spent, reserved = ledger.account
    return (
        f"{ledger.key} is {_dollars(limit or 0)}: {_dollars(spent)} are spent and "
        f"{_dollars(reserved)} reserved, and this request may cost {_dollars(worst)}"
    )


def nano_usd(usd: float) -> int:
    """Dollars as whole nano-dollars.

    >>> nano_usd(0.25)
    250000000
    """
    return round(usd * NANO_USD)


def worst_case_usd(price: Price, body: bytes) -> float:
    """The most that one send of the request `body` can cost, in dollars.

    >>> worst_case_usd(Price(input=1.0, output=10.0), b'{"max_tokens": 100}')
    0.001275
    """
    return _worst(price, _priced_fields(body), body) / NANO_USD


def _worst(price: Price, fields: _PricedFields, body: bytes) -> int:
    longest = max(fields.max_tokens, fields.max_completion_tokens, fields.max_output_tokens)
    return _cost(price, _most_tokens(body), longest)


def _most_tokens(body: bytes) -> int:
    """The most tokens of a request: no token is shorter than a byte.

    The bytes of a picture are no tokens: it counts as the most that a provider bills for one.

    >>> _most_tokens(b"four") - _most_tokens(b"")
    4
    """
    pictures, data_bytes = pictures_in(body)
    return len(body) - data_bytes + pictures * _PICTURE_TOKENS + _TEMPLATE_TOKENS


def _cost(price: Price, prompt_tokens: int, completion_tokens: int) -> int:
    """Rounded up, so that many small costs never sum to less than their worth."""
    per_million = price.input * prompt_tokens + price.output * completion_tokens
    return math.ceil(per_million * _NANO_PER_TOKEN)


def _dollars(nano: int) -> str:
    return f"${nano / NANO_USD:.6f}".rstrip("0").rstrip(".")
