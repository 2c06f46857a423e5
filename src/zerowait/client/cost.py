"""What requests cost, and a budget that they cannot exceed.

Every request passes here, retries and hedges included: its worst case is reserved before it is
sent, and settled by the usage that the reply names. Money is counted in whole nano-dollars, so that
sums are exact.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from zerowait.client.transport import Reply, Request, Transport, TransportError
from zerowait.config import Price
from zerowait.errors import ClosedError, ZerowaitError
from zerowait.events import Listener, RequestCharged, ignore_event
from zerowait.types import Account

BUDGET: Final = "traffic.budget_usd"
NANO_USD: Final = 1_000_000_000
_NANO_PER_TOKEN: Final = 1000  # for each dollar per million tokens
_TEMPLATE_TOKENS: Final = 256
_PROMPT_AT_MOST: Final = 2
_ANSWER_AT_MOST: Final = 8  # some let a judge think on top of its max_tokens
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


class _Asked(msgspec.Struct, frozen=True):
    """What a request's body says that bears on its price."""

    model: str = ""
    max_tokens: int = 0
    max_completion_tokens: int = 0
    max_output_tokens: int = 0

    @property
    def longest(self) -> int:
        """The most tokens of an answer; 0 where the request sets no bound."""
        return max(self.max_tokens, self.max_completion_tokens, self.max_output_tokens)


_ASKED: Final = msgspec.json.Decoder(_Asked)


class Metered:
    """A transport that books what every request costs, and refuses those beyond the budget.

    Args:
        inner: sends.
        judge: whose requests these are.
        prices: by the model that a request names; one without a price is sent and not booked.
        usage: the prompt and completion tokens that a reply's body names, or zeros.
        ledger: the budget, shared by all judges of a job.
        listener: hears what every request cost.
    """

    def __init__(
        self,
        inner: Transport,
        *,
        judge: str,
        prices: Mapping[str, Price],
        usage: Callable[[bytes], tuple[int, int]],
        ledger: Ledger,
        listener: Listener = ignore_event,
    ) -> None:
        self._inner = inner
        self._judge = judge
        self._prices = prices
        self._usage = usage
        self._ledger = ledger
        self._listener = listener
        self._doubted = False

    async def refusal(self, body: bytes) -> str | None:
        """Why the budget cannot bear `body` now; None when it can, which reserves nothing.

        Asked before a request gets in line, so that a spent budget is said at once.
        """
        if self._ledger.account.limit is None:
            return None
        worst = self._worst(_ASKED.decode(body), body)
        try:
            fits = worst is None or await self._ledger.affords(worst)
        except ZerowaitError as error:
            return f"the spend cannot be written down: {error}"
        return None if fits else self._spent(worst or 0)

    async def send(self, request: Request, *, timeout_s: float) -> Reply:
        """The reply to `request`; see `zerowait.client.transport.Transport`.

        A request that was sent and brought no bill is charged its worst case: nobody knows how far
        the judge came.

        Raises:
            BudgetSpentError: it was not sent, because its worst case does not fit the budget.
            TransportError: no complete reply came.
        """
        asked = _ASKED.decode(request.body) if self._prices else None
        worst = None if asked is None else self._worst(asked, request.body)
        if asked is None or worst is None:
            return await self._inner.send(request, timeout_s=timeout_s)
        await self._reserve(worst)
        charge, usage = worst, (0, 0)
        try:
            reply = await self._inner.send(request, timeout_s=timeout_s)
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
                self._tell(asked.model, charge, usage)
        return reply

    def usage(self, request: bytes, reply: bytes) -> tuple[int, int]:
        """The prompt and completion tokens that the request cost by its reply; zeros if unknown.

        What cannot be (more than 2 prompt tokens for each byte of the request, or 8 times its
        ``max_tokens``) is unknown, too.
        """
        usage = self._usage(reply)
        if not any(usage) or _is_plausible(_ASKED.decode(request), request, usage):
            return usage
        if not self._doubted:
            self._doubted = True
            _LOG.warning(
                "judge %r: a reply bills %d prompt and %d completion tokens, more than its request "
                "can have cost; such bills count as none",
                self._judge,
                *usage,
            )
        return 0, 0

    def usd(self, model: str, usage: tuple[int, int]) -> float:
        """What `usage` of `model` costs in dollars; 0 without a price."""
        price = self._prices.get(model)
        return 0.0 if price is None else _cost(price, *usage) / NANO_USD

    async def aclose(self) -> None:
        """Close the transport within. Idempotent."""
        await self._inner.aclose()

    async def _reserve(self, worst: int) -> None:
        try:
            granted = await self._ledger.reserve(worst)
        except ZerowaitError as error:
            raise BudgetSpentError(f"the spend cannot be written down: {error}") from error
        if not granted:
            raise BudgetSpentError(self._spent(worst))

    def _worst(self, asked: _Asked, body: bytes) -> int | None:
        price = self._prices.get(asked.model)
        return None if price is None else _worst(price, asked, body)

    def _charge(self, reply: Reply, body: bytes, worst: int) -> tuple[int, tuple[int, int]]:
        """What `reply` to the request `body` costs, and its usage.

        Refusals (4xx, and the two statuses that say overload) are not billed. Another 5xx may
        hide an answer that a gateway lost.
        """
        if 400 <= reply.status < 500 or reply.status in _NOT_BILLED:
            return 0, (0, 0)
        usage = self.usage(body, reply.body) if 200 <= reply.status < 300 else (0, 0)
        if not all(usage):  # a half of a bill is none
            return worst, (0, 0)
        return _cost(self._prices[_ASKED.decode(body).model], *usage), usage

    def _tell(self, model: str, charge: int, usage: tuple[int, int]) -> None:
        self._listener(
            RequestCharged(
                judge=self._judge,
                model=model,
                usd=charge / NANO_USD,
                prompt_tokens=usage[0],
                completion_tokens=usage[1],
                estimated=not any(usage),
            )
        )

    def _spent(self, worst: int) -> str:
        limit, spent, reserved = self._ledger.account
        return (
            f"{self._ledger.key} is {_dollars(limit or 0)}: {_dollars(spent)} are spent and "
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
    return _worst(price, _ASKED.decode(body), body) / NANO_USD


def _worst(price: Price, asked: _Asked, body: bytes) -> int:
    """No token is shorter than a byte, so the body has no more tokens than bytes."""
    return _cost(price, len(body) + _TEMPLATE_TOKENS, asked.longest)


def _is_plausible(asked: _Asked, body: bytes, usage: tuple[int, int]) -> bool:
    """Whether a request may have cost so many tokens: a bill is only a server's word."""
    prompt, answer = usage
    longest = _ANSWER_AT_MOST * asked.longest or _UNBOUNDED_ANSWER
    return prompt <= _PROMPT_AT_MOST * (len(body) + _TEMPLATE_TOKENS) and answer <= longest


def _cost(price: Price, prompt_tokens: int, completion_tokens: int) -> int:
    """Rounded up, so that many small costs never sum to less than their worth."""
    per_million = price.input * prompt_tokens + price.output * completion_tokens
    return math.ceil(per_million * _NANO_PER_TOKEN)


def _dollars(nano: int) -> str:
    return f"${nano / NANO_USD:.6f}".rstrip("0").rstrip(".")
