"""A source that ends: what lies at its end and behind it is not among the records."""

from __future__ import annotations

from keygrouping_service.records.protocols import RecordBatch, Source
from keygrouping_service.records.record import DeadLetter


class Bounded:
    """The records of another `Source` before the offset `until`; to be polled while the position lies before it."""

    def __init__(self, source: Source, until: int) -> None:
        self._source = source
        self._until = until

    async def poll(self, most: int, timeout: float) -> RecordBatch:
        """The next records, see `Source`."""
        found = await self._source.poll(most, timeout)
        return found if not len(found) or found.offsets[-1] < self._until else found.where(found.offsets < self._until)

    async def position(self) -> int:
        """The offset of the next record to come, at most the end."""
        return min(await self._source.position(), self._until)

    def end(self) -> int | None:
        """The end, as far as it was seen."""
        seen = self._source.end()
        return None if seen is None else min(seen, self._until)

    async def first(self) -> int:
        """The partition's first offset now, at most the end."""
        return min(await self._source.first(), self._until)

    def seek(self, offset: int) -> None:
        """Goes on at another offset."""
        self._source.seek(offset)

    def left_out(self) -> list[DeadLetter]:
        """The records before the end that were left out since the last call."""
        return [letter for letter in self._source.left_out() if letter.record.offset < self._until]
