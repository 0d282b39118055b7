"""Events that can be routed, column by column, and where they go. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from keygrouping.job import ExtractedColumns, chosen_keys
from keygrouping_service.records.protocols import RecordBatch
from numpy.typing import NDArray


@dataclass(slots=True)
class Usable:
    """The records of a batch that the job can use, column by column; `weights` is None if all weigh 1."""

    batch: RecordBatch
    keys: Sequence[bytes]
    times: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, found: ExtractedColumns[RecordBatch]) -> Usable:
        """What was taken of the usable records of a batch."""
        weights = None if found.weights is None else found.weights.floats()
        return cls(found.events, found.keys, found.times, weights)

    def cut(self, start: int, stop: int) -> Usable:
        """The records from row `start` up to `stop`, without it."""
        here = slice(start, stop)
        weights = None if self.weights is None else self.weights[here]
        return Usable(self.batch.cut(start, stop), self.keys[here], self.times[here], weights)

    def where(self, chosen: NDArray[np.bool_]) -> Usable:
        """Only the chosen records."""
        weights = None if self.weights is None else self.weights[chosen]
        keys = chosen_keys(self.keys, chosen)
        return Usable(self.batch.where(chosen), keys, self.times[chosen], weights)


@dataclass(slots=True)
class Routed:
    """The worker of each record of a batch, and the hashes of its key."""

    workers: NDArray[np.int32]
    hashes: NDArray[np.int64]
