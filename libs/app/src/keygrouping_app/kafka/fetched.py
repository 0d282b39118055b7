"""Has a consumer give records as aiokafka's compiled reader makes them, with no object of the client's own around each.

Those objects, and the client's steps from one record to the next, cost more than all else that reading takes: here it
goes from piece to piece of a batch. What an event needs beside its record, its topic and partition, it has from its
source.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any
from weakref import ref

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer.fetcher import Fetcher, FetchResult, PartitionRecords

from keygrouping_app.events import Raw

_UNLIMITED = 1 << 30
_BACKOFF = 0.002
"""Seconds; partitions that are given one after another are fetched together."""

_WAIT_BESIDE_MS = 10
"""For which brokers wait for records of other partitions while these are not given yet, as what comes after these is
fetched only then."""


def give_bare_records(consumer: AIOKafkaConsumer) -> Fetched:
    """From now on `getmany` gives `Raw` records; the consumer has been started, and nothing fetched yet."""
    fetched = consumer._fetcher._records = Fetched(consumer._fetcher)
    return fetched


class Fetched(OrderedDict[TopicPartition, Any]):
    """What was fetched and not given yet, as results or errors."""

    def __init__(self, fetcher: Fetcher) -> None:
        super().__init__()
        self._fetcher = fetcher
        self.rooms: Mapping[TopicPartition, int] = {}
        """How many records of each partition are given at once, at most; of all others as many as there are."""

    def wait_for(self, milliseconds: int) -> None:
        """For so long brokers wait for records where there are none; they answer nothing else on that connection.

        It is less for what is fetched while something waits to be given.
        """
        self._fetcher._fetch_max_wait_ms = milliseconds

    def __setitem__(self, tp: TopicPartition, fetched: Any) -> None:
        if isinstance(fetched, FetchResult):
            records = fetched._partition_records
            records._consumer_record = _bare
            records._records = batches = _Batches(records)
            # The class itself is what aiokafka asks for. In a cycle it would be in memory until garbage is collected.
            fetched.getall = partial(self._all_of, ref(fetched), batches)
            # For this long nothing else of its broker is fetched, unless all of it was given.
            fetched._backoff = _BACKOFF
            self._fetcher._fetch_max_wait_ms = _WAIT_BESIDE_MS
        super().__setitem__(tp, fetched)

    def _all_of(self, this: ref[FetchResult], batches: _Batches, max_records: int | None = None) -> list[Raw]:
        """The next records, at most so many."""
        assert max_records is None, "`rooms` says how many"
        fetched = this()
        assert fetched is not None
        if not fetched.check_assignment(fetched._topic_partition) or not fetched.has_more():
            return []
        found: list[Raw] = []
        batches.most = most = self.rooms.get(fetched._topic_partition, _UNLIMITED)
        for piece in fetched._partition_records:
            found += piece.records
            batches.most = most - len(found)
            if not batches.most:
                fetched._update_position()
                break
        else:
            fetched._update_position()
            fetched._partition_records = None
        return found


@dataclass(frozen=True, slots=True)
class _Piece:
    """Records that follow each other in a batch; to aiokafka one record, at the last one's offset."""

    records: list[Raw]

    @property
    def offset(self) -> int:
        return self.records[-1].offset


def _bare(_: TopicPartition, piece: _Piece) -> _Piece:
    return piece


class _Batches:
    """The batches of what was fetched."""

    def __init__(self, given: PartitionRecords) -> None:
        self._given = ref(given)
        self._batches = given._records
        self.most = _UNLIMITED
        """Records of the next piece at most."""

    def has_next(self) -> bool:
        return bool(self._batches.has_next())

    def next_batch(self) -> _Batch:
        return _Batch(self._batches.next_batch(), self)

    @property
    def first(self) -> int:
        """The offset that is read next."""
        given = self._given()
        assert given is not None
        return int(given.next_fetch_offset)


class _Batch:
    """As aiokafka's, but that it goes from piece to piece."""

    def __init__(self, batch: Any, of: _Batches) -> None:
        self._batch = batch
        self._of = of

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)

    def __iter__(self) -> Iterator[_Piece]:
        left = chain(self._batch)  # aiokafka's can't be asked in parts, nor once it is over
        while records := list(islice(left, self._of.most)):
            if records[0].offset < (first := self._of.first):  # a batch is fetched as a whole
                records = [each for each in records if each.offset >= first]
            if records:
                yield _Piece(records)
