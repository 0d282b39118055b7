"""What is read: events in batches, from wherever they come."""

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class InspectionError(ValueError):
    """Something that can't be read or inspected as asked; one line that says what to do."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Some events; none at all is a sign of life."""

    keys: Sequence[bytes]
    weights: NDArray[np.float64] | None = None
    """Shape (n,); None: all of them 1."""
    partitions: NDArray[np.int64] | None = None
    """Shape (n,): where each lies; None: the source has no partitions."""
    earliest_ms: int | None = None
    """The smallest time of a record in it; None: the source knows no times."""
    latest_ms: int | None = None


class Reading(Protocol):
    """A topic or file that is read once, and never written to."""

    @property
    def kind(self) -> str:
        """`topic` or `file`."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def partitions(self) -> int | None:
        """Number of its partitions; None where there are none."""

    @property
    def sampled_of(self) -> int | None:
        """Number of records of which a sample is read; None: all are read."""

    @property
    def left_out(self) -> Counter[str]:
        """How many records can't be used, by the reason that the router would give."""

    def batches(self) -> Generator[Batch, None, None]:
        """All that is to be read, once; to be closed by who stops before the end. Raises InspectionError."""
