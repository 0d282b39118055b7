"""What every reader of `partials` asks of a partial before it believes it."""

from __future__ import annotations

import math

from keygrouping.partial import Partial, RecordError

from keygrouping_service.progress import END

OFFSET_BITS = 47
MOST_WORKERS = 1 << 16


def check(key: bytes | None, partial: Partial) -> None:
    """Raises `RecordError` for members that no worker writes: they could hold a window open for ever."""
    if key is None:
        raise RecordError("the record has no key")
    if not 0 <= partial.worker < MOST_WORKERS:
        raise RecordError(f"worker {partial.worker} must be in [0, {MOST_WORKERS})")
    if not 0 <= partial.first <= partial.last < 1 << OFFSET_BITS:
        raise RecordError(f"offsets {partial.first}..{partial.last} are no range of a partition")
    if not partial.start < partial.end <= END:
        raise RecordError(f"[{partial.start}, {partial.end}) is no window")
    if partial.events < 1 or not math.isfinite(partial.weight) or partial.weight < 0:
        raise RecordError("events must be at least 1, weight a number of at least 0")
