"""Writes records to batches by their targets, each record's bytes in one copy; needs numba."""

from typing import Any, NamedTuple

import numpy as np
from keygrouping.byte_copy import copy
from keygrouping.compiled import kernel
from numpy.typing import NDArray

from keygrouping_service.records.v2.layout import BODY, END, HEADER_BYTES, TIME


class Lanes(NamedTuple):
    """By target, the batch that is written: where it goes on and began, its records, its first and its newest time."""

    at: NDArray[np.int64]
    start: NDArray[np.int64]
    records: NDArray[np.int64]
    first_time: NDArray[np.int64]
    newest_time: NDArray[np.int64]


@kernel
def split(
    data: NDArray[np.uint8],
    table: NDArray[np.int64],
    targets: NDArray[np.int64],
    most: int,
    lanes: Lanes,
    out: NDArray[np.uint8],
    batches: NDArray[np.int64],
) -> int:
    """Writes the records into `out`, each to its target's lane, in batches of at most `most` bytes; how many batches.

    With an `out` of no bytes it only counts: batches, and bytes in `lanes.at`. By batch, `batches` takes target,
    start, end, records, first and newest time.
    """
    made = 0
    for row in range(len(targets)):
        lane = targets[row]
        rest = table[END, row] - table[BODY, row]
        time = table[TIME, row]
        # Time and offset are differences, so the record may be longer or shorter in the next batch: it is asked twice.
        if lanes.records[lane]:
            size = length_of(lanes, lane, time, rest)
            if lanes.at[lane] - lanes.start[lane] + varint_size(size) + size > most:
                finish(lanes, lane, batches, made)
                made += 1
        if not lanes.records[lane]:
            lanes.start[lane] = lanes.at[lane]
            lanes.at[lane] += HEADER_BYTES
            lanes.first_time[lane] = time
            lanes.newest_time[lane] = time
        size = length_of(lanes, lane, time, rest)
        if len(out):
            at = put_varint(out, lanes.at[lane], size)
            out[at] = 0  # the record's attributes, of which there are none
            at = put_varint(out, at + 1, time - lanes.first_time[lane])
            at = put_varint(out, at, lanes.records[lane])
            # From the length of the key on nothing depends on the batch.
            copy(out, at, data, table[BODY, row], rest)
        lanes.at[lane] += varint_size(size) + size
        lanes.records[lane] += 1
        lanes.newest_time[lane] = max(time, lanes.newest_time[lane])
    for lane in range(len(lanes.at)):
        if lanes.records[lane]:
            finish(lanes, lane, batches, made)
            made += 1
    return made


@kernel
def length_of(lanes: Lanes, lane: int, time: int, rest: int) -> Any:
    """Bytes of the lane's next record, without those of this number."""
    return 1 + varint_size(time - lanes.first_time[lane]) + varint_size(lanes.records[lane]) + rest


@kernel
def finish(lanes: Lanes, lane: int, batches: NDArray[np.int64], made: int) -> None:
    """Notes the lane's batch, unless nothing is noted, and begins the next one."""
    if len(batches):
        batches[made, 0] = lane
        batches[made, 1] = lanes.start[lane]
        batches[made, 2] = lanes.at[lane]
        batches[made, 3] = lanes.records[lane]
        batches[made, 4] = lanes.first_time[lane]
        batches[made, 5] = lanes.newest_time[lane]
    lanes.records[lane] = 0


@kernel
def varint_size(value: int) -> int:
    """Bytes of a signed varint."""
    rest = np.uint64(value << 1) ^ np.uint64(value >> 63)
    size = 1
    while rest > np.uint64(127):
        rest >>= np.uint64(7)
        size += 1
    return size


@kernel
def put_varint(out: NDArray[np.uint8], at: int, value: int) -> int:
    """Writes a signed varint; gives where it ends."""
    rest = np.uint64(value << 1) ^ np.uint64(value >> 63)
    while rest > np.uint64(127):
        out[at] = np.uint8(rest & np.uint64(0x7F)) | np.uint8(128)
        rest >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(rest)
    return at + 1
