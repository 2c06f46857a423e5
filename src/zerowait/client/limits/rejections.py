"""What 429s teach: whether they depend on how many requests are in flight, and on how many. Pure.

A provider refuses because too many are in flight (a ceiling), because too many come per second (a
rate), or for reasons that have nothing to do with us: another tenant's traffic, an overloaded
replica behind a load balancer. Fewer requests help against the first two only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec

from zerowait.client.limits.limiter import AttemptOutcome, AttemptSample

LONGEST_PATIENCE_S: Final = 4.0
LONGEST_RETRY_AFTER_S: Final = 60.0
_SAME: Final = 0.1
_AT: Final = 0.97
_BEYOND: Final = 1.05
_PROOF: Final = 4
_FEW: Final = 8
_PROOF_OF_FEW: Final = 2
_DOUBT: Final = 8

_TOLERATED: Final = 0.01
_EXCESS: Final = 1.3
_ALARM: Final = 5.0
_QUIET: Final = 3.0
_ALARM_SENDS: Final = 64
_TRUSTED_SENDS: Final = 3000
_CLEARLY_LESS: Final = 0.9
_TRIED: Final = 0.8
_TRIAL_REFUSALS: Final = 10
_TRIAL_SENDS: Final = 100
_FELL: Final = 4.0


@dataclass(slots=True)
class _Refusals:
    """That not more than `level` others may be on the wire, and what speaks for and against it.

    Args:
        level: the fewest others that a refused request met.
        number: of the request that was refused first.
        refusals: of requests that met as many others, or more.
        answers: to requests that were sent later and met as many, or more.
        held: it was believed, and the limit cut.
    """

    level: int
    number: int
    refusals: int = 0
    answers: int = 0
    held: bool = False


class RejectionCeiling:
    """The number of requests in flight beyond which the provider answers 429.

    A refusal claims that what was on the wire beside the request is all that is accepted. It is
    believed when 4 were refused (2 where fewer than 8 are in flight) and they are most of those
    that were sent since with as many others or more; a single refusal at the ceiling that is known
    already is enough. Answers to requests that were sent later, with as many others, disprove it.
    """

    def __init__(self) -> None:
        self.height: int | None = None
        self._others: dict[int, int] = {}  # of each request on the wire, by its number
        self._claim: _Refusals | None = None
        self._left_since = 0
        self._met = 0  # refusals at the ceiling
        self._accepted_above = 0
        self._noticed_s = -math.inf
        self._probe_from_s = -math.inf
        self._hits = 0

    def sent(self, number: int, others: int) -> None:
        """Request `number` is sent, with `others` on the wire."""
        self._others[number] = others

    def ended(self, sample: AttemptSample) -> bool:
        """A request ended that was not refused.

        Returns whether its answer shows that a ceiling that was believed is none.
        """
        others = self._others.pop(sample.number, sample.others)
        self._left_since += 1
        if (
            self.height is not None
            and sample.ending is AttemptOutcome.SUCCEEDED
            and others >= self.height
        ):
            self._passed()
        claim = self._claim
        if (
            claim is None
            or sample.ending is not AttemptOutcome.SUCCEEDED
            or sample.number <= claim.number
            or others < claim.level
        ):
            return False
        claim.answers += 1
        if claim.answers < claim.refusals:
            return False
        self._claim = None
        if claim.held:
            self.height, self._hits = None, 0
            self._probe_from_s = -math.inf
        return claim.held

    def refused(self, sample: AttemptSample, limit: float, *, latency_s: float) -> int | None:
        """How many requests the provider accepts, if the refusal of `sample` tells; at least 1."""
        others = self._taken_off(sample)
        if others <= 0:
            return None  # alone on the wire: there is no less
        if self.height is not None and limit > self.height and others >= _AT * self.height:
            self._met += 1
            self._hit(sample, latency_s, self.height)
            return self.height
        claim = self._against(sample.number, others)
        proof = _PROOF if claim.level >= _FEW else _PROOF_OF_FEW
        if claim.refusals < proof or claim.refusals <= claim.answers + self._unanswered(claim):
            return None
        # of those that were sent before the ceiling was noticed, some may have ended since
        is_late = claim.held and sample.sent_s < self._noticed_s
        accepted = max(1, sample.on_wire + (self._left_since if is_late else 0))
        if not claim.held:
            claim.held = True
            self._hit(sample, latency_s, accepted)
        self.height = min(accepted, self.height or accepted)
        return accepted

    def _taken_off(self, sample: AttemptSample) -> int:
        """The others that a refused request met; for those sent after it, it was none of theirs."""
        for number in reversed(self._others):
            if number <= sample.number:
                break
            self._others[number] -= 1
        return self._others.pop(sample.number, sample.others)

    def _against(self, number: int, others: int) -> _Refusals:
        """The claim that the refusal of request `number` supports."""
        claim = self._claim
        if claim is not None and not claim.held:
            met = claim.answers + self._unanswered(claim)
            if met > _DOUBT + 4 * claim.refusals:
                claim = None
        elif claim is not None and others < claim.level:
            claim = None
        if claim is None:
            self._claim = claim = _Refusals(others, number)
        claim.level = min(claim.level, others)
        claim.refusals += 1
        return claim

    def _unanswered(self, claim: _Refusals) -> int:
        """Requests on the wire that speak against `claim`."""
        count = 0
        for number in reversed(self._others):
            if number <= claim.number:
                break
            count += self._others[number] >= claim.level
        return count

    def forget(self) -> None:
        """Nothing is known: the endpoint was away."""
        self.height, self._claim, self._hits = None, None, 0
        self._probe_from_s = -math.inf

    def may_probe(self, sample: AttemptSample) -> bool:
        """Whether the success `sample` is a reason to ask for more than now."""
        return sample.sent_s >= self._noticed_s and sample.ended_s >= self._probe_from_s

    def hold(self, now_s: float, patience_s: float) -> None:
        """Ask for no more before `patience_s` have passed, and only on news of what is now."""
        self._noticed_s = now_s
        self._left_since = 0
        self._probe_from_s = max(self._probe_from_s, now_s + patience_s)

    def is_behind(self, limit: float) -> bool:
        """Whether `limit` has passed the ceiling, or there is none: capacity has come back."""
        if self.height is not None and limit <= _BEYOND * self.height + 1:
            return False
        self.height, self._hits = None, 0
        return True

    def is_near(self, limit: float) -> bool:
        """Whether the ceiling, and not a queue, is what bounds a limit of `limit`."""
        return self.height is not None and limit >= 0.8 * self.height

    def _passed(self) -> None:
        """A request was accepted beside as many as the ceiling: often enough, it is none."""
        self._accepted_above += 1
        if self._accepted_above >= max(_PROOF, 3 * self._met):
            self.forget()

    def _hit(self, sample: AttemptSample, latency_s: float, accepted: int) -> None:
        """The ceiling was met at `accepted`; ever more patience for the same."""
        known, self.height = self.height, accepted
        if known != accepted:
            self._met = self._accepted_above = 0
        if sample.sent_s >= self._noticed_s:
            same = known is not None and abs(accepted - known) <= _SAME * known + 1
            self._hits = self._hits + 1 if same else 0
        patience_s = min(LONGEST_PATIENCE_S, latency_s * 2.0 ** min(self._hits, 6))
        self.hold(sample.ended_s, max(patience_s, min(LONGEST_RETRY_AFTER_S, sample.retry_after_s)))


class RefusalFinding(Enum):
    """What is known of a share of refusals."""

    TRY = "trying whether less in flight is refused less"
    DEPENDS = "less in flight was refused less"
    INDEPENDENT = "as many are refused with less in flight"


class RefusalVerdict(msgspec.Struct, frozen=True):
    """A limit to take over, and why."""

    limit: float
    finding: RefusalFinding


@dataclass(slots=True)
class _Trial:
    """A limit that is lower for as long as it takes to see whether fewer are refused.

    Args:
        before: the limit that it took the place of.
        settled: the limit to take if fewer are refused: what was accepted before.
        share: of the requests that were refused before.
        from_number: requests sent later belong to it.
        sends: how many of them there are.
        refusals: how many of these were refused.
    """

    before: float
    settled: float
    share: float
    from_number: int
    sends: int = 0
    refusals: int = 0


class RefusedShare:
    """How many of the requests are refused whatever their number in flight, and how many more.

    When more are refused than is known to have other reasons (a CUSUM test), the limit falls below
    what was accepted. If the refused share then does not fall to a quarter, it does not depend on
    the limit: the limit is set back, and so large a share is not held against it for the next 3,000
    requests, after which that is tried again.

    Reference:
        Page 1954, "Continuous inspection schemes" (CUSUM).
    """

    def __init__(self) -> None:
        self.background = 0.0
        self._excess = 0.0
        self._sends = 0
        self._refusals = 0
        self._number = 0
        self._trust_until = 0
        self._trial: _Trial | None = None

    @property
    def on_trial(self) -> bool:
        """Whether a lower limit is being tried."""
        return self._trial is not None

    def allows_growth(self, *, ramping: bool) -> bool:
        """Whether the limit may grow: no lower one is tried, and no more are refused than usual.

        In the fast start the test itself decides: to stop for what may be chance would cost more.
        """
        return self._trial is None and (ramping or self._excess < _QUIET)

    def forget(self) -> None:
        """The refusals seen so far had a reason that is known, and was dealt with."""
        self._excess, self._sends, self._refusals, self._trial = 0.0, 0, 0, None

    def sent(self, number: int) -> RefusalVerdict | None:
        """A limit to take over when request `number` is sent, or None."""
        self._number = number
        if self._trial is not None:
            return self._tried(self._trial)
        if self.background > 0 and number > self._trust_until:
            self.background = 0.0
        self._excess -= _EXCESS * self.background + _TOLERATED
        self._sends += 1
        if self._excess <= 0:
            self._excess, self._sends, self._refusals = 0.0, 0, 0
        return None

    def refused(self, sample: AttemptSample, limit: float) -> RefusalVerdict | None:
        """A limit to take over when `sample` was refused under `limit`, or None."""
        if self._trial is not None:
            self._trial.refusals += sample.number > self._trial.from_number
            return None
        self._excess += 1
        self._refusals += 1
        if self._excess < _ALARM or self._sends < _ALARM_SENDS:
            return None
        share = self._refusals / max(self._sends, self._refusals + 1)
        accepted = min(1.0, (1 - share) / (1 - self.background)) * limit
        settled = max(1.0, accepted, min(sample.on_wire, _CLEARLY_LESS * limit))
        self.forget()
        self._trial = _Trial(limit, settled, share, self._number)
        return RefusalVerdict(max(1.0, _TRIED * settled), RefusalFinding.TRY)

    def _tried(self, trial: _Trial) -> RefusalVerdict | None:
        trial.sends += 1
        size = max(_TRIAL_SENDS, _TRIAL_REFUSALS / trial.share)
        fallen = self.background + (trial.share - self.background) / _FELL
        if trial.refusals > fallen * size:
            now = trial.refusals / trial.sends
            return self._independent((now + trial.share) / 2, trial.before)
        if trial.sends >= size:
            self._trial = None
            self.background = min(self.background, trial.refusals / trial.sends)
            return RefusalVerdict(trial.settled, RefusalFinding.DEPENDS)
        return None

    def _independent(self, share: float, before: float) -> RefusalVerdict:
        """So many are refused whatever the limit, which is set back to what it was."""
        self.forget()
        self.background = share
        self._trust_until = self._number + _TRUSTED_SENDS
        return RefusalVerdict(before, RefusalFinding.INDEPENDENT)
