"""Which events of a partition have ended: the first one that has not, and those behind it that have.

Events end in another order than they were read in. What is committed is the offset of the first that has not ended; the
ones behind it that have stand in the commit's metadata, so that after a crash only what had not ended runs again.

Only offsets that were read are kept. What a partition skips (transaction markers, compacted records) counts as ended:
there is nothing to do for it.

The metadata is `kg1:` and base64 of a byte that says which of two forms follows, whichever is shorter:

- runs: lengths, as varints, of offsets that have not ended and that have, in turn, from the committed offset on;
- bits: one per offset from the committed one on, the lowest bit of a byte first; 1 has ended.
"""

from __future__ import annotations

import base64
import binascii
import copy
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

MOST_METADATA = 4096
"""Bytes that a broker takes as metadata of a commit by default (`offset.metadata.max.bytes`)."""

CROWDED = 1 / 3
"""Of the offsets that metadata has room for whatever ends: so far apart they are many."""
_PREFIX = "kg1:"
_RUNS, _BITS = b"\x00", b"\x01"
_LARGEST_OFFSET = 2**63 - 1
_SEVEN_BITS = 7
_MOST_OPEN = 8 * MOST_METADATA
_AT_FIRST, _LATELY = 100, 4000
"""Of how many events it is taken to be known how far apart their offsets are: at first none is missing; at most."""
_PAGE_BITS = 10
_PAGE = 1 << _PAGE_BITS
_IN_PAGE = _PAGE - 1
_OPEN, _ENDED = 0, 1
_NONE_OPEN = bytes([_ENDED]) * _PAGE
_END_OF_RUN = bytes([_OPEN, _ENDED])
_DIGITS = bytes.maketrans(bytes([_OPEN, _ENDED]), b"01")


class GapsError(ValueError):
    """Metadata of a commit that is none of ours, or is damaged."""


class Ended:
    """Offsets that have ended, as ranges [start, stop) in order; what a commit's metadata says."""

    def __init__(self, ranges: Sequence[tuple[int, int]] = ()) -> None:
        self.ranges = tuple(ranges)
        self._starts = [start for start, _ in self.ranges]

    def __contains__(self, offset: int) -> bool:
        place = bisect_right(self._starts, offset) - 1
        return place >= 0 and offset < self.ranges[place][1]

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def still_open(self, first: int) -> Iterator[int]:
        """The offsets from the committed one on, up to the last that has ended, that have not."""
        for start, stop in self.ranges:
            yield from range(first, start)
            first = stop


