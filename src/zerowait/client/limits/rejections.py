"""Whether 429s depend on how many requests are in flight, and what number is accepted. Pure.

A provider rejects because too many are in flight (a ceiling), because too many come per second (a
rate), or for reasons that do not depend on this client: another tenant's traffic, an overloaded
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

LONGEST_PAUSE_S: Final = 3.0
LONGEST_RETRY_AFTER_S: Final = 60.0
_SAME: Final = 0.1  # ceilings that differ by no more are the same one, met again
_AT: Final = 0.97  # of the ceiling: a request that met as many was rejected because of it
_BEYOND: Final = 1.05  # of the ceiling: a limit above it has left the ceiling behind
_NEAR: Final = 0.8  # of the ceiling: a limit above it is bounded by the ceiling
_PROOF: Final = 4  # votes by which a ceiling is believed
_PROOF_BESIDE_CHANCE: Final = 6  # where some are rejected for other reasons
_FEW: Final = 8
_PROOF_OF_FEW: Final = 2  # where fewer than `_FEW` are in flight
_LOWER: Final = 0.9  # of a ceiling that has fallen
_MEMORY: Final = 256  # votes after which they are counted anew

_TOLERATED: Final = 0.01  # share of rejections that needs no explanation
_EXCESS: Final = 1.3  # times the background share is no news either
_ALARM: Final = 5.0  # rejections beyond that start a trial
_SUSPECT: Final = 3.0  # rejections beyond that stop the growth
_ALARM_SENDS: Final = 64  # a shorter run starts no trial
_TRUSTED_SENDS: Final = 3000  # after which a background share is tried again
_TRIED: Final = 0.8  # of what was accepted
_TRIAL_REJECTIONS: Final = 10  # so many would be expected in a trial without effect
_TRIAL_SENDS: Final = 100  # and it is at least so long
_FELL: Final = 4.0  # a share that falls to a quarter depends on the limit
_SURPASSED: Final = 1.5  # times what a rate allowed: a limit above it has left the rate behind


class RejectionCeiling:
    """The number of requests in flight beyond which the provider answers 429.

    From the first rejection on it is noted how many others each request met on the wire, and
    whether it was accepted. The ceiling is the number for which most speaks: of the requests that
    met as many others or more, 4 more were rejected than accepted (2 where fewer than 8 are in
    flight).
    Rejections for other reasons fall on requests that met few others as often as on those that met
    many, so they find no such number. A rejection of one that was sent under the ceiling's limit
    says that the ceiling has fallen: it is then taken to be a tenth lower.

    Reference:
        Wald 1945, "Sequential tests of statistical hypotheses".
    """

    def __init__(self) -> None:
        self.height: int | None = None
        self._others: dict[int, int] = {}  # of each request on the wire, by its number
        self._since = 0  # the number of the first rejection that is counted
        # others met, and 1 for rejected, -1 for accepted
        self._evidence: list[tuple[int, int]] = []
        self._score = 0  # by how many the latest rejection and those like it outnumber acceptances
        self._support = 0  # the same of the ceiling that is believed
        self._noticed_s = -math.inf
        self._probe_from_s = -math.inf
        self._hits = 0

    @property
    def is_suspected(self) -> bool:
        """Whether the latest rejections may come from a ceiling."""
        return self._score > 1

    def sent(self, number: int, others: int) -> None:
        """Request `number` is sent, with `others` on the wire."""
        self._others[number] = others

    def ended(self, sample: AttemptSample) -> bool:
        """A request ended that was not rejected.

        Returns whether its answer shows that a ceiling that was believed is none.
        """
        others = self._others.pop(sample.number, sample.others)
        if sample.ending is not AttemptOutcome.SUCCEEDED or sample.number <= self._since:
            return False
        if 0 < len(self._evidence) <= _MEMORY:
            self._evidence.append((others, -1))
        if self.height is None or others < self.height:
            return False
        self._support -= 1
        if self._support > 0:
            return False
        self.forget()
        return True

    def rejected(
        self, sample: AttemptSample, limit: float, *, latency_s: float, by_chance: bool = False
    ) -> int | None:
        """How many requests the provider accepts, at least 1; None if the rejection does not tell.

        Args:
            sample: the attempt that was rejected.
            limit: slots as of now.
            latency_s: mean latency: the shortest pause before more is asked for.
            by_chance: whether some are known to be rejected for other reasons: needs more proof.
        """
        others = self._taken_off(sample)
        if others <= 0:
            return None  # alone on the wire: there is no less
        if self.height is not None and limit > self.height and others >= _AT * self.height:
            self._support = min(self._support + 1, _PROOF)
            self._hit(sample, latency_s, self.height)
            return self.height
        # replies come in the order of the sends: what was sent before and is out was accepted
        accepted = [
            (met, -1)
            for number, met in self._others.items()
            if self._since < number < sample.number
        ]
        level, self._score = _most_likely([*self._evidence, *accepted, (others, 1)])
        if self._score <= 0 or not self._evidence or len(self._evidence) > _MEMORY:
            self._evidence, self._since, self._score = [], sample.number, 1
            level = others
        self._evidence.append((others, 1))
        if others < level:
            self._score = 0
        proof = _PROOF_BESIDE_CHANCE if by_chance else _PROOF if level >= _FEW else _PROOF_OF_FEW
        if self._score < proof:
            return None
        height = level
        if self.height is not None and sample.sent_s >= self._noticed_s:
            height = min(level, int(_LOWER * self.height))
        height = max(1, min(height, self.height or height))
        self._hit(sample, latency_s, height)
        self._support, self._score = self._score, 0
        return height

    def _taken_off(self, sample: AttemptSample) -> int:
        """The others that a rejected request met.

        Requests that were sent after it met one fewer: it was on the wire, and not accepted.
        """
        for number in reversed(self._others):
            if number <= sample.number:
                break
            self._others[number] -= 1
        return self._others.pop(sample.number, sample.others)

    def forget(self) -> None:
        """Drop the ceiling and the votes for one."""
        self.height, self._hits = None, 0
        self._probe_from_s = -math.inf
        self.restart()

    def restart(self) -> None:
        """Drop the votes: the rejections so far have another explanation."""
        self._evidence, self._score = [], 0

    def may_probe(self, sample: AttemptSample) -> bool:
        """Whether the success `sample` is a reason to ask for more than now."""
        return sample.sent_s >= self._noticed_s and sample.ended_s >= self._probe_from_s

    def hold(self, now_s: float, pause_s: float) -> None:
        """Allow no growth for `pause_s`, and then only for requests sent from now on."""
        self._noticed_s = now_s
        self._probe_from_s = max(self._probe_from_s, now_s + pause_s)

    def is_behind(self, limit: float) -> bool:
        """Whether `limit` has passed the ceiling, or there is none: capacity has come back."""
        if self.height is not None and limit <= _BEYOND * self.height + 1:
            return False
        self.height, self._hits = None, 0
        return True

    def is_near(self, limit: float) -> bool:
        """Whether the ceiling, and not a queue, is what bounds a limit of `limit`."""
        return self.height is not None and limit >= _NEAR * self.height

    def _hit(self, sample: AttemptSample, latency_s: float, accepted: int) -> None:
        """The ceiling was met at `accepted`; the pause doubles each time it is the same."""
        known, self.height = self.height, accepted
        if sample.sent_s >= self._noticed_s:
            same = known is not None and abs(accepted - known) <= _SAME * known + 1
            self._hits = self._hits + 1 if same else 0
        pause_s = min(LONGEST_PAUSE_S, latency_s * 2.0 ** min(self._hits, 6))
        self.hold(sample.ended_s, max(pause_s, min(LONGEST_RETRY_AFTER_S, sample.retry_after_s)))


def _most_likely(evidence: list[tuple[int, int]]) -> tuple[int, int]:
    """From how many others on rejections outnumber acceptances most, and by how many votes.

    >>> _most_likely([(59, -1), (60, 1), (40, 1), (60, 1), (58, -1)])
    (60, 2)
    """
    best, votes = (0, 0), 0
    for met, group in groupby(sorted(evidence, reverse=True), key=itemgetter(0)):
        votes += sum(vote for _, vote in group)
        if votes >= best[1] and votes > 0:
            best = met, votes
    return best


class RejectionFinding(Enum):
    """What the share of rejections says about the limit."""

    TRY = "trying whether less in flight is rejected less"
    DEPENDS = "less in flight was rejected less"
    INDEPENDENT = "as many are rejected with less in flight"


class LimitChange(msgspec.Struct, frozen=True):
    """A limit to take over, in slots, and the finding behind it."""

    limit: float
    finding: RejectionFinding


@dataclass(slots=True)
class _Trial:
    """A trial of a lower limit, to see whether fewer requests are rejected.

    Args:
        before: the limit that it took the place of.
        settled: the limit to take if fewer are rejected: what was accepted before.
        share: of the requests that were rejected before.
        from_number: requests sent later belong to it.
        sends: how many of them there are.
        rejections: how many of these were rejected.
    """

    before: float
    settled: float
    share: float
    from_number: int
    sends: int = 0
    rejections: int = 0


class RejectionRate:
    """Finds whether the share of rejected requests depends on the limit, by trying a lower one.

    When more are rejected than the background share explains (a CUSUM test), a limit of 80 % of
    what was accepted is tried. If the share does not fall to a quarter of what it was, it does not
    depend on the limit: the limit is set back, and the share is the background for the next 3,000
    requests, after which that is tried again.

    Reference:
        Page 1954, "Continuous inspection schemes" (CUSUM).
    """

    def __init__(self) -> None:
        self.background = 0.0
        self._excess = 0.0
        self._sends = 0
        self._rejections = 0
        self._number = 0
        self._trust_until = 0
        self._settled = 0.0
        self._trial: _Trial | None = None

    @property
    def on_trial(self) -> bool:
        """Whether a lower limit is being tried."""
        return self._trial is not None

    def is_behind(self, limit: float) -> bool:
        """Whether `limit` has passed what a rate allowed, or no rate was found."""
        return limit >= _SURPASSED * self._settled

    def allows_growth(self, *, ramping: bool) -> bool:
        """Whether the limit may grow: no lower one is tried, and no more are rejected than usual.

        In the fast start the test itself decides: to stop for what may be chance would cost more.
        """
        return self._trial is None and (ramping or not self.is_suspected)

    @property
    def is_suspected(self) -> bool:
        """Whether clearly more are rejected than is known to have other reasons."""
        return self._excess >= _SUSPECT

    def forget(self) -> None:
        """Count anew: the rejections so far are explained by a ceiling, and the limit was cut."""
        self._excess, self._sends, self._rejections, self._trial = 0.0, 0, 0, None

    def sent(self, number: int) -> LimitChange | None:
        """A limit to take over when request `number` is sent, or None."""
        self._number = number
        if self._trial is not None:
            return self._tried(self._trial)
        if self.background > 0 and number > self._trust_until:
            self.background = 0.0
        self._excess -= _EXCESS * self.background + _TOLERATED
        self._sends += 1
        if self._excess <= 0:
            self._excess, self._sends, self._rejections = 0.0, 0, 0
        return None

    def rejected(self, sample: AttemptSample, limit: float) -> LimitChange | None:
        """A limit to take over when `sample` was rejected under `limit`, or None."""
        if self._trial is not None:
            self._trial.rejections += sample.number > self._trial.from_number
            return None
        self._excess += 1
        self._rejections += 1
        if self._excess < _ALARM or self._sends < _ALARM_SENDS:
            return None
        share = self._rejections / max(self._sends, self._rejections + 1)
        accepted = min(1.0, (1 - share) / (1 - self.background)) * limit
        settled = max(1.0, accepted, min(sample.on_wire, _TRIED * limit))
        self.forget()
        self._trial = _Trial(limit, settled, share, self._number)
        return LimitChange(max(1.0, _TRIED * settled), RejectionFinding.TRY)

    def _tried(self, trial: _Trial) -> LimitChange | None:
        trial.sends += 1
        size = max(_TRIAL_SENDS, _TRIAL_REJECTIONS / trial.share)
        fallen = self.background + (trial.share - self.background) / _FELL
        if trial.rejections > fallen * size:
            now = trial.rejections / trial.sends
            return self._independent((now + trial.share) / 2, trial.before)
        if trial.sends >= size:
            self._trial, self._settled = None, trial.settled
            self.background = min(self.background, trial.rejections / trial.sends)
            return LimitChange(trial.settled, RejectionFinding.DEPENDS)
        return None

    def _independent(self, share: float, before: float) -> LimitChange:
        """The verdict that `share` does not depend on the limit, which is set back to `before`."""
        self.forget()
        self.background, self._settled = share, 0.0
        self._trust_until = self._number + _TRUSTED_SENDS
        return LimitChange(before, RejectionFinding.INDEPENDENT)
