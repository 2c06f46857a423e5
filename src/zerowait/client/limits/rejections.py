"""What 429s teach: whether they depend on how many requests are in flight, and on how many. Pure.

A provider refuses because too many are in flight (a ceiling), because too many come per second (a
rate), or for reasons that have nothing to do with us: another tenant's traffic, an overloaded
replica behind a load balancer. Fewer requests help against the first two only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from operator import itemgetter
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
_LOWER: Final = 0.9
_MEMORY: Final = 256

_TOLERATED: Final = 0.01
_EXCESS: Final = 1.3
_ALARM: Final = 5.0
_QUIET: Final = 3.0
_ALARM_SENDS: Final = 64
_TRUSTED_SENDS: Final = 3000
_TRIED: Final = 0.8
_TRIAL_REFUSALS: Final = 10
_TRIAL_SENDS: Final = 100
_FELL: Final = 4.0


class RejectionCeiling:
    """The number of requests in flight beyond which the provider answers 429.

    From the first refusal on it is noted how many others each request met on the wire, and whether
    it was accepted. The ceiling is the number for which most speaks: of the requests that met as
    many others or more, 4 more were refused than accepted (2 where fewer than 8 are in flight).
    Refusals for other reasons fall on requests that met few others as often as on those that met
    many, so they find no such number. A refusal of one that was sent under the ceiling's limit
    says that the ceiling has fallen: it is then taken to be a tenth lower.

    Reference:
        Wald 1945, "Sequential tests of statistical hypotheses".
    """

    def __init__(self) -> None:
        self.height: int | None = None
        self._others: dict[int, int] = {}  # of each request on the wire, by its number
        self._since = 0  # the number of the first refusal that is counted
        self._evidence: list[tuple[int, int]] = []  # others met, and 1 for refused, -1 for accepted
        self._score = 0
        self._noticed_s = -math.inf
        self._probe_from_s = -math.inf
        self._hits = 0

    @property
    def is_suspected(self) -> bool:
        """Whether the latest refusals may come from a ceiling."""
        return self._score > 1

    def sent(self, number: int, others: int) -> None:
        """Request `number` is sent, with `others` on the wire."""
        self._others[number] = others

    def ended(self, sample: AttemptSample) -> bool:
        """A request ended that was not refused.

        Returns whether its answer shows that a ceiling that was believed is none.
        """
        others = self._others.pop(sample.number, sample.others)
        if sample.ending is not AttemptOutcome.SUCCEEDED or sample.number <= self._since:
            return False
        if self._evidence:
            self._evidence.append((others, -1))
        if self.height is None or others < self.height:
            return False
        if sum(vote for met, vote in self._evidence if met >= self.height) > 0:
            return False
        self.forget()
        return True

    def refused(self, sample: AttemptSample, limit: float, *, latency_s: float) -> int | None:
        """How many requests the provider accepts, if the refusal of `sample` tells; at least 1."""
        others = self._taken_off(sample)
        if others <= 0:
            return None  # alone on the wire: there is no less
        if self.height is not None and limit > self.height and others >= _AT * self.height:
            self._evidence.append((others, 1))
            self._hit(sample, latency_s, self.height)
            return self.height
        # replies come in the order of the sends: what was sent before and is out was accepted
        accepted = [
            (met, -1) for number, met in self._others.items() if self._since < number < sample.number
        ]
        level, self._score = _most_likely([*self._evidence, *accepted, (others, 1)])
        if self._score <= 0 or not self._evidence or len(self._evidence) > _MEMORY:
            self._evidence, self._since, self._score = [], sample.number, 1
            level = others
        self._evidence.append((others, 1))
        if others < level:
            self._score = 0
        if self._score < (_PROOF if level >= _FEW else _PROOF_OF_FEW):
            return None
        height = level
        if self.height is not None and sample.sent_s >= self._noticed_s:
            height = min(level, int(_LOWER * self.height))
        height = max(1, min(height, self.height or height))
        self._hit(sample, latency_s, height)
        self._score = 0
        return height

    def _taken_off(self, sample: AttemptSample) -> int:
        """The others that a refused request met; for those sent after it, it was none of theirs."""
        for number in reversed(self._others):
            if number <= sample.number:
                break
            self._others[number] -= 1
        return self._others.pop(sample.number, sample.others)

    def forget(self) -> None:
        """Nothing is known: the endpoint was away."""
        self.height, self._hits = None, 0
        self._probe_from_s = -math.inf
        self.restart()

    def restart(self) -> None:
        """The refusals so far are explained otherwise."""
        self._evidence, self._score = [], 0

    def may_probe(self, sample: AttemptSample) -> bool:
        """Whether the success `sample` is a reason to ask for more than now."""
        return sample.sent_s >= self._noticed_s and sample.ended_s >= self._probe_from_s

    def hold(self, now_s: float, patience_s: float) -> None:
        """Ask for no more before `patience_s` have passed, and only on news of what is now."""
        self._noticed_s = now_s
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

    def _hit(self, sample: AttemptSample, latency_s: float, accepted: int) -> None:
        """The ceiling was met at `accepted`; ever more patience for the same."""
        known, self.height = self.height, accepted
        if sample.sent_s >= self._noticed_s:
            same = known is not None and abs(accepted - known) <= _SAME * known + 1
            self._hits = self._hits + 1 if same else 0
        patience_s = min(LONGEST_PATIENCE_S, latency_s * 2.0 ** min(self._hits, 6))
        self.hold(sample.ended_s, max(patience_s, min(LONGEST_RETRY_AFTER_S, sample.retry_after_s)))


def _most_likely(evidence: list[tuple[int, int]]) -> tuple[int, int]:
    """The number of others from which on the most votes are for a refusal, and how many."""
    best, votes = (0, 0), 0
    for met, group in groupby(sorted(evidence, reverse=True), key=itemgetter(0)):
        votes += sum(vote for _, vote in group)
        if votes >= best[1] and votes > 0:
            best = met, votes
    return best


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
        return self._trial is None and (ramping or not self.is_suspected)

    @property
    def is_suspected(self) -> bool:
        """Whether clearly more are refused than is known to have other reasons."""
        return self._excess >= _QUIET

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
        settled = max(1.0, accepted, min(sample.on_wire, _TRIED * limit))
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
