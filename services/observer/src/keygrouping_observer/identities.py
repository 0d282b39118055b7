"""Which partials have been counted, so that each counts once, in bounded memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

import mmh3
from keygrouping.partial import Partial
from keygrouping_service.kafka.partials import OFFSET_BITS
from keygrouping_service.kafka.topic_ids import same_topic

_HASH_BITS = 128
_PARTITION_BITS = 32
_END = 1 << OFFSET_BITS
"""Above all offsets."""


Source: TypeAlias = tuple[str, int]
"""Whose partials they are: the id of the topic that a worker reads, `routed` or `events`, and its partition."""


class Identities:
    """The identities (topic, worker, window, key, first offset) of the partials counted so far.

    A worker's flushes cover its offsets without a gap. Once everything before its committed offset has been read,
    any partial that begins there is a repetition: one number per worker, its floor, stands for all of them. What lies
    above the floor is kept, about 200 bytes for each partial.
    """

    def __init__(self, floors: Mapping[Source, int] | None = None) -> None:
        self.floors = dict(floors or {})
        self._places: dict[Source, dict[int, int]] = {}

    def is_new(self, key: bytes, partial: Partial, partition: int, offset: int) -> bool:
        """Notes a partial and where it was read; False if it was noted before."""
        source = (partial.topic, partial.worker)
        if partial.first < self.floors.get(source, 0):
            return False
        places = self._places.setdefault(source, {})
        identity = partial.first << _HASH_BITS | mmh3.hash128(b"%d|%b" % (partial.start, key), signed=False)
        if identity in places:
            return False
        places[identity] = offset << _PARTITION_BITS | partition
        return True

    def raise_floors(self, committed: Mapping[Source, int], topics: Collection[str]) -> None:
        """Each worker's partials that begin before its committed offset have all been noted, repetitions included.

        So have all of a topic that has been deleted since, as its id is not among `topics`, those that there are; empty
        while it isn't known what workers read now.
        """
        over = {
            source: _END
            for source in self._places
            if topics and not any(same_topic(source[0], topic) for topic in topics)
        }
        for source, floor in {**committed, **over}.items():
            if floor > self.floors.get(source, 0):
                self.floors[source] = floor
                places = self._places.get(source, {})
                self._places[source] = {i: place for i, place in places.items() if i >> _HASH_BITS >= floor}

    def oldest(self) -> dict[int, int]:
        """By partition of `partials`: the first offset from which all that is kept can be noted again."""
        found: dict[int, int] = {}
        for places in self._places.values():
            for place in places.values():
                partition, offset = place & (1 << _PARTITION_BITS) - 1, place >> _PARTITION_BITS
                found[partition] = min(offset, found.get(partition, offset))
        return found
