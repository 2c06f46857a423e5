"""The script of a fake judge: how fast it is, how much it bears, and what goes wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from statistics import NormalDist
from typing import Any

import msgspec

from zerowait.config import Source, VerdictRule, build, read_yaml
from zerowait.errors import ConfigError, did_you_mean
from zerowait.testing.draws import Draws
from zerowait.testing.faults import FAULTS, AnyFault, check_shares
from zerowait.testing.orders import Prefers

_NORMAL = NormalDist()
_HALF_STEP = 2.0**-54  # keeps a draw of exactly 0 out of functions that have a pole there


def _not_negative(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be at least 0, not {value}")


class Latency(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long an answer takes, in seconds.

    Args:
        median_s: half of the answers are faster.
        sigma: of the log-normal distribution around it; 0 makes it constant.
        tail: exponent of a Pareto distribution instead; smaller is heavier.
        stall_share: of the answers take `stall_s` instead.
        stall_s: how long a stalled answer takes.
        longest_s: no answer takes longer.
    """

    median_s: float = 0.0
    sigma: float = 0.0
    tail: float | None = None
    stall_share: float = 0.0
    stall_s: float = 30.0
    longest_s: float = 600.0

    def __post_init__(self) -> None:
        for name in ("median_s", "sigma", "stall_s", "longest_s"):
            _not_negative(name, getattr(self, name))
        if not 0 <= self.stall_share <= 1:
            raise ValueError(f"stall_share must be in [0, 1], not {self.stall_share}")
        if self.tail is not None and (self.tail <= 0 or self.sigma):
            raise ValueError("tail must be greater than 0 and excludes sigma")

    def of(self, attempt: Draws) -> float:
        """The latency that an attempt's draws stand for, in seconds.

        >>> Latency(0.2).of(Draws(0.0, 0.5, 0.5, 0.0))
        0.2
        """
        if attempt.second < self.stall_share:
            return min(self.stall_s, self.longest_s)
        if not self.median_s:
            return 0.0
        factor, point = 1.0, attempt.first + _HALF_STEP
        if self.sigma:
            factor = math.exp(self.sigma * _NORMAL.inv_cdf(point))
        elif self.tail is not None:
            factor = (2.0 * point) ** (-1.0 / self.tail)
        return min(self.median_s * factor, self.longest_s)


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new capacity from `at_s` seconds after the first request; None leaves a value as it is."""

    at_s: float
    concurrency: int | None = None
    knee: int | None = None


class Capacity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much the judge bears; None means without limit.

    Args:
        concurrency: requests it works on at once; one more gets 429.
        rpm: requests per minute, in a bucket that refills evenly; beyond it 429 with Retry-After.
        tpm: tokens per minute (prompt and ``max_tokens``), likewise.
        burst_s: how many seconds of `rpm` and `tpm` the buckets hold.
        knee: with more requests at once than this, all get slower in proportion.
        retry_after_s: the ``Retry-After`` of a 429 for `concurrency`; None for none.
        changes: what becomes of `concurrency` and `knee` in the course of time.
    """

    concurrency: int | None = None
    rpm: float | None = None
    tpm: float | None = None
    burst_s: float = 1.0
    knee: int | None = None
    retry_after_s: float | None = None
    changes: tuple[Change, ...] = ()

    def __post_init__(self) -> None:
        for name in ("concurrency", "rpm", "tpm", "burst_s", "knee"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be greater than 0, not {value}")
        times_s = [change.at_s for change in self.changes]
        if times_s != sorted(times_s):
            raise ValueError("changes must be in the order of at_s")


AS_ASKED = VerdictRule(integer=(1, 10))
"""The verdict of a script that does not name one; known by its identity."""


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a fake judge does; two judges with one script answer alike.

    Args:
        seed: of everything that looks like chance.
        verdict: what it answers: a value of this rule, chosen by the messages' content. By default
            in the form that the request asks for (a range, a choice, criteria, a JSON schema), and
            a whole number from 1 to 10 where it does not say.
        prefers: what it answers where responses are compared: ``better`` is who has the greater
            last number in it; ``first`` and ``last`` go by the place and by nothing else.
        reply: the content around the verdict, such as ``{"score": {verdict}}``.
        obeys: it gives the verdict that the judged response asks for; without one the best to a
            response that holds the reference, and the worst to any other.
        latency: how long an answer takes.
        capacity: how much it bears.
        faults: what goes wrong; see `zerowait.testing.faults`.
        model: the model it says it is; None: whatever it was asked for.
        fingerprint: its ``system_fingerprint``.
    """

    seed: int = 0
    verdict: VerdictRule = AS_ASKED
    prefers: Prefers = "better"
    reply: str = "{verdict}"
    obeys: bool = False
    latency: Latency = Latency()
    capacity: Capacity = Capacity()
    faults: tuple[AnyFault, ...] = ()
    model: str | None = None
    fingerprint: str = "fp_fake"

    def __post_init__(self) -> None:
        if "{verdict}" not in self.reply:
            raise ValueError("reply must contain {verdict}")
        if self.verdict.schema is not None:
            raise ValueError(
                "a script has no verdict by a schema; give FakeJudge an answer instead"
            )
        if self.verdict.comparison is not None:
            raise ValueError("verdict is for single responses; comparisons are answered by prefers")
        check_shares(self.faults)


def load_script(script: str | Path | Mapping[str, Any]) -> Script:
    """The script in a YAML file or a mapping.

    Raises:
        ConfigError: names the file, the line, the key and the nearest right one.

    >>> load_script({"seed": 7, "faults": [{"status": {"status": 503, "share": 0.1}}]}).faults
    (Status(share=0.1, always=False, first=None, status=503, retry_after_s=None, message=''),)
    """
    if isinstance(script, Mapping):
        source = Source("script", deepcopy(dict(script)), {}, Path())
    else:
        source = read_yaml(Path(script).expanduser())
    if source.tree is None:
        return Script()
    if not isinstance(source.tree, dict):
        source.fail((), "must be a mapping")
    faults = _faults(source, source.tree.get("faults") or [])
    source.tree = {key: value for key, value in source.tree.items() if key != "faults"}
    try:
        return msgspec.structs.replace(build(source, (), Script), faults=faults)
    except ValueError as error:
        raise ConfigError(source.message(("faults",), str(error))) from None


def _faults(source: Source, tree: Any) -> tuple[AnyFault, ...]:
    if not isinstance(tree, list):
        source.fail(("faults",), "must be a list such as [{status: {status: 503, share: 0.1}}]")
    return tuple(_fault(source, index, item) for index, item in enumerate(tree))


def _fault(source: Source, index: int, item: Any) -> AnyFault:
    """A fault from its name alone, or from ``{name: {options}}``."""
    if isinstance(item, str):
        source.tree["faults"][index] = item = {item: {}}
    if not isinstance(item, dict) or len(item) != 1:
        source.fail(
            ("faults", index),
            "must be one fault's name with its options, such as {status: {status: 503, share: "
            f"0.1}}}}; known: {', '.join(FAULTS)}",
        )
    [(name, options)] = item.items()
    if name not in FAULTS:
        hint = did_you_mean(str(name), FAULTS)
        source.fail(("faults", index), f"names the fault {name!r}, which does not exist{hint}")
    if options is None:
        item[name] = {}
    return build(source, ("faults", index, name), FAULTS[name])
