"""The events of one process: its share of a workload, with each event's partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from keygrouping.workload import Workload
from keygrouping_service.records.batches import partition_of

_START = b'{"number":%d,"weight":%d'
_PADDED = b'%b,"padding":"%b"}'
_PADDING_COST = len(_PADDED % (b"", b""))


class ScheduledEvent(NamedTuple):
    """What is to be sent: its place in the process' schedule, where it goes, its key and weight."""

    place: int
    partition: int
    key: bytes
    weight: float


def events_of(workload: Workload, partitions: int, slot: int, slots: int) -> Iterator[ScheduledEvent]:
    """The events `slot`, `slot` + `slots`, ... of a workload, to the partitions of Kafka's default partitioner."""
    names: list[bytes] = []
    targets: list[int] = []
    seen = place = 0
    for chunk in workload.chunks():
        table = workload.table
        for name in table.names(len(names), len(table)):
            names.append(name)
            targets.append(partition_of(name, partitions))
        first = (slot - seen) % slots
        keys = chunk.keys[first::slots].tolist()
        weights = [1.0] * len(keys) if chunk.weights is None else chunk.weights[first::slots].tolist()
        for key, weight in zip(keys, weights, strict=True):
            yield ScheduledEvent(place, targets[key], names[key], weight)
            place += 1
        seen += len(chunk)


def value_of(number: int, weight: float, least: int) -> bytes:
    """JSON with the event's number in the run and its weight, padded to `least` bytes."""
    start = _START % (number, weight) if weight == int(weight) else b'{"number":%d,"weight":%a' % (number, weight)
    if len(start) + 1 >= least:
        return start + b"}"
    return _PADDED % (start, b"x" * max(0, least - len(start) - _PADDING_COST))
