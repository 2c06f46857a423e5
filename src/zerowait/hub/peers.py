"""The other shards of a hub, as one of them sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from zerowait.cache import Shard
from zerowait.engine import Ask, Partition, Settled
from zerowait.errors import HubLostError
from zerowait.hub.balance import Member
from zerowait.types import Abstain, FailureKind


class Peer(Member, Protocol):
    """Another shard."""

    async def ask(self, item: Ask, /) -> tuple[Settled, bool]:
        """See `zerowait.engine.Engine.answer`.

        Raises:
            HubLostError: it was gone for too long.
        """
        ...


class Peers:
    """Links to the other shards, made when they are first needed.

    Args:
        dial: the link to the shard at an index; reaches nobody yet.
        shard: our own place.
    """

    def __init__(self, dial: Callable[[int], Peer], shard: Shard) -> None:
        self._dial = dial
        self._links: dict[int, Peer] = {}
        self.partition = Partition(shard, self._ask)

    def __getitem__(self, index: int) -> Peer:
        """The link to the shard at `index`."""
        link = self._links.get(index)
        if link is None:
            link = self._links[index] = self._dial(index)
        return link

    async def _ask(self, index: int, ask: Ask) -> tuple[Settled, bool]:
        """A judgement by its owner; one that is lost for good abstains, as an endpoint would."""
        try:
            return await self[index].ask(ask)
        except HubLostError as error:
            return Settled(
                outcome=Abstain(FailureKind.UNREACHABLE, str(error)), source="refused"
            ), False
