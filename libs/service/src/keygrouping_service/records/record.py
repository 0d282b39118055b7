"""One record on its own, and what becomes of it as a late event or dead letter."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from keygrouping.job import Headers

TOO_LARGE, UNDECODABLE = "record-too-large", "undecodable-batch"
"""Reasons of dead letters that a source makes."""

KEPT_BYTES = 100_000
"""Most bytes of a key or a value that a dead letter keeps."""


class Record(NamedTuple):
    """One record of a batch, whole: see `RecordBatch.record`.

    `timestamp` is in ms since the epoch, -1 without one. A key or value of None is missing, b"" is empty. Bytes of a
    header's name that are not UTF-8 are lone surrogates (PEP 383).
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class DeadLetter(NamedTuple):
    """What goes to `dead-letters` instead of a record: the record, maybe truncated, and why.

    `last` is the last offset that it stands for, if that is more than the record's.
    """

    record: Record
    reason: str
    detail: str
    last: int | None = None

    @property
    def offset(self) -> int:
        """The first offset that it stands for."""
        return self.record.offset

    @property
    def after(self) -> int:
        """The offset behind the last one."""
        return (self.record.offset if self.last is None else self.last) + 1


def in_order(records: Iterable[Record], left_out: Collection[DeadLetter]) -> list[Record | DeadLetter]:
    """What a partition gave, with what was left out of it where it was."""
    found: list[Record | DeadLetter] = [*records, *left_out]
    return sorted(found, key=attrgetter("offset")) if left_out else found


def by_partition(left_out: Iterable[DeadLetter]) -> dict[TopicPartition, list[DeadLetter]]:
    """Those of each partition."""
    found: dict[TopicPartition, list[DeadLetter]] = {}
    for letter in left_out:
        found.setdefault(TopicPartition(letter.record.topic, letter.record.partition), []).append(letter)
    return found


class UndecodableError(KafkaError):  # type: ignore[misc]
    """A batch can't be read. `letter` is what to put aside, to go on at offset `after`."""

    def __init__(self, letter: DeadLetter, after: int) -> None:
        super().__init__(letter.detail)
        self.letter = letter
        self.after = after


def truncated(record: Record) -> Record:
    """The record with what of it is small: the beginnings of key and value, and the headers if they aren't large."""
    key, value, headers = record.key, record.value, record.headers
    if sum(len(name) + len(text or b"") for name, text in headers) > KEPT_BYTES:
        headers = ()
    return record._replace(key=key and key[:KEPT_BYTES], value=value and value[:KEPT_BYTES], headers=headers)
