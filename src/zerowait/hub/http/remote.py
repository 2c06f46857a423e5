"""Remote rewards: the synchronous API of `zerowait.open` over a hub behind HTTP."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import NoReturn, Self

from zerowait.client import Secret
from zerowait.config.urls import shown_url
from zerowait.engine import Stats
from zerowait.engine.portal import Portal, Submitted
from zerowait.engine.progress import Progress
from zerowait.hub.http.hub import HttpHub
from zerowait.types import Reward, Sample, check_sample, samples_in


class RemoteRewards:
    """Rewards that a running ``zerowait serve`` computes; made by `connect`, closed by ``with``.

    The same calls as `Rewards`, usable from any thread and inside a running loop.
    """

    def __init__(
        self, url: str, *, token: str | Secret | None, patience_s: float, deadline_s: float
    ) -> None:
        self._url = shown_url(url.rstrip("/"))
        self._hub = HttpHub(url, token=token, patience_s=patience_s, deadline_s=deadline_s)
        del token  # a traceback may show local variables
        self._portal = Portal("zerowait-remote")
        try:
            self._portal.call(self._hub.__aenter__)
            self._portal.call(self._hub.stats)
        except BaseException:
            self.close()
            raise
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def submit(self, sample: Sample) -> Submitted[Reward]:
        """A future of the sample's reward, for ``result()`` or ``await``; returns at once.

        As with `Rewards.submit`, a row whose siblings matter needs ``group`` and ``group_size``.

        Raises:
            DataError: it is no Sample.
        """
        check_sample(sample, "submit", many="submit_all")
        return self._portal.submit(lambda: self._one(sample))

    def submit_all(
        self, samples: Iterable[Sample], *, deadline_s: float | None = None
    ) -> Submitted[list[Reward]]:
        """A future of the rewards of all samples, in order; see `Rewards.submit_all`.

        Raises:
            DataError: one of them is no Sample.
        """
        rows = samples_in(samples, "submit_all", one="submit")
        return self._portal.submit(lambda: self._hub.score_all(rows, deadline_s=deadline_s))

    def score(
        self,
        samples: Iterable[Sample],
        *,
        progress: bool = False,
        on_reward: Callable[[int, Reward], None] | None = None,
        deadline_s: float | None = None,
    ) -> list[Reward]:
        """The rewards of all samples, in order; see `Rewards.score`.

        Raises:
            DataError, JudgementError: as the service raised it.
            HubLostError: the service was gone for longer than the connection's `patience_s`.
        """
        rows = samples_in(samples, "score", one="submit")
        with Progress(len(rows), shown=progress) as bar:

            def tell(index: int, reward: Reward) -> None:
                bar.advance()
                if on_reward is not None:
                    on_reward(index, reward)

            return self._portal.call(
                lambda: self._hub.score_all(rows, on_reward=tell, deadline_s=deadline_s)
            )

    def stats(self) -> Stats:
        """A frozen snapshot of the service's whole job.

        Raises:
            HubLostError: the service does not answer now.
        """
        return self._portal.call(self._hub.stats)

    @property
    def metrics_url(self) -> str:
        """What Prometheus scrapes: the service's ``/metrics``, without a password in its URL."""
        return f"{self._url}/metrics"

    def close(self) -> None:
        """Close the connection; the service goes on for others. Idempotent, from any thread."""
        atexit.unregister(self.close)
        if self._portal.is_open and not self._portal.is_own_thread:
            self._portal.call(self._hub.aclose)
        self._portal.close()

    async def _one(self, sample: Sample) -> Reward:
        return (await self._hub.reward(sample)).reward

    def __reduce__(self) -> NoReturn:
        raise TypeError("an open connection cannot travel to another process: connect there")


def connect(
    url: str,
    *,
    token: str | Secret | None = None,
    patience_s: float = 120.0,
    deadline_s: float = 3600.0,
) -> RemoteRewards:
    """A connection to a running ``zerowait serve``, with the calls of `zerowait.open`.

    All that the process waits for shares one connection. A restart of the service is a pause:
    pending samples are sent again, and what was judged before comes from its cache.

    Args:
        url: the service's base URL, such as ``http://127.0.0.1:8002``.
        token: the value of the service's ``--token-env`` variable; never shown.
        patience_s: how many seconds the service may be gone before callers get a `HubLostError`.
        deadline_s: the longest that one call may take in seconds, over all connections.

    Raises:
        ConfigError: `url` is no http(s) URL, the service does not know the token, or it is no hub.
        HubLostError: nothing answers there now.
    """
    try:
        return RemoteRewards(url, token=token, patience_s=patience_s, deadline_s=deadline_s)
    finally:
        del token  # see RemoteRewards
