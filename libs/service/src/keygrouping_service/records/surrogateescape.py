"""Reads records whose header names are not UTF-8, which aiokafka can't.

Kafka's protocol says that header names are UTF-8, its brokers and C clients don't check. Bytes that are not become lone
surrogates (PEP 383), so that a stage gets the record and can put it aside, with all that is good about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatch, _DefaultRecordBatchPy
from aiokafka.record.memory_records import _MemoryRecordsPy


def read_leniently() -> None:
    """From now on all consumers of this process fetch such records too; what was fetched before must be sought anew.

    Not the rule from the start, because whole batches are decoded at one stretch then.
    """
    fetcher.MemoryRecords = _LenientRecords


def lenient() -> bool:
    """Whether records with such header names may come."""
    return bool(fetcher.MemoryRecords is _LenientRecords)


def read_batch_leniently(data: Any) -> Any:
    """aiokafka's reader of a batch, which takes such names, too; from now on they may come."""
    read_leniently()
    return _LenientBatch(data)


class _LenientBytes(bytearray):
    """Bytes whose parts decode whatever they hold."""

    def __getitem__(self, index: Any) -> Any:
        part = super().__getitem__(index)
        return _LenientBytes(part) if isinstance(index, slice) else part

    def decode(self, encoding: str = "utf-8", errors: str = "surrogateescape") -> str:
        return super().decode(encoding, errors)


class _LenientBatch(_DefaultRecordBatchPy):  # type: ignore[misc]
    """aiokafka's own reader in Python, over lenient bytes."""

    _buffer: bytearray

    def __iter__(self) -> _LenientBatch:
        self._maybe_uncompress()
        self._buffer = _LenientBytes(self._buffer)
        return self


class _Batch:
    """A record batch that is read again, leniently, if the compiled reader fails at a header name."""

    def __init__(self, data: memoryview, batch: Any) -> None:
        self._data = data
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __iter__(self) -> Iterator[Any]:
        try:
            return iter(list(self._batch))
        except UnicodeDecodeError:
            return iter(list(_LenientBatch(self._data)))

    def __next__(self) -> Any:
        return next(self._batch)


class _LenientRecords(_MemoryRecordsPy):  # type: ignore[misc]
    """Cuts a fetched buffer into batches, as aiokafka does."""

    def next_batch(self, *limits: int) -> Any:
        data = self._next_slice
        batch = super().next_batch(*limits)
        return _Batch(data, batch) if isinstance(batch, DefaultRecordBatch) else batch
