"""What both aggregators tell of the final results that they have written: when, and how late."""

from __future__ import annotations

import time
from collections.abc import Iterable

from keygrouping_service.observability import metrics

HISTORICAL_MS = 86_400_000
"""What comes later than this (ms) is a replay of history, and says nothing of how late the pipeline is."""


class FinalResults:
    """The metrics of one aggregator stage. Delays are shown from its start, so that the first one is an increase."""

    def __init__(self, group: str, lateness_ms: int) -> None:
        self._group = group
        self._lateness_ms = lateness_ms
        metrics.RESULT_DELAY.labels(group)

    def written(self, ends: Iterable[int]) -> None:
        """Final results of windows have just been committed. `ends` (event time in ms): the end of each window."""
        now_ms = time.time() * 1000
        for end in ends:
            delay_ms = now_ms - (end + self._lateness_ms)
            if delay_ms < HISTORICAL_MS:
                metrics.RESULT_DELAY.labels(self._group).observe(max(0.0, delay_ms / 1000))
        metrics.LAST_RESULT.labels(self._group).set_to_current_time()
