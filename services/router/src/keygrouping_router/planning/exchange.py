"""What the replicas tell each other inside of an interval: the loads that each has brought to the workers so far.

Groupings that level the whole stream go by that where each replica sees other keys. Nobody waits for it: who hears
nothing, as the store is away or the others are, goes on by what it knows.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from keygrouping_router.control.checks import ticks_of
from keygrouping_router.control.watched_store import Shape, WatchedStore
from keygrouping_router.data.active_grouping import ActiveGrouping
from keygrouping_router.planning.peers import Peers

_LOADS = "loads"

_LISTEN_SECONDS = 0.05
_MOST_BYTES = 1 << 20
"""Of a report; one for 10,000 workers is half as long."""


@dataclass(frozen=True, slots=True)
class _Told:
    """A report, and which of its router's."""

    number: int
    report: Mapping[str, Any]


def _told_from(data: Any) -> _Told:
    number, report = data["number"], data["report"]
    if isinstance(number, int) and isinstance(report, dict):
        return _Told(number, report)
    raise TypeError("a number and a report are wanted")


_TOLD = Shape(_LOADS, _told_from, _MOST_BYTES)


class Exchange:
    """This replica's part in it.

    Each run of a replica speaks for itself: what it brought before a restart is on the workers all the same, so it is
    heard until the interval is over. A report that is overtaken by a later one on its way to the store is not.
    """

    def __init__(
        self, store: WatchedStore, replica: str, interval: Callable[[], float], active: ActiveGrouping, peers: Peers
    ) -> None:
        self._store = store
        self._member = f"{replica}-{secrets.token_hex(4)}"
        self._interval = interval
        self._active = active
        self._peers = peers
        self._number = 0
        self._heard: tuple[str, Mapping[str, _Told]] = ("", {})
        """The last report of each other one in the interval of this name."""

    async def take_part(self, number: int, still: Callable[[], bool]) -> bool:
        """Tells the others, and hears what they have told in the interval of this number; whether it did.

        `still`: whether the interval lasts, and the counts are of it. Raises `Unavailable`.
        """
        if not still():
            return False
        control, report = self._active.control, self._active.report()
        if report is None or control.sharing != "shared" or len(self._peers.alive()) < 2:
            return False
        name, interval = f"{_LOADS}-{control.generation}-{control.grouped}-{number}", self._interval()
        self._number += 1
        await self._store.publish(name, self._member, {"number": self._number, "report": report}, 2 * interval)
        # The others tell at about the same time.
        await asyncio.sleep(min(_LISTEN_SECONDS, interval / ticks_of(interval) / 4))
        found = await self._store.published(name, _TOLD)
        if self._active.control != control or not still():
            return False
        self._hear(name, found)
        return True

    def _hear(self, name: str, found: Mapping[str, _Told]) -> None:
        before = self._heard[1] if self._heard[0] == name else {}
        newer = {
            member: told
            for member, told in found.items()
            if member != self._member and (member not in before or told.number >= before[member].number)
        }
        heard = {**before, **newer}
        members = list(heard)
        for position in self._active.hear([told.report for told in heard.values()]):
            # Without the interval, so that a member that goes on like this is told once.
            self._store.reject(_LOADS, f"{_LOADS}/{members[position]}", "no loads of as many workers")
            del heard[members[position]]
        self._heard = (name, heard)
