"""What an exporter is asked to watch."""

from collections.abc import Sequence
from dataclasses import dataclass

from keygrouping.inspection.extraction import Extraction
from keygrouping.inspection.names import KeyNaming


@dataclass(frozen=True)
class Wanted:
    """A topic to watch, and how."""

    topic: str
    extraction: Extraction
    naming: KeyNaming
    workers: Sequence[int]
    """Numbers of workers to try, beside that of the topic's partitions."""
    window: float
    """Seconds that the figures are of."""
    every: float
    """Seconds between two plans, and between two sets of figures."""
    top: int
    """Keys in the advice."""
    key_labels: bool
    """Whether there are series with the names of keys."""
