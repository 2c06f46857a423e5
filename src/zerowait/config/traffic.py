"""Limits on judge requests: concurrency, rate, time, hedging, budget, proxy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from zerowait.config.checks import at_most, not_negative, positive
from zerowait.config.obfuscated_pickle import obfuscated
from zerowait.config.urls import check_proxy, shown_url

_MOST_USD = 1e9  # money is counted in whole nano-dollars of 64 bits
_YEAR_S = 366 * 86_400.0

MOST_SHARDS: Final = 64
BUDGETS: Final = ("budget_usd", "validation_budget_usd")


class Hedge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hedged requests: a late request is sent once more, and the first answer counts.

    Args:
        after: when a request is late: ``p95``: later than 95 % of the endpoint's answers; or
            seconds.
        extra: the most copies per request, in (0, 1].
    """

    after: str | float = "p95"
    extra: float = 0.05

    def __post_init__(self) -> None:
        if not 0 < self.extra <= 1:
            raise ValueError(f"extra must be in (0, 1], not {self.extra}")
        if isinstance(self.after, str):
            match = re.fullmatch(r"p(\d+(?:\.\d+)?)", self.after)
            if match is None or not 0 < float(match[1]) < 100:
                raise ValueError(f"after must be p50 to p99.9 or seconds, not {self.after!r}")
        else:
            positive("after", self.after)

    @property
    def share(self) -> float | None:
        """The quantile of `after`, in (0, 1), or None when it is seconds."""
        return float(self.after[1:]) / 100 if isinstance(self.after, str) else None

    @property
    def after_s(self) -> float | None:
        """The seconds of `after`, or None when it is a quantile."""
        return None if isinstance(self.after, str) else self.after


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a model costs, in dollars per million tokens; 0 for one of your own."""

    input: float
    output: float

    def __post_init__(self) -> None:
        for name in ("input", "output"):
            not_negative(name, getattr(self, name))
            at_most(name, getattr(self, name), _MOST_USD)


class Sharding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many processes a job's hub is spread over, where it runs under Ray.

    Args:
        shards: processes; one does about 2,000 judgements per second on a core of its own.
    """

    shards: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.shards <= MOST_SHARDS:
            raise ValueError(f"shards must be from 1 to {MOST_SHARDS}, not {self.shards}")


class Traffic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits on the requests to judges.

    Args:
        concurrency: requests in flight: a number for the whole job, or ``auto``: an adaptive limit
            for each endpoint and model.
        max_concurrency: the most requests in flight per endpoint and model, with ``auto``.
        rpm: requests per minute to each endpoint and model; None: what its ``x-ratelimit``
            headers say; ``off``: ignore them.
        tpm: tokens per minute, prompt and answer, likewise.
        hedge: when late requests are sent once more, or ``off``.
        timeout_s: of one attempt, from the moment it is sent.
        deadline_s: of one judgement, from its first send, over all attempts; also how long requests
            wait for a judge that worked before and cannot be reached.
        attempts: the most sends of one judgement; those that fail while the circuit breaker is
            open, or cannot reach an endpoint that answered before, do not count.
        give_up_after: failed judgements without a single success that end the run (waiting does not
            repair a wrong key or model name); ``off``: the run goes on.
        group_deadline_s: how long a group's shape waits for a sibling that was not submitted yet.
        budget_usd: what the judges may cost; needs ``prices``. None is no budget.
        validation_budget_usd: what they may cost for samples whose ``split`` is not ``train``,
            which are then not paid from `budget_usd`. None: they are.
        budget_name: the name under which spending is counted over runs; default: the configuration
            file, or, without a file, this engine alone.
        proxy: the URL of the proxy that requests go through, ``http://user:password@host:3128``;
            ``env``: that of ``HTTPS_PROXY``, ``HTTP_PROXY`` or ``ALL_PROXY``, except for hosts in
            ``NO_PROXY``. None or ``off``: requests go directly, whatever the environment says.
    """

    concurrency: int | Literal["auto"] = "auto"
    max_concurrency: int = 1024
    rpm: float | Literal["off"] | None = None
    tpm: float | Literal["off"] | None = None
    hedge: Hedge | Literal["off"] = Hedge()
    timeout_s: float = 60.0
    deadline_s: float = 300.0
    attempts: int = 6
    give_up_after: int | Literal["off"] | None = 100
    group_deadline_s: float = 600.0
    budget_usd: float | None = None
    validation_budget_usd: float | None = None
    budget_name: str | None = None
    proxy: str | None = None

    @property
    def slots(self) -> int:
        """The most requests in flight, over all endpoints or, with ``auto``, for each one."""
        return self.max_concurrency if self.concurrency == "auto" else self.concurrency

    def __repr__(self) -> str:  # a password in the proxy's URL must not reach a log
        shown = [(name, value) for name, value in self.__rich_repr__() if value is not None]
        return f"Traffic({', '.join(f'{name}={value!r}' for name, value in shown)})"

    __str__ = __repr__

    def __rich_repr__(self) -> Any:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            hidden = name == "proxy" and value not in (None, "env", "off")
            yield name, shown_url(value) if hidden else value

    def __reduce__(self) -> tuple[Any, ...]:
        return obfuscated(_traffic, msgspec.structs.asdict(self))

    def __post_init__(self) -> None:
        if self.proxy is not None:
            check_proxy("proxy", self.proxy)
        for name in BUDGETS:
            value = getattr(self, name)
            if value is not None:
                not_negative(name, value)
                at_most(name, value, _MOST_USD)
        for name in ("concurrency", "rpm", "tpm", "give_up_after"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                positive(name, value)
        for name in ("max_concurrency", "timeout_s", "deadline_s", "attempts", "group_deadline_s"):
            positive(name, getattr(self, name))
        for name in ("timeout_s", "deadline_s", "group_deadline_s"):
            at_most(name, getattr(self, name), _YEAR_S)


def _traffic(settings: Mapping[str, Any]) -> Traffic:
    return Traffic(**settings)
