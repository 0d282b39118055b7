"""A record batch of which every part has been decoded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, compress, repeat
from typing import TypeAlias

import numpy as np
from keygrouping.job import Headers
from numpy.typing import NDArray

from keygrouping_service.records.record import Record

Row: TypeAlias = tuple[int, int, bytes | None, bytes | None, Headers]
"""Offset, timestamp, key, value and headers of a record."""


@dataclass(frozen=True, slots=True)
class Columns:
    """A `RecordBatch` over lists of what was decoded."""

    topic: str
    partition: int
    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers]
    undecoded_names: bool = False

    @classmethod
    def of(cls, topic: str, partition: int, rows: Iterable[Row], undecoded_names: bool = False) -> Columns:
        """The batch of these records."""
        offsets, timestamps, keys, values, headers = list(zip(*rows, strict=True)) or ((),) * 5
        return cls(
            topic,
            partition,
            np.array(offsets, np.int64),
            np.array(timestamps, np.int64),
            keys,
            values,
            headers,
            undecoded_names,
        )

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Record]:
        """Makes every record, one after the other."""
        numbers = (repeat(self.topic), repeat(self.partition), self.offsets.tolist(), self.timestamps.tolist())
        return map(Record, *numbers, self.keys, self.values, self.headers)

    def record(self, row: int) -> Record:
        """Makes one record."""
        place = (self.topic, self.partition, int(self.offsets[row]), int(self.timestamps[row]))
        return Record(*place, self.keys[row], self.values[row], self.headers[row])

    def sizes(self) -> NDArray[np.int64]:
        """Bytes of key, value and headers of each record."""
        parts = zip(self.keys, self.values, self.headers, strict=True)
        return np.array(
            [len(key or b"") + len(value or b"") + _header_bytes(headers) for key, value, headers in parts], np.int64
        )

    def cut(self, start: int, stop: int) -> Columns:
        """The records from row `start` up to `stop`, without it."""
        here = slice(start, stop)
        return Columns(
            self.topic,
            self.partition,
            self.offsets[here],
            self.timestamps[here],
            self.keys[here],
            self.values[here],
            self.headers[here],
            self.undecoded_names,
        )

    def where(self, chosen: NDArray[np.bool_]) -> Columns:
        """Only the chosen records."""
        kept = chosen.tolist()
        return Columns(
            self.topic,
            self.partition,
            self.offsets[chosen],
            self.timestamps[chosen],
            list(compress(self.keys, kept)),
            list(compress(self.values, kept)),
            list(compress(self.headers, kept)),
            self.undecoded_names,
        )

    def followed_by(self, later: Sequence[Columns]) -> Columns:
        """One batch of this and later ones."""
        if not later:
            return self
        parts = (self, *later)
        return Columns(
            self.topic,
            self.partition,
            np.concatenate([part.offsets for part in parts]),
            np.concatenate([part.timestamps for part in parts]),
            list(chain.from_iterable(part.keys for part in parts)),
            list(chain.from_iterable(part.values for part in parts)),
            list(chain.from_iterable(part.headers for part in parts)),
            any(part.undecoded_names for part in parts),
        )


def _header_bytes(headers: Headers) -> int:
    return sum(len(name.encode(errors="surrogateescape")) + len(value or b"") for name, value in headers)
