"""Messages of the old formats 0 and 1, by aiokafka's reader of them in Python; see `aiokafka_adapter`."""

from __future__ import annotations

from collections.abc import Iterator

from aiokafka.record.legacy_records import _LegacyRecordBatchPy

from keygrouping_service.records.columns import Row

_MAGIC_AT = 16


class LegacyMessage:
    """A message of the old formats 0 or 1, or one that wraps others; iterating gives its records."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._batch = _LegacyRecordBatchPy(data, data[_MAGIC_AT])

    @property
    def after(self) -> int:
        """The offset behind it."""
        return int(self._batch.next_offset)

    def is_whole(self) -> bool:
        """Whether its checksum is right; to be asked before it is iterated over."""
        return bool(self._batch.validate_crc())

    def __iter__(self) -> Iterator[Row]:
        for record in self._batch:
            time_ms = record.timestamp
            yield record.offset, -1 if time_ms is None else time_ms, record.key, record.value, ()
