"""What a workload is: a repeatable stream of keys in arrays, and the table that the keys' numbers stand in."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from keygrouping.workload.table import KeyTable

CHUNK = 65_536
"""Events per array, at most."""


class WorkloadError(ValueError):
    """A workload or file that can't be read as asked; one line that names the choices."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive events."""

    keys: NDArray[np.int64]
    """Positions in the workload's key table, shape (n,)."""
    weights: NDArray[np.float64] | None = None
    """Shape (n,); None: all of them 1."""
    sources: NDArray[np.int64] | None = None
    """Shape (n,): hash (see `keygrouping.hashing`) of the key by which the operator upstream got the event, so that
    `worker_of` says which of its instances sends it; None: round robin."""

    def __len__(self) -> int:
        return len(self.keys)


class Workload(Protocol):
    """A stream of events, in memory that is bounded by its distinct keys."""

    @property
    def name(self) -> str:
        """Its name in the registry, or its file's."""

    @property
    def events(self) -> int | None:
        """Number of events; None while it is not known."""

    @property
    def table(self) -> KeyTable:
        """The keys; it grows while chunks are read, and holds the keys of a chunk once the chunk is there."""

    def chunks(self) -> Iterator[Chunk]:
        """The stream from its begin, the same at every call."""
