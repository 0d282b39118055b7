"""The simulated sources: each routes its part of the stream by a grouping of its own."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping import Exchanging, Grouping, Offline, Planned, UrgentlyPlanned, create, describe
from keygrouping.grouping.base import kernel_arrays
from keygrouping.grouping.protocol import Hashes, Weights, Workers
from keygrouping.simulate.deal import Deal, by_owner, dealt
from keygrouping.workload.stream import Chunk
from keygrouping.workload.table import KeyTable

_PLAN_INTERVAL = "interval"
"""The setting of a planned grouping that, if null, leaves the time of planning to the owner."""


def create_sources(
    name: str, workers: int, sources: int, settings: Mapping[str, object] | None = None
) -> tuple[Grouping, ...]:
    """A grouping for each source, see `keygrouping.grouping.create` for the errors.

    Unless the settings say otherwise, groupings that plan have one plan for all sources at the end of each interval of
    the simulation.
    """
    given = dict(settings or {})
    if isinstance(create(name, workers, given), Planned) and any(
        each.name == _PLAN_INTERVAL for each in describe(name)
    ):
        given.setdefault(_PLAN_INTERVAL, None)
    return tuple(create(name, workers, given) for _ in range(sources))


def exchanging(groupings: Sequence[Grouping]) -> Sequence[Exchanging]:
    """Those that tell each other inside of an interval what they have brought; none if there are no others to tell."""
    found = [each for each in groupings if isinstance(each, Exchanging) and each.shared]
    return found if len(found) > 1 else []


def exchange(groupings: Sequence[Exchanging]) -> None:
    """Tell each of them what all others have brought."""
    reports = [each.report() for each in groupings]
    for number, each in enumerate(groupings):
        each.hear([*reports[:number], *reports[number + 1 :]])


class Sources:
    """Deals events to the groupings: by a deal, or by the hash that a chunk gives as their source.

    Hashes are gathered from the table, which hashes each key once.
    """

    def __init__(self, groupings: Sequence[Grouping], table: KeyTable, deal: Deal = Deal.KEY) -> None:
        self._groupings = groupings
        self._table = table
        self._deal = deal
        self._exchanging = exchanging(groupings)

    @property
    def exchanges(self) -> bool:
        """Whether the sources tell each other inside of an interval what they have brought."""
        return bool(self._exchanging)

    def exchange(self) -> None:
        """Let them do that."""
        exchange(self._exchanging)

    def learn(self, chunks: Iterable[Chunk]) -> None:
        """Let groupings that are told the stream beforehand see all of it."""
        learners = [grouping for grouping in self._groupings if isinstance(grouping, Offline)]
        if not learners:
            return
        totals, occurs = np.zeros(0), np.zeros(0, np.bool_)
        for chunk in chunks:
            new = len(self._table) - len(totals)
            totals, occurs = np.pad(totals, (0, new)), np.pad(occurs, (0, new))
            np.add.at(totals, chunk.keys, 1.0 if chunk.weights is None else chunk.weights)
            occurs[chunk.keys] = True
        keys = np.flatnonzero(occurs)
        for grouping in learners:
            grouping.learn(self._hashes(grouping, keys), totals[keys])

    def plan(self) -> Mapping[str, Any]:
        """Let all groupings that leave that to their owner go by one plan of all statistics; empty if none does."""
        planned = [grouping for grouping in self._groupings if isinstance(grouping, Planned) and grouping.shared]
        return _applied(planned, [grouping.statistics() for grouping in planned])

    def plan_if_urgent(self) -> Mapping[str, Any]:
        """The same inside of an interval, which goes on, if any grouping finds that urgent; empty if none does."""
        planned = [each for each in self._groupings if isinstance(each, UrgentlyPlanned) and each.shared]
        if not any(grouping.urgent for grouping in planned):
            return {}
        return _applied(planned, [grouping.interim_statistics() for grouping in planned])

    def route(
        self,
        keys: NDArray[np.int64],
        weights: Weights | None,
        origins: NDArray[np.int64] | None,
        begin: int,
        now: float,
    ) -> Workers:
        """The workers of events that come at one time, all arrays of shape (n,); `begin`: events of the run before."""
        workers = np.empty(len(keys), np.int32)
        for grouping, part in zip(self._groupings, self._parts(keys, origins, begin), strict=True):
            mine = keys[part]
            if len(mine):
                hashes = self._hashes(grouping, mine)
                workers[part] = grouping.route_batch(hashes, None if weights is None else weights[part], now)
        return workers

    def _parts(
        self, keys: NDArray[np.int64], origins: NDArray[np.int64] | None, begin: int
    ) -> Sequence[slice | NDArray[np.intp]]:
        count = len(self._groupings)
        if origins is None:
            return dealt(self._deal, keys, self._table, count, begin)
        from keygrouping.grouping._kernels import route_key

        return by_owner(route_key(kernel_arrays(origins[:, np.newaxis], None, 1)[0], count), count)

    def _hashes(self, grouping: Grouping, keys: NDArray[np.int64]) -> Hashes:
        return np.take(self._table.hashes(grouping.seeds), keys, axis=0)


def _applied(groupings: Sequence[Planned], statistics: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The plan that all of them go by now; empty if there are none."""
    if not groupings:
        return {}
    plan = groupings[0].plan(statistics)
    for grouping in groupings if plan["changed"] else ():
        grouping.apply(plan)
    return plan
