"""What experiments ask of streams besides running them."""

from collections.abc import Iterator

import numpy as np
from keygrouping.workload import Chunk, KeyTable, Workload
from numpy.typing import NDArray


def key_counts(stream: Workload) -> NDArray[np.int64]:
    """The number of events of each key of a stream, by its position in the table."""
    counts = np.zeros(0, np.int64)
    for chunk in stream.chunks():
        counts = np.pad(counts, (0, len(stream.table) - len(counts)))
        np.add.at(counts, chunk.keys, 1)
    return counts


class Unsourced:
    """The same events as another stream's, dealt to the sources in turn instead of by a key of theirs."""

    def __init__(self, stream: Workload) -> None:
        self.name = stream.name
        self.events = stream.events
        self.table: KeyTable = stream.table
        self._stream = stream

    def chunks(self) -> Iterator[Chunk]:
        return (Chunk(chunk.keys, chunk.weights) for chunk in self._stream.chunks())
