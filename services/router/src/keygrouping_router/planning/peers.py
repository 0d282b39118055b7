"""The replicas of this router: who is alive, how far each is, and what each knows of its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keygrouping_router import metrics
from keygrouping_router.control.watched_store import Shape, WatchedStore
from keygrouping_router.knowledge.format import knowledge_from_data, knowledge_to_data
from keygrouping_router.knowledge.keyspace import Knowledge
from keygrouping_router.planning.format import epoch_from_data

_ALIVE = "replicas"
_KNOWN = "keyspace"

_BEAT_TTL = 5.0
"""Seconds after which a replica that says nothing is taken for dead."""


def _members_of(data: Any) -> Mapping[str, Any]:
    if isinstance(data, dict):
        return data
    raise TypeError(f"an object is wanted, not {type(data).__name__}")


_BEAT = Shape(_ALIVE, epoch_from_data, 10_000)
_KNOWLEDGE = Shape(_KNOWN, _members_of)


class Peers:
    """What is known of the replicas since they were last asked; without the store that is how it stays."""

    def __init__(self, store: WatchedStore, replica: str) -> None:
        self._store = store
        self._replica = replica
        self._beats: dict[str, int] = {}
        self.knowledge: dict[str, Knowledge] = {}
        """What the others know, by name of the replica."""

    def alive(self) -> set[str]:
        """Names of all that are alive, this one among them."""
        return {self._replica, *self._beats}

    def highest_epoch(self) -> int:
        """The highest epoch that any of them has published; 0 if there is none."""
        return max(self._beats.values(), default=0)

    async def beat(self, epoch: int) -> None:
        """Says that this one is alive and in this epoch, and looks who else is; raises `Unavailable`."""
        await self._store.publish(_ALIVE, self._replica, {"epoch": epoch}, _BEAT_TTL)
        await self.look()

    async def look(self) -> None:
        """Looks who is alive; raises `Unavailable`."""
        self._beats = await self._store.published(_ALIVE, _BEAT)
        self.knowledge = {name: known for name, known in self.knowledge.items() if name in self._beats}
        metrics.REPLICAS.set(len(self.alive()))

    async def publish(self, knowledge: Knowledge, seconds: float) -> None:
        """Tells the others, for so many seconds; raises `Unavailable`."""
        await self._store.publish(_KNOWN, self._replica, await knowledge_to_data(knowledge), seconds)

    async def listen(self) -> None:
        """Takes note of what the others have published; raises `Unavailable`."""
        found = await self._store.published(_KNOWN, _KNOWLEDGE)
        found.pop(self._replica, None)
        parsed = {name: await self._parsed(name, data) for name, data in found.items()}
        self.knowledge = {name: known for name, known in parsed.items() if known is not None}

    async def leave(self) -> None:
        """Says goodbye; raises `Unavailable`."""
        for presence in (_ALIVE, _KNOWN):
            await self._store.withdraw(presence, self._replica)

    async def _parsed(self, replica: str, data: Mapping[str, Any]) -> Knowledge | None:
        try:
            known = await knowledge_from_data(data)
            if known.replica != replica:
                raise ValueError(f"it is that of {known.replica!r}")
            return known
        except Exception as error:  # Whatever reading it raises, it is none.
            self._store.reject(_KNOWN, f"{_KNOWN}/{replica}", error)
            return None