class Gaps:
    """The events of one partition that were read and have not ended.

    `position` is the offset that is read next. `limit` is the size in bytes that the metadata never exceeds: as many
    events are taken (`fitting`) as it has room for whatever the order in which they end. If more are taken all the
    same, those furthest behind may be left out, and would run again after a crash.
    """

    def __init__(self, position: int, ended: Ended | None = None, limit: int = MOST_METADATA) -> None:
        self.position = position
        self._pages: dict[int, bytearray] = {}
        """A byte for each offset, by its upper bits, ascending, as partitions are read. Where no page is, all ended."""
        self._count = 0
        self._unread = set(ended.still_open(position) if ended else ())
        self._open(sorted(self._unread))
        self._highest = ended.ranges[-1][1] - 1 if ended else position - 1
        self._payload = (limit - len(_PREFIX)) // 4 * 3 - 1
        self._taken, self._passed = _AT_FIRST, _AT_FIRST
        """How many events were taken of late, and how many offsets these are of."""
        self._first = position
        self.known = self._highest
        """The last offset of which the commit that was found said that it has ended."""
        self.cut = False
        """Whether not all that has ended had room in the metadata that was made last."""

    def __len__(self) -> int:
        return self._count

    @property
    def first(self) -> int:
        """The first offset that has not ended: what is committed."""
        if not self.is_open(self._first):
            self._first = next(self._open_ranges(), (max(self.position, self.known + 1), 0))[0]
        return self._first

    @property
    def span(self) -> int:
        """How many offsets lie between the first one that has not ended and the next that nothing is known of."""
        return max(self.position, self.known + 1) - self.first

    @property
    def is_crowded(self) -> bool:
        """Whether what has not ended for long takes much of the room."""
        return self.span > CROWDED * self._payload * 8

    def room(self) -> int:
        """How many further events may be read, if their offsets are as far apart as those of late."""
        return self._room(self._taken / self._passed)

    @property
    def offsets_left(self) -> int:
        """How many further offsets may be read, if there is an event at each of them."""
        return self._room(1.0)

    def _room(self, dense: float) -> int:
        in_bits = int((self._payload * 8 - self.span) * dense)
        in_runs = self._most_runs(2 * self.span + 2 * self._payload * 8) - self._count - 1
        return max(0, in_bits, in_runs) + max(0, self.known + 1 - self.position)

    def fitting(self, offsets: Sequence[int]) -> int:
        """How many of these may be taken, from the first on: such that the metadata fits in whatever order they end.

        They are wanted, and ascend.
        """
        if not offsets:
            return 0
        first = self.first if self._count else offsets[0]
        if offsets[-1] < (bits := first + self._payload * 8):
            return len(offsets)
        counted = bisect_right(offsets, self.known)  # as open ones, when the commit was found

        def is_over(place: int) -> bool:
            most = self._most_runs(offsets[place] + 1 - first)
            return offsets[place] >= bits and self._count + place + 1 - counted > most

        return bisect_left(range(len(offsets)), True, lo=counted, key=is_over)

    def _most_runs(self, span: int) -> int:
        """How many open events fit if all stand alone: each is a run of one, with one of ended ones before it."""
        return self._payload // (1 + _varint_size(span))

    def is_open(self, offset: int) -> bool:
        """Whether the event at an offset was read and has not ended."""
        page = self._pages.get(offset >> _PAGE_BITS)
        return page is not None and page[offset & _IN_PAGE] == _OPEN

    def wants(self, offset: int) -> bool:
        """Whether the event at an offset from `position` on has not ended yet, as far as the last commit said."""
        return offset > self.known or offset in self._unread

    def take(self, offsets: Sequence[int], position: int) -> None:
        """Events that are wanted were read; offsets ascend and lie below `position`, where reading goes on."""
        if self._unread:
            self._unread.difference_update(offsets)
            gone = [offset for offset in self._unread if offset < position]  # deleted by retention or compaction
            self._unread.difference_update(gone)
            self._end(gone)
            offsets = [offset for offset in offsets if offset > self.known]
        if offsets:
            self._note_density(len(offsets), position - max(self.position, self.known + 1))
        self._open(offsets)
        self.position = position

    def end(self, offsets: Sequence[int]) -> None:
        """Events have ended: they are handled or dead-lettered. KeyError if one was not open."""
        if offsets:
            self._end(offsets)
            self._highest = max(self._highest, *offsets)

    def once_ended(self, offsets: Sequence[int]) -> Gaps:
        """As it would be if these had ended, too. KeyError if one is not open."""
        other = copy.copy(self)
        other._pages = {number: page[:] for number, page in self._pages.items()}
        other.end(offsets)
        return other

    def encode(self) -> str:
        """Metadata for the commit of `first`; empty if nothing behind it has ended."""
        first, stop = self.first, self._highest + 1
        self.cut = False
        if stop <= first:
            return ""
        dense = self._dense(first, stop) if stop - first <= self._payload * 8 else b""
        size = (len(dense) + 7) // 8
        # Each run of ended ones and the one before it take a byte each at least.
        if dense and 2 * dense.count(_END_OF_RUN) > size:
            return _text(_BITS + _bits(dense))
        runs = self._runs()
        # A number of seven bits is its own varint.
        in_runs = bytes(runs) if max(runs) < 1 << _SEVEN_BITS else b"".join(map(_varint, runs))
        if dense and size < len(in_runs):
            return _text(_BITS + _bits(dense))
        self.cut = len(in_runs) > self._payload
        return _text(_RUNS + (self._fitting(runs) if self.cut else in_runs))

    def _note_density(self, events: int, offsets: int) -> None:
        self._taken += events
        self._passed += offsets
        if self._taken > _LATELY:
            self._taken, self._passed = self._taken // 2, self._passed // 2

    def _open(self, offsets: Sequence[int]) -> None:
        if not offsets:
            return
        self._count += len(offsets)
        first, stop, pages = offsets[0], offsets[-1] + 1, self._pages
        if stop - first > len(offsets):
            for offset in offsets:
                number = offset >> _PAGE_BITS
                if number not in pages:
                    pages[number] = bytearray(_NONE_OPEN)
                pages[number][offset & _IN_PAGE] = _OPEN
            return
        while first < stop:
            number, begin = first >> _PAGE_BITS, first & _IN_PAGE
            end = min(_PAGE, begin + stop - first)
            pages.setdefault(number, bytearray(_NONE_OPEN))[begin:end] = bytes(end - begin)
            first += end - begin

    def _end(self, offsets: Sequence[int]) -> None:
        pages = self._pages
        for offset in offsets:
            page = pages[offset >> _PAGE_BITS]
            place = offset & _IN_PAGE
            if page[place]:
                raise KeyError(offset)
            page[place] = _ENDED
        self._count -= len(offsets)

    def _dense(self, first: int, stop: int) -> bytes:
        """A byte for each offset in [first, stop)."""
        begin = first >> _PAGE_BITS
        pages = [self._pages.get(number, _NONE_OPEN) for number in range(begin, ((stop - 1) >> _PAGE_BITS) + 1)]
        return b"".join(pages)[first - (begin << _PAGE_BITS) : stop - (begin << _PAGE_BITS)]

    def _fitting(self, runs: list[int]) -> bytes:
        """The first runs only."""
        packed = b""
        for still, ended in zip(runs[::2], runs[1::2], strict=True):
            both = _varint(still) + _varint(ended)
            if len(packed) + len(both) > self._payload:
                break
            packed += both
        return packed

    def _runs(self) -> list[int]:
        """Lengths of what has not ended and what has, in turn, from `first` up to the highest that has."""
        runs: list[int] = []
        before = self.first
        begin = before
        for start, stop in self._open_ranges():
            if start > self._highest:
                break
            if start > before:
                runs += before - begin, start - before
                begin = start
            before = stop
        return [*runs, before - begin, self._highest + 1 - before]

    def _open_ranges(self) -> Iterator[tuple[int, int]]:
        """Ranges [start, stop) of what has not ended, ascending; two may touch. Pages without any are dropped."""
        for number, page in [*self._pages.items()]:
            start = page.find(_OPEN)
            if start < 0:
                del self._pages[number]
            base = number << _PAGE_BITS
            while start >= 0:
                stop = page.find(_ENDED, start)
                if stop < 0:
                    stop = _PAGE
                yield base + start, base + stop
                start = page.find(_OPEN, stop)


