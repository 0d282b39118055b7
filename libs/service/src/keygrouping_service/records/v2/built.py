"""Record batches for aiokafka's producer, in place of those that its own builder makes."""

from __future__ import annotations

import numpy as np

from keygrouping_service.records.protocols import Partitions, RecordBatch
from keygrouping_service.records.v2.batch import BufferBatch
from keygrouping_service.records.v2.writing import Packed, Sender, compressed, pack, sealed


def built(
    batch: RecordBatch, partitions: Partitions, codec: int, most: int, transactional: bool
) -> dict[int, list[BuiltBatch]]:
    """By partition, record batches of at most `most` bytes, or of one record, in their order."""
    chosen = batch if isinstance(batch, BufferBatch) else _in_a_buffer(batch)
    one, targets = 0, partitions
    if isinstance(partitions, int):
        one, targets = partitions, np.zeros(len(chosen), np.int64)
    found: dict[int, list[BuiltBatch]] = {}
    for each in pack(chosen, np.asarray(targets, np.int64), most):
        found.setdefault(one + each.target, []).append(BuiltBatch(each, codec, transactional))
    return found


def _in_a_buffer(batch: RecordBatch) -> BufferBatch:
    columns = batch.offsets.tolist(), batch.timestamps.tolist(), batch.keys, batch.values, batch.headers
    return BufferBatch.of(batch.topic, batch.partition, zip(*columns, strict=True))


class BuiltBatch:
    """What aiokafka's producer needs of a `BatchBuilder` that is full and closed.

    It says whose records they are once, and asks for the bytes then; a retry sends the same bytes.
    """

    def __init__(self, packed: Packed, codec: int, transactional: bool) -> None:
        self._packed = packed
        self._codec = codec
        self._sender = Sender(transactional=transactional)
        self._bytes: memoryview | None = None

    def compress(self) -> None:
        """Compresses it, if that is wanted; any thread may do that before it is sent."""
        if self._codec:
            self._packed, self._codec = compressed(self._packed, self._codec), 0

    def append(self, **_: object) -> None:
        """Takes nothing more."""

    def close(self) -> None:
        """It is closed."""

    def closed(self) -> bool:
        """Whether it takes nothing more."""
        return True

    def record_count(self) -> int:
        """Its records, which are as many sequence numbers."""
        return self._packed.records

    def size(self) -> int:
        """In bytes."""
        return len(self._packed.data)

    def _set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self._sender = Sender(producer_id, producer_epoch, base_sequence, self._sender.transactional)

    def _build(self) -> memoryview:
        if self._bytes is None:
            self._bytes = sealed(self._packed, self._sender)
        return self._bytes
