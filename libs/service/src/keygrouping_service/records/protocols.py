"""What the stages see of Kafka's records: batches of them as columns, where they come from and where they go.

Nothing here says how the bytes are decoded or packed: `v2` does that, and `aiokafka_adapter` has what it fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
from keygrouping.job import EventColumns
from numpy.typing import NDArray

from keygrouping_service.records.record import DeadLetter, Record

Header: TypeAlias = tuple[str, bytes | None]

Partitions: TypeAlias = "int | NDArray[np.integer[Any]]"
"""The partition of all records of a batch, or that of each."""

Written: TypeAlias = Mapping[tuple[str, int], Sequence[tuple[int, int]]]
"""Where records were written, by topic and partition: the first offset and the number of records of each batch."""


class RecordBatch(EventColumns, Protocol):
    """Records of one partition in the order of their offsets, column by column; all columns are as long as the batch.

    `offsets` may have gaps. `timestamps` are in ms since the epoch, -1 where a record has none. A key or value of None
    is missing. Columns that are no arrays may make their entries only when they are asked for. A batch never changes.
    """

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offsets(self) -> NDArray[np.int64]: ...

    def __iter__(self) -> Iterator[Record]:
        """Makes every record, one after the other."""

    def record(self, row: int) -> Record:
        """Makes one record; `row` may count from the end, as -1. IndexError if there is none."""

    def sizes(self) -> NDArray[np.int64]:
        """Bytes of key, value and headers of each record."""

    def cut(self, start: int, stop: int) -> Self:
        """The records from row `start` up to `stop`, without it."""

    def followed_by(self, later: Sequence[Self]) -> Self:
        """One batch of this and later ones of the same partition."""


class Source(Protocol):
    """The records of one partition, from some offset on. Only committed records are seen."""

    async def poll(self, most: int, timeout: float) -> RecordBatch:
        """The next records, at most `most`; an empty batch if none come within `timeout` seconds.

        Raises `UndecodableError` at a batch that can't be read, at each attempt; OffsetOutOfRangeError where the
        position is none of the partition's offsets; other KafkaErrors.
        """

    async def position(self) -> int:
        """The offset of the next record to come; markers and aborted records before it are passed over."""

    def end(self) -> int | None:
        """The partition's end as it was seen last, open transactions included; None if it has not been seen yet."""

    async def first(self) -> int:
        """The partition's first offset now."""

    def seek(self, offset: int) -> None:
        """Goes on at another offset."""

    def left_out(self) -> list[DeadLetter]:
        """The records before the position that were left out since the last call, as they are too large."""


class Sink(Protocol):
    """The records of one transaction; sent once. Timestamps are in ms since the epoch, -1 for none."""

    @property
    def records(self) -> int:
        """How many have been added."""

    def __bool__(self) -> bool:
        """Whether there is anything to send."""

    def append(
        self,
        topic: str,
        partition: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] = (),
    ) -> None:
        """Adds one record, where one is odd."""

    def pass_on(self, topic: str, partitions: Partitions, batch: RecordBatch) -> None:
        """Adds records of a batch unchanged: key, value, headers and timestamp."""

    def add(
        self,
        topic: str,
        partitions: Partitions,
        timestamp: int,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
    ) -> None:
        """Adds new records, which have no headers: what a stage makes by the thousand."""

    def end_with(self, topic: str, values: Callable[[Written], Iterable[bytes]]) -> None:
        """Has records without key written to partition 0 of a topic once the offsets of all others are known."""

    async def send(self) -> None:
        """Sends everything and returns when the broker has it; raises the first error there was.

        A transaction of which this has failed must not be committed.
        """
