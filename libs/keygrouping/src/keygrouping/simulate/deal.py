"""How the events of a stream are dealt to its sources."""

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from keygrouping.hashing import kafka_partitions
from keygrouping.workload.table import KeyTable

PARTITIONS = 2
"""Partitions of the topic that each source reads, where events are dealt by key."""


class Deal(StrEnum):
    """Which source gets an event."""

    KEY = "key"
    """The one that reads the key's partition, as Kafka's own partitioner chooses it among `PARTITIONS` per source."""
    ROUND_ROBIN = "round-robin"
    """Each in turn, as in the papers: partitions that were filled without regard to keys."""


def dealt(
    deal: Deal, keys: NDArray[np.int64], table: KeyTable, sources: int, begin: int
) -> Sequence[slice | NDArray[np.intp]]:
    """The events of each source out of those with these keys; `begin`: events of the stream before them."""
    if deal is Deal.ROUND_ROBIN or sources == 1:
        return [slice((source - begin) % sources, None, sources) for source in range(sources)]
    partitions = kafka_partitions(table.kafka_hashes()[keys], PARTITIONS * sources)
    return by_owner(partitions // PARTITIONS, sources)


def by_owner(owners: NDArray[np.integer], sources: int) -> Sequence[NDArray[np.intp]]:
    """The events of each source by the source of each event, in their order."""
    order = np.argsort(owners, kind="stable")
    return np.split(order, np.cumsum(np.bincount(owners, minlength=sources))[:-1])
