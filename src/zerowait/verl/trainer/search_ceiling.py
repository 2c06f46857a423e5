"""Stop a training whose retriever keeps failing: the policy would learn not to search."""

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
    """Stops the training after two steps in a row with too many failed searches.

    A single bad step is tolerated, so that a restart of the retriever does not end the training.

    Args:
        settings: the search agent's; ``max_failed`` is the share of searches that may fail.
    """

    def __init__(self, settings: SearchSettings) -> None:
        self._settings = settings
        self._bad_steps = 0

    def check(self, samples: Iterable[Sample]) -> None:
        """Count the failed searches in a step's episodes.

        Raises:
            JudgementError: in this step and the one before, more searches failed than
                ``search.max_failed`` allows; names the reasons.
        """
        episodes = [episode for one in samples if (episode := _episode_of(one)) is not None]
        searches = sum(int(episode.get("searches", 0)) for episode in episodes)
        failed = sum(int(episode.get("failed_searches", 0)) for episode in episodes)
        bad = failed > self._settings.max_failed * searches
        self._bad_steps = self._bad_steps + 1 if bad else 0
        if self._bad_steps < _IN_A_ROW:
            return
        whys = Counter(str(why) for episode in episodes for why in episode.get("failures", ()))
        reasons = ", ".join(f"{why} ({n})" for why, n in whys.most_common(3))
        raise JudgementError(
            f"{failed} of {searches} searches of this step failed, after a step like it, which is "
            f"more than search.max_failed={self._settings.max_failed:g} allows: {reasons}; is the "
            f"retriever at {self._settings.retriever.url} running?"
        )


def _episode_of(sample: Sample) -> Mapping[str, Any] | None:
    episode = sample.extra.get(EPISODE)
    return episode if isinstance(episode, Mapping) and "searches" in episode else None
