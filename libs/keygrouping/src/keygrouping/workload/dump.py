"""Workloads read from files: dumps of real streams, plain or compressed, as streams themselves."""

import bz2
import codecs
import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from keygrouping.hashing import hash_keys
from keygrouping.workload.format import Format, ParsedEvent
from keygrouping.workload.stream import CHUNK, Chunk, WorkloadError
from keygrouping.workload.table import NamedKeys

Progress = Callable[[int, int], None]
"""Is told the bytes of the file that were read, compressed where it is, and their total; after every chunk."""

_GZIP = b"\x1f\x8b"
_BZIP2 = b"BZh"
_BUFFER = 1 << 17


@dataclass
class BadLines:
    """Lines that hold no event as they should; reading goes on behind them."""

    count: int = 0
    first_line: int | None = None
    """Number of the first one, from 1 on."""
    first_reason: str | None = None
    """What is wrong with the first one."""

    def add(self, line: int, reason: str) -> None:
        """One more."""
        self.count += 1
        if self.first_line is None:
            self.first_line, self.first_reason = line, reason


class Dump:
    """The events of a file. `bad` tells of the bad lines of the latest reading, as far as it has come."""

    def __init__(self, path: Path, layout: Format, limit: int | None, progress: Progress | None) -> None:
        self.name = path.name
        self.table = NamedKeys()
        self.bad = BadLines()
        self._path = path
        self._format = layout
        self._limit = limit
        self._progress = progress
        self._events: int | None = None

    @property
    def events(self) -> int | None:
        """Number of events; None until the file was read once."""
        return self._events

    @property
    def weighted(self) -> bool:
        """Whether its events have weights of their own."""
        return self._format.weighted

    def chunks(self) -> Iterator[Chunk]:
        return map(self._chunk, self.batches())

    def batches(self) -> Iterator[list[ParsedEvent]]:
        """The events themselves, at most `CHUNK` at once: for who needs no table of all keys."""
        self.bad = BadLines()
        met = 0
        with _opened(self._path) as file:
            total = os.fstat(file.fileno()).st_size
            events = islice(self._format.events(_lines(file, self.bad), self.bad.add), self._limit)
            while batch := list(islice(events, CHUNK)):
                met += len(batch)
                yield batch
                self._tell(file.tell(), total)
            self._events = met
            self._tell(file.tell(), total)

    def _chunk(self, batch: list[ParsedEvent]) -> Chunk:
        keys, weights, sources = zip(*batch, strict=True)
        return Chunk(
            self.table.positions(keys),
            np.array(weights, np.float64) if self._format.weighted else None,
            hash_keys(sources)[:, 0] if self._format.sourced else None,
        )

    def _tell(self, read: int, total: int) -> None:
        if self._progress:
            self._progress(read, total)


def check_readable(path: Path) -> None:
    """WorkloadError if there is no such file, or none that can be read."""
    with _opened(path):
        pass


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise WorkloadError(f"can't read file {str(path)!r}: {error.strerror}") from None


def _lines(file: BinaryIO, bad: BadLines) -> Iterator[bytes]:
    """The lines of a file, whatever its compression; where it is cut or damaged, a bad line is the last."""
    start = file.read(3)
    file.seek(0)
    content: Iterable[bytes] = file
    if start.startswith(_GZIP):
        content = io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=file)), _BUFFER)
    elif start == _BZIP2:
        content = io.BufferedReader(cast(io.RawIOBase, bz2.BZ2File(file)), _BUFFER)
    number = 0
    try:
        for line in content:
            number += 1
            yield line if number > 1 else line.removeprefix(codecs.BOM_UTF8)
    except (EOFError, zlib.error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise WorkloadError(f"can't read file {file.name!r}: {error.strerror}") from None
        bad.add(number + 1, f"the file is cut or damaged about here: {error}")
