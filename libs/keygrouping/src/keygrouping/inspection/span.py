"""When records were written: from the earliest to the latest."""

from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Span(NamedTuple):
    """The smallest and the largest time of some records."""

    earliest_ms: int
    latest_ms: int


def span_of(times: NDArray[np.int64]) -> Span | None:
    """The span of these times in ms; None where none of them is known, that is, 0 or more."""
    known = times[times >= 0]
    return Span(int(known.min()), int(known.max())) if len(known) else None


def joined(*spans: Span | None) -> Span | None:
    """One span over all that are known; None where none is."""
    known = [span for span in spans if span is not None]
    if not known:
        return None
    return Span(min(span.earliest_ms for span in known), max(span.latest_ms for span in known))


def moment(ms: int, layout: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A time as text, in UTC."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime(layout)
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
