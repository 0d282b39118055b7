"""From batches of columns to record batches of message format 2, in three steps.

`pack` writes the records by their targets and `compressed` compresses, neither of them holding the interpreter;
`sealed` says whose records they are once that is known, which takes a checksum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from keygrouping.slices import buffer_of
from numpy.typing import NDArray

from keygrouping_service.records.v2.batch import BufferBatch
from keygrouping_service.records.v2.crc_kernel import crc32c
from keygrouping_service.records.v2.deflating import deflate
from keygrouping_service.records.v2.layout import (
    ATTRIBUTES_AT,
    BEFORE_LENGTH,
    CRC_AT,
    HEADER_BYTES,
    TRANSACTIONAL,
    Header,
)
from keygrouping_service.records.v2.split_kernel import Lanes, split


@dataclass(frozen=True, slots=True)
class Packed:
    """Records of one target; `data` has room for a header before them. Times are in ms since the epoch."""

    target: int
    records: int
    first_time: int
    newest_time: int
    data: memoryview
    codec: int = 0


class Sender(NamedTuple):
    """Whose records they are, as brokers number them for exactly once; -1 for nobody's."""

    id: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional: bool = False


def pack(batch: BufferBatch, targets: NDArray[np.int64], most: int) -> list[Packed]:
    """The records by `targets` (one for each, from 0), in their order, in batches of at most `most` bytes.

    A larger record has a batch of its own. Key, value, headers and timestamp stay what they are.
    """
    if len(targets) != len(batch) or (len(targets) and targets.min() < 0):
        raise ValueError("every record needs a target from 0 on")
    table, targets = np.ascontiguousarray(batch.table), np.ascontiguousarray(targets, np.int64)
    lanes = Lanes(*np.zeros((len(Lanes._fields), int(targets.max(initial=-1)) + 1), np.int64))
    count = split(batch.data, table, targets, most, lanes, np.empty(0, np.uint8), np.empty((0, 6), np.int64))
    ends = np.cumsum(lanes.at)
    lanes.at[:] = ends - lanes.at
    out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    batches = np.empty((count, 6), np.int64)
    split(batch.data, table, targets, most, lanes, out, batches)
    view = out.data
    return [
        Packed(target, records, first, newest, view[start:end])
        for target, start, end, records, first, newest in batches.tolist()
    ]


def compressed(packed: Packed, codec: int) -> Packed:
    """The same compressed (see `inflating`), or unchanged if that would be no smaller."""
    records = packed.data[HEADER_BYTES:]
    smaller = deflate(codec, records)
    if len(smaller) >= len(records):
        return packed
    return replace(packed, data=memoryview(bytearray(HEADER_BYTES) + smaller), codec=codec)


def sealed(packed: Packed, sender: Sender) -> memoryview:
    """The whole record batch, whose header is written to where there was room for it."""
    attributes = packed.codec | (TRANSACTIONAL if sender.transactional else 0)
    last = packed.records - 1
    length = len(packed.data) - BEFORE_LENGTH
    times = (packed.first_time, packed.newest_time)
    header = Header(0, length, -1, 2, 0, attributes, last, *times, sender.id, sender.epoch, sender.sequence, last + 1)
    header.write(packed.data)
    checksum = int(crc32c(buffer_of(packed.data), ATTRIBUTES_AT, len(packed.data)))
    packed.data[CRC_AT:ATTRIBUTES_AT] = checksum.to_bytes(4, "big")
    return packed.data
