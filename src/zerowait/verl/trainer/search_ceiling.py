"""The end of a training whose retriever stays dead: a policy would learn from it not to search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from zerowait.errors import JudgementError
from zerowait.search import SearchSettings
from zerowait.types import Sample
from zerowait.verl.rows import EPISODE

_IN_A_ROW: Final = 2


class SearchCeiling:
    """Counts the failed searches of each step, and stops where too many of them go on failing.

    One bad step is none to stop for: a retriever that was started again costs no more.

    Args:
        settings: of the search agent.
    """

    def __init__(self, settings: SearchSettings) -> None:
        self._settings = settings
        self._bad_steps = 0

    def check(self, samples: Iterable[Sample]) -> None:
        """Take the account of a step's episodes.

        Raises:
            JudgementError: of this step's searches, and of those of the step before, more failed
                than ``search.max_failed`` allows; says why they did.
        """
        accounts = [account for one in samples if (account := _account(one)) is not None]
        searches = sum(int(account.get("searches", 0)) for account in accounts)
        failed = sum(int(account.get("failed_searches", 0)) for account in accounts)
        bad = failed > self._settings.max_failed * searches
        self._bad_steps = self._bad_steps + 1 if bad else 0
        if self._bad_steps < _IN_A_ROW:
            return
        whys = Counter(str(why) for account in accounts for why in account.get("failures", ()))
        told = ", ".join(f"{why} ({n})" for why, n in whys.most_common(3))
        raise JudgementError(
            f"{failed} of {searches} searches of this step failed, after a step like it, which is "
            f"more than search.max_failed={self._settings.max_failed:g} allows: {told}; is the "
            f"retriever at {self._settings.retriever.url} running?"
        )


def _account(sample: Sample) -> Mapping[str, Any] | None:
    account = sample.extra.get(EPISODE)
    return account if isinstance(account, Mapping) and "searches" in account else None
