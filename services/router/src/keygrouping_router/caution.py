"""Finds the record that the broker refuses, so that one record never stops a partition.

Records may be too large for `routed` or carry a timestamp that it does not take, because the topic has stricter limits
than the one they come from. The broker then refuses the whole batch, and the transaction with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiokafka.errors import InvalidTimestampError, MessageSizeTooLargeError, RecordListTooLargeError
from keygrouping_service.batches import Header, origin_headers
from keygrouping_service.kafka import Fatal

from keygrouping_router.routing import Record

REFUSALS = (InvalidTimestampError, MessageSizeTooLargeError, RecordListTooLargeError)

_NARROWING = 10
_MOST_KEPT_BYTES = 100_000


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch under way: offset of its first record, offset after its last, number of records."""

    first: int
    after: int
    records: int


class Caution:
    """Narrows down, over several attempts, which record of one partition is refused.

    A refused batch is tried again in parts of a tenth, a refused part likewise, until it is one record: that one is
    `banned`. Beyond the end of a refused part its neighbours go at their size again.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._levels: list[tuple[int, int]] = []
        self._banned: set[int] = set()

    def limit(self, position: int) -> int:
        """Most records to take from `position` on."""
        while self._levels and position >= self._levels[-1][0]:
            self._levels.pop()
        return self._levels[-1][1] if self._levels else self._most

    def banned(self, offset: int) -> bool:
        """Whether the record was refused all by itself."""
        return offset in self._banned

    def refused(self, batch: Batch, error: Exception) -> None:
        """Takes note of a refused batch; `Fatal` if there is nothing left to leave out."""
        if batch.records > 1:
            self._levels.append((batch.after, max(1, batch.records // _NARROWING)))
        elif self.banned(batch.first):
            raise Fatal(f"even the dead letter for the event at offset {batch.first} is refused: {error}")
        else:
            self._banned.add(batch.first)


@dataclass(frozen=True, slots=True)
class Remains:
    """What of a refused record the broker can be expected to take."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: list[Header]


def remains_of(record: Record, now_ms: int) -> Remains:
    """The dead letter of a refused record: without what is large, and stamped with the current time."""
    detail = "the broker refused it: check max.message.bytes and message.timestamp.after.max.ms of the routed topic"
    headers = origin_headers(record, "refused-by-broker", detail)
    headers.append(("keygrouping-timestamp", str(record.timestamp).encode()))
    ours = headers[len(record.headers) :]
    key_size, value_size = len(record.key or b""), len(record.value or b"")
    header_size = sum(len(name) + len(value or b"") for name, value in record.headers)
    return Remains(
        record.key if key_size <= _MOST_KEPT_BYTES else None,
        record.value if value_size <= _MOST_KEPT_BYTES else None,
        now_ms,
        headers if header_size <= _MOST_KEPT_BYTES else ours,
    )
