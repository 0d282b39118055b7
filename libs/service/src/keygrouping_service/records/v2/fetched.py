"""The records of one fetched buffer, some at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from keygrouping_service.records.record import UndecodableError
from keygrouping_service.records.unpacking import AT_ONCE, Unpacking
from keygrouping_service.records.v2.batch import BufferBatch
from keygrouping_service.records.v2.reading import Reader
from keygrouping_service.records.v2.visibility import Visibility


class Fetched:
    """What was fetched of a partition, from an offset on; `aborted` as for `Visibility`.

    Records that are too large are handed to `unpacking` once the position is behind them.
    """

    def __init__(
        self,
        unpacking: Unpacking,
        topic: str,
        partition: int,
        offset: int,
        data: bytes,
        aborted: Iterable[tuple[int, int]],
    ) -> None:
        self.unpacking = unpacking
        self._ahead = Unpacking(unpacking.largest)
        self._reader = Reader(self._ahead, topic, partition, offset)
        self._parts: Iterator[BufferBatch] = self._reader.read(data, Visibility(aborted))
        self._nothing = BufferBatch.of(topic, partition, ())
        self._rest: BufferBatch | None = None
        self._failure: UndecodableError | None = None
        self.exhausted = False
        """Whether there is nothing more to take."""
        self.next_fetch_offset = offset
        """The offset of the next record to come."""

    def take(self, most: int | None) -> BufferBatch:
        """The next records; ends early where bytes have become many. Raises `UndecodableError` before a bad batch."""
        if self._failure is not None:
            failure, self._failure, self.exhausted = self._failure, None, True
            raise failure
        self._reader.unpacked = 0
        taken: list[BufferBatch] = []
        try:
            self._take_into(taken, most)
        except UndecodableError as error:
            self._failure = error
        self._move(taken)
        self.unpacking.unpacked += self._reader.unpacked
        if self._failure is not None and not taken:
            return self.take(most)
        return taken[0].followed_by(taken[1:]) if taken else self._nothing

    def _take_into(self, taken: list[BufferBatch], most: int | None) -> None:
        left = most
        while left is None or left > 0:
            if self._rest is None:
                if self._reader.unpacked >= AT_ONCE:
                    return
                self._rest = next(self._parts, None)
            if self._rest is None:
                self.exhausted = True
                return
            part, self._rest = self._rest, None
            if not len(part):
                continue
            if left is not None:
                if len(part) > left:
                    part, self._rest = part.cut(0, left), part.cut(left, len(part))
                left -= len(part)
            taken.append(part)

    def _move(self, taken: list[BufferBatch]) -> None:
        self.next_fetch_offset = int(taken[-1].offsets[-1]) + 1 if self._rest is not None else self._reader.position
        letters, here = self._ahead.letters, self.next_fetch_offset
        self.unpacking.letters += [letter for letter in letters if letter.record.offset < here]
        self._ahead.letters[:] = [letter for letter in letters if letter.record.offset >= here]