def decode(first: int, metadata: str | None) -> Ended:
    """What has ended behind the committed offset `first`; nothing if there is no metadata.

    GapsError if it can't be what `Gaps.encode` has made.
    """
    if not metadata:
        return Ended()
    if len(metadata) > MOST_METADATA or not metadata.startswith(_PREFIX) or first < 0:
        raise GapsError(f"metadata of offset {first} is none of keygrouping: {metadata[:40]!r}")
    try:
        packed = base64.b64decode(metadata[len(_PREFIX) :], validate=True)
    except (binascii.Error, ValueError) as error:
        raise GapsError(f"metadata of offset {first} is no base64: {error}") from None
    runs = _read_runs(packed)
    if sum(runs[::2]) > _MOST_OPEN:
        raise GapsError(f"metadata of offset {first} has more open events than a member ever holds")
    return Ended(list(_ranges(first, runs)))


def _ranges(first: int, runs: Iterable[int]) -> Iterator[tuple[int, int]]:
    offset, ended = first, False
    for length in runs:
        stop = offset + length
        if length <= 0 or stop > _LARGEST_OFFSET:
            raise GapsError(f"metadata of offset {first} has a run of {length}")
        if ended:
            yield offset, stop
        offset, ended = stop, not ended
    if ended:
        raise GapsError(f"metadata of offset {first} ends with events that have not ended")


def _read_runs(packed: bytes) -> list[int]:
    form, body = packed[:1], packed[1:]
    if form == _RUNS and body:
        return _varints(body)
    if form == _BITS and body and body[-1] and not body[0] & 1:
        return _runs_of_bits(body)
    raise GapsError(f"metadata in an unknown form, {form!r}")


def _runs_of_bits(body: bytes) -> list[int]:
    bits = bin(int.from_bytes(body, "little"))[:1:-1]
    runs, place = [], 0
    while place < len(bits):
        other = bits.find("1" if bits[place] == "0" else "0", place)
        stop = len(bits) if other < 0 else other
        runs.append(stop - place)
        place = stop
    return runs


def _bits(dense: bytes) -> bytes:
    return int(dense[::-1].translate(_DIGITS), 2).to_bytes((len(dense) + 7) // 8, "little")


def _varint_size(number: int) -> int:
    return max(1, (number.bit_length() + _SEVEN_BITS - 1) // _SEVEN_BITS)


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _varints(body: bytes) -> list[int]:
    numbers, number, shift = [], 0, 0
    for byte in body:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(number)
            number = shift = 0
        elif shift > 63:
            raise GapsError("metadata has a number that is too large")
    if shift:
        raise GapsError("metadata ends within a number")
    return numbers


def _text(packed: bytes) -> str:
    return _PREFIX + base64.b64encode(packed).decode()
