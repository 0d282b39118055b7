"""What is read: events in batches, from wherever they come."""

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from keygrouping.inspection.span import moment


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
    times: NDArray[np.int64] | None = None
    """Shape (n,): of the records, in ms; below 0: not known; None: the source knows no times."""


class Sample(NamedTuple):
    """What is read of all that a topic held at the beginning."""

    size: int
    """Offsets that were read by now."""
    of: int
    """Offsets that there were."""
    records: int
    """Records at the offsets that were read; fewer than these where the topic is compacted or transactional."""


class Silence(NamedTuple):
    """Kafka doesn't answer."""

    since_ms: int
    partitions: int
    """Partitions for which there is no answer."""
    of: int
    """All partitions."""

    def __str__(self) -> str:
        since = f"{moment(self.since_ms)} UTC"
        whose = f"{self.partitions:,} of {self.of:,} partitions"
        return f"No answer from Kafka for {whose} since {since}: what came to them since then is missing."


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
    def sample(self) -> Sample | None:
        """The sample of what was there at the beginning; None: all of it is read."""

    @property
    def followed(self) -> int:
        """Number of events that came since the beginning."""

    @property
    def silence(self) -> Silence | None:
        """Since when there is no answer while it is followed; None: there is."""

    @property
    def left_out(self) -> Counter[str]:
        """How many records can't be used, by the reason that the router would give."""

    def batches(self) -> Generator[Batch, None, None]:
        """All that is to be read, once; to be closed by who stops before the end. Raises InspectionError."""
